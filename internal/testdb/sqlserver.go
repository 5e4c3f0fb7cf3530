package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/microsoft/go-mssqldb" // the driver sqlserver
)

// oldestSQLServer is the first major version of SQL Server that the tests are
// written for: 2019.
const oldestSQLServer = 15

// tds is the server of WEIR_TEST_SQLSERVER_URL, which the first test that asks
// for it looks at.
var tds struct {
	once      sync.Once
	url       string
	product   string // name and version
	babelfish bool
	err       error // why the server there is cannot be used; tests fail
}

// SQLServer returns the URL of a new, empty SQL Server database that is dropped
// at the end of the test, with the sessions that it still has. The server is
// that of WEIR_TEST_SQLSERVER_URL; other tests have databases on it too. The
// test is skipped without it.
//
// Settings are those of ALTER DATABASE ... SET, such as
// "READ_COMMITTED_SNAPSHOT ON". Without any, the database is as the server
// makes it: read committed locks. Babelfish has no settings, and behaves as
// with both kinds of row versions on: see [OnlySQLServer].
func SQLServer(t testing.TB, settings ...string) string {
	t.Helper()
	openSQLServer(t)
	ran(t, "sqlserver", "WEIR_TEST_SQLSERVER_URL, "+tds.product)
	// As with Postgres, the time is for a later run.
	name := fmt.Sprintf("weir_test_%010d_%s", time.Now().Unix(), randomHex())
	if err := createSQLServer(name); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		if err := dropSQLServer(name); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	if !tds.babelfish {
		for _, setting := range settings {
			Exec(t, tds.url, "alter database "+name+" set "+setting)
		}
	}
	databaseURL := withTDSDatabase(tds.url, name)
	if tds.babelfish {
		// It refuses a bulk load whose last row ends where a packet ends. The largest
		// packets have room for all that a test loads.
		databaseURL = withTDSParameter(databaseURL, "packet size", "32767")
	}
	if dir := os.Getenv("WEIR_TEST_TSQL"); dir != "" {
		p := NewProxy(t, databaseURL)
		p.record = dir
		return p.URL()
	}
	return databaseURL
}

// Babelfish tells whether the tests' SQL Server is Babelfish for PostgreSQL,
// which stands in for it where it cannot be had: it ignores table hints and
// lacks some statements. The test is skipped when there is no server.
func Babelfish(t testing.TB) bool {
	t.Helper()
	openSQLServer(t)
	return tds.babelfish
}

// OnlySQLServer skips the test when its server is Babelfish. The summary says
// what was not covered for it: why names what Babelfish lacks, as in "READPAST".
func OnlySQLServer(t testing.TB, why string) {
	t.Helper()
	if Babelfish(t) {
		notCovered(t, "sqlserver", "Babelfish lacks "+why)
	}
}

// openSQLServer skips the test without a server, and fails it with one that
// cannot be used.
func openSQLServer(t testing.TB) {
	t.Helper()
	tds.once.Do(func() {
		if tds.url = os.Getenv("WEIR_TEST_SQLSERVER_URL"); tds.url != "" {
			tds.err = checkSQLServer()
		}
	})
	switch {
	case tds.url == "":
		skip(t, "sqlserver", "WEIR_TEST_SQLSERVER_URL is not set")
	case tds.err != nil:
		t.Fatalf("testdb: %v", tds.err)
	}
}

// checkSQLServer finds out what the server is and whether the tests can use it,
// and drops databases that test binaries killed more than a day ago left on it.
func checkSQLServer() error {
	if u, err := url.Parse(tds.url); err != nil || u.Scheme != "sqlserver" {
		return errors.New("WEIR_TEST_SQLSERVER_URL is no URL such as sqlserver://sa:password@host:1433")
	}
	db, err := sql.Open("sqlserver", tds.url)
	if err != nil {
		return fmt.Errorf("open WEIR_TEST_SQLSERVER_URL: %w", err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var version string
	err = db.QueryRowContext(ctx, `select
		cast(coalesce(serverproperty('BabelfishVersion'), serverproperty('ProductVersion')) as nvarchar(128)),
		case when serverproperty('Babelfish') = 1 then 1 else 0 end`).Scan(&version, &tds.babelfish)
	if err != nil {
		return fmt.Errorf("read the version of WEIR_TEST_SQLSERVER_URL: %w", err)
	}
	tds.product = "SQL Server " + version
	if tds.babelfish {
		tds.product = "Babelfish " + version
		if err := execSQLServer(ctx, tds.url, alone+"exec sp_babelfish_configure 'escape_hatch_rowversion', 'ignore', 'server'"); err != nil {
			return fmt.Errorf("let Babelfish have rowversion columns: %w", err)
		}
	} else if major, _ := strconv.Atoi(number.FindString(version)); major < oldestSQLServer {
		return fmt.Errorf("server of WEIR_TEST_SQLSERVER_URL is %s; the tests need version %d (2019) or later", tds.product, oldestSQLServer)
	}
	// All in one value: there are few.
	var names sql.NullString
	if err := db.QueryRowContext(ctx, "select string_agg(cast(name as nvarchar(max)), ' ') from sys.databases").Scan(&names); err != nil {
		return fmt.Errorf("list databases left behind: %w", err)
	}
	for name := range strings.FieldsSeq(names.String) {
		if isLeftover(name, time.Now()) {
			_ = dropSQLServer(name) // no matter: another test binary may be dropping it
		}
	}
	return nil
}

var testDatabase = regexp.MustCompile(`^weir_test_([0-9]{10})_[0-9a-f]{8}$`)

// isLeftover tells whether a database is that of a test which began more than a
// day ago.
func isLeftover(name string, now time.Time) bool {
	m := testDatabase.FindStringSubmatch(name)
	return m != nil && m[1] < fmt.Sprintf("%010d", now.Add(-24*time.Hour).Unix())
}

// alone makes the session of a batch wait for others that make or drop a
// database of the tests: neither server likes two at once.
const alone = `declare @got int;
	exec @got = sp_getapplock @Resource = N'weir_test', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 60000;
	if @got < 0 throw 50001, N'other tests make and drop databases for too long', 1;
	`

func createSQLServer(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := execSQLServer(ctx, tds.url, alone+"create database "+name); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// dropSQLServer ends the sessions of a database, which would keep it from being
// dropped, and drops it.
func dropSQLServer(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	end := "alter database " + name + " set single_user with rollback immediate;"
	if tds.babelfish {
		end = `declare @kill nvarchar(max) = N'';
			select @kill = @kill + N'kill ' + cast(session_id as nvarchar(10)) + N';'
			from sys.dm_exec_sessions where database_id = db_id('` + name + `');
			exec (@kill);`
	}
	err := execSQLServer(ctx, tds.url, alone+"if db_id('"+name+"') is not null begin "+end+" drop database "+name+" end")
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func execSQLServer(ctx context.Context, databaseURL, statements string) error {
	db, err := sql.Open("sqlserver", databaseURL)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statements)
	return errors.Join(err, db.Close())
}

// withTDSDatabase returns the URL of another database of the same server.
func withTDSDatabase(serverURL, name string) string {
	return withTDSParameter(serverURL, "database", name)
}

func withTDSParameter(serverURL, parameter, value string) string {
	u, err := url.Parse(serverURL)
	if err != nil {
		panic("testdb: " + err.Error()) // checkSQLServer has parsed it
	}
	query := u.Query()
	query.Set(parameter, value)
	u.RawQuery = query.Encode()
	return u.String()
}
