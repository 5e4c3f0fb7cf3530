package sqlserver

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/doctest"
	weirsql "github.com/weir-cdc/weir/sql"
)

// TestRendered renders all the SQL that needs no server to be known: migrations,
// routines, the objects of captures of each kind, the tables that a target makes,
// and the document's examples. Each piece of each template must come out in one
// of them. With WEIR_TEST_TSQL the texts are left in that directory, for
// .ci/tsql.js to parse.
func TestRendered(t *testing.T) {
	dir := os.Getenv("WEIR_TEST_TSQL")
	if dir == "" {
		dir = t.TempDir()
	}
	files := 0
	var all strings.Builder
	write := func(name string, batches ...string) {
		t.Helper()
		text := strings.Join(batches, "\nGO\n")
		if strings.TrimSpace(text) == "" || strings.Contains(text, "{{") || strings.Contains(text, "<no value>") {
			t.Errorf("%s is rendered as %.200q", name, text)
		}
		files++
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rendered_%03d.sql", files)), []byte("-- "+name+"\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		all.WriteString(unquoted(text))
	}
	must := func(text string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, made := range []server{{}, {snapshots: true}, {babelfish: true}} {
		s := &Source{schema: "weir o'neil]", made: &made}
		for _, name := range routines {
			for _, log := range []int{logNothing, logText, logObjectAndText} {
				write(name, must(s.routine(name, log)))
			}
		}
		for _, queue := range []string{weir.DefaultQueue, "other"} {
			write("tag routine of "+queue, must(s.tagRoutine(queue)))
		}
		for _, p := range renderedPlans() {
			s.widen(p)
			objects, err := s.objects(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				name := fmt.Sprintf("%s %s of a capture: %s, %s, %d key columns", o.Kind, o.Name, p.Kind, p.Tagging, len(p.Key))
				write(name, o.Create...)
				write(name+", dropped", o.Drop...)
			}
		}
	}
	s := &Source{schema: "weir o'neil]"}
	for _, name := range []string{"000001_create_queue.up.sql", "000001_create_queue.down.sql"} {
		write(name, must(s.render("migrations/"+name, s.names())))
	}
	for _, mode := range []weir.Mode{weir.Mirror, weir.SoftDelete, weir.History} {
		target := &Target{schema: "dw o'neil]", opts: weir.TargetOptions{Mode: mode, NewColumns: weir.Evolve}}
		for _, name := range []string{"ledger", "decide"} {
			write(name, must(target.applySQL(name)))
		}
		for _, p := range renderedPlans() {
			for _, encoding := range []weir.Encoding{Encoding, weir.EncodingText} {
				b := &weir.TableBatch{Capture: p.Capture, Encoding: encoding}
				for _, c := range p.table.columns {
					b.Columns = append(b.Columns, c.Column)
				}
				// One to make, and one that lacks a column.
				there := &table{columns: p.table.columns}
				for _, name := range mode.OwnColumns() {
					there.columns = append(slices.Clone(there.columns), column{Column: weir.Column{Name: name}})
				}
				b.Columns = append(b.Columns, weir.Column{Name: "more'[]", Kind: weir.Text, Native: "nvarchar(50)"})
				for _, have := range []*table{nil, there} {
					changes, err := target.alterations(have, weir.Table{Schema: target.schema, Name: p.Table.Name}, b)
					if err != nil {
						t.Fatal(err)
					}
					write(fmt.Sprintf("target table: %s, %s, %d key columns", mode, p.Kind, len(p.Key)), changes...)
				}
			}
		}
	}
	const doc = "../../docs/sqlserver.md"
	for _, name := range doctest.Examples(t, doc) {
		write(name+" of the document", doctest.Example(t, doc, name))
	}

	err := fs.WalkDir(weirsql.FS, "sqlserver", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(weirsql.FS, file)
		if err != nil || !strings.Contains(string(text), "{{") {
			return err
		}
		parsed, err := template.New(path.Base(file)).ParseFS(weirsql.FS, file, "sqlserver/tagging/tag.sql.tmpl")
		if err != nil {
			return err
		}
		for _, piece := range parsed.Templates() {
			for _, text := range texts(piece.Root) {
				if !strings.Contains(all.String(), unquoted(text)) {
					t.Errorf("a piece of %s (%s) is in nothing that is rendered: %.300q", file, piece.Name(), text)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unquoted takes the quotes off: a text that stands in a literal has them twice.
func unquoted(text string) string { return strings.ReplaceAll(text, "'", "") }

// texts are the plain texts of a template, of all its branches.
func texts(n parse.Node) []string {
	var out []string
	switch n := n.(type) {
	case *parse.TextNode:
		return []string{strings.TrimSpace(string(n.Text))}
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, m := range n.Nodes {
			out = append(out, texts(m)...)
		}
	case *parse.IfNode:
		out = append(texts(n.List), texts(n.ElseList)...)
	case *parse.RangeNode:
		out = append(texts(n.List), texts(n.ElseList)...)
	case *parse.WithNode:
		out = append(texts(n.List), texts(n.ElseList)...)
	}
	return out
}

// renderedPlans are captures of each kind, with keys and names that need care.
func renderedPlans() []*plan {
	key := func(name, base string, length int, null bool) *column {
		c := &column{base: base, maxLength: length, precision: 19, scale: 4, collation: "Latin1_General_CI_AS"}
		c.Name, c.NotNull = name, !null
		c.describe()
		return c
	}
	var plans []*plan
	for _, kind := range []weir.CaptureKind{weir.Plain, weir.Instance, weir.Child} {
		for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
			for _, keys := range [][]*column{
				{key("id", "int", 4, false)},
				{key("a]b", "nvarchar", 80, false), key("d", "datetime2", 8, false), key("m", "decimal", 9, false), key("g", "uniqueidentifier", 16, true)},
			} {
				c := &weir.Capture{ID: 7, Table: weir.Table{Schema: "dbo", Name: "cust'omers]"}, Kind: kind, Tagging: tagging,
					ChangeType: "Child Changed", Set: len(keys) > 1, Queues: []string{weir.DefaultQueue, "other"}}
				table := &table{Table: c.Table}
				for _, k := range keys {
					c.Key = append(c.Key, k.Column)
					table.columns = append(table.columns, *k)
				}
				plans = append(plans, &plan{Capture: c, keyCols: keys, table: table})
			}
		}
	}
	return plans
}
