package puller

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-cdc/weir"
)

// work is a claimed batch on its way.
type work struct {
	pull  *weir.Pull
	batch *weir.Batch
	beat  *heartbeat
	// last says that what waited when the run began is done, and that this is all
	// of what came since: the rest is the next run's.
	last bool
}

type fetched struct {
	work *work
	err  error
}

// fetcher claims and reads, one batch at a time.
type fetcher struct {
	p      *Puller
	ledger weir.GUID
	result Result    // of folding, recovery, and changes that cannot be read
	limit  int       // of the next claim: what is likely to fit into a batch
	from   time.Time // the hint of the next claim
	looked time.Time // when a claim last looked at the whole queue
	began  time.Time // when the run first claimed, by the source's clock
}

func (f *fetcher) start(ctx context.Context) <-chan fetched {
	out := make(chan fetched, 1)
	go func() {
		w, err := f.fetch(ctx)
		out <- fetched{w, err}
	}()
	return out
}

// fetch returns the next batch that has rows to ship, or ErrQueueEmpty, also when
// ctx ends before it has claimed.
func (f *fetcher) fetch(ctx context.Context) (*work, error) {
	p := f.p
	for {
		more, err := fold(ctx, p.cfg.Abort, p.source, slicesBetween, &f.result)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, weir.ErrQueueEmpty
		}
		w, err := f.claim(ctx)
		if errors.Is(err, weir.ErrQueueEmpty) && more {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = f.read(w)
		if err == nil && len(w.batch.Tables) > 0 {
			return w, nil
		}
		p.release(w)
		if err != nil {
			return nil, err
		}
	}
}

// claim takes the next batch: from where the last one ended, and from the
// beginning when that finds nothing, or has not been done for a while.
func (f *fetcher) claim(ctx context.Context) (*work, error) {
	p := f.p
	if time.Since(f.looked) >= hintFor {
		f.from, f.looked = time.Time{}, time.Now()
		// A run can be long, and rows may wait for a pull that has died since.
		if _, err := p.recover(ctx, f.ledger, &f.result); err != nil {
			return nil, err
		}
	}
	for limit := f.limit; ; {
		req := weir.ClaimRequest{
			PullGUID: weir.NewGUID(), Name: p.cfg.Name, Queue: p.cfg.Queue, Puller: p.cfg.Puller, Ledger: f.ledger,
			Limit: limit, Lease: p.cfg.Lease,
			Captures: p.cfg.Captures, Concepts: p.cfg.Concepts, ChangeTypes: p.cfg.ChangeTypes, From: f.from,
		}
		pull, err := p.source.Claim(p.cfg.Abort, req)
		var unknown *weir.OutcomeUnknownError
		switch {
		case errors.Is(err, weir.ErrQueueEmpty) && !f.from.IsZero():
			f.from, f.looked = time.Time{}, time.Now()
			continue
		case errors.As(err, &unknown):
			// Only this process knows the PullGUID, and it has shipped nothing under
			// it: releasing is safe without asking the ledger. It may come too
			// early, when the commit is still on its way to the source, and find no
			// pull; then the pull comes to life with nobody at work on it, its lease
			// runs out, and recovery revokes and releases it.
			p.releaseGUID(req.PullGUID)
			return nil, err
		case err != nil:
			return nil, err
		}
		if f.began.IsZero() {
			f.began = pull.LeaseUntil.Add(-p.cfg.Lease)
		}
		if widest := p.cfg.Batch * widerBatch; len(pull.Changes) == limit && limit < widest && stubborn(pull) {
			p.releaseGUID(pull.PullGUID)
			limit = widest
			continue
		}
		// What is claimed is all that can be, and came since the run began. Only a
		// claim without a hint knows that nothing older is left.
		fresh := len(pull.Changes) < limit && pull.Changes[0].ChangedOn.After(f.began)
		last := fresh && f.from.IsZero()
		if fresh {
			f.from, f.looked = time.Time{}, time.Now()
		} else {
			f.from = pull.Changes[len(pull.Changes)-1].ChangedOn
		}
		return &work{pull: pull, beat: p.beat(pull.PullGUID), last: last}, nil
	}
}

// Rows that wait for each other, such as two that swap a unique value, end right
// in one batch only. Where the end of a batch may have parted some, a batch may
// be larger.
const (
	stubbornAfter = 3 // attempts
	widerBatch    = 8
	widerBytes    = 4
)

// stubborn reports that rows of the pull were at fault again and again.
func stubborn(pull *weir.Pull) bool {
	return slices.ContainsFunc(pull.Changes, func(c weir.Change) bool { return c.Attempts >= stubbornAfter })
}

// read fills in the batch. What cannot be read, and what is too much for one
// batch, leaves the pull.
func (f *fetcher) read(w *work) error {
	p := f.p
	req := weir.ReadRequest{Encoding: p.target.Encoding(), MaxBytes: p.cfg.MaxBytes}
	got, err := p.source.Read(p.cfg.Abort, w.pull, req)
	if err == nil && len(got.Rest) > 0 && stubborn(w.pull) {
		req.MaxBytes *= widerBytes
		got, err = p.source.Read(p.cfg.Abort, w.pull, req)
	}
	if err != nil {
		return err
	}
	var out []weir.Postponement
	for i, fault := range got.Faults {
		out = append(out, p.postponement(fault.Change, fault.Err))
		if i < faultsLogged {
			p.log.Warn("change cannot be read", "error", fault.Err, "dead", out[i].Dead)
		}
	}
	for _, c := range got.Rest {
		out = append(out, weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType})
	}
	if err := p.postpone(w, out, &f.result); err != nil {
		return err
	}
	if len(got.Rest) > 0 {
		// The next claim begins with them, and takes a little more than fits.
		for _, c := range got.Rest {
			if c.ChangedOn.Before(f.from) {
				f.from = c.ChangedOn
			}
		}
		fit := len(w.pull.Changes) - len(got.Rest)
		f.limit = min(fit+fit/4+1, p.cfg.Batch)
	} else {
		f.limit = min(2*f.limit, p.cfg.Batch)
	}
	w.batch = got.Batch
	return nil
}
