package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir/internal/doctest"
	"github.com/weir-cdc/weir/internal/testdb"
)

// verify runs weir verify --json, and returns what it found, as "table key how".
func (l *line) verify(code int) (found []string, v verification) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.weir(code, "verify", "copy", "--json", "--wait", "0s").out), &v); err != nil {
		l.t.Fatal(err)
	}
	for _, t := range v.Tables {
		for _, d := range t.Differing {
			found = append(found, fmt.Sprintf("%s %s %s", t.Table[strings.LastIndex(t.Table, ".")+1:], strings.Join(d.Key, ","), d.How))
		}
	}
	return found, v
}

func TestVerify(t *testing.T) {
	for _, from := range []string{"Postgres", "SQLite"} {
		for _, to := range []string{"Postgres", "SQLite"} {
			t.Run(from+"To"+to, func(t *testing.T) {
				t.Parallel()
				l := newLine(t, engines[from](t), engines[to](t)).applied()
				for i := 100; i < 400; i++ {
					exec1(t, l.source, fmt.Sprintf("insert into orders (id, v) values (%d, 'order ''%d''')", i, i))
				}
				if found, v := l.verify(exitDiffers); len(found) != 4 || v.Unsettled != 300 || !slices.Contains(found, "orders 3 missing") || !slices.Contains(found, "items 10 missing") {
					t.Errorf("before the first pull, without tables at the target: %d differ: %.200q", len(found), found)
				}
				l.weir(exitDone, "backfill")
				l.weir(exitDone, "pull", "copy")
				found, v := l.verify(exitDone)
				if len(found) > 0 || len(v.Tables) != 2 || v.Tables[1].SourceRows != 303 || v.Tables[1].TargetRows != 303 || len(v.Tables[1].LeftOut) > 0 {
					t.Errorf("equal: found %q in %+v", found, v)
				}
				if out := l.weir(exitDone, "verify", "copy").out; !strings.Contains(out, "  303     303     0          0\n") {
					t.Errorf("equal: printed\n%s", out)
				}

				exec1(t, l.target, "update orders set v = 'A' where id = 1", "update orders set v = null where id = 2", "update orders set v = '' where id = 3",
					"update orders set v = v || ' ' where id = 100", "delete from orders where id = 399", "insert into orders (id, v) values (-7, 'x')", "delete from items")
				want := []string{"items 10 missing", "orders -7 extra", "orders 1 changed", "orders 100 changed", "orders 2 changed", "orders 3 changed", "orders 399 missing"}
				if found, v := l.verify(exitDiffers); !slices.Equal(found, want) || v.Differing != len(want) {
					t.Errorf("found %q (%d), want %q", found, v.Differing, want)
				}
				// Values that change places are differences of both keys.
				exec1(t, l.target, "update orders set v = case id when 101 then 'order ''102''' else 'order ''101''' end where id in (101, 102)")
				if found, _ := l.verify(exitDiffers); !slices.Contains(found, "orders 101 changed") || !slices.Contains(found, "orders 102 changed") {
					t.Errorf("after an exchange found %q", found)
				}
			})
		}
	}
}

// TestVerify_Docs runs what docs/verify.md shows.
func TestVerify_Docs(t *testing.T) {
	l := &line{t: t}
	source, target := testdb.SQLite(t), testdb.SQLite(t)
	l.source, l.target = connectTo(t, source), connectTo(t, target)
	l.dir = configIn(t, fmt.Sprintf("source: {url: '%s'}\ncaptures: [{table: items}]\npulls: [{name: copy, target: {url: '%s'}}]\n", source, target))
	exec1(t, l.source, "create table items (id integer not null primary key, v text)", "insert into items values (1, 'a'), (2, ''), (3, null), (4, 'd')")
	l.applied()
	l.weir(exitDone, "backfill")
	l.weir(exitDone, "pull", "copy")
	exec1(t, l.target, "update items set v = 'b' where id = 1", "delete from items where id = 3", "insert into items values (9, 'x')")
	r := l.weir(exitDiffers, "verify", "copy")
	if got, want := "$ weir verify copy\n"+r.out+r.errors, doctest.Example(t, "../../docs/verify.md", "verify"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := l.weir(exitDiffers, "verify", "copy", "--json").out, doctest.Example(t, "../../docs/verify.md", "verify-json"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestVerify_Refused: a side or a pull that cannot be compared is named.
func TestVerify_Refused(t *testing.T) {
	for _, c := range []struct{ source, target, more, want string }{
		{"sqlserver://sa@127.0.0.1:9?database=x", "sqlite:t.db", "", "source.url: weir verify does not support SQL Server yet"},
		{"sqlite:s.db", "sqlserver://sa@127.0.0.1:9?database=x", "", "pulls[0].target.url: weir verify does not support SQL Server yet"},
		{"sqlite:s.db", "sqlite:t.db", ", change_types: [Instance Inserted]", "pulls[0].change_types: weir verify cannot compare a pull that takes a part of the changes"},
	} {
		dir := configIn(t, fmt.Sprintf("source: {url: '%s'}\ncaptures: [{table: items}]\npulls: [{name: copy, target: {url: '%s'}%s}]\n", c.source, c.target, c.more))
		if r := weirIn(t, dir, "", "verify", "copy"); r.code != exitUsage || !strings.Contains(r.errors, c.want) {
			t.Errorf("exit code %d: %s; want %q", r.code, r.errors, c.want)
		}
	}
}
