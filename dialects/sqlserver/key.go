package sqlserver

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weir-cdc/weir"
)

// instanceSuffix is what the instance GUIDs of a plain table with one integer
// key end with: 8 bytes, which the server compares first. It follows the
// table's name and not a configured concept, which two tables may share.
func instanceSuffix(t weir.Table) string {
	g := weir.ConceptOf(t)
	return hex.EncodeToString(g[:2]) + "-" + hex.EncodeToString(g[2:8])
}

// instanceSeed is what the hash of other keys begins with.
func instanceSeed(t weir.Table) string {
	g := weir.ConceptOf(t)
	return hex.EncodeToString(g[:])
}

func (c *column) integer() bool {
	switch c.base {
	case "tinyint", "smallint", "int", "bigint":
		return true
	}
	return false
}

// keyText is the SQL expression for the lossless text of a key column: it
// depends on the value alone, never on the session. fold is the expression of
// which equal values, under the column's collation too, give one text; ok is
// false for a type that cannot be a key of weir's.
//
// A text's own spelling is its key text, trailing blanks and case included: a
// target that tells spellings apart must find its row by it.
func (c *column) keyText(expr string) (text, fold string, ok bool) {
	as := func(typ, style string) (string, string, bool) {
		t := fmt.Sprintf("CONVERT(%s, %s%s)", typ, expr, style)
		return t, t, true
	}
	switch c.base {
	case "tinyint", "smallint", "int", "bigint", "bit":
		return as("nvarchar(20)", "")
	case "decimal", "numeric":
		return as("nvarchar(41)", "")
	case "money", "smallmoney":
		t := fmt.Sprintf("LTRIM(RTRIM(CONVERT(varchar(30), %s, 2)))", expr)
		return t, t, true
	case "float", "real":
		// -0 equals 0.
		t := fmt.Sprintf("LTRIM(RTRIM(CONVERT(varchar(30), CASE WHEN %[1]s = 0 THEN CONVERT(%[2]s, 0) ELSE %[1]s END, 3)))", expr, c.base)
		return t, t, true
	case "uniqueidentifier":
		t := fmt.Sprintf("LOWER(CONVERT(nvarchar(36), %s))", expr)
		return t, t, true
	case "date":
		return as("nvarchar(10)", ", 23")
	case "datetime", "smalldatetime", "datetime2":
		return as("nvarchar(30)", ", 121")
	case "time":
		return as("nvarchar(16)", ", 114")
	case "datetimeoffset":
		// Equal is what is the same moment.
		t := fmt.Sprintf("CONVERT(nvarchar(34), SWITCHOFFSET(%s, '+00:00'), 121)", expr)
		return t, t, true
	case "binary", "varbinary":
		if c.maxLength < 0 {
			return "", "", false
		}
		// 0x01 equals 0x0100: a comparison pads by zeros.
		text = fmt.Sprintf("CONVERT(varchar(%d), %s, 2)", 2*c.maxLength, expr)
		fold = fmt.Sprintf("REPLACE(RTRIM(REPLACE(%s, '0', ' ')), ' ', '0')", text)
		return text, fold, true
	case "char", "varchar", "nchar", "nvarchar":
		if c.maxLength < 0 || strings.Contains(c.collation, "_AI") {
			return "", "", false
		}
		text = fmt.Sprintf("CONVERT(nvarchar(4000), %s)", expr)
		// Blanks at the end count in no comparison.
		fold = fmt.Sprintf("RTRIM(%s)", text)
		if c.caseless() {
			fold = fmt.Sprintf("UPPER(%s)", fold)
		}
		return text, fold, true
	}
	return "", "", false
}

// caseless reports a collation that holds a and A equal.
func (c *column) caseless() bool {
	return c.textual() && !strings.Contains(c.collation, "_CS") && !strings.Contains(c.collation, "_BIN") && !strings.Contains(strings.ToLower(c.collation), "_cs_") && !strings.Contains(strings.ToLower(c.collation), "_bin")
}

// fromKeyText is the SQL expression that reads the text of keyText back; NULL
// where it is no value of the type.
func (c *column) fromKeyText(expr string) string {
	switch c.base {
	case "tinyint", "smallint", "int", "bigint", "bit":
		// The server would take blanks for 0, and 1 with blanks for 1.
		return fmt.Sprintf("CASE WHEN %[1]s COLLATE Latin1_General_100_BIN2 LIKE '%%[^0-9-]%%' OR %[1]s = '' THEN NULL ELSE TRY_CONVERT(%[2]s, %[1]s) END", expr, c.Native)
	case "float", "real":
		return fmt.Sprintf("TRY_CONVERT(%s, NULLIF(%s, ''))", c.Native, expr)
	case "binary", "varbinary":
		return fmt.Sprintf("TRY_CONVERT(%s, CONVERT(varchar(8000), %s), 2)", c.Native, expr)
	case "date":
		return fmt.Sprintf("TRY_CONVERT(date, NULLIF(%s, ''), 23)", expr)
	case "datetime", "smalldatetime", "datetime2", "datetimeoffset":
		return fmt.Sprintf("TRY_CONVERT(%s, NULLIF(%s, ''), 121)", c.Native, expr)
	case "time":
		return fmt.Sprintf("TRY_CONVERT(%s, NULLIF(%s, ''), 114)", c.Native, expr)
	case "char", "varchar":
		// Code page and comparison are the column's, so that its index is sought.
		return fmt.Sprintf("CONVERT(%s, %s COLLATE %s) COLLATE %s", c.typeName(), expr, c.collation, c.collation)
	case "nchar", "nvarchar":
		return fmt.Sprintf("CONVERT(%s, %s) COLLATE %s", c.typeName(), expr, c.collation)
	}
	return fmt.Sprintf("TRY_CONVERT(%s, %s)", c.Native, expr)
}

