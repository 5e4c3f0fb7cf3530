package dialects_test

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	_ "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/dialecttest"
	"github.com/weir-cdc/weir/dialects/sqlserver"
	"github.com/weir-cdc/weir/internal/testdb"
)

// The text of a value at SQL Server is what database/sql makes of the driver's
// value: times are RFC 3339, bytes (and a uniqueidentifier's, as the server
// stores them) are themselves.
var onSQLServer = opened(dialecttest.Engine{
	Name:        "sqlserver",
	NewDatabase: func(t testing.TB) string { return testdb.SQLServer(t, "ALLOW_SNAPSHOT_ISOLATION ON") },
	Schema:      "dbo",
	Connect:     func(url string) (*sql.DB, error) { return sql.Open("sqlserver", url) },
	AsText:      func(column string) string { return column },
})

// The lines of a server that has no Babelfish's limits come only there.
func covered(t *testing.T, values []dialecttest.Value, onlySQLServer func(v dialecttest.Value) bool) []dialecttest.Value {
	t.Helper()
	if !testdb.Babelfish(t) {
		return values
	}
	rest := slices.DeleteFunc(slices.Clone(values), onlySQLServer)
	if n := len(values) - len(rest); n > 0 {
		t.Run("Rest", func(t *testing.T) { testdb.OnlySQLServer(t, fmt.Sprintf("the types of %d values", n)) })
	}
	return rest
}

// In weir.EncodingText the values come and go with the other engines, below.
func TestValues_SQLServerToSQLServer(t *testing.T) {
	var values []dialecttest.Value
	for _, v := range sqlserverValues {
		// A variant becomes its text.
		values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Same: v.typ != "sql_variant", Want: v.neutral})
	}
	for _, v := range [][2]string{{"rowversion", "default"}, {"geometry", "geometry::Point(1, 2, 0)"}, {"geography", "geography::Point(1, 2, 4326)"}} {
		values = append(values, dialecttest.Value{Type: v[0], Literal: v[1], Same: true})
	}
	dialecttest.ExerciseValues(t, onSQLServer, onSQLServer, sqlserver.Encoding, sqlserverTypes, covered(t, values, onlySQLServerType))
}

func TestValues_SQLServerToPostgres(t *testing.T) {
	var values []dialecttest.Value
	for _, v := range sqlserverValues {
		want := v.postgres
		if want == "" {
			want = v.neutral
		}
		values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Neutral: v.neutral, Want: want, Refused: want == refused})
	}
	dialecttest.ExerciseValues(t, onSQLServer, onPostgres, weir.EncodingText, sqlserverTypes, covered(t, values, onlySQLServerType))
}

func TestValues_SQLServerToSQLite(t *testing.T) {
	var values []dialecttest.Value
	for _, v := range sqlserverValues {
		want := v.sqlite
		switch {
		case want == "" && v.neutral == "<null>", want == "same":
			want = v.neutral
		case want == "":
			want = "'" + strings.ReplaceAll(v.neutral, "'", "''") + "'"
		}
		values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Neutral: v.neutral, Want: want, Refused: want == refused})
	}
	dialecttest.ExerciseValues(t, onSQLServer, onSQLite, weir.EncodingText, sqlserverTypes, covered(t, values, onlySQLServerType))
}

func TestValues_PostgresToSQLServer(t *testing.T) {
	var values []dialecttest.Value
	for _, v := range postgresValues {
		want := atSQLServer(v.typ, v.neutral)
		if other, ok := postgresAtSQLServer[v.typ+" "+v.literal]; ok {
			want = other
		}
		values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Neutral: v.neutral, Want: want, Refused: want == refused})
	}
	dialecttest.ExerciseValues(t, onPostgres, onSQLServer, weir.EncodingText, postgresTypes, covered(t, values, func(dialecttest.Value) bool { return false }))
}

// TestValues_SQLServerByHand brings values of PostgreSQL into columns that
// somebody made.
func TestValues_SQLServerByHand(t *testing.T) {
	var values []dialecttest.Value
	for _, v := range intoSQLServer {
		values = append(values, dialecttest.Value{Type: v.typ, Into: v.into, Literal: v.literal, Neutral: v.neutral, Want: v.want, Refused: v.want == refused})
	}
	dialecttest.ExerciseValues(t, onPostgres, onSQLServer, weir.EncodingText, nil, covered(t, values, func(v dialecttest.Value) bool {
		return v.Literal == "'ł'" // it converts between code pages as it stores
	}))
}

func TestValues_SQLiteToSQLServer(t *testing.T) {
	var values []dialecttest.Value
	for _, v := range sqliteValues {
		want := atSQLServer(v.typ, v.neutral)
		if v.neutral == "" && v.postgres == refused {
			want = refused // at the source
		}
		if other, ok := sqliteAtSQLServer[v.typ+" "+v.literal]; ok {
			want = other
		}
		values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Neutral: v.neutral, Want: want, Refused: want == refused})
	}
	dialecttest.ExerciseValues(t, onSQLite, onSQLServer, weir.EncodingText, nil, covered(t, values, func(v dialecttest.Value) bool {
		// It has six digits of a second, and no U+0000.
		return strings.Contains(v.Literal, ".1234567") || strings.Contains(v.Neutral, "\x00") && v.Type != "blob"
	}))
}

// atSQLServer is what the neutral text of a value becomes in the column that a
// SQL Server target makes for the type.
func atSQLServer(typ, neutral string) string {
	if neutral == "<null>" || strings.HasSuffix(typ, "[]") {
		return neutral
	}
	switch typ, _, _ = strings.Cut(typ, "("); typ {
	case "numeric", "decimal", "decimal_text":
		whole, fraction, _ := strings.Cut(neutral, ".")
		if len(whole) > 20 || len(fraction) > 18 || strings.ContainsAny(whole, "NI") {
			return refused
		}
		return whole + "." + fraction + strings.Repeat("0", 18-len(fraction))
	case "real", "double precision":
		if strings.ContainsAny(neutral, "NI") {
			return refused
		}
	case "uuid":
		b, err := hex.DecodeString(strings.ReplaceAll(neutral, "-", ""))
		if err != nil || len(b) != 16 {
			return refused
		}
		slices.Reverse(b[0:4])
		slices.Reverse(b[4:6])
		slices.Reverse(b[6:8])
		return string(b)
	case "date", "timestamp", "datetime", "timestamptz", "time":
		date, clock, _ := strings.Cut(strings.TrimSuffix(neutral, "+00"), " ")
		if typ == "time" {
			date, clock = "0001-01-01", neutral
		}
		if clock == "" {
			clock = "00:00:00"
		}
		if len(date) != len("2006-01-02") || strings.Contains(clock, "BC") || strings.HasPrefix(clock, "24") || strings.Contains(clock, ":60") || date == "-infinity" {
			return refused
		}
		if strings.Contains(clock, ".") {
			clock = strings.TrimRight(clock, "0")
		}
		return date + "T" + clock + "Z"
	}
	return neutral
}
