package puller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weir-cdc/weir"
)

// fault is what befalls one call of a process.
type fault string

const (
	refuse       fault = "refuse"        // nothing is done
	lost         fault = "lost"          // the commit did not arrive, and nobody says so
	answerLost   fault = "answer lost"   // it did, and nobody says so
	late         fault = "late"          // it arrives later, and nobody says so
	freezeBefore fault = "freeze before" // the whole process stops for a while
	freezeAfter  fault = "freeze after"
	slow         fault = "slow" // this call takes a while, the process lives
	killBefore   fault = "kill before"
	killAfter    fault = "kill after"
)

var faults = []fault{refuse, lost, answerLost, late, freezeBefore, freezeAfter, slow, killBefore, killAfter}

// process is a puller's process as source and target see it: its calls may
// fail, and it may freeze or die at each of them. It implements both interfaces.
type process struct {
	w     *world
	ctx   context.Context // ends when the process is killed
	kill  context.CancelFunc
	wg    *sync.WaitGroup // of effects that come late
	fault func(op string) (fault, time.Duration)
	// latency is the longest that a call takes without a fault.
	latency time.Duration

	mu     sync.Mutex
	frozen time.Time
	calls  []string // the operations, in order
}

func newProcess(w *world) *process {
	ctx, kill := context.WithCancel(context.Background())
	return &process{w: w, ctx: ctx, kill: kill, wg: new(sync.WaitGroup), fault: func(string) (fault, time.Duration) { return "", 0 }}
}

// script gives the calls of each operation their faults, in order.
func (p *process) script(faults map[string][]mishap) {
	var mu sync.Mutex
	p.fault = func(op string) (fault, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if len(faults[op]) == 0 {
			return "", 0
		}
		m := faults[op][0]
		faults[op] = faults[op][1:]
		return m.Kind, m.For
	}
}

// count returns how often an operation was called.
func (p *process) count(op string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c == op {
			n++
		}
	}
	return n
}

var errNetwork = errors.New("connection reset")

func (p *process) thaw() {
	for {
		p.mu.Lock()
		wait := time.Until(p.frozen)
		p.mu.Unlock()
		if wait <= 0 {
			return
		}
		time.Sleep(wait)
	}
}

func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	p.frozen = time.Now().Add(d)
	p.mu.Unlock()
	p.thaw()
}

// call makes one call under its fault. do runs with the world locked; if
// commits, its outcome can be unknown.
func (p *process) call(ctx context.Context, side weir.Side, op string, pull weir.GUID, commits bool, do func() error) error {
	away := &weir.UnavailableError{Side: side, Op: op, Err: errNetwork}
	p.thaw()
	p.mu.Lock()
	p.calls = append(p.calls, op)
	p.mu.Unlock()
	if p.latency > 0 {
		time.Sleep(rand.N(p.latency))
		p.thaw()
	}
	kind, d := p.fault(op)
	if kind == freezeBefore {
		p.freeze(d)
	}
	if kind == slow {
		time.Sleep(d)
		p.thaw()
	}
	if kind == killBefore {
		p.kill()
	}
	if ctx.Err() != nil || p.ctx.Err() != nil || kind == refuse {
		return away
	}
	unknown := error(away)
	if commits {
		unknown = &weir.OutcomeUnknownError{Side: side, Op: op, Pull: pull, Err: errNetwork}
	}
	w := p.w
	w.mu.Lock()
	if kind == lost {
		w.mu.Unlock()
		return unknown
	}
	if kind == late && commits {
		if op == "ship" {
			if done, err := w.enter(pull); done || err != nil {
				w.mu.Unlock()
				return err
			}
			w.underWay[pull] = true
		}
		w.mu.Unlock()
		p.wg.Go(func() {
			time.Sleep(d)
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.underWay, pull)
			_ = do() // nobody hears it
		})
		return unknown
	}
	err := do()
	w.mu.Unlock()
	switch kind {
	case answerLost:
		if err == nil {
			err = unknown
		}
	case freezeAfter:
		p.freeze(d)
	case killAfter:
		p.kill()
	}
	if p.ctx.Err() != nil {
		return away
	}
	return err
}

