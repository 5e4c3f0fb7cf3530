package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// unit is an item of the batch: Tables[table].Items[item].
type unit struct{ table, item int }

// isolation finds the items at fault inside one transaction that is never
// committed: what can be applied stays applied, so that a row which depends on
// another finds it there.
type isolation struct {
	tx     pgx.Tx
	mode   weir.Mode
	batch  *weir.Batch
	dests  []*destination
	rounds int
}

// Isolate implements [weir.Target].
func (t *Target) Isolate(ctx context.Context, b *weir.Batch) ([]weir.Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	dests, err := t.destinations(ctx, b)
	if err != nil {
		return nil, err
	}
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return nil, translate(err, weir.AtTarget, "isolate", "")
	}
	defer conn.Release()
	x, err := conn.BeginTx(ctx, readCommitted)
	if err != nil {
		return nil, translate(err, weir.AtTarget, "isolate", "")
	}
	defer rollback(ctx, x)
	if _, err := x.Exec(ctx, "set local lock_timeout = '5s'"); err != nil {
		return nil, translate(err, weir.AtTarget, "isolate", "")
	}
	iso := &isolation{tx: x, mode: t.opts.Mode, batch: b, dests: dests}
	faults, err := iso.run(ctx)
	return faults, translate(err, weir.AtTarget, "isolate", "")
}

// run finds the faults, and makes sure that the rest can be shipped: what went
// in a piece at a time may not go in at once.
func (iso *isolation) run(ctx context.Context) ([]weir.Fault, error) {
	var units []unit
	for i := range iso.batch.Tables {
		for j := range iso.batch.Tables[i].Items {
			units = append(units, unit{i, j})
		}
	}
	if _, err := iso.tx.Exec(ctx, "savepoint whole"); err != nil {
		return nil, err
	}
	first, err := iso.bisect(ctx, units)
	if err != nil {
		return nil, err
	}
	faults, err := iso.find(ctx, slices.Clone(first))
	if err != nil || len(faults) == len(first) {
		return faults, err
	}
	if _, err := iso.tx.Exec(ctx, "rollback to savepoint whole"); err != nil {
		return nil, err
	}
	out := map[unit]bool{}
	for _, f := range faults {
		out[unit{f.Table, f.Item}] = true
	}
	rest := slices.DeleteFunc(units, func(u unit) bool { return out[u] })
	batch, dests, _ := iso.part(rest)
	err = iso.attempt(ctx, batch, dests, nil)
	if _, _, ok := rowFault(err); ok {
		// Those that had to be tried again wait until the others have arrived.
		return first, nil
	}
	return faults, err
}

// find tries again what other rows decided, now that those are there: as long as
// that helps, and then in groups that exchange unique values.
func (iso *isolation) find(ctx context.Context, faults []weir.Fault) ([]weir.Fault, error) {
	for {
		var again []unit
		var kept []weir.Fault
		for _, f := range faults {
			if f.Err.Constraint {
				again = append(again, unit{f.Table, f.Item})
			} else {
				kept = append(kept, f)
			}
		}
		if len(again) == 0 {
			return faults, nil
		}
		groups, err := iso.exchanges(ctx, again)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			found, err := iso.bisect(ctx, g)
			if err != nil {
				return nil, err
			}
			kept = append(kept, found...)
		}
		done := len(kept) == len(faults)
		faults = kept
		if done {
			return faults, nil
		}
	}
}

// bisect applies what it can of the units, and returns the others.
func (iso *isolation) bisect(ctx context.Context, units []unit) ([]weir.Fault, error) {
	faults, err := iso.try(ctx, units)
	var row *weir.RowError
	switch {
	case err == nil:
		return faults, nil
	case !errors.As(err, &row):
		return nil, err
	case len(units) == 1:
		u := units[0]
		if err := iso.explain(ctx, u, row); err != nil {
			return nil, err
		}
		return []weir.Fault{{Table: u.table, Item: u.item, Err: row}}, nil
	}
	half := len(units) / 2
	first, err := iso.bisect(ctx, units[:half])
	if err != nil {
		return nil, err
	}
	second, err := iso.bisect(ctx, units[half:])
	return append(first, second...), err
}

// try applies the units under a savepoint, which it keeps if that works.
func (iso *isolation) try(ctx context.Context, units []unit) ([]weir.Fault, error) {
	batch, dests, back := iso.part(units)
	faults := []weir.Fault{}
	if err := iso.attempt(ctx, batch, dests, &faults); err != nil {
		return nil, err
	}
	for i, f := range faults {
		u := back[unit{f.Table, f.Item}]
		faults[i].Table, faults[i].Item = u.table, u.item
	}
	return faults, nil
}

// attempt applies a batch as Ship does, under a savepoint that it keeps if that
// works.
func (iso *isolation) attempt(ctx context.Context, batch *weir.Batch, dests []*destination, faults *[]weir.Fault) error {
	var err error
	for how, again := (way{}), true; again; {
		if faults != nil {
			*faults = nil
		}
		if _, err := iso.tx.Exec(ctx, "savepoint attempt"); err != nil {
			return err
		}
		iso.rounds++
		a := application{tx: iso.tx, mode: iso.mode, batch: batch, dests: dests, way: how, faults: faults, round: iso.rounds}
		if err = a.run(ctx); err == nil {
			_, err = iso.tx.Exec(ctx, "release savepoint attempt")
			return err
		}
		if rerr := iso.undo(ctx); rerr != nil {
			return errors.Join(err, rerr)
		}
		how, again = how.after(err)
	}
	return err
}

