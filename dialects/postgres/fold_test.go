package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// TestFold_RowHeldByUser: a tag in the inbox whose queue row a user's transaction
// holds stays there, the others are folded, nobody waits, and when the
// transaction rolls back the tag is not lost.
func TestFold_RowHeldByUser(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := testdb.Postgres(t)
	testdb.Exec(t, url, "create table item (id integer primary key, v integer)")
	s, err := postgres.OpenSource(ctx, url, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Init(ctx); err != nil {
		t.Fatal(err)
	}
	plan, _, err := triggers.PlanFor(ctx, s, []weir.CaptureSpec{{Table: weir.ParseTable("public.item")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, s, plan, nil); err != nil {
		t.Fatal(err)
	}
	// Two changes by the inbox, and one of the rows is in the queue too.
	testdb.Exec(t, url, "begin isolation level serializable; insert into item values (1, 1), (2, 2); commit")
	if n, err := s.Fold(ctx, 100); err != nil || n != 2 {
		t.Fatalf("fold moved %d tags (%v), want 2", n, err)
	}
	testdb.Exec(t, url, "begin isolation level serializable; update item set v = 10; commit")

	user, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close(ctx)
	if _, err := user.Exec(ctx, "begin; update item set v = 11 where id = 1"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	folded, err := s.Fold(ctx, 100)
	if err != nil || folded != 1 {
		t.Errorf("fold beside a held row moved %d tags (%v), want 1", folded, err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("fold took %v, it must not wait for a user", d)
	}
	if inbox := status(t, s).Inbox; inbox != 1 {
		t.Errorf("the inbox holds %d tags, want the one whose row is held", inbox)
	}
	// What the first tags of the two rows left in the queue goes; only the inbox
	// knows the second change of row 1 then.
	pull, err := s.Claim(ctx, claim(100))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.Exec(ctx, "rollback"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settle(ctx, pull.PullGUID); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Fold(ctx, 100); err != nil || n != 1 {
		t.Errorf("fold after the rollback moved %d tags (%v), want 1", n, err)
	}
	again, err := s.Claim(ctx, claim(100))
	if err != nil {
		t.Fatalf("the change of row 1 is lost: %v", err)
	}
	keys := ""
	for _, c := range again.Changes {
		keys += c.OldPrimaryKey + " "
	}
	if want := "1 "; keys != want {
		t.Errorf("claimed the keys %q, want %q", keys, want)
	}
	if _, err := s.Settle(ctx, again.PullGUID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(ctx, claim(100)); !errors.Is(err, weir.ErrQueueEmpty) {
		// Row 1's first change was held when the first pull claimed.
		pull, err := s.Claim(ctx, claim(100))
		t.Errorf("something is left: %v, %v", pull, err)
	}
}

func claim(limit int) weir.ClaimRequest {
	return weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "test", Queue: weir.DefaultQueue, Puller: "test", Ledger: weir.NewGUID(), Limit: limit, Lease: time.Minute}
}

func status(t *testing.T, s *postgres.Source) *weir.Status {
	t.Helper()
	st, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}
