package sqlite

import (
	"context"
	"database/sql"
	"strings"
)

// loader inserts rows into a staging table, many to a statement.
type loader struct {
	c       *session
	table   string
	columns []string
	rows    int // to a full statement
	args    []any
	full    *sql.Stmt
}

// maxVariables is how many a statement of the loader binds; SQLite allows
// 32,766.
const maxVariables = 8000

func newLoader(c *session, table string, columns []string) *loader {
	return &loader{c: c, table: table, columns: columns, rows: max(1, min(200, maxVariables/len(columns)))}
}

func (l *loader) text(rows int) string {
	row := "(?" + strings.Repeat(", ?", len(l.columns)-1) + ")"
	return "insert into " + l.table + " (" + strings.Join(l.columns, ", ") + ") values " + strings.Repeat(row+", ", rows-1) + row
}

func (l *loader) add(ctx context.Context, row []any) error {
	l.args = append(l.args, row...)
	if len(l.args) < l.rows*len(l.columns) {
		return nil
	}
	if l.full == nil {
		st, err := l.c.PrepareContext(ctx, l.text(l.rows))
		if err != nil {
			return err
		}
		l.full = st
	}
	_, err := l.full.ExecContext(ctx, l.args...)
	l.args = l.args[:0]
	return err
}

func (l *loader) flush(ctx context.Context) error {
	if len(l.args) == 0 {
		return nil
	}
	_, err := l.c.ExecContext(ctx, l.text(len(l.args)/len(l.columns)), l.args...)
	l.args = l.args[:0]
	return err
}

func (l *loader) close() {
	if l.full != nil {
		l.full.Close()
	}
}
