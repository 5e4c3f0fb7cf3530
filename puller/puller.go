// Package puller drains a queue: claim, read, ship, settle, and what to do when
// one of them fails. It knows no engine.
//
// What the puller knows for sure decides what it does with a pull. Nothing was
// shipped, or it surely rolled back: release. The target committed: settle.
// Anything else: ask the target's ledger by revoking the pull, and go by the
// answer; where no answer is to be had, leave the pull alone, and when its lease
// has run out whoever pulls next asks.
package puller

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/weir-cdc/weir"
)

// Puller drains one queue into one target. Its methods are safe for concurrent
// use, by any number of processes.
type Puller struct {
	source weir.Source
	target weir.Target
	cfg    Config
	log    *slog.Logger
	forget forgotten
	jitter func(time.Duration) time.Duration
}

// New makes a puller. source and target stay the caller's to close.
func New(source weir.Source, target weir.Target, cfg Config, log *slog.Logger) (*Puller, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Puller{source: source, target: target, cfg: cfg, log: log.With("pull", cfg.Name), jitter: jitter}, nil
}

// jitter spreads a time over its upper half.
func jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// Result is what a run did.
type Result struct {
	Pulls     int           `json:"pulls"` // committed
	Upserted  int           `json:"upserted"`
	Deleted   int           `json:"deleted"`
	Postponed int           `json:"postponed"` // changes kept back and not shipped since, to be tried again
	Dead      int           `json:"dead"`      // changes kept back for good
	Folded    int           `json:"folded"`
	Recovered int           `json:"recovered"` // pulls of others
	Duration  time.Duration `json:"duration_ns"`
	// Outage is the side that was away when the run ended, empty for none.
	Outage weir.Side `json:"outage,omitempty"`

	kept *kept // while the run goes on
}

// Idle reports that the run found nothing to do, and met no outage.
func (r Result) Idle() bool { return r == Result{Duration: r.Duration} }

// Attrs describes the result for one line of log. What is seldom is left out
// where it is nothing.
func (r Result) Attrs() []slog.Attr {
	out := []slog.Attr{
		slog.Int("rows", r.Upserted), slog.Int("deletes", r.Deleted), slog.Int("pulls", r.Pulls),
		slog.Duration("duration", r.Duration.Round(time.Millisecond)),
	}
	for _, n := range []struct {
		key string
		n   int
	}{{"folded", r.Folded}, {"postponed", r.Postponed}, {"dead", r.Dead}, {"recovered", r.Recovered}} {
		if n.n > 0 {
			out = append(out, slog.Int(n.key, n.n))
		}
	}
	return out
}

func (r *Result) add(o Result) {
	r.Pulls += o.Pulls
	r.Upserted += o.Upserted
	r.Deleted += o.Deleted
	r.Folded += o.Folded
	r.Recovered += o.Recovered
}
