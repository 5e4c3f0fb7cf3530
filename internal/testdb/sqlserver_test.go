package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// queryTDS returns the one value of the one row of a query.
func queryTDS[T any](t *testing.T, databaseURL, query string, args ...any) (value T) {
	t.Helper()
	if err := connectTDS(t, databaseURL).QueryRowContext(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func connectTDS(t *testing.T, databaseURL string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlserver", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestSQLServer(t *testing.T) {
	var first string
	t.Run("Database", func(t *testing.T) {
		first = SQLServer(t)
		Exec(t, first, "create table t (a nvarchar(9)); insert into t values (N'x'), (N'ÿ')")
		if n := queryTDS[int](t, first, "select count(*) from t where a in (N'x', N'ÿ')"); n != 2 {
			t.Errorf("got %d rows, want 2", n)
		}
		second := SQLServer(t)
		if second == first {
			t.Error("two calls gave one database")
		}
		if n := queryTDS[int](t, second, "select count(*) from sys.tables"); n != 0 {
			t.Errorf("a new database holds %d tables", n)
		}
	})
	if first == "" {
		t.SkipNow() // the subtest said why
	}
	if hasDatabase(t, databaseName(t, first)) {
		t.Error("a database outlived its test")
	}
}

// TestSQLServer_InUse leaves a session with a lock in the database, which keeps
// it from being dropped.
func TestSQLServer_InUse(t *testing.T) {
	Babelfish(t) // skips without a server
	var name string
	var left *sql.Conn
	t.Run("Database", func(inner *testing.T) {
		url := SQLServer(inner)
		name = databaseName(inner, url)
		left = connectTDS(t, url) // until the outer test's end
		if _, err := left.ExecContext(t.Context(), "create table t (a int); begin transaction; insert into t values (1)"); err != nil {
			inner.Fatal(err)
		}
	})
	if left == nil {
		t.FailNow() // the subtest said why
	}
	if hasDatabase(t, name) {
		t.Error("a database with a session outlived its test")
	}
	if err := left.PingContext(t.Context()); err == nil {
		t.Error("the session outlived its database")
	}
}

func TestSQLServer_Settings(t *testing.T) {
	OnlySQLServer(t, "ALTER DATABASE")
	for _, on := range []bool{true, false} {
		word := map[bool]string{true: "on", false: "off"}[on]
		url := SQLServer(t, "read_committed_snapshot "+word, "allow_snapshot_isolation "+word)
		const state = "select cast(%s as bit) from sys.databases where database_id = db_id()"
		for _, column := range []string{"is_read_committed_snapshot_on", "snapshot_isolation_state"} {
			if got := queryTDS[bool](t, url, fmt.Sprintf(state, column)); got != on {
				t.Errorf("%s is %t, want %t", column, got, on)
			}
		}
	}
}

func TestSQLServer_Record(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("WEIR_TEST_TSQL", dir)
	url := SQLServer(t)
	for range 2 {
		Exec(t, url, "select 'ü' as a")
	}
	queryTDS[int](t, url, "select cast(@p1 as int)", 1)
	var got []string
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(data))
	}
	slices.Sort(got)
	if want := []string{"select 'ü' as a", "select cast(@p1 as int)"}; !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

func TestSQLServer_Leftovers(t *testing.T) {
	Babelfish(t) // skips without a server
	old, young := "weir_test_1000000000_"+randomHex(), "weir_test_9999999999_"+randomHex()
	for _, name := range []string{old, young} {
		if err := createSQLServer(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dropSQLServer(name); err != nil {
				t.Error(err)
			}
		})
	}
	if err := checkSQLServer(); err != nil {
		t.Fatal(err)
	}
	if hasDatabase(t, old) {
		t.Error("a database of long ago is left")
	}
	if !hasDatabase(t, young) {
		t.Error("a database of another run is gone")
	}
}

func databaseName(t *testing.T, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("database")
}

func hasDatabase(t *testing.T, name string) bool {
	t.Helper()
	return queryTDS[bool](t, tds.url, "select case when db_id(@p1) is null then 0 else 1 end", name)
}

