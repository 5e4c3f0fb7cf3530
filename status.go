package weir

import "time"

// Status is what a source knows of its queues, at one moment.
type Status struct {
	Now    time.Time     `json:"now"` // the source's clock
	Inbox  int64         `json:"inbox"`
	Queues []QueueStatus `json:"queues"`
	Pulls  []LivePull    `json:"pulls"`
}

// QueueStatus counts a queue's changes. Depth = Ready + InFlight + Waiting +
// Postponed + Dead.
type QueueStatus struct {
	Queue     string `json:"queue"`
	Depth     int64  `json:"depth"`
	Ready     int64  `json:"ready"`
	InFlight  int64  `json:"in_flight"`
	Waiting   int64  `json:"waiting"` // an earlier version is in flight
	Postponed int64  `json:"postponed"`
	Dead      int64  `json:"dead"`
	// OldestAge is the age of the oldest change that is not dead; 0 for none.
	OldestAge time.Duration `json:"oldest_age_ns"`
	Groups    []QueueGroup  `json:"groups"`
}

// QueueGroup counts a queue's changes of one table, concept and type.
type QueueGroup struct {
	Table       string        `json:"table"` // empty where no capture tagged it
	ConceptGUID GUID          `json:"concept_guid,omitzero"`
	ChangeType  string        `json:"change_type"`
	Depth       int64         `json:"depth"`
	OldestAge   time.Duration `json:"oldest_age_ns"`
}

// LivePull is a row of Pulls.
type LivePull struct {
	PullGUID   GUID      `json:"pull_guid"`
	Name       string    `json:"name"`
	Queue      string    `json:"queue"`
	Puller     string    `json:"puller"`
	State      PullState `json:"state"`
	ClaimedOn  time.Time `json:"claimed_on"`
	LeaseUntil time.Time `json:"lease_until"`
	Rows       int       `json:"rows"`
	// Ledger is the identity of the target's ledger that the pull ships into;
	// zero where the source does not say.
	Ledger GUID `json:"ledger,omitzero"`
}

// ChangeState is where a change of the queue stands.
type ChangeState string

// The states of a change.
const (
	Ready     ChangeState = "ready"
	InFlight  ChangeState = "in flight"
	Waiting   ChangeState = "waiting"
	Postponed ChangeState = "postponed"
	Dead      ChangeState = "dead"
)

// QueueRow is a change as `weir queue list` shows it.
type QueueRow struct {
	Queue         string      `json:"queue"`
	Table         string      `json:"table"`
	InstanceGUID  GUID        `json:"instance_guid"`
	ChangeType    string      `json:"change_type"`
	ChangedOn     time.Time   `json:"changed_on"`
	ConceptGUID   GUID        `json:"concept_guid,omitzero"`
	OldPrimaryKey string      `json:"old_primary_key"`
	PullGUID      GUID        `json:"pull_guid,omitzero"` // zero where no pull has it
	State         ChangeState `json:"state"`
	Attempts      int         `json:"attempts"`
	NotBefore     time.Time   `json:"not_before,omitzero"` // zero where not postponed
	LastError     string      `json:"last_error,omitempty"`
}

// QueueSelector chooses changes of one queue; zero fields choose all.
type QueueSelector struct {
	Queue        string // empty means DefaultQueue
	Pull         GUID
	CaptureID    int32
	InstanceGUID GUID
	ChangeType   string
	State        ChangeState
	Limit        int // 0 means no limit
}

// Add counts a group of changes in one state: into the queue's sums, and into
// the group of the same table, concept and type.
func (q *QueueStatus) Add(g QueueGroup, state ChangeState) {
	q.Depth += g.Depth
	switch state {
	case Ready:
		q.Ready += g.Depth
	case InFlight:
		q.InFlight += g.Depth
	case Waiting:
		q.Waiting += g.Depth
	case Postponed:
		q.Postponed += g.Depth
	case Dead:
		q.Dead += g.Depth
	}
	if state != Dead {
		q.OldestAge = max(q.OldestAge, g.OldestAge)
	}
	for i := range q.Groups {
		have := &q.Groups[i]
		if have.Table == g.Table && have.ConceptGUID == g.ConceptGUID && have.ChangeType == g.ChangeType {
			have.Depth += g.Depth
			have.OldestAge = max(have.OldestAge, g.OldestAge)
			return
		}
	}
	q.Groups = append(q.Groups, g)
}
