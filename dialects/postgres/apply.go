package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// application applies one batch in one transaction: every table is staged, then
// deletes go children first, then upserts parents first.
type application struct {
	tx    pgx.Tx
	mode  weir.Mode
	batch *weir.Batch
	dests []*destination
	way
	// faults, where it is not nil, collects the items whose fault a query can
	// tell, and goes on without them (Isolate).
	faults *[]weir.Fault
	round  int // tells the staging tables of several tries apart
	// now is the literal of the shipment's one moment: a version begins exactly
	// when the one before it ended.
	now string
}

// way is how a batch is applied: the zero way is the cheapest, and does for all
// but some batches.
type way struct {
	// replace deletes the batch's rows and inserts them again, so that unique
	// values can change places among them.
	replace bool
	// late leaves what is still referred to for after the upserts: a row that
	// refers to it may be about to refer to another.
	late bool
}

// after says whether an application that failed with err is worth trying
// another way.
func (w way) after(err error) (next way, again bool) {
	pg, constraint, ok := rowFault(err)
	referred := ok && pg.Code == "23503"
	switch {
	case referred && !w.late:
		w.late = true
	case ok && constraint && !referred && !w.replace:
		w.replace = true
	default:
		return w, false
	}
	return w, true
}

func (a *application) stage(i int) string { return fmt.Sprintf("pg_temp.weir_stage_%d_%d", a.round, i) }

func (a *application) exec(ctx context.Context, i int, sql string, args ...any) error {
	_, err := a.tx.Exec(ctx, sql, args...)
	return a.fault(err, i)
}

// fault makes a *weir.RowError of a server's error that a row is to blame for.
func (a *application) fault(err error, i int) error {
	pg, constraint, ok := rowFault(err)
	if !ok {
		return translate(err, weir.AtTarget, "ship", a.dests[i].message)
	}
	e := &weir.RowError{Table: a.dests[i].message, Key: "?", Column: pg.ColumnName, Constraint: constraint, Err: err}
	if pg.Detail != "" {
		e.Err = fmt.Errorf("%w: %s", err, pg.Detail)
	}
	switch {
	case pg.Code == "23514", pg.Code == "23502":
		e.Hint = "change the row at the source or the constraint at the target"
	case constraint:
		e.Hint = "it is tried again until the other row has arrived or gone"
	}
	return e
}

func (a *application) run(ctx context.Context) error {
	if _, err := a.tx.Exec(ctx, "set constraints all deferred"); err != nil {
		return err
	}
	if err := a.tx.QueryRow(ctx, "select quote_literal(clock_timestamp()) || '::timestamptz'").Scan(&a.now); err != nil {
		return err
	}
	for i := range a.batch.Tables {
		if err := a.load(ctx, i); err != nil {
			return err
		}
	}
	order := a.order()
	for _, i := range slices.Backward(order) {
		if err := a.remove(ctx, i, a.late); err != nil {
			return err
		}
	}
	for _, i := range order {
		if err := a.merge(ctx, i); err != nil {
			return err
		}
	}
	if a.late {
		for _, i := range slices.Backward(order) {
			if a.batch.Tables[i].Capture.Set {
				continue // what is there now are the new sets
			}
			if err := a.remove(ctx, i, false); err != nil {
				return err
			}
		}
	}
	if len(order) == 0 {
		return nil
	}
	// Deferred constraints speak now, while it is sure that nothing was
	// committed.
	return a.exec(ctx, order[0], "set constraints all immediate")
}

// order sorts the tables parents first, by the target's foreign keys.
func (a *application) order() []int {
	var order []int
	state := make([]int, len(a.dests))
	var visit func(i int)
	visit = func(i int) {
		if state[i] != 0 {
			return
		}
		state[i] = 1
		for _, f := range a.dests[i].out {
			for j, d := range a.dests {
				if j != i && d.name == f.refers {
					visit(j)
				}
			}
		}
		order = append(order, i)
	}
	for i := range a.dests {
		visit(i)
	}
	return order
}

// load makes the staging table and copies the rows into it: place is the item's,
// c0, c1, ... are the fields.
func (a *application) load(ctx context.Context, i int) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	defs := []string{"place integer not null"}
	for _, m := range d.columns {
		defs = append(defs, fmt.Sprintf("c%d %s", m.place, m.stage))
	}
	if err := a.exec(ctx, i, fmt.Sprintf("create temporary table %s (%s) on commit drop", a.stage(i)[len("pg_temp."):], strings.Join(defs, ", "))); err != nil {
		return err
	}
	r := &copyReader{dest: d, batch: b}
	names := []string{"place"}
	for _, m := range d.columns {
		names = append(names, fmt.Sprintf("c%d", m.place))
	}
	_, err := a.tx.Conn().PgConn().CopyFrom(ctx, r, fmt.Sprintf("copy %s (%s) from stdin (format binary)", a.stage(i), strings.Join(names, ", ")))
	if r.fault != nil {
		return r.fault
	}
	if err != nil {
		return a.fault(err, i)
	}
	return a.verify(ctx, i)
}

