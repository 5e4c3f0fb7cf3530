package sqlserver

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// application applies one batch in one transaction: every table is staged, then
// deletes go children first, then upserts parents first.
type application struct {
	tx    *session
	mode  weir.Mode
	batch *weir.Batch
	dests []*destination
	way
	// faults, where it is not nil, collects the items whose fault a query can
	// tell, and goes on without them (Isolate).
	faults *[]weir.Fault
	round  int // tells the staging tables of several tries apart
	keys   int // and the tables of keys
	// now is the literal of the shipment's one moment: a version begins exactly
	// when the one before it ended.
	now string
}

// way is how a batch is applied: the zero way is the cheapest, and does for all
// but some batches.
type way struct {
	// late leaves what is still referred to for after the upserts: a row that
	// refers to it may be about to refer to another.
	late bool
	// again: a unique value was taken. Another shipment may have inserted the
	// same key at this moment, and its row is there now.
	again bool
}

// after says whether an application that failed with err is worth trying
// another way.
func (w way) after(err error) (next way, again bool) {
	e, constraint, ok := rowFault(err)
	switch {
	case !ok || !constraint:
		return w, false
	case isForeignKey(e) && !w.late:
		w.late = true
	case !isForeignKey(e) && !w.again:
		w.again = true
	default:
		return w, false
	}
	return w, true
}

func (a *application) stage(i int) string { return fmt.Sprintf("#weir_stage_%d_%d", a.round, i) }

func (a *application) exec(ctx context.Context, i int, text string) error {
	_, err := a.tx.ExecContext(ctx, text)
	return a.fault(err, i)
}

var columnInMessage = regexp.MustCompile(`column '([^']*)'`)

// fault makes a *weir.RowError of a server's error that a row is to blame for.
func (a *application) fault(err error, i int) error {
	if err == nil {
		return nil
	}
	server, constraint, ok := rowFault(err)
	if !ok {
		return translate(err, weir.AtTarget, "ship", a.dests[i].message)
	}
	e := &weir.RowError{Table: a.dests[i].message, Key: "?", Constraint: constraint, Err: err}
	if m := columnInMessage.FindStringSubmatch(server.Message); m != nil && !constraint && a.dests[i].mapped(m[1]) != nil {
		e.Column = a.dests[i].mapped(m[1]).Name
	}
	switch {
	case constraint:
		e.Hint = "it is tried again until the other row has arrived or gone"
	case server.Number == errConstraint, server.Number == errNull:
		e.Hint = "change the row at the source or the constraint at the target"
	}
	return e
}

