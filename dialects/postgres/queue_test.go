package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
)

// TestFrozenPuller: a puller that stops between a statement and its commit (a
// suspended machine, a network cut without a word) must not keep the rows that
// it claims from the application.
func TestFrozenPuller(t *testing.T) {
	for _, step := range []string{"claim", "settle", "fold"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "create table public.t (k integer primary key, v integer)", "insert into public.t values (1, 0)")
			w.apply(plain("public", "t"))
			w.exec("update public.t set v = 1")
			proxy := testdb.NewProxy(t, w.url)
			src := openSource(t, proxy.URL(), "")
			var pull *weir.Pull
			switch step {
			case "settle":
				pull = w.claim(10)
			case "fold":
				w.exec("begin isolation level repeatable read")
				w.exec("update public.t set v = 1")
				w.exec("commit")
			}
			trap := proxy.Trap(testdb.Commit, testdb.HoldMessage)
			defer trap.Release()
			failed := make(chan error, 1)
			go func() {
				var err error
				switch step {
				case "claim":
					_, err = src.Claim(context.Background(), claimRequest(10))
				case "settle":
					_, err = src.Settle(context.Background(), pull.PullGUID)
				case "fold":
					_, err = src.Fold(context.Background(), 10)
				}
				failed <- err
			}()
			<-trap.Sprung()
			start := time.Now()
			w.exec("update public.t set v = 2")
			if d := time.Since(start); d > 15*time.Second {
				t.Errorf("the application waited %v for a frozen puller", d)
			}
			var u *weir.UnavailableError
			var o *weir.OutcomeUnknownError
			select {
			case err := <-failed:
				if !errors.As(err, &u) && !errors.As(err, &o) {
					t.Errorf("%s: %v, want an outage", step, err)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("%s does not return", step)
			}
			w.fold()
			if n := one[int64](w, "select count(*) from weir.instance_changes where pull_guid is null"); n != 1 {
				t.Errorf("%d changes can be claimed, want 1", n)
			}
		})
	}
}