// verify finds rows that the target's columns would change.
func (a *application) verify(ctx context.Context, i int) error {
	d := a.dests[i]
	var cases, texts, where []string
	for n, m := range d.columns {
		if m.check != "" {
			cases, where = append(cases, fmt.Sprintf("when %s then %d", m.check, n)), append(where, m.check)
			texts = append(texts, fmt.Sprintf("when %s then s.c%d::text", m.check, m.place))
		}
	}
	if len(cases) == 0 {
		return nil
	}
	rows, err := a.tx.Query(ctx, fmt.Sprintf("select s.place, case %s end, case %s end from %s s where %s order by s.place",
		strings.Join(cases, " "), strings.Join(texts, " "), a.stage(i), strings.Join(where, " or ")))
	if err != nil {
		return a.fault(err, i)
	}
	var place, column int
	var value string
	var found []weir.Fault
	if _, err := pgx.ForEachRow(rows, []any{&place, &column, &value}, func() error {
		m := d.columns[column]
		item := &a.batch.Tables[i].Items[place]
		found = append(found, weir.Fault{Table: i, Item: place, Err: &weir.RowError{
			Table: d.message, Key: keyText(item), Column: m.Name, Value: shorten(value),
			Err:  fmt.Errorf("the target's type %s cannot hold the value of the source's %s as it is", m.target.Native, m.Native),
			Hint: "widen the target's column",
		}})
		return nil
	}); err != nil {
		return a.fault(err, i)
	}
	return a.blame(ctx, i, found)
}

// blame returns the first fault, or collects all and takes their rows off the
// staging table.
func (a *application) blame(ctx context.Context, i int, found []weir.Fault) error {
	if len(found) == 0 {
		return nil
	}
	if a.faults == nil {
		return found[0].Err
	}
	*a.faults = append(*a.faults, found...)
	places := make([]int, len(found))
	for n, f := range found {
		places[n] = f.Item
	}
	return a.exec(ctx, i, fmt.Sprintf("delete from %s where place = any ($1::integer[])", a.stage(i)), places)
}

// faulty are the items of table i that are out already.
func (a *application) faulty(i int) map[int]bool {
	out := map[int]bool{}
	if a.faults != nil {
		for _, f := range *a.faults {
			if f.Table == i {
				out[f.Item] = true
			}
		}
	}
	return out
}

// remove deletes what is absent at the source, and the sets that are replaced;
// what rows still refer to is left if keep says so.
func (a *application) remove(ctx context.Context, i int, keep bool) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	faulty := a.faulty(i)
	var places []int
	keys := make([][]string, len(d.key))
	for n := range b.Items {
		item := &b.Items[n]
		if faulty[n] || !b.Capture.Set && len(item.Rows) > 0 {
			continue
		}
		places = append(places, n)
		for k := range d.key {
			keys[k] = append(keys[k], keyParam(b.Capture.Key[k], item.Key[k]))
		}
	}
	if len(places) == 0 {
		return nil
	}
	args := []any{places}
	params, names := []string{"$1::integer[]"}, []string{"place"}
	var match []string
	for k, c := range d.key {
		args = append(args, keys[k])
		params, names = append(params, fmt.Sprintf("$%d::text[]", k+2)), append(names, fmt.Sprintf("k%d", k))
		match = append(match, fmt.Sprintf("t.%s = k.k%d::%s", ident(c.Name), k, c.base))
	}
	from := fmt.Sprintf("unnest(%s) as k (%s)", strings.Join(params, ", "), strings.Join(names, ", "))
	on := strings.Join(match, " and ")
	switch a.mode {
	case weir.SoftDelete:
		return a.exec(ctx, i, fmt.Sprintf("update %s t set %s = %s from %s where %s and t.%s is null and $1::integer[] is not null",
			d.name, ident(weir.DeletedOnColumn), a.now, from, on, ident(weir.DeletedOnColumn)), args...)
	case weir.History:
		return a.exec(ctx, i, fmt.Sprintf("update %s t set %s = greatest(%s, t.%s + interval '1 microsecond') from %s where %s and t.%s is null and $1::integer[] is not null",
			d.name, ident(weir.ValidToColumn), a.now, ident(weir.ValidFromColumn), from, on, ident(weir.ValidToColumn)), args...)
	case weir.Mirror:
	}
	switch {
	case b.Capture.Set:
	case keep:
		for _, f := range d.in {
			if f.keeps() {
				on += fmt.Sprintf(" and not exists (select from %s c where %s)", f.table, f.match("c", "t"))
			}
		}
	case a.faults != nil:
		if err := a.blameReferenced(ctx, i, from, on, args); err != nil {
			return err
		}
		if len(a.faulty(i)) > len(faulty) {
			return a.remove(ctx, i, keep) // without those
		}
	}
	return a.exec(ctx, i, fmt.Sprintf("delete from %s t using %s where %s and $1::integer[] is not null", d.name, from, on), args...)
}

