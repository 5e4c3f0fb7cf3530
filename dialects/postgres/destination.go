package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// destination is how one source table's rows are written to one target table.
type destination struct {
	name    string // quoted
	oid     uint32
	message string // for people
	columns []mapped
	key     []*column // the target's columns of the capture's key
	extra   []string  // target columns that the source has not, quoted; kept when a row is replaced
	out     []foreignKey
	in      []foreignKey
	// park are columns that can be set to null to free the table's other unique
	// values for a moment; parkable is false where one of the indexes has none.
	park     []string
	parkable bool
	uniques  [][]string // of the other unique indexes
	cascades bool       // deleting a row would delete or change others
}

// mapped is a source column and where it goes.
type mapped struct {
	place int // in TableBatch.Columns
	weir.Column
	stage  string // the staging column's type
	target *column
	expr   string // over alias s, the value for the target's column
	check  string // over alias s, true where the value would be changed; empty where that cannot be
}

type foreignKey struct {
	name           string
	own            bool
	onDelete       string
	table, refers  string // quoted
	columns, named []string
}

// keeps reports that a row which is referred to cannot be deleted.
func (f *foreignKey) keeps() bool { return f.onDelete == "a" || f.onDelete == "r" }

// match compares a referring row with the row that it refers to.
func (f *foreignKey) match(referring, referred string) string {
	var parts []string
	for n := range f.columns {
		parts = append(parts, fmt.Sprintf("%s.%s = %s.%s", referring, ident(f.columns[n]), referred, ident(f.named[n])))
	}
	return strings.Join(parts, " and ")
}

func newDestination(ctx context.Context, q queryer, have *table, b *weir.TableBatch, mode weir.Mode) (*destination, error) {
	d := &destination{name: tableName(have.Table), oid: have.oid, message: have.String()}
	config := func(why, hint string) error {
		return &weir.ConfigError{Key: "target table " + d.message, Err: fmt.Errorf("%s", why), Hint: hint}
	}
	if have.relkind != "r" && have.relkind != "p" {
		return nil, config("it is not a table", "remove or rename it, or give the target another schema")
	}
	mine := map[string]bool{weir.DeletedOnColumn: true, weir.ValidFromColumn: true, weir.ValidToColumn: true}
	for i, c := range b.Columns {
		to := have.column(c.Name)
		mine[c.Name] = true
		if to == nil || to.generated {
			continue // ignored by policy, or computed there
		}
		m := mapped{place: i, Column: c, target: to, stage: c.Native}
		if b.Encoding == weir.EncodingText {
			m.stage = "text"
			if c.Kind == weir.Bytes {
				m.stage = "bytea"
			}
		}
		m.convert(b.Encoding)
		d.columns = append(d.columns, m)
	}
	for _, c := range have.columns {
		if !mine[c.Name] && !c.generated {
			d.extra = append(d.extra, ident(c.Name))
		}
	}
	for _, k := range b.Capture.Key {
		i := slices.IndexFunc(d.columns, func(m mapped) bool { return m.Name == k.Name })
		if i < 0 {
			return nil, config(fmt.Sprintf("its key column %q is generated there", k.Name), "make it a column that can be written")
		}
		d.key = append(d.key, d.columns[i].target)
	}
	if err := d.readUniques(ctx, q, have, b, mode, config); err != nil {
		return nil, err
	}
	return d, d.readForeignKeys(ctx, q, have)
}

func (d *destination) keyNames() []string {
	var names []string
	for _, k := range d.key {
		names = append(names, k.Name)
	}
	return names
}

