package sqlite

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

// TestAnotherProcess writes with the sqlite3 command, another build of SQLite.
func TestAnotherProcess(t *testing.T) {
	cli, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("the command sqlite3 is not installed")
	}
	f := newFixture(t, "create table i (k integer primary key, v)", "create table s (a text, b real, primary key (a, b))", "create table g (g text not null unique, c blob)")
	f.capture(weir.CaptureSpec{Table: weir.Table{Name: "i"}}, weir.CaptureSpec{Table: weir.Table{Name: "s"}}, weir.CaptureSpec{Table: weir.Table{Name: "g"}, InstanceGUID: "g", ConceptGUID: "c"})
	script := `
		insert into i values (-1, 0), (2, 0); update i set k = 3 where k = 2; replace into i values (3, 1);
		insert into s values ('it''s' || char(0), 1.0), ('x', 0.5); update s set b = b where a = 'x'; delete from s where a = 'x';
		insert into g values ('6F9619FF-8B86-D011-B42D-00C04FC964FF', x'000102030405060708090a0b0c0d0e0f');
		insert into weir_gi_instance_changed values ('6F9619FF-8B86-D011-B42D-00C04FC964FF', null, 'T', null);`
	if out, err := exec.Command(cli, "-bail", f.path, script).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v %s", err, out)
	}
	mine := f.strings("select instance_guid || change_type || coalesce(old_primary_key, '') from weir_instance_changes order by 1")
	want(t, f.strings("select count(*) from weir_inbox"), "1")
	f.exec("delete from weir_instance_changes")
	f.exec("delete from i; delete from s; delete from g")
	f.exec("delete from weir_instance_changes")
	for _, sql := range strings.Split(strings.TrimSpace(script), "\n")[:3] {
		f.exec(sql)
	}
	want(t, f.strings("select instance_guid || change_type || coalesce(old_primary_key, '') from weir_instance_changes order by 1"), mine...)
}

// TestMergeWalksTheKey makes sure that a batch never walks its whole target.
func TestMergeWalksTheKey(t *testing.T) {
	s := newSink(t, weir.TargetOptions{}, "create table t (a text, b integer, v, primary key (a, b))", "create table i (id integer primary key, v)",
		"create temp table gone (c0 text, c1 integer)", "create temp table gonei (c0 integer)")
	for _, x := range []struct{ sql, plan string }{
		{"delete from t where (a, b) in (select c0, c1 from gone)", "SEARCH t USING"},
		{"delete from i where (id) in (select c0 from gonei)", "SEARCH i USING INTEGER PRIMARY KEY"},
		{"update t set v = 1 where (a, b) in (select c0, c1 from gone)", "SEARCH t USING"},
	} {
		c, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, ddl := range []string{"create temp table if not exists gone (c0 text, c1 integer)", "create temp table if not exists gonei (c0 integer)"} {
			if _, err := c.ExecContext(t.Context(), ddl); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := c.QueryContext(t.Context(), "explain query plan "+x.sql)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var a, b, n int
			var text string
			if err := rows.Scan(&a, &b, &n, &text); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, text)
		}
		rows.Close()
		c.Close()
		if all := strings.Join(plan, "\n"); !strings.Contains(all, x.plan) {
			t.Errorf("%s:\n%s", x.sql, all)
		}
	}
}
