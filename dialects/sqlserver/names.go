package sqlserver

import (
	"strings"
	"unicode/utf16"

	"github.com/weir-cdc/weir"
)

// maxName is the longest name, in UTF-16 code units. A longer one is an error of
// the server's.
const maxName = 128

// ident quotes one name.
func ident(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" }

// tableName quotes a table's name.
func tableName(t weir.Table) string { return ident(t.Schema) + "." + ident(t.Name) }

// idents quotes names and joins them by commas.
func idents(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = ident(n)
	}
	return strings.Join(q, ", ")
}

// literal quotes a text for SQL that must stand without parameters (DDL).
func literal(s string) string { return "N'" + strings.ReplaceAll(s, "'", "''") + "'" }

// units counts a text's UTF-16 code units, in which SQL Server measures names
// and nvarchar.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// cut shortens a name to at most n UTF-16 code units, at a character's end.
func cut(name string, n int) string {
	have := 0
	for i, r := range name {
		if have += utf16.RuneLen(r); have > n {
			return name[:i]
		}
	}
	return name
}