// mapped is what goes to a column of the target, nil for nothing.
func (d *destination) mapped(name string) *mapped {
	i := slices.IndexFunc(d.columns, func(m mapped) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &d.columns[i]
}

// arbiter are the columns by which an upsert finds the row that it replaces.
func (d *destination) arbiter(c *weir.Capture, mode weir.Mode) []string {
	if c.Set {
		return targetKey(c, mode)
	}
	return d.keyNames()
}

func (d *destination) readUniques(ctx context.Context, q queryer, have *table, b *weir.TableBatch, mode weir.Mode, config func(why, hint string) error) error {
	if mode == weir.SoftDelete && b.Capture.Set && len(b.Capture.RowKey) == 0 {
		return config("soft delete needs a primary key on the source table, to tell the rows of one instance apart", "add one, or use the mode mirror or history")
	}
	rows, err := q.Query(ctx, catalogSQL("uniques"), int64(have.oid))
	if err != nil {
		return err
	}
	arbiter := d.arbiter(b.Capture, mode)
	for _, n := range arbiter {
		if mode == weir.SoftDelete && d.mapped(n) == nil {
			return config(fmt.Sprintf("it lacks the key column %q", n), "add the column, with a unique index over the key")
		}
	}
	key := slices.Sorted(slices.Values(arbiter))
	replaced := b.Capture.Set && mode == weir.Mirror || mode == weir.History
	found := false
	d.parkable = true
	var columns []*string
	var plain bool
	if _, err := pgx.ForEachRow(rows, []any{&columns, &plain}, func() error {
		var names []string
		parked := false
		for _, c := range columns {
			if c == nil {
				continue
			}
			names = append(names, *c)
		}
		plain = plain && len(names) == len(columns)
		if plain && !replaced && slices.Equal(slices.Sorted(slices.Values(names)), key) {
			found = true
			return nil
		}
		if plain {
			if err := mode.CheckUnique(have.Table, names, b.Capture); err != nil {
				return err
			}
		}
		for _, n := range names {
			if col := have.column(n); !col.NotNull && !col.generated && !slices.Contains(key, n) {
				d.park = append(d.park, ident(n))
				parked = true
				break
			}
		}
		d.parkable = d.parkable && parked
		d.uniques = append(d.uniques, names)
		return nil
	}); err != nil {
		return err
	}
	if !found && !replaced {
		return config(fmt.Sprintf("it has no unique index over the key (%s)", strings.Join(arbiter, ", ")),
			fmt.Sprintf("ALTER TABLE %s ADD UNIQUE (%s)", d.name, idents(arbiter)))
	}
	return nil
}

func (d *destination) readForeignKeys(ctx context.Context, q queryer, have *table) error {
	rows, err := q.Query(ctx, catalogSQL("constraints"), int64(have.oid))
	if err != nil {
		return err
	}
	var f foreignKey
	var outgoing bool
	var table, refers weir.Table
	_, err = pgx.ForEachRow(rows, []any{&f.name, &outgoing, &f.own, &f.onDelete, &table.Schema, &table.Name, &refers.Schema, &refers.Name, &f.columns, &f.named}, func() error {
		g := f
		g.columns, g.named = slices.Clone(f.columns), slices.Clone(f.named)
		g.table, g.refers = tableName(table), tableName(refers)
		if outgoing {
			d.out = append(d.out, g)
		}
		if !outgoing || g.own {
			d.in = append(d.in, g)
			if g.onDelete == "c" || g.onDelete == "n" || g.onDelete == "d" {
				d.cascades = true
			}
		}
		return nil
	})
	return err
}

// convert decides how the staged value becomes the target column's, and how to
// tell that it would not be the same value any more. A cast to the type without
// its length or precision fails where it cannot convert; what assigning could
// round or cut is compared. Another type is made of the value's text, so that
// every encoding gives the same.
func (m *mapped) convert(e weir.Encoding) {
	staged := fmt.Sprintf("s.c%d", m.place)
	to := m.target
	full := to.Native
	if to.asText {
		full = to.base
	}
	m.expr = staged
	if m.stage == full {
		return
	}
	limited := full != to.base
	own := createType(m.Column, e)
	natural := baseOf(own) == to.base
	padded := baseOf(m.Native) == "bpchar" && to.base == "bpchar"
	s := m.text(staged)
	switch {
	case natural && m.stage == own:
	case m.Kind == weir.Bool && numbers[to.Kind]:
		m.expr = fmt.Sprintf("%s::boolean::integer::%s", s, to.base)
	case numbers[m.Kind] && integers[to.Kind]:
		m.expr = fmt.Sprintf("%s::numeric::%s", s, to.base) // 1e+15 is an integer
	default:
		m.expr = s + "::" + to.base
	}
	exact := fmt.Sprintf("(%s)::%s", m.expr, full)
	switch {
	case natural && !limited, natural && (m.Kind == weir.JSON || m.Kind == weir.XML):
	case natural && textual(to.base), padded:
		// Assigning fails where it would cut; a comparison would ignore the
		// blanks that are cut.
		m.check = fmt.Sprintf("length(%s::text) > length((%s)::text)", m.expr, exact)
	case natural:
		m.check = fmt.Sprintf("%s is distinct from %s", m.expr, exact)
	case m.Kind == weir.Bool && numbers[to.Kind]:
	case numbers[m.Kind] && numbers[to.Kind]:
		// The same number may be written in another way.
		m.check = fmt.Sprintf("%[1]s is distinct from (%[2]s)::text and (%[1]s = '-0' or %[1]s::numeric is distinct from (%[2]s)::text::numeric)", s, exact)
	case to.base == "jsonb" && (m.Kind == weir.JSON || m.Kind == weir.Text), to.base == "uuid" && m.Kind == weir.Text:
		// Another spelling of the same value.
	case textual(to.base), m.Kind == weir.Text, m.Kind == weir.Other, m.Kind == weir.Bytes:
		m.check = fmt.Sprintf("%s is distinct from %s", s, output(exact, to))
	default:
		m.check = fmt.Sprintf("%s::%s::text is distinct from (%s)::text::%[2]s::text", s, own, exact)
	}
}

// text is the neutral text of a staged value; of bytes, PostgreSQL's own.
func (m *mapped) text(staged string) string {
	switch {
	case m.stage == "text":
		return staged
	case m.Kind == weir.Other || baseOf(m.stage) == "bpchar":
		// A cast would take the blanks off, and give an address its mask.
		return fmt.Sprintf("(case when %[1]s is not null then format('%%s', %[1]s) end)", staged)
	}
	return staged + "::text"
}

// output is what the type's output function makes of a value.
func output(expr string, c *column) string {
	if c.Kind == weir.Other {
		return fmt.Sprintf("case when (%[1]s) is not null then format('%%s', %[1]s) end", expr)
	}
	return "(" + expr + ")::text"
}

var integers = map[weir.Kind]bool{weir.Int16: true, weir.Int32: true, weir.Int64: true}

// numbers are the kinds whose values compare as numbers.
var numbers = map[weir.Kind]bool{
	weir.Int16: true, weir.Int32: true, weir.Int64: true, weir.Float32: true, weir.Float64: true, weir.Decimal: true,
}

func textual(base string) bool {
	return base == "text" || base == "character varying" || base == "bpchar"
}

// baseOf takes length or precision off a type's name as format_type spells it.
func baseOf(native string) string {
	open := strings.IndexByte(native, '(')
	if open < 0 {
		if native == "character" {
			return "bpchar"
		}
		return native
	}
	base := native[:open]
	if end := strings.IndexByte(native, ')'); end > 0 {
		base += native[end+1:]
	}
	if base == "character" {
		return "bpchar"
	}
	return base
}
