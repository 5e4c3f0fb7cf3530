package testdb

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
)

// A postgresWire reads PostgreSQL's protocol, version 3.
type postgresWire struct {
	started  bool              // until then, messages have no type byte
	prepared map[string]string // text of statements by name
}

func (w *postgresWire) request(r *bufio.Reader) (msg []byte, statement string, err error) {
	msg, err = w.message(r)
	switch {
	case err != nil:
		return nil, "", err
	case w.started:
		return msg, w.statement(msg), nil
	}
	// Requests for TLS, GSS and cancellation have codes above 3.x.
	w.started = binary.BigEndian.Uint16(msg[4:]) == 3
	return msg, "", nil
}

// idle finds the end of an answer: ReadyForQuery with any transaction state.
var idle = regexp.MustCompile(`Z\x00\x00\x00\x05[ITE]`)

func (w *postgresWire) answered(answer []byte) bool { return idle.Match(answer) }

// statement notes what Parse prepares.
func (w *postgresWire) statement(msg []byte) string {
	switch body := msg[5:]; msg[0] {
	case 'Q': // Query: text
		return cstring(&body)
	case 'P': // Parse: name, text
		name := cstring(&body)
		w.prepared[name] = cstring(&body)
	case 'B': // Bind: portal, name
		cstring(&body)
		return w.prepared[cstring(&body)]
	}
	return ""
}

// cstring takes a zero-terminated string off the front of b.
func cstring(b *[]byte) string {
	s, rest, _ := bytes.Cut(*b, []byte{0})
	*b = rest
	return string(s)
}

// message reads one message, whole.
func (w *postgresWire) message(r *bufio.Reader) ([]byte, error) {
	head := 4 // length, itself included
	if w.started {
		head = 5
	}
	msg := make([]byte, head)
	if _, err := io.ReadFull(r, msg); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(msg[head-4:]))
	if length < 4 || !w.started && length < 8 || length > 1<<30 {
		return nil, fmt.Errorf("message of %d bytes", length)
	}
	msg = append(msg, make([]byte, length-4)...)
	_, err := io.ReadFull(r, msg[head:])
	return msg, err
}