// typeName is the type without its collation.
func (c *column) typeName() string {
	name, _, _ := strings.Cut(c.Native, " COLLATE ")
	return name
}

// keyWidth is how many characters the column's key text may have.
func (c *column) keyWidth() int {
	switch c.base {
	case "binary", "varbinary":
		return 2 * c.maxLength
	case "char", "varchar":
		return min(c.maxLength, 1700) // an index key has no more bytes
	case "nchar", "nvarchar":
		return min(c.maxLength/2, 850)
	}
	return 41
}

// rowSQL are the expressions over a row alias that a capture's SQL is made of.
type rowSQL struct{ guid, key, concept string }

func (p *plan) row(alias string) rowSQL {
	col := func(name string) string { return alias + "." + ident(name) }
	r := rowSQL{key: "CONVERT(nvarchar(4000), NULL)", concept: "CONVERT(uniqueidentifier, NULL)"}
	switch {
	case p.ConceptColumn != "":
		r.concept = col(p.ConceptColumn)
	case !p.ConceptGUID.IsZero():
		r.concept = "CONVERT(uniqueidentifier, '" + p.ConceptGUID.String() + "')"
	}
	if p.Kind != weir.Plain {
		r.guid = col(p.keyCols[0].Name)
		if p.OldKeyColumn != "" {
			r.key = "CONVERT(nvarchar(4000), " + col(p.OldKeyColumn) + ")"
			if text, _, ok := p.table.column(p.OldKeyColumn).keyText(col(p.OldKeyColumn)); ok {
				r.key = text
			}
		}
		return r
	}
	texts, folds := make([]string, len(p.keyCols)), make([]string, len(p.keyCols))
	for i, c := range p.keyCols {
		texts[i], folds[i], _ = c.keyText(col(c.Name))
	}
	r.key = texts[0]
	fold := folds[0]
	if len(texts) > 1 {
		array := func(parts []string) string {
			quoted := make([]string, len(parts))
			for i, t := range parts {
				if p.keyCols[i].textual() {
					t = "STRING_ESCAPE(" + t + ", 'json')"
				}
				quoted[i] = `N'"' + ` + t + ` + N'"'`
			}
			return "CONVERT(nvarchar(4000), N'[' + " + strings.Join(quoted, " + N',' + ") + " + N']')"
		}
		r.key, fold = array(texts), array(folds)
	}
	if len(p.keyCols) == 1 && p.keyCols[0].integer() {
		// The server compares a uniqueidentifier's bytes 10 to 15 first, then 8 and
		// 9, 6 and 7, 4 and 5, and 0 to 3. The key's bytes, the highest first and
		// its sign bit flipped, stand in the last three of these groups, so that
		// neighbouring keys are neighbours in the queue. The text of the key's bytes
		// as a uniqueidentifier has them in groups of the other order.
		text := fmt.Sprintf("CONVERT(char(36), CONVERT(uniqueidentifier, CONVERT(binary(16), CONVERT(binary(8), CONVERT(bigint, %s) ^ CONVERT(bigint, 0x8000000000000000)))))", col(p.keyCols[0].Name))
		part := func(at, n int) string { return fmt.Sprintf("SUBSTRING(%s, %d, %d)", text, at, n) }
		r.guid = fmt.Sprintf("CONVERT(uniqueidentifier, %s + %s + '-' + %s + '-' + %s + '-%s')", part(15, 4), part(10, 4), part(1, 4), part(5, 4), instanceSuffix(p.Table))
	} else {
		r.guid = fmt.Sprintf("CONVERT(uniqueidentifier, CONVERT(binary(16), HASHBYTES('SHA2_256', N'%s' + %s)))", instanceSeed(p.Table), fold)
	}
	return r
}

// keyValues reads an instance's GUID and key text as values of the key columns,
// K1 and so on; keyMatch compares a table's key with them.
func (p *plan) keyValues(instance string) string {
	if p.Kind != weir.Plain {
		return instance + ".InstanceGUID AS K1"
	}
	var list []string
	for i, c := range p.keyCols {
		text := instance + ".OldPrimaryKey"
		if len(p.keyCols) > 1 {
			text = fmt.Sprintf("CONVERT(nvarchar(4000), JSON_VALUE(%s.OldPrimaryKey, '$[%d]'))", instance, i)
		}
		list = append(list, fmt.Sprintf("%s AS K%d", c.fromKeyText(text), i+1))
	}
	return strings.Join(list, ", ")
}

func (p *plan) keyMatch(table, values string) string {
	var parts []string
	for i, c := range p.keyCols {
		parts = append(parts, fmt.Sprintf("%s.%s = %s.K%d", table, ident(c.Name), values, i+1))
	}
	return strings.Join(parts, " AND ")
}
