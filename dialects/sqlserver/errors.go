package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
)

// Numbers of messages (SQL Server manual, "Database Engine events and errors").
const (
	errUnknownObject   = 208
	errUnknownColumn   = 207
	errRights          = 229
	errColumnRights    = 230
	errDatabaseRights  = 262
	errDeadlock        = 1205
	errLockTimeout     = 1222
	errUniqueIndex     = 2601
	errUniqueKey       = 2627
	errNull            = 515
	errConstraint      = 547 // foreign key or check
	errNoTransaction   = 3903
	errDoomed          = 3930
	errSnapshot        = 3960
	errEndedInTrigger  = 3609
	errNoSuchProcedure = 2812
	errNoSuchDatabase  = 4060
	errLogin           = 18456
)

// outages are the numbers with which the server gives up for a reason that
// passes: nothing was done, or it rolled back.
var outages = map[int32]bool{
	0:           true, // the driver's own: the server has ended the transaction
	errDeadlock: true, errLockTimeout: true, errSnapshot: true, errNoTransaction: true, errDoomed: true,
	-2:   true,                                    // time-out
	1204: true,                                    // no lock can be had
	1105: true,                                    // the filegroup is full
	9002: true,                                    // the log is full
	701:  true, 802: true, 8645: true, 8651: true, // memory
	617: true, 669: true, 601: true, // the row or object moved under the statement
	921: true, 922: true, 927: true, 983: true, 976: true, 978: true, 952: true, // the database is starting, restoring or failing over
	945: true, 942: true, 3906: true, // it is offline, or read-only: a secondary after a failover
	3902: true, 3971: true, 3980: true, 3981: true, 3928: true, // the transaction is gone already
	3935: true, 3951: true, 3952: true, 3957: true, 3958: true, 3966: true, 5245: true, 41301: true, 41302: true, 41305: true, 41325: true,
	6005: true, 17142: true, 17188: true, 17197: true, 17809: true, 18401: true, 18451: true, 18461: true, // shutting down, paused, too many connections, starting, single user
	8628: true, 8642: true, 8657: true, // no plan or no thread in time
	// Azure SQL Database: throttling, failover and reconfiguration.
	10928: true, 10929: true, 40143: true, 40197: true, 40501: true, 40540: true, 40544: true, 40545: true, 40549: true, 40550: true, 40551: true,
	40552: true, 40553: true, 40613: true, 40642: true, 42108: true, 42109: true, 49918: true, 49919: true, 49920: true, 4221: true,
}

// cuts are outages after which the connection is gone: what became of a commit
// under way is not said.
var cuts = map[int32]bool{
	233: true, 64: true, 20: true, 121: true, 10053: true, 10054: true, 10060: true, 10061: true, 596: true, 4014: true, 40197: true, 40613: true,
	6005: true, 17142: true, 976: true, 983: true,
}

// serverError is the message that tells what happened: the last of those that
// the server sent, but the one that made a trigger or a TRY block end the
// transaction before it.
func serverError(err error) (e mssql.Error, ok bool) {
	var p *mssql.Error
	if !errors.As(err, &e) {
		if !errors.As(err, &p) {
			return e, false
		}
		e = *p
	}
	for _, one := range e.All {
		if e.Number == errEndedInTrigger || e.Number == errDoomed || e.Number == 3616 {
			if one.Number != e.Number && one.Class > 10 {
				return babelfishNumber(one), true
			}
		}
	}
	return babelfishNumber(e), true
}

func number(err error) int32 {
	e, _ := serverError(err)
	return e.Number
}

// answered reports that the server itself refused, and the connection lives: the
// transaction is surely not committed.
func answered(err error) bool {
	e, ok := serverError(err)
	return ok && !cuts[e.Number] && e.Class < 20
}

