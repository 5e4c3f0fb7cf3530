package sqlserver_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/sqlserver"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// TestBackfillBesideApply: an apply that makes the backfill begin anew waits for
// the chunk that is under way, so that the chunk's progress is forgotten, too.
func TestBackfillBesideApply(t *testing.T) {
	for what, change := range map[string][]string{
		"another key":        {"ALTER TABLE dbo.T DROP CONSTRAINT T_Key", "ALTER TABLE dbo.T ADD CONSTRAINT T_Key PRIMARY KEY (K, V)"},
		"a disabled trigger": {"DISABLE TRIGGER ALL ON dbo.T"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := newSite(t, "CREATE TABLE dbo.T (K int NOT NULL, V int NOT NULL, CONSTRAINT T_Key PRIMARY KEY (K))",
				"INSERT INTO dbo.T VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (9, 9)")
			if _, err := s.src.Init(ctx); err != nil {
				t.Fatal(err)
			}
			through := func() (*testdb.Proxy, *sqlserver.Source) {
				proxy := testdb.NewProxy(t, s.url)
				src, err := sqlserver.OpenSource(ctx, proxy.URL(), "")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { src.Close() })
				return proxy, src
			}
			apply := func(src *sqlserver.Source) error {
				plan, _, err := triggers.PlanFor(ctx, src, []weir.CaptureSpec{{Table: weir.Table{Schema: "dbo", Name: "T"}}})
				if err != nil {
					return err
				}
				return triggers.Apply(ctx, src, plan, nil)
			}
			if err := apply(s.src); err != nil {
				t.Fatal(err)
			}
			list, err := s.src.Captures(ctx)
			if err != nil {
				t.Fatal(err)
			}

			slowly, slow := through()
			chunk := slowly.Trap(regexp.MustCompile("LastKey, Tagged, DoneOn"), testdb.HoldMessage)
			done := make(chan error, 1)
			var at weir.BackfillProgress
			go func() {
				var err error
				at, err = slow.Backfill(ctx, list[0].ID, 4, false)
				done <- err
			}()
			<-chunk.Sprung() // it knows the capture as it was
			s.exec(change...)
			beside, second := through()
			forgets := beside.Trap(regexp.MustCompile("UPDATE .*GI_Backfills.* SET LastKey = NULL"), testdb.HoldMessage)
			applied := make(chan error, 1)
			go func() { applied <- apply(second) }()
			<-forgets.Sprung()
			forgets.Release()
			select {
			case err := <-applied:
				t.Fatalf("apply did not wait for the chunk: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			chunk.Release()
			if err := <-done; err != nil || at.Tagged != 4 {
				t.Errorf("the chunk: %+v, %v, want 4 rows tagged", at, err)
			}
			if err := <-applied; err != nil {
				t.Errorf("apply: %v", err)
			}
			s.same("the progress", []string{"0"}, s.list("SELECT CONVERT(varchar(20), Tagged) FROM dbo.GI_Backfills WHERE LastKey IS NULL AND DoneOn IS NULL"))
			if p, err := s.src.Backfill(ctx, list[0].ID, 100, false); err != nil || p.Tagged != 9 || !p.Done || p.Before {
				t.Errorf("the backfill after apply: %+v, %v, want 9 rows from the start", p, err)
			}
		})
	}
}
