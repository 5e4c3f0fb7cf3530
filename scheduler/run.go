package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/puller"
)

// Job is a pull and when it runs.
type Job struct {
	Name     string
	Schedule *Schedule
	// Run drains the queue. It is told to stop by ctx, and then finishes the
	// batch in hand.
	Run func(ctx context.Context) (puller.Result, error)
}

// After an outage the next run waits for a while beyond its schedule, longer
// each time, so that many machines do not come back in one moment.
const (
	firstWait   = time.Second
	longestWait = time.Minute
)

// Run runs each job on its schedule until ctx ends, then waits for the batches
// in hand. A job's run that is still going when its time comes again is not
// doubled: the time is passed over. Each run is one line of log: at debug level
// if there was nothing to do. A run's error or panic ends that run only.
func Run(ctx context.Context, jobs []Job, log *slog.Logger) {
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() { loop(ctx, j, log.With("pull", j.Name)) })
	}
	wg.Wait()
}

func loop(ctx context.Context, j Job, log *slog.Logger) {
	outages := 0
	for {
		now := time.Now()
		next := j.Schedule.Next(now)
		if next.IsZero() {
			log.Error("schedule has no next time", "schedule", j.Schedule.String())
			return
		}
		wait := next.Sub(now)
		if outages > 0 {
			wait += rand.N(min(firstWait<<min(outages, 10), longestWait))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		outage := once(ctx, j, log)
		switch {
		case ctx.Err() != nil:
			return
		case outage:
			outages++
		default:
			outages = 0
		}
	}
}

// once runs the job and reports it in one line, and whether it met an outage.
func once(ctx context.Context, j Job, log *slog.Logger) (outage bool) {
	start := time.Now()
	r, err := run(ctx, j)
	args := []any{"rows", r.Upserted, "deletes", r.Deleted, "pulls", r.Pulls, "duration", time.Since(start).Round(time.Millisecond)}
	for _, n := range []struct {
		key string
		n   int
	}{{"folded", r.Folded}, {"postponed", r.Postponed}, {"dead", r.Dead}, {"recovered", r.Recovered}} {
		if n.n > 0 {
			args = append(args, n.key, n.n)
		}
	}
	var unavailable *weir.UnavailableError
	var unknown *weir.OutcomeUnknownError
	switch {
	case errors.As(err, &unavailable), errors.As(err, &unknown):
		log.Warn("run met an outage, and is tried again", append(args, "error", err)...)
		return true
	case err != nil:
		log.Error("run failed", append(args, "error", err)...)
		return true
	case r == puller.Result{Duration: r.Duration}:
		log.Debug("run found nothing", args...)
	default:
		log.Info("run done", args...)
	}
	return false
}

func run(ctx context.Context, j Job) (r puller.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return j.Run(ctx)
}
