package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// table is a table as the catalog has it.
type table struct {
	name         string
	kind         string // table, view, virtual, shadow
	withoutRowid bool
	strict       bool
	columns      []column
	indexes      []index
	// rowid is the name that reads the rowid, empty where it has none or all
	// its names are columns.
	rowid string
}

type column struct {
	weir.Column
	declared  string
	affinity  affinity
	strict    bool // of a STRICT table
	pk        int  // place in the primary key, from 1
	generated bool
}

// index is a unique index, or the primary key of a table whose key is no alias
// of the rowid.
type index struct {
	name    string
	origin  string   // pk, u, c
	columns []string // empty text for an expression
	binary  bool     // all columns collate BINARY
	partial bool
}

// columnSQL, indexSQL and indexColumnSQL read a table's description.
const (
	columnSQL      = "select name, type, [notnull], pk, hidden from pragma_table_xinfo(?1) where hidden <> 1 order by cid"
	indexSQL       = "select name, origin, partial from pragma_index_list(?1) where [unique] order by name"
	indexColumnSQL = "select coalesce(name, ''), coalesce(coll, '') from pragma_index_xinfo(?1) where key order by seqno"
)

// describe reads a table's description; nil where there is none of that name.
func describe(ctx context.Context, c *session, name string) (*table, error) {
	t := &table{}
	found := false
	// A table's name is compared as SQLite does: A to Z in either case.
	if err := c.each(ctx, "select name, type, wr, strict from pragma_table_list where schema = 'main' and name = ?1 collate nocase", []any{name},
		[]any{&t.name, &t.kind, &t.withoutRowid, &t.strict}, func() error { found = true; return nil }); err != nil || !found {
		return nil, err
	}
	var col column
	var notNull bool
	var hidden int
	if err := c.each(ctx, columnSQL, []any{t.name}, []any{&col.Name, &col.declared, &notNull, &col.pk, &hidden}, func() error {
		k := column{Column: columnOf(col.Name, col.declared, t.strict), declared: col.declared, pk: col.pk, strict: t.strict, generated: hidden > 1}
		k.affinity = affinityOf(col.declared, t.strict)
		k.NotNull = notNull || t.withoutRowid && k.pk > 0
		t.columns = append(t.columns, k)
		return nil
	}); err != nil {
		return nil, err
	}
	var x index
	if err := c.each(ctx, indexSQL, []any{t.name}, []any{&x.name, &x.origin, &x.partial}, func() error {
		t.indexes = append(t.indexes, x)
		return nil
	}); err != nil {
		return nil, err
	}
	for i := range t.indexes {
		x := &t.indexes[i]
		x.binary = true
		var name, coll string
		if err := c.each(ctx, indexColumnSQL, []any{x.name}, []any{&name, &coll}, func() error {
			x.columns = append(x.columns, name)
			x.binary = x.binary && strings.EqualFold(coll, "binary")
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if t.kind == "table" && !t.withoutRowid {
		for _, name := range []string{"rowid", "_rowid_", "oid"} {
			if t.column(name) == nil {
				t.rowid = name
				break
			}
		}
	}
	return t, nil
}

// column finds a column by its name as SQLite compares names.
func (t *table) column(name string) *column {
	for i := range t.columns {
		if equalNames(t.columns[i].Name, name) {
			return &t.columns[i]
		}
	}
	return nil
}

// equalNames compares names of tables and columns as SQLite does: without
// regard to the case of A to Z, and of no other letter.
func equalNames(a, b string) bool { return lowerASCII(a) == lowerASCII(b) }

func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// primary are the columns of the primary key, in its order.
func (t *table) primary() []*column {
	var pk []*column
	for i := range t.columns {
		if t.columns[i].pk > 0 {
			pk = append(pk, &t.columns[i])
		}
	}
	slices.SortFunc(pk, func(a, b *column) int { return a.pk - b.pk })
	return pk
}

// alias returns the column that is another name of the rowid (INTEGER PRIMARY
// KEY), or nil: its values are integers, and never null.
func (t *table) alias() *column {
	pk := t.primary()
	if t.withoutRowid || len(pk) != 1 || slices.ContainsFunc(t.indexes, func(x index) bool { return x.origin == "pk" }) {
		return nil
	}
	return pk[0]
}

// key chooses the columns that tell the table's rows apart: the primary key, or
// else the shortest unique index over columns that are not null. why says what
// is wrong with the others.
func (t *table) key() (key []*column, why error) {
	if a := t.alias(); a != nil {
		return []*column{a}, nil
	}
	var candidates []index
	for _, x := range t.indexes {
		if x.origin == "pk" {
			candidates = append(candidates, x)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(t.indexes), func(x index) bool { return x.origin == "pk" || x.partial })
	slices.SortStableFunc(rest, func(a, b index) int { return len(a.columns) - len(b.columns) })
	why = errors.New("it has neither a primary key nor a unique index over not-null columns")
	for _, x := range append(candidates, rest...) {
		cols, err := t.usable(x)
		if err == nil {
			return cols, nil
		}
		if x.origin == "pk" {
			why = err
		}
	}
	return nil, why
}

func (t *table) usable(x index) ([]*column, error) {
	var cols []*column
	for _, name := range x.columns {
		c := t.column(name)
		switch {
		case name == "" || c == nil:
			return nil, fmt.Errorf("its unique index %s is over an expression", x.name)
		case !c.NotNull && x.origin != "pk":
			return nil, fmt.Errorf("column %q of its unique index %s may be null", name, x.name)
		case !x.binary && c.affinity != affInteger && c.affinity != affReal:
			return nil, fmt.Errorf("its key %s compares by another collation than BINARY, so equal keys may be spelled differently", x.name)
		case c.Kind == weir.Any:
			return nil, fmt.Errorf("key column %q has no type, so 1 and '1' are two keys that other engines cannot tell apart", name)
		}
		cols = append(cols, c)
	}
	return cols, nil
}
