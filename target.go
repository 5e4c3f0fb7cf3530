package weir

import "context"

// Shipment is what [Target.Ship] commits in one transaction.
type Shipment struct {
	PullGUID GUID
	Batch    *Batch
	// Forget are earlier pulls that are settled and done at the source: their
	// ledger rows are deleted in the same transaction.
	Forget []GUID
}

// Target is the store that receives, as the pull protocol sees it. All methods
// are safe for concurrent use by any number of processes, and bound their own
// time.
//
// Every method may return [*UnavailableError] (it surely did not happen) or
// [*ConfigError] (a person must act).
type Target interface {
	// Ledger returns the identity of the target's ledger. The first call makes
	// the ledger.
	Ledger(ctx context.Context) (GUID, error)

	// Encoding is what this target reads fastest.
	Encoding() Encoding

	// Ship makes or extends the tables that the batch needs, then, in one
	// transaction, enters the pull into the ledger as committed and applies the
	// batch: deletes before upserts, the key alone deciding which row an upsert
	// replaces. A pull that the ledger already holds as committed is done: nil.
	//
	// [ErrRevoked] when the ledger bars the pull. [*RowError] when a row is at
	// fault (all rolled back; find the others with Isolate).
	// [*OutcomeUnknownError] when the commit got no answer: never ship that
	// PullGUID again; revoke it, and go by what Revoke finds.
	Ship(ctx context.Context, s Shipment) error

	// Isolate finds the items of the batch that cannot be shipped beside the
	// others, by trying, and leaves no trace.
	Isolate(ctx context.Context, b *Batch) ([]Fault, error)

	// Revoke bars a pull for ever, and reports committed = false; or finds that
	// it committed already, and reports true. It waits a moment for a shipment
	// that is under way, and is unavailable if that does not end. It may be
	// called again.
	Revoke(ctx context.Context, pull GUID) (committed bool, err error)

	// Rows counts the rows of the target tables of the captures; a table that
	// does not exist yet has none.
	Rows(ctx context.Context, captures []*Capture) (int64, error)

	// Close frees the connections.
	Close() error
}

// Mode is what a target does with a deleted or replaced row.
type Mode string

// The modes.
const (
	// Mirror makes the target equal to the source.
	Mirror Mode = "mirror"
	// SoftDelete keeps deleted rows and marks them with the time.
	SoftDelete Mode = "soft delete"
	// History keeps every version that was shipped, with the times between
	// which it was current.
	History Mode = "history"
)

// The columns that weir adds to a target's tables, in the modes that need them.
const (
	// DeletedOnColumn is null while the row exists at the source (SoftDelete).
	DeletedOnColumn = "weir_deleted_on"
	// ValidFromColumn and ValidToColumn bound a version, the end excluded; the
	// current version's end is null (History).
	ValidFromColumn = "weir_valid_from"
	ValidToColumn   = "weir_valid_to"
)

// NewColumns is what a target does when the source has a column that the
// target's table lacks.
type NewColumns string

// The policies.
const (
	Evolve NewColumns = "evolve" // add the column
	Ignore NewColumns = "ignore" // leave the column out
	Fail   NewColumns = "fail"   // stop with a *ConfigError
)

// TargetOptions says how a target writes.
type TargetOptions struct {
	// Schema is where the tables are; empty means the dialect's default.
	Schema string
	// Mode defaults to Mirror.
	Mode Mode
	// NewColumns defaults to Evolve.
	NewColumns NewColumns
}
