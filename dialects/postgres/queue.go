package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// registered is a capture of the registry with what identifies its table.
type registered struct {
	weir.Capture
	oid      uint32
	keyTypes []string
}

func (s *Source) registered(ctx context.Context) ([]registered, error) {
	return s.readRegistry(ctx, s.pool)
}

func (s *Source) readRegistry(ctx context.Context, q queryer) ([]registered, error) {
	rows, err := q.Query(ctx, fmt.Sprintf(`select c.capture_id, c.table_schema::text, c.table_name::text, c.table_oid::bigint, c.kind, c.change_type,
			coalesce(c.concept_guid::text, ''), coalesce(c.concept_column::text, ''), coalesce(c.old_key_column::text, ''), c.key_columns::text[], c.key_types,
			c.is_set, c.row_key::text[], c.tagging, c.refuse_truncate,
			array(select q.queue from %s q where q.capture_id = c.capture_id order by q.queue)
		from %s c order by c.capture_id`, s.own("capture_queues"), s.own("captures")))
	if err != nil {
		return nil, translate(err, weir.AtSource, "read captures", "")
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (registered, error) {
		var c registered
		var oid int64
		var kind, tagging, concept string
		var key []string
		err := r.Scan(&c.ID, &c.Table.Schema, &c.Table.Name, &oid, &kind, &c.ChangeType, &concept, &c.ConceptColumn, &c.OldKeyColumn,
			&key, &c.keyTypes, &c.Set, &c.RowKey, &tagging, &c.RefuseTruncate, &c.Queues)
		if err != nil {
			return c, err
		}
		c.oid, c.Kind, c.Tagging = uint32(oid), weir.CaptureKind(kind), weir.Tagging(tagging)
		if concept != "" {
			if c.ConceptGUID, err = weir.ParseGUID(concept); err != nil {
				return c, err
			}
		}
		for i, name := range key {
			c.Key = append(c.Key, weir.Column{Name: name, Native: c.keyTypes[i]})
		}
		if len(c.RowKey) == 0 {
			c.RowKey = nil
		}
		return c, nil
	})
	return list, translate(err, weir.AtSource, "read captures", "")
}

// Captures implements [weir.Source].
func (s *Source) Captures(ctx context.Context) ([]*weir.Capture, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := s.registered(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*weir.Capture, len(list))
	for i := range list {
		out[i] = &list[i].Capture
	}
	return out, nil
}

// call runs f in a transaction of one protocol step.
func (s *Source) call(ctx context.Context, op string, pull weir.GUID, f func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return tx(ctx, s.pool, readCommitted, weir.AtSource, op, pull, func(t pgx.Tx) error { return f(ctx, t) })
}

// Fold implements [weir.Source].
func (s *Source) Fold(ctx context.Context, limit int) (int, error) {
	var folded int
	err := s.call(ctx, "fold", weir.GUID{}, func(ctx context.Context, t pgx.Tx) error {
		return t.QueryRow(ctx, "select "+s.own("fold")+"($1::integer)", limit).Scan(&folded)
	})
	return folded, err
}

