package puller

import (
	"context"
	"time"

	"github.com/weir-cdc/weir"
)

const (
	// foldSlice is how many tags one fold moves, in one short transaction.
	foldSlice = 5000
	// slicesBetween bounds the folding between two batches, so that a busy inbox
	// does not keep the queue from being shipped.
	slicesBetween = 10
	allSlices     = int(^uint(0) >> 1)
)

// Folder moves tags from the inbox into the queues; a [weir.Source] does.
type Folder interface {
	// Fold is [weir.Source.Fold].
	Fold(ctx context.Context, limit int) (int, error)
}

var _ Folder = weir.Source(nil)

// FoldOnly moves what is in the inbox into the queues, for when the target is
// away and cannot be drained to. When ctx ends it stops after the slice in hand.
func FoldOnly(ctx context.Context, source Folder) (Result, error) {
	var r Result
	start := time.Now()
	_, err := fold(ctx, context.WithoutCancel(ctx), source, allSlices, &r)
	r.Duration, r.Outage = time.Since(start), outageOf(err)
	return r, err
}

// fold moves up to a number of slices, each on the context abort, and reports
// whether there may be more.
func fold(ctx, abort context.Context, source Folder, slices int, r *Result) (more bool, err error) {
	for range slices {
		if ctx.Err() != nil {
			return true, nil
		}
		n, err := source.Fold(abort, foldSlice)
		r.Folded += n
		if err != nil || n < foldSlice {
			return false, err
		}
	}
	return true, nil
}
