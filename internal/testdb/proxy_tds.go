package testdb

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf16"
)

// A tdsWire reads SQL Server's protocol, TDS 7.2 and later: messages of one or
// more packets, the last of which is marked.
type tdsWire struct{}

// A packet begins with its type, its status, its length in two bytes, big end
// first, and four bytes more.
const (
	tdsHeader = 8
	tdsLast   = 1 // in the status
)

func (tdsWire) request(r *bufio.Reader) (msg []byte, statement string, err error) {
	var body []byte
	for {
		start := len(msg)
		msg = append(msg, make([]byte, tdsHeader)...)
		if _, err := io.ReadFull(r, msg[start:]); err != nil {
			return nil, "", err
		}
		kind, status, length := msg[start], msg[start+1], int(binary.BigEndian.Uint16(msg[start+2:]))
		if length < tdsHeader {
			return nil, "", fmt.Errorf("packet of %d bytes", length)
		}
		start = len(msg)
		msg = append(msg, make([]byte, length-tdsHeader)...)
		if _, err := io.ReadFull(r, msg[start:]); err != nil {
			return nil, "", err
		}
		body = append(body, msg[start:]...)
		if status&tdsLast != 0 {
			return msg, tdsStatement(kind, body), nil
		}
	}
}

func (tdsWire) answered(answer []byte) bool {
	for len(answer) >= tdsHeader {
		length := int(binary.BigEndian.Uint16(answer[2:]))
		if length > len(answer) {
			return false
		}
		if answer[1]&tdsLast != 0 {
			return true
		}
		answer = answer[max(length, tdsHeader):]
	}
	return false
}

// tdsStatement returns the text of the statement that a message has executed,
// or "".
func tdsStatement(kind byte, body []byte) string {
	const batch, call, transaction = 0x01, 0x03, 0x0E
	if kind != batch && kind != call && kind != transaction {
		return ""
	}
	// Headers come first: four bytes of length, themselves included.
	in := tdsReader{body}
	in.take(in.int(4) - 4)
	switch kind {
	case batch:
		return utf16String(in.b)
	case transaction:
		switch in.int(2) {
		case 5:
			return "begin transaction"
		case 7:
			return "commit transaction"
		case 8:
			return "rollback transaction"
		}
		return ""
	}
	if n := in.int(2); n != 0xFFFF {
		return "exec " + utf16String(in.take(2*n))
	}
	const executeSQL = 10
	if in.int(2) != executeSQL {
		return ""
	}
	in.take(2)             // options
	in.take(2 * in.int(1)) // the first parameter's name
	in.take(1)             // its status
	const nvarchar, ntext = 0xE7, 0x63
	switch in.int(1) {
	case nvarchar:
		size := in.int(2)
		in.take(5) // collation
		if size != 0xFFFF {
			return utf16String(in.take(in.int(2)))
		}
		in.take(8) // length in all, or unknown; pieces follow
		var text []byte
		for n := in.int(4); n > 0; n = in.int(4) {
			text = append(text, in.take(n)...)
		}
		return utf16String(text)
	case ntext:
		in.take(4 + 5)
		return utf16String(in.take(in.int(4)))
	}
	return ""
}

// A tdsReader takes values off the front of b, and zeros once b is at its end.
type tdsReader struct{ b []byte }

func (r *tdsReader) take(n int) []byte {
	n = min(max(n, 0), len(r.b))
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

// int takes a number of n bytes, little end first.
func (r *tdsReader) int(n int) int {
	var b [8]byte
	copy(b[:], r.take(n))
	return int(binary.LittleEndian.Uint64(b[:]))
}

func utf16String(b []byte) string {
	units := make([]uint16, len(b)/2)
	_ = binary.Read(bytes.NewReader(b), binary.LittleEndian, units) // never short
	return string(utf16.Decode(units))
}
