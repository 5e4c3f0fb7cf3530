package puller

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-cdc/weir"
)

// Rows that other rows hold up are tried again on a grid of powers of two, up to
// the longest: rows that wait for each other then come due at one moment.
const (
	constraintFirst   = time.Second
	constraintLongest = 64 * time.Second
)

// faultsLogged is how many rows at fault of one batch are logged one by one.
const faultsLogged = 10

// ship ships the work's batch, less the rows at fault, which it postpones. On
// return without an error the batch is at the target, or empty; with one, the
// pull is finished here, or left to recovery.
func (p *Puller) ship(w *work, r *Result) error {
	pull := w.pull.PullGUID
	for unclear := 0; len(w.batch.Tables) > 0; {
		if w.beat.lost() {
			p.release(w) // nothing of it can have committed
			return fmt.Errorf("ship pull %s: %w", pull, weir.ErrLeaseLost)
		}
		forget := p.forget.take()
		err := p.target.Ship(p.cfg.Abort, weir.Shipment{PullGUID: pull, Batch: w.batch, Forget: forget})
		if err == nil {
			return nil
		}
		p.forget.add(forget...) // to forget twice does no harm
		var row *weir.RowError
		switch {
		case errors.As(err, &row):
			n, isolateErr := p.isolate(w, r)
			switch {
			case isolateErr != nil:
				p.release(w)
				return isolateErr
			case n > 0:
				unclear = 0
			case unclear > 0:
				if err := p.halve(w, row, r); err != nil {
					p.release(w)
					return err
				}
			default:
				unclear++ // what was in the way may be gone by now
			}
		case rolledBack(err):
			p.release(w)
			return err
		default:
			return p.decide(w, err)
		}
	}
	return nil
}

// rolledBack reports an error of Ship that says so for sure, or that the pull can
// never commit.
func rolledBack(err error) bool {
	var (
		unavailable *weir.UnavailableError
		wrong       *weir.ConfigError
		drift       *weir.DriftError
		unknown     *weir.OutcomeUnknownError
	)
	if errors.As(err, &unknown) {
		return false
	}
	return errors.Is(err, weir.ErrRevoked) || errors.As(err, &unavailable) || errors.As(err, &wrong) || errors.As(err, &drift)
}

// decide asks the ledger what became of a shipment, barring it if it did not
// commit. It returns nil if it did, else the shipment's error.
func (p *Puller) decide(w *work, cause error) error {
	var committed bool
	err := p.insist(func() (err error) {
		committed, err = p.target.Revoke(p.cfg.Abort, w.pull.PullGUID)
		return err
	})
	switch {
	case err != nil:
		// Recovery asks again, when the lease has run out.
		return errors.Join(cause, fmt.Errorf("revoke pull %s: %w", w.pull.PullGUID, err))
	case committed:
		return nil
	}
	p.release(w)
	return cause
}

// isolate takes the rows at fault out of the pull and the batch, and returns how
// many there were.
func (p *Puller) isolate(w *work, r *Result) (int, error) {
	faults, err := p.target.Isolate(p.cfg.Abort, w.batch)
	if err != nil {
		return 0, err
	}
	return len(faults), p.keepBack(w, faults, r)
}

// keepBack takes rows at fault out of the pull and the batch.
func (p *Puller) keepBack(w *work, faults []weir.Fault, r *Result) error {
	out := make([]weir.Postponement, len(faults))
	logged, more, waiting := 0, 0, 0
	for i, f := range faults {
		c := w.batch.Tables[f.Table].Items[f.Item].Change
		out[i] = p.postponement(c, f.Err)
		switch {
		case f.Err.Constraint && c.Attempts < stubbornAfter:
			// A child that came before its parent is no news.
			if waiting == 0 {
				p.log.Info("rows wait for other rows; this is the first", "error", f.Err)
			}
			waiting++
		case logged < faultsLogged:
			p.log.Warn("row is not shipped", "error", f.Err, "dead", out[i].Dead)
			logged++
		default:
			more++
		}
	}
	if waiting > 1 {
		p.log.Info("rows wait for other rows", "rows", waiting)
	}
	if more > 0 {
		p.log.Warn("more rows are not shipped", "rows", more)
	}
	if err := p.postpone(w, out, r); err != nil {
		return err
	}
	w.batch = w.batch.Without(faults)
	return nil
}

// halve gives half of the batch back to the queue, for when the target blames a
// row and does not find it: the other half may go in without it. One row that
// is left alone is the row at fault. So every pull ships something or keeps a
// row back, and the queue goes on.
func (p *Puller) halve(w *work, why *weir.RowError, r *Result) error {
	var all []weir.Fault
	for i := range w.batch.Tables {
		for j := range w.batch.Tables[i].Items {
			all = append(all, weir.Fault{Table: i, Item: j, Err: why})
		}
	}
	if len(all) == 1 {
		return p.keepBack(w, all, r)
	}
	p.log.Warn("rows are at fault, but the target does not find which: half of them are tried alone", "error", why, "rows", len(all))
	back := all[len(all)/2:]
	out := make([]weir.Postponement, len(back))
	for i, f := range back {
		c := w.batch.Tables[f.Table].Items[f.Item].Change
		out[i] = weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType}
	}
	if err := p.postpone(w, out, r); err != nil {
		return err
	}
	w.batch = w.batch.Without(back)
	return nil
}

// postponement decides when a row at fault is tried again.
func (p *Puller) postponement(c weir.Change, why *weir.RowError) weir.Postponement {
	out := weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType, Error: why.Error()}
	switch {
	case why.Constraint:
		out.Delay, out.Align = doubled(constraintFirst, c.Attempts, constraintLongest), true
	case c.Attempts+1 >= p.cfg.MaxAttempts:
		out.Dead = true
	default:
		out.Delay = p.jitter(doubled(p.cfg.Backoff, c.Attempts, p.cfg.MaxBackoff))
	}
	return out
}

// doubled returns first, doubled a number of times, longest at most.
func doubled(first time.Duration, times int, longest time.Duration) time.Duration {
	return time.Duration(min(float64(first)*math.Pow(2, float64(min(times, 62))), float64(longest)))
}

// postpone takes changes out of the work's pull. A user's lock on one of them is
// waited out for a while: what stays in the pull would be deleted unshipped when
// it settles.
func (p *Puller) postpone(w *work, out []weir.Postponement, r *Result) error {
	if len(out) == 0 {
		return nil
	}
	err := p.insist(func() error { return p.source.Postpone(p.cfg.Abort, w.pull.PullGUID, out) })
	if err != nil {
		return fmt.Errorf("postpone: %w", err)
	}
	r.kept.add(out)
	return nil
}
