package weir

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// Table names a table as the catalog spells it. SQLite tables have no Schema.
type Table struct {
	Schema string
	Name   string
}

// String returns schema.name for messages. It is never SQL: only a dialect
// quotes a name.
func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// ParseTable splits a configured name at its first dot outside double quotes
// or brackets: public.orders, "My Schema"."My.Table", [dbo].[Orders]. Quotes
// are removed; the case is kept.
func ParseTable(s string) Table {
	parts := splitName(s)
	if len(parts) == 1 {
		return Table{Name: parts[0]}
	}
	return Table{Schema: parts[0], Name: strings.Join(parts[1:], ".")}
}

func splitName(s string) []string {
	var parts []string
	var b strings.Builder
	var closing byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case closing != 0 && c == closing:
			if i+1 < len(s) && s[i+1] == closing {
				b.WriteByte(c)
				i++
			} else {
				closing = 0
			}
		case closing != 0:
			b.WriteByte(c)
		case b.Len() == 0 && c == '"':
			closing = '"'
		case b.Len() == 0 && c == '[':
			closing = ']'
		case c == '.':
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	return append(parts, b.String())
}

// ConceptOf derives the concept of a plain table from its name, so that it is
// the same in every copy of a database: a version 8 UUID (RFC 9562, section
// 5.8). A dialect that holds names equal in any case gives t in one.
func ConceptOf(t Table) GUID {
	h := sha256.Sum256([]byte("weir concept\x00" + t.Schema + "\x00" + t.Name))
	g := GUID(h[:16])
	g[6] = g[6]&0x0f | 0x80
	g[8] = g[8]&0x3f | 0x80
	return g
}

// CaptureIDOf derives the number of a capture, above 0, from its table's name
// and its change type, in the way of [ConceptOf].
func CaptureIDOf(t Table, changeType string) int32 {
	h := sha256.Sum256([]byte("weir capture\x00" + t.Schema + "\x00" + t.Name + "\x00" + changeType))
	return int32(binary.BigEndian.Uint32(h[:])>>1) | 1
}

// CaptureKind is what a capture's table is.
type CaptureKind string

const (
	// Plain is a table with a key of any type. The table is the concept, and
	// the InstanceGUID is derived from the concept and the key.
	Plain CaptureKind = "plain"
	// Instance is a table whose rows carry their InstanceGUID in a column.
	Instance CaptureKind = "instance"
	// Child is a table whose rows tag the InstanceGUID of their parent with a
	// change type of their own. The parent's set of rows ships as a whole.
	Child CaptureKind = "child"
)

// Tagging is how a capture's triggers write the queue.
type Tagging string

const (
	// AtOnce coalesces in the user's transaction. A transaction at REPEATABLE
	// READ or higher appends to the inbox all the same.
	AtOnce Tagging = "at once"
	// Deferred appends to the inbox; the puller folds it into the queue.
	Deferred Tagging = "deferred"
)

// CaptureSpec is a capture as a user configures it: which table, and what its
// rows tag. The names of columns are as the catalog spells them.
type CaptureSpec struct {
	Table Table
	// InstanceGUID is the column with the instance's GUID (instance tables) or
	// the parent's (child tables). Empty means a plain table.
	InstanceGUID string
	// ConceptGUID is a column or a fixed GUID; empty on a plain table means
	// that the table is the concept.
	ConceptGUID string
	// OldPrimaryKey is a column whose text goes to the queue, or empty.
	OldPrimaryKey string
	// ChangeType makes a child of the table: the type that its rows tag on
	// their parent.
	ChangeType string
	// Tagging is AtOnce or Deferred; empty means the dialect's default for the
	// table (Deferred where the capture tags something wider than its row).
	Tagging Tagging
	// RefuseTruncate makes TRUNCATE fail instead of tagging every row deleted.
	RefuseTruncate bool
	// Queues are the names of the queues that want this table's changes, sorted.
	Queues []string
}

// Capture is a resolved capture: a [CaptureSpec] after the catalog was read, as
// the source's registry holds it.
type Capture struct {
	// ID is positive, unique in the source, and the same for the same table and
	// change type in every database.
	ID    int32
	Table Table
	Kind  CaptureKind
	// ChangeType is what a Child tags; empty for the other kinds.
	ChangeType string
	// ConceptGUID is fixed; zero where ConceptColumn holds it row by row.
	ConceptGUID   GUID
	ConceptColumn string
	// Key are the columns that Change.OldPrimaryKey (plain) or InstanceGUID
	// (instance, child) select rows by, in key order. A target finds its rows
	// by the same columns.
	Key []Column
	// Set reports that Key is not unique: several rows share one value, and the
	// target's rows of that value become the source's.
	Set bool
	// RowKey are the columns that tell the rows of a Set apart: the table's own
	// primary key, empty where it has none.
	RowKey         []string
	OldKeyColumn   string
	Tagging        Tagging
	RefuseTruncate bool
	Queues         []string
}
