// Package logkey holds the keys of weir's log attributes: one word for one thing
// in every package's log.
package logkey

// The keys.
const (
	Pull      = "pull"      // a pull's name
	PullGUID  = "pull_guid" // one claimed batch
	Pulls     = "pulls"     // how many batches
	Puller    = "puller"    // the process that claimed, host:pid
	Rows      = "rows"      // upserted, or concerned
	Deletes   = "deletes"
	Postponed = "postponed" // changes
	Dead      = "dead"      // changes, or whether one is
	Folded    = "folded"    // tags
	Recovered = "recovered" // pulls
	Committed = "committed" // whether the target did
	Duration  = "duration"  // in JSON duration_seconds, as retry is retry_seconds
	Schedule  = "schedule"
	Retry     = "retry" // how long until the next try
	Error     = "error"
	Stack     = "stack"
)
