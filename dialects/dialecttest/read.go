package dialecttest

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

var readTests = []test{
	{"Presence", testReadPresence},
	{"Committed", testReadCommitted},
	{"MaxBytes", testReadMaxBytes},
	{"UnknownCapture", testReadUnknownCapture},
	{"BadKey", testReadBadKey},
	{"ByConcept", testReadByConcept},
	{"TableAgain", testReadTableAgain},
	{"TableGone", testReadTableGone},
	{"ColumnAdded", testReadColumnAdded},
	{"Set", testReadSet},
	{"EmptyIsNotNull", testReadEmpty},
}

func testReadPresence(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	p := s.claim(10)
	// The rows change after the claim: what is now is what is read.
	s.exec("delete from orders where id = 1", "update orders set note = 'later' where id = 2")
	r := s.read(p)
	if len(r.Batch.Tables) != 1 || len(r.Faults) != 0 {
		t.Fatalf("Read = %+v, want one table", r)
	}
	b := r.Batch.Tables[0]
	var got []string
	for i := range b.Items {
		got = append(got, itemText(&b, i))
	}
	slices.Sort(got)
	if want := []string{"Instance Inserted orders(1)", "Instance Inserted orders(2): 2|later", "Instance Inserted orders(3): 3|n3"}; !slices.Equal(got, want) {
		t.Errorf("Read found %q, want %q", got, want)
	}
	if b.Encoding != weir.EncodingText || len(b.Columns) != 2 || b.Columns[0].Name != "id" || b.Columns[1].Name != "note" || b.Columns[1].Kind != weir.Text || b.Capture.ID != s.capture("orders", "").ID {
		t.Errorf("Read found the table %+v of the capture %+v", b.Columns, b.Capture)
	}
	if up, del := r.Batch.Counts(); up != 2 || del != 1 {
		t.Errorf("the batch has %d upserts and %d deletes, want 2 and 1", up, del)
	}
	if r.Batch.Bytes <= 0 {
		t.Errorf("the batch has %d bytes", r.Batch.Bytes)
	}
	s.settle(p.PullGUID)
	s.wantTake("what was tagged meanwhile", "Instance Deleted orders(1)", "Instance Inserted orders(2): 2|later")
}

func testReadCommitted(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	p := s.claim(10)
	tx := s.begin(sql.LevelDefault)
	exec(t, tx, "update orders set note = 'not yet' where id = 1", "delete from orders where id = 2")
	began := time.Now()
	r := s.read(p)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Read waited %v for a user's transaction", took)
	}
	if got := fmt.Sprint(len(r.Batch.Tables[0].Items)); got != "3" {
		t.Errorf("Read found %s items, want 3", got)
	}
	for i := range r.Batch.Tables[0].Items {
		if text := itemText(&r.Batch.Tables[0], i); strings.Contains(text, "not yet") || !strings.Contains(text, ": ") {
			t.Errorf("Read saw what is not committed: %s", text)
		}
	}
}

func testReadMaxBytes(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.execf("create table others (id %s not null primary key, note %s)", e.Int, e.Text)
	s.apply(s.plain("orders"), s.plain("others"))
	long := strings.Repeat("x", 1000)
	for i := range 10 {
		s.execf("insert into orders values (%d, '%s')", i, long)
		s.execf("insert into others values (%d, '%s')", i, long)
	}
	s.exec("delete from orders where id = 5")
	for _, max := range []int64{1, 3500, 11000, 1 << 20} {
		p := s.claim(100)
		r, err := s.Read(t.Context(), p, weir.ReadRequest{Encoding: weir.EncodingText, MaxBytes: max})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		rows, items := 0, 0
		for i := range r.Batch.Tables {
			b := r.Batch.Tables[i]
			for _, it := range b.Items {
				seen[it.Change.InstanceGUID.String()]++
				items++
				rows += len(it.Rows)
				if len(it.Rows) == 0 && (it.Change.OldPrimaryKey != "5" || b.Capture.Table.Name != "orders") {
					t.Errorf("MaxBytes %d: key %s of %s was read as absent", max, it.Change.OldPrimaryKey, b.Capture.Table.Name)
				}
			}
		}
		for _, c := range r.Rest {
			seen[c.InstanceGUID.String()]++
		}
		if len(seen) != 20 || items+len(r.Rest) != 20 || items == 0 {
			t.Errorf("MaxBytes %d: %d items and a rest of %d are %d instances, want 20", max, items, len(r.Rest), len(seen))
		}
		if lo, hi := int64(1), max/1000+1; int64(rows) > hi || max > 20000 && rows != 19 || max >= 3500 && int64(rows) < lo {
			t.Errorf("MaxBytes %d: %d rows of 1000 bytes were read", max, rows)
		}
		s.release(p.PullGUID)
	}
}

