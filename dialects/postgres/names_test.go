package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/internal/testdb"
)

// hostile are names that break what does not quote.
var hostile = []string{
	"select", "MixedCase", "two words", `quo"te`, "apos'trophe", `back\slash`, "per%cent %s %1$I %%", "$weir$", "$$", "$move$ $rows$ $tag$ $body$", "täglich 日本 🐟",
	"{{.Schema}}", "semi;colon--/*", "line\nbreak", "new_rows", "old_rows", "v_done", "tg_relid", strings.Repeat("x", 63), strings.Repeat("ü", 31), "U&\"\\0041\"", "a.b", "k", "guid", "r",
}

// aliases are the names that weir's own SQL gives to rows, columns and variables.
var aliases = []string{"n", "o", "t", "x", "q", "d", "b", "c", "e", "g", "p", "s", "k0", "k1", "c0", "c1", "e0", "key", "keys", "concept", "place", "gone", "excluded", "old", "new",
	"found", "v_guids", "v_keys", "v_concepts", "i_guids", "i_keys"}

// TestNames captures tables and columns of every hostile name, in a schema of
// such a name, with weir's own tables in another.
func TestNames(t *testing.T) {
	for _, schema := range hostile {
		if strings.HasPrefix(schema, "pg_") {
			continue
		}
		t.Run(fmt.Sprintf("weir in %q", schema), func(t *testing.T) {
			t.Parallel()
			url := testdb.Postgres(t)
			w := worldAt(t, url, schema)
			own := pgx.Identifier{schema}.Sanitize() + "."
			tables := hostile
			if testing.Short() {
				tables = hostile[:3]
			}
			in := "app " + schema
			if len(in) > 63 {
				in = schema
			}
			w.exec("create schema if not exists " + pgx.Identifier{in}.Sanitize())
			var specs []weir.CaptureSpec
			names := []string{"plain table"}
			if schema == "select" {
				tables = append(slices.Clone(tables), aliases...)
			}
			if schema == "$$" || schema == "per%cent %s %1$I %%" || schema == "select" {
				names = tables // all pairs would take long
			}
			for i, name := range names {
				table := pgx.Identifier{in, name}.Sanitize()
				// Each has a key of two columns of hostile names.
				k1, k2 := pgx.Identifier{tables[i%len(tables)]}.Sanitize(), pgx.Identifier{tables[(i+1)%len(tables)]}.Sanitize()
				w.exec(fmt.Sprintf("create table %s (%s integer, %s text, note text, primary key (%s, %s))", table, k1, k2, k1, k2))
				spec := plain(in, name)
				spec.Queues = []string{weir.DefaultQueue, "second"}
				specs = append(specs, spec)

				// A child that tags its parent by a hostile column, and a change type to match.
				child := name + " c"
				if len(child) > 63 {
					child = "c" + name[2:]
				}
				w.exec(fmt.Sprintf("create table %s (%s uuid, %s text, id integer)", pgx.Identifier{in, child}.Sanitize(), k1, k2))
				typ := []rune(name)
				specs = append(specs, weir.CaptureSpec{Table: weir.Table{Schema: in, Name: child}, InstanceGUID: tables[i%len(tables)], OldPrimaryKey: tables[(i+1)%len(tables)],
					ConceptGUID: "6f9a5a5e-8d0f-4b86-9d2e-0f4c4f5d3b11", ChangeType: string(typ[:min(len(typ), 40)]), Tagging: weir.AtOnce})
			}
			w.apply(specs...)
			// The functions' literals are read in the user's session.
			app := w.session(url)
			w.on(app, "set standard_conforming_strings = off")
			count := func(what, sql string, want int64) {
				t.Helper()
				if n := one[int64](w, strings.ReplaceAll(sql, "OWN.", own)); n != want {
					t.Errorf("%s: %d, want %d", what, n, want)
				}
			}
			for i := 0; i < len(specs); i += 2 {
				table, child := pgx.Identifier{in, specs[i].Table.Name}.Sanitize(), pgx.Identifier{in, specs[i+1].Table.Name}.Sanitize()
				k1, k2 := pgx.Identifier{tables[i/2%len(tables)]}.Sanitize(), pgx.Identifier{tables[(i/2+1)%len(tables)]}.Sanitize()
				w.on(app, "insert into "+table+" values (1, 'it''s', 'n'), (2, 'b', 'n'), (3, 'c', 'n')")
				w.on(app, "update "+table+" set note = 'm' where "+k1+" = 1; update "+table+" set "+k2+" = 'moved' where "+k1+" = 2; delete from "+table+" where "+k1+" = 3")
				w.on(app, "insert into "+child+" values ('00000000-0000-0000-0000-000000000001', 'old', 1); update "+child+" set "+k1+" = '00000000-0000-0000-0000-000000000002'")
				count(specs[i].Table.Name+" at once", "select count(*) from OWN.instance_changes", 6)
				count(specs[i].Table.Name+", second queue", "select count(*) from OWN.instance_changes_second where change_type = 'Instance Deleted'", 2)
				w.exec("delete from " + own + "instance_changes; delete from " + own + "instance_changes_second")
				w.on(app, "truncate "+table+", "+child)
				w.on(app, "begin isolation level repeatable read")
				w.on(app, "insert into "+table+" values (9, 'nine', '')")
				w.on(app, "update "+table+" set "+k1+" = 10")
				w.on(app, "commit")
				if _, err := w.src.Fold(context.Background(), 1000); err != nil {
					t.Fatal(err)
				}
				count(specs[i].Table.Name+" by the inbox", "select count(*) from OWN.instance_changes where change_type in ('Instance Inserted', 'Instance Deleted')", 4)
				count(specs[i+1].Table.Name+" truncated", "select count(*) from OWN.instance_changes where change_type not in ('Instance Inserted', 'Instance Deleted')", 1)
				pull := w.claim(100)
				res, err := w.src.Read(context.Background(), pull, weir.ReadRequest{Encoding: weir.EncodingText})
				if err != nil {
					t.Fatal(err)
				}
				if upserts, gone := res.Batch.Counts(); upserts != 1 || gone != 4 || len(res.Faults) > 0 {
					t.Errorf("%s: read %d rows, %d gone, faults %v, want 1 and 4", specs[i].Table, upserts, gone, res.Faults)
				}
				if r, err := w.src.Settle(context.Background(), pull.PullGUID); err != nil || r.Settled != 5 || !r.Done {
					t.Errorf("settled %+v, %v", r, err)
				}
				w.exec("delete from " + own + "instance_changes_second")
			}
			w.exec("select " + own + "gi_instance_changed(gen_random_uuid(), null, 'Note', null)")
			count("by hand", "select count(*) from OWN.instance_changes", 1)
			w.claim(1)
			w.apply()
			if err := w.src.Down(context.Background()); err != nil {
				t.Error(err)
			}
			if left := ask[string](w, "select nspname::text from pg_namespace where nspname = $1", schema); len(left) != 0 && schema != in {
				t.Errorf("schema %v is left", left)
			}
		})
	}
}

