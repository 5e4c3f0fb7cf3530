package scheduler

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/puller"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary is a job that notes when it runs, and the log of it all.
type diary struct {
	t     *testing.T
	mu    sync.Mutex
	begin time.Time
	runs  []time.Duration // since begin
	folds []time.Duration
	log   bytes.Buffer
}

func (d *diary) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(b)
}

func (d *diary) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Split(strings.TrimSpace(d.log.String()), "\n")
}

func (d *diary) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(d, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func every(t *testing.T, text string) *Schedule {
	t.Helper()
	s, err := Parse(text, "UTC")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// during runs one job for a while of the bubble's time; run is told the number of
// the call, from 0.
func during(t *testing.T, schedule string, d time.Duration, run func(n int) (puller.Result, error)) *diary {
	t.Helper()
	out := &diary{t: t}
	synctest.Test(t, func(*testing.T) {
		ctx, stop := context.WithTimeout(context.Background(), d)
		defer stop()
		out.begin = time.Now()
		note := func(to *[]time.Duration) int {
			out.mu.Lock()
			defer out.mu.Unlock()
			*to = append(*to, time.Since(out.begin))
			return len(*to) - 1
		}
		Run(ctx, []Job{{
			Name: "copy", Schedule: every(t, schedule),
			Run:  func(context.Context) (puller.Result, error) { return run(note(&out.runs)) },
			Fold: func(context.Context) (puller.Result, error) { note(&out.folds); return puller.Result{Folded: 1}, nil },
		}}, out.logger())
	})
	return out
}

func TestRun(t *testing.T) {
	d := during(t, "@every 10s", 45*time.Second, func(n int) (puller.Result, error) {
		if n%2 == 1 {
			return puller.Result{}, nil
		}
		time.Sleep(time.Second)
		return puller.Result{Pulls: 1, Upserted: 5, Deleted: 2, Postponed: 1}, nil
	})
	// @every counts from the end of a run.
	if len(d.runs) != 4 || d.runs[0] != 10*time.Second || d.runs[1] != 21*time.Second || d.runs[2] != 31*time.Second {
		t.Errorf("runs at %v", d.runs)
	}
	want := []string{
		`level=INFO msg="run done" pull=copy rows=5 deletes=2 pulls=1 duration=1s postponed=1`,
		`level=DEBUG msg="run found nothing" pull=copy rows=0 deletes=0 pulls=0 duration=0s`,
	}
	for i, line := range d.lines() {
		if line != want[i%2] {
			t.Errorf("log: %s\nwant: %s", line, want[i%2])
		}
	}
}

// A run that is still going when its time comes is not doubled.
func TestRun_Overlap(t *testing.T) {
	var mu sync.Mutex
	going := 0
	d := during(t, "* * * * *", 9*time.Minute+30*time.Second, func(int) (puller.Result, error) {
		mu.Lock()
		going++
		if going > 1 {
			t.Error("two runs at a time")
		}
		mu.Unlock()
		time.Sleep(150 * time.Second)
		mu.Lock()
		going--
		mu.Unlock()
		return puller.Result{Pulls: 1}, nil
	})
	if len(d.runs) != 3 || d.runs[1]-d.runs[0] != 3*time.Minute {
		t.Errorf("runs at %v", d.runs)
	}
	if n := strings.Count(d.log.String(), `level=DEBUG msg="run took longer than its schedule; times are passed over"`); n != 3 {
		t.Errorf("%d lines say so:\n%s", n, &d.log)
	}
}

// Jobs do not wait for each other.
func TestRun_ManyJobs(t *testing.T) {
	d := &diary{}
	synctest.Test(t, func(*testing.T) {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		var mu sync.Mutex
		runs := map[string]int{}
		job := func(name string, takes time.Duration) Job {
			return Job{Name: name, Schedule: every(t, "@every 1s"), Run: func(context.Context) (puller.Result, error) {
				mu.Lock()
				runs[name]++
				mu.Unlock()
				time.Sleep(takes)
				return puller.Result{}, nil
			}}
		}
		Run(ctx, []Job{job("quick", 0), job("slow", time.Hour)}, d.logger())
		if runs["quick"] != 59 && runs["quick"] != 60 || runs["slow"] != 1 {
			t.Errorf("runs: %v", runs)
		}
	})
}

// A panic ends its run only.
func TestRun_Panic(t *testing.T) {
	d := during(t, "@every 1m", 10*time.Minute, func(n int) (puller.Result, error) {
		if n < 3 {
			panic("boo")
		}
		return puller.Result{}, nil
	})
	if len(d.runs) < 5 {
		t.Errorf("runs at %v", d.runs)
	}
	if line := d.lines()[0]; !strings.HasPrefix(line, `level=ERROR msg="run failed" pull=copy`) || !strings.Contains(line, `error="panic: boo"`) || !strings.Contains(line, "run_test.go") {
		t.Errorf("log: %s", line)
	}
}

var away = &weir.UnavailableError{Side: weir.AtTarget, Op: "ledger", Err: errors.New("refused")}

// After an outage a run comes when it has waited, whatever the schedule says:
// longer each time, and never on the same moment as elsewhere.
func TestRun_Outage(t *testing.T) {
	d := during(t, "0 6 * * *", 24*time.Hour, func(n int) (puller.Result, error) {
		if n < 10 {
			return puller.Result{}, away
		}
		return puller.Result{Pulls: 1}, nil
	})
	if len(d.runs) != 11 {
		t.Fatalf("runs at %v", d.runs)
	}
	for i := range 10 {
		wait, mean := d.runs[i+1]-d.runs[i], min(time.Second<<i, time.Minute)
		if wait < mean/2 || wait > mean*3/2 {
			t.Errorf("the wait after outage %d is %v", i+1, wait)
		}
	}
	lines := d.lines()
	if !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "run met an outage, and is tried again") || !strings.Contains(lines[0], "retry=") {
		t.Errorf("log: %s", lines[0])
	}
	if len(d.folds) != 0 {
		t.Errorf("folds at %v", d.folds)
	}

	one := during(t, "@every 1m", 2*time.Hour, func(int) (puller.Result, error) { return puller.Result{}, away })
	two := during(t, "@every 1m", 2*time.Hour, func(int) (puller.Result, error) { return puller.Result{}, away })
	same := 0
	for i := range min(len(one.runs), len(two.runs)) {
		if one.runs[i] == two.runs[i] {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of %d runs of two machines come at one moment", same, len(one.runs))
	}
}

// While it waits the inbox is folded, at the times of the schedule.
func TestRun_Folds(t *testing.T) {
	d := during(t, "@every 1s", 10*time.Minute, func(int) (puller.Result, error) { return puller.Result{}, away })
	if len(d.folds) < 400 || len(d.runs) > 30 {
		t.Errorf("%d folds, %d runs", len(d.folds), len(d.runs))
	}
	for i := range len(d.folds) - 1 {
		if d.folds[i+1]-d.folds[i] > 3*time.Second {
			t.Errorf("no fold between %v and %v", d.folds[i], d.folds[i+1])
		}
	}
}

// What a person must put right is tried again at times of the schedule only, and
// not every second.
func TestRun_Wrong(t *testing.T) {
	wrong := &weir.ConfigError{Key: "target", Err: errors.New("no right")}
	d := during(t, "@every 1s", 10*time.Minute, func(int) (puller.Result, error) { return puller.Result{}, wrong })
	if len(d.runs) < 5 || len(d.runs) > 30 {
		t.Errorf("%d runs", len(d.runs))
	}
	if d := during(t, "0 * * * *", 3*time.Hour+time.Minute, func(int) (puller.Result, error) { return puller.Result{}, wrong }); len(d.runs) != 3 {
		t.Errorf("runs at %v", d.runs)
	}
}

// The wait is over with the first run that succeeds.
func TestRun_Recovers(t *testing.T) {
	d := during(t, "@every 10s", 30*time.Minute, func(n int) (puller.Result, error) {
		if n < 8 || n == 20 {
			return puller.Result{}, away
		}
		return puller.Result{}, nil
	})
	if wait := d.runs[10] - d.runs[9]; wait != 10*time.Second {
		t.Errorf("after success it waits %v", wait)
	}
	if wait := d.runs[21] - d.runs[20]; wait > 2*time.Second {
		t.Errorf("after a new outage it waits %v", wait)
	}
}

// Run waits for the batch in hand, and begins no more.
func TestRun_Stop(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		finished, runs := false, 0
		time.AfterFunc(15*time.Second, stop)
		start := time.Now()
		Run(ctx, []Job{
			{Name: "busy", Schedule: every(t, "@every 10s"), Run: func(ctx context.Context) (puller.Result, error) {
				runs++
				<-ctx.Done()
				time.Sleep(20 * time.Second) // the batch in hand
				finished = true
				return puller.Result{Pulls: 1}, nil
			}},
			{Name: "later", Schedule: every(t, "@yearly"), Run: func(context.Context) (puller.Result, error) { panic("not yet") }},
		}, slog.New(slog.DiscardHandler))
		if !finished || runs != 1 || time.Since(start) != 35*time.Second {
			t.Errorf("finished %v, %d runs, after %v", finished, runs, time.Since(start))
		}
	})
	synctest.Test(t, func(*testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		Run(ctx, []Job{{Name: "none", Schedule: every(t, "@every 1s"), Run: func(context.Context) (puller.Result, error) {
			t.Error("it ran")
			return puller.Result{}, nil
		}}}, slog.New(slog.DiscardHandler))
		Run(ctx, nil, slog.New(slog.DiscardHandler))
	})
}