func (iso *isolation) undo(ctx context.Context) error {
	return iso.tx.Conn().PgConn().Exec(ctx, "rollback to savepoint attempt; release savepoint attempt").Close()
}

// part is the batch of some units, and where they came from.
func (iso *isolation) part(units []unit) (*weir.Batch, []*destination, map[unit]unit) {
	out := &weir.Batch{}
	var dests []*destination
	at := map[int]int{}
	back := make(map[unit]unit, len(units))
	for _, u := range units {
		i, ok := at[u.table]
		if !ok {
			i = len(out.Tables)
			at[u.table] = i
			t := iso.batch.Tables[u.table]
			t.Items = nil
			out.Tables = append(out.Tables, t)
			dests = append(dests, iso.dests[u.table])
		}
		back[unit{i, len(out.Tables[i].Items)}] = u
		out.Tables[i].Items = append(out.Tables[i].Items, iso.batch.Tables[u.table].Items[u.item])
	}
	return out, dests, back
}

// explain completes the error of a single item: its key, and the column whose
// value cannot be converted.
func (iso *isolation) explain(ctx context.Context, u unit, e *weir.RowError) error {
	item := &iso.batch.Tables[u.table].Items[u.item]
	e.Key = keyText(item)
	if e.Column != "" || e.Constraint || len(item.Rows) == 0 {
		return nil
	}
	batch, dests, _ := iso.part([]unit{u})
	for n := range dests[0].columns {
		one := *dests[0]
		one.columns = one.columns[n : n+1]
		m := one.columns[0]
		if _, err := iso.tx.Exec(ctx, "savepoint attempt"); err != nil {
			return err
		}
		iso.rounds++
		a := application{tx: iso.tx, mode: iso.mode, batch: batch, dests: []*destination{&one}, round: iso.rounds}
		err := a.load(ctx, 0)
		if err == nil {
			// The column's own type: a domain may refuse what the type under it takes.
			var full string
			if err := iso.tx.QueryRow(ctx, "select format_type(a.atttypid, a.atttypmod) from pg_attribute a where a.attrelid = $1::bigint::oid and a.attname = $2",
				int64(one.oid), m.target.Name).Scan(&full); err != nil {
				return err
			}
			err = a.exec(ctx, 0, fmt.Sprintf("select (%s)::%s from %s s", m.expr, full, a.stage(0)))
		}
		if rerr := iso.undo(ctx); rerr != nil {
			return rerr
		}
		var row *weir.RowError
		if errors.As(err, &row) {
			e.Column, e.Value, e.Err = m.Name, valueOf(item, m.place), row.Err
			if row.Hint != "" {
				e.Hint = row.Hint
			}
			return nil
		}
	}
	return nil
}

// exchanges groups units that hold unique values which others among them want;
// the rest are one group.
func (iso *isolation) exchanges(ctx context.Context, units []unit) ([][]unit, error) {
	root := make([]int, len(units))
	for i := range root {
		root[i] = i
	}
	var find func(i int) int
	find = func(i int) int {
		if root[i] != i {
			root[i] = find(root[i])
		}
		return root[i]
	}
	batch, dests, back := iso.part(units)
	at := map[unit]int{}
	for i, u := range units {
		at[u] = i
	}
	if _, err := iso.tx.Exec(ctx, "savepoint attempt"); err != nil {
		return nil, err
	}
	iso.rounds++
	a := application{tx: iso.tx, mode: iso.mode, batch: batch, dests: dests, faults: &[]weir.Fault{}, round: iso.rounds}
	for i, d := range dests {
		if len(d.uniques) == 0 {
			continue
		}
		if err := a.load(ctx, i); err != nil {
			return nil, err
		}
		same := func(alias string, names []string) (string, bool) {
			var parts []string
			for _, n := range names {
				k := slices.IndexFunc(d.columns, func(m mapped) bool { return m.Name == n })
				if k < 0 {
					return "", false
				}
				parts = append(parts, fmt.Sprintf("t.%s = %s", ident(n), strings.ReplaceAll(d.columns[k].expr, "s.c", alias+".c")))
			}
			return strings.Join(parts, " and "), len(parts) > 0
		}
		for _, u := range d.uniques {
			wants, ok := same("s", u)
			holds, okKey := same("o", d.keyNames())
			if !ok || !okKey {
				continue
			}
			rows, err := iso.tx.Query(ctx, fmt.Sprintf("select s.place, o.place from %s s join %s t on %s join %s o on %s where o.place <> s.place", a.stage(i), d.name, wants, a.stage(i), holds))
			if err != nil {
				return nil, err
			}
			var x, y int
			if _, err := pgx.ForEachRow(rows, []any{&x, &y}, func() error {
				root[find(at[back[unit{i, x}]])] = find(at[back[unit{i, y}]])
				return nil
			}); err != nil {
				return nil, err
			}
		}
	}
	if err := iso.undo(ctx); err != nil {
		return nil, err
	}
	members := map[int][]unit{}
	for i, u := range units {
		members[find(i)] = append(members[find(i)], u)
	}
	var groups [][]unit
	var rest []unit
	for _, r := range slices.Sorted(maps.Keys(members)) {
		if g := members[r]; len(g) > 1 {
			groups = append(groups, g)
		} else {
			rest = append(rest, g...)
		}
	}
	if len(rest) > 0 {
		groups = append(groups, rest)
	}
	return groups, nil
}
