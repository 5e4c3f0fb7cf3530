package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/sqlserver"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// site is a database that had a queue, triggers and a puller before weir: every
// object is its own, and knows the queue's six columns only.
type site struct {
	testing.TB
	url string
	db  *sql.DB
	src *sqlserver.Source
}

const siteConcept = "6f9a5a5e-8d0f-4b86-9d2e-0f4c4f5d3b11"

var siteObjects = []string{
	`CREATE TABLE dbo.InstanceChanges (
    InstanceGUID  uniqueidentifier NOT NULL,
    ChangeType    varchar(40)      NOT NULL,
    ChangedOn     datetime2(7)     NOT NULL,
    PullGUID      uniqueidentifier NULL,
    ConceptGUID   uniqueidentifier NULL,
    OldPrimaryKey varchar(500)     NULL,
    CONSTRAINT PK_InstanceChanges PRIMARY KEY CLUSTERED (InstanceGUID ASC, ChangeType ASC)
        WITH (PAD_INDEX = OFF, STATISTICS_NORECOMPUTE = OFF, IGNORE_DUP_KEY = OFF, ALLOW_ROW_LOCKS = ON, ALLOW_PAGE_LOCKS = ON) ON [PRIMARY]
) ON [PRIMARY]`,
	"CREATE TABLE dbo.Articles (ArticleGUID uniqueidentifier NOT NULL PRIMARY KEY, Title nvarchar(100) NULL)",
	`CREATE TRIGGER dbo.SiteArticles ON dbo.Articles AFTER INSERT, UPDATE
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE q
    SET ChangedOn = SYSUTCDATETIME(), PullGUID = NULL
    FROM dbo.InstanceChanges q
    JOIN inserted i ON i.ArticleGUID = q.InstanceGUID
    WHERE q.ChangeType = 'Instance Inserted';
    INSERT INTO dbo.InstanceChanges (InstanceGUID, ChangeType, ChangedOn, PullGUID, ConceptGUID, OldPrimaryKey)
    SELECT i.ArticleGUID, 'Instance Inserted', SYSUTCDATETIME(), NULL, '` + siteConcept + `', NULL
    FROM inserted i
    WHERE NOT EXISTS (SELECT 1 FROM dbo.InstanceChanges q WHERE q.InstanceGUID = i.ArticleGUID AND q.ChangeType = 'Instance Inserted');
END`,
	`CREATE PROCEDURE dbo.GI_LogEvent @Severity int, @Text nvarchar(4000)
AS
    RAISERROR(@Text, @Severity, 1);`,
	`CREATE PROCEDURE dbo.SitePull @n int, @pull uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE TOP (@n) dbo.InstanceChanges SET PullGUID = @pull WHERE PullGUID IS NULL;
    SELECT CONVERT(varchar(36), q.InstanceGUID) FROM dbo.InstanceChanges q WHERE q.PullGUID = @pull;
END`,
	`CREATE PROCEDURE dbo.SiteDone @pull uniqueidentifier
AS
    DELETE FROM dbo.InstanceChanges WHERE PullGUID = @pull;`,
	"CREATE INDEX IX_Site ON dbo.InstanceChanges (ConceptGUID)",
}

func newSite(t testing.TB, statements ...string) *site {
	t.Helper()
	return newSiteWith(t, nil, statements...)
}

// newSiteWith is newSite in a database with settings.
func newSiteWith(t testing.TB, settings []string, statements ...string) *site {
	t.Helper()
	url := testdb.SQLServer(t, settings...)
	s := &site{TB: t, url: url}
	var err error
	if s.db, err = sql.Open("sqlserver", url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	s.exec(statements...)
	if s.src, err = sqlserver.OpenSource(context.Background(), url, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.src.Close() })
	return s
}

func (s *site) exec(statements ...string) {
	s.Helper()
	for _, text := range statements {
		if _, err := s.db.ExecContext(context.Background(), text); err != nil {
			s.Fatalf("%.100s: %v", text, err)
		}
	}
}

// list reads a query of one text a row.
func (s *site) list(query string, args ...any) []string {
	s.Helper()
	out, err := list(context.Background(), s.db, query, args...)
	if err != nil {
		s.Fatalf("%.100s: %v", query, err)
	}
	return out
}

func (s *site) same(what string, before, after []string) {
	s.Helper()
	if b, a := strings.Join(before, "\n"), strings.Join(after, "\n"); b != a {
		s.Errorf("%s were\n%s\nand are\n%s", what, b, a)
	}
}

