package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
	weirsql "github.com/weir-cdc/weir/sql"
)

// bare is a database with weir's schema and no more.
func bare(t *testing.T, ddl ...string) *world {
	t.Helper()
	w := &world{TB: t, url: testdb.Postgres(t)}
	w.user, w.src = w.session(w.url), openSource(t, w.url, "")
	w.exec("create schema weir")
	for _, sql := range ddl {
		w.exec(sql)
	}
	return w
}

// version returns what golang-migrate has noted: "1 false", or nothing.
func (w *world) version() []string {
	w.Helper()
	return ask[string](w, "select version || ' ' || dirty from weir.schema_migrations")
}

// works captures a row.
func (w *world) works() {
	w.Helper()
	w.exec("drop table if exists public.works; create table public.works (k integer primary key)")
	w.apply(plain("public", "works"))
	w.exec("insert into public.works values (7)")
	w.wantTook("weir works", "I 7")
}

func (w *world) initFails(says ...string) {
	w.Helper()
	_, err := w.src.Init(context.Background())
	var c *weir.ConfigError
	if !errors.As(err, &c) {
		w.Fatalf("init: %v, want a *weir.ConfigError", err)
	}
	for _, s := range append(says, "run weir init again") {
		if !strings.Contains(err.Error(), s) {
			w.Errorf("init: %v, want %q in it", err, s)
		}
	}
}

// newest is the version of weir's tables.
const newest = 2

func (w *world) init() {
	w.Helper()
	if v, err := w.src.Init(context.Background()); err != nil || v != newest {
		w.Fatalf("init: version %d, %v, want %d", v, err, newest)
	}
}

// TestInit_MigrationFails: what is in the way of a migration is named, nothing
// is half done, and init works once it is gone.
func TestInit_MigrationFails(t *testing.T) {
	w := bare(t, "create table weir.captures (k integer)")
	tables := func() []string {
		return ask[string](w, "select relname::text from pg_class where relnamespace = 'weir'::regnamespace and relkind = 'r' order by 1")
	}
	for range 2 {
		w.initFails("migration 1", `schema "weir"`, "was rolled back", `relation "captures" already exists`)
		if got, want := tables(), []string{"captures", "schema_migrations"}; !slices.Equal(got, want) {
			t.Errorf("after it failed there are %v, want %v", got, want)
		}
		if got := w.version(); len(got) != 0 {
			t.Errorf("after it failed the version is %v, want none", got)
		}
	}
	w.exec("drop table weir.captures")
	w.init()
	if got, want := w.version(), []string{fmt.Sprintf("%d false", newest)}; !slices.Equal(got, want) {
		t.Errorf("version %v, want %v", got, want)
	}
	w.works()
}

// TestInit_Killed: a process that was killed while it migrated leaves its
// version marked; the next init runs the migration again.
func TestInit_Killed(t *testing.T) {
	w := bare(t, "create table weir.schema_migrations (version bigint not null primary key, dirty boolean not null)", "insert into weir.schema_migrations values (1, true)")
	w.init()
	w.works()
}

// TestInit_RoutineFails: a function in the way leaves all the others as they
// were.
func TestInit_RoutineFails(t *testing.T) {
	w := newWorld(t)
	w.exec("drop function weir.settle(uuid); create function weir.settle(i_pull uuid) returns text language sql as 'select 1::text'")
	w.exec("create or replace function weir.fold(i_limit integer) returns integer language sql as 'select 42'")
	w.initFails(`"weir".settle`, "cannot change return type of existing function")
	if n := one[int32](w, "select weir.fold(1)"); n != 42 {
		t.Errorf("weir.fold is not the one from before: %d", n)
	}
	w.exec("drop function weir.settle(uuid)")
	w.init()
	if n := one[int32](w, "select weir.fold(1)"); n != 0 {
		t.Errorf("weir.fold is not replaced: %d", n)
	}
	w.works()
}

