package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/puller"
	"github.com/weir-cdc/weir/triggers"
)

func TestMain(m *testing.M) {
	os.Exit(testdb.Run(m))
}

// database is one side of a line, and how a test reads and writes it.
type database struct {
	engine string
	url    string
	schema string // of the user's tables; empty on SQLite
	db     *sql.DB
	proxy  *testdb.Proxy // nil on SQLite
	// pascal says that its names are spelled as SQL Server's users do: AlbumId
	// where others have album_id.
	pascal bool
	// lower says that pascal's names arrived in lower case, as the catalog of
	// Babelfish gives them.
	lower bool
}

func newDatabase(t *testing.T, engine, schema string) *database {
	t.Helper()
	d := &database{engine: engine, schema: schema}
	var err error
	switch engine {
	case "postgres":
		url := testdb.Postgres(t)
		d.proxy = testdb.NewProxy(t, url)
		d.url = d.proxy.URL()
		d.db, err = sql.Open("pgx", url)
	case "sqlite":
		d.url = testdb.SQLite(t)
		d.db, err = sql.Open("sqlite", "file:"+strings.TrimPrefix(d.url, "sqlite:")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
		d.schema = ""
	case "sqlserver":
		url := testdb.SQLServer(t, "ALLOW_SNAPSHOT_ISOLATION ON")
		d.proxy = testdb.NewProxy(t, url)
		d.url = d.proxy.URL()
		d.db, err = sql.Open("sqlserver", url)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.db.Close() })
	return d
}

func (d *database) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := d.db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %.200s: %v", d.engine, s, err)
		}
	}
}

// spelled is a name, or every name of two words in a statement, as the database
// has it.
func (d *database) spelled(sql string) string {
	if !d.pascal {
		return sql
	}
	return words.ReplaceAllStringFunc(sql, func(name string) string {
		var b strings.Builder
		for _, word := range strings.Split(name, "_") {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
		if d.lower {
			return strings.ToLower(b.String())
		}
		return b.String()
	})
}

var words = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)

func (d *database) name(table string) string {
	table = d.column(table)
	if d.schema == "" {
		return pgx.Identifier{table}.Sanitize()
	}
	return pgx.Identifier{d.schema, table}.Sanitize()
}

// away takes the database away and returns what brings it back: a server that
// refuses connections, a file that another process holds.
func (d *database) away(t *testing.T) (back func()) {
	t.Helper()
	if d.proxy != nil {
		d.proxy.Refuse()
		d.proxy.Cut()
		return d.proxy.Heal
	}
	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "begin exclusive"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), "rollback"); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}

// rows reads a table as sorted text, in the columns given.
func (d *database) rows(t *testing.T, table string, columns []string) []string {
	t.Helper()
	list := make([]string, len(columns))
	for i, c := range columns {
		c = pgx.Identifier{d.column(c)}.Sanitize()
		list[i] = "cast(" + c + " as text)"
		if d.engine == "sqlserver" {
			list[i] = "convert(nvarchar(max), " + c + ", 121)"
		}
	}
	rows, err := d.db.QueryContext(t.Context(), "select "+strings.Join(list, ", ")+" from "+d.name(table))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for i, v := range values {
			s := v.(*sql.NullString)
			fmt.Fprintf(&b, "%s=%q,%t ", columns[i], wholeSecond.ReplaceAllString(s.String, "$1"), s.Valid)
		}
		out = append(out, b.String())
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// wholeSecond is a time that engines write with and without a fraction.
var wholeSecond = regexp.MustCompile(`^([0-9-]{10} [0-9:]{8})\.0+$`)

// column is a column's or table's name as the database has it.
func (d *database) column(name string) string {
	if !d.pascal || d.lower {
		return d.spelled(name)
	}
	name = d.spelled(name)
	return strings.ToUpper(name[:1]) + name[1:]
}

// equalTables fails unless the tables hold the same rows on both sides.
func equalTables(t *testing.T, source, target *database, tables map[string][]string) {
	t.Helper()
	for table, columns := range tables {
		a, b := source.rows(t, table, columns), target.rows(t, table, columns)
		if len(a) != len(b) {
			t.Errorf("%s: %d rows at the source, %d at the target", table, len(a), len(b))
		}
		shown := 0
		for i := 0; i < min(len(a), len(b)) && shown < 3; i++ {
			if a[i] != b[i] {
				t.Errorf("%s differs:\n source %s\n target %s", table, a[i], b[i])
				shown++
			}
		}
	}
}

// line is a source with captures, a target, and a puller between them.
type line struct {
	source dialects.Source
	target weir.Target
	puller *puller.Puller
}

func newLine(t *testing.T, from, to *database, cfg puller.Config, specs ...weir.CaptureSpec) *line {
	t.Helper()
	l := openLineWith(t, from, to, cfg)
	if _, err := l.source.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.capture(t, specs...)
	return l
}

// openLine opens what is installed already.
func openLine(t *testing.T, from, to *database) *line {
	t.Helper()
	return openLineWith(t, from, to, puller.Config{})
}

func openLineWith(t *testing.T, from, to *database, cfg puller.Config) *line {
	t.Helper()
	ctx := t.Context()
	l := &line{}
	var err error
	if l.source, err = dialects.OpenSource(ctx, from.url, dialects.SourceOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.source.Close() })
	if l.target, err = dialects.OpenTarget(ctx, to.url, weir.TargetOptions{Schema: to.schema}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.target.Close() })
	cfg.Name = "line"
	if l.puller, err = puller.New(l.source, l.target, cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return l
}

