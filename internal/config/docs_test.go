package config

import (
	"os"
	"strings"
	"testing"
)

// TestDocs_Guide reads the configuration that docs/guide.md shows.
func TestDocs_Guide(t *testing.T) {
	text, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "<!-- example: weir.yaml -->\n```yaml\n")
	block, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/guide.md has no example weir.yaml")
	}
	c, err := Parse("weir.yaml", []byte(block), env())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Captures) != 4 || len(c.Pulls) != 2 {
		t.Errorf("the guide's configuration has %d captures and %d pulls, want 4 and 2", len(c.Captures), len(c.Pulls))
	}
	for _, s := range c.Specs() {
		want := "archive,default"
		if s.Table.Name == "instances" || s.Table.Name == "events" {
			want = "archive"
		}
		if got := strings.Join(s.Queues, ","); got != want {
			t.Errorf("%s feeds the queues %s, want %s", s.Table, got, want)
		}
	}
}
