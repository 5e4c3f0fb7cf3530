package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printJSON writes one indented object. Field names are stable.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table writes aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(toAny(head)...)
	return t
}

func (t table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		text := clean(fmt.Sprint(c))
		if text == "" {
			text = "-"
		}
		fmt.Fprint(t.w, text)
	}
	fmt.Fprintln(t.w)
}

func (t table) flush() error { return t.w.Flush() }

func toAny(s []string) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}

// clean shows control characters instead of sending them to a terminal.
func clean(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// count writes a number with its noun: 1 row, 2 rows.
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// human writes a duration in its two largest units.
func human(d time.Duration) string {
	units := []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	switch {
	case d < 0:
		return "-" + human(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	d = d.Round(time.Second)
	for i, u := range units {
		if d < u.size {
			continue
		}
		out := fmt.Sprintf("%d%s", d/u.size, u.name)
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				out += fmt.Sprintf(" %d%s", rest, units[i+1].name)
			}
		}
		return out
	}
	return "0s"
}

// age writes how long ago something was, or nothing for none.
func age(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return human(d)
}
