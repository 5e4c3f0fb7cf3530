package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-cdc/weir/internal/testdb"
)

// One trigger was disabled, one dropped, one function or trigger edited: check
// says which is which, and apply puts all of it right.
func TestCheck_SaysWhatWasDone(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, engine(t), testdb.SQLite(t)).applied()
			one := func(query string) (s string) {
				t.Helper()
				if err := l.source.QueryRowContext(t.Context(), query).Scan(&s); err != nil {
					t.Fatal(err)
				}
				return s
			}
			var want []string
			switch name {
			case "Postgres":
				trigger := func(event string) string {
					return one("select tgname from pg_trigger where tgrelid = 'orders'::regclass and tgname like '%" + event + "'")
				}
				exec1(t, l.source, "alter table orders disable trigger "+trigger("insert"))
				want = append(want, "trigger "+trigger("insert")+" on public.orders: it is disabled")
				want = append(want, "trigger "+trigger("delete")+" on public.orders: it was dropped")
				exec1(t, l.source, "drop trigger "+trigger("delete")+" on orders")
				f := one("select p.proname from pg_proc p join pg_trigger g on g.tgfoid = p.oid where g.tgrelid = 'orders'::regclass and g.tgname like '%update'")
				exec1(t, l.source, "create or replace function weir."+f+"() returns trigger language plpgsql security definer as 'begin return null; end'")
				want = append(want, "function "+f+": its body, its settings, its owner or its rights were changed")
			case "SQLServer":
				trigger := func(table string) string {
					return one("select name from sys.triggers where parent_id = object_id('dbo." + table + "')")
				}
				disabled, dropped := trigger("orders"), trigger("items")
				edited := strings.Replace(dropped, "weir_", "GI_Capture_", 1) + "_Present"
				exec1(t, l.source, "alter table dbo.orders disable trigger "+disabled, "drop trigger dbo."+dropped,
					"drop procedure dbo."+edited, "create procedure dbo."+edited+" as select 1")
				want = append(want, "trigger "+disabled+" on dbo.orders: it is disabled", "trigger "+dropped+" on dbo.items: it was dropped",
					"function "+edited+": its body, its settings, its owner or its rights were changed")
			default:
				dropped := one("select min(name) from sqlite_schema where type = 'trigger' and tbl_name = 'orders'")
				edited := one("select max(name) from sqlite_schema where type = 'trigger' and tbl_name = 'orders'")
				exec1(t, l.source, "drop trigger "+dropped, "drop trigger "+edited, "create trigger "+edited+" after insert on orders begin select 1; end")
				want = append(want, "trigger "+dropped+" on orders: it was dropped", "trigger "+edited+" on orders: its definition was changed")
			}
			r := l.weir(exitDiffers, "triggers", "check")
			for _, w := range want {
				if !strings.Contains(r.errors, w) {
					t.Errorf("check:\n%swant %q in it", r.errors, w)
				}
			}
			l.weir(exitDone, "triggers", "apply")
			l.weir(exitDone, "triggers", "check")
		})
	}
}

// A captured table that was dropped, or lost its key, is drift; one that never
// was captured is a fault of the configuration.
func TestCheck_TableIsLost(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, engine(t), testdb.SQLite(t))
			l.weir(exitDone, "init")
			rename := func(from, to string) string {
				if name == "SQLServer" {
					return "exec sp_rename 'dbo." + from + "', '" + to + "', 'OBJECT'"
				}
				return "alter table " + from + " rename to " + to
			}
			exec1(t, l.source, rename("items", "elsewhere"))
			if r := l.weir(exitUsage, "triggers", "check"); !strings.Contains(r.errors, "items") {
				t.Errorf("never captured: %s", r.errors)
			}
			exec1(t, l.source, rename("elsewhere", "items"))
			l.weir(exitDone, "triggers", "apply")

			exec1(t, l.source, "drop table orders")
			orders, items := "table "+l.tableName("orders"), "table "+l.tableName("items")
			const lost = ": it was captured, and cannot be any more: "
			if r := l.weir(exitDiffers, "triggers", "check"); !strings.Contains(r.errors, orders+lost) || strings.Contains(r.errors, items) || !strings.Contains(r.errors, "take it out of captures") {
				t.Errorf("dropped: %s", r.errors)
			}
			if name == "Postgres" {
				exec1(t, l.source, "alter table items drop constraint items_pkey")
			} else {
				exec1(t, l.source, "drop table items", "create view items as select 1 as id")
			}
			r := l.weir(exitDiffers, "triggers", "check", "--json")
			if !strings.Contains(r.out, orders+`"`) || !strings.Contains(r.out, items+`"`) {
				t.Errorf("both: %s", r.out)
			}
		})
	}
}

func TestRender_MakesTheDirectory(t *testing.T) {
	l := newLine(t, testdb.SQLite(t), testdb.SQLite(t))
	l.weir(exitDone, "init")
	dir := filepath.Join(t.TempDir(), "db", "migrations")
	l.weir(exitDone, "triggers", "render", "--dir", dir)
	if files, err := os.ReadDir(dir); err != nil || len(files) != 4 {
		t.Errorf("%d files, %v, want 4", len(files), err)
	}
}

// A path with a slip in it is said, and no empty database takes the place of the
// source.
func TestSource_NoSuchFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	dir := configIn(t, "source: {url: 'sqlite:"+file+"'}\ncaptures: [{table: t}]\npulls: [{name: p, schedule: '@every 1s', target: {url: 'sqlite:"+file+".copy'}}]\n")
	for _, args := range [][]string{{"init"}, {"triggers", "plan"}, {"triggers", "check"}, {"backfill"}, {"pull", "p"}, {"status"}} {
		r := weirIn(t, dir, "", args...)
		if r.code != exitFailed || !strings.Contains(r.errors, file+": no such file") || !strings.Contains(r.errors, "check the path in source.url") {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.errors)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%v: the file was made (%v)", args, err)
		}
	}
}
