package puller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-cdc/weir"
)

// scene is a world and one process that pulls.
type scene struct {
	*world
	t    *testing.T
	proc *process
	p    *Puller
}

// act runs a test in a bubble of time; what the world finds broken fails it.
func act(t *testing.T, cfg Config, do func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{world: newWorld(), t: t}
		s.proc, s.p = s.process(cfg)
		do(s)
		s.proc.wg.Wait()
		for _, b := range s.broken {
			t.Error(b)
		}
	})
}

// process starts another process on the world.
func (s *scene) process(cfg Config) (*process, *Puller) {
	s.t.Helper()
	proc := newProcess(s.world)
	s.t.Cleanup(proc.kill)
	cfg.Abort = proc.ctx
	if cfg.Name == "" {
		cfg.Name = "pull"
	}
	p, err := New(proc, proc, cfg, quiet)
	if err != nil {
		s.t.Fatal(err)
	}
	return proc, p
}

// fill writes rows of the keys 1 to n, a moment apart.
func (s *scene) fill(n int) {
	for key := 1; key <= n; key++ {
		s.put(key, row{unique: key}, false)
		time.Sleep(time.Millisecond)
	}
}

func (s *scene) drain() Result {
	s.t.Helper()
	r, err := s.p.Drain(s.t.Context())
	if err != nil {
		s.t.Fatalf("drain: %v", err)
	}
	return r
}

// change returns a row of the queue that has to be there.
func (s *scene) change(at place) *queued {
	s.t.Helper()
	q := s.queue[at]
	if q == nil {
		s.t.Fatalf("%v is not in the queue", at)
	}
	return q
}

// rest asserts that everything has arrived and nothing is left.
func (s *scene) rest() {
	s.t.Helper()
	if left := s.left(); len(left) > 0 {
		s.t.Errorf("not at rest:\n%s", strings.Join(left, "\n"))
	}
}

// free asserts that n changes wait in the queue, in no pull and with no attempt
// counted.
func (s *scene) free(n int) {
	s.t.Helper()
	if len(s.queue) != n || len(s.pulls) != 0 {
		s.t.Errorf("%d changes, %d pulls; want %d and none", len(s.queue), len(s.pulls), n)
	}
	for at, q := range s.queue {
		if !q.pull.IsZero() || q.attempts != 0 || q.dead || q.notBefore.After(time.Now()) {
			s.t.Errorf("%v: %+v", at, *q)
		}
	}
}

func TestDrain(t *testing.T) {
	act(t, Config{Batch: 5}, func(s *scene) {
		s.fill(12)
		s.put(13, row{unique: 13}, true)
		s.del(3, true)
		r := s.drain()
		s.rest()
		r.Duration = 0
		if want := (Result{Pulls: 3, Upserted: 12, Deleted: 1, Folded: 2}); r != want {
			t.Errorf("%+v, want %+v", r, want)
		}
		// One may still be settled while the last is shipped.
		if n := len(s.ledger); n != 1 && n != 2 {
			t.Errorf("the ledger holds %d pulls; all but the last two may be forgotten", n)
		}
		if r := s.drain(); !r.Idle() {
			t.Errorf("a second run did %+v", r)
		}
		for _, c := range s.claims {
			if c.Name != "pull" || c.Queue != weir.DefaultQueue || c.Ledger != s.id || c.Lease != 5*time.Minute || !strings.Contains(c.Puller, ":") {
				t.Errorf("claim %+v", c)
			}
		}
	})
}

// Claims go on where the last one ended, and look at everything before the end.
func TestDrain_From(t *testing.T) {
	act(t, Config{Batch: 2}, func(s *scene) {
		s.fill(6)
		s.drain()
		var zero []bool
		for _, c := range s.claims {
			zero = append(zero, c.From.IsZero())
		}
		if !zero[0] || zero[1] || zero[2] || !zero[len(zero)-1] {
			t.Errorf("claims without a hint: %v", zero)
		}
	})
}

