package dialects_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/puller"
)

// example is the code block that a document marks by name.
func example(t *testing.T, file, name string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "<!-- example: "+name+" -->")
	block, _, ended := strings.Cut(rest, "<!-- end -->")
	if !found || !ended {
		t.Fatalf("%s has no example %q", file, name)
	}
	block = strings.TrimSpace(block)
	_, block, _ = strings.Cut(block, "\n")
	return strings.TrimSuffix(strings.TrimSpace(block), "```")
}

// TestDocs_PullByHand runs the SQL of docs/protocol.md as it stands there.
func TestDocs_PullByHand(t *testing.T) {
	d := newDatabase(t, "postgres", "public")
	d.exec(t, "create table customers (id integer primary key, name text)", "create schema shop")
	shop := *d
	shop.schema = "shop"
	l := newLine(t, d, &shop, puller.Config{}, weir.CaptureSpec{Table: weir.ParseTable("public.customers")})
	if _, err := l.target.Ledger(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "insert into customers values (1, 'one'), (2, 'two')", "delete from customers where id = 2")

	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got []string
	for _, statement := range strings.Split(example(t, "../docs/protocol.md", "pull-by-hand"), ";\n") {
		rows, err := conn.QueryContext(t.Context(), statement)
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			if name, ok := (*values[len(values)-1].(*any)).(string); ok {
				got = append(got, name)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		rows.Close()
	}
	if strings.Join(got, ",") != "one" {
		t.Errorf("the rows read by hand are %q, want the one that is present", got)
	}
	if n := l.left(t); n != 0 {
		t.Errorf("%d changes and pulls are left after settling by hand", n)
	}
	committed, err := l.target.Revoke(t.Context(), mustGUID(t, "7f0c3c2e-9d7b-4c56-8c5f-2f2d7f1f9a01"))
	if err != nil || !committed {
		t.Errorf("the ledger says committed = %t, %v; want true", committed, err)
	}
}

func mustGUID(t *testing.T, s string) weir.GUID {
	t.Helper()
	g, err := weir.ParseGUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
