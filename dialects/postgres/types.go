package postgres

import (
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weir-cdc/weir"
)

// column is a column as the catalog has it: the neutral description, and how
// this dialect reads it.
type column struct {
	weir.Column
	attnum    int16
	oid       uint32 // of the type, or of the type under a domain
	typmod    int32
	generated bool
	identity  bool // generated always as identity
	// asText reports that the value crosses as text, its type being the
	// database's own (enum, composite, extension) or one whose binary form holds
	// OIDs.
	asText bool
	isEnum bool
	// base is the type's qualified name without length or precision, for a cast
	// that neither cuts nor rounds.
	base string
	// deterministic is false where the collation holds values equal whose texts
	// differ.
	deterministic bool
}

// firstUserOID is the first OID that is not the same in every database
// (FirstNormalObjectId).
const firstUserOID = 16384

// describe fills in Kind, Native and asText. native is format_type's text.
func (c *column) describe(typtype, category, native string) {
	c.Native = native
	switch c.oid {
	case pgtype.BoolOID:
		c.Kind = weir.Bool
	case pgtype.Int2OID:
		c.Kind = weir.Int16
	case pgtype.Int4OID:
		c.Kind = weir.Int32
	case pgtype.Int8OID:
		c.Kind = weir.Int64
	case pgtype.Float4OID:
		c.Kind = weir.Float32
	case pgtype.Float8OID:
		c.Kind = weir.Float64
	case pgtype.NumericOID:
		c.Kind = weir.Decimal
		if c.typmod >= 4 {
			m := c.typmod - 4
			c.Precision = int(m >> 16 & 0xffff)
			c.Scale = int(m&0x7ff^1024) - 1024 // 11 bits, signed
		}
	case pgtype.TextOID, pgtype.NameOID, pgtype.QCharOID:
		c.Kind = weir.Text
	case pgtype.VarcharOID, pgtype.BPCharOID:
		c.Kind = weir.Text
		if c.typmod >= 4 {
			c.Length = int(c.typmod - 4)
		}
	case pgtype.ByteaOID:
		c.Kind = weir.Bytes
	case pgtype.UUIDOID:
		c.Kind = weir.UUID
	case pgtype.DateOID:
		c.Kind = weir.Date
	case pgtype.TimeOID:
		c.Kind, c.Scale = weir.Time, secondDigits(c.typmod)
	case pgtype.TimetzOID:
		c.Kind, c.Scale = weir.TimeTZ, secondDigits(c.typmod)
	case pgtype.TimestampOID:
		c.Kind, c.Scale = weir.Timestamp, secondDigits(c.typmod)
	case pgtype.TimestamptzOID:
		c.Kind, c.Scale = weir.TimestampTZ, secondDigits(c.typmod)
	case pgtype.JSONOID, pgtype.JSONBOID:
		c.Kind = weir.JSON
	case pgtype.XMLOID:
		c.Kind = weir.XML
	default:
		c.Kind = weir.Other
		if c.oid >= firstUserOID || typtype == "c" || typtype == "p" || holdsOIDs[c.oid] {
			// A type of this database only: the other side gets its text.
			c.asText = true
			c.Kind, c.Native = weir.Text, "text"
		}
	}
}

func secondDigits(typmod int32) int {
	if typmod < 0 {
		return 6
	}
	return int(typmod)
}

// holdsOIDs are the types whose binary form names objects of one database, or
// that have none (reg*, aclitem, and arrays of them are rare enough to leave).
var holdsOIDs = map[uint32]bool{
	24: true, 2202: true, 2203: true, 2204: true, 2205: true, 2206: true, 4096: true, 4089: true, 4191: true, 3734: true, 3769: true, 1033: true,
}

// keyText is the SQL expression for the lossless text of a key column: equal
// values give equal texts, whatever the session's settings (with sets, where
// they are needed). ok is false for a type that cannot be a key of weir's.
func (c *column) keyText(expr string) (text string, sets []string, ok bool) {
	if !c.deterministic {
		return "", nil, false
	}
	switch c.oid {
	case pgtype.BoolOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID, pgtype.TextOID, pgtype.VarcharOID,
		pgtype.BPCharOID, pgtype.NameOID, pgtype.UUIDOID, pgtype.TimeOID, pgtype.InetOID, pgtype.CIDROID, pgtype.MacaddrOID, 774:
		return expr + "::text", nil, true
	case pgtype.NumericOID:
		return "trim_scale(" + expr + ")::text", nil, true
	case pgtype.ByteaOID:
		return "encode(" + expr + ", 'hex')", nil, true
	case pgtype.Float4OID, pgtype.Float8OID:
		// -0 equals 0; a zero of the same type, or the sum has more digits.
		return "(" + expr + " + '0'::" + c.base + ")::text", []string{"extra_float_digits = 3"}, true
	case pgtype.DateOID, pgtype.TimestampOID:
		return expr + "::text", []string{"datestyle = 'ISO, YMD'"}, true
	case pgtype.TimestamptzOID:
		return expr + "::text", []string{"datestyle = 'ISO, YMD'", "timezone = 'UTC'"}, true
	}
	if c.isEnum {
		return expr + "::text", nil, true
	}
	return "", nil, false
}

// fromKeyText is the SQL expression that reads the text of keyText back.
func (c *column) fromKeyText(expr string) string {
	switch c.oid {
	case pgtype.ByteaOID:
		return "decode(" + expr + ", 'hex')"
	case pgtype.BPCharOID:
		return "(" + expr + ")::bpchar"
	}
	return "(" + expr + ")::" + c.base
}
