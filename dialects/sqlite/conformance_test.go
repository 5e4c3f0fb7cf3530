package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/dialecttest"
	"github.com/weir-cdc/weir/dialects/sqlite"
)

func TestConformance(t *testing.T) { dialecttest.Exercise(t, engine()) }

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func engine() dialecttest.Engine {
	return dialecttest.Engine{
		Name: "sqlite",
		NewDatabase: func(t testing.TB) string {
			path := filepath.Join(t.TempDir(), "weir.db")
			db, err := connect("sqlite:" + path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("pragma user_version = 1"); err != nil { // makes the file
				t.Fatal(err)
			}
			return "sqlite:" + path
		},
		OpenSource: func(ctx context.Context, url string) (dialecttest.Source, error) {
			s, err := sqlite.OpenSource(ctx, url)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		OpenTarget: func(ctx context.Context, url string, opts weir.TargetOptions) (weir.Target, error) {
			return sqlite.OpenTarget(ctx, url, opts)
		},
		Connect: connect,
		Breakable: func(t testing.TB, url string) (string, func()) {
			link := filepath.Join(t.TempDir(), "link")
			path := strings.TrimPrefix(url, "sqlite:")
			if err := os.Symlink(filepath.Dir(path), link); err != nil {
				t.Fatal(err)
			}
			return "sqlite:" + filepath.Join(link, filepath.Base(path)), func() {
				if err := os.Remove(link); err != nil {
					t.Error(err)
				}
			}
		},
		Int: "integer", BigInt: "bigint", Text: "text", KeyText: "text", GUID: "text", Bytes: "blob",
		Literal:             quote,
		AddColumn:           "alter table %s add column %s",
		Savepoint:           "savepoint %s",
		RollbackToSavepoint: "rollback to savepoint %s",
		Tag: func(instance, concept weir.GUID, changeType, oldKey string) string {
			return fmt.Sprintf("insert into weir_gi_instance_changed (instance_guid, concept_guid, change_type, old_primary_key) values ('%s', '%s', %s, %s)", instance, concept, quote(changeType), quote(oldKey))
		},
		InsertQueued: func(instance, concept weir.GUID, changeType, oldKey string) string {
			return fmt.Sprintf("insert into weir_instance_changes (instance_guid, change_type, changed_on, concept_guid, pull_guid, old_primary_key) values ('%s', '%s', cast((julianday('now') - 2440587.5) * 86400000 as integer) * 1000, '%s', null, %s)",
				instance, changeType, concept, quote(oldKey))
		},
		Now:         "strftime('%Y-%m-%d %H:%M:%f000+00', 'now')",
		AsText:      func(column string) string { return "quote(" + column + ")" },
		RenameTable: "alter table %s rename to %s",
		Tamper:      tamper,
		Unkeyable: [][]string{
			{"create table badkey (k text collate nocase primary key)"},
			{"create table badkey (k text collate rtrim primary key) without rowid"},
			{"create table badkey (k primary key)"},
			{"create table badkey (k integer unique)"},
			{"create table badkey (k integer not null)", "create unique index u on badkey (k) where k > 0"},
			{"create table badkey (k integer not null)", "create unique index u on badkey (k + 1)"},
		},
		SingleWriter: true,
		FoldedNames:  true,
		KeysFixed:    true,
	}
}

func connect(url string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(ON)")
}

func tamper(o weir.Object) [][]string {
	switch name := `"` + strings.ReplaceAll(o.Name, `"`, `""`) + `"`; o.Kind {
	case weir.Trigger:
		return [][]string{
			{"drop trigger " + name},
			{"drop trigger " + name, "create trigger " + name + " after insert on \"" + o.Table.Name + "\" begin select 1; end"},
		}
	case weir.Registration:
		return [][]string{
			{"update weir_captures set tagging = case tagging when 'deferred' then 'at once' else 'deferred' end where capture_id = " + o.Name},
			{"update weir_captures set key_types = '[\"other\"]' where capture_id = " + o.Name},
			{"delete from weir_capture_queues where capture_id = " + o.Name},
			{"delete from weir_captures where capture_id = " + o.Name},
		}
	case weir.QueueTable, weir.Function:
	}
	return nil
}
