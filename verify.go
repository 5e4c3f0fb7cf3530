package weir

import "strings"

// Form is the canonical text in which a source's column and a target's are
// compared: the same value has the same text at both, whatever the engine.
type Form string

// The forms.
const (
	// FormStored is the value as its engine holds it, between columns of one type
	// in two databases of one engine.
	FormStored Form = "stored"
	// FormText is the neutral text of the column's [Kind].
	FormText Form = "text"
	// FormNumber are the digits of a number without an exponent and without zeros
	// that say nothing; a Bool is 1 or 0.
	FormNumber Form = "number"
	// FormFloat are the 8 bytes of the IEEE 754 number that the neutral text
	// reads as, in hexadecimal: two engines may write one number's shortest text
	// in two ways.
	FormFloat Form = "float"
	// FormBytes is hexadecimal, in lower case.
	FormBytes Form = "bytes"
	// FormTime is the neutral text without zeros at the end of a second's
	// fraction or of a zone.
	FormTime Form = "time"
)

// FormOf says how a column of a source compares with that of its target; ok is
// false where what the target makes of a value cannot be told by its text. same
// reports two databases of one engine.
func FormOf(from, to Column, same bool) (form Form, ok bool) {
	number := func(k Kind) bool { return k == Int16 || k == Int32 || k == Int64 || k == Decimal || real(k) }
	text := to.Kind == Text || to.Kind == Any
	switch {
	case same && from.Native == to.Native:
		return FormStored, true
	case text && strings.HasPrefix(to.Native, "character("):
		return "", false // it pads what it holds
	case real(from.Kind) && real(to.Kind):
		return FormFloat, true
	case (number(from.Kind) || from.Kind == Bool) && number(to.Kind), from.Kind == Bool && to.Kind == Bool:
		return FormNumber, true
	case from.Kind == Bytes && to.Kind == Bytes:
		return FormBytes, true
	case from.Kind == JSON && to.Kind == JSON:
		return FormText, to.Native != "jsonb" || from.Native == "jsonb" // it writes a document anew
	case from.Kind == to.Kind && (to.Kind == Date || to.Kind == Time || to.Kind == TimeTZ || to.Kind == Timestamp || to.Kind == TimestampTZ):
		return FormTime, true
	case from.Kind == to.Kind && from.Kind != Bool, text && from.Kind != Bytes:
		return FormText, true
	}
	return "", false
}

func real(k Kind) bool { return k == Float32 || k == Float64 }

// Compared is a column and how it is compared, by its name at the source.
type Compared struct {
	Name string
	Form Form
}

// Comparison says what of a table is compared, on both sides alike. Rows fall
// into Buckets by a hash of Key. A row whose key has a null is passed over: no
// capture tags it.
type Comparison struct {
	Columns []Compared
	Key     []Compared
	Buckets int
}

// Shape is what one side has of a captured table.
type Shape struct {
	// Encoding names the engine: it is the same where both sides are of one.
	Encoding Encoding
	// Columns are named as the source names them; those that the target computes
	// itself are left out.
	Columns []Column
	// Exists is false where the side has no such table.
	Exists bool
}

// BucketDigest is the count of a bucket's rows, and a sum over hashes of them
// that does not depend on their order.
type BucketDigest struct {
	Bucket int
	Rows   int64
	Sum    string
}

// KeyDigest is the same of the rows that share a key: one, but in a Set.
type KeyDigest struct {
	// Key are the canonical texts of the key's columns.
	Key  []string
	Rows int64
	Sum  string
}
