package sqlite

import (
	"regexp"
	"strings"

	"github.com/weir-cdc/weir"
)

// affinity is what SQLite makes of a value that is stored in a column
// (Datatypes In SQLite, section 3).
type affinity byte

const (
	affBlob affinity = iota // stored as it is
	affText
	affNumeric
	affInteger
	affReal
)

func affinityOf(declared string, strict bool) affinity {
	t := strings.ToUpper(declared)
	switch {
	case strict && t == "ANY":
		return affBlob
	case strings.Contains(t, "INT"):
		return affInteger
	case strings.Contains(t, "CHAR"), strings.Contains(t, "CLOB"), strings.Contains(t, "TEXT"):
		return affText
	case strings.Contains(t, "BLOB"), t == "":
		return affBlob
	case strings.Contains(t, "REAL"), strings.Contains(t, "FLOA"), strings.Contains(t, "DOUB"):
		return affReal
	}
	return affNumeric
}

// kinds maps the first word of a declared type; what is not here goes by
// affinity.
var kinds = map[string]weir.Kind{
	"BOOL": weir.Bool, "BOOLEAN": weir.Bool,
	"DATE": weir.Date, "TIME": weir.Time, "TIMETZ": weir.TimeTZ,
	"DATETIME": weir.Timestamp, "DATETIME2": weir.Timestamp, "SMALLDATETIME": weir.Timestamp, "TIMESTAMP": weir.Timestamp,
	"TIMESTAMPTZ": weir.TimestampTZ, "DATETIMEOFFSET": weir.TimestampTZ,
	"UUID": weir.UUID, "GUID": weir.UUID, "UNIQUEIDENTIFIER": weir.UUID,
	"DECIMAL": weir.Decimal, "NUMERIC": weir.Decimal, "DEC": weir.Decimal, "NUMBER": weir.Decimal, "MONEY": weir.Decimal, "SMALLMONEY": weir.Decimal,
	"DECIMAL_TEXT": weir.Decimal,
	"JSON":         weir.JSON, "JSONB": weir.JSON, "JSON_TEXT": weir.JSON,
	"XML": weir.XML, "XML_TEXT": weir.XML,
}

// typeName is a declared type that a new table can be given as it is.
var typeName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*( [A-Za-z_][A-Za-z0-9_]*)*( ?\( ?[0-9]+ ?(, ?[0-9]+ ?)?\))?$`)

// columnOf describes a column by its declared type. SQLite keeps no length or
// precision, so none is given.
func columnOf(name, declared string, strict bool) weir.Column {
	c := weir.Column{Name: name, Native: declared, Kind: weir.Any}
	upper := strings.ToUpper(declared)
	first, _, _ := strings.Cut(upper, "(")
	words := strings.Fields(first)
	if len(words) > 0 {
		if k, ok := kinds[words[0]]; ok {
			c.Kind = k
			if strings.Contains(first, "WITH TIME ZONE") {
				c.Kind = map[weir.Kind]weir.Kind{weir.Timestamp: weir.TimestampTZ, weir.Time: weir.TimeTZ}[k]
			}
		} else {
			switch affinityOf(declared, strict) {
			case affInteger:
				c.Kind = weir.Int64
			case affText:
				c.Kind = weir.Text
			case affReal:
				c.Kind = weir.Float64
			case affBlob:
				c.Kind = weir.Bytes
				if strings.Contains(upper, "ANY") {
					c.Kind = weir.Any
				}
			case affNumeric:
			}
		}
	}
	aff := affinityOf(declared, strict)
	switch {
	case strict && upper == "ANY":
		c.Native = "" // an untyped column is what ANY is in a table that is not STRICT
	case !typeName.MatchString(declared) || reserved[words[0]]:
		c.Native = [...]string{affBlob: "", affText: "TEXT", affNumeric: "NUMERIC", affInteger: "INTEGER", affReal: "REAL"}[aff]
	}
	return c
}

// reserved are words that end a column's type in a CREATE TABLE.
var reserved = map[string]bool{
	"PRIMARY": true, "NOT": true, "NULL": true, "UNIQUE": true, "CHECK": true, "DEFAULT": true, "COLLATE": true, "REFERENCES": true,
	"CONSTRAINT": true, "GENERATED": true, "AS": true,
}

// createType declares a column for a kind of another engine, so that no
// affinity changes its values: what could look like a number and is none has a
// name with TEXT in it.
func createType(k weir.Kind) string {
	switch k {
	case weir.Bool:
		return "BOOLEAN"
	case weir.Int16:
		return "SMALLINT"
	case weir.Int32:
		return "INTEGER"
	case weir.Int64:
		return "BIGINT"
	case weir.Float32:
		return "REAL"
	case weir.Float64:
		return "DOUBLE PRECISION"
	case weir.Decimal:
		return "DECIMAL_TEXT"
	case weir.Bytes:
		return "BLOB"
	case weir.UUID:
		return "UUID"
	case weir.Date:
		return "DATE"
	case weir.Time:
		return "TIME"
	case weir.TimeTZ:
		return "TIMETZ"
	case weir.Timestamp:
		return "TIMESTAMP"
	case weir.TimestampTZ:
		return "TIMESTAMPTZ"
	case weir.JSON:
		return "JSON_TEXT"
	case weir.XML:
		return "XML_TEXT"
	case weir.Text, weir.Any, weir.Other:
	}
	return "TEXT"
}
