package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

// queryer is what a pool and a transaction share.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// table is a table as the catalog has it.
type table struct {
	weir.Table
	oid        uint32
	relkind    string
	partition  bool
	rows       int64
	filtered   bool // row-level security hides rows from this role
	maySelect  bool
	mayTrigger bool
	subscribed bool
	insteadOf  bool
	children   bool // inheritance, not partitions
	columns    []column
	key        []string // of the primary key or the usable unique index
	immediate  bool     // the key is unique at every moment, not only at the commit
}

func (t *table) partitioned() bool { return t.relkind == "p" }

func (t *table) column(name string) *column {
	for i := range t.columns {
		if t.columns[i].Name == name {
			return &t.columns[i]
		}
	}
	return nil
}

// catalogSQL reads a query of sql/postgres/catalog.
func catalogSQL(name string) string {
	text, err := fs.ReadFile(weirsql.FS, "postgres/catalog/"+name+".sql")
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(text)
}

// describeTable reads a table with its columns and key; nil when it does not
// exist.
func describeTable(ctx context.Context, q queryer, name weir.Table) (*table, error) {
	t := &table{Table: name}
	var oid int64
	err := q.QueryRow(ctx, catalogSQL("table"), name.Schema, name.Name).Scan(&oid, &t.relkind, &t.partition, &t.rows,
		&t.filtered, &t.maySelect, &t.mayTrigger, &t.subscribed, &t.insteadOf, &t.children)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", name, err)
	}
	t.oid = uint32(oid)
	if t.columns, err = describeColumns(ctx, q, t.oid); err != nil {
		return nil, fmt.Errorf("describe %s: %w", name, err)
	}
	var attnums []int32
	var primary bool
	err = q.QueryRow(ctx, catalogSQL("key"), oid).Scan(&attnums, &primary, &t.immediate)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("describe the key of %s: %w", name, err)
	}
	for _, n := range attnums {
		for i := range t.columns {
			if int32(t.columns[i].attnum) == n {
				t.key = append(t.key, t.columns[i].Name)
			}
		}
	}
	return t, nil
}

func describeColumns(ctx context.Context, q queryer, oid uint32) ([]column, error) {
	rows, err := q.Query(ctx, catalogSQL("columns"), int64(oid))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (column, error) {
		var c column
		var typ int64
		var typtype, category, native, generated, identity string
		err := r.Scan(&c.Name, &c.attnum, &typ, &c.typmod, &typtype, &category, &native, &c.NotNull, &generated, &identity, &c.deterministic, &c.base)
		c.oid, c.generated, c.identity, c.isEnum = uint32(typ), generated != "", identity == "a", typtype == "e"
		c.describe(typtype, category, native)
		return c, err
	})
}

// findTable is describeTable for a table that a user named: a missing one is a
// *weir.ConfigError with what there is instead.
func findTable(ctx context.Context, q queryer, name weir.Table) (*table, error) {
	if name.Schema == "" {
		name.Schema = "public"
	}
	t, err := describeTable(ctx, q, name)
	if err != nil {
		return nil, translate(err, weir.AtSource, "describe", name.String())
	}
	if t != nil {
		return t, nil
	}
	rows, err := q.Query(ctx, `select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p') and n.nspname not like 'pg\_%' and n.nspname <> 'information_schema'
			and (position(lower($1::text) in lower(c.relname)) > 0 or position(lower(c.relname) in lower($1::text)) > 0)
		order by lower(c.relname) <> lower($1::text), n.nspname <> $2::text, 1 limit 5`, name.Name, name.Schema)
	if err != nil {
		return nil, translate(err, weir.AtSource, "describe", name.String())
	}
	near, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, translate(err, weir.AtSource, "describe", name.String())
	}
	hint := "name the table as the catalog spells it: schema.table"
	if len(near) > 0 {
		hint = "there is " + strings.Join(near, ", ")
	}
	return nil, &weir.ConfigError{Key: "captures: " + name.String(), Err: errors.New("there is no such table"), Hint: hint}
}
