package sqlite

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-cdc/weir"
)

// Encoding is this dialect's own: the first byte of a field is the value's
// storage class, i (8 bytes, big-endian), r (IEEE 754, 8 bytes, big-endian), t
// (the text's bytes) or b (the bytes).
const Encoding weir.Encoding = "sqlite"

// A value is nil, int64, float64, string or []byte: SQLite's storage classes.
type value = any

func encode(v value) weir.Field {
	switch v := v.(type) {
	case int64:
		return binary.BigEndian.AppendUint64([]byte{'i'}, uint64(v))
	case float64:
		return binary.BigEndian.AppendUint64([]byte{'r'}, math.Float64bits(v))
	case string:
		return append([]byte{'t'}, v...)
	case []byte:
		return append([]byte{'b'}, v...)
	}
	return nil
}

func decode(f weir.Field) (value, error) {
	if f == nil {
		return nil, nil
	}
	if len(f) > 0 {
		switch rest := f[1:]; {
		case f[0] == 'i' && len(rest) == 8:
			return int64(binary.BigEndian.Uint64(rest)), nil
		case f[0] == 'r' && len(rest) == 8:
			return math.Float64frombits(binary.BigEndian.Uint64(rest)), nil
		case f[0] == 't':
			return string(rest), nil
		case f[0] == 'b':
			return append([]byte{}, rest...), nil
		}
	}
	return nil, errors.New("the field is not in the encoding of SQLite")
}

// plainText is a value's text by its storage class.
func plainText(v value) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

var (
	decimalForm = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	dateForm    = `([0-9]{4,}-[0-9]{2}-[0-9]{2})`
	timeForm    = `([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)`
	zoneForm    = `([+-][0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?)`
	eraForm     = `( BC)?`
	forms       = map[weir.Kind]*regexp.Regexp{
		weir.Date:        regexp.MustCompile(`^(?:` + dateForm + eraForm + `|-?infinity)$`),
		weir.Time:        regexp.MustCompile(`^` + timeForm + `$`),
		weir.TimeTZ:      regexp.MustCompile(`^` + timeForm + zoneForm + `$`),
		weir.Timestamp:   regexp.MustCompile(`^(?:` + dateForm + `[ T]` + timeForm + eraForm + `|-?infinity)$`),
		weir.TimestampTZ: regexp.MustCompile(`^(?:` + dateForm + `[ T]` + timeForm + `(?:\+00(?::00)?|Z)` + eraForm + `|-?infinity)$`),
	}
)

// neutral is a value's neutral text for its column's kind. ok is false where
// the value is none of that kind: the column's declared type does not bind
// SQLite.
func neutral(k weir.Kind, v value) (f weir.Field, ok bool) {
	text := func(s string) (weir.Field, bool) { return weir.Field(s), true }
	i, isInt := v.(int64)
	r, isReal := v.(float64)
	s, isText := v.(string)
	b, isBlob := v.([]byte)
	switch k {
	case weir.Any, weir.Other:
		return text(plainText(v))
	case weir.Bool:
		if isInt && (i == 0 || i == 1) {
			return text(strconv.FormatBool(i == 1))
		}
	case weir.Int16, weir.Int32, weir.Int64:
		if isInt {
			return text(plainText(v))
		}
	case weir.Float32, weir.Float64:
		if isReal || isInt {
			return text(plainText(v))
		}
	case weir.Decimal:
		switch {
		case isInt, isReal && math.IsInf(r, 0):
			return text(plainText(v))
		case isReal:
			return text(strconv.FormatFloat(r, 'f', -1, 64))
		case isText && (decimalForm.MatchString(s) || s == "NaN" || s == "Infinity" || s == "-Infinity"):
			return text(s)
		}
	case weir.Text, weir.XML:
		if isText {
			return text(s)
		}
	case weir.JSON:
		if isText || isInt || isReal && !math.IsInf(r, 0) {
			return text(plainText(v))
		}
	case weir.Bytes:
		if isBlob {
			return weir.Field(append([]byte{}, b...)), true
		}
	case weir.UUID:
		if isBlob && len(b) == 16 {
			return text(weir.GUID(b).String())
		}
		if g, err := weir.ParseGUID(s); isText && err == nil {
			return text(g.String())
		}
	case weir.Date, weir.Time, weir.TimeTZ, weir.Timestamp, weir.TimestampTZ:
		if !isText || !forms[k].MatchString(s) {
			break
		}
		if k == weir.Timestamp || k == weir.TimestampTZ {
			s = strings.Replace(s, "T", " ", 1)
		}
		if k == weir.TimestampTZ {
			s = strings.Replace(strings.Replace(s, "+00:00", "+00", 1), "Z", "+00", 1)
		}
		return text(s)
	}
	return weir.Field(plainText(v)), false
}

// fromNeutral reads a neutral text as the value that a column made by
// createType stores. ok is false for a text that is none of the kind.
func fromNeutral(k weir.Kind, f weir.Field) (v value, ok bool) {
	if f == nil {
		return nil, true
	}
	s := string(f)
	switch k {
	case weir.Bool:
		switch s {
		case "true":
			return int64(1), true
		case "false":
			return int64(0), true
		}
		return s, false
	case weir.Int16, weir.Int32, weir.Int64:
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, true
		}
		return s, false
	case weir.Float32, weir.Float64:
		if x, err := strconv.ParseFloat(s, 64); err == nil {
			return x, true
		}
		return s, false
	case weir.Bytes:
		return append([]byte{}, f...), true
	case weir.Decimal, weir.UUID, weir.Date, weir.Time, weir.TimeTZ, weir.Timestamp, weir.TimestampTZ:
		_, ok := neutral(k, s)
		return s, ok
	case weir.Text, weir.JSON, weir.XML, weir.Any, weir.Other:
	}
	return s, true
}

