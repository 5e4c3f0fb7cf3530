package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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

// inboxTag is a row of the inbox.
type inboxTag struct {
	weir.Change
	instance         string
	concept, spelled sql.NullString
	on               int64
}

// Fold implements [weir.Source].
func (s *Source) Fold(ctx context.Context, limit int) (int, error) {
	var some bool
	probe, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.db.read(probe, "fold", func(ctx context.Context, c *session) error {
		return c.QueryRowContext(ctx, "select exists (select 1 from weir_inbox)").Scan(&some)
	}); err != nil || !some {
		return 0, err
	}
	folded := 0
	err := s.call(ctx, "fold", weir.GUID{}, func(ctx context.Context, c *session) error {
		var err error
		folded, err = fold(ctx, c, limit)
		return err
	})
	return folded, err
}

func fold(ctx context.Context, c *session, limit int) (int, error) {
	list, err := readRegistry(ctx, c)
	if err != nil {
		return 0, err
	}
	// The last tag of each instance and kind of type comes last.
	var tags []*inboxTag
	at := map[string]int{}
	var t inboxTag
	var id, last int64
	var key sql.NullString
	n := 0
	if err := c.each(ctx, "select id, instance_guid, change_type, changed_on, concept_guid, old_primary_key, coalesce(capture_id, 0), instance_key from weir_inbox order by id limit ?", []any{limit},
		[]any{&id, &t.instance, &t.ChangeType, &t.on, &t.concept, &key, &t.CaptureID, &t.spelled}, func() error {
			n, last = n+1, id
			k := t
			k.OldPrimaryKey, k.HasOldPrimaryKey = key.String, key.Valid
			var err error
			if k.InstanceGUID, err = weir.ParseGUID(t.instance); err != nil {
				return fmt.Errorf("fold: inbox row %d: %w", id, err)
			}
			k.ConceptGUID, _ = weir.ParseGUID(t.concept.String) // zero where there is none
			of := t.instance + t.ChangeType
			if ownType(t.ChangeType) {
				of = t.instance
			}
			i, ok := at[of]
			switch {
			case !ok:
				at[of] = len(tags)
				tags = append(tags, &k)
			case k.on >= tags[i].on:
				tags[i] = &k
			}
			return nil
		}); err != nil {
		return 0, err
	}
	byCapture := map[int32][]*inboxTag{}
	for _, t := range tags {
		if t.CaptureID != 0 && ownType(t.ChangeType) {
			byCapture[t.CaptureID] = append(byCapture[t.CaptureID], t)
		}
	}
	for i := range list {
		if err := decidePresence(ctx, c, &list[i], byCapture[list[i].ID]); err != nil {
			return 0, err
		}
	}
	w := &tagger{statements: map[string]*sql.Stmt{}}
	defer w.close()
	for _, t := range tags {
		for _, q := range queuesFor(list, t.Change) {
			if err := w.tag(ctx, c, q, t); err != nil {
				return 0, err
			}
		}
	}
	_, err = c.ExecContext(ctx, "delete from weir_inbox where id <= ?", last)
	return n, err
}

func ownType(changeType string) bool {
	return changeType == weir.InstanceInserted || changeType == weir.InstanceDeleted
}

// decidePresence sets the type of a capture's tags by the row's presence. Where
// the table is not as captured, the latest tag stands; the read says what is
// wrong.
func decidePresence(ctx context.Context, c *session, r *registered, tags []*inboxTag) error {
	if len(tags) == 0 {
		return nil
	}
	p, err := planOf(ctx, c, r)
	if err != nil {
		var d *weir.DriftError
		if errors.As(err, &d) {
			return nil
		}
		return err
	}
	var items []*lookup
	var of []*inboxTag
	for _, t := range tags {
		l, err := p.lookup(t.Change, t.spelled.String)
		if err != nil {
			continue
		}
		items, of = append(items, l), append(of, t)
		t.ChangeType = weir.InstanceDeleted
	}
	return p.find(ctx, c, items, nil, func(place int, _ []value) error {
		of[place].ChangeType = weir.InstanceInserted
		return nil
	})
}

// queuesFor are the queues that a tag goes to. A capture knows its queues; a tag
// of other code goes to those of the captures of its concept, and to the default
// queue where there is none.
func queuesFor(list []registered, ch weir.Change) []string {
	var out []string
	for i := range list {
		r := &list[i]
		if ch.CaptureID != 0 {
			if r.ID == ch.CaptureID {
				return r.Queues
			}
			continue
		}
		ofType := r.Kind != weir.Child && ownType(ch.ChangeType) || r.Kind == weir.Child && r.ChangeType == ch.ChangeType
		if !ofType || !r.ConceptGUID.IsZero() && r.ConceptGUID != ch.ConceptGUID {
			continue
		}
		for _, q := range r.Queues {
			if !slices.Contains(out, q) {
				out = append(out, q)
			}
		}
	}
	if len(out) == 0 {
		return []string{weir.DefaultQueue}
	}
	return out
}

// tagger writes tags into queues, with a statement prepared once a queue.
type tagger struct {
	statements map[string]*sql.Stmt
}

func (w *tagger) close() {
	for _, st := range w.statements {
		st.Close()
	}
}

func (w *tagger) prepared(ctx context.Context, c *session, text string) (*sql.Stmt, error) {
	if st := w.statements[text]; st != nil {
		return st, nil
	}
	st, err := c.PrepareContext(ctx, text)
	if err == nil {
		w.statements[text] = st
	}
	return st, err
}

func (w *tagger) tag(ctx context.Context, c *session, queue string, t *inboxTag) error {
	cancels := map[string]string{weir.InstanceInserted: weir.InstanceDeleted, weir.InstanceDeleted: weir.InstanceInserted}[t.ChangeType]
	a := tagArgs{
		Queue: ident(queueTable(queue)), Type: "?2", Now: "?3", Capture: "?6", Guid: "select ?1",
		Rows: "select ?1 as guid, ?4 as concept, ?5 as key, ?7 as spelled",
	}
	args := []any{t.instance, t.ChangeType, t.on, t.concept, sql.NullString{String: t.OldPrimaryKey, Valid: t.HasOldPrimaryKey},
		sql.NullInt32{Int32: t.CaptureID, Valid: t.CaptureID != 0}, t.spelled}
	if cancels != "" {
		a.Cancels = literal(cancels)
	}
	text, err := render("tag", a)
	if err != nil {
		return err
	}
	st, err := w.prepared(ctx, c, strings.TrimSpace(text))
	if err != nil {
		return err
	}
	if _, err := st.ExecContext(ctx, args...); err != nil || cancels == "" {
		return err
	}
	if text, err = render("cancel", a); err != nil {
		return err
	}
	if st, err = w.prepared(ctx, c, strings.TrimSpace(text)); err != nil {
		return err
	}
	_, err = st.ExecContext(ctx, t.instance)
	return err
}
