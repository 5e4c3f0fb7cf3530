package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// role makes a role that may log in, for this test.
func (w *world) role(name, options string) string {
	w.Helper()
	role := fmt.Sprintf("%s_%s", name, strings.ReplaceAll(weir.NewGUID().String(), "-", ""))
	w.exec("create role " + role + " login " + options)
	w.Cleanup(func() {
		if err := try(w.user, "reset role; drop owned by "+role+" cascade; drop role "+role); err != nil {
			w.Error(err)
		}
	})
	return role
}

// as is the URL of the database for another role.
func (w *world) as(role string) string {
	u, err := url.Parse(w.url)
	if err != nil {
		w.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// TestRightsOfFunctions: PUBLIC may execute none of weir's functions, and a
// function with its owner's rights looks nowhere but in pg_catalog for a name.
func TestRightsOfFunctions(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key)", "create table public.c (parent uuid)")
	w.exec("alter default privileges grant execute on functions to public") // as is the default
	w.apply(weir.CaptureSpec{Table: weir.Table{Schema: "public", Name: "t"}, Queues: []string{weir.DefaultQueue, "extra"}},
		weir.CaptureSpec{Table: weir.Table{Schema: "public", Name: "c"}, InstanceGUID: "parent", ChangeType: "Event"})
	if n := one[int64](w, "select count(*) from pg_proc where pronamespace = 'weir'::regnamespace"); n < 20 {
		t.Errorf("%d functions: too few to be all", n)
	}
	for _, name := range ask[string](w, `select p.oid::regprocedure::text from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		where p.pronamespace = 'weir'::regnamespace and a.grantee = 0`) {
		t.Errorf("PUBLIC may execute %s", name)
	}
	for _, name := range ask[string](w, `select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace = 'weir'::regnamespace and p.prosecdef and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)`) {
		t.Errorf("%s has its owner's rights and the caller's search_path", name)
	}
	if n := one[int64](w, "select count(*) from pg_proc where pronamespace = 'weir'::regnamespace and prosecdef"); n < 15 {
		t.Errorf("%d functions with their owner's rights: too few to be all", n)
	}
	for _, name := range ask[string](w, `select c.oid::regclass::text from pg_class c, aclexplode(c.relacl) a where c.relnamespace = 'weir'::regnamespace and a.grantee = 0`) {
		t.Errorf("PUBLIC has rights on %s", name)
	}
}

// TestRightsOfApplication: a role that may write the table alone writes it, in
// every way of tagging.
func TestRightsOfApplication(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key deferrable, v text)", "create table public.p (k integer primary key, v text) partition by range (k)",
		"create table public.p1 partition of public.p for values from (0) to (100)", "create table public.p2 partition of public.p for values from (100) to (200)",
		"create table public.d (k integer primary key)", "create table public.c (parent uuid)")
	deferred := plain("public", "d")
	deferred.Tagging = weir.Deferred
	w.apply(plain("public", "t"), plain("public", "p"), deferred, weir.CaptureSpec{Table: weir.Table{Schema: "public", Name: "c"}, InstanceGUID: "parent", ChangeType: "Event"})
	role := w.role("app", "")
	w.exec("grant select, insert, update, delete, truncate on public.t, public.p, public.p1, public.p2, public.d, public.c to " + role)
	app := w.session(w.as(role))
	w.refused(app, "42501", "select * from weir.instance_changes")
	w.refused(app, "42501", "select weir.gi_instance_changed(gen_random_uuid(), null, 'x', null)")
	w.on(app, "insert into public.t select generate_series(1, 3); update public.t set k = k + 1; update public.t set v = 'x'; delete from public.t where k = 4")
	w.wantTook("at once", "D 1", "I 2", "I 3", "D 4")
	w.on(app, "truncate public.t; insert into public.t select generate_series(1, 1200); update public.t set k = k + 1")
	if n := len(w.took()); n != 1201 {
		t.Errorf("%d keys of large statements, want 1201", n)
	}
	w.on(app, "insert into public.p values (1), (2); update public.p set k = 101 where k = 1; delete from public.p1; truncate public.p2")
	w.wantTook("partitions", "D 1", "D 2", "D 101")
	w.on(app, "begin isolation level serializable")
	w.on(app, "insert into public.d values (1); insert into public.c values ('00000000-0000-0000-0000-000000000001')")
	w.on(app, "commit")
	w.wantTook("by the inbox", "I 1", "Event 00000000-0000-0000-0000-000000000001")
	w.exec("revoke all on all functions in schema pg_catalog from " + role)

	// Tagging by hand needs USAGE and EXECUTE.
	w.exec("grant usage on schema weir to " + role + "; grant execute on function weir.gi_instance_changed to " + role)
	w.on(app, "select weir.gi_instance_changed('00000000-0000-0000-0000-000000000002', null, 'Noted', 'key')")
	w.on(app, "begin isolation level repeatable read")
	w.on(app, "select weir.gi_instance_changed('00000000-0000-0000-0000-000000000003', null, 'Noted', null)")
	w.on(app, "commit")
	w.wantTook("by hand", "Noted key", "Noted 00000000-0000-0000-0000-000000000003")
}

