package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-cdc/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a source file, an application's connection to it, and weir's.
type fixture struct {
	t      testing.TB
	ctx    context.Context
	path   string
	app    *sql.DB
	source *Source
}

func newFixture(t testing.TB, ddl ...string) *fixture {
	t.Helper()
	path := filepath.Join(t.TempDir(), "source 1.db")
	app, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(path, " ", "%20")+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)&_pragma=synchronous(OFF)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	f := &fixture{t: t, ctx: t.Context(), path: path, app: app}
	f.exec("create table zz_unused (a)")
	for _, s := range ddl {
		f.exec(s)
	}
	if f.source, err = OpenSource(f.ctx, "sqlite:"+path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.source.Close() })
	if _, err := f.source.Init(f.ctx); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.app.Exec(sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

func (f *fixture) capture(specs ...weir.CaptureSpec) []weir.Resolved {
	f.t.Helper()
	list, err := f.source.Resolve(f.ctx, specs)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range list {
		var statements []string
		for _, o := range r.Objects {
			statements = append(statements, o.Create...)
		}
		if err := f.source.Apply(f.ctx, r.Capture.Table, statements); err != nil {
			f.t.Fatal(err)
		}
	}
	return list
}

func (f *fixture) plain(tables ...string) []weir.Resolved {
	f.t.Helper()
	var specs []weir.CaptureSpec
	for _, t := range tables {
		specs = append(specs, weir.CaptureSpec{Table: weir.Table{Name: t}})
	}
	return f.capture(specs...)
}

// queue lists "type key" of a queue's changes, sorted.
func (f *fixture) queue() []string {
	return f.strings("select change_type || ' ' || coalesce(old_primary_key, '-') from weir_instance_changes order by 1")
}

func (f *fixture) strings(query string, args ...any) []string {
	f.t.Helper()
	return queryStrings(f.t, f.app, query, args...)
}

func queryStrings(t testing.TB, db *sql.DB, query string, args ...any) []string {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s sql.NullString
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		if !s.Valid {
			s.String = "NULL"
		}
		out = append(out, s.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func (f *fixture) claim(limit int) *weir.Pull {
	f.t.Helper()
	p, err := f.source.Claim(f.ctx, f.request(limit))
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *fixture) request(limit int) weir.ClaimRequest {
	return weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "p", Queue: weir.DefaultQueue, Puller: "test", Ledger: weir.GUID{1}, Limit: limit, Lease: time.Minute}
}

func (f *fixture) read(p *weir.Pull, e weir.Encoding) *weir.ReadResult {
	f.t.Helper()
	r, err := f.source.Read(f.ctx, p, weir.ReadRequest{Encoding: e, MaxBytes: 1 << 30})
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

type sink struct {
	*Target
	t    testing.TB
	path string
	db   *sql.DB
}

func newSink(t testing.TB, opts weir.TargetOptions, ddl ...string) *sink {
	t.Helper()
	path := filepath.Join(t.TempDir(), "target.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, s := range ddl {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	target, err := OpenTarget(t.Context(), "sqlite://"+path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	return &sink{target, t, path, db}
}

func (s *sink) strings(query string, args ...any) []string {
	s.t.Helper()
	return queryStrings(s.t, s.db, query, args...)
}

// drain pulls until the queue is empty.
func (f *fixture) drain(s weir.Target) {
	f.t.Helper()
	for {
		for {
			n, err := f.source.Fold(f.ctx, 1000)
			if err != nil {
				f.t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
		p, err := f.source.Claim(f.ctx, f.request(1000))
		if err == weir.ErrQueueEmpty {
			return
		}
		if err != nil {
			f.t.Fatal(err)
		}
		r := f.read(p, s.Encoding())
		for _, x := range r.Faults {
			f.t.Fatalf("fault: %v", x.Err)
		}
		if err := s.Ship(f.ctx, weir.Shipment{PullGUID: p.PullGUID, Batch: r.Batch}); err != nil {
			f.t.Fatal(err)
		}
		if _, err := f.source.Settle(f.ctx, p.PullGUID); err != nil {
			f.t.Fatal(err)
		}
	}
}

// textTarget asks for neutral text.
type textTarget struct{ *sink }

func (textTarget) Encoding() weir.Encoding { return weir.EncodingText }

// dump writes a table's rows with storage classes, in the order of the key.
func dump(t *testing.T, db *sql.DB, table string, columns ...string) []string {
	var list []string
	for _, c := range columns {
		list = append(list, fmt.Sprintf("typeof(%s) || ' ' || quote(%s)", ident(c), ident(c)))
	}
	return queryStrings(t, db, "select "+strings.Join(list, " || ', ' || ")+" from "+ident(table)+" order by "+ident(columns[0]))
}