func testReadUnknownCapture(t *testing.T, e Engine) {
	s := orders(t, e, 2)
	g, concept := weir.NewGUID(), weir.NewGUID()
	s.exec(e.InsertQueued(g, concept, "Something Else", "k"))
	p := s.claim(10)
	r := s.read(p)
	if len(r.Faults) != 1 || r.Faults[0].Change.InstanceGUID != g || r.Faults[0].Err == nil {
		t.Fatalf("Read has the faults %+v, want the change of %s", r.Faults, g)
	}
	if err := r.Faults[0].Err; err.Hint == "" || err.Constraint || !strings.Contains(err.Error(), "Something Else") {
		t.Errorf("the fault is %v, want the type in it, and a hint", err)
	}
	if len(r.Batch.Tables) != 1 || len(r.Batch.Tables[0].Items) != 2 {
		t.Errorf("beside the fault Read found %+v, want the two good changes", r.Batch.Tables)
	}
	s.put(p, weir.Postponement{InstanceGUID: g, ChangeType: "Something Else", Dead: true, Error: r.Faults[0].Err.Error()})
	s.wantSettle("without the fault", p.PullGUID, weir.SettleResult{Settled: 2, Done: true})
}

func testReadBadKey(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	concept := s.capture("orders", "").ConceptGUID
	bad := map[weir.GUID]string{}
	for _, key := range []string{"no number", "", "99999999999999999999", "1;2", "1 ", "1e2", "1.5", "'1'x"} {
		g := weir.NewGUID()
		bad[g] = key
		s.exec(e.InsertQueued(g, concept, weir.InstanceInserted, key))
	}
	p := s.claim(100)
	r := s.read(p)
	for _, f := range r.Faults {
		if _, ok := bad[f.Change.InstanceGUID]; !ok || f.Err == nil || f.Err.Hint == "" || f.Err.Key != f.Change.OldPrimaryKey {
			t.Errorf("Read has the fault %+v", f)
		}
		delete(bad, f.Change.InstanceGUID)
	}
	if len(bad) > 0 {
		t.Errorf("Read took the keys %q for good", bad)
	}
	if len(r.Batch.Tables) != 1 || len(r.Batch.Tables[0].Items) != 3 {
		t.Errorf("beside the faults Read found %+v, want the three good changes", r.Batch.Tables)
	}
	if up, del := r.Batch.Counts(); up != 3 || del != 0 {
		t.Errorf("the batch has %d upserts and %d deletes, want 3 and 0", up, del)
	}
	s.release(p.PullGUID)

	// Keys of several columns, and of text.
	for _, shape := range keyShapes(e)[3:] {
		s := newSource(t, e, fmt.Sprintf("create table shapes (%s)", shape.columns))
		s.apply(s.plain("shapes"))
		s.execf("insert into shapes values (%s, 1)", shape.keys[0].literals)
		concept := s.capture("shapes", "").ConceptGUID
		for _, key := range []string{"1", "[", `["1"]`, `["1","2","3"]`, "{}", "'a'", "'a','b','c'", ""} {
			s.exec(e.InsertQueued(weir.NewGUID(), concept, weir.InstanceDeleted, key))
		}
		r := s.read(s.claim(100))
		if len(r.Faults) != 8 || len(r.Batch.Tables) != 1 || len(r.Batch.Tables[0].Items) != 1 {
			t.Errorf("%s: Read has %d faults and %+v, want 8 and one item", shape.name, len(r.Faults), r.Batch.Tables)
		}
	}
}

// testReadByConcept reads tags that code without a capture made.
func testReadByConcept(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	specs := three(s)
	s.apply(specs...)
	g, c := weir.NewGUID(), weir.NewGUID()
	s.exec("insert into orders values (1, 'a')")
	s.execf("insert into things values ('%s', '%s', 'p', 'n')", g, c)
	s.execf("insert into events values (7, '%s', 'e')", g)
	s.take()
	s.exec(e.InsertQueued(g, c, weir.InstanceInserted, "p"), e.InsertQueued(g, c, "Thing Event Changed", ""),
		e.InsertQueued(weir.NewGUID(), s.capture("orders", "").ConceptGUID, weir.InstanceInserted, "1"))
	s.wantTake("tags by hand", fmt.Sprintf("Instance Inserted things(%s): %s|%s|p|n", g, g, c), fmt.Sprintf("Thing Event Changed events(%s): 7|%s|e", g, g), "Instance Inserted orders(1): 1|a")
}