func (p *process) Captures(ctx context.Context) (out []*weir.Capture, err error) {
	err = p.call(ctx, weir.AtSource, "captures", weir.GUID{}, false, func() error {
		out = []*weir.Capture{testCapture, {ID: 2, Table: weir.Table{Name: "other"}}}
		return nil
	})
	return out, err
}

func (p *process) Fold(ctx context.Context, limit int) (int, error) {
	n := 0
	if err := p.call(ctx, weir.AtSource, "fold", weir.GUID{}, true, func() error { n = p.w.fold(limit); return nil }); err != nil {
		return 0, err
	}
	return n, nil
}

func (p *process) Claim(ctx context.Context, req weir.ClaimRequest) (*weir.Pull, error) {
	var pull *weir.Pull
	err := p.call(ctx, weir.AtSource, "claim", req.PullGUID, true, func() (err error) { pull, err = p.w.claim(req); return err })
	if err != nil {
		return nil, err
	}
	return pull, nil
}

func (p *process) Read(ctx context.Context, pull *weir.Pull, req weir.ReadRequest) (out *weir.ReadResult, err error) {
	err = p.call(ctx, weir.AtSource, "read", pull.PullGUID, false, func() error { out = p.w.read(pull, req.MaxBytes); return nil })
	return out, err
}

func (p *process) Settle(ctx context.Context, pull weir.GUID) (weir.SettleResult, error) {
	var out weir.SettleResult
	err := p.call(ctx, weir.AtSource, "settle", pull, true, func() error {
		r, err := p.w.settle(pull)
		out = r
		return err
	})
	if err != nil {
		return weir.SettleResult{}, err
	}
	return out, nil
}

func (p *process) Release(ctx context.Context, pull weir.GUID) error {
	return p.call(ctx, weir.AtSource, "release", pull, true, func() error { return p.w.release(pull) })
}

func (p *process) Postpone(ctx context.Context, pull weir.GUID, what []weir.Postponement) error {
	what = slices.Clone(what)
	return p.call(ctx, weir.AtSource, "postpone", pull, true, func() error { return p.w.postpone(pull, what) })
}

func (p *process) Extend(ctx context.Context, pull weir.GUID, lease time.Duration) error {
	return p.call(ctx, weir.AtSource, "extend", pull, true, func() error { return p.w.extend(pull, lease) })
}

func (p *process) Expired(ctx context.Context, name string, ledger weir.GUID) (out []weir.Expired, err error) {
	err = p.call(ctx, weir.AtSource, "expired", weir.GUID{}, false, func() (err error) { out, err = p.w.expired(name, ledger); return err })
	return out, err
}

func (p *process) Ledger(ctx context.Context) (id weir.GUID, err error) {
	err = p.call(ctx, weir.AtTarget, "ledger", weir.GUID{}, false, func() error { id = p.w.id; return nil })
	return id, err
}

func (p *process) Encoding() weir.Encoding { return weir.EncodingText }

func (p *process) Ship(ctx context.Context, s weir.Shipment) error {
	if err := p.call(ctx, weir.AtTarget, "ship", s.PullGUID, true, func() error { return p.w.ship(s) }); err != nil {
		return fmt.Errorf("ship: %w", err)
	}
	return nil
}

func (p *process) Isolate(ctx context.Context, b *weir.Batch) (out []weir.Fault, err error) {
	err = p.call(ctx, weir.AtTarget, "isolate", weir.GUID{}, false, func() error { out = p.w.isolate(b); return nil })
	return out, err
}

// Revoke may be called again, so an answer that is lost is an outage.
func (p *process) Revoke(ctx context.Context, pull weir.GUID) (committed bool, err error) {
	err = p.call(ctx, weir.AtTarget, "revoke", pull, false, func() (err error) { committed, err = p.w.revoke(pull); return err })
	return committed, err
}

func (p *process) Rows(ctx context.Context, captures []*weir.Capture) (n int64, err error) {
	err = p.call(ctx, weir.AtTarget, "rows", weir.GUID{}, false, func() error {
		for _, c := range captures {
			if c.ID == testCapture.ID {
				n += int64(len(p.w.target))
			}
		}
		return nil
	})
	return n, err
}

func (p *process) Close() error { return nil }

var (
	_ weir.Source = (*process)(nil)
	_ weir.Target = (*process)(nil)
)
