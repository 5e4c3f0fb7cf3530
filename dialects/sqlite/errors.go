package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	driversqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/weir-cdc/weir"
)

// interpretError sorts an error by what the caller must do. object, if any, is
// the user's table in question. Errors that are sorted already pass.
func interpretError(err error, side weir.Side, op, object string) error {
	if err == nil {
		return nil
	}
	var (
		u *weir.UnavailableError
		o *weir.OutcomeUnknownError
		r *weir.RowError
		c *weir.ConfigError
		d *weir.DriftError
		e *driversqlite.Error
	)
	switch {
	case errors.As(err, &u), errors.As(err, &o), errors.As(err, &r), errors.As(err, &c), errors.As(err, &d),
		errors.Is(err, weir.ErrLeaseLost), errors.Is(err, weir.ErrRevoked), errors.Is(err, weir.ErrQueueEmpty):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		return &weir.UnavailableError{Side: side, Op: op, Err: err}
	case !errors.As(err, &e):
		return fmt.Errorf("%s at the %s: %w", op, side, err)
	}
	key := string(side)
	if object != "" {
		key += " " + object
	}
	config := func(hint string) error {
		return &weir.ConfigError{Key: key, Err: fmt.Errorf("%s: %w", op, err), Hint: hint}
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL:
		return &weir.UnavailableError{Side: side, Op: op, Err: err}
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return config("give the user that weir runs as write access to the database file and to its folder")
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return config("check the path in the URL; PRAGMA integrity_check tells what is wrong with a damaged database")
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA:
		text := e.Error()
		switch {
		case strings.Contains(text, "no such table: ") && strings.Contains(text, "weir_"), strings.Contains(text, "no such column") && object == "":
			return config("run weir init, which creates or upgrades weir's tables")
		case strings.Contains(text, "no such table"), strings.Contains(text, "no such column"):
			return &weir.DriftError{Object: key, Err: fmt.Errorf("%s: %w", op, err), Hint: "the table changed: run weir triggers plan"}
		}
	}
	return fmt.Errorf("%s at the %s: %w", op, side, err)
}

// constraintFault reports that an error is the fault of a row's values, and
// whether other rows decide: a unique value, a foreign key.
func constraintFault(err error) (others, ok bool) {
	var e *driversqlite.Error
	if !errors.As(err, &e) {
		return false, false
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID, sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return true, true
	case sqlite3.SQLITE_CONSTRAINT_TRIGGER: // a trigger of the user's, or ON DELETE RESTRICT
		return strings.Contains(e.Error(), "FOREIGN KEY constraint failed"), true
	case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return false, true
	}
	return false, e.Code()&0xff == sqlite3.SQLITE_CONSTRAINT
}

// isUnique reports a violation that an exchange of unique values may cause.
func isUnique(err error) bool {
	var e *driversqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID:
		return true
	}
	return false
}
