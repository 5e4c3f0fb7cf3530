package puller

import (
	"context"
	"errors"
	"fmt"
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
	// Batch is the most changes in one pull. Defaults to 5000.
	Batch int
	// MaxBytes bounds a batch's size. Two batches are held at a time: one is
	// shipped while the next is read. Defaults to 16 MiB.
	MaxBytes int64
	// Lease is how long a pull may hold its rows without a heartbeat, a second at
	// least. Defaults to 5 minutes.
	Lease time.Duration
	// MaxAttempts is how often a row at fault is tried before it is a dead
	// letter. Rows that other rows hold up are tried without end. Defaults to 10.
	MaxAttempts int
	// Backoff is how long a row at fault waits after its first attempt, about;
	// each further one doubles it, up to MaxBackoff. Default to 1 second and 1
	// hour.
	Backoff, MaxBackoff time.Duration
	// MaxDeletes bounds the deletes of one run. Defaults to no bound.
	MaxDeletes Limit
	// AllowDeletes lifts MaxDeletes.
	AllowDeletes bool
	// Puller names the process, for people. Defaults to host:pid.
	Puller string
	// Abort, when it ends, cuts off what is under way, as a crash would: leases
	// run out, and the ledger then decides. The context that a method is given
	// only keeps new work from beginning. Defaults to never.
	Abort context.Context
}

// Limit is a number of rows, or a share of the target's rows in percent. The
// zero Limit is none.
type Limit struct {
	Rows    int64
	Percent float64
}

// WithDefaults returns the configuration with its defaults filled in.
func (c Config) WithDefaults() Config {
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
	if c.Backoff == 0 {
		c.Backoff = time.Second
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = max(time.Hour, c.Backoff)
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
	case c.Backoff < 0 || c.MaxBackoff < c.Backoff:
		return fmt.Errorf("new puller %s: the backoff is above 0, and the longest is no shorter than the first", c.Name)
	case c.MaxDeletes.Rows < 0 || !(c.MaxDeletes.Percent >= 0 && c.MaxDeletes.Percent <= 100):
		return fmt.Errorf("new puller %s: a limit of deletes is a number of rows, or 0 to 100 percent", c.Name)
	case c.MaxDeletes.Rows > 0 && c.MaxDeletes.Percent > 0:
		return fmt.Errorf("new puller %s: a limit of deletes is a number of rows or a percentage, not both", c.Name)
	}
	return nil
}
