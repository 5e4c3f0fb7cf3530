package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
)

// refuses runs the command, and wants its exit code and what each of the texts
// says, which a person acts by. Nothing in it is a secret.
func (l *line) refuses(code int, says []string, args ...string) {
	l.t.Helper()
	r := weirIn(l.t, l.dir, "", args...)
	if r.code != code {
		l.t.Errorf("weir %s: exit code %d, want %d\n%s", strings.Join(args, " "), r.code, code, r.errors)
	}
	for _, s := range says {
		if !strings.Contains(r.errors, s) {
			l.t.Errorf("weir %s: %q is not in\n%s", strings.Join(args, " "), s, r.errors)
		}
	}
	if strings.Contains(r.out+r.errors, sqlServerSecret) {
		l.t.Errorf("weir %s shows a password:\n%s%s", strings.Join(args, " "), r.out, r.errors)
	}
}

const sqlServerSecret = "Hunter2-planted"

// another is the URL with another login, or another database.
func another(t *testing.T, raw, user, database string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		u.User = url.UserPassword(user, sqlServerSecret)
	}
	if database != "" {
		q := u.Query()
		q.Set("database", database)
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// TestSQLServer_WrongSource: what is wrong about the source is said with what to
// do, before anything is done.
func TestSQLServer_WrongSource(t *testing.T) {
	server := testdb.SQLServer(t)
	db := connectTo(t, server)
	login := "weir_test_login_" + weir.NewGUID().String()[:8]
	exec1(t, db, "create login "+login+" with password = '"+sqlServerSecret+"'", "create table dbo.orders (id integer not null primary key, v nvarchar(9))")
	t.Cleanup(func() {
		if _, err := db.Exec("drop user if exists " + login + "; drop login " + login); err != nil {
			t.Error(err)
		}
	})
	at := func(source, table string) *line {
		return &line{t: t, dir: configIn(t, "source: {url: '"+source+"'}\ncaptures: [{table: "+table+"}]\npulls: [{name: copy, schedule: '@every 1s', target: {url: 'sqlite:"+t.TempDir()+"/copy.db'}}]\n")}
	}
	for _, args := range [][]string{{"init"}, {"triggers", "plan"}, {"pull", "copy"}, {"status"}} {
		at(another(t, server, "nobody_"+login, ""), "dbo.orders").refuses(exitUsage, []string{"Try: check the user and password in the URL"}, args...)
		at(another(t, server, "", "no_such_database"), "dbo.orders").refuses(exitUsage, []string{"Try: create the database or correct its name in the URL"}, args...)
		if args[0] != "init" {
			at(server, "dbo.orders").refuses(exitUsage, []string{"Try: run weir init"}, args...)
		}
	}
	at("sqlserver://u:"+sqlServerSecret+"@127.0.0.1:1?database=d", "dbo.orders").refuses(exitFailed, []string{"source is unavailable"}, "init")

	at(server, "dbo.orders").weir(exitDone, "init")
	for table, says := range map[string]string{
		"dbo.nothing":      "dbo.nothing: there is no such table, or the login may not see it",
		"elsewhere.orders": "elsewhere.orders: there is no such table, or the login may not see it",
		"other.dbo.orders": "it is in the database other",
	} {
		at(server, table).refuses(exitUsage, []string{says, "Try: "}, "triggers", "plan")
	}
	exec1(t, db, "create table dbo.keyless (id integer null)", "create view dbo.seen as select id from dbo.orders")
	at(server, "dbo.keyless").refuses(exitUsage, []string{"dbo.keyless: it has neither a primary key nor a unique index", "Try: ALTER TABLE [dbo].[keyless] ADD PRIMARY KEY"}, "triggers", "apply")
	at(server, "dbo.seen").refuses(exitUsage, []string{"dbo.seen: it is not a table", "Try: capture the tables under it"}, "triggers", "apply")

	// A user without rights.
	exec1(t, db, "create user "+login+" for login "+login)
	poor := at(another(t, server, login, ""), "dbo.orders")
	for _, args := range [][]string{{"triggers", "plan"}, {"triggers", "apply"}, {"pull", "copy"}, {"status"}} {
		poor.refuses(exitUsage, []string{"Try: "}, args...)
	}
	if got := rowsOf(t, db, "select count(*), null from sys.triggers"); got != `0="" ` {
		t.Errorf("triggers were made: %s", got)
	}
}

// TestSQLServer_TableAltered: a table that is changed under the captures stops
// its pull, with what to do, and nothing is lost.
func TestSQLServer_TableAltered(t *testing.T) {
	l := newLine(t, testdb.SQLServer(t), testdb.SQLite(t)).applied()
	l.weir(exitDone, "backfill")
	l.weir(exitDone, "pull", "copy")

	exec1(t, l.source, "update orders set v = 'b' where id = 1", "alter table orders add more nvarchar(9) null", "update orders set more = 'm' where id = 2")
	l.weir(exitDone, "pull", "copy")
	if got := rowsOf(t, l.target, "select id, more from orders order by id"); got != `1="" 2="m" 3="" ` {
		t.Errorf("with a new column the target has %s", got)
	}

	// The table is made again: what the queue holds is of another.
	exec1(t, l.source, "update orders set v = 'c' where id = 1", "drop table orders", "create table orders (id integer not null primary key, v nvarchar(100), more nvarchar(9))")
	l.refuses(exitDiffers, []string{"dbo.orders", "it was dropped and made again", "Try: run weir triggers plan, then apply, then weir backfill dbo.orders"}, "pull", "copy")
	if st := l.status(); st.Queues[0].Depth != 1 || len(st.Pulls) != 0 {
		t.Errorf("after the refusal: %+v", st)
	}
	if got := rowsOf(t, l.target, "select id, v from orders order by id"); got != `1="b" 2="" 3="" ` {
		t.Errorf("the target has %s", got)
	}
	exec1(t, l.source, "insert into orders (id, v) values (1, 'd'), (2, 'e'), (3, 'f')")
	l.weir(exitDone, "triggers", "apply")
	l.weir(exitDone, "backfill")
	l.weir(exitDone, "pull", "copy")
	l.equal("orders", "items")
}

// TestSQLServer_TargetOff: a target that is away costs nothing but time.
func TestSQLServer_TargetOff(t *testing.T) {
	target := testdb.NewProxy(t, testdb.SQLServer(t))
	l := newLine(t, testdb.SQLite(t), target.URL()).applied()
	exec1(t, l.source, "update orders set v = 'c'")
	target.Refuse()
	target.Cut()
	l.refuses(exitFailed, []string{"target is unavailable"}, "pull", "copy")
	if st := l.status(); st.Queues[0].Ready != 3 || len(st.Pulls) != 0 || st.Queues[0].Postponed != 0 {
		t.Errorf("status: %+v", st)
	}
	target.Heal()
	l.weir(exitDone, "pull", "copy")
	l.equal("orders")
}

// TestSQLServer_TargetRefusesRow: a row that the target's constraint rejects is
// kept with the reason; the others arrive.
func TestSQLServer_TargetRefusesRow(t *testing.T) {
	l := newLine(t, testdb.SQLite(t), testdb.SQLServer(t)).applied()
	exec1(t, l.target, "create table dbo.orders (id integer not null primary key, v nvarchar(5), constraint no_bees check (v <> N'bee'))")
	exec1(t, l.source, "insert into orders (id, v) values (4, 'bee'), (5, 'longer than 5')", "update orders set v = 'x' where id < 4")
	l.refuses(exitFailed, []string{"2 rows not shipped, and kept: weir queue list shows why"}, "pull", "copy")
	if got := rowsOf(t, l.target, "select id, v from dbo.orders order by id"); got != `1="x" 2="x" 3="x" ` {
		t.Errorf("the target has %s", got)
	}
	text := l.weir(exitDone, "queue", "list").out
	for _, want := range []string{"no_bees", "13 characters", "nvarchar(5)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if st := l.status(); st.Queues[0].Depth != 2 || st.Queues[0].Postponed != 2 || len(st.Pulls) != 0 {
		t.Errorf("status: %+v", st)
	}
	exec1(t, l.target, "alter table dbo.orders drop constraint no_bees")
	exec1(t, l.source, "update orders set v = 'short' where id = 5")
	l.weir(exitDone, "queue", "retry", "--all")
	l.weir(exitDone, "pull", "copy")
	l.equal("orders")
}

// TestSQLServer_PoorTarget: a login that may not write is told the right that it
// lacks; nothing is lost.
func TestSQLServer_PoorTarget(t *testing.T) {
	server := testdb.SQLServer(t)
	db := connectTo(t, server)
	login := "weir_test_login_" + weir.NewGUID().String()[:8]
	exec1(t, db, "create login "+login+" with password = '"+sqlServerSecret+"'", "create user "+login+" for login "+login)
	t.Cleanup(func() {
		if _, err := db.Exec("drop user if exists " + login + "; drop login " + login); err != nil {
			t.Error(err)
		}
	})
	l := newLine(t, testdb.SQLite(t), another(t, server, login, "")).applied()
	exec1(t, l.source, "update orders set v = 'c'")
	l.refuses(exitUsage, []string{"target", "Try: grant the right to the user that weir connects as"}, "pull", "copy")
	if st := l.status(); st.Queues[0].Ready != 3 || len(st.Pulls) != 0 {
		t.Errorf("status: %+v", st)
	}
}
