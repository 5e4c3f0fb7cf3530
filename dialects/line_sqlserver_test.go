package dialects_test

import (
	"os"
	"strings"
	"testing"

	_ "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir/internal/testdb"
)

// loadChinookSQLServer runs the script, but for what concerns whole databases,
// batch by batch.
func loadChinookSQLServer(t *testing.T, d *database) {
	t.Helper()
	text, err := os.ReadFile("../testdata/chinook/Chinook_SqlServer.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, found := strings.Cut(strings.ReplaceAll(strings.TrimPrefix(string(text), "\ufeff"), "\r\n", "\n"), "USE [Chinook];\nGO\n")
	if !found {
		t.Fatal("the script does not use its database")
	}
	for _, batch := range strings.Split(tables, "\nGO\n") {
		if strings.TrimSpace(batch) != "" {
			d.exec(t, batch)
		}
	}
}

// TestLine_ChinookSQLServer takes a real database from SQL Server to each engine,
// and from Postgres to SQL Server.
func TestLine_ChinookSQLServer(t *testing.T) {
	from := newDatabase(t, "sqlserver", "dbo")
	from.pascal = true
	loadChinookSQLServer(t, from)
	for i, engine := range []string{"sqlserver", "postgres", "sqlite"} {
		t.Run("sqlserver to "+engine, func(t *testing.T) {
			to := newDatabase(t, engine, "copy")
			to.pascal = true
			to.lower = engine == "postgres" && testdb.Babelfish(t)
			chinookLine(t, from, to, i)
		})
	}
	t.Run("postgres to sqlserver", func(t *testing.T) {
		from := newDatabase(t, "postgres", "public")
		loadChinook(t, from)
		chinookLine(t, from, newDatabase(t, "sqlserver", "copy"), 0)
	})
}
