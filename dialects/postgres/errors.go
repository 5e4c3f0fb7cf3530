package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-cdc/weir"
)

func isServerError(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !connectionLost(pg.Code)
}

// connectionLost reports the SQLSTATEs with which a server ends a connection:
// what it did with a commit under way is not said.
func connectionLost(code string) bool {
	return strings.HasPrefix(code, "08") || code == "57P01" || code == "57P02" || code == "57P05"
}

// translate sorts an error by what the caller must do. object, if any, is the
// table in question. Errors that are sorted already pass.
func translate(err error, side weir.Side, op, object string) error {
	if err == nil {
		return nil
	}
	var (
		u  *weir.UnavailableError
		o  *weir.OutcomeUnknownError
		r  *weir.RowError
		c  *weir.ConfigError
		d  *weir.DriftError
		pg *pgconn.PgError
	)
	switch {
	case errors.As(err, &u), errors.As(err, &o), errors.As(err, &r), errors.As(err, &c), errors.As(err, &d),
		errors.Is(err, weir.ErrLeaseLost), errors.Is(err, weir.ErrRevoked), errors.Is(err, weir.ErrQueueEmpty):
		return err
	case errors.As(err, &pg):
		return translateServer(err, pg, side, op, object)
	}
	var network net.Error
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) || strings.Contains(err.Error(), "conn closed") {
		u := &weir.UnavailableError{Side: side, Op: op, Err: err}
		if errors.As(err, &connect) {
			u.Hint = "check that the server runs, and the host, port and sslmode in the URL"
		}
		return u
	}
	return fmt.Errorf("%s at the %s: %w", op, side, err)
}

// translateServer sorts by SQLSTATE (PostgreSQL manual, appendix A).
func translateServer(err error, pg *pgconn.PgError, side weir.Side, op, object string) error {
	key := string(side)
	if object != "" {
		key += " " + object
	}
	hint := func(h string) error {
		if pg.Hint != "" {
			h = pg.Hint
		}
		return &weir.ConfigError{Key: key, Err: fmt.Errorf("%s: %w", op, err), Hint: h}
	}
	switch code := pg.Code; {
	case code == "WR001":
		return fmt.Errorf("%s: %w", op, weir.ErrLeaseLost)
	case connectionLost(code), strings.HasPrefix(code, "53"), // lost, too many connections, out of memory or disk
		code == "57P03", code == "57014", code == "25P03", // starting up, cancelled or timed out, idle time-out
		code == "40001", code == "40P01", code == "40003", // serialization, deadlock
		code == "25006", // read-only: a standby during failover
		strings.HasPrefix(code, "58"), strings.HasPrefix(code, "XX"):
		return &weir.UnavailableError{Side: side, Op: op, Err: err}
	case code == "55P03":
		return &weir.UnavailableError{Side: side, Op: op, Err: err,
			Hint: "another transaction holds a lock that is needed, and weir waits a moment only: run it again when that is over; pg_locks and pg_stat_activity show whose it is"}
	case code == "28P01" || code == "28000":
		return hint("check the user and password in the URL, PGPASSWORD or .pgpass, and the server's pg_hba.conf")
	case code == "3D000":
		return hint("create the database, or correct its name in the URL")
	case code == "42501":
		return hint("grant the right to the role that weir connects as, or connect as the owner")
	case code == "42704" && strings.HasPrefix(pg.Message, "weir: "): // of a routine's own
		return hint("run weir triggers apply")
	case code == "3F000", code == "42883", code == "42P01" && side == weir.AtSource && object == "":
		return hint("run weir init, which creates or upgrades weir's tables and functions")
	case code == "42P01", code == "42703":
		return &weir.DriftError{Object: key, Err: fmt.Errorf("%s: %w", op, err), Hint: "the table changed: run weir triggers plan"}
	}
	return fmt.Errorf("%s at the %s: %w", op, side, err)
}

// rowFault reports that a server's error is the fault of a row's values, and
// whether other rows decide (a constraint).
func rowFault(err error) (pg *pgconn.PgError, constraint, ok bool) {
	if !errors.As(err, &pg) {
		return nil, false, false
	}
	switch {
	case pg.Code == "23505", pg.Code == "23503", pg.Code == "23P01":
		return pg, true, true
	case pg.Code == "0A000" && strings.HasPrefix(pg.Message, "cannot convert "): // NaN or Infinity to an integer
		return pg, false, true
	case strings.HasPrefix(pg.Code, "22"), strings.HasPrefix(pg.Code, "23"), pg.Code == "54000", pg.Code == "42846",
		pg.Code == "P0001", pg.Code == "44000", strings.HasPrefix(pg.Code, "38"), strings.HasPrefix(pg.Code, "39"):
		return pg, false, true
	}
	return nil, false, false
}
