package dialecttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

var backfillTests = []test{
	{"Chunks", testBackfillChunks},
	{"Resume", testBackfillResume},
	{"Restart", testBackfillRestart},
	{"Forgotten", testBackfillForgotten},
	{"Keys", testBackfillKeys},
	{"Deletes", testBackfillDeletes},
	{"Kinds", testBackfillKinds},
	{"Unknown", testBackfillUnknown},
}

func (s *source) backfill(from Source, id int32, limit int, restart bool) weir.BackfillProgress {
	s.t.Helper()
	p, err := from.Backfill(s.t.Context(), id, limit, restart)
	if err != nil {
		s.t.Fatal(err)
	}
	if p.CaptureID != id {
		s.t.Errorf("Backfill of capture %d reports %+v", id, p)
	}
	return p
}

// backfillAll goes on until the backfill is done.
func (s *source) backfillAll(id int32, limit int) weir.BackfillProgress {
	s.t.Helper()
	for range 100 {
		if p := s.backfill(s, id, limit, false); p.Done {
			return p
		}
	}
	s.t.Fatal("100 chunks, and the backfill is not done")
	return weir.BackfillProgress{}
}

// existing makes a source whose rows, keys first to last, are older than their
// capture.
func existing(t *testing.T, e Engine, first, last int) *source {
	t.Helper()
	var values []string
	for i := first; i <= last; i++ {
		values = append(values, fmt.Sprintf("(%d, 'old')", i))
	}
	s := newSource(t, e, append(threeTables(e), "insert into orders values "+strings.Join(values, ", "))...)
	s.apply(s.plain("orders"))
	s.wantEmpty("rows that were there before")
	return s
}

func testBackfillChunks(t *testing.T, e Engine) {
	s := existing(t, e, -12, 12)
	id := s.capture("orders", "").ID
	var tags []string
	next := -12
	for i, want := range []weir.BackfillProgress{{Tagged: 10}, {Tagged: 20}, {Tagged: 25, Done: true}, {Tagged: 25, Done: true}} {
		p := s.backfill(s, id, 10, false)
		if p.Tagged != want.Tagged || p.Done != want.Done || p.Table != s.table("orders") || p.Estimate < 0 {
			t.Errorf("step %d: Backfill = %+v, want %d tagged, done %t", i, p, want.Tagged, want.Done)
		}
		for ; next < -12+int(want.Tagged); next++ {
			tags = append(tags, fmt.Sprintf("Instance Inserted %d", next))
		}
		s.wantTags(fmt.Sprintf("step %d, in the order of the key", i), slices.Clone(tags)...)
	}
	if got := s.take(); len(got) != 25 {
		t.Errorf("the backfill brought %d rows, want 25", len(got))
	}

	// A number of rows that the chunks divide.
	s = existing(t, e, 1, 20)
	id = s.capture("orders", "").ID
	s.backfill(s, id, 10, false)
	p := s.backfill(s, id, 10, false)
	if !p.Done {
		p = s.backfill(s, id, 10, false)
	}
	if p.Tagged != 20 || !p.Done {
		t.Errorf("Backfill of 20 rows ends with %+v", p)
	}
	// No rows.
	s = newSource(t, e, threeTables(e)...)
	s.apply(s.plain("orders"))
	if p := s.backfill(s, s.capture("orders", "").ID, 10, false); p.Tagged != 0 || !p.Done {
		t.Errorf("Backfill of an empty table = %+v, want done", p)
	}
}

func testBackfillResume(t *testing.T, e Engine) {
	s := existing(t, e, 1, 25)
	id := s.capture("orders", "").ID
	s.backfill(s, id, 10, false)
	other := openSource(t, e, s.url)
	if p := s.backfill(other, id, 10, false); p.Tagged != 20 || p.Done {
		t.Errorf("Backfill by another process = %+v, want 20 tagged", p)
	}
	// Rows that come behind the place reached are found; those before it have
	// triggers.
	s.exec("insert into orders values (0, 'new'), (26, 'new')")
	if p := s.backfill(s, id, 10, false); p.Tagged != 26 || !p.Done {
		t.Errorf("the last Backfill = %+v, want 26 tagged and done", p)
	}
	if got := s.take(); len(got) != 27 {
		t.Errorf("the queue brought %d rows, want 27", len(got))
	}
}

