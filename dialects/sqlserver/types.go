package sqlserver

import (
	"fmt"
	"strings"

	"github.com/weir-cdc/weir"
)

// Encoding is this dialect's own. A field is the same text or the same bytes as
// in weir.EncodingText, but a datetimeoffset keeps its offset. Columns carry the
// source's types, so that a target's table gets them.
const Encoding weir.Encoding = "sqlserver"

// column is a column as the catalog has it: the neutral description, and how
// this dialect reads it.
type column struct {
	weir.Column
	id         int
	base       string // the system type's name, in lower case
	alias      string // the alias type's name, where it has one
	maxLength  int    // in bytes; -1 is max
	precision  int
	scale      int
	identity   bool
	computed   bool
	generated  bool // always, as a period column of a temporal table or a ledger table's
	collation  string
	codePage   int // of a char or varchar column
	hasDefault bool
	cascaded   bool // a foreign key's action may change it; set by readCascades
}

// written reports a column that a statement may set.
func (c *column) written() bool { return !c.computed && !c.generated && c.base != "timestamp" }

// describe fills in the neutral description. Native is the type as DDL takes it,
// with the collation, which decides which texts a key holds equal.
func (c *column) describe() {
	c.base = strings.ToLower(c.base)
	if c.base == "rowversion" {
		c.base = "timestamp"
	}
	c.Native = c.base
	switch c.base {
	case "bit":
		c.Kind = weir.Bool
	case "tinyint", "smallint":
		c.Kind = weir.Int16
	case "int":
		c.Kind = weir.Int32
	case "bigint":
		c.Kind = weir.Int64
	case "real":
		c.Kind = weir.Float32
	case "float":
		c.Kind = weir.Float64
	case "decimal", "numeric":
		c.Kind, c.Precision, c.Scale = weir.Decimal, c.precision, c.scale
		c.Native = fmt.Sprintf("%s(%d,%d)", c.base, c.precision, c.scale)
	case "money":
		c.Kind, c.Precision, c.Scale = weir.Decimal, 19, 4
	case "smallmoney":
		c.Kind, c.Precision, c.Scale = weir.Decimal, 10, 4
	case "char", "varchar":
		c.Kind, c.Length = weir.Text, max(c.maxLength, 0)
		c.Native += c.size(c.maxLength)
	case "nchar", "nvarchar":
		c.Kind, c.Length = weir.Text, max(c.maxLength/2, 0)
		c.Native += c.size(c.maxLength / 2)
	case "text", "ntext":
		c.Kind = weir.Text
	case "binary", "varbinary":
		c.Kind, c.Length = weir.Bytes, max(c.maxLength, 0)
		c.Native += c.size(c.maxLength)
	case "image", "geometry", "geography":
		c.Kind = weir.Bytes
	case "timestamp":
		c.Kind, c.Length, c.Native = weir.Bytes, 8, "rowversion"
	case "uniqueidentifier":
		c.Kind = weir.UUID
	case "date":
		c.Kind = weir.Date
	case "time":
		c.Kind, c.Scale = weir.Time, c.scale
		c.Native = fmt.Sprintf("time(%d)", c.scale)
	case "datetime":
		c.Kind, c.Scale = weir.Timestamp, 3
	case "smalldatetime":
		c.Kind = weir.Timestamp
	case "datetime2":
		c.Kind, c.Scale = weir.Timestamp, c.scale
		c.Native = fmt.Sprintf("datetime2(%d)", c.scale)
	case "datetimeoffset":
		c.Kind, c.Scale = weir.TimestampTZ, c.scale
		c.Native = fmt.Sprintf("datetimeoffset(%d)", c.scale)
	case "xml":
		c.Kind = weir.XML
	case "hierarchyid":
		c.Kind = weir.Text
	case "sql_variant":
		c.Kind = weir.Any
	default: // a CLR type of the user's
		c.Kind = weir.Other
	}
	if c.textual() && c.collation != "" {
		c.Native += " COLLATE " + c.collation
	}
}