// TestRightsHostileSession: what a session can put in the way of names and
// operators does not run with weir's rights, and does not change what is tagged.
func TestRightsHostileSession(t *testing.T) {
	w := newWorld(t, "create table public.t (k text primary key, n integer, v text)", "create table public.c (parent uuid not null, n integer)")
	specs := []weir.CaptureSpec{plain("public", "t"), {Table: weir.Table{Schema: "public", Name: "c"}, InstanceGUID: "parent", ChangeType: "Event"}}
	w.apply(specs...)
	role := w.role("app", "")
	w.exec("grant select, insert, update, delete, truncate on public.t, public.c to " + role + "; create schema evil authorization " + role)
	w.exec("grant usage on schema weir to " + role + "; grant execute on function weir.gi_instance_changed to " + role)
	app := w.session(w.as(role))
	w.on(app, "create table evil.ran (who text, super text)")
	trap := "language plpgsql as $$ begin raise exception 'trapped, as %', current_user; end $$"
	for _, f := range []string{"md5(text) returns text", "clock_timestamp() returns timestamptz", "array_fill(timestamptz, integer[]) returns timestamptz[]", "cardinality(uuid[]) returns integer",
		"current_setting(text) returns text", "format(text, regclass) returns text", "eq(uuid, uuid) returns boolean", "eq(text, text) returns boolean", "cat(text, text) returns text",
		"tag_default(text, uuid[], timestamptz[], uuid[], text[], integer[]) returns void", "eq(varchar, text) returns boolean", "le(bigint, integer) returns boolean", "count(integer) returns bigint"} {
		w.on(app, "create function evil."+f+" "+trap)
	}
	w.on(app, `create operator evil.= (leftarg = uuid, rightarg = uuid, function = evil.eq); create operator evil.= (leftarg = text, rightarg = text, function = evil.eq);
		create operator evil.= (leftarg = varchar, rightarg = text, function = evil.eq); create operator evil.|| (leftarg = text, rightarg = text, function = evil.cat);
		create operator evil.<= (leftarg = bigint, rightarg = integer, function = evil.le)`)
	w.on(app, `create temp table instance_changes (instance_guid uuid); create temp table inbox (instance_guid uuid); create temp table new_rows (k text); create temp table old_rows (k text);
		create temp table pg_class (oid oid); create temp table captures (x int); create temp table queues (x int);
		create function pg_temp.md5(text) returns text `+trap)
	w.on(app, "set search_path = evil, pg_temp, public, pg_catalog")
	w.refused(app, "P0001", "select md5('x'::text)") // the trap works
	for _, level := range []string{"read committed", "repeatable read"} {
		w.on(app, "begin isolation level "+level)
		w.on(app, "insert into public.t values ('a'), ('b'), ('c')")
		w.on(app, "update public.t set k = k operator(pg_catalog.||) '2' where k operator(pg_catalog.=) 'a'")
		w.on(app, "delete from public.t where k operator(pg_catalog.=) 'b'; insert into public.c values ('00000000-0000-0000-0000-000000000001'); update public.c set n = 1")
		w.on(app, "select weir.gi_instance_changed('00000000-0000-0000-0000-000000000002', null, 'Noted', null)")
		w.on(app, "commit")
		w.wantTook(level, "D a", "I a2", "D b", "I c", "Event 00000000-0000-0000-0000-000000000001", "Noted 00000000-0000-0000-0000-000000000002")
		w.on(app, "truncate public.t, public.c")
		w.wantTook("truncate", "D a2", "D c", "Event 00000000-0000-0000-0000-000000000001")
	}
}

