package sqlserver

import (
	"context"
	"fmt"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
)

// staged is one row for a staging table: the item's place, and the fields.
type staged struct {
	place  int
	fields []weir.Field
}

// stageColumn is a column of a staging table.
type stageColumn struct {
	name   string
	from   weir.Column
	target *column
}

// stageRows makes a staging table and copies rows into it. An item of which a
// value does not fit is a fault, and none of its rows is staged.
func (a *application) stageRows(ctx context.Context, i int, name string, columns []stageColumn, rows []staged) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	defs, names := []string{"place int NOT NULL"}, []string{"place"}
	for _, c := range columns {
		defs, names = append(defs, c.name+" "+c.target.stageType()+" NULL"), append(names, c.name)
	}
	var found []weir.Fault
	bad := map[int]bool{}
	values := make([][]any, 0, len(rows))
	for _, r := range rows {
		out := make([]any, len(columns)+1)
		out[0] = int64(r.place)
		for n, c := range columns {
			v, err := c.target.store(c.from, r.fields[n])
			if err != nil && !bad[r.place] {
				bad[r.place] = true
				item := &b.Items[r.place]
				found = append(found, weir.Fault{Table: i, Item: r.place, Err: &weir.RowError{
					Table: d.message, Key: keyText(item), Column: c.from.Name, Value: shorten(fieldText(c.from, r.fields[n])), Err: err,
					Hint: "widen the target's column, or change the value at the source",
				}})
			}
			out[n+1] = v
		}
		values = append(values, out)
	}
	if a.faults == nil && len(found) > 0 {
		return found[0].Err
	}
	if a.faults != nil {
		*a.faults = append(*a.faults, found...)
	}
	if err := a.exec(ctx, i, fmt.Sprintf("CREATE TABLE %s (%s)", name, strings.Join(defs, ", "))); err != nil {
		return err
	}
	stmt, err := a.tx.PrepareContext(ctx, mssql.CopyIn(name, mssql.BulkOptions{}, names...))
	if err != nil {
		return a.fault(err, i)
	}
	defer stmt.Close()
	count := 0
	for n, out := range values {
		if bad[rows[n].place] {
			continue
		}
		count++
		if _, err := stmt.ExecContext(ctx, out...); err != nil {
			return a.fault(err, i)
		}
	}
	if count == 0 {
		return nil // a bulk copy of nothing is not sent
	}
	if _, err := stmt.ExecContext(ctx); err != nil {
		return a.fault(err, i)
	}
	return nil
}

// load stages the rows of a table: place is the item's, c0, c1, ... are the
// fields.
func (a *application) load(ctx context.Context, i int) error {
	d, b := a.dests[i], &a.batch.Tables[i]
	var columns []stageColumn
	for _, m := range d.columns {
		columns = append(columns, stageColumn{fmt.Sprintf("c%d", m.place), m.Column, m.target})
	}
	var rows []staged
	for place := range b.Items {
		for _, row := range b.Items[place].Rows {
			fields := make([]weir.Field, len(d.columns))
			for n, m := range d.columns {
				fields[n] = row[m.place]
			}
			rows = append(rows, staged{place, fields})
		}
	}
	if err := a.stageRows(ctx, i, a.stage(i), columns, rows); err != nil {
		return err
	}
	return a.verify(ctx, i)
}

// verify finds rows that only the server can tell not to fit.
func (a *application) verify(ctx context.Context, i int) error {
	d := a.dests[i]
	var cases, texts, where []string
	for n, m := range d.columns {
		if m.check != "" {
			cases, where = append(cases, fmt.Sprintf("WHEN %s THEN %d", m.check, n)), append(where, m.check)
			texts = append(texts, fmt.Sprintf("WHEN %s THEN CONVERT(nvarchar(100), s.c%d)", m.check, m.place))
		}
	}
	if len(cases) == 0 {
		return nil
	}
	var place, column int
	var value string
	var found []weir.Fault
	if err := each(ctx, a.tx, fmt.Sprintf("SELECT s.place, CASE %s END, CASE %s END FROM %s s WHERE %s ORDER BY s.place",
		strings.Join(cases, " "), strings.Join(texts, " "), a.stage(i), strings.Join(where, " OR ")), nil, []any{&place, &column, &value}, func() error {
		m := d.columns[column]
		found = append(found, weir.Fault{Table: i, Item: place, Err: &weir.RowError{
			Table: d.message, Key: keyText(&a.batch.Tables[i].Items[place]), Column: m.Name, Value: shorten(value),
			Err:  fmt.Errorf("the target's type %s cannot hold the value of the source's %s as it is", m.target.Native, m.Native),
			Hint: "widen the target's column, or make it nvarchar",
		}})
		return nil
	}); err != nil {
		return a.fault(err, i)
	}
	return a.blame(ctx, i, found)
}

// fieldText shows a field to people.
func fieldText(c weir.Column, f weir.Field) string {
	switch {
	case f == nil:
		return "NULL"
	case c.Kind == weir.Bytes:
		return fmt.Sprintf("0x%x", f)
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
