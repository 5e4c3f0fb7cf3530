package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-cdc/weir"
)

// Every call has a deadline. Within it, a lock is waited for busyTimeout at
// most: SQLite has one writer at a time, and a user's transaction may be long.
const (
	callTimeout = 30 * time.Second
	bulkTimeout = 10 * time.Minute
	busyTimeout = 3 * time.Second
)

// database is a file and its connections.
type database struct {
	*sql.DB
	path string
	side weir.Side
	// create tells whether the first use may make the file.
	create bool

	mu   sync.Mutex
	file os.FileInfo // the file that the connections are of, nil before the first use
}

// open prepares the connections. It opens the file at the first use.
func open(rawURL string, side weir.Side, create bool) (*database, error) {
	path, query, err := parseURL(rawURL)
	if err != nil {
		return nil, &weir.ConfigError{Key: string(side) + ".url", Err: err, Hint: "sqlite:path/to/file, sqlite:///absolute/path or file:path"}
	}
	return openFile(path, query, side, create)
}

func openFile(path string, query url.Values, side weir.Side, create bool) (*database, error) {
	query.Set("mode", "rw")
	if create {
		query.Set("mode", "rwc")
	}
	query.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()))
	// A writer must not wait for a reader of many rows, nor a reader for it.
	query.Add("_pragma", "journal_mode(WAL)")
	// Settling at the source rests on the target's commit: it must be on disk.
	query.Add("_pragma", "synchronous(FULL)")
	query.Add("_pragma", "foreign_keys(ON)")
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, &weir.ConfigError{Key: string(side) + ".url", Err: err}
	}
	db.SetMaxOpenConns(4)
	db.SetConnMaxIdleTime(time.Minute)
	return &database{DB: db, path: path, side: side, create: create}, nil
}

// parseURL splits the URL into the file's path and the parameters for SQLite.
func parseURL(raw string) (string, url.Values, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok || scheme != "sqlite" && scheme != "file" {
		return "", nil, errors.New("it is no URL of an SQLite database")
	}
	rest = strings.TrimPrefix(rest, "//")
	path, params, _ := strings.Cut(rest, "?")
	query, err := url.ParseQuery(params)
	if err != nil {
		return "", nil, fmt.Errorf("its parameters: %w", err)
	}
	if scheme == "file" || strings.Contains(path, "%") {
		if un, err := url.PathUnescape(path); err == nil {
			path = un
		}
	}
	if path == "" || path == ":memory:" || query.Get("mode") == "memory" {
		return "", nil, errors.New("it names no file; a database in memory belongs to one connection")
	}
	if strings.ContainsRune(path, 0) {
		return "", nil, errors.New("its path holds a NUL character")
	}
	return path, query, nil
}

// look makes sure that the connections are of the file that is at the path: a
// file that was taken away or replaced must not be written to unseen.
func (d *database) look(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Stat(d.path)
	switch {
	case err == nil && info.IsDir():
		return &weir.ConfigError{Key: string(d.side) + ".url", Err: fmt.Errorf("%s is a folder", d.path), Hint: "name a file"}
	case err == nil:
	case d.create && d.file == nil && errors.Is(err, fs.ErrNotExist):
		return nil
	case !d.create && errors.Is(err, fs.ErrNotExist):
		d.closeIdle()
		return &weir.UnavailableError{Side: d.side, Op: op, Err: err,
			Hint: fmt.Sprintf("check the path in %s.url, or put the file back; weir makes no source", d.side)}
	default:
		d.closeIdle()
		return &weir.UnavailableError{Side: d.side, Op: op, Err: err}
	}
	if d.file != nil && !os.SameFile(d.file, info) {
		d.closeIdle()
	}
	d.file = info
	return nil
}

func (d *database) closeIdle() {
	d.SetMaxIdleConns(0)
	d.SetMaxIdleConns(2)
}

// session is one connection, and a transaction on it.
type session struct{ *sql.Conn }

// connect takes a connection.
func (d *database) connect(ctx context.Context, op string) (*session, error) {
	if err := d.look(op); err != nil {
		return nil, err
	}
	conn, err := d.Conn(ctx)
	if err != nil {
		return nil, interpretError(err, d.side, op, "")
	}
	return &session{conn}, nil
}

// rollback ends the transaction, on a context of its own, and reports whether
// one was open.
func (c *session) rollback() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := c.ExecContext(ctx, "rollback")
	return err == nil
}

// write runs f in one transaction that has the write lock from the start, so
// that no statement in it waits and what it reads is current. What f returns is
// surely rolled back.
func (d *database) write(ctx context.Context, op string, pull weir.GUID, f func(context.Context, *session) error) error {
	c, err := d.connect(ctx, op)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.write(ctx, d.side, op, pull, f)
}

func (c *session) write(ctx context.Context, side weir.Side, op string, pull weir.GUID, f func(context.Context, *session) error) error {
	if _, err := c.ExecContext(ctx, "begin immediate"); err != nil {
		c.rollback() // a begin that was interrupted may have begun
		return interpretError(err, side, op, "")
	}
	if err := f(ctx, c); err != nil {
		c.rollback()
		return interpretError(err, side, op, "")
	}
	// The commit is not interrupted: it takes as long as the disk.
	if _, err := c.ExecContext(context.WithoutCancel(ctx), "commit"); err != nil {
		if c.rollback() {
			// It was still open, so it did not commit.
			return interpretError(err, side, op, "")
		}
		return &weir.OutcomeUnknownError{Side: side, Op: op, Pull: pull, Err: err}
	}
	return nil
}

// read runs f in one read transaction: one snapshot.
func (d *database) read(ctx context.Context, op string, f func(context.Context, *session) error) error {
	c, err := d.connect(ctx, op)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "begin"); err != nil {
		c.rollback()
		return interpretError(err, d.side, op, "")
	}
	defer c.rollback()
	return interpretError(f(ctx, c), d.side, op, "")
}

// each calls f for each row of a query, after scanning it into dest.
func (c *session) each(ctx context.Context, query string, args []any, dest []any, f func() error) error {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}