func TestProxy_SQLServer(t *testing.T) {
	direct := SQLServer(t)
	p := NewProxy(t, direct)
	Exec(t, direct, "create table t (a nvarchar(max))")
	Exec(t, direct, "create procedure add_row @a nvarchar(max) as insert into t values (@a)")
	rows := func() int { t.Helper(); return queryTDS[int](t, direct, "select count(*) from t") }

	// begin opens a transaction that has written a row whose words alone must
	// not spring a trap. It gives the statement that commits.
	begin := map[string]func(*testing.T) func(context.Context) error{
		"Driver": func(t *testing.T) func(context.Context) error {
			tx, err := connectTDS(t, p.URL()).BeginTx(context.WithoutCancel(t.Context()), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("insert into t values (N'commit')"); err != nil {
				t.Fatal(err)
			}
			return func(context.Context) error { return tx.Commit() }
		},
		"Batch": func(t *testing.T) func(context.Context) error {
			conn := connectTDS(t, p.URL())
			if _, err := conn.ExecContext(t.Context(), "begin transaction; insert into t values (N'commit')"); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error {
				_, err := conn.ExecContext(ctx, "if 1 = 1 begin select 1; end\ncommit")
				return err
			}
		},
	}
	for kind, begin := range begin {
		t.Run(kind+"/DropMessage", func(t *testing.T) {
			Exec(t, direct, "delete from t")
			trap := p.Trap(Commit, DropMessage)
			if err := begin(t)(t.Context()); err == nil {
				t.Error("commit succeeded")
			}
			<-trap.Sprung()
			if n := rows(); n != 0 {
				t.Errorf("%d rows, want none", n)
			}
		})
		t.Run(kind+"/DropAnswer", func(t *testing.T) {
			Exec(t, direct, "delete from t")
			trap := p.Trap(Commit, DropAnswer)
			if err := begin(t)(t.Context()); err == nil {
				t.Error("commit succeeded")
			}
			<-trap.Sprung()
			if n := rows(); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
		})
		t.Run(kind+"/HoldAnswer", func(t *testing.T) {
			Exec(t, direct, "delete from t")
			trap := p.Trap(Commit, HoldAnswer)
			commit := begin(t)
			committed := make(chan error, 1)
			go func() { committed <- commit(t.Context()) }()
			<-trap.Sprung()
			if n := rows(); n != 1 {
				t.Errorf("%d rows while the answer is held, want 1", n)
			}
			select {
			case err := <-committed:
				t.Errorf("the client has an answer: %v", err)
			default:
			}
			trap.Release()
			if err := <-committed; err != nil {
				t.Errorf("commit: %v", err)
			}
		})
	}
	// The driver asks the server to cancel, and waits some seconds for its word.
	t.Run("HoldMessage", func(t *testing.T) {
		Exec(t, direct, "delete from t")
		trap := p.Trap(Commit, HoldMessage)
		commit := begin["Batch"](t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-trap.Sprung()
			cancel()
		}()
		if err := commit(ctx); err == nil {
			t.Error("commit succeeded")
		}
		trap.Release()
		eventually(t, "the late commit is done", func() bool { return rows() == 1 })
	})
	statements := []struct {
		name, text string
		args       []any
		trap       string
	}{
		{"Parameters", "insert into t values (@p1)", []any{"b"}, `^insert`},
		{"LongText", "insert into t values (@p1) --" + strings.Repeat("x", 5000), []any{"b"}, `^insert.*x{1000}$`},
		{"Procedure", "add_row", []any{sql.Named("a", "b")}, `^exec add_row$`},
		{"ManyPackets", "insert into t values (N'" + strings.Repeat("y", 50_000) + "')", nil, `^insert.*y{1000}`},
	}
	for _, s := range statements {
		t.Run(s.name, func(t *testing.T) {
			Exec(t, direct, "delete from t")
			conn := connectTDS(t, p.URL())
			if _, err := conn.ExecContext(t.Context(), s.text, s.args...); err != nil {
				t.Fatal(err)
			}
			if n := rows(); n != 1 {
				t.Errorf("%d rows through the proxy, want 1", n)
			}
			trap := p.Trap(regexp.MustCompile(s.trap), DropMessage)
			if _, err := conn.ExecContext(t.Context(), s.text, s.args...); err == nil {
				t.Error("the statement succeeded")
			}
			<-trap.Sprung()
		})
	}
	t.Run("Rows", func(t *testing.T) {
		// An answer of many packets.
		Exec(t, direct, "delete from t; insert into t values (replicate(cast(N'z' as nvarchar(max)), 100000))")
		trap := p.Trap(regexp.MustCompile("^select a"), HoldAnswer)
		conn := connectTDS(t, p.URL())
		got := make(chan string, 1)
		go func() {
			var a string
			if err := conn.QueryRowContext(t.Context(), "select a from t").Scan(&a); err != nil {
				a = err.Error()
			}
			got <- a
		}()
		<-trap.Sprung()
		trap.Release()
		if a := <-got; a != strings.Repeat("z", 100_000) {
			t.Errorf("got %d characters, %.50s", len(a), a)
		}
	})
}