// TestRightsSmallest installs and pulls with the smallest roles that suffice:
//
//	weir init             CREATE on the database (the schema then is the role's own)
//	weir triggers apply   the same role; SELECT and TRIGGER on the tables. Dropping
//	                      triggers, and row triggers enabled always, need the
//	                      tables' owner.
//	weir pull             USAGE on the schema; EXECUTE on fold, claim, settle,
//	                      release, postpone, extend and expired; SELECT on captures,
//	                      capture_queues, queues and pulls; SELECT on the tables
func TestRightsSmallest(t *testing.T) {
	url := testdb.Postgres(t)
	w := &world{TB: t, url: url}
	w.user = w.session(url)
	ctx := context.Background()
	w.exec("create schema app; create table app.t (k integer primary key, v text); create table app.p (k integer primary key) partition by range (k); create table app.p1 partition of app.p for values from (0) to (100)")
	database := one[string](w, "select quote_ident(current_database())")
	installer, puller := w.role("installer", ""), w.role("puller", "")
	w.exec("grant create on database " + database + " to " + installer + "; grant usage on schema app to " + installer + "; grant select, trigger on app.t, app.p, app.p1 to " + installer)

	install := openSource(t, w.as(installer), "")
	if _, err := install.Init(ctx); err != nil {
		t.Fatal(err)
	}
	specs := []weir.CaptureSpec{plain("app", "t"), plain("app", "p")}
	plan, _, err := triggers.PlanFor(ctx, install, specs)
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, install, plan, nil); err != nil {
		t.Fatal(err)
	}
	if err := triggers.Check(ctx, install, specs); err != nil {
		t.Fatal(err)
	}
	// A trigger that was disabled is put right by the same role.
	for _, state := range []string{"disable", "enable replica", "enable always"} {
		w.exec("alter table app.t " + state + " trigger " + one[string](w, "select quote_ident(tgname) from pg_trigger where tgrelid = 'app.t'::regclass and tgname ~ '_update$'"))
		if plan, _, err = triggers.PlanFor(ctx, install, specs); err != nil || len(plan.Steps) != 1 {
			t.Fatalf("%s: %d steps, %v", state, len(plan.Steps), err)
		}
		if err := triggers.Apply(ctx, install, plan, nil); err != nil {
			t.Fatal(err)
		}
		if err := triggers.Check(ctx, install, specs); err != nil {
			t.Error(err)
		}
	}

	// Whoever applies, the functions belong to the owner of weir's tables.
	admin := openSource(t, url, "")
	w.exec("drop function " + one[string](w, "select oid::regprocedure::text from pg_proc where proname ~ '^capture_[0-9]+_insert_t$'") + " cascade")
	w.exec("alter function " + one[string](w, "select oid::regprocedure::text from pg_proc where proname ~ '^capture_[0-9]+_delete_t$'") + " owner to " + puller)
	if plan, _, err = triggers.PlanFor(ctx, install, specs); err != nil || len(plan.Steps) != 3 {
		t.Fatalf("a function that was dropped and one that was given away: %d steps, %v", len(plan.Steps), err)
	}
	if err := triggers.Apply(ctx, admin, func() *triggers.Plan { p, _, _ := triggers.PlanFor(ctx, admin, specs); return p }(), nil); err != nil {
		t.Fatal(err)
	}
	if err := triggers.Check(ctx, install, specs); err != nil {
		t.Error(err)
	}
	if owners := ask[string](w, "select distinct pg_get_userbyid(proowner)::text from pg_proc where pronamespace = 'weir'::regnamespace"); len(owners) != 1 || owners[0] != installer {
		t.Errorf("weir's functions belong to %q, want %s", owners, installer)
	}

	w.exec("insert into app.t values (1, 'a'), (2, 'b'); insert into app.p values (1); truncate app.p1")
	w.exec("begin isolation level repeatable read")
	w.exec("update app.t set k = 3 where k = 2")
	w.exec("commit")
	w.exec("grant usage on schema weir, app to " + puller + "; grant select on app.t, app.p to " + puller + "; grant select on weir.captures, weir.capture_queues, weir.queues, weir.pulls to " + puller)
	for _, f := range []string{"fold", "claim", "settle", "release", "postpone", "extend", "expired"} {
		w.exec("grant execute on function weir." + f + " to " + puller)
	}
	src := openSource(t, w.as(puller), "")
	if _, err := src.Captures(ctx); err != nil {
		t.Error(err)
	}
	if n, err := src.Fold(ctx, 100); err != nil || n != 3 {
		t.Errorf("folded %d, %v, want 3", n, err)
	}
	pull, err := src.Claim(ctx, claimRequest(100))
	if err != nil {
		t.Fatal(err)
	}
	res, err := src.Read(ctx, pull, weir.ReadRequest{Encoding: "postgres"})
	if err != nil {
		t.Fatal(err)
	}
	if n, gone := res.Batch.Counts(); n != 2 || gone != 2 {
		t.Errorf("read %d rows and %d gone, want 2 and 2", n, gone)
	}
	if err := src.Extend(ctx, pull.PullGUID, time.Minute); err != nil {
		t.Error(err)
	}
	if err := src.Postpone(ctx, pull.PullGUID, []weir.Postponement{{InstanceGUID: pull.Changes[0].InstanceGUID, ChangeType: pull.Changes[0].ChangeType, Error: "x"}}); err != nil {
		t.Error(err)
	}
	if r, err := src.Settle(ctx, pull.PullGUID); err != nil || r.Settled != 3 || !r.Done {
		t.Errorf("settled %+v, %v, want 3", r, err)
	}
	if pull, err = src.Claim(ctx, claimRequest(100)); err != nil {
		t.Fatal(err)
	}
	if err := src.Release(ctx, pull.PullGUID); err != nil {
		t.Error(err)
	}
	if _, err := src.Expired(ctx, "test", weir.GUID{1}); err != nil {
		t.Error(err)
	}
	// It may do no more than that.
	var c *weir.ConfigError
	if _, err := src.Init(ctx); !errors.As(err, &c) {
		t.Errorf("init by the puller's role: %v, want a *weir.ConfigError", err)
	}
	other := w.session(w.as(puller))
	for _, sql := range []string{"delete from weir.instance_changes", "select weir.create_queue('x')", "select weir.gi_instance_changed(gen_random_uuid(), null, 'x', null)", "insert into weir.inbox select * from weir.inbox", "update weir.pulls set state = 'settled'"} {
		w.refused(other, "42501", sql)
	}
	if plan, err = triggers.PlanDrop(ctx, openSource(t, url, ""), nil); err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, openSource(t, url, ""), plan, nil); err != nil {
		t.Fatal(err)
	}
}
