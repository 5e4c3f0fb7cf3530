package puller

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-cdc/weir"
)

// Finish finishes a pull by the word of the target's ledger: what is committed
// there is settled; what is not is revoked, so that it can never commit, and
// released. It is for a pull whose puller is gone; one that is at work after all
// loses nothing. It may be called again.
func (p *Puller) Finish(ctx context.Context, pull weir.GUID) (committed bool, err error) {
	committed, err = p.target.Revoke(ctx, pull)
	if err != nil {
		return false, fmt.Errorf("revoke pull %s: %w", pull, err)
	}
	if committed {
		return true, p.settle(ctx, pull)
	}
	return false, p.source.Release(ctx, pull)
}

// Recover finishes the pulls of this name whose leases ran out, and those whose
// rows were locked when they were settled or released. [Puller.Drain] does so
// too.
func (p *Puller) Recover(ctx context.Context) (Result, error) {
	var r Result
	ledger, err := p.target.Ledger(p.cfg.Abort)
	if err != nil {
		return r, err
	}
	unfinished, err := p.recover(ctx, ledger, &r)
	return r, errors.Join(err, unfinished)
}

// recover finishes what it can. Pulls of which the target cannot speak at the
// moment, perhaps because they are being shipped, are in unfinished, and keep
// nobody else from pulling.
func (p *Puller) recover(ctx context.Context, ledger weir.GUID, r *Result) (unfinished, err error) {
	pulls, err := p.source.Expired(p.cfg.Abort, p.cfg.Name, ledger)
	if err != nil {
		return nil, err
	}
	var waits []error
	for _, e := range pulls {
		if ctx.Err() != nil {
			break
		}
		err := p.recoverOne(e)
		switch {
		case err == nil:
			r.Recovered++
		case outageOf(err) == weir.AtTarget:
			p.log.Warn("pull cannot be recovered yet", "pull_guid", e.PullGUID, "puller", e.Puller, "error", err)
			waits = append(waits, err)
		default:
			return nil, err
		}
	}
	return errors.Join(waits...), nil
}

func (p *Puller) recoverOne(e weir.Expired) (err error) {
	committed := false
	switch e.State {
	case weir.StateSettled:
		committed, err = true, p.settle(p.cfg.Abort, e.PullGUID)
	case weir.StateReleased:
		err = p.source.Release(p.cfg.Abort, e.PullGUID)
	case weir.StateClaimed:
		committed, err = p.Finish(p.cfg.Abort, e.PullGUID)
	default:
		err = fmt.Errorf("state %q is not known", e.State)
	}
	if err != nil {
		return fmt.Errorf("recover pull %s: %w", e.PullGUID, err)
	}
	p.log.Info("pull recovered", "pull_guid", e.PullGUID, "puller", e.Puller, "rows", e.Rows, "committed", committed)
	return nil
}
