package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// captured makes a site with weir in it and the captures applied. Settings are
// the database's.
func captured(t *testing.T, settings []string, statements []string, specs ...weir.CaptureSpec) *site {
	t.Helper()
	s := newSiteWith(t, settings, statements...)
	if _, err := s.src.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.apply(specs...)
	return s
}

func (s *site) apply(specs ...weir.CaptureSpec) *triggers.Plan {
	s.Helper()
	plan, _, err := triggers.PlanFor(context.Background(), s.src, specs)
	if err == nil {
		err = triggers.Apply(context.Background(), s.src, plan, nil)
	}
	if err != nil {
		s.Fatal(err)
	}
	return plan
}

func plain(tables ...string) (specs []weir.CaptureSpec) {
	for _, t := range tables {
		specs = append(specs, weir.CaptureSpec{Table: weir.Table{Schema: "dbo", Name: t}})
	}
	return specs
}

// tagged compares the queue, as "table +key" for a row that is there and
// "table -key" for one that is gone, and empties it. Nothing is in the inbox.
func (s *site) tagged(what string, want ...string) {
	s.Helper()
	got := s.list(`SELECT c.TableName + CASE q.ChangeType WHEN 'Instance Inserted' THEN N' +' WHEN 'Instance Deleted' THEN N' -' ELSE N' ? ' END + COALESCE(q.OldPrimaryKey, N'')
FROM dbo.InstanceChanges q JOIN dbo.GI_Captures c ON c.CaptureID = q.CaptureID`)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("%s: the queue has %q, want %q", what, got, want)
	}
	if n := s.list("SELECT ChangeType FROM dbo.GI_Inbox"); len(n) > 0 {
		s.Errorf("%s: the inbox has %q, want nothing", what, n)
	}
	s.exec("DELETE FROM dbo.InstanceChanges", "DELETE FROM dbo.GI_Inbox")
}

