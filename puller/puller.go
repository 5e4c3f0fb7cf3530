// Package puller drains a queue: claim, read, ship, settle, and what to do when
// one of them fails. It knows no engine.
package puller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weir-cdc/weir"
)

// Config says what a pull takes and how it fails. A zero field is its default.
type Config struct {
	// Name is the pull's name. Required.
	Name string
	// Queue defaults to weir.DefaultQueue.
	Queue string
	// Captures, Concepts and ChangeTypes filter; empty means all.
	Captures    []int32
	Concepts    []weir.GUID
	ChangeTypes []string
	// Batch is the most changes in one pull; default 5000.
	Batch int
	// MaxBytes bounds a batch's size; default 16 MiB.
	MaxBytes int64
	// Lease is how long a pull may hold its rows without a heartbeat; default 5
	// minutes.
	Lease time.Duration
	// MaxAttempts is how often a row at fault is tried before it is a dead
	// letter; default 10.
	MaxAttempts int
	// MaxDeletes bounds the deletes of one run; the zero Limit means no bound.
	MaxDeletes Limit
	// AllowDeletes lifts MaxDeletes for this run.
	AllowDeletes bool
	// Puller names the process; default host:pid.
	Puller string
	// Abort, when it ends, cuts off what is under way; the ledger then decides.
	// The context of a call only keeps new work from beginning. Default: never.
	Abort context.Context
}

// Limit is a number of rows, or a share of the target's rows in percent.
type Limit struct {
	Rows    int64
	Percent float64
}

func (c Config) withDefaults() Config {
	if c.Queue == "" {
		c.Queue = weir.DefaultQueue
	}
	if c.Batch == 0 {
		c.Batch = 5000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 16 << 20
	}
	if c.Lease == 0 {
		c.Lease = 5 * time.Minute
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 10
	}
	if c.Puller == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Puller = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if c.Abort == nil {
		c.Abort = context.Background()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Name == "":
		return errors.New("new puller: a pull needs a name")
	case c.Batch < 0 || c.MaxBytes < 0 || c.MaxAttempts < 0:
		return fmt.Errorf("new puller %s: batch, bytes and attempts are above 0", c.Name)
	case c.Lease < time.Second:
		return fmt.Errorf("new puller %s: a lease is a second at least", c.Name)
	}
	return nil
}

// Puller drains one queue into one target. Its methods are safe for concurrent
// use, by any number of processes.
type Puller struct {
	source weir.Source
	target weir.Target
	cfg    Config
	log    *slog.Logger
	forget forgotten
	hook   func(step string, pull weir.GUID) // for tests: called before each step
}

// New makes a puller. source and target stay the caller's to close.
func New(source weir.Source, target weir.Target, cfg Config, log *slog.Logger) (*Puller, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Puller{source: source, target: target, cfg: cfg, log: log.With("pull", cfg.Name), hook: func(string, weir.GUID) {}}, nil
}

// Result is what a run did.
type Result struct {
	Pulls     int           `json:"pulls"` // committed
	Upserted  int           `json:"upserted"`
	Deleted   int           `json:"deleted"`
	Postponed int           `json:"postponed"`
	Dead      int           `json:"dead"`
	Folded    int           `json:"folded"`
	Recovered int           `json:"recovered"`
	Duration  time.Duration `json:"duration_ns"`
}

// jitter spreads a time over its upper half.
func jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2)
}
