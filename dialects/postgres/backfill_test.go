package postgres_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// TestBackfillBesideApply: an apply that makes the backfill begin anew waits for
// the chunk that is under way, so that the chunk's progress is forgotten, too.
func TestBackfillBesideApply(t *testing.T) {
	for what, change := range map[string]string{
		"another key":        "alter table public.t drop constraint t_pkey, add primary key (k, v)",
		"a disabled trigger": "alter table public.t disable trigger user",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "create table public.t (k integer primary key, v integer not null)", "insert into public.t select g, g from generate_series(1, 9) g")
			w.apply(plain("public", "t"))
			list, err := w.src.Captures(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			proxy := testdb.NewProxy(t, w.url)
			slow := openSource(t, proxy.URL(), "")
			trap := proxy.Trap(regexp.MustCompile("last_key, tagged, done_on"), testdb.HoldMessage)
			type chunk struct {
				weir.BackfillProgress
				err error
			}
			chunks := make(chan chunk, 1)
			go func() {
				p, err := slow.Backfill(context.Background(), list[0].ID, 4, false)
				chunks <- chunk{p, err}
			}()
			<-trap.Sprung() // it knows the capture as it was
			w.exec(change)
			applied := make(chan error, 1)
			plan := w.plan(plain("public", "t"))
			go func(s *postgres.Source) { applied <- triggers.Apply(context.Background(), s, plan, nil) }(w.src)
			for start := time.Now(); len(applied) == 0 && time.Since(start) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
				if one[bool](w, "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')") {
					break
				}
			}
			trap.Release()
			if c := <-chunks; c.err != nil || c.Tagged != 4 {
				t.Errorf("the chunk: %+v, want 4 rows tagged", c)
			}
			if err := <-applied; err != nil {
				t.Errorf("apply: %v", err)
			}
			if n := one[int64](w, "select count(*) from weir.backfills"); n != 0 {
				t.Errorf("after apply there are %d rows of progress, want none", n)
			}
			if p, err := w.src.Backfill(context.Background(), list[0].ID, 100, false); err != nil || p.Tagged != 9 || !p.Done {
				t.Errorf("the backfill after apply: %+v, %v, want 9 rows from the start", p, err)
			}
		})
	}
}
