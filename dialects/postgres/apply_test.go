package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/triggers"
)

// TestApplyBesideLongTransaction: apply waits for a long transaction a moment
// only, and whoever would wait behind it no longer; then nothing is changed.
func TestApplyBesideLongTransaction(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, v integer)", "insert into public.t values (1, 0), (2, 0)")
	long, app := w.session(w.url), w.session(w.url)
	w.on(long, "begin; update public.t set v = 1 where k = 1")
	p := w.plan(plain("public", "t"))
	done := make(chan error, 1)
	go func() { done <- triggers.Apply(context.Background(), w.src, p, nil) }()
	var longest time.Duration
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-done:
			waiting = false
		default:
			start := time.Now()
			w.on(app, "update public.t set v = v + 1 where k = 2")
			longest = max(longest, time.Since(start))
			time.Sleep(20 * time.Millisecond)
		}
	}
	var u *weir.UnavailableError
	var a *triggers.ApplyError
	if !errors.As(err, &u) || !errors.As(err, &a) {
		t.Fatalf("%v, want a *weir.UnavailableError in a *triggers.ApplyError", err)
	}
	for _, says := range []string{"public.t", "a transaction that is still open", "nothing was changed", "Try again", "pg_stat_activity"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q in it", err, says)
		}
	}
	if longest > 900*time.Millisecond { // a third of a second, and the machine's load
		t.Errorf("the application waited %v behind apply", longest)
	}
	t.Logf("the application waited at most %v", longest)
	if n := one[int64](w, "select (select count(*) from pg_trigger where tgname ~ '^weir_') + (select count(*) from weir.captures) + (select count(*) from pg_proc where proname ~ '^capture_')"); n != 0 {
		t.Errorf("%d objects are left of an apply that failed", n)
	}
	w.on(long, "commit")
	w.apply(plain("public", "t"))
}

// TestApplyFails: a failure in the middle leaves the table as it was.
func TestApplyFails(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, v integer) partition by range (k)", "create table public.t1 partition of public.t for values from (0) to (10)", "create table public.u (k integer primary key)")
	spec := plain("public", "t")
	// A trigger function of that name in the way, with arguments it cannot replace.
	list, err := w.src.Resolve(context.Background(), []weir.CaptureSpec{spec})
	if err != nil {
		t.Fatal(err)
	}
	present := fmt.Sprintf("weir.capture_%d_present(uuid[], text[])", list[0].Capture.ID)
	w.exec("create function " + present + " returns integer language sql as 'select 1'")
	p := w.plan(spec, plain("public", "u"))
	err = triggers.Apply(context.Background(), w.src, p, nil)
	var a *triggers.ApplyError
	if !errors.As(err, &a) || a.Failed != spec.Table || len(a.Left) != 1 {
		t.Fatalf("%v, want a *triggers.ApplyError at public.t with public.u left", err)
	}
	if n := one[int64](w, "select (select count(*) from pg_trigger where tgname ~ '^weir_') + (select count(*) from weir.captures)"); n != 0 {
		t.Errorf("%d objects are left of an apply that failed", n)
	}
	w.exec("insert into public.t values (1, 1)")
	w.wantTook("nothing is captured")
	w.exec("drop function " + present)
	w.apply(spec, plain("public", "u"))
	w.exec("insert into public.t1 values (2, 1)")
	w.wantTook("after it is put right", "I 2")
}

// TestApplyBesideWriters: what is committed after apply returned is captured,
// and no writer fails.
func TestApplyBesideWriters(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, w integer)")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	type insert struct {
		key   int
		begun time.Time
	}
	var mu sync.Mutex
	var committed []insert
	var wg sync.WaitGroup
	for i := range 4 {
		c := w.session(w.url)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := n*4 + i
				begun := time.Now()
				if err := try(c, fmt.Sprintf("insert into public.t values (%d, %d)", key, i)); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				committed = append(committed, insert{key, begun})
				mu.Unlock()
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	w.apply(plain("public", "t"))
	installed := time.Now()
	time.Sleep(300 * time.Millisecond)
	stop()
	wg.Wait()
	captured := map[string]bool{}
	for _, k := range ask[string](w, "select old_primary_key from weir.instance_changes") {
		captured[k] = true
	}
	var after int
	for _, in := range committed {
		if in.begun.After(installed) {
			after++
			if !captured[fmt.Sprint(in.key)] {
				t.Errorf("key %d, inserted after apply, is not captured", in.key)
			}
		}
	}
	if after == 0 || after == len(committed) {
		t.Errorf("%d of %d inserts after apply: the test is no measure", after, len(committed))
	}
}

