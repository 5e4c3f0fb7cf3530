package dialects_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/dialects/dialecttest"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/dialects/sqlite"
	"github.com/weir-cdc/weir/internal/testdb"
)

func opened(e dialecttest.Engine) dialecttest.Engine {
	e.OpenSource = func(ctx context.Context, url string) (dialecttest.Source, error) {
		return dialects.OpenSource(ctx, url, dialects.SourceOptions{})
	}
	e.OpenTarget = dialects.OpenTarget
	return e
}

// The text of a value at PostgreSQL is the type's own output, blanks kept. The
// session's zone is not UTC, as a user's may be.
var onPostgres = opened(dialecttest.Engine{
	Name: "postgres", NewDatabase: testdb.Postgres, Schema: "public",
	Connect: func(url string) (*sql.DB, error) {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		cfg.RuntimeParams["TimeZone"] = "Asia/Kolkata"
		return stdlib.OpenDB(*cfg), nil
	},
	AsText: func(column string) string {
		return "case when " + column + " is null then '<null>' else format('%s', " + column + ") end"
	},
})

// The text of a value at SQLite is an SQL literal.
var onSQLite = opened(dialecttest.Engine{
	Name: "sqlite",
	NewDatabase: func(t testing.TB) string {
		path := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return "sqlite:" + path
	},
	Connect: func(url string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(10000)")
	},
	AsText: func(column string) string {
		return "case when " + column + " is null then '<null>' else quote(" + column + ") end"
	},
})

func TestValues_PostgresToPostgres(t *testing.T) {
	for _, enc := range []weir.Encoding{postgres.Encoding, weir.EncodingText} {
		t.Run(string(enc), func(t *testing.T) {
			t.Parallel()
			var values []dialecttest.Value
			for _, v := range postgresValues {
				// A type that is no kind of its own arrives as its neutral text, whose
				// times are in UTC.
				inUTC := enc == weir.EncodingText && (v.typ == "timestamptz[]" || v.typ == "tstzrange")
				values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Neutral: v.neutral, Want: v.neutral, Same: !inUTC})
			}
			dialecttest.ExerciseValues(t, onPostgres, onPostgres, enc, postgresTypes, values)
		})
	}
}

// TestValues_PostgresByHand brings values into columns that somebody made.
func TestValues_PostgresByHand(t *testing.T) {
	for _, enc := range []weir.Encoding{postgres.Encoding, weir.EncodingText} {
		t.Run(string(enc), func(t *testing.T) {
			t.Parallel()
			var values []dialecttest.Value
			for _, v := range byHand {
				neutral := v.neutral
				if neutral == "" {
					neutral = v.want
				}
				values = append(values, dialecttest.Value{Type: v.typ, Into: v.into, Literal: v.literal, Neutral: neutral, Want: v.want, Refused: v.want == refused})
			}
			dialecttest.ExerciseValues(t, onPostgres, onPostgres, enc, postgresTypes, values)
		})
	}
}

func TestValues_PostgresToSQLite(t *testing.T) {
	t.Parallel()
	var values []dialecttest.Value
	for _, v := range postgresValues {
		want := v.sqlite
		switch want {
		case "":
			want = "'" + strings.ReplaceAll(v.neutral, "'", "''") + "'"
			if v.neutral == "<null>" {
				want = v.neutral
			}
		case "same":
			want = v.neutral
		}
		values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Neutral: v.neutral, Want: want, Refused: want == refused})
	}
	dialecttest.ExerciseValues(t, onPostgres, onSQLite, weir.EncodingText, postgresTypes, values)
}

func TestValues_SQLiteToSQLite(t *testing.T) {
	t.Parallel()
	var values []dialecttest.Value
	for _, typ := range sqliteTypes {
		for _, literal := range sqliteLiterals {
			values = append(values, dialecttest.Value{Type: typ, Literal: literal, Same: true})
		}
	}
	dialecttest.ExerciseValues(t, onSQLite, onSQLite, sqlite.Encoding, nil, values)
}

func TestValues_SQLiteToPostgres(t *testing.T) {
	t.Parallel()
	var values []dialecttest.Value
	for _, v := range sqliteValues {
		want := v.postgres
		if want == "" {
			want = v.neutral
		}
		values = append(values, dialecttest.Value{Type: v.typ, Literal: v.literal, Neutral: v.neutral, Want: want, Refused: want == refused})
	}
	dialecttest.ExerciseValues(t, onSQLite, onPostgres, weir.EncodingText, nil, values)
}

// refused stands for what the other engine cannot hold.
const refused = "refused"

// postgresTypes make the types that postgresValues name.
var postgresTypes = []string{
	"create type mood as enum ('sad', 'it''s \"ok\"', 'ü')",
	"create type pair as (a integer, b text)",
	"create domain positive as integer check (value > 0)",
	"create domain code as varchar(5)",
	"create domain codes as code",
	"create type span as range (subtype = float8)",
}
