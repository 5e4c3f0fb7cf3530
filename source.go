package weir

import (
	"context"
	"time"
)

// ClaimRequest says what to claim, and for whom.
type ClaimRequest struct {
	// PullGUID is new for each claim; the caller makes it, so that it can ask
	// for the pull after a commit without an answer.
	PullGUID GUID
	// Name is the pull's name in the configuration.
	Name string
	// Queue is the queue's name.
	Queue string
	// Puller names the process, for people: host and process id.
	Puller string
	// Ledger is the identity of the target's ledger, from [Target.Ledger].
	Ledger GUID
	// Limit is the most rows to claim, above 0.
	Limit int
	// Lease is how long the pull may hold its rows, on the source's clock.
	Lease time.Duration
	// Captures, Concepts and ChangeTypes filter; empty means all.
	Captures    []int32
	Concepts    []GUID
	ChangeTypes []string
	// From skips changes tagged before it: a hint that keeps a long drain from
	// walking over what it has already taken. Zero means all. What a hint
	// passes over is found by a later claim without one.
	From time.Time
}

// Pull is a claimed batch: its changes are in flight until it is settled,
// released or recovered.
type Pull struct {
	PullGUID   GUID
	Name       string
	Queue      string
	LeaseUntil time.Time // the source's clock
	// Changes are 1 to Limit, each (InstanceGUID, ChangeType) once, in the order
	// of ChangedOn.
	Changes []Change
}

// ReadRequest asks for the current rows of a pull.
type ReadRequest struct {
	// Encoding is what the target would like. A source that cannot produce it
	// gives EncodingText.
	Encoding Encoding
	// MaxBytes bounds the batch. The changes that no longer fit are in the
	// result's Rest; at least one change is always read.
	MaxBytes int64
}

// ReadResult is what a read found.
type ReadResult struct {
	Batch *Batch
	// Faults are changes that cannot be read, with the reason: no capture knows
	// them, or their key cannot be decoded. Table and Item are not used.
	Faults []ChangeFault
	// Rest are the changes that MaxBytes left out.
	Rest []Change
}

// ChangeFault is a change that cannot be read.
type ChangeFault struct {
	Change Change
	Err    *RowError
}

// Postponement takes one change out of a pull and keeps it for later.
type Postponement struct {
	InstanceGUID GUID
	ChangeType   string
	// Delay until it may be claimed again, on the source's clock; 0 gives it
	// back at once.
	Delay time.Duration
	// Align rounds the time up to a multiple of Delay, so that rows which wait
	// for each other come due at one moment and into one batch.
	Align bool
	// Dead keeps the change as a dead letter until it is retried by hand or
	// tagged anew.
	Dead bool
	// Error is kept for people; empty means that the change is not at fault, and
	// no attempt is counted.
	Error string
}

// SettleResult says what a settle did.
type SettleResult struct {
	// Settled is how many changes were deleted from the queue. Changes tagged
	// anew while the pull was in flight are no longer its own.
	Settled int
	// Done reports that nothing at the source names the pull any more, so the
	// target's ledger may forget it. Otherwise a later claim finishes the work.
	Done bool
}

// Expired is a pull that needs somebody to finish it.
type Expired struct {
	PullGUID GUID
	Puller   string
	Rows     int
	// State is StateClaimed for a pull whose lease ran out: the target's ledger
	// must say whether it committed. StateSettled and StateReleased are known
	// outcomes whose rows were locked then: settle or release again.
	State PullState
}

// PullState is what the Pulls row of a pull says.
type PullState string

// The states.
const (
	StateClaimed  PullState = "claimed"
	StateSettled  PullState = "settled"
	StateReleased PullState = "released"
)

// Source is the database that changes, as the pull protocol sees it. All
// methods are safe for concurrent use by any number of processes. Each bounds
// its own time; each gives way to the users of the database: it skips locked
// rows or waits a moment only, and reports an [*UnavailableError] then.
//
// Every method may return [*UnavailableError] (nothing was done),
// [*OutcomeUnknownError] (the commit got no answer), [*ConfigError] or
// [*DriftError] (a person must act).
type Source interface {
	// Captures returns the installed captures, by ID.
	Captures(ctx context.Context) ([]*Capture, error)

	// Fold moves tags from the inbox into the queues that want them, at most
	// limit, by the rules of tagging, and returns how many it moved. 0 means
	// that nothing is left, or that all the rest is locked at the moment.
	Fold(ctx context.Context, limit int) (int, error)

	// Claim leases up to req.Limit changes to a new pull in one transaction:
	// those that no pull holds, that wait for none and are not postponed, the
	// oldest first. It returns [ErrQueueEmpty] when there is none. After an
	// [*OutcomeUnknownError] the pull may exist: release it by its PullGUID, or
	// leave it to recovery.
	Claim(ctx context.Context, req ClaimRequest) (*Pull, error)

	// Read finds the current row of each change, from committed data only, in
	// one snapshot taken after the claim. It holds no transaction on return.
	// [*DriftError] when a table is not the one that was captured.
	Read(ctx context.Context, pull *Pull, req ReadRequest) (*ReadResult, error)

	// Settle deletes the changes that still carry the pull, after the target
	// committed it. It may be called again, and by others.
	Settle(ctx context.Context, pull GUID) (SettleResult, error)

	// Release gives the pull's changes back at once. Only a pull that cannot
	// commit at its target (never shipped, surely rolled back, or revoked) may
	// be released; its PullGUID is not used again. It may be called again.
	Release(ctx context.Context, pull GUID) error

	// Postpone takes changes out of a live pull, all of them or none.
	// [ErrLeaseLost] when the pull is not live.
	Postpone(ctx context.Context, pull GUID, what []Postponement) error

	// Extend moves a live pull's lease to now plus lease on the source's clock.
	// [ErrLeaseLost] when the pull is not live.
	Extend(ctx context.Context, pull GUID, lease time.Duration) error

	// Expired returns the pulls of this name into this ledger that need to be
	// finished. A pull of this name into another ledger whose lease ran out is a
	// [*ConfigError]: the target changed under it.
	Expired(ctx context.Context, name string, ledger GUID) ([]Expired, error)

	// Close frees the connections.
	Close() error
}
