package postgres_test

import (
	"context"
	"errors"
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

func (w *world) init() {
	w.Helper()
	if v, err := w.src.Init(context.Background()); err != nil || v != 1 {
		w.Fatalf("init: version %d, %v, want 1", v, err)
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
	if got := w.version(); !slices.Equal(got, []string{"1 false"}) {
		t.Errorf("version %v, want 1 false", got)
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

// TestMigrateCommand: the stock command applies and reverts the migrations of
// weir's own tables, before init and after it.
func TestMigrateCommand(t *testing.T) {
	w := bare(t)
	files, err := fs.Sub(weirsql.FS, "postgres/migrations")
	if err != nil {
		t.Fatal(err)
	}
	step := func(do func(*migrate.Migrate) error) {
		t.Helper()
		source, err := iofs.New(files, ".")
		if err != nil {
			t.Fatal(err)
		}
		m, err := migrate.NewWithSourceInstance("iofs", source, strings.Replace(w.url, "postgres://", "pgx5://", 1)+"&search_path=weir")
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := do(m); err != nil {
			t.Fatal(err)
		}
	}
	step((*migrate.Migrate).Up)
	w.init()
	w.works()
	w.exec("select weir.create_queue('more')")
	w.apply() // drops the captures
	w.exec("drop table if exists weir.instance_changes_more")
	step((*migrate.Migrate).Down)
	if left := ask[string](w, "select relname::text from pg_class where relnamespace = 'weir'::regnamespace and relkind = 'r'"); !slices.Equal(left, []string{"schema_migrations"}) {
		t.Errorf("after down there are %v, want schema_migrations alone", left)
	}
	if got := w.version(); len(got) != 0 {
		t.Errorf("after down the version is %v, want none", got)
	}
	w.init()
	w.works()
}
