package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// queueArgs fills the templates of sql/postgres/status.
func (s *Source) queueArgs(queue string) any {
	return struct{ Schema, Queue, Name string }{ident(s.schema), s.own(queueTable(queue)), literal(queue)}
}

// Status counts the queues' changes and lists the live pulls.
func (s *Source) Status(ctx context.Context) (*weir.Status, error) {
	out := &weir.Status{Queues: []weir.QueueStatus{}, Pulls: []weir.LivePull{}}
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := tx(ctx, s.pool, opts, weir.AtSource, "status", weir.GUID{}, func(t pgx.Tx) error {
		if err := t.QueryRow(ctx, "select clock_timestamp(), (select count(*) from "+s.own("inbox")+")").Scan(&out.Now, &out.Inbox); err != nil {
			return err
		}
		rows, err := t.Query(ctx, "select name from "+s.own("queues")+" order by name")
		if err != nil {
			return err
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, name := range names {
			q, err := s.queueStatus(ctx, t, name)
			if err != nil {
				return err
			}
			out.Queues = append(out.Queues, *q)
		}
		rows, err = t.Query(ctx, "select pull_guid, name, queue, puller, ledger, state, claimed_on, lease_until, rows from "+s.own("pulls")+" order by claimed_on, pull_guid")
		if err != nil {
			return err
		}
		var p weir.LivePull
		var guid, ledger [16]byte
		var state string
		_, err = pgx.ForEachRow(rows, []any{&guid, &p.Name, &p.Queue, &p.Puller, &ledger, &state, &p.ClaimedOn, &p.LeaseUntil, &p.Rows}, func() error {
			p.PullGUID, p.Ledger, p.State = guid, ledger, weir.PullState(state)
			out.Pulls = append(out.Pulls, p)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Source) queueStatus(ctx context.Context, t pgx.Tx, name string) (*weir.QueueStatus, error) {
	sql, err := render("postgres/status/groups.sql.tmpl", s.queueArgs(name))
	if err != nil {
		return nil, err
	}
	rows, err := t.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	q := &weir.QueueStatus{Queue: name, Groups: []weir.QueueGroup{}}
	var g weir.QueueGroup
	var concept [16]byte
	var state string
	var n int64
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&g.Table, &concept, &g.ChangeType, &state, &n, &age}, func() error {
		oldest := time.Duration(age * float64(time.Second))
		q.Add(weir.QueueGroup{Table: g.Table, ConceptGUID: concept, ChangeType: g.ChangeType, Depth: n, OldestAge: oldest}, weir.ChangeState(state))
		return nil
	})
	return q, err
}

// List returns changes of a queue, the oldest first.
func (s *Source) List(ctx context.Context, sel weir.QueueSelector) ([]weir.QueueRow, error) {
	queue := sel.Queue
	if queue == "" {
		queue = weir.DefaultQueue
	}
	sql, err := render("postgres/status/list.sql.tmpl", s.queueArgs(queue))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, sql, guidOrNull(sel.Pull), zeroOrNull(sel.CaptureID), guidOrNull(sel.InstanceGUID), zeroOrNull(sel.ChangeType),
		zeroOrNull(string(sel.State)), zeroOrNull(sel.Limit))
	if err != nil {
		return nil, translate(err, weir.AtSource, "list queue", "")
	}
	out := []weir.QueueRow{}
	var instance, concept, pull [16]byte
	var state string
	var notBefore *time.Time
	r := weir.QueueRow{Queue: queue}
	_, err = pgx.ForEachRow(rows, []any{&r.Table, &instance, &r.ChangeType, &r.ChangedOn, &concept, &r.OldPrimaryKey, &pull, &state, &r.Attempts, &notBefore, &r.LastError}, func() error {
		row := r
		row.InstanceGUID, row.ConceptGUID, row.PullGUID, row.State = instance, concept, pull, weir.ChangeState(state)
		if notBefore != nil {
			row.NotBefore = *notBefore
		}
		out = append(out, row)
		return nil
	})
	return out, translate(err, weir.AtSource, "list queue", "")
}

// Retry makes postponed and dead changes claimable at once, with their attempts
// forgotten, and returns how many. Changes in flight are left alone.
func (s *Source) Retry(ctx context.Context, sel weir.QueueSelector) (int, error) {
	return s.reset(ctx, sel, nil)
}

// Delay keeps changes that no pull holds from being claimed for a time, and
// returns how many.
func (s *Source) Delay(ctx context.Context, sel weir.QueueSelector, d time.Duration) (int, error) {
	return s.reset(ctx, sel, d.Seconds())
}

func (s *Source) reset(ctx context.Context, sel weir.QueueSelector, seconds any) (int, error) {
	if !sel.Pull.IsZero() {
		return 0, &weir.ConfigError{Key: "queue", Err: fmt.Errorf("changes in flight belong to their pull"), Hint: "weir queue release " + sel.Pull.String()}
	}
	queue := sel.Queue
	if queue == "" {
		queue = weir.DefaultQueue
	}
	sql, err := render("postgres/status/reset.sql.tmpl", s.queueArgs(queue))
	if err != nil {
		return 0, err
	}
	var n int64
	err = s.call(ctx, "queue", weir.GUID{}, func(ctx context.Context, t pgx.Tx) error {
		tag, err := t.Exec(ctx, sql, zeroOrNull(sel.CaptureID), guidOrNull(sel.InstanceGUID), zeroOrNull(sel.ChangeType), zeroOrNull(string(sel.State)), seconds)
		n = tag.RowsAffected()
		return err
	})
	return int(n), err
}

func guidOrNull(g weir.GUID) any {
	if g.IsZero() {
		return nil
	}
	return g.String()
}

func zeroOrNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