// blameReferenced finds the keys to delete that rows of other tables still
// refer to.
func (a *application) blameReferenced(ctx context.Context, i int, from, on string, args []any) error {
	d := a.dests[i]
	for _, f := range d.in {
		if f.own || !f.keeps() {
			continue
		}
		found, err := a.places(ctx, i, fmt.Sprintf("select distinct k.place from %s join %s t on %s where exists (select from %s c where %s)",
			from, d.name, on, f.table, f.match("c", "t")), args,
			fmt.Errorf("rows of %s still refer to it (foreign key %s)", f.table, f.name))
		if err != nil {
			return err
		}
		*a.faults = append(*a.faults, found...)
	}
	return nil
}

func (a *application) places(ctx context.Context, i int, sql string, args []any, why error) ([]weir.Fault, error) {
	rows, err := a.tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, a.fault(err, i)
	}
	places, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, a.fault(err, i)
	}
	var found []weir.Fault
	for _, p := range places {
		found = append(found, weir.Fault{Table: i, Item: p, Err: &weir.RowError{
			Table: a.dests[i].message, Key: keyText(&a.batch.Tables[i].Items[p]), Constraint: true, Err: why,
			Hint: "it is tried again until the other row has arrived or gone",
		}})
	}
	return found, nil
}

// blameOrphans finds staged rows whose parent is neither at the target nor
// staged beside them, until none is left.
func (a *application) blameOrphans(ctx context.Context, i int) error {
	d := a.dests[i]
	for again := true; again; {
		again = false
		for _, f := range d.out {
			var there, beside, set []string
			known := true
			for n := range f.columns {
				m := slices.IndexFunc(d.columns, func(m mapped) bool { return m.Name == f.columns[n] })
				r := slices.IndexFunc(d.columns, func(m mapped) bool { return m.Name == f.named[n] })
				if m < 0 || f.own && r < 0 {
					known = false
					break
				}
				there = append(there, fmt.Sprintf("p.%s = %s", ident(f.named[n]), d.columns[m].expr))
				set = append(set, d.columns[m].expr+" is not null")
				if f.own {
					beside = append(beside, fmt.Sprintf("%s = %s", strings.ReplaceAll(d.columns[r].expr, "s.c", "o.c"), d.columns[m].expr))
				}
			}
			if !known {
				continue
			}
			sql := fmt.Sprintf("select distinct s.place from %s s where %s and not exists (select from %s p where %s)",
				a.stage(i), strings.Join(set, " and "), f.refers, strings.Join(there, " and "))
			if f.own {
				sql += fmt.Sprintf(" and not exists (select from %s o where %s)", a.stage(i), strings.Join(beside, " and "))
			}
			found, err := a.places(ctx, i, sql, nil, fmt.Errorf("the row of %s that it refers to is not there (foreign key %s)", f.refers, f.name))
			if err != nil {
				return err
			}
			if err := a.blame(ctx, i, found); err != nil {
				return err
			}
			again = again || len(found) > 0 && f.own
		}
	}
	return nil
}

