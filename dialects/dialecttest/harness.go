package dialecttest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/triggers"
)

// null is how a NULL shows in [database.rows].
const null = "<null>"

// ident quotes a name as the SQL standard does.
func ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// database is a database as its user sees it.
type database struct {
	t   *testing.T
	e   Engine
	url string
	sql *sql.DB
}

func newDatabase(t *testing.T, e Engine) *database {
	t.Helper()
	d := &database{t: t, e: e, url: e.NewDatabase(t)}
	db, err := e.Connect(d.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	d.sql = db
	return d
}

// execer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func exec(t testing.TB, on execer, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := on.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%.300s: %v", s, err)
		}
	}
}

func (d *database) exec(statements ...string) {
	d.t.Helper()
	exec(d.t, d.sql, statements...)
}

func (d *database) execf(format string, args ...any) {
	d.t.Helper()
	d.exec(fmt.Sprintf(format, args...))
}

// begin starts a user's transaction. It is rolled back at the test's end if it
// is still open.
func (d *database) begin(level sql.IsolationLevel) *sql.Tx {
	d.t.Helper()
	tx, err := d.sql.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func commit(t testing.TB, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// rows returns a query's rows, the fields joined by bars.
func (d *database) rows(query string) []string {
	d.t.Helper()
	rows, err := d.sql.QueryContext(d.t.Context(), query)
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		d.t.Fatal(err)
	}
	out := []string{}
	for rows.Next() {
		fields := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range fields {
			dest[i] = &fields[i]
		}
		if err := rows.Scan(dest...); err != nil {
			d.t.Fatalf("%s: %v", query, err)
		}
		texts := make([]string, len(fields))
		for i, f := range fields {
			texts[i] = null
			if f.Valid {
				texts[i] = f.String
			}
		}
		out = append(out, strings.Join(texts, "|"))
	}
	if err := rows.Err(); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return out
}

// wantRows compares a query's rows, which it must order.
func (d *database) wantRows(query string, want ...string) {
	d.t.Helper()
	if got := d.rows(query); !slices.Equal(got, want) {
		d.t.Errorf("%s:\ngot  %q\nwant %q", query, got, want)
	}
}

func (d *database) table(name string) weir.Table { return weir.Table{Schema: d.e.Schema, Name: name} }

// source is a database with a source on it.
type source struct {
	*database
	Source
	ledger weir.GUID
}

// newSource makes a database, runs the statements in it, and opens a source
// with weir's tables in place.
func newSource(t *testing.T, e Engine, statements ...string) *source {
	t.Helper()
	d := newDatabase(t, e)
	d.exec(statements...)
	s := &source{database: d, Source: openSource(t, e, d.url), ledger: weir.NewGUID()}
	if _, err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func openSource(t *testing.T, e Engine, url string) Source {
	t.Helper()
	s, err := e.OpenSource(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// plain is the spec of a plain table.
func (s *source) plain(name string) weir.CaptureSpec { return weir.CaptureSpec{Table: s.table(name)} }

// apply installs the captures of the specs, and of no others.
func (s *source) apply(specs ...weir.CaptureSpec) {
	s.t.Helper()
	plan, _, err := triggers.PlanFor(s.t.Context(), s, specs)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := triggers.Apply(s.t.Context(), s, plan, nil); err != nil {
		s.t.Fatal(err)
	}
}

// capture returns an installed capture by its table and change type.
func (s *source) capture(name, changeType string) *weir.Capture {
	s.t.Helper()
	captures, err := s.Captures(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(captures, func(c *weir.Capture) bool { return c.Table.Name == name && c.ChangeType == changeType })
	if i < 0 {
		s.t.Fatalf("no capture of %s %q in %+v", name, changeType, captures)
	}
	return captures[i]
}

// fold empties the inbox.
func (s *source) fold() (moved int) {
	s.t.Helper()
	for {
		n, err := s.Fold(s.t.Context(), 10_000)
		if err != nil {
			s.t.Fatal(err)
		}
		if n == 0 {
			return moved
		}
		moved += n
	}
}

func (s *source) list(sel weir.QueueSelector) []weir.QueueRow {
	s.t.Helper()
	rows, err := s.List(s.t.Context(), sel)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// row returns the only change of an instance and type in the default queue.
func (s *source) row(instance weir.GUID, changeType string) weir.QueueRow {
	s.t.Helper()
	rows := s.list(weir.QueueSelector{InstanceGUID: instance, ChangeType: changeType})
	if len(rows) != 1 {
		s.t.Fatalf("instance %s has %d rows of type %q, want 1", instance, len(rows), changeType)
	}
	return rows[0]
}

func (s *source) status() *weir.Status {
	s.t.Helper()
	st, err := s.Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// queueStatus returns what Status says of one queue.
func (s *source) queueStatus(name string) weir.QueueStatus {
	s.t.Helper()
	for _, q := range s.status().Queues {
		if q.Queue == name {
			return q
		}
	}
	s.t.Fatalf("Status has no queue %q", name)
	return weir.QueueStatus{}
}

// wantEmpty fails unless neither queue nor inbox holds anything.
func (s *source) wantEmpty(why string) {
	s.t.Helper()
	st := s.status()
	if st.Inbox != 0 {
		s.t.Errorf("%s: the inbox holds %d tags, want none", why, st.Inbox)
	}
	for _, q := range st.Queues {
		if q.Depth != 0 {
			s.t.Errorf("%s: queue %s holds %d changes, want none", why, q.Queue, q.Depth)
		}
	}
}

// tags folds, and returns the default queue's changes as "type key", sorted.
func (s *source) tags() []string {
	s.t.Helper()
	s.fold()
	out := []string{}
	for _, r := range s.list(weir.QueueSelector{}) {
		out = append(out, r.ChangeType+" "+r.OldPrimaryKey)
	}
	slices.Sort(out)
	return out
}

func (s *source) wantTags(why string, want ...string) {
	s.t.Helper()
	slices.Sort(want)
	if got := s.tags(); !slices.Equal(got, want) {
		s.t.Errorf("%s: the queue holds\n%q, want\n%q", why, got, want)
	}
}

// request claims up to limit of the default queue, with a long lease.
func (s *source) request(limit int) weir.ClaimRequest {
	return weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "test", Queue: weir.DefaultQueue, Puller: "dialecttest", Ledger: s.ledger, Limit: limit, Lease: time.Hour}
}

func (s *source) claimBy(req weir.ClaimRequest) *weir.Pull {
	s.t.Helper()
	p, err := s.Claim(s.t.Context(), req)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *source) claim(limit int) *weir.Pull {
	s.t.Helper()
	return s.claimBy(s.request(limit))
}

// wantNothing fails unless a claim finds nothing.
func (s *source) wantNothing(why string) {
	s.t.Helper()
	p, err := s.Claim(s.t.Context(), s.request(1000))
	if !errors.Is(err, weir.ErrQueueEmpty) {
		s.t.Errorf("%s: Claim = %+v, %v, want ErrQueueEmpty", why, p, err)
	}
}

func (s *source) settle(pull weir.GUID) weir.SettleResult {
	s.t.Helper()
	r, err := s.Settle(s.t.Context(), pull)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *source) wantSettle(why string, pull weir.GUID, want weir.SettleResult) {
	s.t.Helper()
	if got := s.settle(pull); got != want {
		s.t.Errorf("%s: Settle = %+v, want %+v", why, got, want)
	}
}

func (s *source) release(pull weir.GUID) {
	s.t.Helper()
	if err := s.Release(s.t.Context(), pull); err != nil {
		s.t.Fatal(err)
	}
}

// read reads the pull in the neutral encoding, without a bound.
func (s *source) read(p *weir.Pull) *weir.ReadResult {
	s.t.Helper()
	r, err := s.Read(s.t.Context(), p, weir.ReadRequest{Encoding: weir.EncodingText})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(r.Rest) > 0 {
		s.t.Errorf("Read left %d changes out, though nothing bounds it", len(r.Rest))
	}
	return r
}

// take folds, claims all there is, reads it and settles it. It returns each
// item as "type table(key): row; row", sorted, and fails when a change of a
// row of its own does not say what the row's presence says.
func (s *source) take() []string {
	s.t.Helper()
	s.fold()
	out := []string{}
	for {
		p, err := s.Claim(s.t.Context(), s.request(10_000))
		if errors.Is(err, weir.ErrQueueEmpty) {
			slices.Sort(out)
			return out
		}
		if err != nil {
			s.t.Fatal(err)
		}
		r := s.read(p)
		for _, f := range r.Faults {
			s.t.Errorf("Read found the fault %v", f.Err)
		}
		n := 0
		for i := range r.Batch.Tables {
			for j := range r.Batch.Tables[i].Items {
				n++
				out = append(out, itemText(&r.Batch.Tables[i], j))
				it := &r.Batch.Tables[i].Items[j]
				if it.Change.ChangeType == weir.InstanceInserted && len(it.Rows) == 0 || it.Change.ChangeType == weir.InstanceDeleted && len(it.Rows) > 0 {
					s.t.Errorf("%s: the type does not agree with the row's presence", itemText(&r.Batch.Tables[i], j))
				}
			}
		}
		if n != len(p.Changes) {
			s.t.Errorf("Read found %d items of %d changes", n, len(p.Changes))
		}
		s.wantSettle("all that was claimed", p.PullGUID, weir.SettleResult{Settled: len(p.Changes), Done: true})
	}
}

func (s *source) wantTake(why string, want ...string) {
	s.t.Helper()
	slices.Sort(want)
	if want == nil {
		want = []string{}
	}
	if got := s.take(); !slices.Equal(got, want) {
		s.t.Errorf("%s: the queue brought\n%q, want\n%q", why, got, want)
	}
}

// itemText is an item for comparison.
func itemText(b *weir.TableBatch, i int) string {
	it := &b.Items[i]
	var rows []string
	for _, r := range it.Rows {
		rows = append(rows, fieldsText(r))
	}
	slices.Sort(rows)
	text := fmt.Sprintf("%s %s(%s)", it.Change.ChangeType, b.Capture.Table.Name, fieldsText(it.Key))
	if len(rows) > 0 {
		text += ": " + strings.Join(rows, "; ")
	}
	return text
}

func fieldsText(fields []weir.Field) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = null
		if f != nil {
			texts[i] = string(f)
		}
	}
	return strings.Join(texts, "|")
}

// target is a database with a target on it.
type target struct {
	*database
	weir.Target
}

func newTarget(t *testing.T, e Engine, opts weir.TargetOptions, statements ...string) *target {
	t.Helper()
	d := newDatabase(t, e)
	d.exec(statements...)
	return &target{database: d, Target: openTarget(t, e, d.url, opts)}
}

func openTarget(t *testing.T, e Engine, url string, opts weir.TargetOptions) weir.Target {
	t.Helper()
	tg, err := e.OpenTarget(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tg.Close(); err != nil {
			t.Error(err)
		}
	})
	return tg
}

func (tg *target) tryShip(b *weir.Batch) error {
	return tg.Ship(tg.t.Context(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: b})
}

func (tg *target) ship(b *weir.Batch) {
	tg.t.Helper()
	if err := tg.tryShip(b); err != nil {
		tg.t.Fatal(err)
	}
}

// encodings are those that a pull from one engine to another can use.
func encodings(from, to Engine, tg weir.Target) []weir.Encoding {
	if from.Name == to.Name && tg.Encoding() != weir.EncodingText {
		return []weir.Encoding{tg.Encoding(), weir.EncodingText}
	}
	return []weir.Encoding{weir.EncodingText}
}

// drain brings everything over, batch changes at a time, and expects no fault.
func drain(t *testing.T, s *source, tg *target, enc weir.Encoding, batch int) {
	t.Helper()
	s.fold()
	for {
		p, err := s.Claim(t.Context(), s.request(batch))
		if errors.Is(err, weir.ErrQueueEmpty) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Read(t.Context(), p, weir.ReadRequest{Encoding: enc})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Faults {
			t.Fatalf("Read found the fault %v", f.Err)
		}
		if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: p.PullGUID, Batch: r.Batch}); err != nil {
			t.Fatal(err)
		}
		s.settle(p.PullGUID)
	}
}

// as finds an error of a type, and fails the test without one.
func as[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v (%T), want a %T", err, err, e)
	}
	return e
}

// wantConfig fails unless err is a *weir.ConfigError with a hint.
func wantConfig(t *testing.T, what string, err error) *weir.ConfigError {
	t.Helper()
	var c *weir.ConfigError
	switch {
	case !errors.As(err, &c):
		t.Errorf("%s: the error is %v (%T), want a *weir.ConfigError", what, err, err)
		return &weir.ConfigError{}
	case c.Hint == "":
		t.Errorf("%s: %v has no hint", what, err)
	}
	return c
}

// eventually waits until done reports true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// expire waits until the pull's lease has run out.
func (s *source) expire(pull weir.GUID) {
	s.t.Helper()
	eventually(s.t, "the lease runs out", func() bool {
		list, err := s.Expired(s.t.Context(), "test", s.ledger)
		if err != nil {
			s.t.Fatal(err)
		}
		return slices.ContainsFunc(list, func(x weir.Expired) bool { return x.PullGUID == pull })
	})
}
