package dialects_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/puller"
)

// loadTime is how long each load runs: WEIR_TEST_LOAD, 2 s by default.
func loadTime() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("WEIR_TEST_LOAD")); err == nil {
		return d
	}
	return 2 * time.Second
}

const loadTables = `
create table hot (id integer primary key, v integer not null);
insert into hot select g, 0 from generate_series(0, 99) g;
create table parent (guid uuid primary key);
insert into parent select ('00000000-0000-0000-0000-' || lpad(to_hex(g), 12, '0'))::uuid from generate_series(0, 9) g;
create table child (id bigint generated always as identity primary key, parent uuid not null, note text);`

// load runs 8 clients until the time is over, and counts what they did and the
// SQLSTATEs that they met. Alone, the tables give no error at READ COMMITTED and
// REPEATABLE READ: rows are locked in key order, or each client has its own.
func load(ctx context.Context, t *testing.T, url, level string) (done int, states map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, loadTime())
	defer cancel()
	states = map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			conn, err := pgx.Connect(context.WithoutCancel(ctx), url)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(context.Background())
			rnd := rand.New(rand.NewPCG(1, uint64(c)))
			for ctx.Err() == nil {
				err := loadOnce(context.WithoutCancel(ctx), conn, rnd, level, c)
				var pg *pgconn.PgError
				mu.Lock()
				switch {
				case err == nil:
					done++
				case errors.As(err, &pg):
					states[pg.Code]++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return done, states
}

func loadOnce(ctx context.Context, conn *pgx.Conn, rnd *rand.Rand, level string, client int) error {
	var statements []string
	if rnd.IntN(2) == 0 {
		// Many hot rows in one statement: shared ones in key order, or the client's own.
		which := fmt.Sprintf("id %% 8 = %d", client)
		if level == "read committed" {
			from := rnd.IntN(90)
			which = fmt.Sprintf("id in (select id from hot where id between %d and %d order by id for update)", from, from+10)
		}
		statements = append(statements, "update hot set v = v + 1 where "+which)
	} else {
		// Children of shared parents, in any order.
		for range 3 {
			statements = append(statements, fmt.Sprintf("insert into child (parent, note) values ('00000000-0000-0000-0000-%012x', 'n')", rnd.IntN(10)))
		}
		statements = append(statements, fmt.Sprintf("delete from child where id in (select id from child where id %% 8 = %d order by id limit 1)", client))
	}
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)}, func(x pgx.Tx) error {
		for _, s := range statements {
			if _, err := x.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func loadSpecs(child weir.Tagging) []weir.CaptureSpec {
	return []weir.CaptureSpec{
		{Table: weir.ParseTable("public.hot")},
		{Table: weir.ParseTable("public.child"), InstanceGUID: "parent", ChangeType: "Instance Event Changed",
			ConceptGUID: "6f9a5a5e-8d0f-4b86-9d2e-0f4c4f5d3b11", Tagging: child},
	}
}

// pullers drain and fold beside the load until stop is called, which returns once
// they have ended.
func pullers(t *testing.T, l *line, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := l.puller.Drain(ctx)
				var u *weir.UnavailableError
				if err != nil && !errors.As(err, &u) {
					t.Errorf("drain: %v", err)
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// TestLoad_NoErrorOfWeirsMaking: hot keys and children of shared parents, at every
// isolation level, beside three pullers. The clients meet no SQLSTATE that the
// same load without weir does not meet, and both sides end equal.
func TestLoad_NoErrorOfWeirsMaking(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			bare := newDatabase(t, "postgres", "public")
			bare.exec(t, loadTables)
			done, without := load(t.Context(), t, bare.url, level)
			if done == 0 {
				t.Fatal("the load did nothing")
			}
			if level != "serializable" && len(without) > 0 {
				t.Fatalf("the tables alone give %v: the load is no measure", without)
			}

			from, to := newDatabase(t, "postgres", "public"), newDatabase(t, "postgres", "copy")
			from.exec(t, loadTables)
			l := newLine(t, from, to, puller.Config{Batch: 30}, loadSpecs("")...)
			stop := pullers(t, l, 3)
			captured, with := load(t.Context(), t, from.url, level)
			stop()
			for state, n := range with {
				if without[state] == 0 {
					t.Errorf("%d transactions of %d failed with %s, which the tables alone do not give", n, captured, state)
				}
			}
			t.Logf("%d transactions without weir, %d with it; errors %v and %v", done, captured, without, with)
			l.backfill(t) // the rows that were there before
			drainAll(t, l)
			equalTables(t, from, to, map[string][]string{"hot": {"id", "v"}, "child": {"id", "parent", "note"}})
		})
	}
}

// TestLoad_WithoutInbox shows what the inbox is for: the same loads, tagged at
// once, deadlock (children of shared parents) or fail to serialise.
func TestLoad_WithoutInbox(t *testing.T) {
	for level, want := range map[string]string{"read committed": "40P01", "repeatable read": "40001"} {
		t.Run(level, func(t *testing.T) {
			from, to := newDatabase(t, "postgres", "public"), newDatabase(t, "postgres", "copy")
			from.exec(t, loadTables)
			l := newLine(t, from, to, puller.Config{Batch: 30}, loadSpecs(weir.AtOnce)...)
			switchOffInbox(t, from)
			stop := pullers(t, l, 3)
			defer stop()
			found := map[string]int{}
			for range 5 {
				_, states := load(t.Context(), t, from.url, level)
				for s, n := range states {
					found[s] += n
				}
				if found[want] > 0 {
					return
				}
			}
			t.Errorf("the load without the inbox met %v, want %s: the inbox is not needed, or the load is no measure", slices.Collect(maps.Keys(found)), want)
		})
	}
}

// switchOffInbox makes the trigger functions tag at once at every isolation level.
func switchOffInbox(t *testing.T, d *database) {
	t.Helper()
	const check = "current_setting('transaction_isolation') in ('read committed', 'read uncommitted')"
	rows, err := d.db.QueryContext(t.Context(), "select pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'weir' and p.proname ~ '^capture_.*_(insert|update|delete)_'")
	if err != nil {
		t.Fatal(err)
	}
	var functions []string
	for rows.Next() {
		var f string
		if err := rows.Scan(&f); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(f, check) {
			t.Fatalf("there is no check to switch off in %s", f)
		}
		functions = append(functions, strings.ReplaceAll(f, check, "true"))
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	if len(functions) != 6 {
		t.Fatalf("%d functions, want 6", len(functions))
	}
	d.exec(t, functions...)
}
