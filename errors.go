package weir

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinel states of the protocol.
var (
	// ErrQueueEmpty: nothing can be claimed now. A state, not a failure.
	ErrQueueEmpty = errors.New("queue is empty")
	// ErrLeaseLost: the pull is no longer live at the source; another puller
	// recovered it, or it was settled. Do not ship it.
	ErrLeaseLost = errors.New("lease is lost")
	// ErrRevoked: the target's ledger bars the pull; it can never commit.
	// Release what the source still holds for it.
	ErrRevoked = errors.New("pull is revoked")
)

// Side says which database an error speaks of.
type Side string

// The two sides.
const (
	AtSource Side = "source"
	AtTarget Side = "target"
)

// UnavailableError is an outage: refused, reset, timed out, failed over, a
// deadlock's victim, a lock not had in time. Nothing was done, or it surely
// rolled back. It is no row's fault; try again later.
type UnavailableError struct {
	Side Side
	Op   string // claim, read, ship, ...
	Err  error
	Hint string // what a person may do; empty where there is only to try again
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%s: %s is unavailable: %v", e.Op, e.Side, e.Err)
}
func (e *UnavailableError) Unwrap() error { return e.Err }

// OutcomeUnknownError is a commit that was sent and not answered. It may have
// happened. Never retry it blindly: the ledger (for a shipment) or the Pulls
// row (for a claim) knows.
type OutcomeUnknownError struct {
	Side Side
	Op   string
	Pull GUID
	Err  error
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%s of pull %s: outcome at the %s is unknown: %v", e.Op, e.Pull, e.Side, e.Err)
}
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// RowError is one row's fault: the target cannot hold a value, or a constraint
// of its own refuses the row.
type RowError struct {
	Table  string // empty where it is not known
	Key    string
	Column string // empty where the row as a whole is refused
	Value  string // the value's text, shortened; empty where Column is
	Hint   string
	// Constraint reports that other rows decide (a unique value that another
	// row still holds, a parent that is not there yet): the row is tried again
	// without end, and is no dead letter.
	Constraint bool
	Err        error
}

func (e *RowError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "row %s", e.Key)
	if e.Table != "" {
		fmt.Fprintf(&b, " of %s", e.Table)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %s", e.Column)
		if e.Value != "" {
			fmt.Fprintf(&b, ", value %s", e.Value)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}
func (e *RowError) Unwrap() error { return e.Err }

// ConfigError is something that a person must put right before weir can go on:
// a setting, a right, an object that is missing. Hint says what to do.
type ConfigError struct {
	File string // empty where no file is at fault
	Line int    // 0 where unknown
	Key  string // the setting or the object
	Hint string
	Err  error
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	}
	if e.Hint != "" {
		if e.Err != nil {
			b.WriteString(". ")
		}
		b.WriteString("Try: " + e.Hint)
	}
	return b.String()
}
func (e *ConfigError) Unwrap() error { return e.Err }

// DriftError is a difference between what should be installed and what is, or
// between a table as it was captured and as it is now.
type DriftError struct {
	Object string
	Hint   string
	Err    error
}

func (e *DriftError) Error() string {
	s := e.Object + ": " + fmt.Sprint(e.Err)
	if e.Hint != "" {
		s += ". Try: " + e.Hint
	}
	return s
}
func (e *DriftError) Unwrap() error { return e.Err }
