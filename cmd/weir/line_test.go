package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	_ "github.com/golang-migrate/migrate/v4/database/sqlite"
	_ "github.com/golang-migrate/migrate/v4/database/sqlserver"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/config"
	"github.com/weir-cdc/weir/internal/testdb"
)

// engines are what the whole command is run on, in every combination.
var engines = map[string]func(testing.TB) string{
	"Postgres": testdb.Postgres, "SQLite": testdb.SQLite,
	"SQLServer": func(t testing.TB) string { return testdb.SQLServer(t) },
}

func connectTo(t *testing.T, url string) *sql.DB {
	t.Helper()
	var db *sql.DB
	var err error
	file, isSQLite := strings.CutPrefix(url, "sqlite:")
	switch {
	case isSQLite:
		db, err = sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	case strings.HasPrefix(url, "sqlserver:"):
		db, err = sql.Open("sqlserver", url)
	default:
		var cfg *pgx.ConnConfig
		if cfg, err = pgx.ParseConfig(url); err == nil {
			db = stdlib.OpenDB(*cfg)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec1(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// rowsOf are a query's rows as text.
func rowsOf(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var out strings.Builder
	for rows.Next() {
		var id int
		var v sql.NullString
		if err := rows.Scan(&id, &v); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%d=%q ", id, v.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// line is a source and a target with a configuration.
type line struct {
	t              *testing.T
	dir            string
	source, target *sql.DB
}

func newLine(t *testing.T, source, target string) *line {
	t.Helper()
	l := &line{t: t, source: connectTo(t, source), target: connectTo(t, target)}
	orders, items, text := "orders", "items", "text"
	switch {
	case strings.HasPrefix(source, "postgres:"):
		orders, items = "public.orders", "public.items"
	case strings.HasPrefix(source, "sqlserver:"):
		orders, items, text = "dbo.orders", "dbo.items", "nvarchar(100)"
	}
	l.dir = configIn(t, fmt.Sprintf(`source: {url: '%s'}
captures: [{table: %s}, {table: %s, tagging: deferred}]
pulls: [{name: copy, target: {url: '%s'}, schedule: '@every 1s', max_deletes: 3}]
`, source, orders, items, target))
	exec1(t, l.source,
		"create table orders (id integer not null primary key, v "+text+")",
		"create table items (id integer not null primary key, v "+text+")",
		"insert into orders (id, v) values (1, 'a'), (2, ''), (3, null)",
		"insert into items (id, v) values (10, 'x')")
	return l
}

// weir runs the command and wants the exit code.
func (l *line) weir(code int, args ...string) result {
	l.t.Helper()
	r := weirIn(l.t, l.dir, "", args...)
	if r.code != code {
		l.t.Fatalf("weir %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.errors)
	}
	return r
}

func (l *line) status() weir.Status {
	l.t.Helper()
	var st weir.Status
	if err := json.Unmarshal([]byte(l.weir(exitDone, "status", "--json").out), &st); err != nil {
		l.t.Fatal(err)
	}
	return st
}

func (l *line) equal(tables ...string) {
	l.t.Helper()
	for _, table := range tables {
		query := "select id, v from " + table + " order by id"
		if here, there := rowsOf(l.t, l.source, query), rowsOf(l.t, l.target, query); here != there {
			l.t.Errorf("%s: source %s, target %s", table, here, there)
		}
	}
}

func TestLine(t *testing.T) {
	for from, source := range engines {
		for to, target := range engines {
			if from == "SQLServer" && to != from {
				continue // slow; the package dialects has these
			}
			t.Run(from+"To"+to, func(t *testing.T) {
				t.Parallel()
				l := newLine(t, source(t), target(t))

				if r := l.weir(exitUsage, "status"); !strings.Contains(r.errors, "\nTry: run weir init") {
					t.Errorf("before init: %s", r.errors)
				}
				if r := l.weir(exitDone, "init", "--dry-run"); !strings.HasPrefix(r.out, "would create weir's tables in ") {
					t.Errorf("init --dry-run: %s", r.out)
				}
				if r := l.weir(exitDone, "init"); !strings.HasPrefix(r.out, "weir's tables are at version ") {
					t.Errorf("init: %s", r.out)
				}
				l.weir(exitDone, "init")
				if r := l.weir(exitUsage, "backfill"); !strings.HasSuffix(r.errors, "no capture is installed\nTry: weir triggers apply\n") {
					t.Errorf("backfill before apply: %s", r.errors)
				}

				l.weir(exitDiffers, "triggers", "check")
				plan := l.weir(exitDone, "triggers", "plan").out
				if dry := l.weir(exitDone, "triggers", "apply", "--dry-run").out; dry != plan || !strings.Contains(plan, "-- create trigger") {
					t.Errorf("plan\n%s\ndry run\n%s", plan, dry)
				}
				if r := l.weir(exitDone, "triggers", "apply"); !strings.HasPrefix(r.out, "done: ") || !strings.HasSuffix(r.out, " to create\n") {
					t.Errorf("apply: %s", r.out)
				}
				if r := l.weir(exitDone, "triggers", "plan"); r.out != "" {
					t.Errorf("the plan is not empty: %s", r.out)
				}
				if r := l.weir(exitDone, "triggers", "check"); r.out != "no drift\n" {
					t.Errorf("check: %s", r.out)
				}

				if r := l.weir(exitDone, "backfill", "--chunk", "2"); strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "orders: 3 rows tagged in ") {
					t.Errorf("backfill: %s", r.out)
				}
				again := regexp.MustCompile(`orders: done on \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, with 3 rows; nothing is tagged now\. --restart begins anew\n`)
				if r := l.weir(exitDone, "backfill"); strings.Count(r.out, "\n") != 2 || !again.MatchString(r.out) {
					t.Errorf("backfill again says %q", r.out)
				}
				l.weir(exitDone, "pull", "copy")
				l.equal("orders", "items")
				exec1(t, l.source, "insert into orders (id, v) values (4, 'ü')", "update orders set v = 'b' where id = 1", "update orders set id = 5 where id = 2",
					"delete from orders where id = 3", "update items set v = null")
				l.weir(exitDone, "pull", "copy")
				l.equal("orders", "items")
				st := l.status()
				if len(st.Queues) != 1 || st.Queues[0].Depth != 0 || st.Inbox != 0 || len(st.Pulls) != 0 {
					t.Errorf("status: %+v", st)
				}

				// A limit of deletes stops the pull until it is told to go on.
				exec1(t, l.source, "insert into orders (id, v) values (6, ''), (7, '')")
				l.weir(exitDone, "pull", "copy")
				exec1(t, l.source, "delete from orders", "delete from items")
				if r := l.weir(exitFailed, "pull", "copy"); !strings.Contains(r.errors, "--allow-deletes") {
					t.Errorf("pull over the limit: %s", r.errors)
				}
				l.weir(exitDone, "pull", "copy", "--allow-deletes")
				l.equal("orders", "items")

				l.weir(exitDone, "triggers", "drop", l.tableName("items"))
				if r := l.weir(exitDiffers, "triggers", "check", "--json"); !strings.Contains(r.out, `"difference": "it is missing"`) {
					t.Errorf("check: %s", r.out)
				}
				if r := l.weir(exitUsage, "init", "--down", "--yes"); !strings.HasSuffix(r.errors, "1 capture is installed\nTry: weir triggers drop, and then weir init --down again\n") {
					t.Errorf("down with captures: %s", r.errors)
				}
				l.weir(exitDone, "triggers", "drop")
				if r := weirIn(t, l.dir, "no\n", "init", "--down"); r.code != exitUsage || !strings.Contains(r.errors, "nothing was removed") {
					t.Errorf("down without yes: %+v", r)
				}
				if r := weirIn(t, l.dir, "yes\n", "init", "--down"); r.code != exitDone || !strings.HasPrefix(r.out, "removed ") {
					t.Errorf("down: %+v", r)
				}
				l.weir(exitUsage, "status")
			})
		}
	}
}

func (l *line) tableName(table string) string {
	for _, schema := range []string{"public.", "dbo."} {
		if strings.Contains(l.config(), schema+table) {
			return schema + table
		}
	}
	return table
}

func (l *line) config() string {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "weir.yaml"))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// applied makes the line ready to capture.
func (l *line) applied() *line {
	l.t.Helper()
	l.weir(exitDone, "init")
	l.weir(exitDone, "triggers", "apply")
	return l
}

func TestQueue(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, engine(t), engine(t)).applied()
			exec1(t, l.source, "update orders set v = 'c'")
			orders := l.tableName("orders")
			list := func(args ...string) []weir.QueueRow {
				t.Helper()
				var out struct{ Rows []weir.QueueRow }
				if err := json.Unmarshal([]byte(l.weir(exitDone, append([]string{"queue", "list", "--json"}, args...)...).out), &out); err != nil {
					t.Fatal(err)
				}
				return out.Rows
			}
			if rows := list("--table", orders); len(rows) != 3 || rows[0].State != weir.Ready || rows[0].Table != orders {
				t.Errorf("list: %+v", rows)
			}
			if rows := list("--limit", "2"); len(rows) != 2 {
				t.Errorf("limit: %+v", rows)
			}
			if r := l.weir(exitUsage, "queue", "list", "--table", "nope"); !strings.HasPrefix(r.errors, "weir: --table nope is not captured\nTry: ") {
				t.Errorf("unknown table: %s", r.errors)
			}
			if r := l.weir(exitUsage, "queue", "list", "--queue", "x"); r.errors != "weir: there is no queue \"x\"\nTry: default\n" {
				t.Errorf("unknown queue: %s", r.errors)
			}
			if r := l.weir(exitDone, "__complete", "pull", ""); !strings.HasPrefix(r.out, "copy\n") {
				t.Errorf("completion: %s", r.out)
			}
			if r := l.weir(exitDone, "__complete", "verify", ""); !strings.HasPrefix(r.out, "copy\n") {
				t.Errorf("completion: %s", r.out)
			}
			if r := l.weir(exitUsage, "queue", "list", "--state", "x"); r.errors != "weir: --state \"x\" is not known\nTry: ready, in flight, waiting, postponed, dead\n" {
				t.Errorf("unknown state: %s", r.errors)
			}
			if r := l.weir(exitDone, "queue", "postpone", "--for", "1h", "--instance", list()[0].InstanceGUID.String()); r.out != "1 change postponed\n" {
				t.Errorf("postpone: %s", r.out)
			}
			if rows := list("--state", "postponed"); len(rows) != 1 || rows[0].NotBefore.IsZero() {
				t.Errorf("postponed: %+v", rows)
			}
			if text := l.weir(exitDone, "queue", "list").out; !strings.HasPrefix(text, "INSTANCE  ") || strings.Count(text, "\n") != 4 || !strings.Contains(text, "postponed") {
				t.Errorf("list: %s", text)
			}
			if text := l.weir(exitDone, "status").out; !strings.Contains(text, "\nQUEUE    DEPTH  READY  IN FLIGHT  WAITING  POSTPONED  DEAD  OLDEST\ndefault  3      2      0          0        1          0     ") {
				t.Errorf("status:\n%s", text)
			}
			l.weir(exitDone, "pull", "copy")
			if rows := list(); len(rows) != 1 {
				t.Errorf("after the pull: %+v", rows)
			}
			if r := l.weir(exitDone, "queue", "retry", "--all"); r.out != "1 change made claimable\n" {
				t.Errorf("retry: %s", r.out)
			}
			exec1(t, l.source, "update items set v = 'y'")
			l.weir(exitDone, "pull", "copy")
			l.equal("orders", "items")
			if r := l.weir(exitFailed, "queue", "release", weir.NewGUID().String()); !strings.Contains(r.errors, "no such pull") {
				t.Errorf("release: %s", r.errors)
			}
		})
	}
}

// What render writes, golang-migrate applies and reverts, and it is what apply
// does. Reverted, it leaves nothing behind.
func TestRender(t *testing.T) {
	for name, left := range map[string]string{
		"Postgres": `select count(*), (select string_agg(tgname, ' ') from pg_trigger where tgname like 'weir%')
			from (select captures.table_name::text from weir.captures union all select proname from pg_proc where proname like 'capture%') x`,
		"SQLite": "select count(*), (select group_concat(name) from sqlite_schema where type = 'trigger' and tbl_name in ('orders', 'items')) from weir_captures",
		"SQLServer": `select count(*), (select string_agg(convert(nvarchar(max), name), ' ') from sys.triggers)
			from (select TableName as n from dbo.GI_Captures union all select name from sys.procedures where lower(name) like 'gi[_]capture%') x`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := engines[name](t)
			l := newLine(t, url, testdb.SQLite(t))
			l.weir(exitDone, "init")
			dir := t.TempDir()
			files := l.weir(exitDone, "triggers", "render", "--dir", dir).out
			want := "000001_weir_items.up.sql\n000001_weir_items.down.sql\n000002_weir_orders.up.sql\n000002_weir_orders.down.sql\n"
			if strings.NewReplacer("_public_", "_", "_dbo_", "_").Replace(files) != want {
				t.Fatalf("render: %s", files)
			}
			url = strings.Replace(strings.Replace(url, "postgres://", "pgx5://", 1), "sqlite:", "sqlite://", 1)
			m, err := migrate.New("file://"+dir, url)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Up(); err != nil {
				t.Fatalf("up: %v", err)
			}
			if r := l.weir(exitDone, "triggers", "check"); r.out != "no drift\n" {
				t.Errorf("check: %s", r.out)
			}
			if r := l.weir(exitDone, "triggers", "render", "--dir", dir); r.out != "" {
				t.Errorf("rendered again: %s", r.out)
			}
			exec1(t, l.source, "update orders set v = 'b' where id < 3", "delete from orders where id = 2", "insert into items (id, v) values (11, 'y')")
			if st := l.status(); st.Queues[0].Depth != 2 || st.Inbox != 1 {
				t.Errorf("the queue has %d changes and the inbox %d, want 2 and 1", st.Queues[0].Depth, st.Inbox)
			}
			if err := m.Down(); err != nil {
				t.Fatalf("down: %v", err)
			}
			if got := rowsOf(t, l.source, left); got != `0="" ` {
				t.Errorf("left behind: %s", got)
			}
			exec1(t, l.source, "update orders set v = 'c'")
			if st := l.status(); st.Queues[0].Depth != 2 || st.Inbox != 1 {
				t.Errorf("reverted, the queue has %d changes and the inbox %d, want 2 and 1 as before", st.Queues[0].Depth, st.Inbox)
			}
			l.weir(exitDone, "init", "--down", "--yes")
		})
	}
}

