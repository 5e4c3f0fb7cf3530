package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-cdc/weir"
)

// forever is the not_before of a dead letter.
const forever = math.MaxInt64

// registered is a capture of the registry with what identifies its table.
type registered struct {
	weir.Capture
	keyTypes []string
}

func (r *registered) keyNames() []string {
	var names []string
	for _, k := range r.Key {
		names = append(names, k.Name)
	}
	return names
}

func readRegistry(ctx context.Context, c *session) ([]registered, error) {
	var list []registered
	var r registered
	var concept, names, types, rowKey string
	err := c.each(ctx, `select capture_id, table_name, kind, change_type, coalesce(concept_guid, ''), coalesce(concept_column, ''), coalesce(old_key_column, ''),
			key_columns, key_types, is_set, row_key, tagging from weir_captures order by capture_id`, nil,
		[]any{&r.ID, &r.Table.Name, &r.Kind, &r.ChangeType, &concept, &r.ConceptColumn, &r.OldKeyColumn, &names, &types, &r.Set, &rowKey, &r.Tagging}, func() error {
			n := registered{Capture: r.Capture}
			n.Key, n.RowKey, n.Queues = nil, nil, nil
			n.ConceptGUID, _ = weir.ParseGUID(concept) // zero where there is none
			var keys []string
			for _, j := range []struct {
				text string
				to   *[]string
			}{{names, &keys}, {types, &n.keyTypes}, {rowKey, &n.RowKey}} {
				if err := json.Unmarshal([]byte(j.text), j.to); err != nil {
					return fmt.Errorf("read captures: capture %d: %w", n.ID, err)
				}
			}
			if len(keys) != len(n.keyTypes) {
				return fmt.Errorf("read captures: capture %d: its key has %d columns and %d types", n.ID, len(keys), len(n.keyTypes))
			}
			if len(n.RowKey) == 0 {
				n.RowKey = nil
			}
			for i, k := range keys {
				n.Key = append(n.Key, columnOf(k, n.keyTypes[i], false))
			}
			list = append(list, n)
			return nil
		})
	if err != nil {
		return nil, err
	}
	var id int32
	var queue string
	err = c.each(ctx, "select capture_id, queue from weir_capture_queues order by capture_id, queue", nil, []any{&id, &queue}, func() error {
		if i := slices.IndexFunc(list, func(r registered) bool { return r.ID == id }); i >= 0 {
			list[i].Queues = append(list[i].Queues, queue)
		}
		return nil
	})
	return list, err
}

func readQueues(ctx context.Context, c *session) ([]string, error) {
	var out []string
	var name string
	err := c.each(ctx, "select name from weir_queues order by name", nil, []any{&name}, func() error {
		out = append(out, name)
		return nil
	})
	return out, err
}

// Captures implements [weir.Source].
func (s *Source) Captures(ctx context.Context) ([]*weir.Capture, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var out []*weir.Capture
	err := s.db.read(ctx, "read captures", func(ctx context.Context, c *session) error {
		list, err := readRegistry(ctx, c)
		for i := range list {
			out = append(out, &list[i].Capture)
		}
		return err
	})
	return out, err
}