// number is what an affinity of numbers takes for one: leading and trailing
// blanks are passed over, hexadecimal is not read.
var number = regexp.MustCompile(`^[ \t\n\v\f\r]*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\v\f\r]*$`)

// store returns what a target's column holds of a value, bound so that SQLite
// changes it no more; why it cannot be held as it is otherwise. A text in digits
// may become a number that reads the same, and a number its text.
func store(c *column, v value) (value, error) {
	if x, isReal := v.(float64); isReal {
		switch {
		case math.IsNaN(x):
			return nil, errors.New("SQLite has no NaN")
		case x == 0 && math.Signbit(x) && c.affinity == affReal:
			return nil, errors.New("the column's type would store -0.0 as 0.0")
		case c.affinity == affText:
			v = floatText(x)
		case c.affinity == affInteger || c.affinity == affNumeric:
			if i, ok := wholeNumber(x); ok {
				v = i
				if math.Signbit(x) && i == 0 {
					return nil, errors.New("the column's type would store -0.0 as 0")
				}
			}
		}
	}
	if i, isInt := v.(int64); isInt {
		switch c.affinity {
		case affText:
			v = strconv.FormatInt(i, 10)
		case affReal:
			x := float64(i)
			if back, ok := wholeNumber(x); !ok || back != i {
				return nil, errors.New("the column's type would round the number")
			}
			v = x
		case affBlob, affNumeric, affInteger:
		}
	}
	if s, isText := v.(string); isText && c.affinity >= affNumeric && number.MatchString(s) {
		n, ok := readNumber(s)
		if i, isInt := n.(int64); isInt && ok && c.affinity == affReal {
			back, whole := wholeNumber(float64(i))
			n, ok = float64(i), whole && back == i
		}
		if !ok {
			return nil, errors.New("the column's type would make another number of the text")
		}
		v = n
	}
	if c.strict && v != nil {
		return v, strictFit(c, v)
	}
	return v, nil
}

// wholeNumber returns the integer that x is.
func wholeNumber(x float64) (int64, bool) {
	if x != math.Trunc(x) || x < -(1<<63) || x >= 1<<63 {
		return 0, false
	}
	return int64(x), true
}

// readNumber reads a text as the number that has this very text.
func readNumber(s string) (value, bool) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, strconv.FormatInt(i, 10) == s
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(x, 0) {
		return nil, false
	}
	if _, whole := wholeNumber(x); whole {
		return nil, false
	}
	return x, floatText(x) == s || strconv.FormatFloat(x, 'f', -1, 64) == s
}

// strictFit refuses what a STRICT table does.
func strictFit(c *column, v value) error {
	ok := true
	switch v.(type) {
	case int64:
		ok = c.affinity == affInteger || c.affinity == affBlob && !strings.EqualFold(c.declared, "blob")
	case float64:
		ok = c.affinity == affReal || c.affinity == affBlob && !strings.EqualFold(c.declared, "blob")
	case string:
		ok = c.affinity == affText || c.affinity == affBlob && !strings.EqualFold(c.declared, "blob")
	case []byte:
		ok = c.affinity == affBlob
	}
	if !ok {
		return fmt.Errorf("a column %s of a STRICT table cannot hold a value of another type", c.declared)
	}
	return nil
}

// sqlText is a value as an SQL literal: the form of a key in old_primary_key.
func sqlText(v value) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case string:
		if strings.ContainsRune(v, 0) {
			return fmt.Sprintf("CAST(X'%X' AS TEXT)", v)
		}
		return literal(v)
	case []byte:
		return fmt.Sprintf("X'%X'", v)
	}
	return "NULL"
}

// parseKey reads n SQL literals joined by commas.
func parseKey(s string, n int) ([]value, error) {
	var out []value
	bad := fmt.Errorf("%q are not %d SQL literals joined by commas", s, n)
	for rest := s; ; {
		var v value
		var err error
		if v, rest, err = parseLiteral(rest); err != nil {
			return nil, bad
		}
		out = append(out, v)
		if rest == "" {
			break
		}
		if rest[0] != ',' {
			return nil, bad
		}
		rest = rest[1:]
	}
	if len(out) != n {
		return nil, bad
	}
	return out, nil
}

func parseLiteral(s string) (v value, rest string, err error) {
	bad := errors.New("no literal")
	switch {
	case strings.HasPrefix(s, "CAST(X'"):
		v, rest, err = parseLiteral(s[len("CAST("):])
		b, ok := v.([]byte)
		if err != nil || !ok || !strings.HasPrefix(rest, " AS TEXT)") {
			return nil, "", bad
		}
		return string(b), rest[len(" AS TEXT)"):], nil
	case strings.HasPrefix(s, "X'"):
		digits, rest, ok := strings.Cut(s[2:], "'")
		b, err := hex.DecodeString(digits)
		if !ok || err != nil {
			return nil, "", bad
		}
		return b, rest, nil
	case strings.HasPrefix(s, "'"):
		var b strings.Builder
		for i := 1; i < len(s); i++ {
			if s[i] != '\'' {
				b.WriteByte(s[i])
				continue
			}
			if i+1 < len(s) && s[i+1] == '\'' {
				b.WriteByte('\'')
				i++
				continue
			}
			return b.String(), s[i+1:], nil
		}
		return nil, "", bad
	}
	text, _, _ := strings.Cut(s, ",")
	rest = s[len(text):]
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, rest, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(x, 0) || text == "" || strings.ContainsAny(text, "xX_nN") {
		return nil, "", bad
	}
	return x, rest, nil
}

// shorten makes a value fit for a message.
func shorten(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", `\0`), "?")
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "..."
	}
	return s
}
