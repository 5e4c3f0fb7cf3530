// Package testdb gives tests throw-away databases on real engines, and a proxy
// that breaks the connection to them.
//
// A package whose tests use it calls [Run] in its TestMain.
//
// Environment:
//
//	WEIR_TEST_POSTGRES_URL  a PostgreSQL server to use, as a role that may create
//	                        databases; default: one started from local binaries
//	WEIR_TEST_SQLSERVER_URL a SQL Server or Babelfish to use, as a login that may
//	                        create databases; no default
//	WEIR_TEST_TSQL          a directory to which each statement goes that the tests
//	                        send to SQL Server, one a file, for .ci/tsql.js
//	WEIR_TEST_REQUIRE       engines, with commas between, whose absence fails
//	                        a test rather than skips it
//	WEIR_TEST_SUMMARY       a file to which Run adds what it printed, for a
//	                        summary over all packages
package testdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// oldest is the first major version of PostgreSQL that the tests are written for.
const oldest = 15

// callTimeout bounds each database call of this package.
const callTimeout = time.Minute

// shared is the server that all tests of the binary use.
var shared struct {
	sync.Mutex
	asked   bool
	cluster *Cluster // nil when the server is the environment's
	url     string   // of a database to create others from
	missing string   // why there is no server; tests are skipped
	err     error    // why the server there is cannot be used; tests fail
}

// Postgres returns the URL of a new, empty PostgreSQL database that is dropped
// at the end of the test. The server is that of WEIR_TEST_POSTGRES_URL or one
// that the test binary started, where the role is a superuser; other tests have
// databases on it too. The test is skipped when there is neither.
func Postgres(t testing.TB) string {
	t.Helper()
	server := sharedServer(t)
	// The time lets a later run tell what a killed one left behind.
	name := fmt.Sprintf("weir_test_%010d_%s", time.Now().Unix(), randomHex())
	Exec(t, server, "create database "+name)
	t.Cleanup(func() { Exec(t, server, "drop database if exists "+name+" with (force)") })
	return withDatabase(server, name)
}

// SQLite returns the URL of a SQLite database, not yet created, in a directory
// that is removed at the end of the test.
func SQLite(t testing.TB) string {
	t.Helper()
	ran(t, "sqlite", "in process")
	return "sqlite:" + filepath.Join(t.TempDir(), "x.db")
}

// Exec runs SQL, one or more statements, at a PostgreSQL or SQL Server database
// over a connection of its own. Several statements are one transaction on
// PostgreSQL, unless they say otherwise, and one batch on SQL Server. It ends
// the test when one fails.
func Exec(t testing.TB, databaseURL, sql string) {
	t.Helper()
	// Not t.Context: that is done by the time that clean-up runs.
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	exec := execPostgres
	if strings.HasPrefix(databaseURL, "sqlserver:") {
		exec = execSQLServer
	}
	if err := exec(ctx, databaseURL, sql); err != nil {
		t.Fatalf("testdb: exec %.200q: %v", sql, err)
	}
}

func execPostgres(ctx context.Context, databaseURL, sql string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return errors.Join(err, conn.Close(ctx))
}

// sharedServer returns the URL of the server of [Postgres], which the first
// call finds or starts.
func sharedServer(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.asked {
		shared.asked = true
		openShared()
	}
	switch {
	case shared.missing != "":
		skip(t, "postgres", shared.missing)
	case shared.err != nil:
		t.Fatalf("testdb: %v", shared.err)
	}
	where := "WEIR_TEST_POSTGRES_URL"
	if shared.cluster != nil {
		where = "server started from " + shared.cluster.bin
	}
	ran(t, "postgres", where)
	return shared.url
}

func openShared() {
	if shared.url = os.Getenv("WEIR_TEST_POSTGRES_URL"); shared.url != "" {
		shared.err = checkServer(shared.url)
		return
	}
	bin, missing := serverBin()
	if missing != "" {
		shared.missing = missing + "; install the package postgresql or set WEIR_TEST_POSTGRES_URL"
		return
	}
	if shared.cluster, shared.err = startCluster(bin, nil); shared.err == nil {
		shared.url = shared.cluster.URL()
	}
}

func closeShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		return nil
	}
	return shared.cluster.remove()
}

// checkServer tells whether the tests can use the server, and drops databases
// that test binaries killed more than a day ago left on it.
func checkServer(serverURL string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return fmt.Errorf("connect to WEIR_TEST_POSTGRES_URL: %w", err)
	}
	defer conn.Close(ctx)
	var version int
	if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		return fmt.Errorf("read the version of WEIR_TEST_POSTGRES_URL: %w", err)
	}
	if version < oldest*10000 {
		return fmt.Errorf("server of WEIR_TEST_POSTGRES_URL is PostgreSQL %d; the tests need %d or later", version/10000, oldest)
	}
	rows, err := conn.Query(ctx, `select datname from pg_database
		where datname ~ '^weir_test_[0-9]{10}_[0-9a-f]{8}$'
		  and to_timestamp(substr(datname, 11, 10)::bigint) < now() - interval '1 day'`)
	if err != nil {
		return fmt.Errorf("list databases left behind: %w", err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list databases left behind: %w", err)
	}
	for _, name := range left {
		// No matter if it fails: another test binary may be dropping it.
		_, _ = conn.Exec(ctx, "drop database if exists "+name+" with (force)")
	}
	return nil
}

// withDatabase returns the URL of another database of the same server.
func withDatabase(serverURL, name string) string {
	u, err := url.Parse(serverURL)
	if err != nil {
		panic("testdb: " + err.Error()) // pgx has connected by it before
	}
	u.Path = "/" + name
	return u.String()
}

func randomHex() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
