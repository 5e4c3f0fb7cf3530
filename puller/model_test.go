package puller

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weir-cdc/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plan is a generated workload. Faults befall the calls of each operation in a
// slot, whose process is replaced when it dies.
type plan struct {
	Batch, MaxBytes int
	Lease           time.Duration
	Slots           []map[string][]mishap
	Writes          []write
	Blind           bool // the target blames rows, and finds none
}

type mishap struct {
	Kind fault
	For  time.Duration
}

type write struct {
	Wait   time.Duration
	Do     string
	A, B   int
	Held   time.Duration // the transaction is open as long, and locks its keys
	Undone bool          // it rolls back
	Defer  bool          // it tags by the inbox
}

const modelKeys = 5

var (
	durations = []time.Duration{0, 700 * time.Millisecond, 4 * time.Second, 13 * time.Second, 50 * time.Second}
	mishaps   = rapid.Custom(func(t *rapid.T) mishap {
		if rapid.SampledFrom([]bool{true, true, false}).Draw(t, "none") {
			return mishap{}
		}
		return mishap{rapid.SampledFrom(faults).Draw(t, "kind"), rapid.SampledFrom(append(durations, 10*time.Minute)).Draw(t, "for")}
	})
	operations = rapid.SampledFrom([]string{
		"ledger", "expired", "fold", "claim", "read", "postpone", "extend", "ship", "ship", "isolate", "revoke", "settle", "settle", "release",
	})
	writes = rapid.Custom(func(t *rapid.T) write {
		return write{
			Wait: rapid.SampledFrom(durations).Draw(t, "wait"),
			Do:   rapid.SampledFrom([]string{"put", "put", "put", "put all", "put all", "delete", "move", "swap", "swap", "bad", "tag both", "unknown"}).Draw(t, "do"),
			A:    rapid.IntRange(1, modelKeys).Draw(t, "a"), B: rapid.IntRange(1, modelKeys).Draw(t, "b"),
			Held:   rapid.SampledFrom([]time.Duration{0, 0, 0, 300 * time.Millisecond, 20 * time.Second}).Draw(t, "held"),
			Undone: rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, "undone"),
			Defer:  rapid.SampledFrom([]bool{false, false, true}).Draw(t, "deferred"),
		}
	})
	plans = rapid.Custom(func(t *rapid.T) plan {
		return plan{
			Batch:    rapid.IntRange(1, modelKeys+2).Draw(t, "batch"),
			MaxBytes: rapid.SampledFrom([]int{2 * rowBytes, 3 * rowBytes, 100 * rowBytes}).Draw(t, "bytes"),
			Lease:    rapid.SampledFrom([]time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}).Draw(t, "lease"),
			Slots:    rapid.SliceOfN(rapid.MapOfN(operations, rapid.SliceOfN(mishaps, 0, 15), 0, 8), 1, 3).Draw(t, "slots"),
			Writes:   rapid.SliceOfN(writes, 1, 40).Draw(t, "writes"),
			Blind:    rapid.SampledFrom([]bool{false, false, true}).Draw(t, "blind"),
		}
	})
)

// TestInvariants runs generated workloads against the model: several pullers that
// fail, freeze and die at every call, writers that tag anew, move keys, swap
// unique values, hold locks and roll back. I1, I3, I4, I5 and I8 are asserted at
// each step, I6 and I7 when the writers have stopped.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := plans.Draw(rt, "plan")
		var problems []string
		synctest.Test(t, func(*testing.T) { problems = p.run() })
		if len(problems) > 0 {
			rt.Fatal(strings.Join(problems, "\n"))
		}
	})
}

func (p plan) config(name string, abort context.Context) Config {
	return Config{
		Name: name, Batch: p.Batch, MaxBytes: int64(p.MaxBytes), Lease: p.Lease, Abort: abort,
		MaxAttempts: 3, Backoff: time.Second, MaxBackoff: 4 * time.Second,
	}
}

