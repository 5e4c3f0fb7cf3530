package weir

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// GUID is a 128-bit identifier in the byte order of its text (RFC 9562, section
// 4). The zero GUID stands for NULL wherever a column may be null.
type GUID [16]byte

// NewGUID returns a random GUID, version 4 of RFC 9562.
func NewGUID() GUID {
	var g GUID
	rand.Read(g[:]) // never fails: crypto/rand.Read crashes the program instead
	g[6] = g[6]&0x0f | 0x40
	g[8] = g[8]&0x3f | 0x80
	return g
}

// ParseGUID reads the 36-character form, in either case, with or without
// braces.
func ParseGUID(s string) (GUID, error) {
	var g GUID
	t := s
	if len(t) == 38 && t[0] == '{' && t[37] == '}' {
		t = t[1:37]
	}
	if len(t) != 36 || t[8] != '-' || t[13] != '-' || t[18] != '-' || t[23] != '-' {
		return GUID{}, fmt.Errorf("parse GUID %q: want 8-4-4-4-12 hexadecimal digits", s)
	}
	if _, err := hex.Decode(g[:], []byte(t[0:8]+t[9:13]+t[14:18]+t[19:23]+t[24:36])); err != nil {
		return GUID{}, fmt.Errorf("parse GUID %q: %w", s, err)
	}
	return g, nil
}

// String returns the 36-character form in lower case.
func (g GUID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], g[0:4])
	hex.Encode(b[9:13], g[4:6])
	hex.Encode(b[14:18], g[6:8])
	hex.Encode(b[19:23], g[8:10])
	hex.Encode(b[24:36], g[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// IsZero reports whether g is the zero GUID, which stands for NULL.
func (g GUID) IsZero() bool { return g == GUID{} }

// MarshalText returns the form of [GUID.String].
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads the forms that [ParseGUID] reads.
func (g *GUID) UnmarshalText(b []byte) error {
	p, err := ParseGUID(string(b))
	if err != nil {
		return err
	}
	*g = p
	return nil
}
