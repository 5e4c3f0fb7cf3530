package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

// logEvery is how often progress is logged where no person watches a line.
const logEvery = 10 * time.Second

// progress shows how far something has come: on a terminal in one line that is
// written over, else in a log line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	log      *slog.Logger
	began    time.Time
	said     time.Time
	first    int64
	shown    bool
}

func (a *app) newProgress() *progress {
	now := time.Now()
	return &progress{w: a.stderr, terminal: isTerminal(a.stderr), log: a.log, began: now, said: now, first: -1}
}

// at tells that done of about total rows are done; total 0 is not known. The
// rate counts from the first call, which a resumed work begins above 0.
func (p *progress) at(table string, done, total int64) {
	now := time.Now()
	if p.first < 0 {
		p.first, p.began = done, now
	}
	rate := 0.0
	if took := now.Sub(p.began).Seconds(); took > 0 {
		rate = float64(done-p.first) / took
	}
	var left time.Duration
	if rate > 0 && total > done {
		left = time.Duration(float64(total-done) / rate * float64(time.Second))
	}
	if p.terminal {
		line := fmt.Sprintf("%s: %s, %.0f/s", clean(table), count(done, "row"), rate)
		if total > 0 {
			line += fmt.Sprintf(", about %d in all", max(total, done))
		}
		if left > 0 {
			line += ", " + human(left) + " left"
		}
		fmt.Fprintf(p.w, "\r%s\x1b[K", line)
		p.shown = true
		return
	}
	if now.Sub(p.said) < logEvery {
		return
	}
	p.said = now
	p.log.Info("backfill", "table", table, "rows", done, "rows_per_second", int64(rate), "estimate", total, "left", left.Round(time.Second))
}

// end closes the line.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