// session is one connection, whose SET options stay.
func (s *site) session() *sql.Conn {
	s.Helper()
	c, err := s.db.Conn(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// touched compares the keys of which the queue has any change, as "table key", and
// empties it: where others' triggers write what was just written, the order in
// which the triggers run decides the type, and the row's presence what is shipped.
func (s *site) touched(what string, want ...string) {
	s.Helper()
	got := s.list("SELECT DISTINCT c.TableName + N' ' + q.OldPrimaryKey FROM dbo.InstanceChanges q JOIN dbo.GI_Captures c ON c.CaptureID = q.CaptureID")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("%s: the queue has changes of %q, want %q", what, got, want)
	}
	s.exec("DELETE FROM dbo.InstanceChanges")
}

// in runs statements in a session, each a batch.
func (s *site) in(c *sql.Conn, statements ...string) {
	s.Helper()
	for _, text := range statements {
		if _, err := c.ExecContext(context.Background(), text); err != nil {
			s.Fatalf("%.100s: %v", text, err)
		}
	}
}

// answer is what a batch's last SELECT of one text gives in a session.
func (s *site) answer(c *sql.Conn, batch string) string {
	s.Helper()
	var text sql.NullString
	if err := c.QueryRowContext(context.Background(), batch).Scan(&text); err != nil {
		s.Fatalf("%.100s: %v", batch, err)
	}
	return text.String
}

// TestTagging: what else a site's tables, sessions and triggers do, a change is
// tagged once it is committed, and the application sees no difference. The
// database's row versions make none.
func TestTagging(t *testing.T) {
	for name, settings := range map[string][]string{
		"locks":         nil,
		"row versions":  {"READ_COMMITTED_SNAPSHOT ON"},
		"with snapshot": {"READ_COMMITTED_SNAPSHOT ON", "ALLOW_SNAPSHOT_ISOLATION ON"},
	} {
		t.Run(name, func(t *testing.T) {
			if settings != nil {
				testdb.OnlySQLServer(t, "READ_COMMITTED_SNAPSHOT and ALLOW_SNAPSHOT_ISOLATION as settings")
			}
			t.Parallel()
			testTagging(t, settings)
		})
	}
}

func testTagging(t *testing.T, settings []string) {
	s := captured(t, settings, []string{
		"CREATE TABLE dbo.parents (id int NOT NULL PRIMARY KEY)",
		"CREATE TABLE dbo.children (parent int NOT NULL REFERENCES dbo.parents (id) ON DELETE CASCADE ON UPDATE CASCADE, line int NOT NULL, note nvarchar(20) NULL, PRIMARY KEY (parent, line))",
		"CREATE TABLE dbo.friends (id int NOT NULL PRIMARY KEY, parent int NULL REFERENCES dbo.parents (id) ON DELETE SET NULL ON UPDATE CASCADE)",
		"CREATE TABLE dbo.counted (id int IDENTITY(100, 1) PRIMARY KEY, v int NOT NULL, twice AS v * 2 PERSISTED)",
		"CREATE INDEX counted_twice ON dbo.counted (twice)",
		"CREATE TABLE dbo.large (id int NOT NULL PRIMARY KEY, t text NULL, n ntext NULL, i image NULL, x xml NULL, b varbinary(max) NULL, m nvarchar(max) NULL)",
		"CREATE TABLE dbo.legacy (id varchar(40) NOT NULL, part nvarchar(10) NOT NULL, v int NULL, PRIMARY KEY (id, part))",
		"CREATE TABLE dbo.audits (id int NOT NULL PRIMARY KEY)",
		"CREATE TABLE dbo.watched (id int NOT NULL PRIMARY KEY, v int NOT NULL)",
		"CREATE TABLE dbo.replaced (id int NOT NULL PRIMARY KEY, v int NOT NULL)",
		"CREATE TABLE dbo.cased (k nvarchar(20) COLLATE Latin1_General_CS_AS NOT NULL PRIMARY KEY, v int NULL)",
		"CREATE TABLE dbo.caseless (k nvarchar(20) COLLATE Latin1_General_CI_AS NOT NULL PRIMARY KEY, v int NULL)",
		// Others' triggers: one writes to another table and to its own again, one
		// refuses, one takes away what was inserted, one stands for the statement.
		`CREATE TRIGGER dbo.watched_by_others ON dbo.watched AFTER INSERT, UPDATE, DELETE
AS
BEGIN
    SET NOCOUNT ON;
    IF EXISTS (SELECT 1 FROM inserted WHERE v = 666)
    BEGIN
        ROLLBACK TRANSACTION;
        RETURN;
    END;
    DELETE w FROM dbo.watched w JOIN inserted i ON i.id = w.id WHERE i.v = -1;
    INSERT INTO dbo.audits (id) SELECT i.id * 10 FROM inserted i WHERE i.v = 1;
    UPDATE w SET v = w.v - 1 FROM dbo.watched w JOIN inserted i ON i.id = w.id WHERE i.v > 100;
    UPDATE w SET id = -w.id FROM dbo.watched w JOIN inserted i ON i.id = w.id WHERE i.v = 50 AND w.id > 0;
END`,
		`CREATE TRIGGER dbo.replaced_by_others ON dbo.replaced INSTEAD OF INSERT
AS
BEGIN
    SET NOCOUNT ON;
    INSERT INTO dbo.replaced (id, v) SELECT i.id + 1000, i.v FROM inserted i WHERE i.v > 0;
END`,
	}, plain("parents", "children", "friends", "counted", "large", "legacy", "audits", "watched", "replaced", "cased", "caseless")...)

	run := func(name string, f func(t *testing.T, s *site)) {
		t.Run(name, func(t *testing.T) {
			in := *s
			in.TB = t
			f(t, &in)
		})
	}

	run("Cascades", func(t *testing.T, s *site) {
		s.exec("INSERT INTO dbo.parents VALUES (1), (2), (3)", "INSERT INTO dbo.children VALUES (1, 1, N'a'), (1, 2, N'b'), (2, 1, N'c'), (3, 1, N'd')",
			"INSERT INTO dbo.friends VALUES (1, 1), (2, 3)")
		s.tagged("inserts", "parents +1", "parents +2", "parents +3", `children +["1","1"]`, `children +["1","2"]`, `children +["2","1"]`, `children +["3","1"]`, "friends +1", "friends +2")
		s.exec("UPDATE dbo.parents SET id = 20 WHERE id = 2")
		s.tagged("a key cascades", "parents -2", "parents +20", `children -["2","1"]`, `children +["20","1"]`)
		s.exec("DELETE FROM dbo.parents WHERE id IN (1, 20)")
		s.tagged("a delete cascades, and sets null", "parents -1", "parents -20", `children -["1","1"]`, `children -["1","2"]`, `children -["20","1"]`, "friends +1")
		testdb.OnlySQLServer(t, "cascades that SET ROWCOUNT does not cut short")
		c := s.session()
		s.in(c, "INSERT INTO dbo.children VALUES (3, 2, NULL), (3, 3, NULL)")
		s.tagged("more children", `children +["3","2"]`, `children +["3","3"]`)
		s.in(c, "SET ROWCOUNT 1", "UPDATE dbo.parents SET id = 30 WHERE id = 3")
		s.tagged("a key cascades under ROWCOUNT 1", "parents -3", "parents +30", "friends +2", `children -["3","1"]`, `children -["3","2"]`, `children -["3","3"]`,
			`children +["30","1"]`, `children +["30","2"]`, `children +["30","3"]`)
		s.in(c, "SET ROWCOUNT 0")
	})

	run("ROWCOUNT", func(t *testing.T, s *site) {
		c := s.session()
		s.in(c, "INSERT INTO dbo.audits VALUES (1), (2), (3)")
		s.tagged("inserts", "audits +1", "audits +2", "audits +3")
		s.in(c, "SET ROWCOUNT 1", "UPDATE dbo.audits SET id = id + 100")
		s.tagged("a key moves under ROWCOUNT 1", "audits -1", "audits +101")
		// It is the session's as before.
		if got := s.answer(c, "DECLARE @n int; SELECT @n = COUNT(*) FROM (SELECT TOP (10) id FROM dbo.audits) a; UPDATE dbo.audits SET id = id; SELECT CONVERT(varchar(9), @@ROWCOUNT)"); got != "1" {
			t.Errorf("after the trigger a statement under ROWCOUNT 1 changes %s rows", got)
		}
		s.in(c, "SET ROWCOUNT 0", "DELETE FROM dbo.audits", "DELETE FROM dbo.InstanceChanges")
	})

	run("NOCOUNT", func(t *testing.T, s *site) {
		c := s.session()
		for _, setting := range []string{"OFF", "ON"} {
			s.in(c, "SET NOCOUNT "+setting)
			for _, statement := range []struct {
				text string
				rows string
			}{
				{"INSERT INTO dbo.audits VALUES (1), (2), (3)", "3"}, {"UPDATE dbo.audits SET id = id + 10", "3"}, {"UPDATE dbo.audits SET id = 0 WHERE id < 0", "0"},
				{"DELETE FROM dbo.audits WHERE id > 11", "2"}, {"DELETE FROM dbo.audits", "1"},
			} {
				if got := s.answer(c, "SET NOCOUNT ON; "+statement.text+"; SELECT CONVERT(varchar(9), @@ROWCOUNT)"); got != statement.rows {
					t.Errorf("NOCOUNT %s: after %s @@ROWCOUNT is %s, want %s", setting, statement.text, got, statement.rows)
				}
			}
		}
		s.in(c, "SET NOCOUNT OFF")
		r, err := c.ExecContext(t.Context(), "INSERT INTO dbo.audits VALUES (1), (2), (3)")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.RowsAffected(); n != 3 || err != nil {
			t.Errorf("a client that counts rows is told %d, %v, want 3", n, err)
		}
		s.exec("DELETE FROM dbo.audits", "DELETE FROM dbo.InstanceChanges")
	})

	run("Identity", func(t *testing.T, s *site) {
		c := s.session()
		if got := s.answer(c, "SET NOCOUNT ON; INSERT INTO dbo.counted (v) VALUES (1); SELECT CONVERT(varchar(9), @@IDENTITY) + ' ' + CONVERT(varchar(9), SCOPE_IDENTITY())"); got != "100 100" {
			t.Errorf("@@IDENTITY and SCOPE_IDENTITY() are %s, want 100 100", got)
		}
		if got := s.answer(c, "SET NOCOUNT ON; UPDATE dbo.counted SET v = 2; DELETE FROM dbo.counted WHERE v = 5; SELECT CONVERT(varchar(9), @@IDENTITY)"); got != "100" {
			t.Errorf("@@IDENTITY after an update is %s, want 100", got)
		}
		s.tagged("a table with IDENTITY, a computed column and an index on it", "counted +100")
		s.exec("DELETE FROM dbo.counted")
		s.tagged("its row deleted", "counted -100")
	})

	run("LargeObjects", func(t *testing.T, s *site) {
		s.exec("INSERT INTO dbo.large VALUES (1, 't', N'n', 0x01, N'<a/>', 0x02, N'm'), (2, NULL, NULL, NULL, NULL, NULL, NULL)")
		s.tagged("insert", "large +1", "large +2")
		s.exec("UPDATE dbo.large SET t = 'T', n = NULL, i = 0x03, x = NULL, b = NULL, m = N'M' WHERE id = 1")
		s.tagged("update", "large +1")
		s.exec("UPDATE dbo.large SET id = 3 WHERE id = 1", "DELETE FROM dbo.large WHERE id = 2")
		s.tagged("key and delete", "large -1", "large +3", "large -2")
	})

	// Each of these options changes how T-SQL works, or what may be written; the
	// trigger's statements run with the caller's.
	run("LegacyOptions", func(t *testing.T, s *site) {
		c := s.session()
		for _, option := range []string{"ANSI_WARNINGS OFF", "ARITHABORT OFF", "CONCAT_NULL_YIELDS_NULL OFF", "ANSI_NULLS OFF", "QUOTED_IDENTIFIER OFF", "ANSI_PADDING OFF",
			"ANSI_NULL_DFLT_ON OFF", "NUMERIC_ROUNDABORT ON", "XACT_ABORT ON", "DATEFORMAT dmy", "LANGUAGE French", "DATEFIRST 3", "TEXTSIZE 10"} {
			if _, err := c.ExecContext(t.Context(), "SET "+option); err != nil && !testdb.Babelfish(t) { // which does not know all
				t.Fatalf("SET %s: %v", option, err)
			}
		}
		long := strings.Repeat("x", 39) + " "
		s.in(c, "INSERT INTO dbo.legacy VALUES ('"+long+"', N'é', 1), ('it''s', N' ', NULL)", "UPDATE dbo.legacy SET v = NULL", "UPDATE dbo.legacy SET part = N'z' WHERE part = N'é'", "DELETE FROM dbo.legacy WHERE v IS NULL AND part = N' '")
		s.tagged("with legacy options", `legacy +["`+long+`","z"]`, `legacy -["`+long+`","é"]`, `legacy -["it's"," "]`)
		s.in(c, "UPDATE dbo.large SET id = 4", "DELETE FROM dbo.large", "INSERT INTO dbo.parents VALUES (50)", "EXEC dbo.GI_InstanceChanged '0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01', NULL, 'Instance Inserted', 'by hand'")
		s.tagged("with legacy options", "large -3", "large -4", "parents +50")
	})

	run("OthersTriggers", func(t *testing.T, s *site) {
		s.exec("INSERT INTO dbo.watched VALUES (1, 1), (2, 2)")
		s.tagged("a trigger that writes elsewhere", "watched +1", "watched +2", "audits +10")
		if _, err := s.db.ExecContext(t.Context(), "UPDATE dbo.watched SET v = 666 WHERE id = 1"); err == nil {
			t.Error("the trigger that rolls back let an update pass")
		}
		s.tagged("a trigger that rolls back")
		s.exec("INSERT INTO dbo.watched VALUES (3, -1)")
		s.touched("a trigger that deletes what was inserted", "watched 3")
		s.exec("UPDATE dbo.watched SET v = 103 WHERE id = 2")
		s.tagged("a trigger that writes its own table", "watched +2")
		s.exec("UPDATE dbo.watched SET v = 50 WHERE id = 2")
		s.touched("a trigger that moves the key", "watched 2", "watched -2")
		s.exec("INSERT INTO dbo.replaced VALUES (1, 1), (2, 0)")
		s.tagged("an INSTEAD OF trigger", "replaced +1001")
		s.exec("UPDATE dbo.replaced SET v = 3", "DELETE FROM dbo.replaced")
		s.tagged("an INSTEAD OF trigger for another action", "replaced -1001")
	})

	run("RecursiveTriggers", func(t *testing.T, s *site) {
		testdb.OnlySQLServer(t, "the database's option RECURSIVE_TRIGGERS")
		s.exec("ALTER DATABASE CURRENT SET RECURSIVE_TRIGGERS ON", "INSERT INTO dbo.watched VALUES (7, 105)")
		if got := s.list("SELECT CONVERT(varchar(9), v) FROM dbo.watched WHERE id = 7"); !slices.Equal(got, []string{"100"}) {
			t.Errorf("the trigger did not call itself: v is %v", got)
		}
		s.tagged("a trigger that calls itself", "watched +7")
		s.exec("ALTER DATABASE CURRENT SET RECURSIVE_TRIGGERS OFF")
	})

	run("Merge", func(t *testing.T, s *site) {
		testdb.OnlySQLServer(t, "MERGE")
		s.exec("DELETE FROM dbo.audits", "DELETE FROM dbo.InstanceChanges", "INSERT INTO dbo.audits VALUES (1), (2), (3)")
		s.tagged("inserts", "audits +1", "audits +2", "audits +3")
		merge := func(rows string) string {
			return "MERGE dbo.audits WITH (HOLDLOCK) AS a USING (VALUES " + rows + ") AS v (id, new) ON v.id = a.id WHEN MATCHED AND v.new IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET id = v.new WHEN NOT MATCHED THEN INSERT (id) VALUES (v.id);"
		}
		s.exec(merge("(1, NULL), (2, 20), (3, 3), (4, NULL)"))
		s.tagged("all three actions", "audits -1", "audits -2", "audits +20", "audits +3", "audits +4")
		s.exec(merge("(3, NULL), (9, NULL)"))
		s.tagged("without an update", "audits -3", "audits +9")
		s.exec("MERGE dbo.audits WITH (HOLDLOCK) AS a USING (VALUES (99)) AS v (id) ON v.id = a.id WHEN MATCHED THEN DELETE;")
		s.tagged("of no row")
		// Keys that change places: each is there again.
		s.exec("MERGE dbo.audits WITH (HOLDLOCK) AS a USING (VALUES (4, 9), (9, 4)) AS v (id, new) ON v.id = a.id WHEN MATCHED THEN UPDATE SET id = v.new;")
		s.tagged("keys that change places", "audits +4", "audits +9")
		s.exec("DELETE FROM dbo.audits", "DELETE FROM dbo.InstanceChanges")
	})

	run("Collations", func(t *testing.T, s *site) {
		s.exec("INSERT INTO dbo.cased VALUES (N'a', 1), (N'A', 2)", "DELETE FROM dbo.cased WHERE k = N'A'")
		s.tagged("a collation that tells case apart", "cased +a", "cased -A")
		s.exec("INSERT INTO dbo.caseless VALUES (N'a', 1)", "UPDATE dbo.caseless SET k = N'A'")
		s.tagged("a key that changes its case where case does not count", "caseless +A")
		s.exec("DELETE FROM dbo.caseless", "INSERT INTO dbo.caseless VALUES (N'a', 1)")
		s.tagged("a key that comes again in another case", "caseless +a")
	})

	run("ThreePartNames", func(t *testing.T, s *site) {
		testdb.OnlySQLServer(t, "triggers that run in their table's database")
		name := s.list("SELECT DB_NAME()")[0]
		c := s.session()
		s.in(c, "USE tempdb", fmt.Sprintf("INSERT INTO [%[1]s].dbo.audits VALUES (1), (2); UPDATE a SET id = 3 FROM [%[1]s].dbo.audits a WHERE a.id = 1; DELETE FROM [%[1]s]..audits WHERE id = 2", name), "USE ["+name+"]")
		s.tagged("by names of three parts, from another database", "audits -1", "audits -2", "audits +3")
		resolved, err := s.src.Resolve(t.Context(), []weir.CaptureSpec{{Table: weir.Table{Schema: name, Name: "dbo.audits"}}})
		if err != nil || resolved[0].Capture.Table != (weir.Table{Schema: "dbo", Name: "audits"}) {
			t.Errorf("%s.dbo.audits is captured as %+v, %v", name, resolved, err)
		}
	})
}

// TestTagging_Names: names that need quoting, of tables, columns and schemas.
func TestTagging_Names(t *testing.T) {
	names := []string{"it's", "select", "a b", "with.dot", "a;b--c"}
	if !testdb.Babelfish(t) { // whose catalog folds names, and which knows no ]], quote or letter of more than a byte in one
		names = append(names, `"quoted"`, "ünïcode", "br]ack[et", "Cased Name", "[x]", "日本", strings.Repeat("n", 128))
	}
	q := func(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" }
	var ddl []string
	var specs []weir.CaptureSpec
	for _, n := range names {
		ddl = append(ddl, fmt.Sprintf("CREATE TABLE dbo.%[1]s (%[1]s int NOT NULL PRIMARY KEY, v int NULL)", q(n)))
		specs = append(specs, weir.CaptureSpec{Table: weir.Table{Schema: "dbo", Name: n}})
	}
	s := captured(t, nil, ddl, specs...)
	for _, n := range names {
		s.exec(fmt.Sprintf("INSERT INTO dbo.%[1]s VALUES (1, 1), (2, 2); UPDATE dbo.%[1]s SET %[1]s = 3 WHERE %[1]s = 2; DELETE FROM dbo.%[1]s WHERE %[1]s = 1", q(n)))
		s.tagged(n, n+" -1", n+" -2", n+" +3")
	}
	for _, n := range names {
		s.exec(fmt.Sprintf("UPDATE dbo.%s SET v = 9", q(n)))
	}
	p, err := s.src.Claim(t.Context(), weir.ClaimRequest{PullGUID: weir.NewGUID(), Queue: weir.DefaultQueue, Name: "names", Puller: "test", Limit: 100, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.src.Read(t.Context(), p, weir.ReadRequest{Encoding: weir.EncodingText})
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, b := range r.Batch.Tables {
		if len(b.Items) == 1 && len(b.Items[0].Rows) == 1 && string(b.Items[0].Rows[0][0]) == "3" && string(b.Items[0].Rows[0][1]) == "9" {
			read[b.Capture.Table.Name] = true
		}
	}
	for _, n := range names {
		if !read[n] {
			t.Errorf("the row of %q was not read", n)
		}
	}
}