// TestNamesAtTarget ships to tables whose name, key and other columns are named as
// the aliases of weir's own SQL, rows that exchange a unique value among them.
func TestNamesAtTarget(t *testing.T) {
	for _, mode := range []weir.Mode{weir.Mirror, weir.SoftDelete, weir.History} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			url := testdb.Postgres(t)
			w := &world{TB: t, url: url}
			w.user = w.session(url)
			open := func() *postgres.Target {
				tg, err := postgres.OpenTarget(context.Background(), url, weir.TargetOptions{Mode: mode})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { tg.Close() })
				return tg
			}
			made, again := open(), open()
			for i, name := range aliases {
				columns := []weir.Column{{Name: name, Kind: weir.Int32, Native: "integer"}, {Name: aliases[(i+1)%len(aliases)], Kind: weir.Text, Native: "text"}, {Name: aliases[(i+2)%len(aliases)], Kind: weir.Text, Native: "text"}}
				capture := &weir.Capture{ID: int32(i + 1), Table: weir.Table{Schema: "app", Name: name}, Kind: weir.Plain, Key: columns[:1]}
				quoted := func(i int) string { return pgx.Identifier{columns[i].Name}.Sanitize() }
				ship := func(tg *postgres.Target, rows ...string) {
					t.Helper()
					b := weir.TableBatch{Capture: capture, Columns: columns, Encoding: weir.EncodingText}
					for _, r := range rows {
						fields := strings.Split(r, " ")
						item := weir.Item{Key: []weir.Field{weir.Field(fields[0])}}
						if len(fields) > 1 {
							item.Rows = []weir.Row{{weir.Field(fields[0]), weir.Field(fields[1]), weir.Field("note")}}
						}
						b.Items = append(b.Items, item)
					}
					if err := tg.Ship(context.Background(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: &weir.Batch{Tables: []weir.TableBatch{b}}}); err != nil {
						t.Errorf("table %s: %v", name, err)
					}
				}
				ship(made, "1 a", "2 b", "3 c")
				current := ""
				if mode == weir.Mirror {
					w.exec(fmt.Sprintf("alter table %s add unique (%s), add %s text default 'own'", pgx.Identifier{name}.Sanitize(), quoted(1), pgx.Identifier{aliases[(i+3)%len(aliases)]}.Sanitize()))
				} else {
					current = " where " + mode.EndColumn() + " is null"
				}
				ship(again, "1 b", "2 a")
				ship(again, "3")
				got := ask[string](w, fmt.Sprintf("select %s || %s from %s%s order by 1", quoted(0), quoted(1), pgx.Identifier{name}.Sanitize(), current))
				if want := []string{"1b", "2a"}; !slices.Equal(got, want) {
					t.Errorf("table %s has %q, want %q", name, got, want)
				}
			}
		})
	}
}

// TestNamesCut: function names are cut to 63 bytes; two long tables' do not
// collide, and a character is not cut in half.
func TestNamesCut(t *testing.T) {
	w := newWorld(t)
	var specs []weir.CaptureSpec
	for _, name := range []string{strings.Repeat("x", 62) + "a", strings.Repeat("x", 62) + "b", strings.Repeat("ü", 31), "x" + strings.Repeat("ü", 31)} {
		w.exec("create table " + pgx.Identifier{"public", name}.Sanitize() + " (k integer primary key)")
		specs = append(specs, plain("public", name))
	}
	w.apply(specs...)
	for _, s := range specs {
		w.exec("insert into " + pgx.Identifier{"public", s.Table.Name}.Sanitize() + " values (1)")
	}
	ids := ask[int32](w, "select capture_id from weir.instance_changes order by 1")
	if want := ask[int32](w, "select capture_id from weir.captures order by 1"); !slices.Equal(ids, want) || len(ids) != 4 {
		t.Errorf("tags of captures %v, want one of each of %v", ids, want)
	}
}