// untouched: each object is there as it was, others may be there too.
func (s *site) untouched(before, after []string) {
	s.Helper()
	for _, o := range before {
		if !slices.Contains(after, o) {
			s.Errorf("the site's object is no longer as it was: %s", o)
		}
	}
}

// queued puts changes into the queue as the site's other code does.
func (s *site) queued(from, to int) {
	s.Helper()
	for i := from; i <= to; i++ {
		s.exec(fmt.Sprintf("INSERT INTO dbo.InstanceChanges (InstanceGUID, ChangeType, ChangedOn, PullGUID, ConceptGUID, OldPrimaryKey) VALUES ('00000000-0000-0000-0000-%012d', 'Instance Inserted', DATEADD(second, %d, '2024-01-01'), NULL, '%s', 'k%d')", i, i, siteConcept, i))
	}
}

// claim claims with weir, and returns the pull's GUID and the instances.
func (s *site) claim(limit int) (weir.GUID, []string) {
	s.Helper()
	pull := weir.NewGUID()
	p, err := s.src.Claim(context.Background(), weir.ClaimRequest{PullGUID: pull, Queue: weir.DefaultQueue, Name: "beside", Puller: "test", Limit: limit, Lease: time.Minute})
	if errors.Is(err, weir.ErrQueueEmpty) {
		return pull, nil
	}
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for _, c := range p.Changes {
		out = append(out, c.InstanceGUID.String())
	}
	return pull, out
}