// capture installs the captures; a second plan must be empty.
func (l *line) capture(t *testing.T, specs ...weir.CaptureSpec) {
	t.Helper()
	plan, _, err := triggers.PlanFor(t.Context(), l.source, specs)
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(t.Context(), l.source, plan, nil); err != nil {
		t.Fatal(err)
	}
	if plan, _, err = triggers.PlanFor(t.Context(), l.source, specs); err != nil {
		t.Fatalf("plan after apply: %v", err)
	}
	if len(plan.Steps) != 0 {
		t.Fatalf("plan after apply: %+v", plan.Steps)
	}
}

func (l *line) backfill(t *testing.T) int64 {
	t.Helper()
	captures, err := l.source.Captures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, c := range captures {
		at, err := puller.Backfill(t.Context(), l.source, c.ID, 700, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		n += at.Tagged
	}
	return n
}

func (l *line) drain(t *testing.T) puller.Result {
	t.Helper()
	r, err := l.puller.Drain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// left is what waits at the source.
func (l *line) left(t *testing.T) int64 {
	t.Helper()
	s, err := l.source.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := s.Inbox + int64(len(s.Pulls))
	for _, q := range s.Queues {
		n += q.Depth
	}
	return n
}

// The Chinook tables, with the columns that are compared.
var chinook = map[string][]string{
	"album":          {"album_id", "title", "artist_id"},
	"artist":         {"artist_id", "name"},
	"customer":       {"customer_id", "first_name", "last_name", "company", "address", "city", "state", "country", "postal_code", "phone", "fax", "email", "support_rep_id"},
	"employee":       {"employee_id", "last_name", "first_name", "title", "reports_to", "birth_date", "hire_date", "address", "city", "email"},
	"genre":          {"genre_id", "name"},
	"invoice":        {"invoice_id", "customer_id", "invoice_date", "billing_address", "billing_city", "total"},
	"invoice_line":   {"invoice_line_id", "invoice_id", "track_id", "unit_price", "quantity"},
	"media_type":     {"media_type_id", "name"},
	"playlist":       {"playlist_id", "name"},
	"playlist_track": {"playlist_id", "track_id"},
	"track":          {"track_id", "name", "album_id", "media_type_id", "genre_id", "composer", "milliseconds", "bytes", "unit_price"},
}

func chinookSpecs(d *database) []weir.CaptureSpec {
	var specs []weir.CaptureSpec
	for table := range chinook {
		specs = append(specs, weir.CaptureSpec{Table: weir.Table{Schema: d.schema, Name: d.column(table)}})
	}
	slices.SortFunc(specs, func(a, b weir.CaptureSpec) int { return strings.Compare(a.Table.Name, b.Table.Name) })
	return specs
}

// loadChinook runs the script but for what concerns whole databases.
func loadChinook(t *testing.T, d *database) {
	t.Helper()
	text, err := os.ReadFile("../testdata/chinook/Chinook_PostgreSql.sql")
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, l := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(l, "DROP DATABASE") || strings.HasPrefix(l, "CREATE DATABASE") || strings.HasPrefix(l, `\c `) {
			continue
		}
		kept = append(kept, l)
	}
	d.exec(t, strings.Join(kept, "\n"))
}

// chinookRows is how many rows the tables have.
const chinookRows = 15607

// TestLine_Chinook takes a real database from Postgres to Postgres, from there to
// SQLite, and from SQLite to Postgres: backfill, changes, an outage of each side
// with changes meanwhile, equality and an empty queue.
func TestLine_Chinook(t *testing.T) {
	first := newDatabase(t, "postgres", "public")
	loadChinook(t, first)
	chain := []*database{first, newDatabase(t, "postgres", "copy"), newDatabase(t, "sqlite", ""), newDatabase(t, "postgres", "again")}
	for i := range len(chain) - 1 {
		from, to := chain[i], chain[i+1]
		t.Run(from.engine+" to "+to.engine, func(t *testing.T) { chinookLine(t, from, to, i) })
	}
}

// chinookLine takes the database over one line; hop tells lines of one source
// apart.
func chinookLine(t *testing.T, from, to *database, hop int) {
	l := newLine(t, from, to, puller.Config{Batch: 2000}, chinookSpecs(from)...)
	if n := l.backfill(t); hop == 0 && n != chinookRows {
		t.Errorf("backfill tagged %d rows, want %d", n, chinookRows)
	}
	if r := l.drain(t); hop == 0 && r.Upserted != chinookRows {
		t.Errorf("shipped %d rows, want %d", r.Upserted, chinookRows)
	}
	equalTables(t, from, to, chinook)

	changeChinook(t, from, hop*1000+1)
	l.drain(t)
	equalTables(t, from, to, chinook)

	back := to.away(t)
	changeChinook(t, from, hop*1000+2)
	_, err := l.puller.Drain(t.Context())
	var u *weir.UnavailableError
	if !errors.As(err, &u) || u.Side != weir.AtTarget {
		t.Errorf("drain without its target: %v, want *weir.UnavailableError at the target", err)
	}
	changeChinook(t, from, hop*1000+3)
	back()
	drainAll(t, l)
	equalTables(t, from, to, chinook)

	changeChinook(t, from, hop*1000+4)
	back = from.away(t)
	if _, err := l.puller.Drain(t.Context()); !errors.As(err, &u) || u.Side != weir.AtSource {
		t.Errorf("drain without its source: %v, want *weir.UnavailableError at the source", err)
	}
	back()
	changeChinook(t, from, hop*1000+5)
	drainAll(t, l)
	equalTables(t, from, to, chinook)
	if n := l.left(t); n != 0 {
		t.Errorf("%d changes and pulls are left", n)
	}
	if found := l.verify(t); len(found) > 0 {
		t.Errorf("verify finds these to differ: %q", found)
	}
}

// drainAll drains until nothing waits; pulls that an outage left over are
// recovered when their leases end.
func drainAll(t *testing.T, l *line) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		_, err := l.puller.Drain(t.Context())
		var u *weir.UnavailableError
		if err != nil && !errors.As(err, &u) {
			t.Fatal(err)
		}
		if err == nil && l.left(t) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s, _ := l.source.Status(t.Context())
			t.Fatalf("changes are left: %+v (last error %v)", s, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			return
		}
	}
}

