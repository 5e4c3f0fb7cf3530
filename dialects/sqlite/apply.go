package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// application applies one batch in one transaction: every table is staged, then
// deletes go children first, then upserts parents first. Foreign keys speak at
// the commit.
type application struct {
	c     *session
	mode  weir.Mode
	batch *weir.Batch
	dests []*destination
	now   int64 // of the target's clock, in microseconds
	// replace sets the other unique values of the batch's rows aside first, so
	// that they can change places among them.
	replace bool
	// out are items that are left out, by table and item (Isolate).
	out map[[2]int]bool
	// faults, where it is not nil, collects the items whose values the target
	// cannot hold, and goes on without them (Isolate).
	faults *[]weir.Fault
}

// The staging tables of the batch's i-th table: rows to write, and keys to
// delete.
func stageTable(i int) string { return fmt.Sprintf("temp.weir_stage_%d", i) }
func goneTable(i int) string  { return fmt.Sprintf("temp.weir_gone_%d", i) }

func (a *application) exec(ctx context.Context, i int, sql string, args ...any) error {
	_, err := a.c.ExecContext(ctx, sql, args...)
	return a.fault(err, i)
}

const retryHint = "it is tried again until the other row has arrived or gone"

// fault makes a [*weir.RowError] of an error that a row is to blame for.
func (a *application) fault(err error, i int) error {
	others, ok := constraintFault(err)
	if !ok {
		return interpretError(err, weir.AtTarget, "ship", a.dests[i].name)
	}
	return rowErrorOf(err, a.dests[i].name, others)
}

func rowErrorOf(err error, table string, others bool) *weir.RowError {
	e := &weir.RowError{Table: table, Key: "?", Constraint: others, Err: err}
	if others {
		e.Hint = retryHint
	}
	if _, column, ok := strings.Cut(err.Error(), "NOT NULL constraint failed: "+table+"."); ok {
		e.Column, _, _ = strings.Cut(column, " (")
	}
	return e
}

