package sqlserver

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/weir-cdc/weir"
)

// readExpr is the SQL expression that brings the value of a column, named by
// expr, in the form that field takes. A code page is the server's to convert.
func (c *column) readExpr(expr string) string {
	switch c.base {
	case "char", "varchar", "text", "ntext", "xml":
		return "CONVERT(nvarchar(max), " + expr + ")"
	case "hierarchyid":
		return expr + ".ToString()"
	case "sql_variant":
		return variantText(expr)
	case "geometry", "geography", "image", "timestamp":
		return "CONVERT(varbinary(max), " + expr + ")"
	}
	if c.Kind == weir.Other {
		return "CONVERT(varbinary(max), " + expr + ")"
	}
	return expr
}

// variantText is the text of a sql_variant's value by its base type.
func variantText(expr string) string {
	as := func(typ, style string) string {
		return fmt.Sprintf("CONVERT(nvarchar(4000), CONVERT(%s, %s)%s)", typ, expr, style)
	}
	return fmt.Sprintf(`CASE CONVERT(nvarchar(128), SQL_VARIANT_PROPERTY(%s, 'BaseType'))
WHEN N'float' THEN %s WHEN N'real' THEN %s WHEN N'money' THEN %s WHEN N'smallmoney' THEN %s
WHEN N'datetime' THEN %s WHEN N'smalldatetime' THEN %s WHEN N'datetime2' THEN %s WHEN N'datetimeoffset' THEN %s
WHEN N'date' THEN %s WHEN N'time' THEN %s
WHEN N'binary' THEN %s WHEN N'varbinary' THEN %s
ELSE CONVERT(nvarchar(4000), %s) END`, expr,
		as("float", ", 3"), as("real", ", 3"), as("money", ", 2"), as("smallmoney", ", 2"),
		as("datetime", ", 121"), as("smalldatetime", ", 120"), as("datetime2(7)", ", 121"), as("datetimeoffset(7)", ", 121"),
		as("date", ", 23"), as("time(7)", ", 114"),
		as("varbinary(8000)", ", 2"), as("varbinary(8000)", ", 2"), expr)
}

// field is the neutral text (or the text in this dialect's own encoding) of a
// value that the driver read by readExpr.
func (c *column) field(v any, e weir.Encoding) (weir.Field, error) {
	if v == nil {
		return nil, nil
	}
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(nil, v), nil
	case int64:
		if c.Kind == weir.Bool {
			return strconv.AppendBool(nil, v != 0), nil
		}
		return strconv.AppendInt(nil, v, 10), nil
	case float64:
		return weir.Field(floatText(v, c.Kind)), nil
	case string:
		return append(weir.Field{}, v...), nil
	case []byte:
		if c.Kind == weir.UUID {
			if len(v) != 16 {
				return nil, fmt.Errorf("a uniqueidentifier of %d bytes", len(v))
			}
			return weir.Field(guidOf(v).String()), nil
		}
		return append(weir.Field{}, v...), nil
	case time.Time:
		return weir.Field(c.timeText(v, e)), nil
	}
	return nil, fmt.Errorf("the driver read %s as %T", c.Native, v)
}

// timeText writes a time with as many digits of a second as it has, like
// PostgreSQL does: none where the fraction is zero.
func (c *column) timeText(t time.Time, e weir.Encoding) string {
	switch c.Kind {
	case weir.Date:
		return t.Format("2006-01-02")
	case weir.Time:
		return t.Format("15:04:05.9999999")
	case weir.TimestampTZ:
		if e == Encoding {
			return t.Format("2006-01-02 15:04:05.9999999 -07:00")
		}
		t = t.UTC()
		if t.Year() < 1 {
			// An offset east of Greenwich on the first day: the year before 1 is 1 BC.
			return "0001" + t.Format("-01-02 15:04:05.9999999") + "+00 BC"
		}
		return t.Format("2006-01-02 15:04:05.9999999") + "+00"
	}
	return t.Format("2006-01-02 15:04:05.9999999")
}

// floatText is the shortest text that reads back.
func floatText(f float64, k weir.Kind) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	bits := 64
	if k == weir.Float32 {
		bits = 32
	}
	return strconv.FormatFloat(f, 'g', -1, bits)
}

// guidOf reads a uniqueidentifier as the server stores and sends it: the first
// three groups are little-endian.
func guidOf(b []byte) weir.GUID {
	return weir.GUID{b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]}
}

// guidBytes is the other way.
func guidBytes(g weir.GUID) []byte {
	b := guidOf(g[:])
	return b[:]
}
