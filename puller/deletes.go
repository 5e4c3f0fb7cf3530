package puller

import (
	"fmt"
	"slices"

	"github.com/weir-cdc/weir"
)

// DeleteLimitError stops a run that would delete more at the target than
// MaxDeletes. Nothing of the batch was shipped; its changes wait in the queue.
type DeleteLimitError struct {
	Pull    string
	Deletes int64 // of this run, with the batch that was not shipped
	Limit   int64
}

func (e *DeleteLimitError) Error() string {
	return fmt.Sprintf("pull %s: it would delete %d rows in this run, max_deletes allows %d. Try: weir pull %s --allow-deletes, if that is right",
		e.Pull, e.Deletes, e.Limit, e.Pull)
}

// deletes counts the deletes of a run.
type deletes struct {
	p     *Puller
	done  int64  // shipped
	limit *int64 // nil until the first batch that deletes
}

// allow returns a [*DeleteLimitError] if n more deletes are too many.
func (d *deletes) allow(n int) error {
	m := d.p.cfg.MaxDeletes
	if n == 0 || d.p.cfg.AllowDeletes || m == (Limit{}) {
		return nil
	}
	if d.limit == nil {
		limit := m.Rows
		if m.Percent > 0 {
			rows, err := d.p.targetRows()
			if err != nil {
				return err
			}
			if rows == 0 {
				return nil // nothing there can be lost
			}
			limit = int64(float64(rows) * m.Percent / 100)
		}
		d.limit = &limit
	}
	if would := d.done + int64(n); would > *d.limit {
		return &DeleteLimitError{Pull: d.p.cfg.Name, Deletes: would, Limit: *d.limit}
	}
	return nil
}

// targetRows counts the rows of the tables that this pull ships to.
func (p *Puller) targetRows() (int64, error) {
	captures, err := p.source.Captures(p.cfg.Abort)
	if err != nil {
		return 0, err
	}
	if len(p.cfg.Captures) > 0 {
		captures = slices.DeleteFunc(slices.Clone(captures), func(c *weir.Capture) bool { return !slices.Contains(p.cfg.Captures, c.ID) })
	}
	return p.target.Rows(p.cfg.Abort, captures)
}
