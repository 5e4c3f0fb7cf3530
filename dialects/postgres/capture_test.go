package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
)

// A scenario is a table, statements on it, and the keys that they touch. S in
// its SQL stands for the schema, which is each run's own.
type scenario struct {
	name    string
	tables  string   // DDL before the capture
	capture []string // table names; default t
	do      string   // one transaction
	want    string   // what is queued after, between commas
	refuse  bool     // the capture refuses TRUNCATE
	noOld   bool     // the statement cannot run above READ COMMITTED
}

var scenarios = []scenario{
	{name: "insert, update, delete", tables: "create table S.t (k integer primary key, v text); insert into S.t select g, 'x' from generate_series(1, 5) g",
		do:   "insert into S.t values (10, 'a'), (11, 'b'); update S.t set v = 'y' where k in (1, 2); delete from S.t where k = 3; update S.t set v = v where false; delete from S.t where k = 99",
		want: "I 10, I 11, I 1, I 2, D 3"},
	{name: "deleted and made again", tables: "create table S.t (k integer primary key, v text); insert into S.t values (1, 'x'), (2, 'x')",
		do:   "delete from S.t where k = 1; insert into S.t values (1, 'y'); insert into S.t values (3, 'z'); delete from S.t where k in (2, 3)",
		want: "I 1, D 2, D 3"},
	{name: "no rows", tables: "create table S.t (k integer primary key)",
		do: "insert into S.t select 1 where false; update S.t set k = k; delete from S.t", want: ""},
	{name: "key shift", tables: "create table S.t (k integer primary key deferrable initially immediate); insert into S.t select generate_series(1, 5)",
		do: "update S.t set k = k + 1", want: "D 1, I 2, I 3, I 4, I 5, I 6"},
	{name: "key shift of many", tables: "create table S.t (k integer primary key deferrable); insert into S.t select generate_series(1, 1500)",
		do: "update S.t set k = k + 2", want: "D 1, D 2, " + strings.Join(numbers("I %d", 3, 1502), ", ")},
	{name: "key swap", tables: "create table S.t (k integer primary key deferrable, v text); insert into S.t values (1, 'a'), (2, 'b'), (3, 'c')",
		do: "update S.t set k = 3 - k where k < 3", want: "I 1, I 2"},
	{name: "composite key moves one column", tables: "create table S.t (a integer, b text, primary key (a, b)); insert into S.t values (1, 'x'), (1, 'y')",
		do: "update S.t set b = 'z' where b = 'x'", want: `D ["1", "x"], I ["1", "z"]`},
	{name: "key moves away and a new row takes it", tables: "create table S.t (k integer primary key, v text); insert into S.t values (1, 'a')",
		do: "update S.t set k = 2 where k = 1; insert into S.t values (1, 'b')", want: "I 1, I 2"},
	{name: "before trigger changes keys", tables: `create table S.t (k integer primary key, v text); insert into S.t values (1, 'a'), (2, 'b'), (3, 'c');
		create function S.move() returns trigger language plpgsql as 'begin new.k := new.k + 100; return new; end';
		create trigger a before insert or update on S.t for each row execute function S.move()`,
		do: "insert into S.t values (10, 'n'); update S.t set v = 'u' where k = 1", want: "I 110, D 1, I 101"},
	{name: "before trigger suppresses rows", tables: `create table S.t (k integer primary key, v text); insert into S.t values (1, 'a'), (2, 'b'), (3, 'c');
		create function S.drop() returns trigger language plpgsql as 'begin if coalesce(new.k, old.k) % 2 = 1 then return null; end if; return coalesce(new, old); end';
		create trigger a before insert or update on S.t for each row execute function S.drop();
		create function S.keep() returns trigger language plpgsql as 'begin if old.k % 2 = 1 then return null; end if; return old; end';
		create trigger b before delete on S.t for each row execute function S.keep()`,
		do: "insert into S.t values (5, 'n'), (6, 'n'); update S.t set v = 'u' where k in (1, 2); delete from S.t where k in (2, 3)", want: "I 6, D 2"},
	{name: "on conflict", tables: "create table S.t (k integer primary key, v text); insert into S.t values (1, 'a'), (2, 'b'), (3, 'c')",
		do: `insert into S.t values (1, 'n'), (7, 'n') on conflict (k) do update set v = excluded.v;
			insert into S.t values (2, 'n'), (8, 'n') on conflict do nothing;
			insert into S.t values (3, 'n') on conflict (k) do update set k = 30, v = 'moved'`, want: "I 1, I 7, I 8, D 3, I 30"},
	{name: "on conflict where not", tables: "create table S.t (k integer primary key, v text); insert into S.t values (1, 'a')",
		do: "insert into S.t values (1, 'n') on conflict (k) do update set v = excluded.v where false", want: ""},
	{name: "merge", tables: "create table S.t (k integer primary key, v text); insert into S.t values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
		do: `merge into S.t using (values (1, 'del'), (2, 'upd'), (3, 'key'), (4, 'none'), (5, 'ins'), (6, 'skip')) s (k, what) on t.k = s.k
			when matched and what = 'del' then delete
			when matched and what = 'upd' then update set v = 'u'
			when matched and what = 'key' then update set k = 30
			when matched then do nothing
			when not matched and what = 'ins' then insert values (s.k, 'new')
			when not matched then do nothing`, want: "D 1, I 2, D 3, I 30, I 5"},
	{name: "update from", tables: "create table S.t (k integer primary key, v text); create table S.o (k integer, n integer); insert into S.t values (1, 'a'), (2, 'b'), (3, 'c'); insert into S.o values (1, 10), (3, 30)",
		do: "update S.t set k = o.n from S.o o where o.k = t.k", want: "D 1, D 3, I 10, I 30"},
	{name: "generated columns", tables: "create table S.t (a integer not null, v text, k integer generated always as (a * 2) stored, id integer generated always as identity, primary key (k)); insert into S.t (a) values (1), (2)",
		do: "update S.t set v = 'x' where a = 1; update S.t set a = 5 where a = 2; insert into S.t (a) values (9)", want: "I 2, D 4, I 10, I 18"},
	{name: "cascades", capture: []string{"t", "c", "n", "d"}, tables: `create table S.t (k integer primary key); insert into S.t values (1), (2), (3), (4);
		create table S.c (k integer primary key, p integer references S.t on delete cascade on update cascade); insert into S.c values (11, 1), (12, 2), (13, 3);
		create table S.n (k integer primary key, p integer references S.t on delete set null); insert into S.n values (21, 1), (22, 4);
		create table S.d (p integer primary key references S.t on delete cascade on update cascade); insert into S.d values (1), (2)`,
		do: "delete from S.t where k = 1; update S.t set k = 20 where k = 2", want: "D 1, D 11, I 21, D 1, D 2, I 20, I 12, D 2, I 20"},
	{name: "truncate", noOld: true, tables: "create table S.t (k integer primary key); insert into S.t values (1), (2), (3)",
		do: "truncate S.t; insert into S.t values (2), (4)", want: "D 1, I 2, D 3, I 4"},
	{name: "truncate of several and cascade", noOld: true, capture: []string{"t", "c", "u"}, tables: `create table S.t (k integer primary key); insert into S.t values (1), (2);
		create table S.c (k integer primary key, p integer references S.t); insert into S.c values (11, 1);
		create table S.u (k text primary key); insert into S.u values ('u%s')`,
		do: "truncate S.t, S.u restart identity cascade", want: "D 1, D 2, D 11, D u%s"},
	{name: "truncate is refused", refuse: true, tables: "create table S.t (k integer primary key); insert into S.t values (1)",
		do: "do $$ begin truncate S.t; exception when feature_not_supported then null; end $$; update S.t set k = k", want: "I 1"},
	{name: "rolled back to a savepoint", tables: "create table S.t (k integer primary key); insert into S.t values (1), (2)",
		do: "savepoint a; delete from S.t where k = 1; insert into S.t values (5); rollback to savepoint a; delete from S.t where k = 2", want: "D 2"},
	{name: "view with rule and view with instead of trigger", tables: `create table S.t (k integer primary key, v text); insert into S.t values (1, 'a'), (2, 'b');
		create view S.simple as select * from S.t;
		create view S.ruled as select * from S.t;
		create rule r as on delete to S.ruled do instead update S.t set v = 'gone' where k = old.k;
		create view S.instead as select k from S.t;
		create function S.put() returns trigger language plpgsql as 'begin insert into S.t values (new.k + 50, null); return new; end';
		create trigger i instead of insert on S.instead for each row execute function S.put()`,
		do: "insert into S.simple values (3, 'c'); delete from S.ruled where k = 1; insert into S.instead values (4)", want: "I 3, I 1, I 54"},
	{name: "rule on the table", tables: `create table S.t (k integer primary key, v text); create table S.log (k integer primary key); insert into S.t values (1, 'a');
		create rule r as on update to S.t do also insert into S.log values (new.k)`, capture: []string{"t", "log"},
		do: "update S.t set v = 'b'", want: "I 1, I 1"},
	{name: "writable CTEs", capture: []string{"t", "o"}, tables: "create table S.t (k integer primary key, v text); create table S.o (k integer primary key); insert into S.t values (1, 'a'), (2, 'b'), (3, 'c')",
		do:   "with gone as (delete from S.t where k = 1 returning k), kept as (insert into S.o select k + 100 from gone returning k), up as (update S.t set v = 'u' where k = 2 returning k) insert into S.t select k from kept",
		want: "D 1, I 101, I 2, I 101"},
	{name: "own triggers write other tables and this one", capture: []string{"t", "o"}, tables: `create table S.t (k integer primary key, v text); create table S.o (k integer primary key, n integer);
		create function S.also() returns trigger language plpgsql as 'begin insert into S.o values (new.k, 1) on conflict (k) do update set n = o.n + 1; if new.k < 3 then insert into S.t values (new.k + 1); end if; return new; end';
		create trigger zz after insert on S.t for each row execute function S.also()`,
		do: "insert into S.t values (1, 'a')", want: "I 1, I 2, I 3, I 1, I 2, I 3"},
	{name: "copy", tables: "create table S.t (k integer primary key, v text)",
		do: "copy S.t from program 'printf \"1\\ta\\n2\\tb\\n\"'", want: "I 1, I 2"},
	{name: "large statements", tables: "create table S.t (k integer primary key, v integer); insert into S.t select g, 0 from generate_series(1, 3000) g",
		do:   "update S.t set v = 1 where k <= 1500; delete from S.t where k > 1800; insert into S.t select g, 1 from generate_series(5001, 6100) g",
		want: strings.Join(numbers("I %d", 1, 1500), ", ") + ", " + strings.Join(numbers("D %d", 1801, 3000), ", ") + ", " + strings.Join(numbers("I %d", 5001, 6100), ", ")},
	{name: "inheritance", tables: `create table S.t (k integer primary key, v text); create table S.kid (extra text, primary key (k)) inherits (S.t); create table S.grand () inherits (S.kid); alter table S.grand add primary key (k);
		insert into S.t values (1, 'a'); insert into S.kid values (2, 'b', 'x'), (5, 'b', 'x'); insert into S.grand values (3, 'c', 'y')`,
		do:   "update S.t set v = 'u'; update only S.t set k = 10 where k = 1; insert into S.kid values (4, 'k', 'z'); update S.kid set k = 6 where k = 5; delete from S.t where k = 3",
		want: "D 1, I 10, I 2, I 4, D 5, I 6, D 3"},
	{name: "inheritance, truncate", noOld: true, tables: `create table S.t (k integer primary key, v text); create table S.kid (primary key (k)) inherits (S.t);
		insert into S.t values (1, 'a'), (2, 'b'); insert into S.kid values (3, 'b')`,
		do: "truncate only S.t; truncate S.kid", want: "D 1, D 2, D 3"},
	{name: "a key in two inheritance children", tables: `create table S.t (k integer primary key, v text); create table S.kid (primary key (k)) inherits (S.t);
		insert into S.t values (1, 'a'); insert into S.kid values (1, 'b')`,
		do: "update S.t set v = 'u'; update S.t set k = 2", want: "D 1, I 2"},
	{name: "partitions", tables: partitioned,
		do:   "insert into S.t values (1, 1, 'x'), (2, 20, 'x'); insert into S.p3 (v, b, a) values ('x', 30, 3); update S.p1 set v = 'y' where a = 100; delete from S.t where a = 200; update S.t set v = 'z' where a = 300",
		want: `I ["1", "1"], I ["2", "20"], I ["3", "30"], I ["100", "5"], D ["200", "25"], I ["300", "35"]`},
	{name: "rows move between partitions", tables: partitioned,
		do:   "update S.t set b = b + 10 where a in (100, 200)",
		want: `D ["100", "5"], D ["200", "25"], I ["100", "15"], I ["200", "35"]`},
	{name: "rows change places between partitions", tables: partitioned,
		do:   "update S.t set b = 40 - b where a in (100, 300)",
		want: `D ["100", "5"], I ["100", "35"], D ["300", "35"], I ["300", "5"]`},
	{name: "rows move between partitions with their key", tables: `create table S.t (k integer not null, b integer not null, v text) partition by list (b); create table S.p1 partition of S.t for values in (1); create table S.p2 partition of S.t for values in (2);
		alter table S.p1 add primary key (k); alter table S.p2 add primary key (k); create unique index on S.t (k, b); insert into S.t values (1, 1, 'x'), (2, 2, 'x'), (3, 1, 'y')`,
		do: "update S.t set b = 3 - b", want: `D ["1", "1"], D ["2", "2"], D ["3", "1"], I ["1", "2"], I ["2", "1"], I ["3", "2"]`},
	{name: "default partition, sub-partition", tables: partitioned,
		do:   "insert into S.t values (9, 999, 'def'); insert into S.other values (8, 888, 'def'); update S.t set b = 45 where a = 9; update S.p4 set v = 'q'; delete from S.p4b",
		want: `D ["9", "999"], I ["8", "888"], I ["400", "41"], D ["401", "46"], D ["9", "45"]`},
	{name: "a move that a trigger swallows", tables: partitioned + `; create function S.swallow() returns trigger language plpgsql as 'begin return null; end';
		create trigger s before insert on S.p3 for each row execute function S.swallow()`,
		do: "update S.t set b = b + 10 where a = 200", want: `D ["200", "25"]`},
	{name: "truncate of a partition", noOld: true, tables: partitioned,
		do: "truncate S.p1; truncate S.p4", want: `D ["100", "5"], D ["400", "41"], D ["401", "46"]`},
	{name: "truncate of the root", noOld: true, tables: partitioned,
		do: "truncate S.t", want: `D ["100", "5"], D ["200", "25"], D ["300", "35"], D ["400", "41"], D ["401", "46"]`},
	{name: "merge and conflict on a root", tables: partitioned,
		do: `insert into S.t values (100, 5, 'n'), (7, 7, 'n') on conflict (a, b) do update set v = excluded.v;
			merge into S.t using (values (200, 25), (300, 35), (6, 6)) s (a, b) on t.a = s.a when matched and s.a = 200 then update set b = 6 when matched then delete when not matched then insert values (s.a, s.b)`,
		want: `I ["100", "5"], I ["7", "7"], D ["200", "25"], I ["200", "6"], D ["300", "35"], I ["6", "6"]`},
}

