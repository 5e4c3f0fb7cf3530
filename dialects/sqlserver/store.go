package sqlserver

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-cdc/weir"
)

// stageType is the type of the staging column for a target's column: one that
// bulk copy carries exactly, and that CONVERT reads.
func (c *column) stageType() string {
	switch c.base {
	case "bit", "tinyint", "smallint", "int", "bigint":
		return "bigint"
	case "real", "float":
		return "float"
	case "binary", "varbinary", "image", "timestamp", "geometry", "geography":
		return "varbinary(max)"
	case "char", "varchar", "nchar", "nvarchar":
		if c.maxLength > 0 {
			return "nvarchar(4000) COLLATE DATABASE_DEFAULT"
		}
	case "decimal", "numeric", "money", "smallmoney", "uniqueidentifier", "date", "time", "datetime", "smalldatetime", "datetime2", "datetimeoffset":
		return "nvarchar(80) COLLATE DATABASE_DEFAULT"
	}
	return "nvarchar(max) COLLATE DATABASE_DEFAULT"
}

// fromStage is the SQL expression that makes the target's value of a staged one,
// which store has found to fit. An explicit collation makes the code page the
// column's own, and a comparison with it legal whatever tempdb's is.
func (c *column) fromStage(s string) string {
	switch c.base {
	case "char", "varchar", "nchar", "nvarchar":
		typ, _, _ := strings.Cut(c.Native, " COLLATE")
		return fmt.Sprintf("CONVERT(%s, %s COLLATE %s)", typ, s, c.collation)
	case "text":
		return fmt.Sprintf("CONVERT(varchar(max), %s COLLATE %s)", s, c.collation)
	case "ntext", "varbinary", "image", "bigint", "float":
		return s
	case "xml":
		return fmt.Sprintf("CONVERT(xml, %s, 1)", s) // 1 keeps white space
	case "date", "datetime", "smalldatetime", "datetime2", "datetimeoffset":
		return fmt.Sprintf("CONVERT(%s, %s, 121)", c.Native, s)
	}
	return fmt.Sprintf("CONVERT(%s, %s)", c.Native, s)
}

// serverCheck is a condition over a staged value that is true where only the
// server can tell that it does not fit; empty where store tells all.
func (c *column) serverCheck(s string) string {
	switch c.base {
	case "char", "varchar", "text":
		// What the code page lacks would become a question mark, or a letter that
		// looks like it; a length counts bytes.
		size := "max"
		if c.maxLength > 0 {
			size = strconv.Itoa(c.maxLength)
		}
		return fmt.Sprintf("CONVERT(varbinary(max), CONVERT(nvarchar(max), CONVERT(varchar(%s), %s COLLATE %s))) <> CONVERT(varbinary(max), CONVERT(nvarchar(max), %s))", size, s, c.collation, s)
	case "xml":
		return fmt.Sprintf("%s IS NOT NULL AND TRY_CONVERT(xml, %s, 1) IS NULL", s, s)
	}
	return ""
}

var (
	integerForm = regexp.MustCompile(`^[-+]?[0-9]+$`)
	decimalForm = regexp.MustCompile(`^([-+]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]{1,4}))?$`)
	dateForm    = regexp.MustCompile(`^([0-9]{4})-([0-9]{2})-([0-9]{2})$`)
	timeForm    = regexp.MustCompile(`^([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?$`)
	zoneForm    = regexp.MustCompile(`^(.*?) ?([-+][0-9]{2})(?::([0-9]{2}))?$`)
)