// A row whose time comes during a long run is not left to the next.
func TestDrain_LooksAtAllAfterAWhile(t *testing.T) {
	act(t, Config{Batch: 1}, func(s *scene) {
		s.fill(9)
		s.queue[place{1, weir.InstanceInserted}].notBefore = time.Now().Add(5 * time.Second)
		// A pull of a process that is gone, whose lease runs out on the way.
		s.queue[place{2, weir.InstanceInserted}].pull = weir.GUID{7}
		s.pulls[weir.GUID{7}] = &pullRow{name: "pull", ledger: s.id, state: weir.StateClaimed, until: time.Now().Add(10 * time.Second), keys: map[int]bool{2: true}}
		s.proc.script(map[string][]mishap{"ship": slices.Repeat([]mishap{{slow, 10 * time.Second}}, 7)})
		r := s.drain()
		s.rest()
		if r.Recovered != 1 {
			t.Errorf("%+v", r)
		}
		at := func(key int) int {
			return slices.IndexFunc(s.shipped, func(x weir.Shipment) bool { k, _ := versionOf(x.Batch.Tables[0].Items[0]); return k == key })
		}
		if at(1) > at(9) || at(2) > at(9) {
			t.Errorf("what came due was shipped as number %d and %d, the last row as %d", at(1), at(2), at(9))
		}
	})
}

// What waits for the batch in flight is claimed after it, in the same run.
func TestDrain_AfterTheLastBatch(t *testing.T) {
	act(t, Config{}, func(s *scene) {
		s.fill(1)
		s.tagBoth(1)
		s.proc.script(map[string][]mishap{"ship": {{slow, time.Second}}})
		if r := s.drain(); r.Pulls != 2 {
			t.Errorf("%+v", r)
		}
		s.rest()
	})
}

// What does not fit into a batch is given back before it is shipped, and claims
// adapt.
func TestDrain_MaxBytes(t *testing.T) {
	act(t, Config{Batch: 50, MaxBytes: 3 * rowBytes}, func(s *scene) {
		s.fill(20)
		if r := s.drain(); r.Pulls != 7 || r.Postponed != 0 {
			t.Errorf("%+v", r)
		}
		s.rest()
		for i, c := range s.claims {
			if i > 0 && i < 6 && c.Limit > 4 {
				t.Errorf("claim %d is of %d changes", i, c.Limit)
			}
		}
		for i, x := range s.shipped {
			if k, _ := versionOf(x.Batch.Tables[0].Items[0]); k != 3*i+1 {
				t.Errorf("shipment %d begins with key %d", i, k)
			}
		}
	})
}

// A busy inbox is folded between batches, and does not keep them waiting.
func TestDrain_Inbox(t *testing.T) {
	act(t, Config{Batch: 1}, func(s *scene) {
		s.fill(3)
		for range (slicesBetween + 2) * foldSlice {
			s.inbox = append(s.inbox, tag{4, weir.InstanceInserted, time.Now()})
		}
		s.rows[4], s.versions[4] = row{version: 1, unique: 4}, 1
		s.drain()
		s.rest()
		first := slices.Index(s.proc.calls, "claim")
		folds := 0
		for _, c := range s.proc.calls[:first] {
			if c == "fold" {
				folds++
			}
		}
		if folds != slicesBetween {
			t.Errorf("%d folds before the first claim", folds)
		}
	})
}

func TestDrain_RowAtFault(t *testing.T) {
	act(t, Config{MaxAttempts: 3, Backoff: 8 * time.Second, MaxBackoff: 10 * time.Second}, func(s *scene) {
		s.fill(4)
		s.put(2, row{unique: 2, bad: true}, false)
		s.queue[place{keyLimit, "x"}] = &queued{} // cannot be read
		if r := s.drain(); r.Upserted != 3 || r.Postponed != 2 || r.Dead != 0 {
			t.Errorf("%+v", r)
		}
		at := place{2, weir.InstanceInserted}
		for attempt, longest := range []time.Duration{8 * time.Second, 10 * time.Second} {
			q := s.change(at)
			if wait := time.Until(q.notBefore); q.attempts != attempt+1 || wait < longest/2 || wait > longest {
				t.Errorf("after %d attempts it waits %v", q.attempts, wait)
			}
			if r := s.drain(); !r.Idle() {
				t.Errorf("before its time: %+v", r)
			}
			time.Sleep(10 * time.Second)
			s.drain()
		}
		if q := s.change(at); !q.dead || q.attempts != 3 || !strings.Contains(q.err, "it does not fit") {
			t.Errorf("%+v", *q)
		}
		if q := s.change(place{keyLimit, "x"}); !q.dead {
			t.Errorf("%+v", *q)
		}
		time.Sleep(24 * time.Hour)
		if r := s.drain(); !r.Idle() {
			t.Errorf("a dead letter is tried again: %+v", r)
		}
		s.put(2, row{unique: 2}, false)
		s.drain()
		delete(s.queue, place{keyLimit, "x"})
		s.rest()
	})
}

