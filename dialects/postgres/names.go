package postgres

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// ident quotes one name. What would mean something inside a function's body, a
// literal or a pattern of format() is written as a Unicode escape, so the result
// may stand in any of them.
func ident(name string) string {
	if !strings.ContainsAny(name, `$%'\`) {
		return pgx.Identifier{name}.Sanitize()
	}
	var b strings.Builder
	b.WriteString(`U&"`)
	for _, c := range name {
		switch c {
		case '$', '%', '\'', '\\':
			fmt.Fprintf(&b, `\%04x`, c)
		case '"':
			b.WriteString(`""`)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// tableName quotes a table's name.
func tableName(t weir.Table) string { return ident(t.Schema) + "." + ident(t.Name) }

// regclass is the text of a table's name for a cast to regclass, which knows no
// Unicode escapes.
func regclass(t weir.Table) string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// idents quotes names and joins them by commas.
func idents(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = ident(n)
	}
	return strings.Join(q, ", ")
}

// literal quotes a text for SQL that must stand without parameters (DDL). It may
// stand in a function's body and in a pattern of format(), too.
func literal(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.ContainsAny(s, `\$%`) {
		return "E" + strings.NewReplacer(`\`, `\\`, "$", `\x24`, "%", `\x25`).Replace(q)
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