// A password in a URL or in an environment variable shows nowhere, whatever
// goes wrong.
func TestRun_ShowsNoPassword(t *testing.T) {
	const secret = "hunter2-planted"
	t.Setenv("PGPASSWORD", secret)
	for name, url := range map[string]string{
		"Refused":            "postgres://u:${P}@127.0.0.1:1/d",
		"NoHost":             "postgres://u:${P}@no-such-host.invalid/d",
		"Query":              "postgres://127.0.0.1:1/d?user=u&password=${P}",
		"SSL":                "postgres://127.0.0.1:1/d?sslmode=verify-full&sslcert=/none&sslkey=/none&sslpassword=${P}",
		"BadPort":            "postgres://u:${P}@127.0.0.1:port/d",
		"BadEscape":          "postgres://u:${P}%zz@127.0.0.1:1/d",
		"Slash":              "postgres://u:${P}/x@127.0.0.1:1/d",
		"BadParameter":       "postgres://u:${P}@127.0.0.1:1/d?connect_timeout=x",
		"SQLServer":          "sqlserver://u:${P}@127.0.0.1:1?database=d",
		"SQLServerQuery":     "sqlserver://127.0.0.1:1?user+id=u&password=${P}",
		"SQLServerPort":      "sqlserver://u:${P}@127.0.0.1:port?database=d",
		"SQLServerEscape":    "sqlserver://u:${P}%zz@127.0.0.1:1?database=d",
		"SQLServerSlash":     "sqlserver://u:${P}/x@127.0.0.1:1?database=d",
		"SQLServerParameter": "sqlserver://u:${P}@127.0.0.1:1?encrypt=perhaps",
		"SQLServerKeyValue":  "server=127.0.0.1;port=1;user id=u;password=${P}",
		"KeyValue":           "host=127.0.0.1 port=1 password=${P}",
		"Scheme":             "oracle://u:${P}@127.0.0.1:1/d",
		"Bare":               "${P}",
		"BareColon":          "${P}:x",
	} {
		t.Run(name, func(t *testing.T) {
			dir := configIn(t, "source: {url: '"+url+"'}\ncaptures: [{table: public.t}]\npulls: [{name: p, schedule: '@every 1s', target: {url: '"+url+"', schema: other}}]\n")
			for _, args := range [][]string{
				{"config", "check"}, {"config", "check", "--json"}, {"init"}, {"init", "--dry-run"}, {"triggers", "plan"}, {"triggers", "apply"}, {"backfill"},
				{"pull", "p"}, {"status"}, {"queue", "list"}, {"run"},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if args[0] == "run" {
					ctx, cancel = context.WithTimeout(t.Context(), 1200*time.Millisecond) // one run of the pull
				}
				env := map[string]string{"WEIR_CONFIG": filepath.Join(dir, "weir.yaml"), "P": secret, "WEIR_LOG_LEVEL": "debug"}
				r := weirWith(ctx, env, "", args...)
				cancel()
				if args[0] != "config" && args[0] != "run" && r.code == exitDone {
					t.Errorf("%v: exit code 0", args)
				}
				if strings.Contains(r.out+r.errors, secret) || strings.Contains(r.out+r.errors, "hunter2") {
					t.Errorf("%v shows it:\n%s%s", args, r.out, r.errors)
				}
			}
		})
	}
}

// load reads the line's configuration.
func (l *line) load() *config.Config {
	l.t.Helper()
	c, err := config.Load(filepath.Join(l.dir, "weir.yaml"), func(string) (string, bool) { return "", false })
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}