func testReadTableAgain(t *testing.T, e Engine) {
	s := orders(t, e, 2)
	p := s.claim(10)
	s.exec("drop table orders", threeTables(e)[0])
	_, err := s.Read(t.Context(), p, weir.ReadRequest{Encoding: weir.EncodingText})
	if d := as[*weir.DriftError](t, err); !strings.Contains(d.Object, "orders") || d.Hint == "" {
		t.Errorf("the drift is %v, want the table and a hint", d)
	}
	s.release(p.PullGUID)
	// Applied again, it is the one that is captured: its rows are gone.
	s.apply(s.plain("orders"))
	s.exec("insert into orders values (2, 'new')")
	p = s.claim(10)
	r := s.read(p)
	if up, del := r.Batch.Counts(); up != 1 || del != 1 {
		t.Errorf("the batch has %d upserts and %d deletes, want 1 and 1", up, del)
	}
}

func testReadTableGone(t *testing.T, e Engine) {
	for what, statement := range map[string]string{"dropped": "drop table orders", "renamed": fmt.Sprintf(e.RenameTable, "orders", "old_orders")} {
		t.Run(what, func(t *testing.T) {
			s := orders(t, e, 2)
			p := s.claim(10)
			s.exec(statement)
			_, err := s.Read(t.Context(), p, weir.ReadRequest{Encoding: weir.EncodingText})
			if d := as[*weir.DriftError](t, err); !strings.Contains(d.Object, "orders") || d.Hint == "" {
				t.Errorf("the drift is %v, want the table and a hint", d)
			}
		})
	}
}

func testReadColumnAdded(t *testing.T, e Engine) {
	s := orders(t, e, 2)
	p := s.claim(1)
	s.read(p)
	s.execf(e.AddColumn, "orders", "extra "+e.Int)
	s.exec("update orders set extra = 7")
	r := s.read(p)
	if got := itemText(&r.Batch.Tables[0], 0); got != "Instance Inserted orders(1): 1|n1|7" || len(r.Batch.Tables[0].Columns) != 3 {
		t.Errorf("Read found %s, want the new column", got)
	}
	s.exec("alter table orders drop column note")
	r = s.read(p)
	if got := itemText(&r.Batch.Tables[0], 0); got != "Instance Inserted orders(1): 1|7" {
		t.Errorf("Read found %s, want no dropped column", got)
	}
	s.settle(p.PullGUID)
	s.exec("insert into orders values (3, 8)")
	s.wantTake("what the triggers do then", "Instance Inserted orders(1): 1|7", "Instance Inserted orders(2): 2|7", "Instance Inserted orders(3): 3|8")
}

func testReadSet(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.apply(three(s)...)
	a, b := weir.NewGUID(), weir.NewGUID()
	var values []string
	for i := range 60 {
		values = append(values, fmt.Sprintf("(%d, '%s', 'x')", i, a))
	}
	s.exec("insert into events values " + strings.Join(values, ", "))
	s.execf("insert into events values (100, '%s', 'y')", b)
	s.fold()
	p := s.claim(10)
	r := s.read(p)
	counts := map[string]int{}
	for _, it := range r.Batch.Tables[0].Items {
		counts[string(it.Key[0])] = len(it.Rows)
	}
	if len(counts) != 2 || counts[a.String()] != 60 || counts[b.String()] != 1 {
		t.Errorf("Read found the sets %v, want 60 rows of %s and 1 of %s", counts, a, b)
	}
	// A set is read whole or not at all.
	r, err := s.Read(t.Context(), p, weir.ReadRequest{Encoding: weir.EncodingText, MaxBytes: 500})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range r.Batch.Tables[0].Items {
		if len(it.Rows) != counts[string(it.Key[0])] {
			t.Errorf("with a bound Read found %d rows of the set %s, want %d", len(it.Rows), it.Key[0], counts[string(it.Key[0])])
		}
	}
	if len(r.Batch.Tables[0].Items)+len(r.Rest) != 2 {
		t.Errorf("with a bound Read found %d sets and a rest of %d, want 2", len(r.Batch.Tables[0].Items), len(r.Rest))
	}
}

func testReadEmpty(t *testing.T, e Engine) {
	s := orders(t, e, 0)
	s.exec("insert into orders values (1, ''), (2, null), (3, ' '), (4, 'a  ')")
	s.wantTake("empty, null and blanks", "Instance Inserted orders(1): 1|", "Instance Inserted orders(2): 2|"+null, "Instance Inserted orders(3): 3| ", "Instance Inserted orders(4): 4|a  ")
}
