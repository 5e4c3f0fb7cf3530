package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-cdc/weir"
)

// destination is how one source table's rows are written to one target table.
type destination struct {
	*table
	columns []mapped
	key     []mapped // of the capture's key
	out     []foreignKey
	in      []foreignKey
	uniques []unique // other than the arbiter
}

// mapped is a source column and where it goes.
type mapped struct {
	place  int // in TableBatch.Columns
	source weir.Column
	target *column
}

// stage is the column's name in the staging table.
func (m mapped) stage() string { return "c" + strconv.Itoa(m.place) }

// unique is a unique index of the target's own.
type unique struct {
	index
	// park sets one of its columns aside, as an SQL assignment; empty where none
	// can be.
	park string
}

// foreignKey refers from columns of table to columns of parent.
type foreignKey struct {
	table, parent  string
	columns, named []string
	onDelete       string
}

func newDestination(ctx context.Context, c *session, have *table, b *weir.TableBatch, mode weir.Mode) (*destination, error) {
	d := &destination{table: have}
	config := func(why, hint string) error {
		return &weir.ConfigError{Key: "target table " + have.name, Err: fmt.Errorf("%s", why), Hint: hint}
	}
	if have.kind != "table" {
		return nil, config("it is a "+have.kind, "remove or rename it")
	}
	for i, col := range b.Columns {
		if to := have.column(col.Name); to != nil && !to.generated {
			d.columns = append(d.columns, mapped{place: i, source: col, target: to})
		}
	}
	for _, k := range b.Capture.Key {
		i := slices.IndexFunc(d.columns, func(m mapped) bool { return equalNames(m.source.Name, k.Name) })
		if i < 0 {
			return nil, config(fmt.Sprintf("its key column %q is generated there", k.Name), "make it a column that can be written")
		}
		d.key = append(d.key, d.columns[i])
	}
	if err := d.readUniques(b, mode, config); err != nil {
		return nil, err
	}
	return d, d.readForeignKeys(ctx, c)
}

// mapped is what goes to a column of the target, nil for nothing.
func (d *destination) mapped(name string) *mapped {
	i := slices.IndexFunc(d.columns, func(m mapped) bool { return equalNames(m.source.Name, name) })
	if i < 0 {
		return nil
	}
	return &d.columns[i]
}

// arbiter are the columns by which an upsert finds the row that it replaces.
func (d *destination) arbiter(cp *weir.Capture, mode weir.Mode) []string {
	if cp.Set {
		return targetKey(cp, mode)
	}
	return d.keyNames()
}

func (d *destination) keyNames() []string {
	var names []string
	for _, k := range d.key {
		names = append(names, k.target.Name)
	}
	return names
}

func (d *destination) readUniques(b *weir.TableBatch, mode weir.Mode, config func(why, hint string) error) error {
	if mode == weir.SoftDelete && b.Capture.Set && len(b.Capture.RowKey) == 0 {
		return config("soft delete needs a primary key on the source table, to tell the rows of one instance apart", "add one, or use the mode mirror or history")
	}
	same := func(columns []string, names []string) bool {
		return len(columns) == len(names) && !slices.ContainsFunc(columns, func(n string) bool {
			return !slices.ContainsFunc(names, func(m string) bool { return equalNames(n, m) })
		})
	}
	arbiter := d.arbiter(b.Capture, mode)
	for _, n := range arbiter {
		if mode == weir.SoftDelete && d.mapped(n) == nil {
			return config(fmt.Sprintf("it lacks the key column %q", n), "add the column, with a unique index over the key")
		}
	}
	found := false
	indexes := slices.Clone(d.indexes)
	if a := d.alias(); a != nil {
		indexes = append(indexes, index{name: "the primary key", columns: []string{a.Name}, binary: true})
	}
	for _, x := range indexes {
		if !x.partial {
			if err := mode.CheckUnique(weir.Table{Name: d.name}, x.columns, b.Capture); err != nil {
				return err
			}
		}
		if !x.partial && same(x.columns, arbiter) {
			if !x.binary && slices.ContainsFunc(d.key, func(k mapped) bool { return k.target.affinity != affInteger && k.target.affinity != affReal }) {
				return config(fmt.Sprintf("its index %s compares the key by another collation than BINARY", x.name), "declare the key's columns without COLLATE")
			}
			found = true
			continue
		}
		u := unique{index: x}
		for _, n := range x.columns {
			col := d.column(n)
			if n == "" || col == nil || col.generated || slices.ContainsFunc(arbiter, func(m string) bool { return equalNames(n, m) }) {
				continue
			}
			aside := "'weir-' || hex(randomblob(16))"
			switch {
			case !col.NotNull && col != d.alias():
				aside = "null"
			case col == d.alias(), col.strict && col.affinity == affInteger:
				aside = "random()"
			case col.strict && col.affinity == affReal:
				aside = "random() * 1.0"
			case col.strict && col.affinity == affBlob:
				aside = "randomblob(16)"
			}
			u.park = ident(col.Name) + " = " + aside
			if aside == "null" {
				break
			}
		}
		d.uniques = append(d.uniques, u)
	}
	replaced := b.Capture.Set && mode == weir.Mirror || mode == weir.History
	if !found && !replaced {
		return config(fmt.Sprintf("it has no unique index over the key (%s)", strings.Join(arbiter, ", ")),
			fmt.Sprintf("CREATE UNIQUE INDEX ... ON %s (%s)", ident(d.name), idents(arbiter)))
	}
	return nil
}

const foreignKeySQL = `select m.name, f.id, f.[table], f.[from], coalesce(f.[to], ''), f.on_delete
	from pragma_table_list m, pragma_foreign_key_list(m.name) f
	where m.schema = 'main' and m.type = 'table' and (m.name = ?1 or f.[table] = ?1 collate nocase)
	order by m.name, f.id, f.seq`

func (d *destination) readForeignKeys(ctx context.Context, c *session) error {
	var all []foreignKey
	var f foreignKey
	var id int
	var from, to string
	last := ""
	if err := c.each(ctx, foreignKeySQL, []any{d.name}, []any{&f.table, &id, &f.parent, &from, &to, &f.onDelete}, func() error {
		if me := fmt.Sprint(f.table, "\x00", id); me != last {
			all, last = append(all, foreignKey{table: f.table, parent: f.parent, onDelete: f.onDelete}), me
		}
		g := &all[len(all)-1]
		g.columns = append(g.columns, from)
		if to != "" {
			g.named = append(g.named, to)
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range all {
		g := &all[i]
		if len(g.named) == 0 { // the parent's primary key
			parent, err := describe(ctx, c, g.parent)
			if err != nil {
				return err
			}
			if parent == nil {
				continue
			}
			for _, k := range parent.primary() {
				g.named = append(g.named, k.Name)
			}
		}
		if len(g.named) != len(g.columns) {
			continue // SQLite itself refuses to write such a table
		}
		if equalNames(g.table, d.name) {
			d.out = append(d.out, *g)
		}
		if equalNames(g.parent, d.name) {
			d.in = append(d.in, *g)
		}
	}
	return nil
}
