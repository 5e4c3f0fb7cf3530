package puller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-cdc/weir"
)

// hintFor is how long claims skip what they have passed, before one looks at the
// whole queue again, and at the pulls that others left.
const hintFor = 30 * time.Second

// Drain recovers what earlier pulls left, and then pulls until the queue has
// nothing more to claim, or, beside writers who do not rest, nothing that was
// there when it began. While a batch is shipped, the next is claimed and read,
// and the last is settled. When ctx ends it finishes the batch in hand, gives back what it has
// claimed beyond that, and returns what it did, with no error; Config.Abort cuts
// shorter.
//
// Errors: [*weir.UnavailableError] and [*weir.OutcomeUnknownError] for an outage
// (nothing is lost; try later), [weir.ErrLeaseLost] and [weir.ErrRevoked] when
// another puller took a batch over (try later), [*weir.ConfigError] and
// [*weir.DriftError] when a person must act, [*DeleteLimitError]. Rows at fault
// are no error: they are kept back and counted.
func (p *Puller) Drain(ctx context.Context) (Result, error) {
	r := Result{kept: &kept{dead: map[keptKey]bool{}}}
	start := time.Now()
	err := p.drain(ctx, &r)
	r.Duration, r.Outage = time.Since(start), outageOf(err)
	r.Postponed, r.Dead = r.kept.counts()
	r.kept = nil
	return r, err
}

// outageOf returns the side whose outage an error tells of.
func outageOf(err error) weir.Side {
	var unavailable *weir.UnavailableError
	var unknown *weir.OutcomeUnknownError
	switch {
	case errors.As(err, &unavailable):
		return unavailable.Side
	case errors.As(err, &unknown):
		return unknown.Side
	}
	return ""
}

func (p *Puller) drain(ctx context.Context, r *Result) error {
	ledger, err := p.target.Ledger(p.cfg.Abort)
	if err != nil {
		// The inbox must not grow while the target is away.
		_, foldErr := fold(ctx, p.cfg.Abort, p.source, allSlices, r)
		return errors.Join(err, foldErr)
	}
	unfinished, err := p.recover(ctx, ledger, r)
	if err != nil {
		return err
	}
	return errors.Join(p.pump(ctx, ledger, r), unfinished)
}

// pump pulls batch by batch, one ahead.
func (p *Puller) pump(ctx context.Context, ledger weir.GUID, r *Result) (err error) {
	deletes := &deletes{p: p}
	f := &fetcher{p: p, ledger: ledger, limit: p.cfg.Batch, looked: time.Now(), result: Result{kept: r.kept}}
	last := &settling{p: p}
	defer func() {
		r.add(f.result)
		err = errors.Join(err, last.wait())
	}()
	next, ahead := f.start(ctx), false
	for {
		got := <-next
		switch {
		case errors.Is(got.err, weir.ErrQueueEmpty) && ahead && ctx.Err() == nil:
			// It looked while a batch was in flight, and others may have waited
			// for that one.
			if err := last.wait(); err != nil {
				return err
			}
			next, ahead = f.start(ctx), false
			continue
		case errors.Is(got.err, weir.ErrQueueEmpty):
			return nil
		case got.err != nil:
			return got.err
		}
		stop := ctx.Err() != nil
		if stop && ahead {
			p.release(got.work)
			return nil
		}
		stop = stop || got.work.last
		if !stop {
			next, ahead = f.start(ctx), true
		}
		shipped, err := p.finish(got.work, deletes, r)
		if shipped {
			err = last.start(got.work)
		}
		if stop {
			return err
		}
		if err != nil {
			if got := <-next; got.work != nil {
				p.release(got.work)
			}
			return err
		}
	}
}

// finish ships a batch without the rows at fault. It reports whether there is
// something to settle; if not, the pull is finished.
func (p *Puller) finish(w *work, deletes *deletes, r *Result) (shipped bool, err error) {
	defer func() {
		if !shipped {
			w.beat.stop()
		}
	}()
	_, gone := w.batch.Counts()
	if err := deletes.allow(gone); err != nil {
		p.release(w)
		return false, err
	}
	if err := p.ship(w, r); err != nil {
		return false, err
	}
	if len(w.batch.Tables) == 0 {
		p.release(w)
		return false, nil
	}
	upserts, gone := w.batch.Counts()
	deletes.done += int64(gone)
	r.Pulls, r.Upserted, r.Deleted = r.Pulls+1, r.Upserted+upserts, r.Deleted+gone
	r.kept.shipped(w.batch)
	return true, nil
}

// settling settles one batch at a time, beside the shipment of the next.
type settling struct {
	p    *Puller
	last chan error // nil when none is under way
}

// start settles a batch that the target committed, once the one before it is
// done, whose error it returns.
func (s *settling) start(w *work) error {
	err := s.wait()
	last := make(chan error, 1)
	s.last = last
	go func() {
		err := s.p.insist(func() error { return s.p.settle(s.p.cfg.Abort, w.pull.PullGUID) })
		w.beat.stop()
		last <- err
	}()
	return err
}

// wait returns the error of the batch that is being settled.
func (s *settling) wait() error {
	if s.last == nil {
		return nil
	}
	err := <-s.last
	s.last = nil
	return err
}

// settle ends a pull that the target committed. Should it fail, the ledger holds
// the pull as committed, and recovery settles it.
func (p *Puller) settle(ctx context.Context, pull weir.GUID) error {
	s, err := p.source.Settle(ctx, pull)
	if err != nil {
		return fmt.Errorf("settle pull %s: %w", pull, err)
	}
	if s.Done {
		p.forget.add(pull)
	}
	return nil
}

// release gives back a pull that was never shipped, or surely did not commit.
func (p *Puller) release(w *work) {
	w.beat.stop()
	p.releaseGUID(w.pull.PullGUID)
}

func (p *Puller) releaseGUID(pull weir.GUID) {
	err := p.insist(func() error { return p.source.Release(p.cfg.Abort, pull) })
	if err != nil {
		p.log.Warn("pull is not released; it is when its lease ends", "pull_guid", pull, "error", err)
	}
}

// patience bounds how long a step that must be done is tried again.
const patience = 10 * time.Second

// insist calls do again, for a while, when it meets an outage: a user's lock on a
// row, or a failover, is over in a moment, a lease is not. do must be fit to be
// called again after an unknown outcome.
func (p *Puller) insist(do func() error) error {
	ctx, cancel := context.WithTimeout(p.cfg.Abort, patience)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		err := do()
		if outageOf(err) == "" {
			return err
		}
		timer := time.NewTimer(p.jitter(wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// forgotten are pulls that the target's ledger may forget with the next
// shipment.
type forgotten struct {
	mu    sync.Mutex
	pulls []weir.GUID
}

func (f *forgotten) add(pulls ...weir.GUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pulls = append(f.pulls, pulls...)
}

func (f *forgotten) take() []weir.GUID {
	f.mu.Lock()
	defer f.mu.Unlock()
	pulls := f.pulls
	f.pulls = nil
	return pulls
}
