package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/weir-cdc/weir"
)

// How often progress is shown where a person watches it, and where none does.
const (
	showEvery = 100 * time.Millisecond
	logEvery  = 10 * time.Second
)

// progress shows how far a backfill has come: on a terminal in one line that is
// written over, else in a log line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	log      *slog.Logger
	said     time.Time
	shown    bool
}

func (a *app) newProgress() *progress {
	return &progress{w: a.stderr, terminal: isTerminal(a.stderr), log: a.log, said: time.Now()}
}

// at shows a state; rate is in rows a second.
func (p *progress) at(table string, at weir.BackfillProgress, rate float64) {
	now, every := time.Now(), logEvery
	if p.terminal {
		every = showEvery
	}
	if now.Sub(p.said) < every {
		return
	}
	p.said = now
	var left time.Duration
	if rate > 0 && at.Estimate > at.Tagged {
		left = time.Duration(float64(at.Estimate-at.Tagged) / rate * float64(time.Second))
	}
	if p.terminal {
		line := fmt.Sprintf("%s: %s, %.0f/s", clean(table), count(at.Tagged, "row"), rate)
		if at.Estimate > 0 {
			line += fmt.Sprintf(", about %d in all", max(at.Estimate, at.Tagged))
		}
		if left > 0 {
			line += ", " + human(left) + " left"
		}
		fmt.Fprintf(p.w, "\r%s\x1b[K", line)
		p.shown = true
		return
	}
	p.log.Info("backfill", "table", table, "rows", at.Tagged, "rows_per_second", int64(rate), "estimate", at.Estimate, "left", left.Round(time.Second))
}

// end takes the line away.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