func (p plan) target(proc *process) weir.Target {
	if p.Blind {
		return blind{proc}
	}
	return proc
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func (p plan) run() []string {
	w := newWorld()
	soft, stop := context.WithCancel(context.Background())
	var slots, late sync.WaitGroup
	for _, mishaps := range p.Slots {
		slots.Go(func() { p.slot(soft, w, mishaps, &late) })
	}
	p.write(w)
	time.Sleep(30 * time.Minute) // longer than all that freezes
	stop()
	slots.Wait()
	late.Wait()

	// Nobody writes and nothing fails: what is not refused arrives.
	problems := p.quiesce(w, w.unequal)
	// What was refused is written anew, and arrives too.
	for key := 1; key <= modelKeys; key++ {
		if w.rows[key].bad {
			w.put(key, row{unique: w.rows[key].unique}, false)
		}
	}
	w.mu.Lock()
	for at := range w.queue {
		if at.key >= keyLimit {
			delete(w.queue, at)
		}
	}
	w.mu.Unlock()
	return slices.Concat(problems, p.quiesce(w, w.left), w.broken)
}

// slot pulls every second or so, by a new process when the last was killed.
func (p plan) slot(ctx context.Context, w *world, mishaps map[string][]mishap, late *sync.WaitGroup) {
	mishaps = maps.Clone(mishaps) // they are used up, and the plan may run again
	for ctx.Err() == nil {
		proc := newProcess(w)
		proc.wg = late
		proc.script(mishaps)
		proc.latency = 200 * time.Millisecond
		puller, err := New(proc, p.target(proc), p.config("pull", proc.ctx), quiet)
		if err != nil {
			panic(err)
		}
		for proc.ctx.Err() == nil && ctx.Err() == nil {
			_, _ = puller.Drain(ctx)
			time.Sleep(500*time.Millisecond + rand.N(time.Second))
		}
		proc.kill()
	}
}

// quiesce pulls until nothing is left, and returns what is after half an hour.
func (p plan) quiesce(w *world, left func() []string) []string {
	proc := newProcess(w)
	defer proc.kill()
	puller, err := New(proc, p.target(proc), p.config("pull", proc.ctx), quiet)
	if err != nil {
		panic(err)
	}
	var problems []string
	for range 1800 {
		if _, err := puller.Drain(context.Background()); err != nil {
			return []string{fmt.Sprintf("a run without faults: %v", err)}
		}
		if problems = left(); len(problems) == 0 {
			return nil
		}
		time.Sleep(time.Second)
	}
	return append([]string{"I6: it does not come to rest"}, problems...)
}

// unequal lists the keys that differ, and are not refused by the target nor held
// up by one that is. A row that is refused is to be a dead letter.
func (w *world) unequal() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stuck := map[int]bool{} // unique values that a row at the target cannot give up
	for key, r := range w.rows {
		if r.bad {
			stuck[w.target[key].unique] = true
		}
	}
	for range modelKeys { // what waits for such a value does not give up its own
		for key, r := range w.rows {
			if have, there := w.target[key]; stuck[r.unique] && there {
				stuck[have.unique] = true
			}
		}
	}
	for key := 1; key <= modelKeys; key++ {
		r, want := w.rows[key]
		have, there := w.target[key]
		switch {
		case r.bad:
			for at, q := range w.queue {
				if at.key == key && !q.dead {
					out = append(out, fmt.Sprintf("I7: key %d is refused and no dead letter: %+v", key, *q))
				}
			}
		case stuck[r.unique] && want:
		case want != there || want && (r.version != have.version || r.unique != have.unique):
			out = append(out, fmt.Sprintf("key %d: source %v %+v, target %v %+v", key, want, r, there, have))
		}
	}
	for at, q := range w.queue {
		if at.key >= keyLimit && (!q.dead || q.attempts != 3) {
			out = append(out, fmt.Sprintf("I7: a key that no capture knows is no dead letter: %+v", *q))
		}
	}
	for guid, pull := range w.pulls {
		out = append(out, fmt.Sprintf("pull %s: %+v", guid, *pull))
	}
	return out
}

// write runs the writers' transactions, one after the other begun, and returns
// when all have ended.
func (p plan) write(w *world) {
	var open sync.WaitGroup
	for _, x := range p.Writes {
		time.Sleep(x.Wait)
		keys := []int{x.A}
		if x.Do == "move" || x.Do == "swap" {
			keys = append(keys, x.B)
		}
		w.mu.Lock()
		busy := slices.ContainsFunc(keys, func(k int) bool { return w.locked[k] })
		if !busy {
			for _, k := range keys {
				w.locked[k] = true
			}
		}
		w.mu.Unlock()
		if busy {
			continue
		}
		commit := func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, k := range keys {
				delete(w.locked, k)
			}
			if !x.Undone {
				x.commit(w)
				w.check(x.Do)
			}
		}
		if x.Held == 0 {
			commit()
			continue
		}
		open.Go(func() { time.Sleep(x.Held); commit() })
	}
	open.Wait()
}

// commit does the transaction. w.mu is held.
func (x write) commit(w *world) {
	a, there := w.rows[x.A]
	b, other := w.rows[x.B]
	if !there { // a value that nobody uses
		a.unique = 1
		for slices.ContainsFunc(slices.Collect(mapValues(w.rows)), func(r row) bool { return r.unique == a.unique }) {
			a.unique++
		}
	}
	switch x.Do {
	case "put", "bad":
		w.writeLocked(x.A, &row{unique: a.unique, bad: x.Do == "bad"}, x.Defer)
	case "put all":
		for key := 1; key <= modelKeys; key++ {
			if r, there := w.rows[key]; there && !w.locked[key] {
				w.writeLocked(key, &row{unique: r.unique}, x.Defer)
			}
		}
	case "delete":
		if there {
			w.writeLocked(x.A, nil, x.Defer)
		}
	case "move":
		if there && !other && x.A != x.B {
			w.writeLocked(x.A, nil, x.Defer)
			w.writeLocked(x.B, &row{unique: a.unique, bad: a.bad}, x.Defer)
		}
	case "swap":
		if there && other && x.A != x.B && !a.bad && !b.bad {
			w.writeLocked(x.A, &row{unique: b.unique}, x.Defer)
			w.writeLocked(x.B, &row{unique: a.unique}, x.Defer)
		}
	case "tag both":
		for _, kind := range []string{weir.InstanceInserted, weir.InstanceDeleted} {
			if at := (place{x.A, kind}); w.queue[at] == nil {
				w.queue[at] = &queued{on: time.Now()}
			}
		}
	case "unknown":
		at, waits := place{keyLimit, "Instance Event Changed"}, weir.GUID{}
		if old := w.queue[at]; old != nil {
			waits = cmp.Or(old.pull, old.waits)
		}
		w.queue[at] = &queued{on: time.Now(), waits: waits}
	}
}

func mapValues(m map[int]row) func(func(row) bool) {
	return func(yield func(row) bool) {
		for _, r := range m {
			if !yield(r) {
				return
			}
		}
	}
}