func (a *application) run(ctx context.Context) error {
	for i := range a.batch.Tables {
		if err := a.load(ctx, i); err != nil {
			return err
		}
	}
	order := a.order()
	for _, i := range slices.Backward(order) {
		if err := a.remove(ctx, i); err != nil {
			return err
		}
	}
	if a.replace {
		for _, i := range order {
			if err := a.park(ctx, i); err != nil {
				return err
			}
		}
	}
	for _, i := range order {
		if err := a.merge(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// order sorts the tables parents first, by the target's foreign keys.
func (a *application) order() []int {
	var order []int
	seen := make([]bool, len(a.dests))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for _, f := range a.dests[i].out {
			for j, d := range a.dests {
				if j != i && equalNames(d.name, f.parent) {
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

var affinityName = [...]string{affBlob: "", affText: "text", affNumeric: "numeric", affInteger: "integer", affReal: "real"}

// load makes the staging tables and fills them.
func (a *application) load(ctx context.Context, i int) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	define := func(columns []mapped) (defs, names []string) {
		defs, names = []string{"place integer not null"}, []string{"place"}
		for _, m := range columns {
			names = append(names, m.stage())
			defs = append(defs, strings.TrimSpace(m.stage()+" "+affinityName[m.target.affinity]))
		}
		return defs, names
	}
	stageDefs, stageNames := define(d.columns)
	goneDefs, goneNames := define(d.key)
	for name, defs := range map[string][]string{stageTable(i): stageDefs, goneTable(i): goneDefs} {
		if _, err := a.c.ExecContext(ctx, "drop table if exists "+name); err != nil {
			return err
		}
		if _, err := a.c.ExecContext(ctx, "create temporary table "+strings.TrimPrefix(name, "temp.")+" ("+strings.Join(defs, ", ")+")"); err != nil {
			return err
		}
	}
	stage, gone := newLoader(a.c, stageTable(i), stageNames), newLoader(a.c, goneTable(i), goneNames)
	defer stage.close()
	defer gone.close()
	for n := range b.Items {
		if a.out[[2]int{i, n}] {
			continue
		}
		err := a.loadItem(ctx, d, b, n, stage, gone)
		var r *weir.RowError
		if a.faults != nil && errors.As(err, &r) {
			*a.faults = append(*a.faults, weir.Fault{Table: i, Item: n, Err: r})
			continue
		}
		if err != nil {
			return a.fault(err, i)
		}
	}
	return a.fault(errors.Join(stage.flush(ctx), gone.flush(ctx)), i)
}

func (a *application) loadItem(ctx context.Context, d *destination, b *weir.TableBatch, n int, stage, gone *loader) error {
	item := &b.Items[n]
	refuse := func(m mapped, shown string, err error) error {
		return &weir.RowError{Table: d.name, Key: itemKey(item), Column: m.target.Name, Value: shorten(shown), Err: err,
			Hint: fmt.Sprintf("the target's column is declared %q; give it a type that holds the value as it is", m.target.declared)}
	}
	rows := make([][]any, len(item.Rows))
	for r, row := range item.Rows {
		values := []any{n}
		for _, m := range d.columns {
			v, shown, err := convert(m, b.Encoding, row[m.place])
			if err != nil {
				return refuse(m, shown, err)
			}
			values = append(values, v)
		}
		rows[r] = values
	}
	// Keys to delete: what is absent, the sets that are replaced, and other
	// spellings of a key that is present (1.0 and 1.00).
	spellings := [][]value{{}}
	for k, m := range d.key {
		var next [][]value
		for _, v := range candidates(m, b.Encoding, item.Key[k]) {
			for _, s := range spellings {
				next = append(next, append(slices.Clone(s), v))
			}
		}
		spellings = next
	}
	for _, s := range spellings {
		if len(rows) > 0 && !b.Capture.Set && (len(spellings) == 1 || a.isKeyOf(d, rows[0], s)) {
			continue
		}
		if err := gone.add(ctx, append([]any{n}, s...)); err != nil {
			return err
		}
	}
	for _, values := range rows {
		if err := stage.add(ctx, values); err != nil {
			return err
		}
	}
	return nil
}

// isKeyOf reports that a staged row has this key.
func (a *application) isKeyOf(d *destination, row []any, key []value) bool {
	for k, m := range d.key {
		at := slices.IndexFunc(d.columns, func(c mapped) bool { return c.place == m.place })
		if sqlText(row[1+at]) != sqlText(key[k]) {
			return false
		}
	}
	return true
}

// convert makes a field the value that the target's column stores.
func convert(m mapped, e weir.Encoding, f weir.Field) (v value, shown string, err error) {
	if e == Encoding {
		v, err := decode(f)
		if err != nil {
			return nil, "", err
		}
		out, err := store(m.target, v)
		return out, sqlText(v), err
	}
	if f == nil {
		return nil, "", nil
	}
	v, ok := fromNeutral(m.source.Kind, f)
	if !ok {
		return nil, string(f), fmt.Errorf("it is no %s", m.source.Kind)
	}
	if m.source.Kind != weir.Bytes && m.target.affinity == affText {
		return string(f), "", nil
	}
	v, err = store(m.target, v)
	return v, string(f), err
}

// candidates are the values by which a key's column may be stored: the sources'
// engines hold some values equal whose texts differ.
func candidates(m mapped, e weir.Encoding, f weir.Field) []value {
	texts := []string{string(f)}
	switch {
	case e == Encoding && m.source.Kind == weir.UUID:
		if g, err := weir.ParseGUID(string(f)); err == nil {
			texts = append(texts, g.String(), strings.ToUpper(g.String()))
		}
	case e == Encoding:
	case m.source.Kind == weir.Decimal && decimalForm.MatchString(string(f)) && m.target.affinity != affNumeric:
		whole, fraction, _ := strings.Cut(string(f), ".")
		fraction = strings.TrimRight(fraction, "0")
		texts = nil
		for scale := len(fraction); scale <= max(20, m.source.Scale, len(fraction)); scale++ {
			t := whole
			if scale > 0 {
				t += "." + fraction + strings.Repeat("0", scale-len(fraction))
			}
			texts = append(texts, t)
		}
	case m.source.Kind == weir.Text && m.source.Length > 0 && strings.HasPrefix(m.source.Native, "character("):
		if pad := m.source.Length - len([]rune(string(f))); pad > 0 {
			texts = append(texts, string(f)+strings.Repeat(" ", pad))
		}
	}
	var out []value
	for _, t := range texts {
		var v value
		switch {
		case e == Encoding && m.source.Kind == weir.UUID && len(f) == 16:
			v = []byte(f)
		case m.source.Kind != weir.Bytes && m.target.affinity == affText:
			v = t
		default:
			v, _ = fromNeutral(m.source.Kind, weir.Field(t)) // else the text itself
		}
		// A key that the column cannot hold is not there to delete.
		if s, err := store(m.target, v); err == nil && !slices.ContainsFunc(out, func(o value) bool { return sqlText(o) == sqlText(s) }) {
			out = append(out, s)
		}
	}
	return out
}

// in is a condition on a target's table: these columns of it are among those of
// a staging table.
func in(key []mapped, stage string) string {
	var names, staged []string
	for _, k := range key {
		names, staged = append(names, ident(k.target.Name)), append(staged, k.stage())
	}
	return fmt.Sprintf("(%s) in (select %s from %s)", strings.Join(names, ", "), strings.Join(staged, ", "), stage)
}

// remove deletes what is absent at the source, and the sets that are replaced.
func (a *application) remove(ctx context.Context, i int) error {
	d := a.dests[i]
	in := in(d.key, goneTable(i))
	switch a.mode {
	case weir.SoftDelete:
		return a.exec(ctx, i, fmt.Sprintf("update %s set %s = ?1 where %s and %s is null", ident(d.name), ident(weir.DeletedOnColumn), in, ident(weir.DeletedOnColumn)), stamp(a.now))
	case weir.History:
		if err := a.later(ctx, i, in); err != nil {
			return err
		}
		return a.closeVersions(ctx, i, in)
	case weir.Mirror:
	}
	return a.exec(ctx, i, fmt.Sprintf("delete from %s where %s", ident(d.name), in))
}

func (a *application) closeVersions(ctx context.Context, i int, in string) error {
	return a.exec(ctx, i, fmt.Sprintf("update %s set %s = ?1 where %s and %s is null", ident(a.dests[i].name), ident(weir.ValidToColumn), in, ident(weir.ValidToColumn)), stamp(a.now))
}

// later moves the time of this application behind every version of the keys: a
// version begins after the one before it, whatever the clock says.
func (a *application) later(ctx context.Context, i int, in string) error {
	var last *string
	if err := a.c.QueryRowContext(ctx, fmt.Sprintf("select max(max(%[1]s, coalesce(%[2]s, ''))) from %[3]s where %[4]s", ident(weir.ValidFromColumn), ident(weir.ValidToColumn), ident(a.dests[i].name), in)).Scan(&last); err != nil {
		return err
	}
	if last == nil {
		return nil
	}
	t, err := parseStamp(*last)
	if err != nil {
		return &weir.ConfigError{Key: "target table " + a.dests[i].name, Err: fmt.Errorf("column %s: %w", weir.ValidFromColumn, err), Hint: "weir alone writes that column; restore its value"}
	}
	a.now = max(a.now, t+1)
	return nil
}

// park sets one column of each other unique index aside, in the rows that will
// be written.
func (a *application) park(ctx context.Context, i int) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	if a.mode == weir.History || b.Capture.Set && a.mode == weir.Mirror {
		return nil
	}
	var set []string
	for _, u := range d.uniques {
		if u.park != "" && !slices.Contains(set, u.park) {
			set = append(set, u.park)
		}
	}
	if len(set) == 0 {
		return nil
	}
	// The rows that are replaced: of a set's, those that are there again.
	var key []mapped
	for _, n := range d.arbiter(b.Capture, a.mode) {
		key = append(key, *d.mapped(n))
	}
	return a.exec(ctx, i, fmt.Sprintf("update %s set %s where %s", ident(d.name), strings.Join(set, ", "), in(key, stageTable(i))))
}

// merge writes the staged rows.
func (a *application) merge(ctx context.Context, i int) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	var columns, staged []string
	for _, m := range d.columns {
		columns, staged = append(columns, ident(m.target.Name)), append(staged, m.stage())
	}
	into, list := strings.Join(columns, ", "), strings.Join(staged, ", ")
	switch {
	case a.mode == weir.History:
		in := in(d.key, stageTable(i))
		if err := a.later(ctx, i, in); err != nil {
			return err
		}
		if !b.Capture.Set {
			if err := a.closeVersions(ctx, i, in); err != nil {
				return err
			}
		}
		return a.exec(ctx, i, fmt.Sprintf("insert into %s (%s, %s) select %s, ?1 from %s", ident(d.name), into, ident(weir.ValidFromColumn), list, stageTable(i)), stamp(a.now))
	case b.Capture.Set && a.mode == weir.Mirror:
		return a.exec(ctx, i, fmt.Sprintf("insert into %s (%s) select %s from %s", ident(d.name), into, list, stageTable(i)))
	}
	arbiter := d.arbiter(b.Capture, a.mode)
	var set []string
	for _, m := range d.columns {
		if !slices.ContainsFunc(arbiter, func(n string) bool { return equalNames(n, m.target.Name) }) {
			set = append(set, fmt.Sprintf("%s = excluded.%s", ident(m.target.Name), ident(m.target.Name)))
		}
	}
	if a.mode == weir.SoftDelete {
		set = append(set, ident(weir.DeletedOnColumn)+" = null")
	}
	action := "do nothing"
	if len(set) > 0 {
		action = "do update set " + strings.Join(set, ", ")
	}
	return a.exec(ctx, i, fmt.Sprintf("insert into %s as t (%s) select %s from %s where true on conflict (%s) %s", ident(d.name), into, list, stageTable(i), idents(arbiter), action))
}

// itemKey shows an item's key to people.
func itemKey(item *weir.Item) string {
	parts := make([]string, len(item.Key))
	for i, k := range item.Key {
		parts[i] = shorten(string(k))
	}
	return strings.Join(parts, ",")
}
