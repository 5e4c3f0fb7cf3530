package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	_ "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/dialecttest"
	"github.com/weir-cdc/weir/dialects/sqlserver"
	"github.com/weir-cdc/weir/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

func TestConformance(t *testing.T) { dialecttest.Exercise(t, engine()) }

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
		Connect: func(url string) (*sql.DB, error) { return sql.Open("sqlserver", url) },
		Breakable: func(t testing.TB, url string) (string, func()) {
			p := testdb.NewProxy(t, url)
			return p.URL(), func() {
				p.Refuse()
				p.Cut()
			}
		},
		Schema: "dbo",
		Int:    "int", BigInt: "bigint", Text: "nvarchar(max)", KeyText: "varchar(200) collate Latin1_General_100_BIN2", GUID: "uniqueidentifier", Bytes: "varbinary(100)",
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
		Tamper:       func(weir.Object) [][]string { return nil },
		InboxLevels:  []sql.IsolationLevel{sql.LevelSnapshot},
		FoldedNames:  true,
		AlterKey:     true,
		NoDeferrable: true,
	}
}

func literal(s string) string { return "N'" + strings.ReplaceAll(s, "'", "''") + "'" }
