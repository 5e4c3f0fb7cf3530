package postgres

import (
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/weir-cdc/weir"
)

// copyReader is a table's rows as a binary COPY stream (PostgreSQL manual, COPY,
// "Binary Format"), a row at a time.
type copyReader struct {
	dest  *destination
	batch *weir.TableBatch

	buf       []byte
	item, row int
	state     int // 0 header, 1 rows, 2 done
	fault     *weir.RowError
}

func (r *copyReader) Read(p []byte) (int, error) {
	for len(r.buf) < len(p) && r.state < 2 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	if len(r.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *copyReader) fill() error {
	if r.state == 0 {
		r.buf = append(r.buf, "PGCOPY\n\xff\r\n\x00"...)
		r.buf = append(r.buf, make([]byte, 8)...)
		r.state = 1
	}
	for r.item < len(r.batch.Items) && r.row >= len(r.batch.Items[r.item].Rows) {
		r.item, r.row = r.item+1, 0
	}
	if r.item >= len(r.batch.Items) {
		r.buf = append(r.buf, 0xff, 0xff)
		r.state = 2
		return nil
	}
	item := &r.batch.Items[r.item]
	row := item.Rows[r.row]
	r.row++
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(len(r.dest.columns)+1))
	r.buf = binary.BigEndian.AppendUint32(r.buf, 4)
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(r.item))
	for i := range r.dest.columns {
		m := &r.dest.columns[i]
		f := row[m.place]
		if f == nil {
			r.buf = append(r.buf, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		if r.batch.Encoding == weir.EncodingText {
			if why := refuse(m, f); why != "" {
				r.fault = &weir.RowError{Table: r.dest.message, Key: keyText(item), Column: m.Name, Value: shorten(string(f)), Err: fmt.Errorf("%s", why)}
				return r.fault
			}
		}
		r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(len(f)))
		r.buf = append(r.buf, f...)
	}
	return nil
}

// The neutral text forms of weir.Kind, where PostgreSQL's input would take more
// than them, or would round.
var neutralForms = map[weir.Kind]*regexp.Regexp{
	weir.Bool:        regexp.MustCompile(`^(true|false)$`),
	weir.Int16:       regexp.MustCompile(`^-?[0-9]+$`),
	weir.Int32:       regexp.MustCompile(`^-?[0-9]+$`),
	weir.Int64:       regexp.MustCompile(`^-?[0-9]+$`),
	weir.Float32:     regexp.MustCompile(`^(-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|NaN|-?Infinity)$`),
	weir.Float64:     regexp.MustCompile(`^(-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|NaN|-?Infinity)$`),
	weir.Decimal:     regexp.MustCompile(`^([-+]?[0-9]*(\.[0-9]*)?([eE][-+]?[0-9]+)?|NaN|-?Infinity)$`),
	weir.Date:        regexp.MustCompile(`^(` + dateForm + `( BC)?|-?infinity)$`),
	weir.Time:        regexp.MustCompile(`^(` + timeForm + `|` + midnight + `)$`),
	weir.TimeTZ:      regexp.MustCompile(`^(` + timeForm + `|` + midnight + `)` + zoneForm + `$`),
	weir.Timestamp:   regexp.MustCompile(`^(` + dateForm + ` ` + timeForm + `( BC)?|-?infinity)$`),
	weir.TimestampTZ: regexp.MustCompile(`^(` + dateForm + ` ` + timeForm + zoneForm + `( BC)?|-?infinity)$`),
}

// PostgreSQL's input would make another time of a second 60, and another day of
// an hour 24; of a time alone 24:00:00 is a value.
const (
	dateForm = `[0-9]{4,7}-[0-9]{2}-[0-9]{2}`
	timeForm = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6}0*)?`
	midnight = `24:00:00(\.0+)?`
	zoneForm = `[-+][0-9]{2}(:[0-9]{2}){0,2}`
)

// refuse says why a neutral field cannot be written to PostgreSQL as it is, or
// nothing.
func refuse(m *mapped, f weir.Field) string {
	if m.Kind == weir.Bytes {
		return ""
	}
	if i := strings.IndexByte(string(f), 0); i >= 0 {
		return "PostgreSQL's text cannot hold the character U+0000"
	}
	if !utf8.Valid(f) {
		return "the text is not valid UTF-8"
	}
	if form := neutralForms[m.Kind]; form != nil && !form.Match(f) {
		return fmt.Sprintf("it is no %s that PostgreSQL can hold as it is", m.Kind)
	}
	return ""
}

// valueOf shows a field of an item's first row to people; binary forms are
// hexadecimal.
func valueOf(item *weir.Item, place int) string {
	if len(item.Rows) == 0 {
		return ""
	}
	f := item.Rows[0][place]
	switch {
	case f == nil:
		return "NULL"
	case utf8.Valid(f) && !strings.ContainsFunc(string(f), func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' }):
		return shorten(string(f))
	}
	return shorten(fmt.Sprintf(`\x%x`, f))
}