// Two rows swap a unique value, and are claimed apart: both wait for one moment.
func TestDrain_Swap(t *testing.T) {
	act(t, Config{Batch: 2, MaxAttempts: 1}, func(s *scene) {
		s.fill(2)
		s.drain()
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 300*time.Millisecond)))
		for key := range 2 {
			s.put(key+1, row{unique: 2 - key}, false)
			if r := s.drain(); r.Postponed != 1 || r.Dead != 0 {
				t.Errorf("%+v", r)
			}
			time.Sleep(time.Duration(1-key) * 200 * time.Millisecond)
		}
		for at, q := range s.queue {
			if wait := time.Until(q.notBefore); wait != 500*time.Millisecond {
				t.Errorf("key %d waits for another %v", at.key, wait)
			}
		}
		time.Sleep(500 * time.Millisecond)
		s.drain()
		s.rest()
	})
}

// Batches that are too small for two such rows grow.
func TestDrain_SwapInSmallBatches(t *testing.T) {
	for name, cfg := range map[string]Config{"rows": {Batch: 1}, "bytes": {MaxBytes: rowBytes}} {
		t.Run(name, func(t *testing.T) {
			act(t, cfg, func(s *scene) {
				s.fill(8)
				s.drain()
				s.put(3, row{unique: 4}, false)
				s.put(4, row{unique: 3}, false)
				for range 60 {
					s.drain()
					time.Sleep(time.Second)
				}
				s.rest()
			})
		})
	}
}

