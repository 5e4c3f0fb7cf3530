package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
)

const replicated = `create table public.t (k integer primary key, v text);
	create table public.c (a text, b integer, v text, primary key (a, b));
	create table public.i (id integer primary key, guid uuid not null unique, v text);
	create table public.e (id integer primary key, parent uuid not null, v text);
	create table public.m (k integer primary key, v text) partition by range (k);
	create table public.m1 partition of public.m for values from (0) to (100);
	create table public.m2 partition of public.m for values from (100) to (200);`

// TestSubscription: what a subscription writes is captured like what the
// application writes beside it.
func TestSubscription(t *testing.T) {
	cluster := testdb.NewCluster(t, "wal_level=logical")
	from := &world{TB: t, url: cluster.Database()}
	from.user = from.session(from.url)
	from.exec(replicated)
	from.exec("create publication p for all tables with (publish_via_partition_root = false)")
	from.exec("insert into public.t values (1, 'a'), (2, 'b'), (3, 'c')")

	w := worldAt(t, cluster.Database(), "", replicated)
	// In one cluster CREATE SUBSCRIPTION waits for itself when it makes the slot.
	from.exec("select pg_create_logical_replication_slot('s', 'pgoutput')")
	w.exec("create subscription s connection '" + from.url + "' publication p with (create_slot = false, slot_name = s)")
	subscribed := true
	leave := func() {
		if !subscribed {
			return
		}
		subscribed = false
		for _, sql := range []string{"alter subscription s disable", "alter subscription s set (slot_name = none)", "drop subscription s"} {
			if err := try(w.user, sql); err != nil {
				t.Error(err)
			}
		}
		w.until("the slot is free", "select not active from pg_replication_slots where slot_name = 's'")
		if err := try(from.user, "select pg_drop_replication_slot('s')"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(leave)
	w.until("the first copy is done", "select count(*) = 3 from public.t")
	w.until("tables are in step", "select bool_and(srsubstate = 'r') from pg_subscription_rel")

	const guid = "00000000-0000-0000-0000-0000000000"
	specs := []weir.CaptureSpec{
		plain("public", "t"), plain("public", "c"), plain("public", "m"),
		{Table: weir.Table{Schema: "public", Name: "i"}, InstanceGUID: "guid", ConceptGUID: guid + "aa"},
		{Table: weir.Table{Schema: "public", Name: "e"}, InstanceGUID: "parent", ConceptGUID: guid + "aa", ChangeType: "Event"},
	}
	w.apply(specs...)
	for _, name := range []string{"public.t", "public.m"} {
		if p := w.plan(specs...); !slices.ContainsFunc(p.Warnings, func(s string) bool { return strings.Contains(s, "a subscription writes "+name) }) {
			t.Errorf("no warning that a subscription writes %s: %q", name, p.Warnings)
		}
	}

	step := 0
	// replicate runs a statement at the publisher and waits until it is applied.
	replicate := func(sql string) {
		t.Helper()
		step++
		from.exec(sql)
		from.exec("insert into public.t values (" + strings.Repeat("9", 5) + "0 + " + string(rune('0'+step)) + ", 'mark')")
		w.until(sql, "select exists (select from public.t where k = 999990 + "+string(rune('0'+step))+")")
		w.exec("delete from public.t where k > 999990")
		w.fold()
		w.exec("delete from weir.instance_changes where old_primary_key ~ '^99999'")
	}
	replicate("insert into public.t values (4, 'd'); update public.t set v = 'x' where k = 1; delete from public.t where k = 2")
	w.wantTook("replicated", "I 4", "I 1", "D 2")
	replicate("update public.t set k = k + 10 where k in (3, 4)")
	w.wantTook("replicated keys", "D 3", "I 13", "D 4", "I 14")
	replicate("insert into public.c values ('x', 1, 'a'), ('x', 2, 'a'); update public.c set b = 3 where b = 2")
	w.wantTook("replicated composite keys", `I ["x", "1"]`, `D ["x", "2"]`, `I ["x", "3"]`)
	replicate("insert into public.m values (1, 'a'), (101, 'b'), (2, 'c'); update public.m set k = 102 where k = 2; delete from public.m1 where k = 1")
	w.wantTook("replicated partitions", "D 1", "D 2", "I 101", "I 102")
	replicate("insert into public.i values (1, '" + guid + "01', 'a'), (2, '" + guid + "02', 'b'); update public.i set guid = '" + guid + "03' where id = 2")
	w.wantTook("replicated instances", "I "+guid+"01", "D "+guid+"02", "I "+guid+"03")
	replicate("insert into public.e values (1, '" + guid + "01', 'a'), (2, '" + guid + "01', 'b'); update public.e set parent = '" + guid + "03' where id = 2")
	w.wantTook("replicated children", "Event "+guid+"01", "Event "+guid+"03")
	replicate("truncate public.c, public.m")
	w.wantTook("replicated truncate", `D ["x", "1"]`, `D ["x", "3"]`, "D 101", "D 102")

	w.exec("insert into public.t values (50, 'l'), (51, 'l'), (52, 'l'); update public.t set k = k + 1 where k = 52; delete from public.t where k = 50; update public.m set v = v")
	w.wantTook("local", "D 50", "I 51", "D 52", "I 53")
	w.exec("insert into public.m values (5, 'l'); update public.m set k = 105 where k = 5; truncate public.m2")
	w.wantTook("local on partitions", "D 5", "D 105")
	w.exec("begin isolation level serializable")
	w.exec("update public.t set k = k + 100 where k in (51, 53)")
	w.exec("commit")
	w.wantTook("local, serializable", "D 51", "D 53", "I 151", "I 153")

	// A partition made later has the root's row triggers from its beginning.
	w.exec("create table public.m3 partition of public.m for values from (200) to (300); insert into public.m3 values (201, 'n')")
	w.wantTook("on a new partition", "I 201")
	w.exec("truncate public.m3")
	if got := w.took(); len(got) != 0 {
		t.Errorf("TRUNCATE of a new partition before apply: %v", got)
	}
	w.apply(specs...)
	w.exec("insert into public.m3 values (202, 'n'); truncate public.m3")
	w.wantTook("truncate of a new partition", "D 202")

	w.exec("alter table public.m detach partition public.m3")
	w.exec("insert into public.m values (1, 'n'), (102, 'n')")
	_, err := w.read()
	drift(t, err, "m3 no longer belongs to it")

	// The subscription ends, and statements have triggers again.
	leave()
	w.apply(specs...)
	if n := one[int64](w, "select count(*) from pg_trigger where tgrelid = 'public.m3'::regclass"); n != 0 {
		t.Errorf("%d triggers left on m3", n)
	}
	if n := one[int64](w, "select count(*) from pg_trigger where tgname like 'weir%' and (tgtype & 1 = 1 or tgenabled <> 'O')"); n != 0 {
		t.Errorf("%d row triggers or triggers enabled always are left", n)
	}
	w.exec("update public.m set v = 'x' where k = 1; delete from public.m2; update public.t set k = 1000 where k = 1")
	w.wantTook("after the subscription", "I 1", "D 102", "D 1", "I 1000")
}