// store makes of a field the value that is staged for the target's column, or
// says why the column cannot hold it as it is.
func (c *column) store(from weir.Column, f weir.Field) (any, error) {
	if f == nil {
		return nil, nil
	}
	if from.Kind == weir.Bytes {
		switch c.stageType() {
		case "varbinary(max)":
			return c.storeBytes(f)
		}
		if c.textual() {
			return c.storeText(fmt.Sprintf(`\x%x`, f))
		}
		return nil, fmt.Errorf("bytes cannot become %s", c.Native)
	}
	if !utf8.Valid(f) {
		return nil, errors.New("the text is not valid UTF-8")
	}
	s := string(f)
	if from.Kind == weir.Bool {
		switch c.base {
		case "tinyint", "smallint", "int", "bigint", "decimal", "numeric", "money", "smallmoney", "real", "float":
			s = map[string]string{"true": "1", "false": "0"}[s]
		}
	}
	switch c.base {
	case "bit":
		switch s {
		case "true", "1":
			return int64(1), nil
		case "false", "0":
			return int64(0), nil
		}
		return nil, errors.New("it is neither true nor false")
	case "tinyint", "smallint", "int", "bigint":
		return c.storeInteger(s)
	case "real", "float":
		return c.storeFloat(from.Kind, s)
	case "decimal", "numeric":
		return storeDecimal(s, c.precision, c.scale)
	case "money":
		return storeMoney(s, math.MinInt64, math.MaxInt64)
	case "smallmoney":
		return storeMoney(s, math.MinInt32, math.MaxInt32)
	case "uniqueidentifier":
		g, err := weir.ParseGUID(s)
		if err != nil {
			return nil, errors.New("it is no uniqueidentifier")
		}
		return g.String(), nil
	case "date", "time", "datetime", "smalldatetime", "datetime2", "datetimeoffset":
		return c.storeTime(s)
	case "char", "varchar", "nchar", "nvarchar", "text", "ntext":
		return c.storeText(s)
	case "xml", "hierarchyid":
		return s, nil
	}
	return nil, fmt.Errorf("%s cannot become %s", from.Native, c.Native)
}

func (c *column) storeBytes(f weir.Field) (any, error) {
	switch {
	case c.base == "binary" && len(f) != c.maxLength:
		return nil, fmt.Errorf("it has %d bytes, and %s would pad or cut it", len(f), c.Native)
	case c.base == "varbinary" && c.maxLength > 0 && len(f) > c.maxLength:
		return nil, fmt.Errorf("it has %d bytes, and the column is %s", len(f), c.Native)
	}
	return []byte(f), nil
}

func (c *column) storeText(s string) (any, error) {
	if c.maxLength > 0 {
		limit := c.Length
		if n := units(s); n > limit {
			return nil, fmt.Errorf("it has %d characters, and the column is %s", n, c.Native)
		}
	}
	return s, nil
}

func (c *column) storeInteger(s string) (any, error) {
	if !integerForm.MatchString(s) {
		// 1.00 is a whole number, too.
		whole, err := storeDecimal(s, 19, 0)
		if err != nil {
			return nil, fmt.Errorf("it is no whole number that %s holds", c.base)
		}
		s = whole.(string)
	}
	i, err := strconv.ParseInt(s, 10, 64)
	limits := map[string][2]int64{
		"tinyint": {0, 255}, "smallint": {math.MinInt16, math.MaxInt16}, "int": {math.MinInt32, math.MaxInt32}, "bigint": {math.MinInt64, math.MaxInt64},
	}[c.base]
	if err != nil || i < limits[0] || i > limits[1] {
		return nil, fmt.Errorf("%s holds %d to %d", c.base, limits[0], limits[1])
	}
	return i, nil
}

// The smallest numbers that are documented: smaller ones may become zero.
const (
	smallestFloat = 2.2250738585072014e-308
	smallestReal  = 1.1754943508222875e-38
)

func (c *column) storeFloat(from weir.Kind, s string) (any, error) {
	bits, smallest := 64, smallestFloat
	if c.base == "real" {
		bits, smallest = 32, smallestReal
	}
	x, err := strconv.ParseFloat(s, bits)
	switch {
	case err != nil, math.IsNaN(x), math.IsInf(x, 0):
		return nil, fmt.Errorf("%s has no such number", c.base)
	case x != 0 && math.Abs(x) < smallest:
		return nil, fmt.Errorf("%s holds no number so near to zero", c.base)
	case from == weir.Float32 || from == weir.Float64 && bits == 64:
		return x, nil
	}
	// Digits that the number does not keep would be lost.
	if !sameDigits(s, strconv.FormatFloat(x, 'g', -1, bits)) {
		return nil, fmt.Errorf("%s would round it", c.base)
	}
	return x, nil
}

// digitsOf takes a decimal's text apart: digits without leading zeros, and how
// many of them stand behind the point, without trailing zeros there.
func digitsOf(s string) (negative bool, digits string, scale int, ok bool) {
	m := decimalForm.FindStringSubmatch(s)
	if m == nil || m[2] == "" && m[3] == "" {
		return false, "", 0, false
	}
	exponent := 0
	if m[4] != "" {
		exponent, _ = strconv.Atoi(m[4])
	}
	digits, scale = m[2]+m[3], len(m[3])-exponent
	for scale > 0 && strings.HasSuffix(digits, "0") {
		digits, scale = digits[:len(digits)-1], scale-1
	}
	if scale < 0 {
		digits, scale = digits+strings.Repeat("0", -scale), 0
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return false, "", 0, true
	}
	return m[1] == "-", digits, scale, true
}

