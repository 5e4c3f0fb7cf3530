package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// unit is an item of the batch: Tables[table].Items[item].
type unit struct{ table, item int }

// isolation finds the items at fault inside a transaction that is never
// committed: what can be applied stays applied, so that a row which depends on
// another finds it there. An error may end the transaction (a conversion, an
// error in a trigger); then what was applied is applied again in another.
type isolation struct {
	conn   *sql.Conn
	tx     *session
	end    func()
	mode   weir.Mode
	batch  *weir.Batch
	dests  []*destination
	rounds int
	kept   []step
}

// step is a part of the batch that was applied, and how.
type step struct {
	units []unit
	way
}

// Isolate implements [weir.Target].
func (t *Target) Isolate(ctx context.Context, b *weir.Batch) ([]weir.Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	dests, err := t.destinations(ctx, b)
	if err != nil {
		return nil, err
	}
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return nil, translate(err, weir.AtTarget, "isolate", "")
	}
	defer conn.Close()
	iso := &isolation{conn: conn, mode: t.opts.Mode, batch: b, dests: dests}
	defer iso.stop()
	if err := iso.restart(ctx); err != nil {
		return nil, translate(err, weir.AtTarget, "isolate", "")
	}
	faults, err := iso.run(ctx)
	return faults, translate(err, weir.AtTarget, "isolate", "")
}

func (iso *isolation) stop() {
	if iso.tx != nil {
		iso.tx.rollback()
		iso.end()
		iso.tx = nil
	}
}

// restart begins a transaction and applies what is kept. With XACT_ABORT off an
// error of a constraint ends its statement only.
func (iso *isolation) restart(ctx context.Context) error {
	iso.stop()
	if _, err := iso.conn.ExecContext(ctx, "SET XACT_ABORT OFF; SET LOCK_TIMEOUT 5000"); err != nil {
		return err
	}
	var err error
	if iso.tx, iso.end, err = begin(ctx, iso.conn); err != nil {
		iso.tx = nil
		return err
	}
	for _, s := range iso.kept {
		batch, dests, _ := iso.part(s.units)
		iso.rounds++
		a := application{tx: iso.tx, mode: iso.mode, batch: batch, dests: dests, way: s.way, round: iso.rounds}
		if err := a.run(ctx); err != nil {
			return &weir.UnavailableError{Side: weir.AtTarget, Op: "isolate", Err: fmt.Errorf("what was applied once is refused now: %w", err)}
		}
	}
	return nil
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
	if len(units) == 0 {
		return nil, nil
	}
	first, err := iso.bisect(ctx, units)
	if err != nil {
		return nil, err
	}
	faults, err := iso.find(ctx, slices.Clone(first))
	if err != nil || len(faults) == len(first) {
		return faults, err
	}
	iso.kept = nil
	if err := iso.restart(ctx); err != nil {
		return nil, err
	}
	out := map[unit]bool{}
	for _, f := range faults {
		out[unit{f.Table, f.Item}] = true
	}
	rest := slices.DeleteFunc(units, func(u unit) bool { return out[u] })
	err = iso.attempt(ctx, rest, nil)
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
	if len(units) == 0 {
		return nil, nil
	}
	faults, err := iso.try(ctx, units)
	if err == nil {
		return faults, nil
	}
	var row *weir.RowError
	if !errors.As(err, &row) {
		return nil, err
	}
	if len(units) == 1 {
		u := units[0]
		row.Key = keyText(&iso.batch.Tables[u.table].Items[u.item])
		if d := iso.dests[u.table]; row.Column != "" && row.Value == "" {
			for _, m := range d.columns {
				if rows := iso.batch.Tables[u.table].Items[u.item].Rows; m.Name == row.Column && len(rows) > 0 {
					row.Value = shorten(fieldText(m.Column, rows[0][m.place]))
				}
			}
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

// try applies the units, which it keeps if that works, but for the faults that
// are told at once.
func (iso *isolation) try(ctx context.Context, units []unit) ([]weir.Fault, error) {
	_, _, back := iso.part(units)
	faults := []weir.Fault{}
	if err := iso.attempt(ctx, units, &faults); err != nil {
		return nil, err
	}
	for i, f := range faults {
		u := back[unit{f.Table, f.Item}]
		faults[i].Table, faults[i].Item = u.table, u.item
	}
	return faults, nil
}

// attempt applies units as Ship does, behind a savepoint, and keeps them if that
// works.
func (iso *isolation) attempt(ctx context.Context, units []unit, faults *[]weir.Fault) error {
	batch, dests, back := iso.part(units)
	var err error
	for how, again := (way{}), true; again; {
		if faults != nil {
			*faults = nil
		}
		if _, err := iso.tx.ExecContext(ctx, "SAVE TRANSACTION attempt"); err != nil {
			return err
		}
		iso.rounds++
		a := application{tx: iso.tx, mode: iso.mode, batch: batch, dests: dests, way: how, faults: faults, round: iso.rounds}
		if err = a.run(ctx); err == nil {
			out := map[unit]bool{}
			if faults != nil {
				for _, f := range *faults {
					out[back[unit{f.Table, f.Item}]] = true
				}
			}
			if good := slices.DeleteFunc(slices.Clone(units), func(u unit) bool { return out[u] }); len(good) > 0 {
				iso.kept = append(iso.kept, step{good, how})
			}
			return nil
		}
		if rerr := iso.undo(ctx); rerr != nil {
			return errors.Join(err, rerr)
		}
		how, again = how.after(err)
	}
	return err
}

// undo goes back to the savepoint, or, where the transaction is gone or doomed,
// begins it anew.
func (iso *isolation) undo(ctx context.Context) error {
	var state int
	if err := iso.tx.QueryRowContext(ctx, "SELECT CONVERT(int, XACT_STATE())").Scan(&state); err == nil && state == 1 {
		if _, err := iso.tx.ExecContext(ctx, "ROLLBACK TRANSACTION attempt"); err == nil {
			return nil
		}
	}
	return iso.restart(ctx)
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
	if _, err := iso.tx.ExecContext(ctx, "SAVE TRANSACTION attempt"); err != nil {
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
				m := d.mapped(n)
				if m == nil {
					return "", false
				}
				parts = append(parts, fmt.Sprintf("t.%s = %s", ident(n), strings.ReplaceAll(m.expr, "s.c", alias+".c")))
			}
			return strings.Join(parts, " AND "), len(parts) > 0
		}
		for _, u := range d.uniques {
			wants, ok := same("s", u)
			holds, okKey := same("o", d.keyNames())
			if !ok || !okKey {
				continue
			}
			var x, y int
			if err := each(ctx, iso.tx, fmt.Sprintf("SELECT s.place, o.place FROM %s s JOIN %s t ON %s JOIN %s o ON %s WHERE o.place <> s.place",
				a.stage(i), d.name, wants, a.stage(i), holds), nil, []any{&x, &y}, func() error {
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
