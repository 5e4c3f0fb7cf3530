package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/dialecttest"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

func TestConformance(t *testing.T) { dialecttest.Exercise(t, engine()) }

func engine() dialecttest.Engine {
	return dialecttest.Engine{
		Name:        "postgres",
		NewDatabase: testdb.Postgres,
		OpenSource: func(ctx context.Context, url string) (dialecttest.Source, error) {
			s, err := postgres.OpenSource(ctx, url, "")
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		OpenTarget: func(ctx context.Context, url string, opts weir.TargetOptions) (weir.Target, error) {
			return postgres.OpenTarget(ctx, url, opts)
		},
		Connect: connect,
		Breakable: func(t testing.TB, url string) (string, func()) {
			p := testdb.NewProxy(t, url)
			return p.URL(), func() {
				p.Refuse()
				p.Cut()
			}
		},
		Schema: "public",
		Int:    "integer", BigInt: "bigint", Text: "text", KeyText: "text", GUID: "uuid", Bytes: "bytea",
		Literal:             func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" },
		AddColumn:           "alter table %s add column %s",
		Savepoint:           "savepoint %s",
		RollbackToSavepoint: "rollback to savepoint %s",
		Tag: func(instance, concept weir.GUID, changeType, oldKey string) string {
			return fmt.Sprintf("select weir.gi_instance_changed('%s', '%s', '%s', '%s')", instance, concept, changeType, strings.ReplaceAll(oldKey, "'", "''"))
		},
		InsertQueued: func(instance, concept weir.GUID, changeType, oldKey string) string {
			return fmt.Sprintf("insert into weir.instance_changes (instance_guid, change_type, changed_on, concept_guid, pull_guid, old_primary_key) values ('%s', '%s', now(), '%s', null, '%s')",
				instance, changeType, concept, strings.ReplaceAll(oldKey, "'", "''"))
		},
		Now:         "clock_timestamp()",
		AsText:      func(column string) string { return "format('<%s>', " + column + ")" },
		RenameTable: "alter table %s rename to %s",
		Tamper:      tamper,
		Unkeyable:   unkeyable,
		InboxLevels: []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable},
		KeySwaps:    "deferrable initially immediate",
		AlterKey:    true,
		Truncate:    true,
	}
}

// connect opens a user's sessions: simple protocol, so that several statements
// may be one string and tables may change under them.
func connect(url string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return stdlib.OpenDB(*cfg), nil
}

func tamper(o weir.Object) [][]string {
	table := pgx.Identifier{o.Table.Schema, o.Table.Name}.Sanitize()
	switch o.Kind {
	case weir.Trigger:
		name := pgx.Identifier{o.Name}.Sanitize()
		return [][]string{
			{"alter table " + table + " disable trigger " + name},
			{"alter table " + table + " enable replica trigger " + name},
			{"alter table " + table + " enable always trigger " + name},
			{"drop trigger " + name + " on " + table,
				"create function public.nothing() returns trigger language plpgsql as 'begin return null; end'",
				"create trigger " + name + " after insert on " + table + " for each statement execute function public.nothing()",
				// The trigger that is there now is not weir's; the name is in the way.
				"drop trigger " + name + " on " + table, "drop function public.nothing()"},
		}
	case weir.Function:
		signature, returns, body := "()", "trigger", "begin return null; end"
		language := "plpgsql"
		if strings.HasSuffix(o.Name, "_present") {
			signature, returns, language, body = "(i_guids uuid[], i_keys text[])", "uuid[]", "sql", "select i_guids"
		}
		name := pgx.Identifier{"weir", o.Name}.Sanitize()
		ways := [][]string{
			{"alter function " + name + " security invoker"},
			{"alter function " + name + " owner to pg_monitor"},
			{"grant execute on function " + name + " to public"},
			{"alter function " + name + " set search_path = public"},
			{"alter function " + name + " reset search_path"},
			{fmt.Sprintf("create or replace function %s%s returns %s language %s security definer set search_path = pg_catalog, pg_temp as '%s'", name, signature, returns, language, body)},
		}
		return ways
	case weir.Registration:
		return [][]string{
			{"update weir.captures set table_oid = 1 where capture_id = " + o.Name},
			{"update weir.captures set tagging = case tagging when 'deferred' then 'at once' else 'deferred' end where capture_id = " + o.Name},
			{"delete from weir.capture_queues where capture_id = " + o.Name},
			{"delete from weir.captures where capture_id = " + o.Name},
		}
	case weir.QueueTable:
	}
	return nil
}

// unkeyable are tables whose key holds equal values with different texts, or
// has no lossless text.
var unkeyable = [][]string{
	{"create table badkey (k interval primary key)"},
	{"create table badkey (k jsonb primary key)"},
	{"create table badkey (k timetz primary key)"},
	{"create table badkey (k tsvector primary key)"},
	{"create table badkey (k numeric[] primary key)"},
	{"create table badkey (k numrange primary key)"},
	{"create type pair as (a numeric, b text)", "create table badkey (k pair primary key)"},
	{"create collation nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)", "create table badkey (k text collate nocase primary key)"},
	{"create domain span as interval", "create table badkey (a integer, k span, primary key (a, k))"},
	{"create table badkey (k integer unique)"},
	{"create table badkey (k integer not null)", "create unique index on badkey (k) where k > 0"},
	{"create table badkey (k integer not null)", "create unique index on badkey ((k + 1))"},
}
