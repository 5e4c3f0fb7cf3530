package dialects_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/doctest"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/puller"
)

const sqlserverDoc = "../docs/sqlserver.md"

// handPuller is a SQL Server database as docs/sqlserver.md has it, and one session
// in which its examples run.
type handPuller struct {
	*database
	session *sql.Conn
}

func newHandPuller(t *testing.T) *handPuller {
	t.Helper()
	d := newDatabase(t, "sqlserver", "dbo")
	d.exec(t,
		"create table dbo.Customers (CustomerID int primary key, Name nvarchar(100))",
		"create table dbo.Documents (DocumentGUID uniqueidentifier not null primary key, Title nvarchar(100))",
		"create table dbo.Old (OldID int not null)",
		"insert into dbo.Documents values ('0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A01', N'Minutes of May'), ('0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A02', N'Minutes of June'), ('0D5F1C1E-70C5-4C7E-9B26-0E2E6C1B5A03', N'A letter')",
	)
	shop := *d
	shop.schema = "shop"
	l := newLine(t, d, &shop, puller.Config{},
		weir.CaptureSpec{Table: weir.ParseTable("dbo.Customers")},
		weir.CaptureSpec{Table: weir.ParseTable("dbo.Documents"), InstanceGUID: "DocumentGUID", ConceptGUID: "6F9A5A5E-8D0F-4B86-9D2E-0F4C4F5D3B11"})
	if _, err := l.target.Ledger(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "create table shop.Customers (CustomerID int primary key, Name nvarchar(100))")
	session, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return &handPuller{d, session}
}

// run runs an example of the document, where the pull's GUID ends with the given
// digits, as one batch.
func (b *handPuller) run(t *testing.T, name, pull string) {
	t.Helper()
	text := doctest.Example(t, sqlserverDoc, name)
	text = strings.NewReplacer("0C1D2E3F4A01", "0C1D2E3F4A"+pull, "0C1D2E3F4A02", "0C1D2E3F4A"+pull).Replace(text)
	if _, err := b.session.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("example %s: %v", name, err)
	}
}

// list joins the rows of a query of one text each.
func (d *database) list(t *testing.T, query string) string {
	t.Helper()
	rows, err := d.db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, ", ")
}

// queue has each change of Customers: its key, type, and which pull holds it.
func (b *handPuller) queue(t *testing.T, want string) {
	t.Helper()
	got := b.list(t, `select q.OldPrimaryKey + case q.ChangeType when 'Instance Inserted' then ' in' else ' out' end
		+ coalesce(' ' + lower(right(convert(varchar(36), q.PullGUID), 2)), '') + case when q.NotBefore is null then '' else ' later' end
		from dbo.InstanceChanges q where q.OldPrimaryKey is not null order by convert(int, q.OldPrimaryKey)`)
	if got != want {
		t.Errorf("the queue has %q, want %q", got, want)
	}
}

func (b *handPuller) pulls(t *testing.T, want string) {
	t.Helper()
	if got := b.list(t, "select lower(right(convert(varchar(36), PullGUID), 2)) + ' ' + State + ' ' + convert(varchar(9), [Rows]) from dbo.GI_Pulls order by 1"); got != want {
		t.Errorf("the live pulls are %q, want %q", got, want)
	}
}

func (b *handPuller) shop(t *testing.T, want string) {
	t.Helper()
	if got := b.list(t, "select convert(varchar(9), CustomerID) + ' ' + Name from shop.Customers order by CustomerID"); got != want {
		t.Errorf("the target has %q, want %q", got, want)
	}
}

