// Package sqlite is weir's dialect of SQLite, as source and as target.
//
// # Source
//
// weir's tables stand beside the user's and begin with weir_. A GUID is text of
// 36 characters in lower case, a time an integer of microseconds since 1970 in
// UTC: datetime(changed_on / 1000000, 'unixepoch') shows it. A not_before of
// 9223372036854775807 is a dead letter. The database is put in WAL mode.
//
// A capture is four row triggers: insert, delete, update that keeps the key and
// update that changes it. The application's own process fires them, so they use
// what SQLite 3.24 and later have built in, and nothing else. The insert into
// weir_gi_instance_changed (a view) tags by hand.
//
// The instance GUID of a plain table with one integer key is the first half of
// the table's concept, and the key with its sign bit flipped: it sorts as the
// key. Any other key is hashed to 124 bits, by arithmetic in the trigger (about
// half a microsecond for each character). Should two keys ever have one GUID,
// the second write fails while the first is in the queue. A key that is no
// INTEGER, TEXT, REAL or BLOB by declaration is refused, and so is one that
// compares by NOCASE or RTRIM: equal keys could be spelled differently.
//
// old_primary_key holds the key's values as SQL literals, joined by commas:
// 42,'it”s',X'00FF'. A text with a NUL character is CAST(X'...' AS TEXT); a
// whole REAL is written as an integer, since 1.0 equals 1. Another REAL is
// written as the application's SQLite writes it.
//
// SQLite has one writer at a time. Claim, settle and the like take the write
// lock for a few milliseconds; an application should set a busy_timeout, as it
// must for its own connections. Where the lock is not had in three seconds, the
// source is unavailable for the moment. An application that sets synchronous
// below FULL can lose its own last commits with the power, after they arrived at
// the target.
//
// # Types of a source
//
// A column's declared type promises a kind; SQLite does not keep the promise. To
// another engine a value travels in the kind's neutral text, and a row with a
// value that is none of its column's kind is a fault of the read, by row, column
// and value:
//
//	BOOL, BOOLEAN                     bool: 0 or 1
//	DATE, TIME, TIMETZ                date, time, timetz: text in ISO 8601
//	DATETIME, TIMESTAMP, ...          timestamp: 2006-01-02 15:04:05[.fraction], or with a T; with a zone it is a fault
//	TIMESTAMPTZ, DATETIMEOFFSET, ... WITH TIME ZONE
//	                                  timestamptz: in UTC, with +00, +00:00 or Z
//	UUID, GUID, UNIQUEIDENTIFIER      uuid: 36 characters, or 16 bytes in the order of RFC 9562
//	DECIMAL, NUMERIC, NUMBER, MONEY   decimal: INTEGER, REAL by its shortest text, or TEXT in digits
//	JSON, JSONB; XML                  json: text or a number; xml: text
//	anything with INT                 int64: INTEGER
//	with CHAR, CLOB or TEXT           text: TEXT
//	with BLOB                         bytes: BLOB
//	with REAL, FLOA or DOUB           float64: REAL
//	no type, ANY, any other           any: each value by its storage class
//
// The column that an instance or child capture names holds GUIDs as text, all in
// lower or all in upper case, or as 16 bytes.
//
// A generated column travels as a value. A target of SQLite asks for the values
// as they are stored ([Encoding]), and its tables get the same declared types.
//
// # Target
//
// A shipment is one transaction (BEGIN IMMEDIATE, foreign keys enforced and
// deferred): the ledger's row, rows and keys into temporary staging tables,
// deletes children first, then one INSERT ... ON CONFLICT a table. When a unique
// value is taken, it is tried again with the other unique values of the batch's
// rows set aside first, so that rows may exchange them; no row is deleted for
// that, so nothing cascades.
//
// A table is made with types whose affinity changes no value: DECIMAL_TEXT,
// JSON_TEXT and XML_TEXT where a document or a number with a scale would become
// another number; TIMESTAMPTZ and the like hold text, BOOLEAN 0 or 1. The same
// names read back as the same kinds. Into a column of another type a value goes
// if the column can hold it so that it reads the same; else it is refused: 1.10
// into NUMERIC, NaN anywhere, -0.0 into REAL (SQLite stores 0.0).
package sqlite
