package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
)

func TestTranslate(t *testing.T) {
	server := func(n int32, class uint8, text string) error {
		return fmt.Errorf("wrapped: %w", mssql.Error{Number: n, Class: class, Message: text})
	}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"deadlock victim", server(1205, 13, "deadlocked"), "outage"},
		{"lock time-out", server(1222, 16, "Lock request time out period exceeded."), "outage"},
		{"update conflict", server(3960, 16, "Snapshot isolation transaction aborted"), "outage"},
		{"doomed", server(3930, 16, "The current transaction cannot be committed"), "outage"},
		{"Azure failover", server(40613, 17, "Database is not currently available"), "outage"},
		{"Azure throttling", server(40501, 20, "The service is currently busy"), "outage"},
		{"log full", server(9002, 17, "The transaction log is full"), "outage"},
		{"read-only secondary", server(3906, 16, "read-only"), "outage"},
		{"killed", server(596, 21, "Cannot continue the execution because the session is in the kill state."), "outage"},
		{"wrong password", server(18456, 14, "Login failed"), "config"},
		{"no database", server(4060, 11, "Cannot open database"), "config"},
		{"no right", server(229, 14, "The SELECT permission was denied"), "config"},
		{"unknown object", server(208, 16, "Invalid object name"), "config"},
		{"syntax", server(102, 15, "Incorrect syntax"), "plain"},
		{"end of stream", io.EOF, "outage"},
		{"deadline", context.DeadlineExceeded, "outage"},
		{"refused", errors.New("unable to open tcp connection with host 'x:1433': dial tcp: connection refused"), "outage"},
		{"certificate", errors.New("TLS Handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"), "config"},
		{"sorted already", weir.ErrLeaseLost, "plain"},
	} {
		err := translate(c.err, weir.AtSource, "claim", "")
		var u *weir.UnavailableError
		var k *weir.ConfigError
		got := "plain"
		switch {
		case errors.As(err, &u):
			got = "outage"
		case errors.As(err, &k):
			got = "config"
			if k.Hint == "" {
				t.Errorf("%s: %v has no hint", c.name, k)
			}
		}
		if got != c.want {
			t.Errorf("%s: %v is sorted as %s, want %s", c.name, err, got, c.want)
		}
		if !errors.Is(err, c.err) && c.name != "sorted already" {
			t.Errorf("%s: %v does not wrap its cause", c.name, err)
		}
	}
	var d *weir.DriftError
	if err := translate(server(208, 16, "Invalid object name"), weir.AtSource, "read", "dbo.Orders"); !errors.As(err, &d) {
		t.Errorf("an unknown table is %v, want a *weir.DriftError", err)
	}
}

func TestAnswered(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{mssql.Error{Number: 1205, Class: 13}, true},
		{mssql.Error{Number: 3902, Class: 16}, true},
		{mssql.Error{Number: 596, Class: 21}, false},
		{mssql.Error{Number: 40197, Class: 17}, false},
		{io.EOF, false},
		{context.DeadlineExceeded, false},
	} {
		if got := answered(c.err); got != c.want {
			t.Errorf("answered(%v) = %t, want %t", c.err, got, c.want)
		}
	}
}

func TestRowFault(t *testing.T) {
	inTrigger := mssql.Error{Number: 3609, Class: 16, Message: "The transaction ended in the trigger.", All: []mssql.Error{
		{Number: 50001, Class: 16, Message: "No orders on Sundays"},
		{Number: 3609, Class: 16, Message: "The transaction ended in the trigger."},
	}}
	deadlocked := mssql.Error{Number: 3609, Class: 16, All: []mssql.Error{{Number: 1205, Class: 13}, {Number: 3609, Class: 16}}}
	for _, c := range []struct {
		name           string
		err            error
		constraint, ok bool
	}{
		{"unique", mssql.Error{Number: 2627}, true, true},
		{"unique index", mssql.Error{Number: 2601}, true, true},
		{"foreign key", mssql.Error{Number: 547, Message: `The INSERT statement conflicted with the FOREIGN KEY constraint "fk".`}, true, true},
		{"reference", mssql.Error{Number: 547, Message: `The DELETE statement conflicted with the REFERENCE constraint "fk".`}, true, true},
		{"check", mssql.Error{Number: 547, Message: `The INSERT statement conflicted with the CHECK constraint "ck".`}, false, true},
		{"null", mssql.Error{Number: 515}, false, true},
		{"overflow", mssql.Error{Number: 8115}, false, true},
		{"the user's trigger", inTrigger, false, true},
		{"a deadlock in the user's trigger", deadlocked, false, false},
		{"deadlock", mssql.Error{Number: 1205}, false, false},
		{"no server's", io.EOF, false, false},
	} {
		_, constraint, ok := rowFault(c.err)
		if constraint != c.constraint || ok != c.ok {
			t.Errorf("%s: rowFault = %t, %t, want %t, %t", c.name, constraint, ok, c.constraint, c.ok)
		}
	}
}

func TestParseURL(t *testing.T) {
	cfg, err := parseURL("SQLServer://u:p%40ss@h:14330?database=d&encrypt=disable")
	if err != nil || cfg.Host != "h" || cfg.Port != 14330 || cfg.Database != "d" || cfg.User != "u" || cfg.Password != "p@ss" {
		t.Errorf("parseURL = %+v, %v", cfg, err)
	}
	for _, bad := range []string{"server=h;password=secret1", "postgres://h", "sqlserver://u:secret1@h:port", "sqlserver://u:secret1@h?encrypt=what", "sqlserver://u:sec%ret1@h"} {
		_, err := open(bad, weir.AtTarget, "test")
		var c *weir.ConfigError
		if !errors.As(err, &c) || c.Hint == "" {
			t.Errorf("open(%q) = %v, want a *weir.ConfigError with a hint", bad, err)
		} else if text := err.Error(); strings.Contains(text, "secret1") || strings.Contains(text, "sec%ret1") {
			t.Errorf("open(%q) shows the password: %v", bad, err)
		}
	}
}

func TestGUIDBytes(t *testing.T) {
	g, err := weir.ParseGUID("00112233-4455-6677-8899-aabbccddeeff")
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	if got := guidBytes(g); string(got) != string(want) {
		t.Errorf("guidBytes = %x, want %x", got, want)
	}
	if back := guidOf(want); back != g {
		t.Errorf("guidOf = %s, want %s", back, g)
	}
}
