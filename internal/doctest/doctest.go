// Package doctest reads what tests take from the documents: examples, which
// they run, and tables, which they compare with the code.
package doctest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Example is the code block that a document marks by name.
func Example(t testing.TB, file, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, file), "<!-- example: "+name+" -->")
	block, _, ended := strings.Cut(rest, "<!-- end -->")
	if !found || !ended {
		t.Fatalf("%s has no example %q", file, name)
	}
	block = strings.TrimSpace(block)
	_, block, _ = strings.Cut(block, "\n")
	return strings.TrimSuffix(strings.TrimSpace(block), "```")
}

// Examples are the names of a document's examples, in their order.
func Examples(t testing.TB, file string) []string {
	t.Helper()
	var names []string
	for _, m := range regexp.MustCompile(`<!-- example: (\S+) -->`).FindAllStringSubmatch(read(t, file), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatalf("%s has no examples", file)
	}
	return names
}

// Table is the table whose first head is given: each row's cells by their
// heads. It has a row at least.
func Table(t testing.TB, file, first string) []map[string]string {
	t.Helper()
	var rows []map[string]string
	var heads []string // of the table at hand
	for line := range strings.Lines(read(t, file)) {
		if !strings.HasPrefix(line, "|") {
			heads = nil
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case heads == nil:
			heads = cells
		case heads[0] == first && cells[0] != "---":
			row := map[string]string{}
			for i, head := range heads {
				row[head] = cells[i]
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table of %q", file, first)
	}
	return rows
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
