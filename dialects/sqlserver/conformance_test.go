package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/dialecttest"
	"github.com/weir-cdc/weir/dialects/sqlserver"
	"github.com/weir-cdc/weir/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

func TestConformance(t *testing.T) {
	e := engine()
	if testdb.Babelfish(t) {
		babelfish(&e)
	}
	dialecttest.Exercise(t, e)
}

// babelfish leaves out what Babelfish cannot do. docs/sqlserver-tests.md says by
// what the T-SQL is right on SQL Server.
func babelfish(e *dialecttest.Engine) {
	e.KeysFixed = true // it checks a key row by row
	e.Named = func(name string) bool {
		return name == strings.ToLower(name) && !strings.ContainsAny(name, `[]"`) && !strings.ContainsFunc(name, func(r rune) bool { return r > 255 })
	}
	const afterDrop = "triggers that fire after a column was dropped"
	const uniques = "unique keys that are checked at a statement's end"
	lacks := map[string]string{
		"Claim/LockedRows": "READPAST", "Finish/LockedRows": "READPAST", "Finish/SettledIsNotReleased": "READPAST", "Fold/BusyRows": "READPAST",
		"Read/ColumnAdded": afterDrop, "Target/ColumnDropped": afterDrop,
		"Key/Order":      "SQL Server's order of uniqueidentifier",
		"Isolate/Unique": uniques, "Target/UniqueExchange": uniques, "Target/UniqueReferenced": uniques, "Target/ExtraColumnsExchange": uniques,
		"Target/SoftDeleteOfSetsUnique": uniques, "Target/Generated": uniques,
	}
	e.Before = func(t *testing.T, test string) {
		if why := lacks[test]; why != "" {
			testdb.OnlySQLServer(t, why)
		}
	}
}

func engine() dialecttest.Engine {
	return dialecttest.Engine{
		Name:        "sqlserver",
		NewDatabase: func(t testing.TB) string { return testdb.SQLServer(t, "ALLOW_SNAPSHOT_ISOLATION ON") },
		OpenSource: func(ctx context.Context, url string) (dialecttest.Source, error) {
			s, err := sqlserver.OpenSource(ctx, url, "")
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		OpenTarget: func(ctx context.Context, url string, opts weir.TargetOptions) (weir.Target, error) {
			return sqlserver.OpenTarget(ctx, url, opts)
		},
		Connect: connect,
		Breakable: func(t testing.TB, url string) (string, func()) {
			p := testdb.NewProxy(t, url)
			return p.URL(), func() {
				p.Refuse()
				p.Cut()
			}
		},
		Schema: "dbo",
		Int:    "int", BigInt: "bigint", Text: "nvarchar(max)", KeyText: "nvarchar(400) collate Latin1_General_100_BIN2", GUID: "uniqueidentifier", Bytes: "varbinary(100)",
		Literal:             literal,
		AddColumn:           "alter table %s add %s",
		Savepoint:           "save transaction %s",
		RollbackToSavepoint: "rollback transaction %s",
		Tag: func(instance, concept weir.GUID, changeType, oldKey string) string {
			return fmt.Sprintf("exec dbo.GI_InstanceChanged '%s', '%s', %s, %s", instance, concept, literal(changeType), literal(oldKey))
		},
		InsertQueued: func(instance, concept weir.GUID, changeType, oldKey string) string {
			return fmt.Sprintf("insert into dbo.InstanceChanges (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, PullGUID, OldPrimaryKey) values ('%s', %s, sysutcdatetime(), '%s', null, %s)",
				instance, literal(changeType), concept, literal(oldKey))
		},
		Now: "todatetimeoffset(sysutcdatetime(), 0)",
		AsText: func(column string) string {
			return "case when " + column + " is null then null else '<' + convert(nvarchar(max), " + column + ") + '>' end"
		},
		RenameTable:  "exec sp_rename '%s', '%s', 'OBJECT'",
		Tamper:       tamper,
		InboxLevels:  []sql.IsolationLevel{sql.LevelSnapshot},
		FoldedNames:  true,
		AlterKey:     true,
		NoDeferrable: true,
		OneNull:      true,
	}
}

func literal(s string) string { return "N'" + strings.ReplaceAll(s, "'", "''") + "'" }

// connect opens a pool whose connections begin at READ COMMITTED. SQL Server
// resets the level of a pooled connection by itself; Babelfish does not.
func connect(url string) (*sql.DB, error) {
	c, err := mssql.NewConnector(url)
	if err != nil {
		return nil, err
	}
	c.SessionInitSQL = "set transaction isolation level read committed"
	return sql.OpenDB(c), nil
}

// tamper changes what weir installed as somebody might by hand.
func tamper(o weir.Object) [][]string {
	table := fmt.Sprintf("[%s].[%s]", o.Table.Schema, o.Table.Name)
	trigger := fmt.Sprintf("[%s].[%s]", o.Table.Schema, o.Name)
	switch o.Kind {
	case weir.Trigger:
		return [][]string{
			{fmt.Sprintf("alter table %s disable trigger [%s]", table, o.Name)},
			{"drop trigger " + trigger, fmt.Sprintf("create trigger %s on %s after insert as return", trigger, table)},
		}
	case weir.Function:
		return [][]string{
			{"drop procedure dbo.[" + o.Name + "]"},
			{"drop procedure dbo.[" + o.Name + "]", "create procedure dbo.[" + o.Name + "] as return 0"},
		}
	case weir.Registration:
		return [][]string{
			{"delete from dbo.GI_Captures where CaptureID = " + o.Name},
			{"update dbo.GI_Captures set TableID = 1 where CaptureID = " + o.Name},
			{"delete from dbo.GI_CaptureQueues where CaptureID = " + o.Name},
		}
	}
	return nil
}