func (c *column) size(n int) string {
	if c.maxLength < 0 {
		return "(max)"
	}
	return fmt.Sprintf("(%d)", n)
}

// textual reports a column of characters.
func (c *column) textual() bool {
	switch c.base {
	case "char", "varchar", "nchar", "nvarchar", "text", "ntext":
		return true
	}
	return false
}

// unicode reports a column of UTF-16.
func (c *column) unicode() bool {
	return c.base == "nchar" || c.base == "nvarchar" || c.base == "ntext"
}

// createType is the type of a column that the target makes. A SQL Server
// source's type is kept, but for what is written nowhere (rowversion) or is no
// longer made (text, ntext, image).
func createType(c weir.Column, e weir.Encoding) string {
	if e == Encoding {
		base, collate, collated := strings.Cut(c.Native, " COLLATE ")
		switch base {
		case "rowversion":
			return "binary(8)"
		case "image":
			return "varbinary(max)"
		case "text":
			base = "varchar(max)"
		case "ntext":
			base = "nvarchar(max)"
		case "sql_variant":
			return "nvarchar(max)"
		}
		if c.Kind == weir.Other {
			return "varbinary(max)" // an assembly's type, which is not there
		}
		if collated {
			return base + " COLLATE " + collate
		}
		return base
	}
	switch c.Kind {
	case weir.Bool:
		return "bit"
	case weir.Int16:
		return "smallint"
	case weir.Int32:
		return "int"
	case weir.Int64:
		return "bigint"
	case weir.Float32:
		return "real"
	case weir.Float64:
		return "float"
	case weir.Decimal:
		return decimalType(c.Precision, c.Scale)
	case weir.Text:
		// Its characters may be two code units each.
		if c.Length > 0 && c.Length <= 2000 {
			return fmt.Sprintf("nvarchar(%d)", 2*c.Length)
		}
	case weir.Bytes:
		return "varbinary(max)"
	case weir.UUID:
		return "uniqueidentifier"
	case weir.Date:
		return "date"
	case weir.Time:
		return "time(7)"
	case weir.Timestamp:
		return "datetime2(7)"
	case weir.TimestampTZ:
		return "datetimeoffset(7)"
	case weir.XML:
		return "xml"
	case weir.TimeTZ, weir.JSON, weir.Any, weir.Other:
	}
	return "nvarchar(max)"
}

// decimalType holds 38 digits at most. Without a precision, 20 stand before the
// point.
func decimalType(precision, scale int) string {
	switch {
	case precision <= 0:
		precision, scale = 38, 18
	case scale < 0:
		precision, scale = precision-scale, 0
	case scale > precision:
		precision = scale
	}
	precision = min(precision, 38)
	return fmt.Sprintf("decimal(%d,%d)", precision, min(scale, precision))
}

// The most bytes of a clustered index's key, and of a text or bytes in it.
const keyBytes = 900

// keyTypes are the types of the key columns of a table that the target makes: a
// key has no (max), and tells texts apart as another engine does.
func keyTypes(key []string, b *weir.TableBatch) map[string]string {
	open, left := 0, keyBytes
	types := map[string]string{}
	for _, c := range b.Columns {
		for _, k := range key {
			if k != c.Name {
				continue
			}
			types[k] = createType(c, b.Encoding)
			if variable(types[k]) {
				open++
			} else {
				left -= 17
			}
		}
	}
	if b.Encoding == Encoding {
		return types // it was a key there
	}
	for k, typ := range types {
		switch {
		case strings.HasPrefix(typ, "nvarchar"):
			n := max(left/open/2, 1)
			var have int
			if _, err := fmt.Sscanf(typ, "nvarchar(%d)", &have); err == nil {
				n = min(n, have)
			}
			types[k] = fmt.Sprintf("nvarchar(%d) COLLATE Latin1_General_100_BIN2", n)
		case strings.HasPrefix(typ, "varbinary"):
			types[k] = fmt.Sprintf("varbinary(%d)", max(left/open, 1))
		}
	}
	return types
}

func variable(typ string) bool {
	return strings.Contains(typ, "char") || strings.Contains(typ, "binary")
}
