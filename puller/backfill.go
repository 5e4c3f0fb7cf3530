package puller

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-cdc/weir"
)

// Keyspace tags the rows that a captured table has already.
type Keyspace interface {
	// Backfill tags the next keys of a capture, at most limit, in one
	// transaction with its progress.
	Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error)
	Folder
}

// Backfill tags all rows of a captured table, in the order of its key, limit at a
// time, beside live writes. It goes on where an earlier one was stopped; restart
// begins anew. progress, if not nil, is called after each chunk with the rate of
// this call in rows a second. When ctx ends it returns ctx's error after the
// chunk in hand.
func Backfill(ctx context.Context, k Keyspace, captureID int32, limit int, restart bool, progress func(weir.BackfillProgress, float64)) (at weir.BackfillProgress, err error) {
	if limit < 1 {
		return at, fmt.Errorf("backfill: a chunk of %d rows is none", limit)
	}
	whole := context.WithoutCancel(ctx)
	start := time.Now()
	var before int64 = -1
	for {
		if ctx.Err() != nil {
			return at, ctx.Err()
		}
		if at, err = k.Backfill(whole, captureID, limit, restart); err != nil {
			return at, err
		}
		if before < 0 {
			before = max(at.Tagged-int64(limit), 0)
		}
		restart = false
		if _, err := fold(ctx, whole, k, slicesBetween, new(Result)); err != nil {
			return at, err
		}
		if progress != nil {
			progress(at, float64(at.Tagged-before)/max(time.Since(start).Seconds(), 1e-3))
		}
		if at.Done {
			return at, nil
		}
	}
}