// translate sorts an error by what the caller must do. object, if any, is the
// table in question. Errors that are sorted already pass.
func translate(err error, side weir.Side, op, object string) error {
	if err == nil {
		return nil
	}
	var (
		u *weir.UnavailableError
		o *weir.OutcomeUnknownError
		r *weir.RowError
		c *weir.ConfigError
		d *weir.DriftError
	)
	switch {
	case errors.As(err, &u), errors.As(err, &o), errors.As(err, &r), errors.As(err, &c), errors.As(err, &d),
		errors.Is(err, weir.ErrLeaseLost), errors.Is(err, weir.ErrRevoked), errors.Is(err, weir.ErrQueueEmpty):
		return err
	}
	if e, ok := serverError(err); ok {
		return translateServer(err, e, side, op, object)
	}
	var network net.Error
	var stream mssql.StreamError
	var retry mssql.RetryableError
	var fatal mssql.ServerError
	text := err.Error()
	switch {
	case strings.Contains(text, "certificate") && (strings.Contains(text, "x509") || strings.Contains(text, "tls")):
		return &weir.ConfigError{Key: string(side) + ".url", Err: fmt.Errorf("%s: %w", op, err),
			Hint: "give the server's certificate (certificate=FILE), its name (hostNameInCertificate=NAME), or trustServerCertificate=true where the network is trusted"}
	case errors.As(err, &network), errors.As(err, &stream), errors.As(err, &retry), errors.As(err, &fatal),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		strings.Contains(text, "unable to open tcp connection"), strings.Contains(text, "connection was closed"),
		strings.Contains(text, "no such host"), strings.Contains(text, "connection refused"), strings.Contains(text, "TLS Handshake failed"):
		return &weir.UnavailableError{Side: side, Op: op, Err: err}
	}
	return fmt.Errorf("%s at the %s: %w", op, side, err)
}

func translateServer(err error, e mssql.Error, side weir.Side, op, object string) error {
	key := string(side)
	if object != "" {
		key += " " + object
	}
	config := func(hint string) error {
		return &weir.ConfigError{Key: key, Err: fmt.Errorf("%s: %w", op, err), Hint: hint}
	}
	switch n := e.Number; {
	case outages[n], cuts[n], e.Class >= 20 && n != errNoSuchDatabase:
		return &weir.UnavailableError{Side: side, Op: op, Err: err}
	case n == errLogin, n == 18452, n == 18470, n == 18486, n == 18487, n == 18488:
		return config("check the user and password in the URL, and that the login may connect")
	case n == errNoSuchDatabase, n == 916, n == 911:
		return config("create the database or correct its name in the URL (?database=NAME), and make the login a user of it")
	case n == errRights, n == errColumnRights, n == errDatabaseRights, n == 297, n == 300, n == 2104, n == 2760, n == 1088, n == 15247, n == 3701 && side == weir.AtTarget:
		return config("grant the right to the user that weir connects as")
	case n == errNoSuchProcedure, n == errUnknownObject && side == weir.AtSource && object == "":
		return config("run weir init, which creates or upgrades weir's tables and procedures")
	case n == errUnknownObject, n == errUnknownColumn, n == 4902, n == 213:
		return &weir.DriftError{Object: key, Err: fmt.Errorf("%s: %w", op, err), Hint: "the table changed: run weir triggers plan"}
	}
	return fmt.Errorf("%s at the %s: %w", op, side, err)
}

// rowFault reports that a server's error is the fault of a row's values, and
// whether other rows decide (a constraint).
func rowFault(err error) (e mssql.Error, constraint, ok bool) {
	e, ok = serverError(err)
	if !ok {
		return e, false, false
	}
	switch n := e.Number; {
	case n == errUniqueIndex, n == errUniqueKey:
		return e, true, true
	case n == errConstraint:
		return e, isForeignKey(e), true
	case n == errNull,
		n == 8152, n == 2628, n == 8115, n == 220, n == 232, n == 8114, n == 245, n == 241, n == 242, n == 244, n == 248, n == 296, n == 295, n == 517,
		n == 235, n == 293, n == 8169, n == 8134, n == 6522, n == 1946, n == 511, n == 5243,
		n >= 9400 && n < 9500, n >= 6600 && n < 6700, n >= 6900 && n < 7000, // xml
		n == errEndedInTrigger, n == 3616, n >= 50000 && n < 1<<24, // a trigger of the user's refuses
		n == 550: // a view's WITH CHECK OPTION
		return e, false, true
	}
	return e, false, false
}

// isForeignKey tells the two meanings of 547 apart: the statement conflicted with
// a FOREIGN KEY or REFERENCE constraint, or with a CHECK constraint.
func isForeignKey(e mssql.Error) bool {
	return e.Number == errConstraint && !strings.Contains(strings.ToLower(e.Message), "check constraint")
}