// changeChinook inserts, updates, changes keys and deletes; n tells calls apart.
func changeChinook(t *testing.T, d *database, n int) {
	t.Helper()
	id := 100000 + n*10
	national, concat := "", "||"
	if d.engine == "sqlserver" {
		national, concat = "N", "+"
	}
	for _, statement := range []string{
		fmt.Sprintf("insert into %s (artist_id, name) values (%d, %s'Ærøskøbing ''%d'' 🎸'), (%d, null)", d.name("artist"), id, national, n, id+1),
		fmt.Sprintf("insert into %s (album_id, title, artist_id) values (%d, 'first', %d), (%d, '', %d)", d.name("album"), id, id, id+1, id+1),
		fmt.Sprintf("update %s set album_id = album_id + 5, title = 'moved' where album_id = %d", d.name("album"), id),
		fmt.Sprintf("update %s set unit_price = unit_price + 0.01, composer = null where track_id %% 97 = %d", d.name("track"), n%97),
		fmt.Sprintf("update %s set total = total + 1, billing_city = billing_city %s ' ' where invoice_id %% 50 = %d", d.name("invoice"), concat, n%50),
		fmt.Sprintf("delete from %s where track_id %% 500 = %d", d.name("playlist_track"), n%500),
		fmt.Sprintf("insert into %s (playlist_id, track_id) select 18, track_id from %s where track_id %% 333 = %d and track_id not in (select track_id from %s where playlist_id = 18)",
			d.name("playlist_track"), d.name("track"), n%333, d.name("playlist_track")),
		fmt.Sprintf("delete from %s where invoice_line_id %% 400 = %d", d.name("invoice_line"), n%400),
	} {
		d.exec(t, d.spelled(statement))
	}
}