// Claim implements [weir.Source].
func (s *Source) Claim(ctx context.Context, req weir.ClaimRequest) (*weir.Pull, error) {
	pull := &weir.Pull{PullGUID: req.PullGUID, Name: req.Name, Queue: req.Queue}
	err := s.call(ctx, "claim", req.PullGUID, func(ctx context.Context, t pgx.Tx) error {
		rows, err := t.Query(ctx, "select instance_guid, change_type, changed_on, coalesce(concept_guid, '00000000-0000-0000-0000-000000000000'), "+
			"coalesce(old_primary_key, ''), old_primary_key is not null, coalesce(capture_id, 0), attempts from "+s.own("claim")+
			"($1, $2::text::uuid, $3, $4, $5::text::uuid, $6::integer, $7::bigint * interval '1 microsecond', $8::integer[], $9::text[]::uuid[], $10::text[], $11::timestamptz)",
			pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats{pgx.BinaryFormatCode}, // thousands of rows: no text to parse
			req.Queue, req.PullGUID.String(), req.Name, req.Puller, req.Ledger.String(), req.Limit, req.Lease.Microseconds(),
			orNull(req.Captures), orNull(guidTexts(req.Concepts)), orNull(req.ChangeTypes), timeOrNull(req.From))
		if err != nil {
			return err
		}
		defer rows.Close()
		pull.Changes = make([]weir.Change, 0, min(req.Limit, 10_000))
		types := map[string]string{}
		for rows.Next() {
			pull.Changes = append(pull.Changes, claimed(rows.RawValues(), types))
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if len(pull.Changes) == 0 {
			return weir.ErrQueueEmpty
		}
		return t.QueryRow(ctx, "select lease_until from "+s.own("pulls")+" where pull_guid = $1::text::uuid", req.PullGUID.String()).Scan(&pull.LeaseUntil)
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

// claimed decodes a row of claim in binary form (PostgreSQL's send functions):
// a uuid is 16 bytes, a timestamptz an int64 of microseconds since 2000. It is
// done by hand as it is done for thousands of rows a claim. types has each change
// type once.
func claimed(row [][]byte, types map[string]string) weir.Change {
	c := weir.Change{
		InstanceGUID:     weir.GUID(row[0]),
		ConceptGUID:      weir.GUID(row[3]),
		OldPrimaryKey:    string(row[4]),
		HasOldPrimaryKey: row[5][0] != 0,
		CaptureID:        int32(binary.BigEndian.Uint32(row[6])),
		Attempts:         int(int32(binary.BigEndian.Uint32(row[7]))),
	}
	micros := int64(binary.BigEndian.Uint64(row[2]))
	c.ChangedOn = time.Unix(epoch.Unix()+micros/1e6, micros%1e6*1e3).UTC()
	t, ok := types[string(row[1])]
	if !ok {
		t = string(row[1])
		types[t] = t
	}
	c.ChangeType = t
	return c
}

// epoch is PostgreSQL's zero of times.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func orNull[T any](list []T) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

func guidTexts(guids []weir.GUID) []string {
	out := make([]string, len(guids))
	for i, g := range guids {
		out[i] = g.String()
	}
	return out
}

// Settle implements [weir.Source].
func (s *Source) Settle(ctx context.Context, pull weir.GUID) (weir.SettleResult, error) {
	var r weir.SettleResult
	err := s.call(ctx, "settle", pull, func(ctx context.Context, t pgx.Tx) error {
		return t.QueryRow(ctx, "select settled, done from "+s.own("settle")+"($1::text::uuid)", pull.String()).Scan(&r.Settled, &r.Done)
	})
	return r, err
}

// Release implements [weir.Source].
func (s *Source) Release(ctx context.Context, pull weir.GUID) error {
	return s.call(ctx, "release", pull, func(ctx context.Context, t pgx.Tx) error {
		_, err := t.Exec(ctx, "select "+s.own("release")+"($1::text::uuid)", pull.String())
		return err
	})
}

// Postpone implements [weir.Source].
func (s *Source) Postpone(ctx context.Context, pull weir.GUID, what []weir.Postponement) error {
	var guids, types []string
	var delays []int64
	var align, dead []bool
	var messages []*string
	for _, p := range what {
		guids, types = append(guids, p.InstanceGUID.String()), append(types, p.ChangeType)
		delays = append(delays, p.Delay.Microseconds())
		align, dead = append(align, p.Align), append(dead, p.Dead)
		var m *string
		if p.Error != "" {
			text := strings.ToValidUTF8(strings.ReplaceAll(p.Error, "\x00", `\0`), "?")
			m = &text
		}
		messages = append(messages, m)
	}
	return s.call(ctx, "postpone", pull, func(ctx context.Context, t pgx.Tx) error {
		_, err := t.Exec(ctx, "select "+s.own("postpone")+"($1::text::uuid, $2::text[]::uuid[], $3::text[], "+
			"array(select d * interval '1 microsecond' from unnest($4::bigint[]) with ordinality u (d, place) order by place), $5::boolean[], $6::boolean[], $7::text[])",
			pull.String(), guids, types, delays, align, dead, messages)
		return err
	})
}

// Extend implements [weir.Source].
func (s *Source) Extend(ctx context.Context, pull weir.GUID, lease time.Duration) error {
	return s.call(ctx, "extend", pull, func(ctx context.Context, t pgx.Tx) error {
		_, err := t.Exec(ctx, "select "+s.own("extend")+"($1::text::uuid, $2::bigint * interval '1 microsecond')", pull.String(), lease.Microseconds())
		return err
	})
}

// Expired implements [weir.Source].
func (s *Source) Expired(ctx context.Context, name string, ledger weir.GUID) ([]weir.Expired, error) {
	var out []weir.Expired
	err := s.call(ctx, "find expired pulls", weir.GUID{}, func(ctx context.Context, t pgx.Tx) error {
		rows, err := t.Query(ctx, "select pull_guid, puller, ledger, state, rows from "+s.own("expired")+"($1)", name)
		if err != nil {
			return err
		}
		var guid, into [16]byte
		var e weir.Expired
		var state string
		_, err = pgx.ForEachRow(rows, []any{&guid, &e.Puller, &into, &state, &e.Rows}, func() error {
			e.PullGUID, e.State = guid, weir.PullState(state)
			if e.State == weir.StateClaimed && into != ledger {
				return &weir.ConfigError{Key: "pulls: " + name,
					Err:  fmt.Errorf("pull %s was claimed for the ledger %s, but the target's ledger is %s", e.PullGUID, weir.GUID(into), ledger),
					Hint: "point the pull at the target that it had, let it finish, and then change it; or, if that target is gone, weir queue release --force " + e.PullGUID.String()}
			}
			out = append(out, e)
			return nil
		})
		return err
	})
	return out, err
}

// Backfill tags the next keys of a capture, at most limit, in the order of the
// key, by the inbox, in one transaction with its progress, so that it can be
// killed and resumed. restart begins anew.
func (s *Source) Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error) {
	out := weir.BackfillProgress{CaptureID: captureID}
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	err := tx(ctx, s.pool, readCommitted, weir.AtSource, "backfill", weir.GUID{}, func(t pgx.Tx) error {
		if _, err := t.Exec(ctx, "set local lock_timeout = '"+lockTimeout+"'"); err != nil {
			return err
		}
		// An apply that registers the capture anew comes before this chunk, which
		// then begins anew, or after, and forgets its progress.
		if _, err := t.Exec(ctx, "select from "+s.own("captures")+" where capture_id = $1::integer for share", captureID); err != nil {
			return err
		}
		list, err := s.readRegistry(ctx, t)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(r registered) bool { return r.ID == captureID })
		if i < 0 {
			return &weir.ConfigError{Key: "captures", Err: fmt.Errorf("capture %d is not installed", captureID), Hint: "run weir triggers apply"}
		}
		c := list[i]
		out.Table = c.Table
		p, err := planOf(ctx, t, &c)
		if err != nil {
			return err
		}
		out.Estimate = max(p.table.rows, 0)
		var last []string
		var done *time.Time
		err = t.QueryRow(ctx, "select last_key, tagged, done_on from "+s.own("backfills")+" where capture_id = $1::integer for update", captureID).Scan(&last, &out.Tagged, &done)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && restart:
			last, out.Tagged, done = nil, 0, nil
			if _, err := t.Exec(ctx, "insert into "+s.own("backfills")+" as b (capture_id, tagged, started_on) values ($1::integer, 0, clock_timestamp()) "+
				"on conflict (capture_id) do update set last_key = null, tagged = 0, started_on = clock_timestamp(), done_on = null", captureID); err != nil {
				return err
			}
		case err != nil:
			return err
		}
		if done != nil {
			out.Done, out.Before, out.DoneOn = true, true, *done
			return nil
		}
		var n int
		sql, args := s.backfillSQL(p, last, limit)
		for _, set := range p.row("r").sets {
			if _, err := t.Exec(ctx, "set local "+set); err != nil {
				return err
			}
		}
		var next []string
		if err := t.QueryRow(ctx, sql, args...).Scan(&n, &next); err != nil {
			return translate(err, weir.AtSource, "backfill", c.Table.String())
		}
		out.Tagged += int64(n)
		out.Done = n < limit
		_, err = t.Exec(ctx, "update "+s.own("backfills")+" set last_key = coalesce($2::text[], last_key), tagged = $3::bigint, done_on = case when $4::boolean then clock_timestamp() end where capture_id = $1::integer",
			captureID, next, out.Tagged, out.Done)
		return err
	})
	return out, err
}

// backfillSQL appends the next keys to the inbox, and returns their number and
// the last one.
func (s *Source) backfillSQL(p *plan, last []string, limit int) (string, []any) {
	r := p.row("r")
	var names, texts, after []string
	for i, c := range p.keyCols {
		names = append(names, "r."+ident(c.Name))
		text, _, ok := c.keyText("l." + ident(c.Name))
		if !ok {
			text = "l." + ident(c.Name) + "::text"
		}
		texts = append(texts, text)
		after = append(after, c.fromKeyText(fmt.Sprintf("$%d::text", i+3)))
	}
	where := "where true"
	args := []any{limit, p.ID}
	if last != nil {
		where = fmt.Sprintf("where (%s) > (%s)", strings.Join(names, ", "), strings.Join(after, ", "))
		for _, v := range last {
			args = append(args, v)
		}
	}
	columns := append([]string{}, names...)
	distinct := ""
	if p.Set {
		distinct = "distinct on (" + names[0] + ") "
		if !p.keyCols[0].NotNull {
			where += " and " + names[0] + " is not null"
		}
	}
	for _, c := range []string{p.ConceptColumn, p.OldKeyColumn} {
		if c != "" && !slices.Contains(columns, "r."+ident(c)) {
			columns = append(columns, "r."+ident(c))
		}
	}
	typ := weir.InstanceInserted
	if p.Kind == weir.Child {
		typ = p.ChangeType
	}
	order := strings.Join(names, ", ")
	last1 := "l." + strings.Join(func() (n []string) {
		for _, c := range p.keyCols {
			n = append(n, ident(c.Name)+" desc")
		}
		return n
	}(), ", l.")
	return fmt.Sprintf(`with chunk as materialized (
    select %s%s from %s r %s order by %s limit $1::integer
), tagged as (
    insert into %s (instance_guid, change_type, changed_on, concept_guid, old_primary_key, capture_id)
    select %s, %s, clock_timestamp(), %s, %s, $2::integer from chunk r
)
select (select count(*) from chunk)::integer, (select array[%s] from chunk l order by %s limit 1)`,
		distinct, strings.Join(columns, ", "), tableName(p.Table), where, order,
		s.own("inbox"), r.guid, literal(typ), r.concept, r.key, strings.Join(texts, ", "), last1), args
}

// planOf reads a registered capture's table, in the caller's transaction, and
// makes sure that it is the one that was captured.
func planOf(ctx context.Context, q queryer, c *registered) (*plan, error) {
	drift := func(why string) error {
		return &weir.DriftError{Object: c.Table.String(), Err: errors.New(why), Hint: "run weir triggers plan, then apply, then weir backfill " + c.Table.String()}
	}
	t, err := describeTable(ctx, q, c.Table)
	switch {
	case err != nil:
		return nil, translate(err, weir.AtSource, "describe", c.Table.String())
	case t == nil:
		return nil, &weir.DriftError{Object: c.Table.String(), Err: errors.New("the captured table is gone, or renamed"),
			Hint: "take it out of captures, or give it its new name there; then weir triggers apply, and weir backfill of the new name: what waits by the old one cannot be shipped"}
	case t.oid != c.oid:
		return nil, drift("the table is not the one that was captured: it was dropped and made again, or the database is a restored copy")
	case t.filtered:
		return nil, &weir.ConfigError{Key: c.Table.String(), Err: errors.New("row-level security hides rows from the role that weir connects as"),
			Hint: "ALTER ROLE ... BYPASSRLS: a row that is hidden would be deleted at the target"}
	}
	p := &plan{Capture: &c.Capture, table: t}
	for i := range c.Key {
		col := t.column(c.Key[i].Name)
		if col == nil {
			return nil, drift(fmt.Sprintf("key column %q is gone", c.Key[i].Name))
		}
		if col.Native != c.keyTypes[i] && col.base != c.keyTypes[i] {
			return nil, drift(fmt.Sprintf("key column %q is now %s, it was %s", col.Name, col.Native, c.keyTypes[i]))
		}
		c.Key[i] = col.Column
		p.keyCols = append(p.keyCols, col)
	}
	if c.Kind == weir.Plain && !slices.Equal(t.key, func() (k []string) {
		for _, col := range c.Key {
			k = append(k, col.Name)
		}
		return k
	}()) {
		return nil, drift("the table's key changed")
	}
	return p, nil
}
