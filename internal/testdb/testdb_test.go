package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "modernc.org/sqlite"
)

// victim makes the test binary start a server, say where, and wait to be killed.
const victim = "WEIR_TESTDB_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victim) != "" {
		beVictim()
	}
	os.Exit(Run(m))
}

func beVictim() {
	bin, _ := serverBin()
	c, err := startCluster(bin, nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.dir, c.server.Process.Pid, c.watchdog.Process.Pid)
	select {}
}

// query returns the one value of the one row of a query.
func query[T any](t *testing.T, databaseURL, sql string) (value T) {
	t.Helper()
	conn := connect(t, databaseURL)
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func connect(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func TestPostgres(t *testing.T) {
	var first string
	t.Run("Database", func(t *testing.T) {
		first = Postgres(t)
		Exec(t, first, "create table t (a text); insert into t values ('x'), ('y')")
		if n := query[int](t, first, "select count(*)::int from t"); n != 2 {
			t.Errorf("got %d rows, want 2", n)
		}
		second := Postgres(t)
		if second == first {
			t.Error("two calls gave one database")
		}
		if n := query[int](t, second, "select count(*)::int from pg_class where relnamespace = 'public'::regnamespace"); n != 0 {
			t.Errorf("a new database holds %d relations", n)
		}
		if encoding := query[string](t, second, "show server_encoding"); encoding != "UTF8" {
			t.Errorf("encoding is %s", encoding)
		}
	})
	if first == "" {
		t.SkipNow() // the subtest said why
	}
	var pgErr *pgconn.PgError
	if _, err := pgx.Connect(t.Context(), first); !errors.As(err, &pgErr) || pgErr.Code != "3D000" {
		t.Errorf("database after its test: %v, want SQLSTATE 3D000", err)
	}
}

func TestPostgres_FromEnvironment(t *testing.T) {
	c := NewCluster(t)
	const old, young = "weir_test_1000000000_0123abcd", "weir_test_9999999999_0123abcd"
	Exec(t, c.URL(), "create database "+old)
	Exec(t, c.URL(), "create database "+young)
	if err := checkServer(c.URL()); err != nil {
		t.Fatal(err)
	}
	if left := query[string](t, c.URL(), "select string_agg(datname, ' ') from pg_database where datname ~ '^weir_test'"); left != young {
		t.Errorf("left are %s, want %s", left, young)
	}
}

func TestSQLite(t *testing.T) {
	path, ok := strings.CutPrefix(SQLite(t), "sqlite:")
	if !ok {
		t.Fatal("URL without the scheme sqlite")
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("create table t (a)"); err != nil {
		t.Error(err)
	}
}

func TestBin(t *testing.T) {
	out, err := exec.Command(Bin(t, "pg_dump"), "--version").Output()
	if err != nil || !strings.Contains(string(out), "PostgreSQL") {
		t.Errorf("pg_dump --version: %q, %v", out, err)
	}
}

func TestCluster(t *testing.T) {
	c := NewCluster(t, "max_connections=17")
	for setting, want := range map[string]string{
		"max_connections": "17", "wal_level": "logical", "synchronous_commit": "on", "max_prepared_transactions": "10",
	} {
		if got := query[string](t, c.URL(), "show "+setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
	db := c.Database()
	Exec(t, db, "create table t (a int)")
	for _, immediate := range []bool{false, true} {
		Exec(t, db, "insert into t values (1)")
		idle := connect(t, db)
		c.Stop(immediate)
		c.Stop(immediate) // nothing to do
		if _, err := idle.Exec(t.Context(), "select 1"); err == nil {
			t.Error("a session outlived the server")
		}
		if _, err := pgx.Connect(t.Context(), db); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connect to a stopped server: %v", err)
		}
		c.Start()
	}
	if n := query[int](t, db, "select count(*)::int from t"); n != 2 {
		t.Errorf("%d rows after two stops, want 2", n)
	}
}

func TestCluster_BadSetting(t *testing.T) {
	bin, missing := serverBin()
	if missing != "" {
		skip(t, "postgres", missing)
	}
	c, err := startCluster(bin, []string{"weird=1"})
	if err == nil {
		t.Fatal("a server started with an unknown setting")
	}
	if !strings.Contains(err.Error(), `unrecognized configuration parameter "weird"`) {
		t.Errorf("the error does not give the server's words: %v", err)
	}
	if c != nil {
		t.Error("got a cluster and an error")
	}
}

// TestCluster_Killed kills a test binary, alone or with its watchdog, and waits
// for its server to end.
func TestCluster_Killed(t *testing.T) {
	if _, missing := serverBin(); missing != "" {
		skip(t, "postgres", missing)
	}
	for _, alone := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchdogLives=%t", alone), func(t *testing.T) {
			if !alone && runtime.GOOS != "linux" {
				t.Skip("only Linux signals the parent's death")
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), victim+"=1")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var dir string
			var server, watchdog int
			if _, err := fmt.Fscan(stdout, &dir, &server, &watchdog); err != nil {
				_ = cmd.Process.Kill()
				t.Fatal(err)
			}
			if !alone {
				if err := syscall.Kill(watchdog, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				defer os.RemoveAll(dir)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait()
			eventually(t, "the server ends", func() bool { return !alive(server) })
			if alone {
				eventually(t, "the files are removed", func() bool {
					_, err := os.Stat(dir)
					return errors.Is(err, fs.ErrNotExist)
				})
			}
		})
	}
}

// alive tells whether a process runs. One that has ended and that nobody waits
// for, as happens in containers without an init, does not run.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited 30 s until %s", what)
		case <-tick.C:
		}
	}
}
