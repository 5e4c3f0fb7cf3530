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
	Name     string // unique among the jobs
	Schedule *Schedule
	// Run drains the queue. It is told to stop by ctx, and then finishes the
	// batch in hand.
	Run func(ctx context.Context) (puller.Result, error)
	// Fold, if not nil, takes Run's place at the times that come while the job
	// waits after a failure: the inbox must not grow meanwhile.
	Fold func(ctx context.Context) (puller.Result, error)
}

// After a failure a job waits, longer each time, about half to one and a half
// times these, so that many machines do not come back in one moment.
const (
	firstWait   = time.Second
	longestWait = time.Minute
)

// Run runs each job on its schedule until ctx ends, then waits for the batches
// in hand. A job's run that is still going when its time comes again is not
// doubled: the time is passed over. Each run is one line of log: at debug level
// if there was nothing to do.
//
// A run's error or panic ends that run only. After an outage the job is tried
// again when it has waited, whatever its schedule says; after another error, at
// its first time after that.
func Run(ctx context.Context, jobs []Job, log *slog.Logger) {
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() { (&lane{job: j, log: log.With("pull", j.Name)}).loop(ctx) })
	}
	wg.Wait()
}

// lane runs one job.
type lane struct {
	job      Job
	log      *slog.Logger
	failures int       // in a row
	retry    time.Time // no run before it
	outage   bool      // the last run met one
}

func (l *lane) loop(ctx context.Context) {
	for {
		at := l.job.Schedule.Next(time.Now())
		if at.IsZero() {
			l.log.Error("schedule has no next time", "schedule", l.job.Schedule.String())
			return
		}
		if l.outage && l.retry.Before(at) {
			at = l.retry
		}
		if !sleep(ctx, at) {
			return
		}
		if time.Now().Before(l.retry) {
			l.fold(ctx)
			continue
		}
		start := time.Now()
		l.run(ctx)
		if missed := l.job.Schedule.Next(start); !missed.IsZero() && missed.Before(time.Now()) {
			l.log.Debug("run took longer than its schedule; times are passed over", "schedule", l.job.Schedule.String())
		}
	}
}

// sleep waits until a time of the wall clock, and reports false if ctx ends. It
// looks at the clock every minute: a timer does not see it being set, or the
// machine asleep.
func sleep(ctx context.Context, until time.Time) bool {
	for ctx.Err() == nil {
		wait := time.Until(until.Round(0)) // without the monotonic reading
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(min(wait, time.Minute))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
	return false
}

// run runs the job, reports it in one line, and decides how long it waits.
func (l *lane) run(ctx context.Context) {
	start := time.Now()
	r, err := guard(ctx, l.job.Run)
	r.Duration = time.Since(start)
	l.outage = isOutage(err)
	if err == nil {
		l.failures, l.retry = 0, time.Time{}
		level, text := slog.LevelInfo, "run done"
		if r.Idle() {
			level, text = slog.LevelDebug, "run found nothing"
		}
		l.log.LogAttrs(ctx, level, text, r.Attrs()...)
		return
	}
	wait := min(firstWait<<min(l.failures, 10), longestWait)
	wait = wait/2 + rand.N(wait)
	l.failures++
	l.retry = time.Now().Add(wait)
	level, text := slog.LevelError, "run failed"
	if l.outage {
		level, text = slog.LevelWarn, "run met an outage, and is tried again"
	}
	attrs := append(r.Attrs(), slog.Any("error", err), slog.Duration("retry", wait.Round(time.Millisecond)))
	var p *panicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", p.stack))
	}
	l.log.LogAttrs(ctx, level, text, attrs...)
}

// fold keeps the inbox short while the job waits.
func (l *lane) fold(ctx context.Context) {
	if l.job.Fold == nil {
		return
	}
	start := time.Now()
	r, err := guard(ctx, l.job.Fold)
	r.Duration = time.Since(start)
	if err != nil {
		l.log.Warn("fold failed", "error", err)
		return
	}
	l.log.LogAttrs(ctx, slog.LevelDebug, "folded only: the pull waits after a failure", r.Attrs()...)
}

func isOutage(err error) bool {
	var unavailable *weir.UnavailableError
	var unknown *weir.OutcomeUnknownError
	return errors.As(err, &unavailable) || errors.As(err, &unknown)
}

// panicError is a job's panic, held to its run.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func guard(ctx context.Context, f func(context.Context) (puller.Result, error)) (r puller.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, string(debug.Stack())}
		}
	}()
	return f(ctx)
}
