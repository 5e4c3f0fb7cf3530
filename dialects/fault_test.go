package dialects_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/puller"
)

// faults decides, call by call, what goes wrong for one puller: nothing, an
// outage before the call, an answer that is lost after it, a pause past the
// lease, or the end of the process.
type faults struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	killed bool
	kill   context.CancelFunc // ends what a killed process had under way
	wakes  time.Time          // the whole process sleeps until then, its heartbeats too
	counts *[5]atomic.Int64
}

type fate int

const (
	fine fate = iota
	outage
	lostAnswer
	paused
	killedBefore
)

var errKilled = errors.New("the process was killed")

func (f *faults) next(ctx context.Context, lease time.Duration) (fate, error) {
	f.mu.Lock()
	d := fine
	switch n := f.rnd.IntN(1000); {
	case n < 40:
		d = outage
	case n < 80:
		d = lostAnswer
	case n < 110:
		d = paused
		f.wakes = time.Now().Add(lease + lease/2)
	case n < 140:
		d = killedBefore
		f.killed = true
		f.kill()
	}
	f.counts[d].Add(1)
	sleep := time.Until(f.wakes)
	f.mu.Unlock()
	if sleep > 0 {
		select {
		case <-time.After(sleep):
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.killed {
		return killedBefore, errKilled
	}
	return d, nil
}

// faulty makes every call of a source and a target subject to fate. It notes
// which instances are in flight, and fails the test when one is twice.
type faulty struct {
	weir.Source
	target weir.Target
	faults *faults
	flight *flight
	lease  time.Duration
}

// flight is the truth about what is in flight, over all pullers.
type flight struct {
	t     *testing.T
	mu    sync.Mutex
	pulls map[weir.GUID]map[weir.GUID]bool // pull -> instances
}

func (f *flight) claim(p *weir.Pull) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mine := map[weir.GUID]bool{}
	for _, c := range p.Changes {
		for other, instances := range f.pulls {
			if instances[c.InstanceGUID] {
				f.t.Errorf("I4: instance %s is in flight in %s and in %s", c.InstanceGUID, other, p.PullGUID)
			}
		}
		mine[c.InstanceGUID] = true
	}
	f.pulls[p.PullGUID] = mine
}

func (f *flight) end(pull weir.GUID, instances ...weir.GUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(instances) == 0 {
		delete(f.pulls, pull)
		return
	}
	for _, i := range instances {
		delete(f.pulls[pull], i)
	}
}

// around runs one call under its fate.
func (f *faulty) around(ctx context.Context, side weir.Side, op string, pull weir.GUID, call func() error) error {
	d, err := f.faults.next(ctx, f.lease)
	if err != nil {
		return err
	}
	if d == outage {
		return &weir.UnavailableError{Side: side, Op: op, Err: errors.New("injected")}
	}
	err = call()
	if d == lostAnswer && err == nil {
		return &weir.OutcomeUnknownError{Side: side, Op: op, Pull: pull, Err: errors.New("injected")}
	}
	return err
}

func (f *faulty) Claim(ctx context.Context, req weir.ClaimRequest) (*weir.Pull, error) {
	var p *weir.Pull
	err := f.around(ctx, weir.AtSource, "claim", req.PullGUID, func() (err error) {
		if p, err = f.Source.Claim(ctx, req); err == nil {
			f.flight.claim(p)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (f *faulty) Read(ctx context.Context, p *weir.Pull, req weir.ReadRequest) (r *weir.ReadResult, err error) {
	err = f.around(ctx, weir.AtSource, "read", p.PullGUID, func() (err error) {
		r, err = f.Source.Read(ctx, p, req)
		return err
	})
	var u *weir.OutcomeUnknownError
	if errors.As(err, &u) {
		err = &weir.UnavailableError{Side: weir.AtSource, Op: "read", Err: u.Err} // a read has no outcome
	}
	return r, err
}

func (f *faulty) Settle(ctx context.Context, pull weir.GUID) (r weir.SettleResult, err error) {
	err = f.around(ctx, weir.AtSource, "settle", pull, func() (err error) {
		f.flight.end(pull)
		r, err = f.Source.Settle(ctx, pull)
		return err
	})
	return r, err
}

func (f *faulty) Release(ctx context.Context, pull weir.GUID) error {
	return f.around(ctx, weir.AtSource, "release", pull, func() error {
		f.flight.end(pull)
		return f.Source.Release(ctx, pull)
	})
}

func (f *faulty) Postpone(ctx context.Context, pull weir.GUID, what []weir.Postponement) error {
	return f.around(ctx, weir.AtSource, "postpone", pull, func() error {
		for _, p := range what {
			f.flight.end(pull, p.InstanceGUID)
		}
		return f.Source.Postpone(ctx, pull, what)
	})
}

func (f *faulty) Extend(ctx context.Context, pull weir.GUID, lease time.Duration) error {
	return f.around(ctx, weir.AtSource, "extend", pull, func() error { return f.Source.Extend(ctx, pull, lease) })
}

// faultyTarget is the other side of faulty.
type faultyTarget struct {
	weir.Target
	*faulty
}

func (f *faultyTarget) Close() error { return nil }

func (f *faultyTarget) Ship(ctx context.Context, s weir.Shipment) error {
	return f.around(ctx, weir.AtTarget, "ship", s.PullGUID, func() error { return f.Target.Ship(ctx, s) })
}

func (f *faultyTarget) Revoke(ctx context.Context, pull weir.GUID) (committed bool, err error) {
	err = f.around(ctx, weir.AtTarget, "revoke", pull, func() (err error) {
		committed, err = f.Target.Revoke(ctx, pull)
		return err
	})
	var u *weir.OutcomeUnknownError
	if errors.As(err, &u) {
		err = &weir.UnavailableError{Side: weir.AtTarget, Op: "revoke", Err: u.Err}
	}
	return committed, err
}

// watch makes the target note every row that goes back to an earlier version,
// by the version's column v, which only grows at the source.
const watch = `
create table public.regressions (id integer, was bigint, became bigint);
create table public.seen (id integer primary key, v bigint not null);
create function public.watch() returns trigger language plpgsql as $$
declare last bigint;
begin
    if tg_op = 'DELETE' then
        return old;
    end if;
    select s.v into last from public.seen s where s.id = new.id;
    if last > new.v then
        insert into public.regressions values (new.id, last, new.v);
    end if;
    insert into public.seen values (new.id, new.v) on conflict (id) do update set v = greatest(public.seen.v, excluded.v);
    return new;
end $$;
create table copy.item (id integer primary key, v bigint, note text);
create trigger watch before insert or update or delete on copy.item for each row execute function public.watch();`

// watchSQLServer is the same for SQL Server: a statement each.
var watchSQLServer = []string{
	"create schema copy",
	"create table dbo.regressions (id int, was bigint, became bigint)",
	"create table dbo.seen (id int not null primary key, v bigint not null)",
	"create table copy.item (id int not null primary key, v bigint, note nvarchar(100))",
	`create trigger copy.watch on copy.item after insert, update as
begin
    set nocount on;
    insert into dbo.regressions (id, was, became) select i.id, s.v, i.v from inserted i join dbo.seen s on s.id = i.id where s.v > i.v;
    update s set v = i.v from dbo.seen s join inserted i on i.id = s.id where i.v > s.v;
    insert into dbo.seen (id, v) select i.id, i.v from inserted i where not exists (select 1 from dbo.seen s where s.id = i.id);
end`,
}

// TestLine_Faults runs several writers and several pullers whose calls fail,
// lose their answers, sleep past their leases, or end with the process, and
// then asserts I1 to I6: nothing lost, nothing left, no row back in time, no
// instance in flight twice, both sides equal.
//
// WEIR_TEST_FAULTS sets how long it runs (8 s), WEIR_TEST_SEED replays a run's
// choices (not the engine's timing).
func TestLine_Faults(t *testing.T) {
	for _, engines := range [][2]string{{"postgres", "postgres"}, {"sqlserver", "postgres"}, {"postgres", "sqlserver"}} {
		t.Run(engines[0]+" to "+engines[1], func(t *testing.T) {
			t.Parallel()
			faultsLine(t, engines[0], engines[1])
		})
	}
}

func faultsLine(t *testing.T, source, target string) {
	duration := 8 * time.Second
	if d, err := time.ParseDuration(os.Getenv("WEIR_TEST_FAULTS")); err == nil {
		duration = d
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("WEIR_TEST_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("WEIR_TEST_SEED=%d", seed)
	schemas := map[string]string{"postgres": "public", "sqlserver": "dbo"}
	from, to := newDatabase(t, source, schemas[source]), newDatabase(t, target, "copy")
	if source == "sqlserver" {
		from.exec(t, "create sequence dbo.version as bigint start with 1",
			"create table dbo.item (id int not null primary key, v bigint not null default (next value for dbo.version), note nvarchar(100))")
	} else {
		from.exec(t, "create sequence version", "create table item (id integer primary key, v bigint not null default nextval('version'), note text)")
	}
	if target == "sqlserver" {
		to.exec(t, watchSQLServer...)
	} else {
		to.exec(t, "create schema copy", watch)
	}
	tables := map[string][]string{"item": {"id", "v", "note"}}
	const lease = time.Second
	l := newLine(t, from, to, puller.Config{}, weir.CaptureSpec{Table: weir.Table{Schema: from.schema, Name: "item"}})

	truth := &flight{t: t, pulls: map[weir.GUID]map[weir.GUID]bool{}}
	var counts [5]atomic.Int64
	var lives atomic.Int64
	// Writers stop now and then, so that a change which was lost is not hidden by
	// the next one to its row.
	rounds := 0
	for end := time.Now().Add(duration); time.Now().Before(end) && !t.Failed(); rounds++ {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() { writeItems(ctx, t, from, rand.New(rand.NewPCG(seed, uint64(rounds*10+w)))) })
		}
		for p := range 4 {
			wg.Go(func() {
				for life := 0; ctx.Err() == nil; life++ {
					lives.Add(1)
					rnd := rand.New(rand.NewPCG(seed, uint64(1_000_000+rounds*100_000+p*1000+life)))
					pullWithFaults(ctx, t, from, to, &faults{rnd: rnd, counts: &counts}, truth, lease)
				}
			})
		}
		wg.Wait()
		cancel()
		drainAll(t, l)
		clear(truth.pulls) // finished by a puller that does not tell
		equalTables(t, from, to, tables)
		if n := l.left(t); n != 0 {
			t.Errorf("I6: %d changes and pulls are left", n)
		}
		var regressions int
		if err := to.db.QueryRow("select count(*) from " + schemas[target] + ".regressions").Scan(&regressions); err != nil {
			t.Fatal(err)
		}
		if regressions > 0 {
			t.Errorf("I3: %d rows went back to an earlier version at the target", regressions)
		}
	}
	t.Logf("%d rounds, %d lives of pullers; fates: %d fine, %d outages, %d lost answers, %d pauses, %d kills",
		rounds, lives.Load(), counts[fine].Load(), counts[outage].Load(), counts[lostAnswer].Load(), counts[paused].Load(), counts[killedBefore].Load())
}

// pullWithFaults is the life of one puller process.
func pullWithFaults(ctx context.Context, t *testing.T, from, to *database, f *faults, truth *flight, lease time.Duration) {
	process, kill := context.WithCancel(ctx)
	defer kill()
	f.kill = kill
	source, err := dialects.OpenSource(ctx, from.url, dialects.SourceOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	defer source.Close()
	target, err := dialects.OpenTarget(ctx, to.url, weir.TargetOptions{Schema: to.schema})
	if err != nil {
		t.Error(err)
		return
	}
	defer target.Close()
	fs := &faulty{Source: source, target: target, faults: f, flight: truth, lease: lease}
	p, err := puller.New(fs, &faultyTarget{Target: target, faulty: fs}, puller.Config{Name: "line", Batch: 20, Lease: lease, Abort: process}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Error(err)
		return
	}
	for process.Err() == nil {
		_, err := p.Drain(process)
		var u *weir.UnavailableError
		var o *weir.OutcomeUnknownError
		switch {
		case err == nil, errors.As(err, &u), errors.As(err, &o), errors.Is(err, errKilled), process.Err() != nil,
			errors.Is(err, weir.ErrRevoked), errors.Is(err, weir.ErrLeaseLost):
		default:
			t.Errorf("drain: %v", err)
		}
	}
}

// itemSQL is how an engine spells what a writer does.
type itemSQL struct {
	levels                  []string
	begin                   string // of a level
	upsert                  string // of an id and a note's number
	version                 string // the next one
	commit, rollback, clean string
	allowed                 func(error) bool // errors that the table alone gives
}

var itemSQLs = map[string]itemSQL{
	"postgres": {
		levels:  []string{"read committed", "read committed", "repeatable read", "serializable"},
		begin:   "begin isolation level %s;",
		upsert:  "insert into item (id, note) values (%[1]d, 'n%[2]d') on conflict (id) do update set v = nextval('version');",
		version: "nextval('version')",
		commit:  "commit", rollback: "rollback", clean: "rollback",
		allowed: func(err error) bool {
			var server *pgconn.PgError
			return errors.As(err, &server) && (server.Code == "40P01" || server.Code == "40001" || server.Code == "23505")
		},
	},
	"sqlserver": {
		levels:  []string{"read committed", "read committed", "snapshot"},
		begin:   "set xact_abort on; set transaction isolation level %s; begin transaction;",
		upsert:  "if exists (select 1 from item where id = %[1]d) update item set v = next value for dbo.version where id = %[1]d; else insert into item (id, note) values (%[1]d, 'n%[2]d');",
		version: "next value for dbo.version",
		commit:  "commit transaction", rollback: "rollback transaction",
		clean: "if @@trancount > 0 rollback transaction; set transaction isolation level read committed",
		allowed: func(err error) bool {
			var server mssql.Error
			return errors.As(err, &server) && (server.Number == 1205 || server.Number == 3960 || server.Number == 2627 || strings.Contains(server.Message, "could not serialize"))
		},
	},
}

// writeItems writes transactions of several statements, some of which roll
// back. Two writers can deadlock in the table; such a transaction is dropped.
func writeItems(ctx context.Context, t *testing.T, d *database, rnd *rand.Rand) {
	e := itemSQLs[d.engine]
	for ctx.Err() == nil {
		var b strings.Builder
		fmt.Fprintf(&b, e.begin, e.levels[rnd.IntN(len(e.levels))])
		for range 1 + rnd.IntN(4) {
			b.WriteString("\n")
			id := rnd.IntN(60)
			switch rnd.IntN(7) {
			case 0, 1:
				fmt.Fprintf(&b, e.upsert, id, rnd.IntN(1000))
			case 2:
				fmt.Fprintf(&b, "delete from item where id = %d;", id)
			case 3:
				fmt.Fprintf(&b, "update item set v = %s, note = 'multi' where id between %d and %d;", e.version, id, id+5)
			case 4:
				fmt.Fprintf(&b, "update item set id = id + 1000, v = %s where id = %d and not exists (select 1 from item where id = %d);", e.version, id, id+1000)
			case 5:
				fmt.Fprintf(&b, "update item set id = id - 1000, v = %s where id = %d and not exists (select 1 from item where id = %d);", e.version, id+1000, id)
			case 6:
				fmt.Fprintf(&b, "update item set v = %s where id = %d;", e.version, id)
			}
		}
		b.WriteString("\n")
		if rnd.IntN(5) == 0 {
			b.WriteString(e.rollback)
		} else {
			b.WriteString(e.commit)
		}
		conn, err := d.db.Conn(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		if _, err := conn.ExecContext(ctx, b.String()); err != nil && ctx.Err() == nil && !e.allowed(err) {
			t.Errorf("write: %v", err)
		}
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), e.clean)
		conn.Close()
	}
}