// TestDocs_SQLServerByHand runs the examples of docs/sqlserver.md as they stand
// there, each step of a pull.
func TestDocs_SQLServerByHand(t *testing.T) {
	b := newHandPuller(t)
	b.exec(t, "insert into shop.Customers values (2, N'two'), (3, N'old')",
		"insert into dbo.Customers values (1, N'one'), (2, N'two'), (3, N'three'), (4, N'')",
		"delete from dbo.Customers where CustomerID = 2")
	b.run(t, "fold", "")
	b.queue(t, "1 in, 2 out, 3 in, 4 in")

	b.run(t, "begin", "01")
	b.queue(t, "1 in 01, 2 out 01, 3 in 01, 4 in 01")
	b.pulls(t, "01 claimed 4")
	lease := "select convert(varchar(9), datediff(second, ClaimedOn, LeaseUntil) / 60) from dbo.GI_Pulls"
	if got := b.list(t, lease); got != "5" {
		t.Errorf("the lease is %s minutes, want 5", got)
	}
	b.run(t, "read", "01")
	b.run(t, "extend", "01")
	if got := b.list(t, lease); got != "10" {
		t.Errorf("the lease is %s minutes after it was extended, want 10", got)
	}
	b.run(t, "postpone", "01")
	b.queue(t, "1 in 01, 2 out 01, 3 in 01, 4 in later")
	if got := b.list(t, "select LastError from dbo.GI_Failures"); got != "the name is empty" {
		t.Errorf("the reason kept is %q", got)
	}
	b.exec(t, "update dbo.Customers set Name = N'three again' where CustomerID = 3") // waits for the pull
	b.run(t, "ship", "01")
	b.shop(t, "1 one, 3 three")
	b.run(t, "complete", "01")
	b.queue(t, "3 in, 4 in later")
	b.pulls(t, "")

	// A pull is shipped once.
	if _, err := b.session.ExecContext(t.Context(), "select 1 as OldKey, 1 as CustomerID, N'x' as Name into #Batch"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.session.ExecContext(t.Context(), doctest.Example(t, sqlserverDoc, "ship")); err == nil {
		t.Error("a pull that the ledger has was shipped again")
	}
	b.shop(t, "1 one, 3 three")
	if _, err := b.session.ExecContext(t.Context(), "if @@trancount > 0 rollback; drop table #Batch"); err != nil {
		t.Fatal(err)
	}

	b.run(t, "begin", "02")
	b.queue(t, "3 in 02, 4 in later")
	b.run(t, "release", "02")
	b.queue(t, "3 in, 4 in later")
	b.pulls(t, "")

	// Two pulls whose pullers are gone: one had committed.
	b.run(t, "begin", "03")
	b.run(t, "read", "03")
	b.run(t, "ship", "03")
	b.exec(t, "insert into dbo.Customers values (5, N'five')")
	b.run(t, "fold", "")
	b.run(t, "begin", "04")
	b.queue(t, "3 in 03, 4 in later, 5 in 04")
	b.exec(t, "update dbo.GI_Pulls set LeaseUntil = dateadd(second, -1, sysutcdatetime())")
	b.run(t, "recover", "")
	b.queue(t, "4 in later, 5 in")
	b.pulls(t, "")
	b.shop(t, "1 one, 3 three again")
	if got := b.list(t, "select state + ' ' + right(convert(varchar(36), pull_guid), 2) from shop.weir_ledger order by 1"); got != "committed 01, committed 03, revoked 04" {
		t.Errorf("the ledger has %q", got)
	}
}

func TestDocs_SQLServerTags(t *testing.T) {
	b := newHandPuller(t)
	tags := func(want string) {
		t.Helper()
		if got := b.list(t, "select lower(right(convert(varchar(36), InstanceGUID), 2)) + ' ' + ChangeType from dbo.InstanceChanges order by 1"); got != want {
			t.Errorf("the queue has %q, want %q", got, want)
		}
	}
	b.run(t, "tag", "")
	tags("01 Instance Inserted")
	b.exec(t, "delete from dbo.InstanceChanges")
	b.run(t, "tag-many", "")
	tags("01 Instance Inserted, 02 Instance Inserted")
	b.exec(t, "delete from dbo.GI_Log")
	b.run(t, "log", "")
	if got := b.list(t, "select Object + ': ' + Message from dbo.GI_Log"); !strings.HasPrefix(got, "nightly import: weir: ") || !strings.Contains(got, "an instance GUID and a change type are needed") {
		t.Errorf("the log has %q", got)
	}
}

// TestDocs_SQLServerRights pulls as a login that has the rights of the document
// and no other.
func TestDocs_SQLServerRights(t *testing.T) {
	b := newHandPuller(t)
	login := "weir_test_puller_" + strings.TrimPrefix(b.list(t, "select convert(varchar(36), newid())"), "-")[:8]
	b.exec(t, "create login "+login+" with password = 'Pull-1t-by-hand'", "create user "+login+" for login "+login)
	t.Cleanup(func() {
		b.session.Close()
		ctx := context.WithoutCancel(t.Context())
		if _, err := b.db.ExecContext(ctx, "drop user "+login); err != nil && !testdb.Babelfish(t) { // which first wants its rights revoked
			t.Error(err)
		}
		if _, err := b.db.ExecContext(ctx, "drop login "+login); err != nil {
			t.Error(err)
		}
	})
	for _, grant := range strings.Split(strings.ReplaceAll(doctest.Example(t, sqlserverDoc, "rights"), "TO puller", "TO "+login), ";\n") {
		if testdb.Babelfish(t) { // to which a table type is a table
			grant = strings.Replace(grant, "EXECUTE ON TYPE::", "SELECT, INSERT ON ", 1)
		}
		if strings.TrimSpace(grant) != "" {
			b.exec(t, grant)
		}
	}
	b.exec(t, "grant select on dbo.Customers to "+login,
		"grant select, insert, update, delete on shop.Customers to "+login,
		"grant select, insert on shop.weir_ledger to "+login,
		"grant select on shop.weir_ledger_identity to "+login)
	for present := range strings.FieldsSeq(b.list(t, "select string_agg('GI_Capture_' + convert(varchar(12), CaptureID) + '_Present', ' ') from dbo.GI_Captures")) {
		b.exec(t, "grant execute on dbo."+present+" to "+login)
	}
	if testdb.Babelfish(t) {
		// It has no ownership chains: what the procedures reach by them.
		for _, table := range []string{"GI_Inbox", "GI_Folding", "GI_Pulls", "GI_Queues", "GI_Failures"} {
			b.exec(t, "grant select, insert, update, delete on dbo."+table+" to "+login)
		}
		b.exec(t, "grant execute on dbo.GI_EndPull to "+login)
	}
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(login, "Pull-1t-by-hand")
	db, err := sql.Open("sqlserver", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b.session.Close()
	if b.session, err = db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "insert into dbo.Customers values (1, N'one'), (2, N''), (3, N'three')",
		"insert into dbo.GI_Inbox (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID) select top (1) InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID from dbo.InstanceChanges")
	for _, step := range []string{"fold", "begin", "read", "extend", "postpone", "ship", "complete"} {
		b.run(t, step, "01")
	}
	b.queue(t, "2 in later")
	b.shop(t, "1 one, 3 three")
	b.exec(t, "insert into dbo.Customers values (4, N'four')")
	b.run(t, "begin", "02")
	b.run(t, "release", "02")
	b.run(t, "recover", "")
	b.queue(t, "2 in later, 4 in")
	if _, err := b.session.ExecContext(t.Context(), "delete from dbo.GI_Captures"); err == nil {
		t.Error("a right that the document does not give is there")
	}
}
