package postgres

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// ident quotes one name.
func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// tableName quotes a table's name.
func tableName(t weir.Table) string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// idents quotes names and joins them by commas.
func idents(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = ident(n)
	}
	return strings.Join(q, ", ")
}

// literal quotes a text for SQL that must stand without parameters (DDL).
func literal(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

func textArray(s []string) string {
	if len(s) == 0 {
		return "'{}'"
	}
	q := make([]string, len(s))
	for i, e := range s {
		q[i] = literal(e)
	}
	return "array[" + strings.Join(q, ", ") + "]"
}

// maxName is NAMEDATALEN - 1: longer names are cut by the server, and could
// then collide.
const maxName = 63

// cut shortens a name to maxName bytes at a character's end.
func cut(name string) string {
	for len(name) > maxName {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	return name
}

// dollar quotes a body with a tag that the body does not hold.
func dollar(body string) string {
	tag := "$weir$"
	for i := 1; strings.Contains(body, tag); i++ {
		tag = fmt.Sprintf("$weir%d$", i)
	}
	return tag + body + tag
}