// TestKilledPuller ends a puller's backend in the middle of a claim, and of a
// settle: all of it happened, or nothing.
func TestKilledPuller(t *testing.T) {
	w := newWorld(t)
	const rows = 20_000
	w.exec(fmt.Sprintf("insert into weir.instance_changes (instance_guid, change_type, changed_on) select md5(g::text)::uuid, 'Instance Inserted', clock_timestamp() from generate_series(1, %d) g", rows))
	proxy := testdb.NewProxy(t, w.url)
	src := openSource(t, proxy.URL()+"&application_name=victim", "")
	kill := func(after time.Duration) {
		time.Sleep(after)
		w.exec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'victim'")
	}
	consistent := func(what string) (claimed, left int64) {
		t.Helper()
		w.until("the backend is gone or done", "select count(*) = 0 from pg_stat_activity where application_name = 'victim' and state <> 'idle'")
		if n := one[int64](w, "select count(*) from weir.instance_changes q where pull_guid is not null and not exists (select from weir.pulls p where p.pull_guid = q.pull_guid)"); n != 0 {
			t.Errorf("%s: %d changes are held by a pull that is not there", what, n)
		}
		for _, p := range ask[string](w, "select p.pull_guid || ': ' || p.rows from weir.pulls p where p.state = 'claimed' and p.rows <> (select count(*) from weir.instance_changes q where q.pull_guid = p.pull_guid)") {
			t.Errorf("%s: pull %s rows are not what it holds", what, p)
		}
		return one[int64](w, "select count(*) from weir.instance_changes where pull_guid is not null"), one[int64](w, "select count(*) from weir.instance_changes")
	}
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond} {
		done := make(chan error, 1)
		go func() {
			_, err := src.Claim(context.Background(), claimRequest(rows))
			done <- err
		}()
		kill(after)
		err := <-done
		if err != nil {
			var u *weir.UnavailableError
			var o *weir.OutcomeUnknownError
			if !errors.As(err, &u) && !errors.As(err, &o) {
				t.Errorf("claim: %v, want an outage", err)
			}
		}
		claimed, left := consistent("claim")
		if left != rows || err == nil && claimed != rows {
			t.Errorf("claim ended with %v: %d are claimed of %d", err, claimed, left)
		}
		for _, p := range ask[string](w, "select pull_guid::text from weir.pulls") {
			w.exec("select weir.release('" + p + "')")
		}
	}
	pull := w.claim(rows)
	for i := 0; ; i++ {
		done := make(chan error, 1)
		go func() {
			_, err := src.Settle(context.Background(), pull.PullGUID)
			done <- err
		}()
		if i < 4 {
			kill(time.Duration(i) * 5 * time.Millisecond)
		}
		err := <-done
		if i < 4 {
			if _, left := consistent("settle"); left != 0 && left != rows {
				t.Errorf("settle ended with %v: %d are left", err, left)
			}
			continue
		}
		var u *weir.UnavailableError
		if errors.As(err, &u) && i < 20 {
			continue // a connection of the pool that was killed while it rested
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if n := one[int64](w, "select (select count(*) from weir.instance_changes) + (select count(*) from weir.pulls)"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestOldSnapshots: what must see the present refuses to run on an old
// snapshot.
func TestOldSnapshots(t *testing.T) {
	w := newWorld(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		for _, call := range []string{
			"select * from weir.claim('default', gen_random_uuid(), 'n', 'p', gen_random_uuid())",
			"select weir.fold(1)",
		} {
			w.exec("begin isolation level " + level)
			w.refused(w.user, "25001", call)
			w.exec("rollback")
		}
	}
}

// TestWritersBesidePullers: writers wait for no puller longer than a moment,
// whatever the size of its batches.
func TestWritersBesidePullers(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, v integer)", "insert into public.t select g, 0 from generate_series(1, 20000) g")
	w.apply(plain("public", "t"))
	w.exec("update public.t set v = 1")
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	var wg sync.WaitGroup
	var pulled, folded int
	var mu sync.Mutex
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				n, err := w.src.Fold(context.Background(), 5000)
				if err != nil {
					t.Error(err)
				}
				pull, err := w.src.Claim(context.Background(), claimRequest(5000))
				switch {
				case errors.Is(err, weir.ErrQueueEmpty):
					continue
				case err != nil:
					t.Error(err)
					return
				}
				mu.Lock()
				pulled, folded = pulled+len(pull.Changes), folded+n
				mu.Unlock()
				if rand.IntN(2) == 0 {
					err = w.src.Release(context.Background(), pull.PullGUID)
				} else {
					_, err = w.src.Settle(context.Background(), pull.PullGUID)
				}
				var u *weir.UnavailableError
				if err != nil && !errors.As(err, &u) {
					t.Error(err)
				}
			}
		})
	}
	var waits []time.Duration
	for i := range 4 {
		c := w.session(w.url)
		w.on(c, "set lock_timeout = '500ms'")
		wg.Go(func() {
			for ctx.Err() == nil {
				from := rand.IntN(19_000)
				sql := fmt.Sprintf("update public.t set v = v + 1 where k between %d and %d and k %% 4 = %d", from, from+40, i)
				switch rand.IntN(50) {
				case 0: // large, by the inbox
					sql = fmt.Sprintf("update public.t set v = v + 1 where k %% 4 = %d", i)
				case 1:
					sql = fmt.Sprintf("delete from public.t where k = %d and k %% 4 = %d", from, i)
				}
				start := time.Now()
				if err := try(c, sql); err != nil {
					t.Errorf("%s: %v", sql, err)
					return
				}
				mu.Lock()
				waits = append(waits, time.Since(start))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(waits)
	t.Logf("%d statements beside %d changes pulled and %d tags folded: median %v, longest %v", len(waits), pulled, folded, waits[len(waits)/2], waits[len(waits)-1])
	if pulled == 0 || folded == 0 {
		t.Error("the pullers did nothing: the test is no measure")
	}
}

// TestFailuresOfOtherTypes: settling one type of an instance forgets the
// failure of that alone.
func TestFailuresOfOtherTypes(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	guid := weir.NewGUID()
	w.exec("select weir.gi_instance_changed('" + guid.String() + "', null, 'Instance Inserted', null), weir.gi_instance_changed('" + guid.String() + "', null, 'Event', null)")
	pull := w.claim(10)
	var put []weir.Postponement
	for _, c := range pull.Changes {
		put = append(put, weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType, Error: "fault of " + c.ChangeType})
	}
	if err := w.src.Postpone(ctx, pull.PullGUID, put); err != nil {
		t.Fatal(err)
	}
	if r, err := w.src.Settle(ctx, pull.PullGUID); err != nil || !r.Done {
		t.Fatal(r, err)
	}
	req := claimRequest(10)
	req.ChangeTypes = []string{weir.InstanceInserted}
	pull, err := w.src.Claim(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.src.Settle(ctx, pull.PullGUID); err != nil {
		t.Fatal(err)
	}
	if got := ask[string](w, "select last_error from weir.failures"); !slices.Equal(got, []string{"fault of Event"}) {
		t.Errorf("failures left: %q, want that of Event", got)
	}
}