func (a *application) run(ctx context.Context) error {
	var now string
	if err := a.tx.QueryRowContext(ctx, "SELECT CONVERT(varchar(40), SYSUTCDATETIME(), 121)").Scan(&now); err != nil {
		return err
	}
	a.now = "CONVERT(" + timeType + ", '" + now + " +00:00', 121)"
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
	for i := range a.batch.Tables {
		if err := a.exec(ctx, i, "DROP TABLE "+a.stage(i)); err != nil {
			return err
		}
	}
	return nil
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
	for part := range slices.Chunk(found, 1000) {
		places := make([]string, len(part))
		for n, f := range part {
			places[n] = fmt.Sprint(f.Item)
		}
		if err := a.exec(ctx, i, fmt.Sprintf("DELETE FROM %s WHERE place IN (%s)", a.stage(i), strings.Join(places, ", "))); err != nil {
			return err
		}
	}
	return nil
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
	var rows []staged
	for n := range b.Items {
		if item := &b.Items[n]; !faulty[n] && (b.Capture.Set || len(item.Rows) == 0) {
			rows = append(rows, staged{n, item.Key})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	a.keys++
	keys := fmt.Sprintf("#weir_keys_%d_%d_%d", a.round, i, a.keys)
	var columns []stageColumn
	var match []string
	for k, c := range d.key {
		columns = append(columns, stageColumn{fmt.Sprintf("k%d", k), b.Capture.Key[k], c})
		match = append(match, d.same(c, c.fromStage(fmt.Sprintf("k.k%d", k))))
	}
	if err := a.stageRows(ctx, i, keys, columns, rows); err != nil {
		return err
	}
	if err := a.removeKeys(ctx, i, keep, keys, strings.Join(match, " AND ")); err != nil {
		return err
	}
	return a.exec(ctx, i, "DROP TABLE "+keys)
}

func (a *application) removeKeys(ctx context.Context, i int, keep bool, keys, on string) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	from := fmt.Sprintf("FROM %s t JOIN %s k ON %s", d.name, keys, on)
	switch a.mode {
	case weir.SoftDelete:
		return a.exec(ctx, i, fmt.Sprintf("UPDATE t SET %[1]s = %[2]s %[3]s WHERE t.%[1]s IS NULL", ident(weir.DeletedOnColumn), a.now, from))
	case weir.History:
		return a.exec(ctx, i, fmt.Sprintf("UPDATE t SET %[1]s = %[2]s %[3]s WHERE t.%[1]s IS NULL", ident(weir.ValidToColumn), a.laterThan("t."+ident(weir.ValidFromColumn)), from))
	case weir.Mirror:
	}
	where := ""
	switch {
	case b.Capture.Set:
	case keep:
		for _, f := range d.in {
			if f.onDelete == 0 {
				where += fmt.Sprintf(" AND NOT EXISTS (SELECT 1 FROM %s c WHERE %s)", f.table, f.match("c", "t"))
			}
		}
	case a.faults != nil:
		if err := a.blameReferenced(ctx, i, keys, from); err != nil {
			return err
		}
	}
	return a.exec(ctx, i, fmt.Sprintf("DELETE t %s WHERE 1 = 1%s", from, where))
}

// laterThan is the shipment's moment, or a moment after the given time where the
// clock went back or stood still.
func (a *application) laterThan(expr string) string {
	return fmt.Sprintf("CASE WHEN %s >= %s THEN DATEADD(microsecond, 1, %s) ELSE %s END", expr, a.now, expr, a.now)
}

// blameReferenced finds the keys to delete that rows of other tables still
// refer to, and takes them off the keys.
func (a *application) blameReferenced(ctx context.Context, i int, keys, from string) error {
	for _, f := range a.dests[i].in {
		if f.own || f.onDelete != 0 {
			continue
		}
		where := fmt.Sprintf("%s WHERE EXISTS (SELECT 1 FROM %s c WHERE %s)", from, f.table, f.match("c", "t"))
		found, err := a.places(ctx, i, "SELECT DISTINCT k.place "+where, fmt.Errorf("rows of %s still refer to it (foreign key %s)", f.table, f.name))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		*a.faults = append(*a.faults, found...)
		for _, f := range found {
			if err := a.exec(ctx, i, fmt.Sprintf("DELETE FROM %s WHERE place = %d", keys, f.Item)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *application) places(ctx context.Context, i int, query string, why error) ([]weir.Fault, error) {
	var place int
	var found []weir.Fault
	err := each(ctx, a.tx, query, nil, []any{&place}, func() error {
		found = append(found, weir.Fault{Table: i, Item: place, Err: &weir.RowError{
			Table: a.dests[i].message, Key: keyText(&a.batch.Tables[i].Items[place]), Constraint: true, Err: why,
			Hint: "it is tried again until the other row has arrived or gone",
		}})
		return nil
	})
	return found, a.fault(err, i)
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
				m, r := d.mapped(f.columns[n]), d.mapped(f.named[n])
				if m == nil || f.own && r == nil {
					known = false
					break
				}
				there = append(there, fmt.Sprintf("p.%s = %s", ident(f.named[n]), m.expr))
				set = append(set, m.expr+" IS NOT NULL")
				if f.own {
					beside = append(beside, fmt.Sprintf("%s = %s", strings.ReplaceAll(r.expr, "s.c", "o.c"), m.expr))
				}
			}
			if !known {
				continue
			}
			query := fmt.Sprintf("SELECT DISTINCT s.place FROM %s s WHERE %s AND NOT EXISTS (SELECT 1 FROM %s p WHERE %s)",
				a.stage(i), strings.Join(set, " AND "), f.refers, strings.Join(there, " AND "))
			if f.own {
				query += fmt.Sprintf(" AND NOT EXISTS (SELECT 1 FROM %s o WHERE %s)", a.stage(i), strings.Join(beside, " AND "))
			}
			found, err := a.places(ctx, i, query, fmt.Errorf("the row of %s that it refers to is not there (foreign key %s)", f.refers, f.name))
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
	stage := a.stage(i)
	switch {
	case a.mode == weir.History:
		// A version begins where the one before it ended, whatever the clock says.
		on := d.match(d.keyNames())
		if !b.Capture.Set {
			if err := a.exec(ctx, i, fmt.Sprintf("UPDATE t SET %[1]s = %[2]s FROM %[3]s t JOIN %[4]s s ON %[5]s WHERE t.%[1]s IS NULL",
				ident(weir.ValidToColumn), a.laterThan("t."+ident(weir.ValidFromColumn)), d.name, stage, on)); err != nil {
				return err
			}
		}
		last := fmt.Sprintf("(SELECT MAX(t.%s) FROM %s t WHERE %s)", ident(weir.ValidToColumn), d.name, on)
		from := fmt.Sprintf("CASE WHEN %s > %s THEN %s ELSE %s END", last, a.now, last, a.now)
		return a.insert(ctx, i, []string{ident(weir.ValidFromColumn)}, []string{from}, "")
	case b.Capture.Set && a.mode == weir.Mirror:
		return a.insert(ctx, i, nil, nil, "")
	}

	arbiter := d.keyNames()
	if b.Capture.Set {
		arbiter = nil
		for _, k := range targetKey(b.Capture, a.mode) {
			j := slices.IndexFunc(d.columns, func(m mapped) bool { return m.Name == k })
			if j < 0 {
				return &weir.ConfigError{Key: "target table " + d.message, Err: fmt.Errorf("it lacks the key column %q", k), Hint: "add the column"}
			}
			arbiter = append(arbiter, d.columns[j].target.Name)
		}
	}
	on := d.match(arbiter)
	var set []string
	for _, m := range d.columns {
		if !slices.Contains(arbiter, m.target.Name) && !m.target.identity {
			set = append(set, fmt.Sprintf("t.%s = %s", ident(m.target.Name), m.expr))
		}
	}
	if a.mode == weir.SoftDelete {
		set = append(set, "t."+ident(weir.DeletedOnColumn)+" = NULL")
	}
	if len(set) > 0 {
		if err := a.exec(ctx, i, fmt.Sprintf("UPDATE t SET %s FROM %s t JOIN %s s ON %s", strings.Join(set, ", "), d.name, stage, on)); err != nil {
			return err
		}
	}
	if err := a.respell(ctx, i, arbiter, on); err != nil {
		return err
	}
	// The range lock keeps another shipment from inserting the same key meanwhile.
	return a.insert(ctx, i, nil, nil, fmt.Sprintf(" WHERE NOT EXISTS (SELECT 1 FROM %s t WITH (UPDLOCK, HOLDLOCK) WHERE %s)", d.name, on))
}

// respell writes keys that the collation holds equal and the source now spells
// in another way.
func (a *application) respell(ctx context.Context, i int, arbiter []string, on string) error {
	d := a.dests[i]
	if d.exact {
		return nil
	}
	for _, k := range arbiter {
		m := d.mapped(k)
		if !m.target.textual() {
			continue
		}
		if err := a.exec(ctx, i, fmt.Sprintf("UPDATE t SET t.%[1]s = %[2]s FROM %[3]s t JOIN %[4]s s ON %[5]s WHERE CONVERT(varbinary(max), t.%[1]s) <> CONVERT(varbinary(max), %[2]s)",
			ident(k), m.expr, d.name, a.stage(i), on)); err != nil {
			return err
		}
	}
	return nil
}

// insert inserts the staged rows that meet the condition, with more columns.
func (a *application) insert(ctx context.Context, i int, columns, values []string, where string) error {
	d := a.dests[i]
	var into, list []string
	for _, m := range d.columns {
		into, list = append(into, ident(m.target.Name)), append(list, m.expr)
	}
	into, list = append(into, columns...), append(list, values...)
	text := fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s s%s", d.name, strings.Join(into, ", "), strings.Join(list, ", "), a.stage(i), where)
	if !d.identity {
		return a.exec(ctx, i, text)
	}
	// A session may have it on for one table only.
	if err := a.exec(ctx, i, "SET IDENTITY_INSERT "+d.name+" ON"); err != nil {
		return err
	}
	err := a.exec(ctx, i, text)
	if err == nil {
		err = a.exec(ctx, i, "SET IDENTITY_INSERT "+d.name+" OFF")
	}
	return err
}