func TestAdopt(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, append(siteObjects, "INSERT INTO dbo.InstanceChanges VALUES ('0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01', 'Instance Access Changed', '2024-05-06 07:08:09.123456', 'AAAAAAAA-70C5-4C7E-9B26-0E2E6C1B5A01', NULL, NULL)")...)
	s.queued(1, 3)
	rows := "SELECT CONCAT(CONVERT(varchar(36), InstanceGUID), '|', ChangeType, '|', CONVERT(varchar(30), ChangedOn, 121), '|', CONVERT(varchar(36), PullGUID), '|', CONVERT(varchar(36), ConceptGUID), '|', OldPrimaryKey) FROM dbo.InstanceChanges ORDER BY 1"
	columns := "SELECT CONCAT(LOWER(c.name), ' ', c.column_id, ' ', TYPE_NAME(c.user_type_id), '(', c.max_length, ',', c.scale, ') ', c.is_nullable) FROM sys.columns c WHERE c.object_id = OBJECT_ID('dbo.InstanceChanges') ORDER BY c.column_id"
	indexes := "SELECT CONCAT(i.name, ' ', i.is_primary_key, ' ', i.is_unique, ' ', i.type_desc, ' ', i.allow_page_locks, ' ', COL_NAME(k.object_id, k.column_id), ' ', k.key_ordinal) FROM sys.indexes i JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id WHERE i.object_id = OBJECT_ID('dbo.InstanceChanges') AND LOWER(i.name) NOT LIKE 'ix[_]gi%' ORDER BY 1"
	// The queue itself gets columns and an index, and the table a trigger, and so
	// perhaps another date.
	objects := "SELECT CONCAT(o.name, ' ', CONVERT(varchar(2), o.type), ' ', o.object_id, ' ', o.parent_object_id, ' ', CASE WHEN LOWER(o.name) IN ('instancechanges', 'articles') THEN '' ELSE CONVERT(varchar(30), o.modify_date, 121) END, ' ', m.definition) FROM sys.objects o LEFT JOIN sys.sql_modules m ON m.object_id = o.object_id WHERE o.schema_id = SCHEMA_ID('dbo') ORDER BY 1"
	rowsBefore, columnsBefore, indexesBefore, objectsBefore := s.list(rows), s.list(columns), s.list(indexes), s.list(objects)
	if len(rowsBefore) != 4 || len(columnsBefore) != 6 || len(indexesBefore) != 3 || len(objectsBefore) < 6 {
		t.Fatalf("the site has %d rows, %d columns, %d indexes and %d objects", len(rowsBefore), len(columnsBefore), len(indexesBefore), len(objectsBefore))
	}

	for range 2 { // init may be called again
		if _, err := s.src.Init(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s.same("the rows", rowsBefore, s.list(rows))
	s.same("the indexes", indexesBefore, s.list(indexes))
	s.untouched(objectsBefore, s.list(objects))
	all := s.list(columns)
	s.same("the six columns", columnsBefore, all[:6])
	if len(all) != 10 {
		t.Errorf("the queue has %d columns: %v", len(all), all)
	}
	for _, c := range all[6:] {
		if !strings.HasSuffix(c, " 1") {
			t.Errorf("column %s may not be null", c)
		}
	}

	// weir's capture on a table that has the site's trigger: both tag, one change.
	plan, _, err := triggers.PlanFor(ctx, s.src, []weir.CaptureSpec{{Table: weir.ParseTable("dbo.Articles"), InstanceGUID: "ArticleGUID", ConceptGUID: siteConcept}})
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, s.src, plan, nil); err != nil {
		t.Fatal(err)
	}
	s.untouched(objectsBefore, s.list(objects))
	s.exec("DELETE FROM dbo.InstanceChanges",
		"INSERT INTO dbo.Articles VALUES ('0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01', N'a'), ('0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A02', N'b')",
		"UPDATE dbo.Articles SET Title = N'c' WHERE ArticleGUID = '0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A02'",
		"DELETE FROM dbo.Articles WHERE ArticleGUID = '0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01'")
	s.same("the changes", []string{"01 Instance Deleted", "02 Instance Inserted"}, s.list("SELECT RIGHT(CONVERT(varchar(36), InstanceGUID), 2) + ' ' + ChangeType FROM dbo.InstanceChanges ORDER BY 1"))

	// weir leaves as it came.
	drop, err := triggers.PlanDrop(ctx, s.src, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, s.src, drop, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.src.Down(ctx); err != nil {
		t.Fatal(err)
	}
	s.same("the columns", columnsBefore, s.list(columns))
	s.same("the site's objects", objectsBefore, s.list(objects))
}

// TestAdopt_LogEvent: weir's GI_InstanceChanged tells the site's GI_LogEvent of
// what is wrong, where its parameters are one text or two; and raises its own
// error, whatever that one does.
func TestAdopt_LogEvent(t *testing.T) {
	const why = "weir: [dbo].[GI_InstanceChanged] cannot tag instance NULL, concept NULL, type Instance Inserted, old key NULL: an instance GUID and a change type are needed (error 51003)"
	for _, c := range []struct{ name, parameters, body, logged, raised string }{
		{"object and text", "@Object nvarchar(100), @Text nvarchar(max)", "INSERT INTO dbo.SiteLog (Line) VALUES (@Object + N' | ' + @Text)", "[dbo].[GI_InstanceChanged] | " + why, why},
		{"text", "@Text varchar(8000)", "INSERT INTO dbo.SiteLog (Line) VALUES (@Text)", why, why},
		{"fails", "@Object nvarchar(100), @Text nvarchar(max)", "RAISERROR(N'the log is full', 16, 1)", "", why + ". It is not logged: the log is full"},
		{"a number first", "@Severity int, @Text nvarchar(4000)", "INSERT INTO dbo.SiteLog (Line) VALUES (@Text)", "", why},
		{"three texts", "@A nvarchar(10), @B nvarchar(10), @C nvarchar(10)", "INSERT INTO dbo.SiteLog (Line) VALUES (@A)", "", why},
		{"gives back", "@Text nvarchar(4000), @Line nvarchar(10) OUTPUT", "INSERT INTO dbo.SiteLog (Line) VALUES (@Text)", "", why},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "CREATE TABLE dbo.SiteLog (Line nvarchar(max) NULL)", "CREATE PROCEDURE dbo.GI_LogEvent "+c.parameters+" AS "+c.body)
			definition := "SELECT CONCAT(o.object_id, ' ', m.definition) FROM sys.objects o JOIN sys.sql_modules m ON m.object_id = o.object_id WHERE o.object_id = OBJECT_ID('dbo.GI_LogEvent')"
			before := s.list(definition)
			for range 2 {
				if _, err := s.src.Init(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			s.same("the site's procedure", before, s.list(definition))
			// The caller catches the error, and commits.
			s.exec(`SET XACT_ABORT OFF;
BEGIN TRANSACTION;
DECLARE @raised nvarchar(max);
BEGIN TRY
    EXEC dbo.GI_InstanceChanged NULL, NULL, 'Instance Inserted';
END TRY
BEGIN CATCH
    SET @raised = ERROR_MESSAGE();
END CATCH;
INSERT INTO dbo.SiteLog (Line) VALUES (N'raised: ' + @raised);
COMMIT TRANSACTION;`)
			want := []string{"raised: " + c.raised}
			if c.logged != "" {
				want = append([]string{c.logged}, want...)
			}
			s.same("the log and the error", want, s.list("SELECT Line FROM dbo.SiteLog ORDER BY CASE WHEN Line LIKE N'raised:%' THEN 1 ELSE 0 END"))
		})
	}
}

