package puller

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

// The defaults are those that the fields' comments name.
func TestConfig_WithDefaults(t *testing.T) {
	c := Config{Name: "p"}.WithDefaults()
	if c.Queue != weir.DefaultQueue || c.Batch != 5000 || c.MaxBytes != 16<<20 || c.Lease != 5*time.Minute || c.MaxAttempts != 10 ||
		c.Backoff != time.Second || c.MaxBackoff != time.Hour || c.MaxDeletes != (Limit{}) || c.AllowDeletes || !strings.Contains(c.Puller, ":") || c.Abort.Err() != nil {
		t.Errorf("%+v", c)
	}
	if err := c.validate(); err != nil {
		t.Error(err)
	}
	mine := Config{Name: "p", Queue: "q", Batch: 1, MaxBytes: 1, Lease: time.Second, MaxAttempts: 1, Backoff: 2 * time.Hour, Puller: "me", Abort: t.Context()}
	if c := mine.WithDefaults(); c.Queue != "q" || c.Batch != 1 || c.MaxBytes != 1 || c.Lease != time.Second || c.MaxAttempts != 1 || c.Puller != "me" || c.Abort != t.Context() || c.MaxBackoff != 2*time.Hour {
		t.Errorf("%+v", c)
	}
}

func TestNew_Refuses(t *testing.T) {
	for name, c := range map[string]Config{
		"no name":       {},
		"batch":         {Name: "p", Batch: -1},
		"bytes":         {Name: "p", MaxBytes: -1},
		"attempts":      {Name: "p", MaxAttempts: -1},
		"lease":         {Name: "p", Lease: 999 * time.Millisecond},
		"backoff":       {Name: "p", Backoff: -1},
		"backoffs":      {Name: "p", Backoff: time.Minute, MaxBackoff: time.Second},
		"deletes":       {Name: "p", MaxDeletes: Limit{Rows: -1}},
		"percent":       {Name: "p", MaxDeletes: Limit{Percent: 101}},
		"no number":     {Name: "p", MaxDeletes: Limit{Percent: math.NaN()}},
		"rows, percent": {Name: "p", MaxDeletes: Limit{Rows: 1, Percent: 1}},
	} {
		if _, err := New(nil, nil, c, quiet); err == nil || !strings.HasPrefix(err.Error(), "new puller") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// chunks is a table of some rows that is backfilled.
type chunks struct {
	rows, tagged int64
	inbox        int
	restarts     int
	canceled     bool
}

func (c *chunks) Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error) {
	c.canceled = c.canceled || ctx.Err() != nil
	if restart {
		c.tagged = 0
		c.restarts++
	}
	n := min(int64(limit), c.rows-c.tagged)
	c.tagged += n
	c.inbox += int(n)
	return weir.BackfillProgress{CaptureID: captureID, Tagged: c.tagged, Done: c.tagged == c.rows}, nil
}

func (c *chunks) Fold(ctx context.Context, limit int) (int, error) {
	n := min(limit, c.inbox)
	c.inbox -= n
	return n, nil
}

func TestBackfill(t *testing.T) {
	c := &chunks{rows: 25_000}
	ctx, stop := context.WithCancel(t.Context())
	calls := 0
	progress := func(at weir.BackfillProgress, rate float64) {
		calls++
		if rate <= 0 || at.CaptureID != 3 || at.Tagged != int64(calls)*10_000 || c.inbox != 0 {
			t.Errorf("%+v at %v rows a second, %d in the inbox", at, rate, c.inbox)
		}
		if calls == 2 {
			stop()
		}
	}
	if at, err := Backfill(ctx, c, 3, 10_000, true, progress); err != context.Canceled || at.Tagged != 20_000 || c.restarts != 1 || c.canceled {
		t.Errorf("%+v, %v", at, err)
	}
	if at, err := Backfill(ctx, c, 3, 10_000, false, nil); err != context.Canceled || at.Tagged != 0 || c.tagged != 20_000 {
		t.Errorf("on a context that is over: %+v, %v", at, err)
	}
	if at, err := Backfill(t.Context(), c, 3, 10_000, false, nil); err != nil || at.Tagged != 25_000 || !at.Done || c.restarts != 1 || c.inbox != 0 {
		t.Errorf("%+v, %v", at, err)
	}
	if _, err := Backfill(t.Context(), c, 3, 0, false, nil); err == nil {
		t.Error("a chunk of no rows")
	}
}

func TestBackfill_Outage(t *testing.T) {
	away := &weir.UnavailableError{Side: weir.AtSource, Op: "backfill", Err: errNetwork}
	if _, err := Backfill(t.Context(), failing{&chunks{rows: 1}, away}, 1, 10, false, nil); err != error(away) {
		t.Errorf("%v", err)
	}
}

type failing struct {
	*chunks
	err error
}

func (f failing) Fold(context.Context, int) (int, error) { return 0, f.err }
