package weir

// Kind is what a column holds, in words that every engine shares. It decides
// the column that another engine's target creates and the neutral text form
// (see [EncodingText]) in which a value travels between different engines.
type Kind string

// The kinds, with the neutral text form of each.
const (
	Bool        Kind = "bool"        // true or false
	Int16       Kind = "int16"       // decimal digits
	Int32       Kind = "int32"       // decimal digits
	Int64       Kind = "int64"       // decimal digits
	Float32     Kind = "float32"     // shortest that reads back; NaN, Infinity, -Infinity
	Float64     Kind = "float64"     // shortest that reads back; NaN, Infinity, -Infinity
	Decimal     Kind = "decimal"     // digits with the scale kept; NaN, Infinity, -Infinity
	Text        Kind = "text"        // UTF-8
	Bytes       Kind = "bytes"       // the bytes themselves
	UUID        Kind = "uuid"        // 8-4-4-4-12, lower case
	Date        Kind = "date"        // 2006-01-02, years of more digits as they are, " BC" behind; infinity, -infinity
	Time        Kind = "time"        // 15:04:05[.fraction]
	TimeTZ      Kind = "timetz"      // 15:04:05[.fraction]+07:00
	Timestamp   Kind = "timestamp"   // 2006-01-02 15:04:05[.fraction][ BC]; infinity, -infinity
	TimestampTZ Kind = "timestamptz" // as Timestamp, in UTC, with +00
	JSON        Kind = "json"        // the document
	XML         Kind = "xml"         // the document
	// Any is a column without a type (SQLite): each value has its own, and its
	// text form is that of its storage class.
	Any Kind = "any"
	// Other is a type that only its own engine has (interval, inet, ranges,
	// arrays, enums): its text form is the engine's.
	Other Kind = "other"
)

// Column describes a column of a table.
type Column struct {
	// Name is as the catalog spells it.
	Name string
	Kind Kind
	// Native is the engine's own name of the type, as its DDL takes it.
	Native string
	// Length is the limit in characters (Text) or bytes (Bytes); 0 means none.
	Length int
	// Precision and Scale hold for Decimal (0, 0 means any); Scale alone gives
	// the digits of a second's fraction for times.
	Precision int
	Scale     int
	NotNull   bool
}