func sameDigits(a, b string) bool {
	n1, d1, s1, ok1 := digitsOf(a)
	n2, d2, s2, ok2 := digitsOf(b)
	return ok1 && ok2 && n1 == n2 && d1 == d2 && s1 == s2
}

func storeDecimal(s string, precision, scale int) (any, error) {
	negative, digits, have, ok := digitsOf(s)
	if !ok {
		return nil, errors.New("it is no number that decimal holds")
	}
	if have > scale {
		return nil, fmt.Errorf("it has %d digits behind the point, and the column has %d", have, scale)
	}
	if whole := len(digits) - have; whole > precision-scale {
		return nil, fmt.Errorf("it has %d digits before the point, and the column has %d", whole, precision-scale)
	}
	if len(digits) <= have {
		digits = strings.Repeat("0", have-len(digits)+1) + digits
	}
	out := digits[:len(digits)-have]
	if have > 0 {
		out += "." + digits[len(digits)-have:]
	}
	if negative {
		out = "-" + out
	}
	return out, nil
}

// storeMoney bounds the number in ten-thousandths.
func storeMoney(s string, least, most int64) (any, error) {
	v, err := storeDecimal(s, 19, 4)
	if err != nil {
		return nil, err
	}
	whole, fraction, _ := strings.Cut(v.(string), ".")
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", 4-len(fraction)), 10, 64)
	if err != nil || n < least || n > most {
		return nil, errors.New("money does not reach so far")
	}
	return v, nil
}

// storeTime checks a date, a time or both against the column's range and its
// digits of a second, and writes it as CONVERT's style 121 reads it.
func (c *column) storeTime(s string) (any, error) {
	bad := fmt.Errorf("it is nothing that %s holds", c.Native)
	zone := ""
	if m := zoneForm.FindStringSubmatch(s); m != nil && strings.Contains(m[1], ":") {
		minutes := m[3]
		if minutes == "" {
			minutes = "00"
		}
		s, zone = m[1], m[2]+":"+minutes
	}
	date, clock, both := strings.Cut(s, " ")
	if !both && strings.Contains(s, ":") {
		date, clock = "", s
	}
	var day time.Time
	if date != "" {
		var err error
		if day, err = time.Parse("2006-01-02", date); err != nil || !dateForm.MatchString(date) || day.Year() < 1 {
			return nil, bad
		}
	}
	fraction := ""
	seconds := "00"
	midnight := true
	if clock != "" {
		m := timeForm.FindStringSubmatch(clock)
		if m == nil {
			return nil, bad
		}
		seconds, fraction = m[3], strings.TrimRight(m[4], "0")
		midnight = m[1] == "00" && m[2] == "00" && seconds == "00" && fraction == ""
		clock = m[1] + ":" + m[2] + ":" + seconds
	} else {
		clock = "00:00:00"
	}
	if zone != "" && c.base != "datetimeoffset" && zone != "+00:00" && zone != "-00:00" {
		return nil, fmt.Errorf("%s holds no offset", c.Native)
	}
	if c.base != "time" && date == "" || c.base == "time" && (date != "" || zone != "") {
		return nil, bad
	}
	digits := c.scale
	switch c.base {
	case "date":
		if !midnight {
			return nil, errors.New("a date holds no time of the day")
		}
		return date, nil
	case "datetime":
		if day.Year() < 1753 {
			return nil, errors.New("datetime begins with the year 1753")
		}
		digits = 3
		if full := fraction + strings.Repeat("0", max(0, 3-len(fraction))); len(full) == 3 && !strings.ContainsRune("037", rune(full[2])) {
			return nil, errors.New("datetime would round it to a multiple of 1/300 of a second")
		}
	case "smalldatetime":
		if day.Year() < 1900 || !day.Before(time.Date(2079, 6, 7, 0, 0, 0, 0, time.UTC)) {
			return nil, errors.New("smalldatetime reaches from 1900-01-01 to 2079-06-06")
		}
		if seconds != "00" || fraction != "" {
			return nil, errors.New("smalldatetime holds no seconds")
		}
		digits = 0
	}
	if len(fraction) > digits {
		return nil, fmt.Errorf("it has %d digits of a second, and the column is %s", len(fraction), c.Native)
	}
	if fraction != "" {
		clock += "." + fraction
	}
	if c.base == "time" {
		return clock, nil
	}
	out := date + " " + clock
	if c.base == "datetimeoffset" {
		if zone == "" {
			zone = "+00:00"
		}
		out += " " + zone
	}
	return out, nil
}
