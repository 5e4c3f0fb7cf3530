package dialects_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/puller"
)

// TestDeepQueue_IdleTransaction: with an old snapshot open, vacuum can remove
// nothing of what claims and settles leave behind; claims that go on where the
// last one ended keep their rate.
func TestDeepQueue_IdleTransaction(t *testing.T) {
	from, to := newDatabase(t, "postgres", "public"), newDatabase(t, "postgres", "copy")
	from.exec(t, "create table item (id integer primary key, v integer)")
	l := newLine(t, from, to, puller.Config{}, weir.CaptureSpec{Table: weir.ParseTable("public.item")})
	idle, err := from.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	for _, s := range []string{"begin isolation level repeatable read", "select count(*) from item"} {
		if _, err := idle.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	const changes, batch = 100_000, 2000
	from.exec(t, "do $$ begin for i in 0 .. 99 loop insert into item select g, 0 from generate_series(i * 1000 + 1, i * 1000 + 1000) g; commit; end loop; end $$")

	var took []time.Duration
	var hint time.Time
	claimed := 0
	for {
		req := weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "line", Queue: weir.DefaultQueue, Puller: "test", Ledger: weir.NewGUID(), Limit: batch, Lease: time.Minute, From: hint}
		start := time.Now()
		pull, err := l.source.Claim(t.Context(), req)
		if errors.Is(err, weir.ErrQueueEmpty) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
		claimed += len(pull.Changes)
		hint = pull.Changes[len(pull.Changes)-1].ChangedOn
		if _, err := l.source.Settle(t.Context(), pull.PullGUID); err != nil {
			t.Fatal(err)
		}
	}
	if claimed != changes {
		t.Errorf("claimed %d changes, want %d", claimed, changes)
	}
	first, last := median(took[:10]), median(took[len(took)-10:])
	t.Logf("claims of %d: %v at first, %v at the end", batch, first, last)
	if last > 4*first {
		t.Errorf("claims slowed down from %v to %v under an idle transaction", first, last)
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// TestDumpAndRestore: a dump of a source restores whole; the copy's triggers
// capture into the copy's own queue; nothing is pulled from it until its captures
// are applied there, so that it is never pulled into the original's target by
// accident.
func TestDumpAndRestore(t *testing.T) {
	original, target := newDatabase(t, "postgres", "public"), newDatabase(t, "postgres", "copy")
	original.exec(t, "create table item (id integer primary key, v text)", "insert into item values (1, 'before')")
	spec := weir.CaptureSpec{Table: weir.ParseTable("public.item")}
	newLine(t, original, target, puller.Config{}, spec)
	original.exec(t, "insert into item values (2, 'waits')")

	copied := &database{engine: "postgres", schema: "public", url: testdb.Postgres(t)}
	file := filepath.Join(t.TempDir(), "dump")
	for _, args := range [][]string{
		{testdb.Bin(t, "pg_dump"), "-Fc", "-f", file, original.url},
		{testdb.Bin(t, "pg_restore"), "--exit-on-error", "-d", copied.url, file},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	testdb.Exec(t, copied.url, "update item set v = 'after' where id = 1")

	source := openLine(t, copied, target)
	s, err := source.source.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Queues[0].Depth; got != 2 {
		t.Errorf("the restored queue holds %d changes, want the one that waited and the new one", got)
	}
	var drift *weir.DriftError
	if _, err := source.puller.Drain(t.Context()); !errors.As(err, &drift) {
		t.Errorf("drain of a restored copy: %v, want *weir.DriftError", err)
	}
	if got := target.rowsOr(t, "item"); got != 0 {
		t.Errorf("%d rows came from the restored copy before its captures were applied there", got)
	}
	source.capture(t, spec)
	r := source.drain(t)
	if r.Upserted != 2 {
		t.Errorf("the copy shipped %d rows once its captures are applied, want 2", r.Upserted)
	}
}

// rowsOr counts a table's rows; a table that does not exist has none.
func (d *database) rowsOr(t *testing.T, table string) (n int) {
	t.Helper()
	var there bool
	if err := d.db.QueryRow("select to_regclass($1) is not null", d.name(table)).Scan(&there); err != nil {
		t.Fatal(err)
	}
	if there {
		if err := d.db.QueryRow("select count(*) from " + d.name(table)).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
