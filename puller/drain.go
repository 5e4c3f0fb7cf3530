package puller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-cdc/weir"
)

// foldSlice is how many tags one fold moves, in one short transaction.
const foldSlice = 5000

// hintFor is how long claims skip what they have passed, before one looks at the
// whole queue again.
const hintFor = 30 * time.Second

// work is a claimed batch on its way.
type work struct {
	pull  *weir.Pull
	batch *weir.Batch
	beat  *heartbeat
}

type fetched struct {
	work *work
	err  error
}

// Drain recovers what earlier pulls left, and then pulls until the queue has
// nothing more to claim. The next batch is claimed and read while the last is
// shipped. When ctx ends it finishes the batch in hand and returns what it did,
// with no error.
//
// Errors: [*weir.UnavailableError] and [*weir.OutcomeUnknownError] for an outage
// (nothing is lost; try later), [*weir.ConfigError] and [*weir.DriftError] when a
// person must act, [*DeleteLimitError].
func (p *Puller) Drain(ctx context.Context) (Result, error) {
	var r Result
	start := time.Now()
	err := p.drain(ctx, &r)
	r.Duration = time.Since(start)
	return r, err
}

func (p *Puller) drain(ctx context.Context, r *Result) error {
	ledger, err := p.target.Ledger(p.cfg.Abort)
	if err != nil {
		// The inbox must not grow while the target is away.
		return errors.Join(err, p.fold(ctx, r))
	}
	if err := p.recover(ctx, ledger, r); err != nil {
		return err
	}
	deletes, err := p.deleteLimit()
	if err != nil {
		return err
	}
	f := &fetcher{p: p, ledger: ledger}
	defer func() { r.add(f.result) }()
	next := f.start(ctx)
	for {
		got := <-next
		if errors.Is(got.err, weir.ErrQueueEmpty) {
			return nil
		}
		if got.err != nil {
			return got.err
		}
		stop := ctx.Err() != nil
		if !stop {
			next = f.start(ctx)
		}
		err := p.finish(got.work, deletes, r)
		if err != nil && !stop {
			if ahead := <-next; ahead.work != nil {
				p.release(ahead.work)
			}
		}
		if err != nil || stop {
			return err
		}
	}
}

// fetcher claims and reads, one batch at a time.
type fetcher struct {
	p      *Puller
	ledger weir.GUID
	result Result // of folding, and of changes that cannot be read
	from   time.Time
	looked time.Time // when a claim last looked at the whole queue
}

func (f *fetcher) start(ctx context.Context) <-chan fetched {
	out := make(chan fetched, 1)
	go func() {
		w, err := f.fetch(ctx)
		out <- fetched{w, err}
	}()
	return out
}

func (f *fetcher) fetch(ctx context.Context) (*work, error) {
	for ctx.Err() == nil {
		if err := f.p.fold(ctx, &f.result); err != nil {
			return nil, err
		}
		w, err := f.claim()
		if err != nil {
			return nil, err
		}
		err = f.p.read(w, &f.result)
		if err == nil && len(w.batch.Tables) > 0 {
			return w, nil
		}
		f.p.release(w)
		if err != nil {
			return nil, err
		}
	}
	return nil, weir.ErrQueueEmpty
}

// claim takes the next batch: from where the last one ended, and from the
// beginning when that finds nothing, or has not been done for a while.
func (f *fetcher) claim() (*work, error) {
	p := f.p
	if f.from.IsZero() || time.Since(f.looked) > hintFor {
		f.from, f.looked = time.Time{}, time.Now()
	}
	for {
		req := weir.ClaimRequest{
			PullGUID: weir.NewGUID(), Name: p.cfg.Name, Queue: p.cfg.Queue, Puller: p.cfg.Puller, Ledger: f.ledger,
			Limit: p.cfg.Batch, Lease: p.cfg.Lease,
			Captures: p.cfg.Captures, Concepts: p.cfg.Concepts, ChangeTypes: p.cfg.ChangeTypes, From: f.from,
		}
		p.hook("claim", req.PullGUID)
		pull, err := p.source.Claim(p.cfg.Abort, req)
		switch {
		case errors.Is(err, weir.ErrQueueEmpty) && !f.from.IsZero():
			f.from, f.looked = time.Time{}, time.Now()
			continue
		case err != nil:
			var unknown *weir.OutcomeUnknownError
			if errors.As(err, &unknown) {
				// Never shipped, so it may be released. If the claim commits only after
				// this, its lease ends and it is recovered.
				p.releaseGUID(req.PullGUID)
			}
			return nil, err
		}
		f.from = pull.Changes[len(pull.Changes)-1].ChangedOn
		return &work{pull: pull, beat: p.beat(pull.PullGUID)}, nil
	}
}

