package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// world is a source and a user's session at its database.
type world struct {
	testing.TB
	url  string
	src  *postgres.Source
	user *pgx.Conn
}

func newWorld(t testing.TB, ddl ...string) *world {
	t.Helper()
	return worldAt(t, testdb.Postgres(t), "", ddl...)
}

// worldAt initialises weir in a schema of a database that is there.
func worldAt(t testing.TB, url, schema string, ddl ...string) *world {
	t.Helper()
	w := &world{TB: t, url: url}
	w.user = w.session(url)
	for _, sql := range ddl {
		w.exec(sql)
	}
	w.src = openSource(t, url, schema)
	if _, err := w.src.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	return w
}

func openSource(t testing.TB, url, schema string) *postgres.Source {
	t.Helper()
	src, err := postgres.OpenSource(context.Background(), url, schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// session opens a session as an application would: simple protocol, so that
// several statements may be one text.
func (w *world) session(url string) *pgx.Conn {
	w.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		w.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

func (w *world) exec(sql string) { w.Helper(); w.on(w.user, sql) }

func (w *world) on(c *pgx.Conn, sql string) {
	w.Helper()
	if err := try(c, sql); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

func try(c *pgx.Conn, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := c.Exec(ctx, sql)
	return err
}

// refused runs a statement that must fail with a SQLSTATE.
func (w *world) refused(c *pgx.Conn, state, sql string) *pgconn.PgError {
	w.Helper()
	err := try(c, sql)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != state {
		w.Fatalf("%s: %v, want SQLSTATE %s", sql, err, state)
	}
	return pg
}

// ask reads one column of a query.
func ask[T any](w *world, sql string, args ...any) []T {
	w.Helper()
	rows, err := w.user.Query(context.Background(), sql, args...)
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return list
}

func one[T any](w *world, sql string, args ...any) T {
	w.Helper()
	list := ask[T](w, sql, args...)
	if len(list) != 1 {
		w.Fatalf("%s: %d rows, want 1", sql, len(list))
	}
	return list[0]
}

// install captures what the specs say, beside what is captured already.
func (w *world) install(specs ...weir.CaptureSpec) []weir.Resolved {
	w.Helper()
	list, err := w.src.Resolve(context.Background(), specs)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range list {
		var sql []string
		for _, o := range r.Objects {
			sql = append(sql, o.Create...)
		}
		if err := w.src.Apply(context.Background(), r.Capture.Table, sql); err != nil {
			w.Fatal(err)
		}
	}
	return list
}

// plan compares the specs with all that is installed.
func (w *world) plan(specs ...weir.CaptureSpec) *triggers.Plan {
	w.Helper()
	p, _, err := triggers.PlanFor(context.Background(), w.src, specs)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// apply carries out what plan says.
func (w *world) apply(specs ...weir.CaptureSpec) {
	w.Helper()
	if err := triggers.Apply(context.Background(), w.src, w.plan(specs...), nil); err != nil {
		w.Fatal(err)
	}
	if p := w.plan(specs...); !p.Empty() {
		w.Fatalf("after apply there is still to do:\n%s", p.SQL())
	}
}

func plain(schema, name string) weir.CaptureSpec {
	return weir.CaptureSpec{Table: weir.Table{Schema: schema, Name: name}}
}

// fold moves all of the inbox.
func (w *world) fold() {
	w.Helper()
	for range 200 {
		if _, err := w.src.Fold(context.Background(), 10_000); err != nil {
			w.Fatal(err)
		}
		if one[int64](w, "select count(*) from weir.inbox") == 0 {
			return
		}
	}
	w.Fatal("the inbox does not get empty")
}

// took returns what is queued, in order, and empties the queue: "I key" for
// Instance Inserted, "D key" for Instance Deleted.
func (w *world) took() []string {
	w.Helper()
	w.fold()
	list := ask[string](w, `with gone as (delete from weir.instance_changes returning *)
		select case change_type when 'Instance Inserted' then 'I' when 'Instance Deleted' then 'D' else change_type end
			|| ' ' || coalesce(old_primary_key, instance_guid::text) from gone`)
	slices.Sort(list)
	return list
}

// wantTook compares what is queued, and nothing but that.
func (w *world) wantTook(why string, want ...string) {
	w.Helper()
	slices.Sort(want)
	if got := w.took(); !slices.Equal(got, want) {
		w.Errorf("%s: queued\n  %s\nwant\n  %s", why, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func (w *world) claim(limit int) *weir.Pull {
	w.Helper()
	p, err := w.src.Claim(context.Background(), claimRequest(limit))
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func claimRequest(limit int) weir.ClaimRequest {
	return weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "test", Queue: weir.DefaultQueue, Puller: "test", Ledger: weir.GUID{1}, Limit: limit, Lease: time.Minute}
}

// read claims all that is queued and reads it: one text per item, "key: row" or
// "key: gone", in order.
func (w *world) read() ([]string, error) {
	w.Helper()
	w.fold()
	p := w.claim(100_000)
	defer func() {
		if _, err := w.src.Settle(context.Background(), p.PullGUID); err != nil {
			w.Error(err)
		}
	}()
	res, err := w.src.Read(context.Background(), p, weir.ReadRequest{Encoding: weir.EncodingText})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range res.Faults {
		w.Errorf("%s cannot be read: %v", f.Change.OldPrimaryKey, f.Err)
	}
	for _, b := range res.Batch.Tables {
		for _, it := range b.Items {
			text := joinFields(it.Key) + ":"
			for _, row := range it.Rows {
				text += " " + joinFields(row)
			}
			if len(it.Rows) == 0 {
				text += " gone"
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out, nil
}

func joinFields(fields []weir.Field) string {
	var texts []string
	for _, f := range fields {
		if f == nil {
			texts = append(texts, "null")
		} else {
			texts = append(texts, string(f))
		}
	}
	return strings.Join(texts, ",")
}

// drift asserts that an error is a *weir.DriftError that speaks of something.
func drift(t testing.TB, err error, of string) *weir.DriftError {
	t.Helper()
	var d *weir.DriftError
	if !errors.As(err, &d) || !strings.Contains(d.Error(), of) {
		t.Fatalf("%v, want a *weir.DriftError about %q", err, of)
	}
	return d
}

func numbers(format string, from, to int) (list []string) {
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprintf(format, i))
	}
	return list
}
