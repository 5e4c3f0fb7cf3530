package puller

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-cdc/weir"
)

// heartbeat extends a pull's lease while it is worked on.
type heartbeat struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	gone   atomic.Bool
}

// beat begins to extend the lease, every third of it.
func (p *Puller) beat(pull weir.GUID) *heartbeat {
	ctx, cancel := context.WithCancel(p.cfg.Abort)
	h := &heartbeat{cancel: cancel}
	h.done.Go(func() {
		tick := time.NewTicker(p.cfg.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := p.source.Extend(ctx, pull, p.cfg.Lease)
			if errors.Is(err, weir.ErrLeaseLost) {
				h.gone.Store(true)
				return
			}
			if err != nil && ctx.Err() == nil {
				p.log.Warn("lease is not extended", "pull_guid", pull, "error", err)
			}
		}
	})
	return h
}

// lost reports that the pull is known to be no longer live. It decides nothing:
// the ledger does.
func (h *heartbeat) lost() bool { return h.gone.Load() }

// stop ends the heartbeat. It may be called again.
func (h *heartbeat) stop() {
	h.cancel()
	h.done.Wait()
}