// TestApplyWaits: how long apply waits for a lock follows the server's
// deadlock_timeout, and is far below it.
func TestApplyWaits(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, v integer)", "insert into public.t values (1, 0)")
	holder := w.session(w.url)
	for _, deadlock := range []time.Duration{time.Second, 2400 * time.Millisecond} {
		w.exec(fmt.Sprintf("do $$ begin execute format('alter database %%I set deadlock_timeout = %d', current_database()); end $$", deadlock.Milliseconds()))
		src := openSource(t, w.url, "") // its sessions are new
		w.on(holder, "begin; update public.t set v = 1 where k = 1")
		p := w.plan(plain("public", "t"))
		done := make(chan error, 1)
		go func() { done <- triggers.Apply(context.Background(), src, p, nil) }()
		var longest time.Duration
		for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			for _, d := range ask[float64](w, "select extract(epoch from clock_timestamp() - waitstart)::float8 from pg_locks where relation = 'public.t'::regclass and not granted and waitstart is not null") {
				longest = max(longest, time.Duration(d*float64(time.Second)))
			}
		}
		if longest < deadlock/6 || longest > deadlock/2 {
			t.Errorf("deadlock_timeout %v: apply waited %v at a time, want about a third", deadlock, longest)
		}
		w.on(holder, "rollback") // and one of its tries gets through
		if err := <-done; err != nil {
			t.Errorf("deadlock_timeout %v: after the lock is gone: %v", deadlock, err)
		}
		drop, err := triggers.PlanDrop(context.Background(), w.src, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := triggers.Apply(context.Background(), w.src, drop, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestApplyWaitsInAll: many short waits one after another do not make a user,
// who waits for what apply has locked first, the victim of a deadlock.
func TestApplyWaitsInAll(t *testing.T) {
	w := newWorld(t, "create table public.m (k integer primary key, v integer) partition by range (k)")
	for i := range 6 {
		w.exec(fmt.Sprintf("create table public.m%d partition of public.m for values from (%d) to (%d)", i, i*10, i*10+10))
	}
	w.exec("insert into public.m select g, 0 from generate_series(0, 59) g")
	user := w.session(w.url)
	w.on(user, "begin; update public.m5 set v = 1 where k = 50")
	p := w.plan(plain("public", "m"))
	var holders []*pgx.Conn
	for i := 1; i < 5; i++ {
		c := w.session(w.url)
		w.on(c, fmt.Sprintf("begin; update public.m%d set v = 1 where k = %d", i, i*10))
		holders = append(holders, c)
	}
	done := make(chan error, 1)
	go func() { done <- triggers.Apply(context.Background(), w.src, p, nil) }()
	for one[int64](w, "select count(*) from pg_locks where relation = 'public.m0'::regclass and mode = 'ShareRowExclusiveLock' and granted") == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	// Each gives way a moment before apply would give up waiting for it.
	var given sync.WaitGroup
	defer given.Wait()
	given.Go(func() {
		for _, c := range holders {
			time.Sleep(240 * time.Millisecond)
			if err := try(c, "commit"); err != nil {
				t.Error(err)
			}
		}
	})
	if err := try(user, "update public.m0 set v = 1 where k = 1; commit"); err != nil {
		t.Errorf("the application's transaction failed beside apply: %v", err)
		w.on(user, "rollback")
	}
	if err := <-done; err != nil {
		t.Errorf("apply, after all locks are gone: %v", err)
	}
}

// TestApplyIsNoDeadlock: a transaction that touches partitions in another order
// than apply is never the victim of a deadlock with it.
func TestApplyIsNoDeadlock(t *testing.T) {
	w := newWorld(t, "create table public.m (k integer primary key, v integer) partition by range (k)")
	for i := range 8 {
		w.exec(fmt.Sprintf("create table public.m%d partition of public.m for values from (%d) to (%d)", i, i*10, i*10+10))
	}
	w.exec("insert into public.m select g, 0 from generate_series(0, 79) g")
	spec := plain("public", "m")
	for try := range 4 {
		// It holds the last partition, and asks for the first a while after
		// apply began to wait.
		tx := w.session(w.url)
		w.on(tx, "begin; update public.m7 set v = 1 where k = 70")
		p := w.plan(spec)
		done := make(chan error, 1)
		go func() { done <- triggers.Apply(context.Background(), w.src, p, nil) }()
		time.Sleep(time.Duration(100+try*250) * time.Millisecond)
		_, err := tx.Exec(context.Background(), "update public.m0 set v = 1 where k = 1; commit")
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			t.Errorf("the application's transaction failed beside apply: %v", err)
			w.on(tx, "rollback")
		}
		if err := <-done; err != nil {
			t.Logf("apply: %v", err)
		}
		w.apply(spec)
		drop, err := triggers.PlanDrop(context.Background(), w.src, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := triggers.Apply(context.Background(), w.src, drop, nil); err != nil {
			t.Fatal(err)
		}
	}
}