// read fills in the batch. What cannot be read, and what is too much for one
// batch, leaves the pull.
func (p *Puller) read(w *work, r *Result) error {
	p.hook("read", w.pull.PullGUID)
	got, err := p.source.Read(p.cfg.Abort, w.pull, weir.ReadRequest{Encoding: p.target.Encoding(), MaxBytes: p.cfg.MaxBytes})
	if err != nil {
		return err
	}
	var out []weir.Postponement
	for _, f := range got.Faults {
		p.log.Warn("change cannot be read", "error", f.Err)
		out = append(out, p.postponement(f.Change, f.Err, r))
	}
	for _, c := range got.Rest {
		out = append(out, weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType})
	}
	if len(out) > 0 {
		if err := p.postpone(w, out); err != nil {
			return err
		}
	}
	w.batch = got.Batch
	return nil
}

// finish ships and settles a batch, without the rows at fault.
func (p *Puller) finish(w *work, deletes *deletes, r *Result) error {
	defer w.beat.stop()
	_, gone := w.batch.Counts()
	if err := deletes.take(gone); err != nil {
		p.release(w)
		return err
	}
	var postponed Result
	if err := p.ship(w, &postponed); err != nil {
		return err
	}
	r.add(postponed)
	if len(w.batch.Tables) == 0 {
		p.release(w)
		return nil
	}
	upserts, gone := w.batch.Counts()
	r.Pulls, r.Upserted, r.Deleted = r.Pulls+1, r.Upserted+upserts, r.Deleted+gone
	return p.settle(w.pull.PullGUID)
}

func (p *Puller) settle(pull weir.GUID) error {
	p.hook("settle", pull)
	s, err := p.source.Settle(p.cfg.Abort, pull)
	if err != nil {
		return err // the ledger holds it as committed: recovery settles it
	}
	if s.Done {
		p.forget.add(pull)
	}
	return nil
}

// release gives a pull back that was never shipped, or surely did not commit.
func (p *Puller) release(w *work) {
	w.beat.stop()
	p.releaseGUID(w.pull.PullGUID)
}

func (p *Puller) releaseGUID(pull weir.GUID) {
	p.hook("release", pull)
	if err := p.source.Release(p.cfg.Abort, pull); err != nil {
		p.log.Warn("pull is not released; it is when its lease ends", "pull_guid", pull, "error", err)
	}
}

// fold moves what is in the inbox now into the queues.
func (p *Puller) fold(ctx context.Context, r *Result) error {
	for ctx.Err() == nil {
		n, err := p.source.Fold(p.cfg.Abort, foldSlice)
		r.Folded += n
		if err != nil || n < foldSlice {
			return err
		}
	}
	return nil
}

// Fold moves what is in the inbox into the queues, for when the target is away.
func (p *Puller) Fold(ctx context.Context) error { return p.fold(ctx, new(Result)) }

func (r *Result) add(o Result) {
	r.Pulls += o.Pulls
	r.Upserted += o.Upserted
	r.Deleted += o.Deleted
	r.Postponed += o.Postponed
	r.Dead += o.Dead
	r.Folded += o.Folded
	r.Recovered += o.Recovered
}

// DeleteLimitError stops a run that would delete more at the target than
// MaxDeletes. Nothing of the batch was shipped; its changes wait in the queue.
type DeleteLimitError struct {
	Pull    string
	Deletes int64 // of this run, with the batch that was not shipped
	Limit   int64
}

func (e *DeleteLimitError) Error() string {
	return fmt.Sprintf("pull %s: it would delete %d rows in this run, max_deletes allows %d. Try: weir pull %s --allow-deletes, if that is right",
		e.Pull, e.Deletes, e.Limit, e.Pull)
}

// deletes counts a run's deletes against the limit.
type deletes struct {
	pull        string
	done, limit int64 // limit < 0: none
}

func (p *Puller) deleteLimit() (*deletes, error) {
	d := &deletes{pull: p.cfg.Name, limit: -1}
	m := p.cfg.MaxDeletes
	if p.cfg.AllowDeletes || m == (Limit{}) {
		return d, nil
	}
	d.limit = m.Rows
	if m.Percent > 0 {
		captures, err := p.source.Captures(p.cfg.Abort)
		if err != nil {
			return nil, err
		}
		rows, err := p.target.Rows(p.cfg.Abort, captures)
		if err != nil {
			return nil, err
		}
		d.limit = int64(float64(rows) * m.Percent / 100)
	}
	return d, nil
}

func (d *deletes) take(n int) error {
	if d.limit >= 0 && n > 0 && d.done+int64(n) > d.limit {
		return &DeleteLimitError{Pull: d.pull, Deletes: d.done + int64(n), Limit: d.limit}
	}
	d.done += int64(n)
	return nil
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