// partitioned has partitions whose columns are in other orders, a default one
// and one with partitions of its own.
const partitioned = `create table S.t (a integer, b integer, v text, primary key (a, b)) partition by range (b);
	create table S.p1 partition of S.t for values from (0) to (10);
	create table S.p1b partition of S.t for values from (10) to (20);
	create table S.p2 (gone text, v text, b integer not null, a integer not null);
	alter table S.p2 drop column gone; alter table S.t attach partition S.p2 for values from (20) to (30);
	create table S.p3 (v text, b integer not null, a integer not null);
	alter table S.t attach partition S.p3 for values from (30) to (40);
	create table S.p4 partition of S.t for values from (40) to (50) partition by range (b);
	create table S.p4a partition of S.p4 for values from (40) to (45);
	create table S.p4b (v text, a integer not null, b integer not null);
	alter table S.p4 attach partition S.p4b for values from (45) to (50);
	create table S.other partition of S.t default;
	insert into S.t values (100, 5, 'x'), (200, 25, 'x'), (300, 35, 'x'), (400, 41, 'x'), (401, 46, 'x')`

// TestCapture runs each scenario tagged at once, by the inbox, and from a
// transaction at REPEATABLE READ and SERIALIZABLE: the queue ends alike.
func TestCapture(t *testing.T) {
	w := newWorld(t)
	ways := []struct {
		name, level string
		tagging     weir.Tagging
		inbox       bool
	}{
		{"at once", "read committed", weir.AtOnce, false},
		{"deferred", "read committed", weir.Deferred, true},
		{"repeatable read", "repeatable read", weir.AtOnce, true},
		{"serializable", "serializable", weir.AtOnce, true},
	}
	for i, sc := range scenarios {
		for j, way := range ways {
			if sc.noOld && strings.Contains(way.level, "able") {
				continue
			}
			t.Run(sc.name+", "+way.name, func(t *testing.T) {
				w := &world{TB: t, url: w.url, src: w.src, user: w.user}
				schema := fmt.Sprintf("s%d_%d", i, j)
				in := func(sql string) string { return strings.ReplaceAll(sql, "S.", schema+".") }
				w.exec("create schema " + schema)
				w.exec(in(sc.tables))
				tables := sc.capture
				if tables == nil {
					tables = []string{"t"}
				}
				for _, name := range tables {
					spec := plain(schema, name)
					spec.Tagging, spec.RefuseTruncate = way.tagging, sc.refuse
					w.install(spec)
				}
				w.exec("begin isolation level " + way.level)
				w.exec(in(sc.do))
				queued := one[int64](w, "select count(*) from weir.instance_changes")
				w.exec("commit")
				if way.inbox && queued > 0 {
					t.Errorf("%d changes were queued at once", queued)
				}
				var want []string
				if sc.want != "" {
					for _, k := range strings.Split(sc.want, ", ") {
						// A JSON array has commas of its own.
						if n := len(want); n > 0 && strings.Count(want[n-1], "[") > strings.Count(want[n-1], "]") {
							want[n-1] += ", " + k
							continue
						}
						want = append(want, k)
					}
				}
				w.wantTook(sc.do, want...)
				w.exec("drop schema " + schema + " cascade")
			})
		}
	}
}

