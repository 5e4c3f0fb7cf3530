package weir

import "time"

// The change types that triggers write for a row of their own. Each cancels
// the other of the same instance.
const (
	InstanceInserted = "Instance Inserted" // the row was inserted or updated
	InstanceDeleted  = "Instance Deleted"  // the row was deleted, or its key changed away
)

// MaxChangeType is the longest change type, in characters: the width of the
// queue's column.
const MaxChangeType = 40

// DefaultQueue is the name of the queue that every source has.
const DefaultQueue = "default"

// Change is one row of a queue: an instance, and what happened to it last. The
// queue holds (InstanceGUID, ChangeType) once.
type Change struct {
	InstanceGUID GUID
	ChangeType   string
	// ChangedOn is the source's clock when the change was tagged. It orders
	// claims; it never decides what is newer.
	ChangedOn time.Time
	// ConceptGUID names the kind of thing that the instance is; zero is NULL.
	ConceptGUID GUID
	// OldPrimaryKey is the key's value in the source dialect's lossless text
	// form; HasOldPrimaryKey is false where the column is NULL.
	OldPrimaryKey    string
	HasOldPrimaryKey bool
	// CaptureID names the capture that tagged the row; 0 where other code did,
	// and ConceptGUID and ChangeType decide.
	CaptureID int32
	// Attempts counts how often this version of the instance was at fault when
	// a pull could not be shipped. A new tag starts again at 0.
	Attempts int
}
