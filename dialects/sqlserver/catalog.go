package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

// table is a table as the catalog has it. Its name is spelled as the catalog
// does.
type table struct {
	weir.Table
	id      int64
	kind    string // U table, V view
	columns []column
	uniques []unique
	key     []string // of the primary key or the usable unique index
}

// unique is a unique index or constraint.
type unique struct {
	primary bool
	plain   bool // enabled and without a filter
	// ignoresDuplicates: IGNORE_DUP_KEY, a duplicate is a warning.
	ignoresDuplicates bool
	columns           []string
}

// column finds a column by its name as the catalog spells it, or in another
// case, since most databases hold those equal.
func (t *table) column(name string) *column {
	for i := range t.columns {
		if t.columns[i].Name == name {
			return &t.columns[i]
		}
	}
	for i := range t.columns {
		if strings.EqualFold(t.columns[i].Name, name) {
			return &t.columns[i]
		}
	}
	return nil
}

// catalogSQL reads a query of sql/sqlserver/catalog.
func catalogSQL(name string) string {
	text, err := fs.ReadFile(weirsql.FS, "sqlserver/catalog/"+name+".sql")
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(text)
}

// describeTable reads a table with its columns and key; nil when it does not
// exist.
func describeTable(ctx context.Context, q queryer, name weir.Table) (*table, error) {
	t := &table{}
	err := q.QueryRowContext(ctx, catalogSQL("table"), name.Schema, name.Name).Scan(&t.id, &t.kind, &t.Schema, &t.Name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", name, err)
	}
	if err := t.readColumns(ctx, q); err != nil {
		return nil, fmt.Errorf("describe %s: %w", name, err)
	}
	if err := t.readUniques(ctx, q); err != nil {
		return nil, fmt.Errorf("describe the keys of %s: %w", name, err)
	}
	return t, nil
}

// findTable is describeTable for a table that a user named: a missing one is a
// *weir.ConfigError with what there is instead.
func findTable(ctx context.Context, q queryer, name weir.Table) (*table, error) {
	t, err := describeTable(ctx, q, name)
	if t != nil || err != nil {
		return t, translate(err, weir.AtSource, "describe", name.String())
	}
	var near []string
	var one string
	if err := each(ctx, q, catalogSQL("near"), []any{name.Schema, name.Name}, []any{&one}, func() error {
		near = append(near, one)
		return nil
	}); err != nil {
		return nil, translate(err, weir.AtSource, "describe", name.String())
	}
	hint := "name the table as the catalog spells it: schema.table"
	if len(near) > 0 {
		hint = "there is " + strings.Join(near, ", ")
	}
	return nil, &weir.ConfigError{Key: "captures: " + name.String(), Err: errors.New("there is no such table, or the login may not see it"), Hint: hint}
}

func (t *table) readColumns(ctx context.Context, q queryer) error {
	var c column
	var nullable bool
	var hasDefault, always int
	dest := []any{&c.id, &c.Name, &c.base, &c.alias, &c.maxLength, &c.precision, &c.scale, &nullable, &c.identity, &c.computed,
		&c.collation, &c.codePage, &hasDefault, &always}
	return each(ctx, q, catalogSQL("columns"), []any{t.id}, dest, func() error {
		d := c
		d.NotNull, d.hasDefault, d.generated = !nullable, hasDefault == 1, always != 0
		d.describe()
		t.columns = append(t.columns, d)
		return nil
	})
}

func (t *table) readUniques(ctx context.Context, q queryer) error {
	var index, columnID, last int
	var primary, ignores bool
	var plain int
	if err := each(ctx, q, catalogSQL("uniques"), []any{t.id}, []any{&index, &primary, &plain, &ignores, &columnID}, func() error {
		if index != last {
			t.uniques = append(t.uniques, unique{primary: primary, plain: plain == 1, ignoresDuplicates: ignores})
			last = index
		}
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.id == columnID })
		if i < 0 {
			return fmt.Errorf("index %d has an unknown column %d", index, columnID)
		}
		u := &t.uniques[len(t.uniques)-1]
		u.columns = append(u.columns, t.columns[i].Name)
		return nil
	}); err != nil {
		return err
	}
	for _, u := range t.uniques {
		null := slices.ContainsFunc(u.columns, func(n string) bool { return !t.column(n).NotNull })
		if u.plain && !null {
			t.key = u.columns
			break
		}
	}
	return nil
}

// readCascades finds the columns that a foreign key's action may change.
func (t *table) readCascades(ctx context.Context, q queryer) error {
	var id int
	return each(ctx, q, catalogSQL("cascades"), []any{t.id}, []any{&id}, func() error {
		for i := range t.columns {
			t.columns[i].cascaded = t.columns[i].cascaded || t.columns[i].id == id
		}
		return nil
	})
}
