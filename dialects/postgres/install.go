package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-cdc/weir"
)

// How often Apply tries, and how long it waits in between: this much longer
// each time.
const (
	applyTries = 7
	applyPause = 500 * time.Millisecond
)

// Apply runs the statements of one table in one transaction. Creating a
// trigger needs SHARE ROW EXCLUSIVE on the table: readers go on, writers wait
// for the moment it takes. Whoever waits behind a lock that is waited for waits
// too, so Apply gives up after a third of deadlock_timeout and tries again a few
// times; then it is unavailable, and nothing is changed.
func (s *Source) Apply(ctx context.Context, group weir.Table, statements []string) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	var err error
	for try := range applyTries {
		if try > 0 {
			select {
			case <-time.After(min(time.Duration(try), 4) * applyPause):
			case <-ctx.Done():
				return &weir.UnavailableError{Side: weir.AtSource, Op: "apply", Err: ctx.Err()}
			}
		}
		err = tx(ctx, s.pool, readCommitted, weir.AtSource, "apply to "+group.String(), weir.GUID{}, func(t pgx.Tx) error {
			return applyOnce(ctx, t, group, statements)
		})
		var u *weir.UnavailableError
		if !errors.As(err, &u) {
			return err
		}
	}
	return err
}

// applyOnce runs the statements. A user who waits for a table that is locked
// here looks for a deadlock once, when deadlock_timeout is over, and is its
// victim if this transaction then waits for a table of the user's. So it waits
// for none any more, but a millisecond, well before that.
func applyOnce(ctx context.Context, t pgx.Tx, group weir.Table, statements []string) error {
	var ms int
	if err := t.QueryRow(ctx, "select setting::integer from pg_settings where name = 'deadlock_timeout'").Scan(&ms); err != nil {
		return err
	}
	timeout := time.Duration(ms) * time.Millisecond
	var first time.Time // when the first table was asked for
	for _, sql := range statements {
		if takesTable.MatchString(sql) {
			if first.IsZero() {
				first = time.Now()
			}
			wait := max(min(timeout/3, timeout*2/3-time.Since(first)), time.Millisecond)
			if _, err := t.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d", wait.Milliseconds())); err != nil {
				return err
			}
		}
		_, err := t.Exec(ctx, sql)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "55P03" {
			err = fmt.Errorf("a transaction that is still open holds a lock on %s; nothing was changed. Try again when it is over (pg_locks and pg_stat_activity show whose it is), or end it: %w", group, err)
		}
		if err != nil {
			return translate(err, weir.AtSource, "apply", group.String())
		}
	}
	return nil
}

// takesTable finds the statements that wait for a table of the user's.
var takesTable = regexp.MustCompile(`(?i)^\s*(create or replace trigger|drop trigger|alter table)\s`)
