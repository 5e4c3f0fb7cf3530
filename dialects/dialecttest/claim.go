package dialecttest

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

var claimTests = []test{
	{"Limit", testClaimLimit},
	{"Filters", testClaimFilters},
	{"From", testClaimFrom},
	{"Empty", testClaimEmpty},
	{"Lease", testClaimLease},
	{"Concurrent", testClaimConcurrent},
	{"Chains", testClaimChains},
	{"BothTypes", testClaimBothTypes},
	{"BothTypesConcurrent", testClaimBothTypesConcurrent},
	{"BothTypesEarlierVersion", testClaimBothTypesEarlierVersion},
	{"BothTypesTwoPulls", testClaimBothTypesTwoPulls},
	{"ExpiredHolds", testClaimExpiredHolds},
	{"LockedRows", testClaimLockedRows},
}

// orders makes a source with n rows, each inserted and tagged by a transaction
// of its own, in the order of their keys.
func orders(t *testing.T, e Engine, n int) *source {
	t.Helper()
	s := newSource(t, e, threeTables(e)...)
	s.apply(s.plain("orders"))
	for i := range n {
		s.execf("insert into orders values (%d, 'n%d')", i+1, i+1)
	}
	return s
}

func keys(changes []weir.Change) []string {
	out := []string{}
	for _, c := range changes {
		out = append(out, c.OldPrimaryKey)
	}
	slices.Sort(out)
	return out
}

func testClaimLimit(t *testing.T, e Engine) {
	s := orders(t, e, 10)
	c := s.capture("orders", "")
	seen := map[string]bool{}
	var last time.Time
	for _, want := range []int{3, 1, 4, 2} {
		limit := want
		if want == 2 {
			limit = 100
		}
		req := s.request(limit)
		p := s.claimBy(req)
		if len(p.Changes) != want || p.PullGUID != req.PullGUID || p.Name != "test" || p.Queue != weir.DefaultQueue {
			t.Fatalf("Claim of at most %d = %+v, want %d changes", limit, p, want)
		}
		for _, ch := range p.Changes {
			if seen[ch.OldPrimaryKey] || ch.ChangeType != weir.InstanceInserted || ch.ConceptGUID != c.ConceptGUID || !ch.HasOldPrimaryKey || ch.CaptureID != c.ID || ch.Attempts != 0 {
				t.Errorf("Claim brought %+v", ch)
			}
			seen[ch.OldPrimaryKey] = true
			if ch.ChangedOn.Before(last) {
				t.Errorf("Claim brought key %s of %v after %v", ch.OldPrimaryKey, ch.ChangedOn, last)
			}
			last = ch.ChangedOn
			if r := s.row(ch.InstanceGUID, ch.ChangeType); r.PullGUID != p.PullGUID || r.State != weir.InFlight || !r.ChangedOn.Equal(ch.ChangedOn) {
				t.Errorf("a claimed change is %+v in the queue", r)
			}
		}
	}
	if len(seen) != 10 {
		t.Errorf("Claims brought %d keys, want 10", len(seen))
	}
	s.wantNothing("all is claimed")
	// A row that is tagged anew goes to the end.
	s = orders(t, e, 3)
	s.exec("update orders set note = 'x' where id = 1")
	if p := s.claim(3); p.Changes[2].OldPrimaryKey != "1" {
		t.Errorf("Claim brought the keys %+v, want 1 last", p.Changes)
	}
}

