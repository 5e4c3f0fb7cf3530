package dialects_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/doctest"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/puller"
)

// docTypes are the source types of docs/types.md, and what each target makes of
// them.
func docTypes(t *testing.T, from string) (names []string, in []map[string]string) {
	t.Helper()
	heads := map[string]string{"postgres": "PostgreSQL", "sqlite": "SQLite", "sqlserver": "SQL Server"}
	for _, row := range doctest.Table(t, "../docs/types.md", heads[from]) {
		made := map[string]string{}
		for engine, head := range heads {
			made[engine] = row["in "+head]
		}
		for _, name := range strings.Split(row[heads[from]], ", ") {
			names, in = append(names, name), append(in, made)
		}
	}
	return names, in
}

// columnTypes are the types of a table's columns as the document has them.
var columnTypes = map[string]string{
	"postgres": `select attname, replace(replace(replace(replace(format_type(atttypid, atttypmod), 'timestamp without time zone', 'timestamp'), 'timestamp with time zone', 'timestamptz'),
		'time without time zone', 'time'), 'time with time zone', 'timetz') from pg_attribute where attrelid = 'copy.types'::regclass and attnum > 0`,
	"sqlite": "select name, type from pragma_table_info('types')",
	"sqlserver": `select c.name, case when t.name = 'timestamp' then 'rowversion' else t.name end + case
			when t.name in ('char', 'varchar', 'binary', 'varbinary') then '(' + case c.max_length when -1 then 'max' else convert(varchar(9), c.max_length) end + ')'
			when t.name in ('nchar', 'nvarchar') then '(' + case c.max_length when -1 then 'max' else convert(varchar(9), c.max_length / 2) end + ')'
			when t.name in ('decimal', 'numeric') then '(' + convert(varchar(9), c.precision) + ',' + convert(varchar(9), c.scale) + ')'
			when t.name in ('time', 'datetime2', 'datetimeoffset') then '(' + convert(varchar(9), c.scale) + ')' else '' end
		from sys.columns c join sys.types t on t.user_type_id = c.user_type_id where c.object_id = object_id('copy.types')`,
}

// TestDocs_Types makes a table with a column of each type that docs/types.md
// names, and compares the table that each target makes of it.
func TestDocs_Types(t *testing.T) {
	for _, from := range []string{"postgres", "sqlite", "sqlserver"} {
		for _, to := range []string{"postgres", "sqlite", "sqlserver"} {
			if from == to && from != "sqlserver" {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				schema := map[string]string{"postgres": "public", "sqlserver": "dbo"}[from]
				source, target := newDatabase(t, from, schema), newDatabase(t, to, "copy")
				babelfish := (from == "sqlserver" || to == "sqlserver") && testdb.Babelfish(t)
				names, made := docTypes(t, from)
				want := map[string]int{}
				var columns strings.Builder
				for i, typ := range names {
					if babelfish && lacking[typ] {
						continue
					}
					name := fmt.Sprintf("c%d", i)
					want[name] = i
					fmt.Fprintf(&columns, ", %s %s", name, typ)
				}
				table := source.name("types")
				source.exec(t, "create table "+table+" (id integer not null primary key"+columns.String()+")")
				l := newLine(t, source, target, puller.Config{}, weir.CaptureSpec{Table: weir.ParseTable(strings.ReplaceAll(table, `"`, ""))})
				source.exec(t, "insert into "+table+" (id) values (1)")
				l.drain(t)

				rows, err := target.db.QueryContext(t.Context(), columnTypes[to])
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				seen := 0
				for rows.Next() {
					var name, got string
					if err := rows.Scan(&name, &got); err != nil {
						t.Fatal(err)
					}
					i, ok := want[name]
					if !ok {
						continue // the key
					}
					seen++
					typ := made[i][to]
					if babelfish { // which has six digits of a second
						typ, got = strings.Replace(typ, "(7)", "(6)", 1), strings.Replace(got, "(7)", "(6)", 1)
					}
					if got != typ {
						t.Errorf("%s becomes %s; docs/types.md says %s", names[i], got, typ)
					}
				}
				if err := rows.Err(); err != nil {
					t.Fatal(err)
				}
				if seen != len(want) {
					t.Errorf("the target has %d of %d columns", seen, len(want))
				}
			})
		}
	}
}

// lacking are types that Babelfish does not have; a test of the package
// sqlserver goes through all without a server.
var lacking = map[string]bool{"hierarchyid": true, "geometry": true, "geography": true}
