package puller

import (
	"context"
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
	faultFirst        = 2 * time.Second
	faultLongest      = time.Hour
)

// ship ships the work's batch, less the rows at fault, which it postpones. On
// return without an error the batch is at the target, or empty.
func (p *Puller) ship(w *work, r *Result) error {
	pull := w.pull.PullGUID
	for round := 0; len(w.batch.Tables) > 0; round++ {
		if w.beat.lost() {
			// Somebody recovers it, and the ledger bars it or will.
			return p.decide(w, fmt.Errorf("ship pull %s: %w", pull, weir.ErrLeaseLost))
		}
		p.hook("ship", pull)
		forget := p.forget.take()
		err := p.target.Ship(p.cfg.Abort, weir.Shipment{PullGUID: pull, Batch: w.batch, Forget: forget})
		if err == nil {
			return nil
		}
		p.forget.add(forget...) // to forget twice does no harm
		var row *weir.RowError
		var unknown *weir.OutcomeUnknownError
		switch {
		case errors.As(err, &row):
			if round == maxRounds {
				p.release(w)
				return fmt.Errorf("ship: rows are still at fault after %d rounds: %w", round, err)
			}
			if err := p.isolate(w, row, r); err != nil {
				p.release(w)
				return err
			}
		case errors.As(err, &unknown):
			return p.decide(w, err)
		case errors.Is(err, weir.ErrRevoked):
			p.release(w)
			return err
		default:
			p.release(w) // it surely rolled back
			return err
		}
	}
	return nil
}

// maxRounds bounds how often the rest of a batch is shipped again.
const maxRounds = 8

// isolate takes the rows at fault out of the pull.
func (p *Puller) isolate(w *work, cause *weir.RowError, r *Result) error {
	faults, err := p.target.Isolate(p.cfg.Abort, w.batch)
	if err != nil {
		return err
	}
	if len(faults) == 0 {
		return fmt.Errorf("ship: a row is at fault, but none can be named: %w", cause)
	}
	out := make([]weir.Postponement, len(faults))
	for i, f := range faults {
		out[i] = p.postponement(w.batch.Tables[f.Table].Items[f.Item].Change, f.Err, r)
		if i < 10 {
			p.log.Warn("row is not shipped", "error", f.Err, "dead", out[i].Dead)
		}
	}
	if len(faults) > 10 {
		p.log.Warn("more rows are not shipped", "rows", len(faults)-10)
	}
	if err := p.postpone(w, out); err != nil {
		return err
	}
	w.batch = w.batch.Without(faults)
	return nil
}

// postponement decides when a row at fault is tried again.
func (p *Puller) postponement(c weir.Change, why *weir.RowError, r *Result) weir.Postponement {
	out := weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType, Error: why.Error()}
	double := math.Pow(2, float64(min(c.Attempts, 30)))
	switch {
	case why.Constraint:
		out.Delay = time.Duration(min(float64(constraintFirst)*double, float64(constraintLongest)))
		out.Align = true
	case c.Attempts+1 >= p.cfg.MaxAttempts:
		out.Dead = true
		r.Dead++
		return out
	default:
		out.Delay = jitter(time.Duration(min(float64(faultFirst)*double, float64(faultLongest))))
	}
	r.Postponed++
	return out
}

func (p *Puller) postpone(w *work, out []weir.Postponement) error {
	p.hook("postpone", w.pull.PullGUID)
	err := p.source.Postpone(p.cfg.Abort, w.pull.PullGUID, out)
	if err != nil {
		return fmt.Errorf("postpone: %w", err)
	}
	return nil
}

// decide asks the ledger what became of a shipment, barring it if it did not
// commit, and settles or releases. The error is the shipment's, unless it
// committed.
func (p *Puller) decide(w *work, cause error) error {
	committed, err := p.Finish(p.cfg.Abort, w.pull.PullGUID)
	if err != nil {
		return errors.Join(cause, err) // recovery decides, when the lease ends
	}
	if committed {
		return nil
	}
	return cause
}

// Finish finishes a pull by the word of the target's ledger: a pull that is not
// committed there is revoked. It is for pulls that nobody works on, or whose
// outcome is unknown.
func (p *Puller) Finish(ctx context.Context, pull weir.GUID) (committed bool, err error) {
	p.hook("revoke", pull)
	committed, err = p.target.Revoke(ctx, pull)
	if err != nil {
		return false, err
	}
	if committed {
		return true, p.settle(pull)
	}
	p.hook("release", pull)
	return false, p.source.Release(ctx, pull)
}

// recover finishes the pulls of this name whose leases ran out, and those that
// had rows left.
func (p *Puller) recover(ctx context.Context, ledger weir.GUID, r *Result) error {
	pulls, err := p.source.Expired(p.cfg.Abort, p.cfg.Name, ledger)
	if err != nil {
		return err
	}
	for _, e := range pulls {
		if ctx.Err() != nil {
			return nil
		}
		switch e.State {
		case weir.StateSettled:
			err = p.settle(e.PullGUID)
		case weir.StateReleased:
			err = p.source.Release(p.cfg.Abort, e.PullGUID)
		case weir.StateClaimed:
			var committed bool
			committed, err = p.Finish(p.cfg.Abort, e.PullGUID)
			p.log.Info("pull recovered", "pull_guid", e.PullGUID, "puller", e.Puller, "rows", e.Rows, "committed", committed)
			r.Recovered++
		}
		if err != nil {
			return fmt.Errorf("recover pull %s: %w", e.PullGUID, err)
		}
	}
	return nil
}
