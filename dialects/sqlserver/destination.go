package sqlserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// destination is how one source table's rows are written to one target table.
type destination struct {
	name    string // quoted
	id      int64
	message string // for people
	columns []mapped
	key     []*column // the target's columns of the capture's key
	out     []foreignKey
	in      []foreignKey
	uniques [][]string // of the other unique indexes
	// identity: one of the columns is an IDENTITY, whose values are given.
	identity bool
	// exact: texts of a key are compared as they are, not as the collation does.
	exact bool
}

// mapped is a source column and where it goes.
type mapped struct {
	place int // in TableBatch.Columns
	weir.Column
	target *column
	expr   string // over alias s, the value for the target's column
	check  string // over alias s, true where the value does not fit; empty where that is known before
}

type foreignKey struct {
	name           string
	own            bool
	onDelete       int    // 0 no action, 1 cascade, 2 set null, 3 set default
	table, refers  string // quoted
	columns, named []string
}

// match compares a referring row with the row that it refers to.
func (f *foreignKey) match(referring, referred string) string {
	var parts []string
	for n := range f.columns {
		parts = append(parts, fmt.Sprintf("%s.%s = %s.%s", referring, ident(f.columns[n]), referred, ident(f.named[n])))
	}
	return strings.Join(parts, " AND ")
}

func newDestination(ctx context.Context, q queryer, have *table, b *weir.TableBatch, mode weir.Mode) (*destination, error) {
	d := &destination{name: tableName(have.Table), id: have.id, message: have.String(), exact: b.Encoding != Encoding}
	config := func(why, hint string) error {
		return &weir.ConfigError{Key: "target table " + d.message, Err: fmt.Errorf("%s", why), Hint: hint}
	}
	if have.kind != "U" {
		return nil, config("it is not a table", "remove or rename it, or give the target another schema")
	}
	for i, c := range b.Columns {
		to := have.column(c.Name)
		if to == nil || !to.written() {
			continue // ignored by policy, or computed there
		}
		if to.base == "sql_variant" || to.Kind == weir.Other {
			return nil, config(fmt.Sprintf("its column %q is of the type %s, which cannot keep a value's own type", to.Name, to.base), "change the column's type, or drop the column")
		}
		m := mapped{place: i, Column: c, target: to}
		m.expr, m.check = to.fromStage(fmt.Sprintf("s.c%d", i)), to.serverCheck(fmt.Sprintf("s.c%d", i))
		d.columns = append(d.columns, m)
		d.identity = d.identity || to.identity
	}
	for _, k := range b.Capture.Key {
		i := slices.IndexFunc(d.columns, func(m mapped) bool { return m.Name == k.Name })
		if i < 0 {
			return nil, config(fmt.Sprintf("its key column %q is computed there", k.Name), "make it a column that can be written")
		}
		d.key = append(d.key, d.columns[i].target)
	}
	if err := d.readUniques(have, b, mode, config); err != nil {
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

// mapped is the source column that goes to a column of the target.
func (d *destination) mapped(name string) *mapped {
	i := slices.IndexFunc(d.columns, func(m mapped) bool { return m.target.Name == name })
	if i < 0 {
		return nil
	}
	return &d.columns[i]
}

// same compares a column of the target, of alias t, with a value of the column's
// type. What the collation holds equal is one row only where the source's does,
// too.
func (d *destination) same(c *column, value string) string {
	match := fmt.Sprintf("t.%s = %s", ident(c.Name), value)
	if d.exact && c.textual() {
		match += fmt.Sprintf(" AND CONVERT(varbinary(max), t.%s) = CONVERT(varbinary(max), %s)", ident(c.Name), value)
	}
	return match
}

// match compares the target's row, of alias t, with the staged one, of alias s,
// by some columns.
func (d *destination) match(names []string) string {
	var parts []string
	for _, n := range names {
		m := d.mapped(n)
		parts = append(parts, d.same(m.target, m.expr))
	}
	return strings.Join(parts, " AND ")
}

func (d *destination) readUniques(have *table, b *weir.TableBatch, mode weir.Mode, config func(why, hint string) error) error {
	key := slices.Sorted(slices.Values(d.keyNames()))
	arbiter := false
	for _, u := range have.uniques {
		if u.ignoresDuplicates {
			return config(fmt.Sprintf("its unique index over (%s) drops duplicates without a word", strings.Join(u.columns, ", ")), "build the index with IGNORE_DUP_KEY = OFF")
		}
		if u.plain {
			if err := mode.CheckUnique(have.Table, u.columns, b.Capture); err != nil {
				return err
			}
		}
		if u.plain && slices.Equal(slices.Sorted(slices.Values(u.columns)), key) {
			arbiter = true
			continue
		}
		d.uniques = append(d.uniques, u.columns)
	}
	if !arbiter && !b.Capture.Set && mode != weir.History {
		return config(fmt.Sprintf("it has no unique index over the key (%s)", strings.Join(d.keyNames(), ", ")),
			fmt.Sprintf("ALTER TABLE %s ADD UNIQUE (%s)", d.name, idents(d.keyNames())))
	}
	if mode == weir.SoftDelete && b.Capture.Set && len(b.Capture.RowKey) == 0 {
		return config("soft delete needs a primary key on the source table, to tell the rows of one instance apart", "add one, or use the mode mirror or history")
	}
	return nil
}

func (d *destination) readForeignKeys(ctx context.Context, q queryer, have *table) error {
	var id, last int64
	var f foreignKey
	var from, to int64
	var table, refers weir.Table
	var column, named string
	dest := []any{&id, &f.name, &from, &to, &f.onDelete, &table.Schema, &table.Name, &refers.Schema, &refers.Name, &column, &named}
	var all []*foreignKey
	var outgoing, incoming []bool
	if err := each(ctx, q, catalogSQL("foreign_keys"), []any{have.id}, dest, func() error {
		if id != last {
			last = id
			g := f
			g.own, g.table, g.refers = from == to, tableName(table), tableName(refers)
			g.columns, g.named = nil, nil
			all = append(all, &g)
			outgoing, incoming = append(outgoing, from == have.id), append(incoming, to == have.id)
		}
		g := all[len(all)-1]
		g.columns, g.named = append(g.columns, column), append(g.named, named)
		return nil
	}); err != nil {
		return fmt.Errorf("describe the foreign keys of %s: %w", d.message, err)
	}
	for i, f := range all {
		if outgoing[i] {
			d.out = append(d.out, *f)
		}
		if incoming[i] {
			d.in = append(d.in, *f)
		}
	}
	return nil
}