func TestPostponement(t *testing.T) {
	p, err := New(nil, nil, Config{Name: "p", MaxAttempts: 40}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.jitter = func(d time.Duration) time.Duration { return d }
	for _, c := range []struct {
		attempts   int
		constraint bool
		delay      time.Duration
		dead       bool
	}{
		{0, false, time.Second, false},
		{1, false, 2 * time.Second, false},
		{11, false, 2048 * time.Second, false},
		{12, false, time.Hour, false},
		{38, false, time.Hour, false},
		{39, false, 0, true},
		{0, true, time.Second, false},
		{5, true, 32 * time.Second, false},
		{6, true, 64 * time.Second, false},
		{1 << 30, true, 64 * time.Second, false},
	} {
		got := p.postponement(weir.Change{Attempts: c.attempts}, &weir.RowError{Constraint: c.constraint})
		if got.Delay != c.delay || got.Dead != c.dead || got.Align != c.constraint || got.Error == "" {
			t.Errorf("after %d attempts, constraint %v: %+v", c.attempts, c.constraint, got)
		}
	}
	for range 1000 {
		if d := jitter(time.Minute); d < 30*time.Second || d >= time.Minute {
			t.Errorf("jitter of a minute: %v", d)
		}
	}
}

// blind is a target whose Isolate finds nothing; the world knows who is at fault.
type blind struct{ *process }

func (b blind) Isolate(ctx context.Context, batch *weir.Batch) ([]weir.Fault, error) {
	_, err := b.process.Isolate(ctx, batch)
	return nil, err
}

// A row that the target blames and does not find stops nobody else, and ends as
// a dead letter.
func TestDrain_NobodyToBlame(t *testing.T) {
	for name, batch := range map[string]int{"one batch": 100, "batches": 7, "alone": 1} {
		t.Run(name, func(t *testing.T) {
			act(t, Config{Batch: batch, MaxAttempts: 2, Backoff: 8 * time.Second}, func(s *scene) {
				s.p.target = blind{s.proc}
				s.fill(40)
				s.put(17, row{unique: 17, bad: true}, false)
				at := place{17, weir.InstanceInserted}
				for attempt := 1; attempt <= 2; attempt++ {
					r := s.drain()
					want := Result{Postponed: 2 - attempt, Dead: attempt - 1}
					if attempt == 1 {
						want.Upserted = 39
					}
					if r.Upserted != want.Upserted || r.Postponed != want.Postponed || r.Dead != want.Dead {
						t.Errorf("attempt %d: %+v, want %+v", attempt, r, want)
					}
					if len(s.queue) != 1 || len(s.pulls) != 0 {
						t.Errorf("attempt %d: %d changes and %d pulls are left, want the one and none", attempt, len(s.queue), len(s.pulls))
					}
					if q := s.change(at); q.attempts != attempt || !strings.Contains(q.err, "it does not fit") {
						t.Errorf("attempt %d: %+v", attempt, *q)
					}
					time.Sleep(10 * time.Second)
				}
				if q := s.change(at); !q.dead {
					t.Errorf("%+v", *q)
				}
				// Each batch that it was in is shipped twice, then half of it, ...
				if n := s.proc.count("ship"); n > 40/batch+30 {
					t.Errorf("shipped %d times", n)
				}
				s.put(17, row{unique: 17}, false)
				s.drain()
				s.rest()
			})
		})
	}
}

// Rows that the target refuses together, and takes apart, are not at fault.
func TestDrain_NobodyToBlameAlone(t *testing.T) {
	act(t, Config{}, func(s *scene) {
		s.p.target = shy{s.proc}
		s.fill(9)
		if r := s.drain(); r.Upserted != 9 || r.Postponed != 0 || r.Dead != 0 {
			t.Errorf("%+v", r)
		}
		s.rest()
	})
}

// shy is a target that takes three rows at a time, and finds none of them at
// fault.
type shy struct{ *process }

func (shy) Isolate(context.Context, *weir.Batch) ([]weir.Fault, error) { return nil, nil }

func (y shy) Ship(ctx context.Context, s weir.Shipment) error {
	if n, _ := s.Batch.Counts(); n > 3 {
		return &weir.RowError{Table: "t", Key: "1", Err: errors.New("too many")}
	}
	return y.process.Ship(ctx, s)
}

// Whatever call meets an outage: nothing is counted against a row, and what
// surely did not commit is free at once.
func TestDrain_Outage(t *testing.T) {
	for op, side := range map[string]weir.Side{
		"ledger": weir.AtTarget, "expired": weir.AtSource, "fold": weir.AtSource, "claim": weir.AtSource, "read": weir.AtSource,
		"ship": weir.AtTarget, "isolate": weir.AtTarget, "postpone": weir.AtSource,
	} {
		t.Run(op, func(t *testing.T) {
			act(t, Config{}, func(s *scene) {
				s.fill(3)
				s.put(4, row{unique: 4, bad: true}, false)
				s.proc.script(map[string][]mishap{op: slices.Repeat([]mishap{{Kind: refuse}}, 100)})
				r, err := s.p.Drain(s.t.Context())
				if outageOf(err) != side || r.Outage != side {
					t.Errorf("outage of the %q, result %q: %v", outageOf(err), r.Outage, err)
				}
				s.free(4)
				s.proc.script(nil)
				s.drain()
				s.put(4, row{unique: 4}, false)
				s.drain()
				s.rest()
			})
		})
	}
}

// A moment's outage does not leave a pull to its lease.
func TestDrain_Insists(t *testing.T) {
	for op, kinds := range map[string][]fault{"settle": {refuse, lost, answerLost}, "postpone": {refuse, refuse}, "revoke": {refuse, answerLost, refuse}, "release": {lost, refuse}} {
		t.Run(op, func(t *testing.T) {
			act(t, Config{}, func(s *scene) {
				s.fill(2)
				s.put(3, row{unique: 3, bad: true}, false)
				script := map[string][]mishap{}
				for _, k := range kinds {
					script[op] = append(script[op], mishap{Kind: k})
				}
				switch op {
				case "revoke":
					script["ship"] = []mishap{{}, {Kind: lost}}
				case "release":
					script["ship"] = []mishap{{Kind: refuse}}
				}
				s.proc.script(script)
				start := time.Now()
				_, _ = s.p.Drain(s.t.Context())
				if n := s.proc.count(op); n <= len(kinds) || time.Since(start) > patience {
					t.Errorf("%d calls of %s in %v", n, op, time.Since(start))
				}
				if len(s.pulls) != 0 {
					t.Errorf("pulls are left: %v", s.pulls)
				}
			})
		})
	}
}

func TestDrain_ShipUnknown(t *testing.T) {
	for _, kind := range []fault{answerLost, lost} {
		t.Run(string(kind), func(t *testing.T) {
			act(t, Config{}, func(s *scene) {
				s.fill(3)
				s.proc.script(map[string][]mishap{"ship": {{Kind: kind}}})
				r, err := s.p.Drain(s.t.Context())
				if kind == answerLost {
					if err != nil || r.Upserted != 3 {
						t.Errorf("%+v, %v", r, err)
					}
				} else {
					if outageOf(err) != weir.AtTarget || r.Upserted != 0 {
						t.Errorf("%+v, %v", r, err)
					}
					s.free(3)
					s.drain()
				}
				if n := s.proc.count("revoke"); n != 1 {
					t.Errorf("the ledger was asked %d times", n)
				}
				s.rest()
			})
		})
	}
}

// Nobody can say what became of the shipment: the pull is left alone until its
// lease has run out.
func TestDrain_ShipUnknownAndTargetAway(t *testing.T) {
	for _, kind := range []fault{answerLost, lost, late} {
		t.Run(string(kind), func(t *testing.T) {
			act(t, Config{Lease: time.Minute}, func(s *scene) {
				s.fill(3)
				s.proc.script(map[string][]mishap{"ship": {{kind, 30 * time.Second}}, "revoke": slices.Repeat([]mishap{{Kind: refuse}}, 50)})
				if _, err := s.p.Drain(s.t.Context()); outageOf(err) != weir.AtTarget || !strings.Contains(err.Error(), "revoke") {
					t.Errorf("%v", err)
				}
				s.proc.script(nil)
				if r := s.drain(); !r.Idle() || len(s.pulls) != 1 {
					t.Errorf("before the lease is over: %+v, pulls %v", r, s.pulls)
				}
				time.Sleep(time.Minute)
				if r := s.drain(); r.Recovered != 1 || (kind == lost) != (r.Upserted == 3) {
					t.Errorf("%+v", r)
				}
				s.rest()
			})
		})
	}
}

func TestDrain_ClaimUnknown(t *testing.T) {
	for _, kind := range []fault{answerLost, lost, late} {
		t.Run(string(kind), func(t *testing.T) {
			act(t, Config{Lease: time.Minute}, func(s *scene) {
				s.fill(3)
				s.proc.script(map[string][]mishap{"claim": {{kind, time.Second}}})
				if _, err := s.p.Drain(s.t.Context()); outageOf(err) != weir.AtSource {
					t.Errorf("%v", err)
				}
				time.Sleep(2 * time.Second)
				if kind == late {
					if r := s.drain(); !r.Idle() || len(s.pulls) != 1 {
						t.Errorf("%+v, pulls %v", r, s.pulls)
					}
					time.Sleep(time.Minute)
				}
				s.drain()
				s.rest()
			})
		})
	}
}

func TestDrain_SettleUnknown(t *testing.T) {
	act(t, Config{Lease: time.Minute}, func(s *scene) {
		s.fill(3)
		s.proc.script(map[string][]mishap{"settle": slices.Repeat([]mishap{{Kind: lost}}, 50)})
		r, err := s.p.Drain(s.t.Context())
		if outageOf(err) != weir.AtSource || r.Upserted != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		s.proc.script(nil)
		time.Sleep(time.Minute)
		if r := s.drain(); r.Recovered != 1 || r.Pulls != 0 {
			t.Errorf("%+v", r)
		}
		s.rest()
	})
}

// broken is a target, or a source, that somebody must put right.
type broken struct {
	*process
	read, ship error
}

func (b broken) Read(ctx context.Context, p *weir.Pull, r weir.ReadRequest) (*weir.ReadResult, error) {
	if b.read != nil {
		return nil, b.read
	}
	return b.process.Read(ctx, p, r)
}

func (b broken) Ship(ctx context.Context, s weir.Shipment) error {
	if b.ship != nil {
		return b.ship
	}
	return b.process.Ship(ctx, s)
}

func TestDrain_APersonMustAct(t *testing.T) {
	wrong := fmt.Errorf("read: %w", &weir.ConfigError{Key: "target", Err: errors.New("no right")})
	drift := fmt.Errorf("ship: %w", &weir.DriftError{Object: "t", Err: errors.New("dropped")})
	unsorted := errors.New("a fault of the dialect's")
	for name, b := range map[string]broken{"read config": {read: wrong}, "read drift": {read: drift}, "ship config": {ship: wrong}, "ship drift": {ship: drift}, "ship unsorted": {ship: unsorted}} {
		t.Run(name, func(t *testing.T) {
			act(t, Config{}, func(s *scene) {
				s.fill(3)
				b.process = s.proc
				s.p.source, s.p.target = b, b
				want := cmpErr(b.read, b.ship)
				if _, err := s.p.Drain(s.t.Context()); !errors.Is(err, want) {
					t.Errorf("%v", err)
				}
				s.free(3)
				// What an error does not say, the ledger must.
				if asked := s.proc.count("revoke") > 0; asked != (want == unsorted) {
					t.Errorf("the ledger was asked: %v", asked)
				}
			})
		})
	}
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// A stop in the middle of a shipment: it is finished, what was claimed ahead is
// free, and nothing more is claimed.
func TestDrain_Stop(t *testing.T) {
	act(t, Config{Batch: 2}, func(s *scene) {
		s.fill(8)
		ctx, stop := context.WithCancel(s.t.Context())
		defer stop()
		s.proc.script(map[string][]mishap{"ship": {{}, {slow, time.Minute}}})
		time.AfterFunc(10*time.Second, stop)
		r, err := s.p.Drain(ctx)
		if err != nil || r.Pulls != 2 || r.Upserted != 4 {
			t.Errorf("%+v, %v", r, err)
		}
		s.free(4)
		if r, err := s.p.Drain(ctx); err != nil || r.Pulls != 0 {
			t.Errorf("on a context that is over: %+v, %v", r, err)
		}
		s.free(4)
		s.drain()
		s.rest()
	})
}

// An abort is as a crash: at whatever call, nothing is lost.
func TestDrain_Abort(t *testing.T) {
	for _, op := range []string{"ledger", "fold", "claim", "read", "ship", "settle"} {
		for _, kind := range []fault{killBefore, killAfter} {
			t.Run(op+" "+string(kind), func(t *testing.T) {
				act(t, Config{Batch: 2, Lease: time.Minute}, func(s *scene) {
					s.fill(6)
					s.proc.script(map[string][]mishap{op: {{Kind: kind}}})
					start := time.Now()
					if _, err := s.p.Drain(s.t.Context()); err == nil {
						t.Error("an aborted run has no error")
					}
					if time.Since(start) > time.Second {
						t.Errorf("it took %v", time.Since(start))
					}
					time.Sleep(2 * time.Minute)
					s.proc, s.p = s.process(Config{})
					s.drain()
					s.rest()
				})
			})
		}
	}
}

// The lease is extended while a shipment takes long, and nobody takes it over.
func TestDrain_Heartbeat(t *testing.T) {
	act(t, Config{Lease: 3 * time.Second}, func(s *scene) {
		s.fill(3)
		s.proc.script(map[string][]mishap{"ship": {{slow, time.Hour}}})
		go func() {
			time.Sleep(30 * time.Minute)
			_, other := s.process(Config{})
			if r, err := other.Drain(s.t.Context()); err != nil || r.Recovered != 0 {
				t.Errorf("another puller: %+v, %v", r, err)
			}
		}()
		if r := s.drain(); r.Upserted != 3 || s.proc.count("revoke") != 0 {
			t.Errorf("%+v", r)
		}
		s.rest()
		n := s.proc.count("extend")
		time.Sleep(time.Hour)
		if n < 3599 || s.proc.count("extend") != n {
			t.Errorf("%d heartbeats, then %d", n, s.proc.count("extend"))
		}
	})
}

// A process that was frozen comes to when its pull is another's.
func TestDrain_Frozen(t *testing.T) {
	for op, want := range map[string]error{"read": weir.ErrLeaseLost, "ship": weir.ErrRevoked} {
		t.Run(op, func(t *testing.T) {
			act(t, Config{Lease: 30 * time.Second}, func(s *scene) {
				s.fill(3)
				s.proc.script(map[string][]mishap{op: {{freezeBefore, time.Hour}}})
				go func() {
					time.Sleep(time.Minute)
					s.put(2, row{unique: 2}, false)
					_, other := s.process(Config{})
					if r, err := other.Drain(s.t.Context()); err != nil || r.Recovered != 1 || r.Upserted != 3 {
						t.Errorf("another puller: %+v, %v", r, err)
					}
				}()
				if _, err := s.p.Drain(s.t.Context()); !errors.Is(err, want) && !errors.Is(err, weir.ErrRevoked) {
					t.Errorf("%v", err)
				}
				s.rest()
			})
		})
	}
}

// A pull that is known to be lost is not begun.
func TestDrain_LeaseLost(t *testing.T) {
	act(t, Config{Lease: 30 * time.Second}, func(s *scene) {
		s.fill(3)
		s.proc.script(map[string][]mishap{"read": {{slow, time.Minute}}})
		go func() {
			time.Sleep(time.Second)
			_, other := s.process(Config{})
			s.mu.Lock()
			guids := slices.Collect(maps.Keys(s.pulls))
			s.mu.Unlock()
			for _, guid := range guids {
				if committed, err := other.Finish(s.t.Context(), guid); committed || err != nil {
					t.Errorf("finish: %v, %v", committed, err)
				}
			}
		}()
		if _, err := s.p.Drain(s.t.Context()); !errors.Is(err, weir.ErrLeaseLost) {
			t.Errorf("%v", err)
		}
		if n := s.proc.count("ship"); n != 0 {
			t.Errorf("shipped %d times", n)
		}
		s.free(3)
	})
}

// With the target away the inbox is folded all the same.
func TestDrain_TargetAway(t *testing.T) {
	act(t, Config{}, func(s *scene) {
		s.put(1, row{unique: 1}, true)
		s.proc.script(map[string][]mishap{"ledger": {{Kind: refuse}}})
		r, err := s.p.Drain(s.t.Context())
		if outageOf(err) != weir.AtTarget || r.Folded != 1 || r.Outage != weir.AtTarget {
			t.Errorf("%+v, %v", r, err)
		}
		s.put(1, row{unique: 1}, true)
		if r, err := FoldOnly(s.t.Context(), s.proc); err != nil || r.Folded != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		s.free(1)
	})
}

// A run ends beside writers who do not rest, and not before it has shipped what
// was there when it began.
func TestDrain_RestlessWriters(t *testing.T) {
	act(t, Config{Batch: 4}, func(s *scene) {
		s.fill(9)
		s.tagBoth(1) // the second waits for the first, and the next claims look behind it
		s.change(place{1, weir.InstanceDeleted}).on = s.change(place{1, weir.InstanceInserted}).on.Add(1)
		writes, wrote := context.WithCancel(s.t.Context())
		go func() {
			for writes.Err() == nil {
				s.put(20, row{unique: 20}, false)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		s.proc.latency = time.Second
		start := time.Now()
		r := s.drain()
		wrote()
		if took := time.Since(start); took > 25*time.Second {
			t.Errorf("it took %v: %+v", took, r)
		}
		s.mu.Lock()
		for at := range s.queue {
			if at.key != 20 {
				t.Errorf("key %d was there when the run began, and is left", at.key)
			}
		}
		s.mu.Unlock()
		time.Sleep(time.Second)
		s.proc.latency = 0
		s.drain()
		s.rest()
	})
}

// A row that waits for another and is shipped later in the same run was not kept
// back.
func TestDrain_KeptBackForAMoment(t *testing.T) {
	act(t, Config{Batch: 1}, func(s *scene) {
		s.fill(8)
		s.drain()
		s.proc.script(map[string][]mishap{"ship": slices.Repeat([]mishap{{Kind: slow, For: 1500 * time.Millisecond}}, 20)})
		s.put(3, row{unique: 4}, false)
		for key := 4; key <= 8; key++ {
			s.put(key, row{unique: key + 100}, false)
		}
		r := s.drain()
		if n := s.proc.count("postpone"); n == 0 {
			t.Error("nothing was kept back")
		}
		if r.Upserted != 6 || r.Postponed != 0 {
			t.Errorf("%+v", r)
		}
		s.rest()
	})
}
