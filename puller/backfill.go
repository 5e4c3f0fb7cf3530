package puller

import (
	"context"
	"time"

	"github.com/weir-cdc/weir"
)

// Keyspace tags the rows that a captured table has already.
type Keyspace interface {
	// Backfill tags the next keys of a capture, at most limit, in one
	// transaction with its progress.
	Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error)
	// Fold is [weir.Source.Fold].
	Fold(ctx context.Context, limit int) (int, error)
}

// Backfill tags all rows of a captured table, in the order of its key, limit at a
// time, beside live writes. It goes on where an earlier one was stopped; restart
// begins anew. progress, if not nil, is called after each chunk with the rate of
// this call in rows a second. When ctx ends it stops after the chunk in hand.
func Backfill(ctx context.Context, k Keyspace, captureID int32, limit int, restart bool, progress func(weir.BackfillProgress, float64)) (weir.BackfillProgress, error) {
	start := time.Now()
	var before int64 = -1
	for {
		at, err := k.Backfill(ctx, captureID, limit, restart)
		if err != nil {
			return at, err
		}
		if before < 0 {
			before = max(at.Tagged-int64(limit), 0)
		}
		restart = false
		for n := limit; n >= limit; {
			if n, err = k.Fold(ctx, limit); err != nil {
				return at, err
			}
		}
		if progress != nil {
			progress(at, float64(at.Tagged-before)/max(time.Since(start).Seconds(), 1e-3))
		}
		if at.Done || ctx.Err() != nil {
			return at, ctx.Err()
		}
	}
}
