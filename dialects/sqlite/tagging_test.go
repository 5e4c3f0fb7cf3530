package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

func TestThinLine(t *testing.T) {
	f := newFixture(t, "create table orders (id integer primary key, name text, price numeric)")
	f.plain("orders")
	s := newSink(t, weir.TargetOptions{})
	f.exec("insert into orders values (1, 'a', 1.5), (2, 'b', 2), (3, 'c', null)")
	f.exec("update orders set name = 'bb' where id = 2")
	f.exec("delete from orders where id = 3")
	want(t, f.queue(), "Instance Deleted 3", "Instance Inserted 1", "Instance Inserted 2")
	f.drain(s)
	want(t, dump(t, s.db, "orders", "id", "name", "price"), "integer 1, text 'a', real 1.5", "integer 2, text 'bb', integer 2")
	f.exec("update orders set id = 10 where id = 1")
	f.drain(s)
	want(t, s.strings("select id from orders order by id"), "2", "10")
	want(t, f.queue())
}

func TestTagging(t *testing.T) {
	ddl := "create table t (id integer primary key, u text unique, v)"
	setup := func(t *testing.T) *fixture {
		f := newFixture(t, ddl)
		f.plain("t")
		return f
	}
	t.Run("CancelOpposite", func(t *testing.T) {
		f := setup(t)
		f.exec("insert into t values (1, 'a', 0)")
		f.exec("delete from t")
		want(t, f.queue(), "Instance Deleted 1")
		f.exec("insert into t values (1, 'a', 0)")
		want(t, f.queue(), "Instance Inserted 1")
	})
	t.Run("Rollback", func(t *testing.T) {
		f := setup(t)
		tx, err := f.app.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("insert into t values (1, 'a', 0)"); err != nil {
			t.Fatal(err)
		}
		tx.Rollback()
		want(t, f.queue())
	})
	t.Run("Shift", func(t *testing.T) {
		f := setup(t)
		f.exec("insert into t values (3, 'c', 0), (2, 'b', 0), (1, 'a', 0)")
		f.exec("delete from weir_instance_changes")
		f.exec("update t set id = id - 1")
		want(t, f.queue(), "Instance Deleted 3", "Instance Inserted 0", "Instance Inserted 1", "Instance Inserted 2")
	})
	t.Run("Swap", func(t *testing.T) {
		f := setup(t)
		f.exec("insert into t values (1, 'a', 0), (2, 'b', 0)")
		f.exec("delete from weir_instance_changes")
		f.exec("update t set id = -id")
		f.exec("update t set id = case id when -1 then 2 else 1 end")
		want(t, f.queue(), "Instance Deleted -1", "Instance Deleted -2", "Instance Inserted 1", "Instance Inserted 2")
	})
	t.Run("OuterConflictPolicies", func(t *testing.T) {
		f := setup(t)
		for _, sql := range []string{
			"insert into t values (1, 'a', 0)",
			"insert or replace into t values (1, 'a', 1)",
			"insert or ignore into t values (1, 'a', 2)",
			"insert or ignore into t values (2, 'b', 2)",
			"update or replace t set v = 3",
			"update or ignore t set v = 3",
			"replace into t values (2, 'b', 4)",
			"insert into t values (2, 'b', 5) on conflict do update set v = 5",
		} {
			f.exec(sql)
			if got := f.strings("select count(*) from weir_instance_changes where old_primary_key = '1'"); got[0] != "1" {
				t.Fatalf("after %s: %v", sql, f.queue())
			}
		}
		want(t, f.queue(), "Instance Inserted 1", "Instance Inserted 2")
	})
	t.Run("ReplaceByAnotherKeyWarns", func(t *testing.T) {
		f := newFixture(t, ddl)
		r := f.plain("t")
		if len(r[0].Warnings) != 1 || !strings.Contains(r[0].Warnings[0], "recursive_triggers") {
			t.Errorf("warnings: %q", r[0].Warnings)
		}
		c, err := f.app.Conn(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, sql := range []string{"pragma recursive_triggers = on", "insert into t values (1, 'a', 0)", "replace into t values (2, 'a', 0)", "pragma recursive_triggers = off"} {
			if _, err := c.ExecContext(f.ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		want(t, f.queue(), "Instance Deleted 1", "Instance Inserted 2")
	})
	t.Run("StrictlyLater", func(t *testing.T) {
		f := setup(t)
		f.exec("insert into t values (1, 'a', 0)")
		f.exec("update weir_instance_changes set changed_on = 9000000000000000, attempts = 3, not_before = 9223372036854775807")
		f.exec("update t set v = 1")
		want(t, f.strings("select changed_on || ' ' || coalesce(attempts, 'none') || ' ' || coalesce(not_before, 'none') from weir_instance_changes"), "9000000000000001 none none")
	})
	t.Run("InFlight", func(t *testing.T) {
		f := setup(t)
		f.exec("insert into t values (1, 'a', 0)")
		p := f.claim(10)
		f.exec("delete from t")
		want(t, f.strings("select change_type || ' ' || (waits_for_pull_guid = ?) || ' ' || (pull_guid is null) from weir_instance_changes", p.PullGUID.String()), "Instance Deleted 1 1")
		if _, err := f.source.Claim(f.ctx, f.request(10)); !errors.Is(err, weir.ErrQueueEmpty) {
			t.Fatalf("claimed what is in flight: %v", err)
		}
		f.exec("insert into t values (1, 'a', 1)") // the wait is handed on
		want(t, f.strings("select change_type || ' ' || (waits_for_pull_guid = ?) from weir_instance_changes", p.PullGUID.String()), "Instance Inserted 1")
		r, err := f.source.Settle(f.ctx, p.PullGUID)
		if err != nil || r.Settled != 0 || !r.Done {
			t.Fatalf("settle: %+v, %v", r, err)
		}
		if q := f.claim(10); len(q.Changes) != 1 {
			t.Fatalf("%+v", q)
		}
	})
	t.Run("UserTriggers", func(t *testing.T) {
		f := newFixture(t, ddl, "create table log (n integer primary key, what)",
			"create trigger user_log after insert on t begin insert into log (what) values (new.id); update t set v = 9 where id = new.id; end")
		f.plain("t", "log")
		f.exec("insert into t values (7, 'x', 0)")
		want(t, f.queue(), "Instance Inserted 1", "Instance Inserted 7")
		var last int64
		if err := f.app.QueryRow("select last_insert_rowid()").Scan(&last); err != nil || last != 7 {
			t.Errorf("last_insert_rowid() = %d, %v", last, err)
		}
	})
	t.Run("Cascade", func(t *testing.T) {
		f := newFixture(t, "create table p (id integer primary key)", "create table c (id integer primary key, p integer references p on delete cascade on update cascade)")
		f.plain("p", "c")
		f.exec("insert into p values (1), (2)")
		f.exec("insert into c values (10, 1), (20, 2)")
		f.exec("delete from weir_instance_changes")
		f.exec("delete from p where id = 1")
		f.exec("update p set id = 3")
		want(t, f.queue(), "Instance Deleted 1", "Instance Deleted 10", "Instance Deleted 2", "Instance Inserted 20", "Instance Inserted 3")
	})
	t.Run("WholeTable", func(t *testing.T) {
		f := setup(t)
		f.exec("insert into t values (1, 'a', 0), (2, 'b', 0)")
		f.exec("delete from t")
		want(t, f.queue(), "Instance Deleted 1", "Instance Deleted 2")
	})
}

func TestKeys(t *testing.T) {
	f := newFixture(t,
		"create table i (k int not null primary key) ", "create table a (k integer primary key)",
		"create table s (k text primary key)", "create table b (k blob primary key) without rowid", "create table r (k real primary key)",
		"create table n (k numeric(10,2) not null unique)", "create table m (a text not null, b integer not null, c blob not null, primary key (c, a, b)) strict")
	f.plain("i", "a", "s", "b", "r", "n", "m")
	s, text := newSink(t, weir.TargetOptions{}), newSink(t, weir.TargetOptions{})
	f.exec("insert into i values (9223372036854775807), (-9223372036854775808), (0), (-1), (1), ('abc'), (1.5)")
	f.exec("insert into a values (9223372036854775807), (-9223372036854775808), (0), (-1), (1)")
	f.exec("insert into s values ('a'), ('A'), ('it''s'), (''), ('a,b'), ('x' || char(0) || 'y'), ('x' || char(0)), ('x'), ('Grüße 🚀'), (1)")
	f.exec("insert into b values (x''), (x'00'), (x'0000'), (x'61')")
	f.exec("insert into r values (1), (1.5), (-0.1), (1e300), (5e-324), (0.1)")
	f.exec("insert into n values (1), (1.50), (0.1), (1e18)")
	f.exec("insert into m values ('a', 1, x'01'), ('a'',1', 2, x''), ('', 0, x'ff')")
	n := f.strings("select count(*) from weir_instance_changes")[0]
	if n != "39" {
		t.Errorf("%s changes, 39 rows: a GUID is taken twice", n)
	}
	// The integer keys sort as GUIDs.
	for _, table := range []string{"i", "a"} {
		want(t, f.strings("select old_primary_key from weir_instance_changes where capture_id = (select capture_id from weir_captures where table_name = ?) and old_primary_key not in ('''abc''', '1.5') order by instance_guid", table),
			"-9223372036854775808", "-1", "0", "1", "9223372036854775807")
	}
	f.exec("delete from i where typeof(k) <> 'integer'")
	f.drain(s)
	f.drain(s) // nothing is left
	for table, cols := range map[string][]string{"i": {"k"}, "a": {"k"}, "s": {"k"}, "b": {"k"}, "r": {"k"}, "n": {"k"}, "m": {"a", "b", "c"}} {
		want(t, dump(t, s.db, table, cols...), dump(t, f.app, table, cols...)...)
		f.exec("update " + table + " set " + cols[0] + " = " + cols[0])
	}
	f.drain(textTarget{text})
	for _, table := range []string{"i", "a", "s", "b", "r", "n", "m"} {
		if got, rows := text.strings("select count(*) from "+table), f.strings("select count(*) from "+table); got[0] != rows[0] {
			t.Errorf("%s: %s rows as text, %s at the source", table, got[0], rows[0])
		}
		f.exec("delete from " + table)
	}
	f.exec("update weir_instance_changes set changed_on = 1")
	p := f.claim(100)
	r := f.read(p, Encoding)
	if err := s.Ship(f.ctx, weir.Shipment{PullGUID: p.PullGUID, Batch: r.Batch}); err != nil {
		t.Fatal(err)
	}
	r = f.read(p, weir.EncodingText)
	if err := text.Ship(f.ctx, weir.Shipment{PullGUID: p.PullGUID, Batch: r.Batch}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"i", "a", "s", "b", "r", "n", "m"} {
		want(t, s.strings("select quote(k) from "+map[bool]string{true: "(select a as k from m)", false: table}[table == "m"]))
		want(t, text.strings("select count(*) from "+table), "0")
	}
}

func TestKeysOfTwoTablesNeverMeet(t *testing.T) {
	f := newFixture(t, "create table x (k text primary key)", "create table y (k text primary key)", "create table ix (k integer primary key)", "create table iy (k integer primary key)")
	f.plain("x", "y", "ix", "iy")
	for _, table := range []string{"x", "y"} {
		f.exec("insert into " + table + " with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000) select 'k' || i from n")
	}
	for _, table := range []string{"ix", "iy"} {
		f.exec("insert into " + table + " with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000) select i from n")
	}
	want(t, f.strings("select count(distinct instance_guid) from weir_instance_changes"), "8000")
}

func TestHostileNames(t *testing.T) {
	tables := []string{`order`, `Mixed Case`, `a"b`, `c'd`, `e]f[`, `Größe 🚀`, `$1 %s ?`, `semi;colon--`, strings.Repeat("n", 128), `{{.Queue}}`, "new", "old", "r", "h"}
	for _, table := range tables {
		t.Run(table, func(t *testing.T) {
			id := `se"lect ` + table
			f := newFixture(t, fmt.Sprintf("create table %s (%s text primary key, %s text, rowid text, h, guid, place)", ident(table), ident(id), ident(`v"al`)))
			f.plain(table)
			s := newSink(t, weir.TargetOptions{})
			f.exec(fmt.Sprintf("insert into %s values ('x', 'y', 'z', 1, 2, 3), ('q', null, '', 1, 2, 3)", ident(table)))
			f.drain(s)
			cols := []string{id, `v"al`, "rowid", "h", "guid", "place"}
			want(t, dump(t, s.db, table, cols...), dump(t, f.app, table, cols...)...)
			f.exec(fmt.Sprintf("update %s set %s = 'k2' where %s = 'x'", ident(table), ident(id), ident(id)))
			f.drain(s)
			want(t, dump(t, s.db, table, cols...), dump(t, f.app, table, cols...)...)
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	for ddl, why := range map[string]string{
		"create table t (a)":                                                           "neither a primary key",
		"create table t (a text unique)":                                               "neither a primary key",
		"create table t (a text collate nocase primary key)":                           "collation",
		"create table t (a text primary key collate rtrim) without rowid":              "collation",
		"create table t (a primary key)":                                               "no type",
		"create table t (a text primary key); insert into t values (null)":             "null in some rows",
		"create view t as select 1 as a":                                               "view",
		"create virtual table t using fts5(a)":                                         "virtual",
		"create table t (a text not null); create unique index u on t (a) where a > 1": "neither a primary key",
		"create table t (a text not null); create unique index u on t (lower(a))":      "neither a primary key",
	} {
		t.Run(ddl, func(t *testing.T) {
			f := newFixture(t, ddl)
			_, err := f.source.Resolve(f.ctx, []weir.CaptureSpec{{Table: weir.Table{Name: "t"}}})
			var c *weir.ConfigError
			if !errors.As(err, &c) || !strings.Contains(err.Error(), why) || c.Hint == "" {
				t.Errorf("%v, want a ConfigError with %q and a hint", err, why)
			}
		})
	}
	f := newFixture(t, "create table t (a text primary key)")
	f.plain("t")
	if _, err := f.app.Exec("insert into t values (null)"); err == nil || !strings.Contains(err.Error(), "weir: a row of t") {
		t.Errorf("a row without a key: %v", err)
	}
	_, err := f.source.Resolve(f.ctx, []weir.CaptureSpec{{Table: weir.Table{Name: "no"}}, {Table: weir.Table{Name: "t"}, InstanceGUID: "nope"}, {Table: weir.Table{Schema: "temp", Name: "t"}}})
	for _, why := range []string{"no such table", `no column "nope"`, `schema "temp"`} {
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q in it", err, why)
		}
	}
}

func TestInstancesAndChildren(t *testing.T) {
	const (
		a = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
		b = "00000000-0000-0000-0000-0000000000ab"
		c = "c0ffee00-0000-0000-0000-000000000001"
	)
	for form, spell := range map[string]string{"lower": "lower(?1)", "upper": "upper(?1)", "blob": "unhex(replace(?1, '-', ''))"} {
		for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
			t.Run(form+" "+string(tagging), func(t *testing.T) {
				declared := map[bool]string{true: "blob", false: "text"}[form == "blob"]
				f := newFixture(t, "create table inst (g "+declared+" not null unique, concept text, pk text, v)", "create table ev (id integer primary key, g "+declared+" references inst (g), what text)", "create index ev_g on ev (g)")
				f.capture(weir.CaptureSpec{Table: weir.Table{Name: "inst"}, InstanceGUID: "g", ConceptGUID: "concept", OldPrimaryKey: "pk", Tagging: tagging},
					weir.CaptureSpec{Table: weir.Table{Name: "ev"}, InstanceGUID: "g", ChangeType: "Instance Event Changed", ConceptGUID: c, Tagging: tagging})
				s := newSink(t, weir.TargetOptions{})
				for _, g := range []string{a, b} {
					f.exec("insert into inst values ("+spell+", ?2, 'pk', 1)", g, strings.ToUpper(c))
				}
				f.exec("insert into ev values (1, "+spell+", 'one'), (2, "+spell+", 'two'), (3, null, 'none')", a)
				if tagging == weir.AtOnce {
					want(t, f.strings("select change_type || ' ' || instance_guid || ' ' || concept_guid || ' ' || coalesce(old_primary_key, '-') from weir_instance_changes order by 1"),
						"Instance Event Changed "+a+" "+c+" -", "Instance Inserted "+b+" "+c+" pk", "Instance Inserted "+a+" "+c+" pk")
				}
				equal := func() {
					t.Helper()
					f.drain(s)
					want(t, dump(t, s.db, "inst", "g", "concept", "pk", "v"), dump(t, f.app, "inst", "g", "concept", "pk", "v")...)
					want(t, queryStrings(t, s.db, "select id || ' ' || quote(g) || what from ev order by id"), f.strings("select id || ' ' || quote(g) || what from ev where g is not null order by id")...)
				}
				equal()
				f.exec("update ev set g = "+spell+" where id = 2", b) // tags both parents
				equal()
				f.exec("delete from ev where id = 1")
				equal()
				f.exec("delete from ev")
				f.exec("delete from inst where g = "+spell, a)
				equal()
				if _, err := f.app.Exec("insert into inst values ('no guid', null, null, null)"); err == nil || !strings.Contains(err.Error(), "weir: column g of inst") {
					t.Errorf("a GUID that is none: %v", err)
				}
			})
		}
	}
}

func TestHandTagging(t *testing.T) {
	f := newFixture(t, "create table t (id integer primary key, v)")
	r := f.plain("t")
	f.exec("insert into t values (1, 2)")
	guid := f.strings("select instance_guid from weir_instance_changes")[0]
	f.exec("delete from weir_instance_changes")
	f.exec("insert into weir_gi_instance_changed values (upper(?), ?, 'Instance Deleted', '1')", guid, r[0].Capture.ConceptGUID.String())
	f.exec("insert into weir_gi_instance_changed values (?, null, 'My Type', null)", guid)
	for _, bad := range []string{"('x', null, 'T', null)", "(null, null, 'T', null)", "('" + guid + "', null, '', null)", "('" + guid + "', null, '" + strings.Repeat("x", 41) + "', null)"} {
		if _, err := f.app.Exec("insert into weir_gi_instance_changed values " + bad); err == nil || !strings.Contains(err.Error(), "weir: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if n, err := f.source.Fold(f.ctx, 100); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	want(t, f.queue(), "Instance Deleted 1", "My Type -")
	p := f.claim(10)
	got := f.read(p, Encoding)
	if len(got.Faults) != 1 || got.Faults[0].Change.ChangeType != "My Type" || len(got.Batch.Tables) != 1 || len(got.Batch.Tables[0].Items[0].Rows) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestDeferredFollowsPresence(t *testing.T) {
	f := newFixture(t, "create table t (id integer primary key, v)")
	f.capture(weir.CaptureSpec{Table: weir.Table{Name: "t"}, Tagging: weir.Deferred, Queues: []string{"default", "other q\"ueue"}})
	f.exec("insert into t values (1, 0), (2, 0)")
	f.exec("delete from t where id = 1")
	f.exec("update weir_inbox set changed_on = 1000 - changed_on") // the clock went back
	want(t, f.queue())
	for n := 1; n > 0; {
		var err error
		if n, err = f.source.Fold(f.ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	want(t, f.queue(), "Instance Deleted 1", "Instance Inserted 2")
	want(t, f.strings(`select change_type || ' ' || old_primary_key from "weir_instance_changes_other q""ueue" order by 1`), "Instance Deleted 1", "Instance Inserted 2")
	want(t, f.strings("select count(*) from weir_inbox"), "0")
}

func TestOwnTablesAreRefused(t *testing.T) {
	f := newFixture(t, "create table t (id integer primary key autoincrement)")
	for _, name := range []string{"weir_queues", "weir_instance_changes", "weir_inbox", "WEIR_PULLS", "weir_captures", "weir_schema_migrations", "sqlite_sequence", "sqlite_schema"} {
		_, err := f.source.Resolve(f.ctx, []weir.CaptureSpec{{Table: weir.Table{Name: name}}})
		var c *weir.ConfigError
		if !errors.As(err, &c) || !strings.Contains(c.Error(), name) || !strings.Contains(fmt.Sprint(c.Err), "own") {
			t.Errorf("%s: %v, want a *weir.ConfigError that says whose it is", name, err)
		}
	}
}