func testClaimFilters(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	specs := three(s)
	s.apply(specs...)
	ids := map[string]int32{"orders": s.capture("orders", "").ID, "things": s.capture("things", "").ID, "events": s.capture("events", "Thing Event Changed").ID}
	g, c := weir.NewGUID(), weir.NewGUID()
	s.exec("insert into orders values (1, 'a'), (2, 'b')")
	s.exec("delete from orders where id = 2")
	s.execf("insert into things values ('%s', '%s', 'p', 'n')", g, c)
	s.execf("insert into events values (1, '%s', 'e')", g)
	s.fold()
	for _, test := range []struct {
		name string
		set  func(*weir.ClaimRequest)
		want []string
	}{
		{"a capture", func(r *weir.ClaimRequest) { r.Captures = []int32{ids["orders"]} }, []string{"Instance Deleted", "Instance Inserted"}},
		{"two captures", func(r *weir.ClaimRequest) { r.Captures = []int32{ids["things"], ids["events"]} }, []string{"Instance Inserted", "Thing Event Changed"}},
		{"an unknown capture", func(r *weir.ClaimRequest) { r.Captures = []int32{1} }, nil},
		{"a concept", func(r *weir.ClaimRequest) { r.Concepts = []weir.GUID{weir.NewGUID(), c} }, []string{"Instance Inserted"}},
		{"a type", func(r *weir.ClaimRequest) { r.ChangeTypes = []string{"Instance Deleted"} }, []string{"Instance Deleted"}},
		{"two types", func(r *weir.ClaimRequest) { r.ChangeTypes = []string{"Instance Deleted", "Thing Event Changed"} }, []string{"Instance Deleted", "Thing Event Changed"}},
		{"a type that nothing has", func(r *weir.ClaimRequest) { r.ChangeTypes = []string{"Instance Deleted Again"} }, nil},
		{"capture and type", func(r *weir.ClaimRequest) {
			r.Captures, r.ChangeTypes = []int32{ids["orders"]}, []string{"Instance Inserted"}
		}, []string{"Instance Inserted"}},
		{"capture and other concept", func(r *weir.ClaimRequest) {
			r.Captures, r.Concepts = []int32{ids["orders"]}, []weir.GUID{c}
		}, nil},
		{"all", func(*weir.ClaimRequest) {}, []string{"Instance Deleted", "Instance Inserted", "Instance Inserted", "Thing Event Changed"}},
	} {
		req := s.request(100)
		test.set(&req)
		p, err := s.Claim(t.Context(), req)
		if test.want == nil {
			if !errors.Is(err, weir.ErrQueueEmpty) {
				t.Errorf("%s: Claim = %+v, %v, want ErrQueueEmpty", test.name, p, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		var got []string
		for _, ch := range p.Changes {
			got = append(got, ch.ChangeType)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: Claim brought %q, want %q", test.name, got, test.want)
		}
		s.release(p.PullGUID)
	}
	// A tag without a capture passes the filter of a capture by its concept.
	s.take()
	orders := s.capture("orders", "")
	s.exec(e.InsertQueued(weir.NewGUID(), orders.ConceptGUID, weir.InstanceInserted, "1"))
	req := s.request(100)
	req.Captures = []int32{orders.ID}
	if p := s.claimBy(req); len(p.Changes) != 1 || p.Changes[0].CaptureID != 0 {
		t.Errorf("Claim of a capture brought %+v, want the tag of its concept", p.Changes)
	}
}

func testClaimFrom(t *testing.T, e Engine) {
	s := orders(t, e, 10)
	rows := s.list(weir.QueueSelector{})
	req := s.request(100)
	req.From = rows[5].ChangedOn
	want := 0
	for _, r := range rows {
		if !r.ChangedOn.Before(req.From) {
			want++
		}
	}
	if p := s.claimBy(req); len(p.Changes) != want {
		t.Errorf("Claim from %v brought %d changes, want the %d that are not older", req.From, len(p.Changes), want)
	}
	req = s.request(100)
	req.From = rows[5].ChangedOn
	if _, err := s.Claim(t.Context(), req); !errors.Is(err, weir.ErrQueueEmpty) {
		t.Errorf("Claim from there again = %v, want ErrQueueEmpty", err)
	}
	if p := s.claim(100); len(p.Changes) != 10-want {
		t.Errorf("Claim without a hint brought %d changes, want the other %d", len(p.Changes), 10-want)
	}
}

func testClaimEmpty(t *testing.T, e Engine) {
	s := orders(t, e, 0)
	s.wantNothing("an empty queue")
	if st := s.status(); len(st.Pulls) != 0 {
		t.Errorf("claims that found nothing left the pulls %+v", st.Pulls)
	}
	req := s.request(10)
	req.Queue = "nowhere"
	_, err := s.Claim(t.Context(), req)
	wantConfig(t, "a claim of a queue that is not there", err)

	// A PullGUID is used once.
	s.exec("insert into orders values (1, 'a'), (2, 'b')")
	req = s.request(1)
	s.claimBy(req)
	if p, err := s.Claim(t.Context(), req); err == nil {
		t.Errorf("a claim with the PullGUID of a live pull = %+v, want an error", p)
	}
	if q := s.queueStatus(weir.DefaultQueue); q.InFlight != 1 || q.Ready != 1 {
		t.Errorf("after that claim the queue is %+v, want one in flight and one ready", q)
	}
}

func testClaimLease(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	before := s.status().Now
	req := s.request(2)
	req.Lease = 17 * time.Minute
	req.Puller = "host ü:1"
	p := s.claimBy(req)
	st := s.status()
	if lo, hi := before.Add(req.Lease), st.Now.Add(req.Lease); p.LeaseUntil.Before(lo.Add(-time.Millisecond)) || p.LeaseUntil.After(hi) {
		t.Errorf("LeaseUntil = %v, want between %v and %v on the source's clock", p.LeaseUntil, lo, hi)
	}
	if len(st.Pulls) != 1 {
		t.Fatalf("Status has the pulls %+v, want one", st.Pulls)
	}
	if l := st.Pulls[0]; l.PullGUID != p.PullGUID || l.Name != "test" || l.Queue != weir.DefaultQueue || l.Puller != "host ü:1" || l.State != weir.StateClaimed || l.Rows != 2 ||
		!l.LeaseUntil.Equal(p.LeaseUntil) || l.Ledger != s.ledger || l.ClaimedOn.Before(before.Add(-time.Millisecond)) || l.ClaimedOn.After(st.Now) {
		t.Errorf("Status has the pull %+v, want %+v into ledger %s", l, p, s.ledger)
	}
	if q := s.queueStatus(weir.DefaultQueue); q.Depth != 3 || q.InFlight != 2 || q.Ready != 1 || q.OldestAge <= 0 {
		t.Errorf("the queue is %+v, want 3 of which 2 in flight", q)
	}
}

func testClaimConcurrent(t *testing.T, e Engine) {
	const n = 400
	s := newSource(t, e, threeTables(e)...)
	s.apply(s.plain("orders"))
	for i := 0; i < n; i += 4 {
		s.execf("insert into orders values (%d, 'a'), (%d, 'a'), (%d, 'a'), (%d, 'a')", i, i+1, i+2, i+3)
	}
	var mu sync.Mutex
	took := map[string]weir.GUID{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				req := s.request(13)
				p, err := s.Claim(t.Context(), req)
				if errors.As(err, new(*weir.UnavailableError)) {
					continue // a moment's wait was not enough
				}
				if errors.Is(err, weir.ErrQueueEmpty) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(p.Changes) == 0 || len(p.Changes) > 13 {
					t.Errorf("Claim of at most 13 brought %d changes", len(p.Changes))
				}
				mu.Lock()
				for _, c := range p.Changes {
					if other, ok := took[c.OldPrimaryKey]; ok {
						t.Errorf("key %s is in the pulls %s and %s", c.OldPrimaryKey, other, p.PullGUID)
					}
					took[c.OldPrimaryKey] = p.PullGUID
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(took) != n {
		t.Errorf("eight pullers took %d changes of %d", len(took), n)
	}
}

// testClaimChains tags rows in flight anew, over and over (I4).
func testClaimChains(t *testing.T, e Engine) {
	for _, end := range []string{"settle", "release"} {
		t.Run(end, func(t *testing.T) {
			s := orders(t, e, 1)
			p := s.claim(10)
			for _, chain := range [][]string{
				{"update orders set note = 'x' where id = 1"},
				{"delete from orders where id = 1"},
				{"insert into orders values (1, 'again')"},
				{"delete from orders where id = 1", "insert into orders values (1, 'and again')", "delete from orders where id = 1"},
				{"insert into orders values (1, 'last')", "update orders set note = 'b' where id = 1"},
				{"update orders set id = 2 where id = 1"},
				{"update orders set id = 1 where id = 2"},
			} {
				s.exec(chain...)
				// Key 2 was not in flight before: it may be claimed. Key 1 may not.
				if p, err := s.Claim(t.Context(), s.request(10)); err == nil {
					if slices.Contains(keys(p.Changes), "1") {
						t.Fatalf("after %q key 1 is in flight in two pulls", chain)
					}
				} else if !errors.Is(err, weir.ErrQueueEmpty) {
					t.Fatal(err)
				}
				waiting := 0
				for _, row := range s.list(weir.QueueSelector{State: weir.Waiting}) {
					if row.OldPrimaryKey == "1" {
						waiting++
					}
				}
				if waiting != 1 {
					t.Fatalf("after %q %d changes of key 1 wait, want 1", chain, waiting)
				}
			}
			if end == "settle" {
				s.wantSettle("tagged anew", p.PullGUID, weir.SettleResult{Settled: 0, Done: true})
			} else {
				s.release(p.PullGUID)
			}
			q := s.claim(10)
			if got := keys(q.Changes); !slices.Contains(got, "1") {
				t.Errorf("after the %s Claim brought %q, want key 1", end, got)
			}
			// The second pull has it now; the next version waits for that one.
			s.exec("delete from orders where id = 1")
			s.wantNothing("key 1 is in flight in the second pull")
			s.release(q.PullGUID)
			if got := s.tags(); !slices.Contains(got, "Instance Deleted 1") || slices.Contains(got, "Instance Inserted 1") {
				t.Errorf("in the end the queue holds %q, want key 1 deleted", got)
			}
		})
	}
}

// testClaimBothTypes has rows of both own types, as code that knows only the
// six columns can leave them.
func testClaimBothTypes(t *testing.T, e Engine) {
	s := orders(t, e, 0)
	concept := s.capture("orders", "").ConceptGUID
	var all []weir.GUID
	for range 6 {
		g := weir.NewGUID()
		all = append(all, g)
		s.exec(e.InsertQueued(g, concept, weir.InstanceInserted, "1"), e.InsertQueued(g, concept, weir.InstanceDeleted, "1"))
	}
	taken := map[weir.GUID]int{}
	for len(taken) < len(all) {
		p := s.claim(4)
		for _, c := range p.Changes {
			taken[c.InstanceGUID]++
			if taken[c.InstanceGUID] > 1 {
				t.Fatalf("instance %s is in flight twice", c.InstanceGUID)
			}
		}
	}
	s.wantNothing("the other type of each waits")
	for _, l := range s.status().Pulls {
		s.settle(l.PullGUID)
	}
	p := s.claim(100)
	if len(p.Changes) != len(all) {
		t.Errorf("then Claim brought %d changes, want the other %d", len(p.Changes), len(all))
	}
	s.settle(p.PullGUID)
	s.wantEmpty("in the end")

	// A filter that wants one type does not free it.
	g := weir.NewGUID()
	s.exec(e.InsertQueued(g, concept, weir.InstanceInserted, "1"), e.InsertQueued(g, concept, weir.InstanceDeleted, "1"))
	req := s.request(10)
	req.ChangeTypes = []string{weir.InstanceDeleted}
	if p := s.claimBy(req); len(p.Changes) != 1 {
		t.Errorf("Claim of one type brought %+v, want one change", p.Changes)
	}
	req = s.request(10)
	req.ChangeTypes = []string{weir.InstanceInserted}
	if p, err := s.Claim(t.Context(), req); !errors.Is(err, weir.ErrQueueEmpty) {
		t.Errorf("Claim of the other type = %+v, %v, want ErrQueueEmpty", p, err)
	}
}

// testClaimBothTypesEarlierVersion: the other type of a row is not in flight any
// more as it was claimed, but tagged anew and waiting.
func testClaimBothTypesEarlierVersion(t *testing.T, e Engine) {
	s := orders(t, e, 1)
	first := s.claim(10)
	c := first.Changes[0]
	s.exec(e.InsertQueued(c.InstanceGUID, c.ConceptGUID, weir.InstanceDeleted, c.OldPrimaryKey))
	s.execf("update orders set note = 'anew' where id = 1")
	s.wantNothing("an earlier version of the row is in flight under its other type")
	s.settle(first.PullGUID)
	second := s.claim(10)
	if len(second.Changes) != 1 || second.Changes[0].ChangeType != weir.InstanceDeleted {
		t.Errorf("then Claim brought %+v, want the older type alone", second.Changes)
	}
	s.settle(second.PullGUID)
	s.settle(s.claim(10).PullGUID)
	s.wantEmpty("in the end")
}

// testClaimBothTypesTwoPulls: what a tag cancels waits for a pull that is over,
// and what it overwrites is in flight: it waits for the one that lives.
func testClaimBothTypesTwoPulls(t *testing.T, e Engine) {
	for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
		t.Run(string(tagging), func(t *testing.T) { bothTypesTwoPulls(t, e, tagging) })
	}
}

func bothTypesTwoPulls(t *testing.T, e Engine, tagging weir.Tagging) {
	s := newSource(t, e, threeTables(e)...)
	spec := s.plain("orders")
	spec.Tagging = tagging
	s.apply(spec)
	s.exec("insert into orders values (1, 'n1')")
	s.fold()
	over := s.claim(10)
	c := over.Changes[0]
	s.execf("delete from orders where id = 1")
	s.fold()
	s.settle(over.PullGUID)
	s.exec(e.InsertQueued(c.InstanceGUID, c.ConceptGUID, weir.InstanceInserted, c.OldPrimaryKey))
	req := s.request(10)
	req.ChangeTypes = []string{weir.InstanceInserted}
	live := s.claimBy(req)
	if len(live.Changes) != 1 {
		t.Fatalf("Claim of one type brought %+v, want one change", live.Changes)
	}
	s.execf("insert into orders values (1, 'back')")
	s.fold()
	s.wantNothing("an earlier version of the row is in flight")
	s.settle(live.PullGUID)
	last := s.claim(10)
	if len(last.Changes) != 1 || last.Changes[0].ChangeType != weir.InstanceInserted {
		t.Errorf("then Claim brought %+v, want the row", last.Changes)
	}
	s.settle(last.PullGUID)
	s.wantEmpty("in the end")
}

// testClaimBothTypesConcurrent: claims see what other claims have just taken.
func testClaimBothTypesConcurrent(t *testing.T, e Engine) {
	const n = 150
	s := orders(t, e, 0)
	concept := s.capture("orders", "").ConceptGUID
	for range n {
		g := weir.NewGUID()
		s.exec(e.InsertQueued(g, concept, weir.InstanceInserted, "1"), e.InsertQueued(g, concept, weir.InstanceDeleted, "1"))
	}
	var mu sync.Mutex
	took := map[weir.GUID]int{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				req := s.request(3)
				req.ChangeTypes = [][]string{{weir.InstanceInserted}, {weir.InstanceDeleted}, nil}[i%3]
				p, err := s.Claim(t.Context(), req)
				if errors.As(err, new(*weir.UnavailableError)) {
					continue
				}
				if errors.Is(err, weir.ErrQueueEmpty) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, c := range p.Changes {
					took[c.InstanceGUID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for g, times := range took {
		if times > 1 {
			t.Errorf("instance %s is in flight %d times", g, times)
		}
	}
	if len(took) != n {
		t.Errorf("eight pullers took %d instances of %d", len(took), n)
	}
}

func testClaimExpiredHolds(t *testing.T, e Engine) {
	s := orders(t, e, 2)
	req := s.request(10)
	req.Lease = time.Millisecond
	p := s.claimBy(req)
	s.exec("update orders set note = 'new' where id = 1")
	s.expire(p.PullGUID)
	s.wantNothing("the lease is out, but nobody has recovered the pull")
	s.exec("update orders set note = 'newer' where id = 1", "delete from orders where id = 2")
	s.wantNothing("and what is tagged then waits too")
	s.release(p.PullGUID)
	s.wantTake("after the release", "Instance Inserted orders(1): 1|newer", "Instance Deleted orders(2)")
}

func testClaimLockedRows(t *testing.T, e Engine) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commits), func(t *testing.T) {
			s := orders(t, e, 3)
			tx := s.begin(sql.LevelDefault)
			exec(t, tx, "update orders set note = 'busy' where id = 2", "insert into orders values (4, 'new')")
			p, err := s.Claim(t.Context(), s.request(10))
			if e.SingleWriter {
				as[*weir.UnavailableError](t, err)
			} else {
				if err != nil {
					t.Fatal(err)
				}
				if got := keys(p.Changes); !slices.Equal(got, []string{"1", "3"}) {
					t.Errorf("beside an open transaction Claim brought the keys %q, want 1 and 3", got)
				}
				s.wantNothing("the rest is locked")
			}
			want := []string{"2"}
			if commits {
				commit(t, tx)
				want = append(want, "4")
			} else if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if e.SingleWriter {
				want = append(want, "1", "3")
				slices.Sort(want)
			}
			if got := keys(s.claim(10).Changes); !slices.Equal(got, want) {
				t.Errorf("afterwards Claim brought the keys %q, want %q", got, want)
			}
		})
	}
}