func testBackfillRestart(t *testing.T, e Engine) {
	s := existing(t, e, 1, 15)
	id := s.capture("orders", "").ID
	s.backfill(s, id, 10, false)
	s.take()
	if p := s.backfill(s, id, 10, true); p.Tagged != 10 || p.Done {
		t.Errorf("Backfill begun anew = %+v, want 10 tagged", p)
	}
	s.wantTags("begun anew", numberedFrom("Instance Inserted %d", 1, 10)...)
	if p := s.backfill(s, id, 10, false); p.Tagged != 15 || !p.Done {
		t.Errorf("Backfill = %+v, want 15 tagged and done", p)
	}
	s.take()
	if p := s.backfill(s, id, 100, true); p.Tagged != 15 || !p.Done {
		t.Errorf("a finished Backfill begun anew = %+v, want 15 tagged and done", p)
	}
	if got := s.take(); len(got) != 15 {
		t.Errorf("the queue brought %d rows, want 15", len(got))
	}
}

// testBackfillForgotten: what was installed anew has rows that no trigger tagged,
// and the next backfill tags them without being told to begin anew.
func testBackfillForgotten(t *testing.T, e Engine) {
	s := existing(t, e, 1, 15)
	id := s.capture("orders", "").ID
	from := s.status().Now
	s.backfillAll(id, 100)
	to := s.status().Now
	s.take()
	if p := s.backfill(s, id, 100, false); p.Tagged != 15 || !p.Done || !p.Before || p.DoneOn.Before(from.Add(-time.Millisecond)) || p.DoneOn.After(to.Add(time.Millisecond)) {
		t.Errorf("Backfill of one that is done = %+v, want 15 tagged before, between %s and %s", p, from, to)
	}
	s.wantEmpty("a backfill that was done before")

	installed, err := s.Installed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	isTrigger := func(o weir.Object) bool { return o.Kind == weir.Trigger }
	i := slices.IndexFunc(installed, func(o weir.Object) bool { return isTrigger(o) && strings.Contains(o.Name, "insert") })
	if i < 0 { // one trigger for all
		i = slices.IndexFunc(installed, isTrigger)
	}
	s.exec(installed[i].Drop...)
	s.exec("insert into orders values (16, 'missed')")
	s.apply(s.plain("orders"))
	if p := s.backfill(s, id, 100, false); p.Tagged != 16 || !p.Done || p.Before {
		t.Errorf("Backfill after a trigger was missing = %+v, want 16 tagged", p)
	}
	s.take()

	spec := s.plain("orders")
	spec.Queues = []string{weir.DefaultQueue, "more"}
	s.apply(spec)
	if p := s.backfill(s, id, 100, false); p.Tagged != 16 || !p.Done || p.Before {
		t.Errorf("Backfill for another queue = %+v, want 16 tagged", p)
	}
}

func numberedFrom(format string, from, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, from+i))
	}
	return out
}

func testBackfillKeys(t *testing.T, e Engine) {
	for _, shape := range keyShapes(e) {
		s := newSource(t, e, fmt.Sprintf("create table shapes (%s)", shape.columns))
		var values, want []string
		for _, k := range shape.keys {
			values = append(values, fmt.Sprintf("(%s, 1)", k.literals))
			want = append(want, fmt.Sprintf("Instance Inserted shapes(%s): %s|1", k.neutral, k.neutral))
		}
		s.exec("insert into shapes values " + strings.Join(values, ", "))
		s.apply(s.plain("shapes"))
		id := s.capture("shapes", "").ID
		if p := s.backfillAll(id, 3); p.Tagged != int64(len(shape.keys)) {
			t.Errorf("%s: Backfill ends with %+v, want %d tagged", shape.name, p, len(shape.keys))
		}
		backfilled := s.guids(s.capture("shapes", ""))
		s.wantTake(shape.name, want...)
		// The trigger names the same instances.
		s.exec("update shapes set v = v")
		for k, g := range s.guids(s.capture("shapes", "")) {
			if backfilled[k] != g {
				t.Errorf("%s: key %q is %s by the backfill and %s by the trigger", shape.name, k, backfilled[k], g)
			}
		}
	}
}