// step has the stock command's library do something with the migrations of
// weir's own tables.
func (w *world) step(do func(*migrate.Migrate) error) {
	w.Helper()
	files, err := fs.Sub(weirsql.FS, "postgres/migrations")
	if err != nil {
		w.Fatal(err)
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		w.Fatal(err)
	}
	m, err := migrate.NewWithSourceInstance("iofs", source, strings.Replace(w.url, "postgres://", "pgx5://", 1)+"&search_path=weir")
	if err != nil {
		w.Fatal(err)
	}
	defer m.Close()
	if err := do(m); err != nil {
		w.Fatal(err)
	}
}

// TestMigrateCommand: the stock command applies and reverts the migrations of
// weir's own tables, before init and after it.
func TestMigrateCommand(t *testing.T) {
	w := bare(t)
	w.step((*migrate.Migrate).Up)
	w.init()
	w.works()
	w.exec("select weir.create_queue('more')")
	w.apply() // drops the captures
	w.exec("drop table if exists weir.instance_changes_more")
	w.step((*migrate.Migrate).Down)
	if left := ask[string](w, "select relname::text from pg_class where relnamespace = 'weir'::regnamespace and relkind = 'r'"); !slices.Equal(left, []string{"schema_migrations"}) {
		t.Errorf("after down there are %v, want schema_migrations alone", left)
	}
	if got := w.version(); len(got) != 0 {
		t.Errorf("after down the version is %v, want none", got)
	}
	w.init()
	w.works()
}

// TestInit_Upgrades: a pull that was claimed at version 1, of each of two
// queues, is settled or released at the newest; and back.
func TestInit_Upgrades(t *testing.T) {
	const settled, released = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	w := bare(t)
	w.step(func(m *migrate.Migrate) error { return m.Migrate(1) })
	w.exec("create table weir.instance_changes_more (like weir.instance_changes including all); insert into weir.queues values ('more', 'instance_changes_more')")
	for table, pull := range map[string]string{"instance_changes": settled, "instance_changes_more": released} {
		w.exec(fmt.Sprintf("insert into weir.instance_changes%s (instance_guid, change_type, changed_on, pull_guid) select gen_random_uuid(), 'x', now(), '%s' from generate_series(1, 3)", strings.TrimPrefix(table, "instance_changes"), pull))
	}
	w.exec(fmt.Sprintf("insert into weir.pulls select p::uuid, 'p', q, '', p::uuid, 'claimed', now(), now(), 3 from (values ('%s', 'default'), ('%s', 'more')) v (p, q)", settled, released))
	w.init()
	indexes := func() []string {
		return ask[string](w, "select regexp_replace(indexdef, '^.* ON weir\\.(\\w+) USING btree ', '\\1 ') from pg_indexes where schemaname = 'weir' and tablename like 'instance_changes%' and indexdef !~ 'UNIQUE' order by 1")
	}
	if got, want := indexes(), []string{"instance_changes (changed_on)", "instance_changes_more (changed_on)"}; !slices.Equal(got, want) {
		t.Errorf("indexes %q, want %q", got, want)
	}
	if n := one[int64](w, "select count(*) from weir.pulls where cardinality(instances) = 3"); n != 2 {
		t.Errorf("%d pulls know their instances, want 2", n)
	}
	if got := one[string](w, "select settled || ' ' || done from weir.settle($1::text::uuid)", settled); got != "3 true" {
		t.Errorf("settle says %s, want 3 true", got)
	}
	if !one[bool](w, "select weir.release($1::text::uuid)", released) {
		t.Error("release says that rows are left")
	}
	if got := one[string](w, "select (select count(*) from weir.instance_changes) || ' ' || count(*) || ' ' || count(pull_guid) from weir.instance_changes_more"); got != "0 3 0" {
		t.Errorf("rows at the default queue, at the other, and claimed there: %s, want 0 3 0", got)
	}
	w.step(func(m *migrate.Migrate) error { return m.Migrate(1) })
	if n := len(indexes()); n != 4 {
		t.Errorf("%d indexes at version 1, want 4", n)
	}
	w.init()
	w.works()
}
