package sqlite

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

// ident quotes a name.
func ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// idents quotes names and joins them by commas.
func idents(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = ident(n)
	}
	return strings.Join(q, ", ")
}

// literal quotes a text.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// queueTable names the table of a queue.
func queueTable(queue string) string {
	if queue == weir.DefaultQueue {
		return "weir_instance_changes"
	}
	return "weir_instance_changes_" + queue
}

// now is the clock of the source in microseconds. julianday is exact to the
// millisecond that SQLite's clock has.
const now = "cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000"

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(weirsql.FS, "sqlite/tagging/*.tmpl"))

// tagTime is the time of a tag. The clock stands still for a millisecond; the
// changes that the connection has made so far tell the statements of one
// millisecond apart, roughly.
const tagTime = now + " + total_changes() % 1000"

// render fills in a file of weirsql.FS, or a template defined in one.
func render(name string, data any) (string, error) {
	t := templates.Lookup(name)
	if t == nil {
		text, err := weirsql.FS.ReadFile("sqlite/" + name)
		if err != nil {
			return "", err
		}
		if t, err = template.New(name).Option("missingkey=error").Parse(string(text)); err != nil {
			return "", err
		}
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("render %s: %w", name, err)
	}
	return b.String(), nil
}
