package dialects_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/doctest"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/puller"
)

// TestDocs_PullByHand runs the psql script of docs/protocol.md as it stands
// there, twice: a second pull has a GUID of its own.
func TestDocs_PullByHand(t *testing.T) {
	psql := testdb.Bin(t, "psql")
	d := newDatabase(t, "postgres", "public")
	d.exec(t, "create table customers (id integer primary key, name text)", "create schema shop", "insert into customers values (2, 'two'), (3, 'three')")
	shop := *d
	shop.schema = "shop"
	l := newLine(t, d, &shop, puller.Config{}, weir.CaptureSpec{Table: weir.ParseTable("public.customers")})
	d.exec(t, "update customers set name = name")
	l.drain(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "pull.sql")
	if err := os.WriteFile(script, []byte(doctest.Example(t, "../docs/protocol.md", "pull-by-hand")), 0o600); err != nil {
		t.Fatal(err)
	}
	pull := func() {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), psql, "-X", "-v", "source="+d.url, "-v", "target="+d.url, "-f", script, d.url)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if n := l.left(t); n != 0 {
			t.Errorf("%d changes and pulls are left after settling by hand", n)
		}
	}
	rows := func(want string) {
		t.Helper()
		var got string
		if err := d.db.QueryRowContext(t.Context(), "select string_agg(id || ' ' || name, ', ' order by id) from shop.customers").Scan(&got); err != nil || got != want {
			t.Errorf("the target has %q (%v), want %q", got, err, want)
		}
	}
	d.exec(t, "insert into customers values (1, 'one')", "delete from customers where id = 2")
	pull()
	rows("1 one, 3 three")
	d.exec(t, "update customers set name = 'once more' where id = 3")
	pull()
	rows("1 one, 3 once more")
	var committed int
	if err := d.db.QueryRowContext(t.Context(), "select count(*) from shop.weir_ledger where state = 'committed'").Scan(&committed); err != nil || committed < 2 {
		t.Errorf("the ledger has %d committed pulls (%v), want 2 or more", committed, err)
	}
}