// TestCapture_OwnTables: what is PostgreSQL's own or weir's is refused, whatever
// its key; a user's table beside weir's is not.
func TestCapture_OwnTables(t *testing.T) {
	w := newWorld(t, "create schema weir", "create table weir.mine (id integer primary key)", "create table public.pulls (id integer primary key)")
	w.apply(weir.CaptureSpec{Table: weir.Table{Schema: "public", Name: "pulls"}, Queues: []string{weir.DefaultQueue, "extra"}}, plain("weir", "mine"))
	target, err := postgres.OpenTarget(context.Background(), w.url, weir.TargetOptions{Schema: "dw"})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.Ledger(context.Background()); err != nil {
		t.Fatal(err)
	}
	tables := []string{"pg_catalog.pg_class", "information_schema.sql_features", "information_schema.tables"}
	tables = append(tables, ask[string](w, "select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind = 'r' and (n.nspname = 'weir' and c.relname <> 'mine' or n.nspname = 'dw')")...)
	if len(tables) != 15 {
		t.Errorf("%q are not all of weir's tables", tables)
	}
	for _, name := range tables {
		_, err := w.src.Resolve(context.Background(), []weir.CaptureSpec{{Table: weir.ParseTable(name)}})
		var c *weir.ConfigError
		if !errors.As(err, &c) || !strings.Contains(c.Error(), name) || !strings.Contains(c.Err.Error(), "own") {
			t.Errorf("%s: %v, want a *weir.ConfigError that says whose it is", name, err)
		}
	}
}