// merge writes the staged rows.
func (a *application) merge(ctx context.Context, i int) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	if a.faults != nil && len(d.out) > 0 {
		if err := a.blameOrphans(ctx, i); err != nil {
			return err
		}
	}
	var columns, values []string
	for _, m := range d.columns {
		columns, values = append(columns, ident(m.Name)), append(values, m.expr)
	}
	// The rows that are replaced: of a set's, those that are there again.
	key := d.keyNames()
	if a.mode == weir.SoftDelete {
		key = d.arbiter(b.Capture, a.mode)
	}
	var match []string
	for _, k := range key {
		match = append(match, fmt.Sprintf("t.%s = %s", ident(k), d.mapped(k).expr))
	}
	on := strings.Join(match, " and ")
	stage := a.stage(i)
	insert := func(into, list string) string {
		return fmt.Sprintf("insert into %s as t (%s) overriding system value select %s from %s s", d.name, into, list, stage)
	}
	into, list := strings.Join(columns, ", "), strings.Join(values, ", ")

	switch {
	case a.mode == weir.History:
		// A version begins where the one before it ended, whatever the clock says.
		if !b.Capture.Set {
			if err := a.exec(ctx, i, fmt.Sprintf("update %s t set %s = greatest(%s, t.%s + interval '1 microsecond') from %s s where %s and t.%s is null",
				d.name, ident(weir.ValidToColumn), a.now, ident(weir.ValidFromColumn), stage, on, ident(weir.ValidToColumn))); err != nil {
				return err
			}
		}
		return a.exec(ctx, i, insert(into+", "+ident(weir.ValidFromColumn),
			list+fmt.Sprintf(", greatest(%s, (select max(t.%s) from %s t where %s))", a.now, ident(weir.ValidToColumn), d.name, on)))
	case b.Capture.Set && a.mode == weir.Mirror:
		return a.exec(ctx, i, insert(into, list))
	case a.replace && len(d.uniques) > 0:
		return a.replaceRows(ctx, i, key, on, into, list)
	}

	arbiter := d.arbiter(b.Capture, a.mode)
	var set []string
	for _, m := range d.columns {
		if !slices.Contains(arbiter, m.Name) && !m.target.identity {
			set = append(set, fmt.Sprintf("%s = excluded.%s", ident(m.Name), ident(m.Name)))
		}
	}
	if a.mode == weir.SoftDelete {
		set = append(set, ident(weir.DeletedOnColumn)+" = null")
	}
	action := "do nothing"
	if len(set) > 0 {
		action = "do update set " + strings.Join(set, ", ")
	}
	return a.exec(ctx, i, insert(into, list)+fmt.Sprintf(" on conflict (%s) %s", idents(arbiter), action))
}

// replaceRows deletes the staged rows' versions at the target and inserts the
// new ones, in one statement: a foreign key that refers to a row is checked at
// its end, when the row is there again. Columns that only the target has keep
// their values. Where deleting would cascade, unique values are parked at null.
func (a *application) replaceRows(ctx context.Context, i int, key []string, on, into, list string) error {
	d, stage := a.dests[i], a.stage(i)
	if d.cascades {
		if !d.parkable {
			return &weir.RowError{Table: d.message, Key: "?", Constraint: true,
				Err:  errors.New("rows exchange the values of a unique index, and deleting them in between would cascade to other tables"),
				Hint: "make the unique constraint DEFERRABLE"}
		}
		var set []string
		for _, c := range d.park {
			set = append(set, c+" = null")
		}
		if err := a.exec(ctx, i, fmt.Sprintf("update %s t set %s from %s s where %s", d.name, strings.Join(set, ", "), stage, on)); err != nil {
			return err
		}
		b := *a
		b.replace = false
		return b.merge(ctx, i)
	}
	var kept, again []string
	for n, c := range d.extra {
		kept, again = append(kept, fmt.Sprintf("t.%s as e%d", c, n)), append(again, fmt.Sprintf("g.e%d", n))
	}
	var join []string
	for n, k := range key {
		kept = append(kept, fmt.Sprintf("t.%s as k%d", ident(k), n))
		join = append(join, fmt.Sprintf("g.k%d = %s", n, d.mapped(k).expr))
	}
	for n, c := range d.extra {
		into, list = into+", "+c, list+", "+again[n]
	}
	// The count makes the delete end before the first row is inserted.
	return a.exec(ctx, i, fmt.Sprintf(`with gone as materialized (
    delete from %s t using %s s where %s returning %s
)
insert into %s (%s) overriding system value
select %s
from %s s
left join gone g on %s
where (select count(*) from gone) >= 0`, d.name, stage, on, strings.Join(kept, ", "), d.name, into, list, stage, strings.Join(join, " and ")))
}

// keyParam is a neutral key field as a text parameter.
func keyParam(c weir.Column, f weir.Field) string {
	if c.Kind == weir.Bytes {
		return fmt.Sprintf(`\x%x`, f)
	}
	return string(f)
}

// keyText shows an item's key to people.
func keyText(item *weir.Item) string {
	parts := make([]string, len(item.Key))
	for i, k := range item.Key {
		parts[i] = shorten(string(k))
	}
	return strings.Join(parts, ",")
}

func shorten(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", `\0`), "?")
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "..."
	}
	return s
}