// TestAdopt_InstanceChanged: the site's own GI_InstanceChanged stays, and weir
// pulls what it tags.
func TestAdopt_InstanceChanged(t *testing.T) {
	ctx := context.Background()
	const article = "0d5f1c1e-70c5-4c7e-9b26-0e2e6c1b5a01"
	s := newSite(t, siteObjects[0], siteObjects[1], "INSERT INTO dbo.Articles VALUES ('"+article+"', N'a')",
		`CREATE PROCEDURE dbo.GI_InstanceChanged @InstanceGUID uniqueidentifier, @ConceptGUID uniqueidentifier, @ChangeType varchar(40), @OldPrimaryKey varchar(500) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE dbo.InstanceChanges SET ChangedOn = SYSUTCDATETIME(), PullGUID = NULL WHERE InstanceGUID = @InstanceGUID AND ChangeType = @ChangeType;
    IF @@ROWCOUNT = 0
        INSERT INTO dbo.InstanceChanges (InstanceGUID, ChangeType, ChangedOn, PullGUID, ConceptGUID, OldPrimaryKey)
        VALUES (@InstanceGUID, @ChangeType, SYSUTCDATETIME(), NULL, @ConceptGUID, @OldPrimaryKey);
    RETURN 0;
END`)
	definition := "SELECT CONCAT(o.object_id, ' ', m.definition) FROM sys.objects o JOIN sys.sql_modules m ON m.object_id = o.object_id WHERE o.object_id = OBJECT_ID('dbo.GI_InstanceChanged')"
	before := s.list(definition)
	for range 2 {
		if _, err := s.src.Init(ctx); err != nil {
			t.Fatal(err)
		}
	}
	plan, _, err := triggers.PlanFor(ctx, s.src, []weir.CaptureSpec{{Table: weir.ParseTable("dbo.Articles"), InstanceGUID: "ArticleGUID", ConceptGUID: siteConcept}})
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, s.src, plan, nil); err != nil {
		t.Fatal(err)
	}
	tag := "EXEC dbo.GI_InstanceChanged '" + article + "', '" + siteConcept + "', 'Instance Inserted'"
	pull := func(what string) *weir.Pull {
		t.Helper()
		p, err := s.src.Claim(ctx, weir.ClaimRequest{PullGUID: weir.NewGUID(), Queue: weir.DefaultQueue, Name: "site", Puller: "test", Limit: 10, Lease: time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		r, err := s.src.Read(ctx, p, weir.ReadRequest{Encoding: weir.EncodingText})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(r.Batch.Tables) != 1 || len(r.Batch.Tables[0].Items) != 1 || len(r.Batch.Tables[0].Items[0].Rows) != 1 || string(r.Batch.Tables[0].Items[0].Rows[0][1]) != "a" {
			t.Errorf("%s: weir read %+v, want the article", what, r.Batch.Tables)
		}
		return p
	}
	s.exec(tag)
	first := pull("what the site tagged")
	s.exec(tag) // anew, while it is in flight
	if r, err := s.src.Settle(ctx, first.PullGUID); err != nil || r.Settled != 0 {
		t.Errorf("settle: %+v, %v, want the change kept that was tagged anew", r, err)
	}
	if _, err := s.src.Settle(ctx, pull("what it tagged anew").PullGUID); err != nil {
		t.Fatal(err)
	}
	s.same("the queue", nil, s.list("SELECT ChangeType FROM dbo.InstanceChanges"))

	drop, err := triggers.PlanDrop(ctx, s.src, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, s.src, drop, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.src.Down(ctx); err != nil {
		t.Fatal(err)
	}
	s.same("the site's procedure", before, s.list(definition))
	s.exec(tag)
}

// TestAdopt_OldPuller: the site's puller and weir's take no change from each
// other, one after the other and at the same time.
func TestAdopt_OldPuller(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, siteObjects...)
	if _, err := s.src.Init(ctx); err != nil {
		t.Fatal(err)
	}
	s.queued(1, 5)
	mine, weirs := s.claim(2)
	sites := s.list("EXEC dbo.SitePull @n = 10, @pull = '11111111-1111-1111-1111-111111111111'")
	if len(weirs) != 2 || len(sites) != 3 {
		t.Fatalf("weir has %v, the site's puller %v, want 2 and 3", weirs, sites)
	}
	if _, more := s.claim(10); more != nil {
		t.Errorf("weir took %v from the site's puller", more)
	}
	if err := s.src.Release(ctx, mine); err != nil {
		t.Fatal(err)
	}
	s.exec("EXEC dbo.SiteDone @pull = '11111111-1111-1111-1111-111111111111'")
	mine, again := s.claim(10)
	if len(again) != 2 {
		t.Fatalf("weir has %v, want the 2 that it had released", again)
	}
	if _, err := s.src.Settle(ctx, mine); err != nil {
		t.Fatal(err)
	}
	if left := s.list("SELECT ChangeType FROM dbo.InstanceChanges"); len(left) != 0 {
		t.Fatalf("left in the queue: %v", left)
	}

	const changes = 120
	s.queued(1, changes)
	var both sync.Map
	took := func(who string, list []string) {
		for _, instance := range list {
			if other, twice := both.LoadOrStore(strings.ToLower(instance), who); twice {
				t.Errorf("%s: %s took it, and %s", instance, other, who)
			}
		}
	}
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		for i := 0; ; i++ {
			pull := fmt.Sprintf("22222222-2222-2222-2222-%012d", i)
			got, err := list(ctx, s.db, "EXEC dbo.SitePull @n = 7, @pull = @p1", pull)
			if err == nil && len(got) == 0 {
				return
			}
			took("the site's puller", got)
			if err == nil {
				_, err = s.db.ExecContext(ctx, "EXEC dbo.SiteDone @pull = @p1", pull)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	go func() {
		defer wg.Done()
		for {
			pull := weir.NewGUID()
			p, err := s.src.Claim(ctx, weir.ClaimRequest{PullGUID: pull, Queue: weir.DefaultQueue, Name: "beside", Puller: "test", Limit: 5, Lease: time.Minute})
			var busy *weir.UnavailableError
			switch {
			case errors.Is(err, weir.ErrQueueEmpty):
				return
			case errors.As(err, &busy):
				continue
			case err != nil:
				t.Error(err)
				return
			}
			for _, c := range p.Changes {
				took("weir", []string{c.InstanceGUID.String()})
			}
			if _, err := s.src.Settle(ctx, pull); err != nil && !errors.As(err, &busy) {
				t.Error(err)
				return
			}
		}
	}()
	wg.Wait()
	n := 0
	both.Range(func(any, any) bool { n++; return true })
	if n != changes {
		t.Errorf("%d of %d changes were taken", n, changes)
	}
}

func TestAdopt_OtherShape(t *testing.T) {
	good := siteObjects[0]
	for _, c := range []struct{ name, from, to, want string }{
		{"other type", "ChangedOn     datetime2(7)     NOT NULL", "ChangedOn datetime NOT NULL", "ChangedOn is datetime not null and must be datetime2(7) not null"},
		{"too narrow", "ChangeType    varchar(40) ", "ChangeType varchar(20)", "ChangeType is varchar(20) not null and must be varchar(40) not null"},
		{"not null", "PullGUID      uniqueidentifier NULL", "PullGUID uniqueidentifier NOT NULL", "PullGUID is uniqueidentifier not null and must be uniqueidentifier null"},
		{"missing", "    OldPrimaryKey varchar(500)     NULL,\n", "", "OldPrimaryKey is missing"},
		{"other key", "(InstanceGUID ASC, ChangeType ASC)", "(InstanceGUID ASC)", "its primary key is not (InstanceGUID, ChangeType)"},
		{"no key", "PRIMARY KEY CLUSTERED", "UNIQUE CLUSTERED", "it has no primary key, which must be (InstanceGUID, ChangeType)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(good, c.from) {
				t.Fatalf("the table has no %q", c.from)
			}
			s := newSite(t, strings.Replace(good, c.from, c.to, 1))
			columns := "SELECT c.name FROM sys.columns c WHERE c.object_id = OBJECT_ID('dbo.InstanceChanges') ORDER BY c.column_id"
			before := s.list(columns)
			_, err := s.src.Init(context.Background())
			var config *weir.ConfigError
			if !errors.As(err, &config) || !strings.Contains(err.Error(), c.want) || config.Hint == "" {
				t.Errorf("init says %v, want %q and a hint", err, c.want)
			}
			s.same("the columns", before, s.list(columns))
			if made := s.list("SELECT name FROM sys.objects WHERE LOWER(name) LIKE 'gi[_]%' AND LOWER(name) <> 'gi_migrations' AND type IN ('U', 'P')"); len(made) > 0 {
				t.Errorf("init left %v behind", made)
			}
		})
	}
}

func list(ctx context.Context, db *sql.DB, query string, args ...any) ([]string, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}
