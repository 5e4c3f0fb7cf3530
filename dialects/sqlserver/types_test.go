package sqlserver

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/doctest"
)

// documented reads a type as docs/types.md has it, as the catalog would show it.
func documented(name string) *column {
	m := regexp.MustCompile(`^(\w+)(?:\((\w+)(?:,(\d+))?\))?$`).FindStringSubmatch(name)
	c := &column{base: m[1]}
	var n int
	if m[2] == "max" {
		n = -1
	} else if _, err := fmt.Sscan(m[2], &n); err == nil && strings.HasPrefix(m[1], "n") && strings.Contains(m[1], "char") {
		n *= 2
	}
	c.maxLength, c.precision, c.scale = n, n, n
	if m[3] != "" {
		_, _ = fmt.Sscan(m[3], &c.scale)
	}
	c.describe()
	return c
}

// TestTypes_Documented: what docs/types.md says of the types of SQL Server is
// what the code does, those included that a test's server may lack.
func TestTypes_Documented(t *testing.T) {
	alike := map[string]map[string]string{}
	for _, row := range doctest.Table(t, "../../docs/types.md", "SQL Server") {
		name := row["SQL Server"]
		c := documented(name)
		if got := createType(c.Column, Encoding); got != row["in SQL Server"] {
			t.Errorf("%s becomes %s in SQL Server; docs/types.md says %s", name, got, row["in SQL Server"])
		}
		if c.Kind == weir.Other {
			t.Errorf("%s has no kind", name)
		}
		// Other engines go by the kind.
		other, known := alike[string(c.Kind)]
		if known && (other["in PostgreSQL"] != row["in PostgreSQL"] || other["in SQLite"] != row["in SQLite"]) {
			t.Errorf("%s and %s are both %s, and docs/types.md has different types for them", name, other["SQL Server"], c.Kind)
		}
		alike[string(c.Kind)] = row
	}
	for name, kind := range map[string]weir.Kind{"hierarchyid": weir.Text, "geometry": weir.Bytes, "geography": weir.Bytes, "sql_variant": weir.Any, "rowversion": weir.Bytes, "xml": weir.XML} {
		if got := documented(name).Kind; got != kind {
			t.Errorf("%s is %s, want %s", name, got, kind)
		}
	}
	if got := createType(documented("of_an_assembly").Column, Encoding); got != "varbinary(max)" {
		t.Errorf("a type of an assembly becomes %s", got)
	}
}

// TestTypes_FromOthers: the types of other engines, by their kinds.
func TestTypes_FromOthers(t *testing.T) {
	kinds := map[string]weir.Column{
		"boolean": {Kind: weir.Bool}, "smallint": {Kind: weir.Int16}, "integer": {Kind: weir.Int32}, "bigint": {Kind: weir.Int64},
		"real": {Kind: weir.Float32}, "double precision": {Kind: weir.Float64}, "numeric": {Kind: weir.Decimal}, "numeric(10,2)": {Kind: weir.Decimal, Precision: 10, Scale: 2},
		"text": {Kind: weir.Text}, "varchar(50)": {Kind: weir.Text, Length: 50}, "char(5)": {Kind: weir.Text, Length: 5},
		"bytea": {Kind: weir.Bytes}, "uuid": {Kind: weir.UUID}, "date": {Kind: weir.Date}, "time": {Kind: weir.Time, Scale: 6}, "timetz": {Kind: weir.TimeTZ},
		"timestamp": {Kind: weir.Timestamp, Scale: 6}, "timestamptz": {Kind: weir.TimestampTZ, Scale: 6}, "json": {Kind: weir.JSON}, "jsonb": {Kind: weir.JSON}, "xml": {Kind: weir.XML},
	}
	seen := 0
	for _, row := range doctest.Table(t, "../../docs/types.md", "PostgreSQL") {
		for _, name := range strings.Split(row["PostgreSQL"], ", ") {
			c, known := kinds[name]
			if known {
				seen++
			} else {
				c = weir.Column{Kind: weir.Other}
			}
			if got := createType(c, weir.EncodingText); got != row["in SQL Server"] {
				t.Errorf("%s becomes %s; docs/types.md says %s", name, got, row["in SQL Server"])
			}
		}
	}
	if seen != len(kinds) {
		t.Errorf("docs/types.md has %d of %d types", seen, len(kinds))
	}
}
