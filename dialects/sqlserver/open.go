package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/weir-cdc/weir"
)

// DefaultSchema is where weir's own tables live at a source, and the tables of a
// target.
const DefaultSchema = "dbo"

// How long a call may take. Statements that could wait for a user have lock
// time-outs of their own, far shorter.
const (
	connectTimeout = 15 * time.Second
	callTimeout    = 30 * time.Second // protocol calls
	bulkTimeout    = 10 * time.Minute // reading and shipping a batch, DDL
	commitTimeout  = 30 * time.Second
)

// sessions makes every reading of a value independent of the server's, the
// database's and the login's configuration; it runs whenever a connection is
// taken from the pool. An index on a computed column, a filtered index and an
// indexed view need the ANSI settings as they are here. Messages are told apart
// by their numbers and, where one number means two things, by their English
// text.
const sessions = `SET LANGUAGE us_english;
SET DATEFORMAT ymd;
SET TEXTSIZE 2147483647;
SET ROWCOUNT 0;
SET NOCOUNT OFF;
SET XACT_ABORT ON;
SET ANSI_NULLS ON;
SET ANSI_PADDING ON;
SET ANSI_WARNINGS ON;
SET ARITHABORT ON;
SET CONCAT_NULL_YIELDS_NULL ON;
SET QUOTED_IDENTIFIER ON;
SET NUMERIC_ROUNDABORT OFF;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
`

// ofSide is what differs: at the source a user's statement wins every deadlock,
// and none waits for weir.
var ofSide = map[weir.Side]string{
	weir.AtSource: "SET DEADLOCK_PRIORITY LOW;\nSET LOCK_TIMEOUT 400;\n",
	weir.AtTarget: "SET DEADLOCK_PRIORITY NORMAL;\nSET LOCK_TIMEOUT 30000;\n",
}

// database is a pool of connections to one database.
type database struct {
	*sql.DB
	side weir.Side
}

// open prepares a pool. It connects at the first call.
func open(rawURL string, side weir.Side, app string) (*database, error) {
	cfg, err := parseURL(rawURL)
	if err != nil {
		return nil, &weir.ConfigError{Key: string(side) + ".url", Err: err, Hint: "sqlserver://user@host:1433?database=name"}
	}
	if !given(cfg, msdsn.AppName) {
		cfg.AppName = app
	}
	if !given(cfg, msdsn.DialTimeout) {
		cfg.DialTimeout = connectTimeout
	}
	cfg.Encoding.Timezone = time.UTC
	cfg.Encoding.GuidConversion = false
	connector := mssql.NewConnectorConfig(cfg)
	connector.SessionInitSQL = sessions + ofSide[side]
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(time.Minute)
	return &database{DB: db, side: side}, nil
}

// parseURL reads a URL, and nothing else that the driver takes for a connection
// string.
func parseURL(raw string) (msdsn.Config, error) {
	scheme, _, ok := strings.Cut(raw, "://")
	if !ok || !strings.EqualFold(scheme, "sqlserver") {
		return msdsn.Config{}, errors.New("it is no sqlserver:// URL")
	}
	cfg, err := msdsn.Parse("sqlserver" + raw[len(scheme):])
	if err != nil {
		return msdsn.Config{}, errors.New(redact(err.Error()))
	}
	return cfg, nil
}

func given(cfg msdsn.Config, parameter string) bool {
	_, ok := cfg.Parameters[parameter]
	return ok
}

var secretInText = regexp.MustCompile(`(?i)(//[^/@:]*:)[^@/]*@|((?:password|pwd|secret|token)=)[^&;\s"]*`)

// redact keeps a password out of the driver's message, which quotes the URL.
func redact(text string) string { return secretInText.ReplaceAllString(text, "${1}${2}xxxxx") }

// session is one connection, and the transaction on it.
type session struct {
	conn *sql.Conn
	*sql.Tx
}

// tx runs f in one transaction, and sorts the errors: what f returns is rolled
// back surely; an unanswered commit is unknown.
func (d *database) tx(ctx context.Context, op string, pull weir.GUID, f func(*session) error) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return translate(err, d.side, op, "")
	}
	defer conn.Close()
	s, end, err := begin(ctx, conn)
	if err != nil {
		return translate(err, d.side, op, "")
	}
	defer end()
	if err := f(s); err != nil {
		s.rollback()
		return translate(err, d.side, op, "")
	}
	if err := ctx.Err(); err != nil {
		s.rollback()
		return translate(err, d.side, op, "")
	}
	timer := time.AfterFunc(commitTimeout, end)
	defer timer.Stop()
	err = s.Commit()
	if err == nil {
		return nil
	}
	discard(conn)
	// A server that answered has rolled back.
	if answered(err) || errors.Is(err, sql.ErrTxDone) {
		return translate(err, d.side, op, "")
	}
	return &weir.OutcomeUnknownError{Side: d.side, Op: op, Pull: pull, Err: err}
}

// begin starts a transaction whose life does not hang on ctx: database/sql would
// otherwise roll it back behind the caller's back. end gives up a commit.
func begin(ctx context.Context, conn *sql.Conn) (s *session, end func(), err error) {
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	t, err := conn.BeginTx(own, nil)
	if err == nil && !stop() {
		// ctx ended while the transaction began.
		_ = t.Rollback()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return &session{conn, t}, end, nil
}

// rollback ends the transaction. A connection on which that fails is closed, and
// the server then rolls back.
func (s *session) rollback() {
	err := s.Rollback()
	if err == nil || errors.Is(err, sql.ErrTxDone) || number(err) == errNoTransaction {
		return
	}
	discard(s.conn)
}

// discard closes a connection instead of returning it to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// each calls f for each row of a query, after scanning it into dest.
func each(ctx context.Context, q queryer, query string, args []any, dest []any, f func() error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// queryer is what a pool, a connection and a transaction share.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
