package weir

import "time"

// BackfillProgress is how far a backfill of one capture has come.
type BackfillProgress struct {
	CaptureID int32
	Table     Table
	// Tagged counts the keys tagged since the backfill began, resumed runs
	// included.
	Tagged int64
	// Estimate is the planner's idea of the number of rows; 0 where it has none.
	Estimate int64
	Done     bool
	// Before says that it was done before the call, which tagged nothing, and
	// DoneOn when, on the source's clock.
	Before bool
	DoneOn time.Time
}