// call runs f in the write transaction of one protocol step.
func (s *Source) call(ctx context.Context, op string, pull weir.GUID, f func(context.Context, *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.db.write(ctx, op, pull, f)
}

// clock reads the source's clock.
func clock(ctx context.Context, c *session) (int64, error) {
	var t int64
	err := c.QueryRowContext(ctx, "select "+now).Scan(&t)
	return t, err
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// after adds a duration to a moment, short of a dead letter's.
func after(micros int64, d time.Duration) int64 {
	if d > 0 && micros > forever-1-d.Microseconds() {
		return forever - 1
	}
	return micros + d.Microseconds()
}

// queueOf returns the quoted table of a queue.
func queueOf(ctx context.Context, c *session, queue string) (string, error) {
	var table string
	err := c.QueryRowContext(ctx, "select table_name from weir_queues where name = ?", queue).Scan(&table)
	if errors.Is(err, sql.ErrNoRows) {
		return "", &weir.ConfigError{Key: "queue", Err: fmt.Errorf("there is no queue %q", queue), Hint: "run weir triggers apply, which makes the queues that the configuration names"}
	}
	return ident(table), err
}

func jsonOrNull[T any](list []T) (any, error) {
	if len(list) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// Claim implements [weir.Source].
func (s *Source) Claim(ctx context.Context, req weir.ClaimRequest) (*weir.Pull, error) {
	pull := &weir.Pull{PullGUID: req.PullGUID, Name: req.Name, Queue: req.Queue}
	captures, err := jsonOrNull(req.Captures)
	if err != nil {
		return nil, err
	}
	concepts, err := jsonOrNull(req.Concepts)
	if err != nil {
		return nil, err
	}
	types, err := jsonOrNull(req.ChangeTypes)
	if err != nil {
		return nil, err
	}
	var from any
	if !req.From.IsZero() {
		from = req.From.UnixMicro()
	}
	// A queue with nothing to claim costs no write lock.
	var table string
	var some bool
	probe, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.db.read(probe, "claim", func(ctx context.Context, c *session) error {
		if table, err = queueOf(ctx, c, req.Queue); err != nil {
			return err
		}
		return c.QueryRowContext(ctx, "select exists (select 1 from "+table+" where pull_guid is null)").Scan(&some)
	}); err != nil {
		return nil, err
	}
	if !some {
		return nil, weir.ErrQueueEmpty
	}
	query, err := render("queue/claim.sql", struct{ Table string }{table})
	if err != nil {
		return nil, err
	}
	err = s.call(ctx, "claim", req.PullGUID, func(ctx context.Context, c *session) error {
		t, err := clock(ctx, c)
		if err != nil {
			return err
		}
		var ch weir.Change
		var instance, concept string
		var on int64
		var key, spelled sql.NullString
		if err := c.each(ctx, query, []any{req.PullGUID.String(), t, req.Limit, captures, concepts, types, from},
			[]any{&instance, &ch.ChangeType, &on, &concept, &key, &ch.CaptureID, &ch.Attempts, &spelled}, func() error {
				n := ch
				if n.InstanceGUID, err = weir.ParseGUID(instance); err != nil {
					return fmt.Errorf("claim queue %q: %w", req.Queue, err)
				}
				n.ConceptGUID, _ = weir.ParseGUID(concept) // zero where there is none
				n.ChangedOn, n.OldPrimaryKey, n.HasOldPrimaryKey = timeOf(on), key.String, key.Valid
				pull.Changes = append(pull.Changes, n)
				return nil
			}); err != nil {
			return err
		}
		if len(pull.Changes) == 0 {
			return weir.ErrQueueEmpty
		}
		until := after(t, req.Lease)
		pull.LeaseUntil = timeOf(until)
		_, err = c.ExecContext(ctx, "insert into weir_pulls (pull_guid, name, queue, puller, ledger, state, claimed_on, lease_until, rows) values (?, ?, ?, ?, ?, 'claimed', ?, ?, ?)",
			req.PullGUID.String(), req.Name, req.Queue, req.Puller, req.Ledger.String(), t, until, len(pull.Changes))
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pull.Changes, func(a, b weir.Change) int {
		if d := a.ChangedOn.Compare(b.ChangedOn); d != 0 {
			return d
		}
		return slices.Compare(a.InstanceGUID[:], b.InstanceGUID[:])
	})
	return pull, nil
}

// pullOf returns the queue, its quoted table and the state of a pull; no table
// where there is no such pull.
func pullOf(ctx context.Context, c *session, pull weir.GUID) (queue, table string, state weir.PullState, err error) {
	err = c.QueryRowContext(ctx, "select p.queue, q.table_name, p.state from weir_pulls p join weir_queues q on q.name = p.queue where p.pull_guid = ?", pull.String()).Scan(&queue, &table, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", "", nil
	}
	return queue, ident(table), state, err
}

// Settle implements [weir.Source].
func (s *Source) Settle(ctx context.Context, pull weir.GUID) (weir.SettleResult, error) {
	r := weir.SettleResult{Done: true}
	err := s.call(ctx, "settle", pull, func(ctx context.Context, c *session) error {
		queue, table, state, err := pullOf(ctx, c, pull)
		if err != nil || table == "" {
			return err
		}
		if state == weir.StateReleased {
			return fmt.Errorf("settle: pull %s was released", pull)
		}
		if _, err := c.ExecContext(ctx, "delete from weir_failures where queue = ?1 and exists (select 1 from weir_failures) and instance_guid in (select instance_guid from "+table+" where pull_guid = ?2)",
			queue, pull.String()); err != nil {
			return err
		}
		res, err := c.ExecContext(ctx, "delete from "+table+" where pull_guid = ?", pull.String())
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		r.Settled = int(n)
		_, err = c.ExecContext(ctx, "delete from weir_pulls where pull_guid = ?", pull.String())
		return err
	})
	return r, err
}

// Release implements [weir.Source].
func (s *Source) Release(ctx context.Context, pull weir.GUID) error {
	return s.call(ctx, "release", pull, func(ctx context.Context, c *session) error {
		_, table, state, err := pullOf(ctx, c, pull)
		if err != nil || table == "" {
			return err
		}
		if state == weir.StateSettled {
			return fmt.Errorf("release: pull %s is settled", pull)
		}
		if _, err := c.ExecContext(ctx, "update "+table+" set pull_guid = null where pull_guid = ?", pull.String()); err != nil {
			return err
		}
		_, err = c.ExecContext(ctx, "delete from weir_pulls where pull_guid = ?", pull.String())
		return err
	})
}

// Postpone implements [weir.Source].
func (s *Source) Postpone(ctx context.Context, pull weir.GUID, what []weir.Postponement) error {
	return s.call(ctx, "postpone", pull, func(ctx context.Context, c *session) error {
		queue, table, state, err := pullOf(ctx, c, pull)
		if err != nil {
			return err
		}
		if state != weir.StateClaimed {
			return fmt.Errorf("postpone: pull %s: %w", pull, weir.ErrLeaseLost)
		}
		t, err := clock(ctx, c)
		if err != nil {
			return err
		}
		for _, p := range what {
			var until any
			switch d := p.Delay.Microseconds(); {
			case p.Dead:
				until = int64(forever)
			case d <= 0:
			case p.Align:
				until = after((t+d-1)/d*d, 0)
			default:
				until = after(t, p.Delay)
			}
			res, err := c.ExecContext(ctx, "update "+table+" set pull_guid = null, not_before = ?3, attempts = coalesce(attempts, 0) + ?4 where instance_guid = ?1 and change_type = ?2 and pull_guid = ?5",
				p.InstanceGUID.String(), p.ChangeType, until, boolInt(p.Error != ""), pull.String())
			if err != nil {
				return err
			}
			// A change tagged anew meanwhile is no longer the pull's.
			if n, err := res.RowsAffected(); err != nil || n == 0 || p.Error == "" {
				if err != nil {
					return err
				}
				continue
			}
			if _, err := c.ExecContext(ctx, "insert into weir_failures (queue, instance_guid, change_type, failed_on, last_error) values (?, ?, ?, ?, ?) "+
				"on conflict (queue, instance_guid, change_type) do update set failed_on = excluded.failed_on, last_error = excluded.last_error",
				queue, p.InstanceGUID.String(), p.ChangeType, t, p.Error); err != nil {
				return err
			}
		}
		return nil
	})
}

// Extend implements [weir.Source].
func (s *Source) Extend(ctx context.Context, pull weir.GUID, lease time.Duration) error {
	return s.call(ctx, "extend", pull, func(ctx context.Context, c *session) error {
		t, err := clock(ctx, c)
		if err != nil {
			return err
		}
		res, err := c.ExecContext(ctx, "update weir_pulls set lease_until = ? where pull_guid = ? and state = 'claimed'", after(t, lease), pull.String())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("extend: pull %s: %w", pull, weir.ErrLeaseLost))
		}
		return nil
	})
}

// Expired implements [weir.Source].
func (s *Source) Expired(ctx context.Context, name string, ledger weir.GUID) ([]weir.Expired, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var out []weir.Expired
	err := s.db.read(ctx, "find expired pulls", func(ctx context.Context, c *session) error {
		var pull, into string
		var e weir.Expired
		return c.each(ctx, "select pull_guid, puller, ledger, state, rows from weir_pulls where name = ? and (state <> 'claimed' or lease_until <= "+now+") order by claimed_on, pull_guid",
			[]any{name}, []any{&pull, &e.Puller, &into, &e.State, &e.Rows}, func() error {
				var err error
				if e.PullGUID, err = weir.ParseGUID(pull); err != nil {
					return fmt.Errorf("find expired pulls: %w", err)
				}
				if e.State == weir.StateClaimed && into != ledger.String() {
					return &weir.ConfigError{Key: "pulls: " + name,
						Err:  fmt.Errorf("pull %s was claimed for the ledger %s, but the target's ledger is %s", pull, into, ledger),
						Hint: "point the pull at the target that it had, let it finish, and then change it; or, if that target is gone, weir queue release --force " + pull}
				}
				out = append(out, e)
				return nil
			})
	})
	return out, err
}