func testBackfillDeletes(t *testing.T, e Engine) {
	s := existing(t, e, 1, 20)
	id := s.capture("orders", "").ID
	s.backfill(s, id, 10, false)
	// Tagged and not folded, folded and not shipped, not reached.
	s.exec("delete from orders where id in (3, 10, 11, 20)", "update orders set id = 30 where id = 4", "update orders set id = 104 where id = 12")
	s.backfillAll(id, 10)
	s.fold()
	s.exec("delete from orders where id = 5")
	var want []string
	for _, k := range []int{3, 4, 5, 10, 11, 12, 20} {
		want = append(want, fmt.Sprintf("Instance Deleted orders(%d)", k))
	}
	for _, k := range []int{1, 2, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18, 19, 30, 104} {
		want = append(want, fmt.Sprintf("Instance Inserted orders(%d): %d|old", k, k))
	}
	s.wantTake("beside deletes", want...)
}

func testBackfillKinds(t *testing.T, e Engine) {
	a, b, c := weir.NewGUID(), weir.NewGUID(), weir.NewGUID()
	s := newSource(t, e, append(threeTables(e),
		fmt.Sprintf("insert into things values ('%s', '%s', 'p', 'n'), ('%s', null, null, 'm')", a, c, b),
		fmt.Sprintf("insert into events values (1, '%[1]s', 'x'), (2, '%[2]s', 'y'), (3, '%[1]s', 'z'), (4, null, 'none'), (5, '%[1]s', 'w')", a, b))...)
	specs := three(s)
	specs[2].Queues = []string{"lake"}
	s.apply(specs...)
	s.backfillAll(s.capture("things", "").ID, 1)
	s.backfillAll(s.capture("events", "Thing Event Changed").ID, 1)
	s.fold()
	if r := s.row(a, weir.InstanceInserted); r.ConceptGUID != c || r.OldPrimaryKey != "p" {
		t.Errorf("the instance's change is %+v, want its concept and old key", r)
	}
	req := s.request(10)
	req.Queue = "lake"
	r := s.read(s.claimBy(req))
	if len(r.Batch.Tables) != 1 || len(r.Batch.Tables[0].Items) != 2 {
		t.Fatalf("the children's backfill brought %+v, want two sets", r.Batch.Tables)
	}
	counts := map[string]int{}
	for _, it := range r.Batch.Tables[0].Items {
		counts[string(it.Key[0])] = len(it.Rows)
	}
	if counts[a.String()] != 3 || counts[b.String()] != 1 {
		t.Errorf("the children's backfill brought the sets %v", counts)
	}
	s.wantTake("instances", fmt.Sprintf("Instance Inserted things(%s): %s|%s|p|n", a, a, c), fmt.Sprintf("Instance Inserted things(%s): %s|%s|%s|m", b, b, null, null))
}

func testBackfillUnknown(t *testing.T, e Engine) {
	s := existing(t, e, 1, 1)
	_, err := s.Backfill(t.Context(), s.capture("orders", "").ID+1, 10, false)
	wantConfig(t, "Backfill of a capture that is not installed", err)
	id := s.capture("orders", "").ID
	s.exec("drop table orders", threeTables(e)[0])
	_, err = s.Backfill(t.Context(), id, 10, false)
	as[*weir.DriftError](t, err)
}
