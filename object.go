package weir

// ObjectKind is what an [Object] is.
type ObjectKind string

// The kinds, in the order in which they are made; dropping goes the other way.
const (
	QueueTable   ObjectKind = "queue"
	Registration ObjectKind = "registration" // the capture's row in the registry
	Function     ObjectKind = "function"
	Trigger      ObjectKind = "trigger"
)

// Object is one thing that weir installs at the source for captures. Its SQL
// is one statement each, ready to run, with every name quoted.
type Object struct {
	Kind ObjectKind
	// Name is unique among the objects of a kind on a table: a trigger's or
	// function's name, unquoted.
	Name string
	// Table is the table that the object serves: the partition for a trigger on
	// a partition, empty for a queue.
	Table Table
	// Group is the table whose objects are applied in one transaction: the
	// partitioned root for its partitions' triggers.
	Group Table
	// Create makes the object, or replaces it in place.
	Create []string
	Drop   []string
	// Fingerprint is equal for two objects if and only if the catalog shows them
	// alike, enabled state included.
	Fingerprint string
	// Disabled says that the object was found installed and does not act.
	Disabled bool
}

// Resolved is a capture with all that its installation needs.
type Resolved struct {
	Capture *Capture
	Objects []Object
	// Warnings tell what the triggers change for the application, or what the
	// capture does not see.
	Warnings []string
}
