package dialecttest

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weir-cdc/weir"
)

var foldTests = []test{
	{"Presence", testFoldPresence},
	{"Queues", testFoldQueues},
	{"Limit", testFoldLimit},
	{"InFlight", testFoldInFlight},
	{"Concurrent", testFoldConcurrent},
	{"DroppedTable", testFoldDroppedTable},
	{"BusyRows", testFoldBusyRows},
}

func (s *source) deferred(name string) weir.CaptureSpec {
	spec := s.plain(name)
	spec.Tagging = weir.Deferred
	return spec
}

func testFoldPresence(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.apply(s.deferred("orders"))
	s.exec("insert into orders values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
		"delete from orders where id = 1",
		"delete from orders where id = 2", "insert into orders values (2, 'again')",
		"update orders set id = 30 where id = 3", "update orders set id = 3 where id = 30")
	if st := s.status(); st.Inbox < 8 || s.queueStatus(weir.DefaultQueue).Depth != 0 {
		t.Errorf("the inbox holds %d tags and the queue %d changes, want all tags in the inbox", st.Inbox, s.queueStatus(weir.DefaultQueue).Depth)
	}
	if moved := s.fold(); moved < 8 {
		t.Errorf("Fold moved %d tags, want all", moved)
	}
	if st := s.status(); st.Inbox != 0 {
		t.Errorf("the inbox still holds %d tags", st.Inbox)
	}
	s.wantTake("presence decides", "Instance Deleted orders(1)", "Instance Inserted orders(2): 2|again", "Instance Inserted orders(3): 3|c", "Instance Deleted orders(30)", "Instance Inserted orders(4): 4|d")

	// What is in the queue already gives way to what is folded.
	s.exec("delete from orders where id = 4")
	s.wantTags("before", "Instance Deleted 4")
	s.exec("insert into orders values (4, 'back')")
	s.wantTags("after", "Instance Inserted 4")
	s.exec("delete from orders where id = 4")
	s.wantTags("after that", "Instance Deleted 4")
}

func testFoldQueues(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	specs := three(s)
	specs[1].Queues, specs[2].Queues = []string{weir.DefaultQueue, "lake", "ice"}, []string{"ice"}
	s.apply(specs...)
	g := weir.NewGUID()
	s.exec("insert into orders values (1, 'a')")
	s.execf("insert into things values ('%[1]s', '%[1]s', 'p', 'n')", g)
	s.execf("insert into events values (1, '%s', 'e')", g)
	s.fold()
	for queue, want := range map[string]int64{weir.DefaultQueue: 2, "lake": 1, "ice": 2} {
		if q := s.queueStatus(queue); q.Depth != want || q.Ready != want {
			t.Errorf("queue %s is %+v, want %d ready", queue, q, want)
		}
	}
	// One queue's pull is nothing to another's.
	req := s.request(10)
	req.Queue = "lake"
	lake := s.claimBy(req)
	ice := s.request(10)
	ice.Queue = "ice"
	if p := s.claimBy(ice); len(p.Changes) != 2 {
		t.Errorf("queue ice gave %d changes, want 2", len(p.Changes))
	}
	s.execf("update things set name = 'm'")
	s.fold()
	if q := s.queueStatus("lake"); q.Waiting != 1 || q.Depth != 1 {
		t.Errorf("queue lake is %+v, want one waiting", q)
	}
	if q := s.queueStatus(weir.DefaultQueue); q.Ready != 2 {
		t.Errorf("the default queue is %+v, want 2 ready", q)
	}
	s.wantSettle("lake, tagged anew", lake.PullGUID, weir.SettleResult{Settled: 0, Done: true})
	if q := s.queueStatus("lake"); q.Ready != 1 {
		t.Errorf("queue lake is %+v, want one ready", q)
	}
}

func testFoldLimit(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.apply(s.deferred("orders"))
	for i := range 10 {
		s.execf("insert into orders values (%d, 'a')", i)
	}
	total := 0
	for {
		n, err := s.Fold(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if n > 3 {
			t.Errorf("Fold of at most 3 moved %d", n)
		}
		total += n
		if st := s.status(); st.Inbox != int64(10-total) || s.queueStatus(weir.DefaultQueue).Depth != int64(total) {
			t.Fatalf("after %d tags were moved the inbox holds %d and the queue %d", total, st.Inbox, s.queueStatus(weir.DefaultQueue).Depth)
		}
	}
	if total != 10 {
		t.Errorf("Fold moved %d tags altogether, want 10", total)
	}
}

func testFoldInFlight(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.apply(s.deferred("orders"))
	s.exec("insert into orders values (1, 'a'), (2, 'b')")
	s.fold()
	p := s.claim(10)
	s.exec("delete from orders where id = 1", "update orders set note = 'c' where id = 2")
	s.fold()
	s.wantNothing("what was folded over rows in flight waits")
	if q := s.queueStatus(weir.DefaultQueue); q.Waiting != 2 || q.Depth != 2 {
		t.Errorf("the queue is %+v, want 2 waiting", q)
	}
	s.exec("insert into orders values (1, 'again')")
	s.fold()
	s.wantNothing("and goes on waiting when it is tagged again")
	s.wantSettle("all were tagged anew", p.PullGUID, weir.SettleResult{Settled: 0, Done: true})
	s.wantTake("after the settle", "Instance Inserted orders(1): 1|again", "Instance Inserted orders(2): 2|c")
}

func testFoldConcurrent(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.apply(s.deferred("orders"))
	const n = 300
	for i := range n {
		s.execf("insert into orders values (%d, 'a')", i)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if _, err := s.Fold(t.Context(), 30); err != nil && !errors.As(err, new(*weir.UnavailableError)) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.fold()
	if q := s.queueStatus(weir.DefaultQueue); q.Depth != n {
		t.Errorf("four folds beside each other made %d changes of %d tags", q.Depth, n)
	}
}

func testFoldDroppedTable(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.execf("create table gone (id %s not null primary key)", e.Int)
	s.apply(s.deferred("orders"), s.deferred("gone"))
	s.exec("insert into gone values (1)", "insert into orders values (1, 'a')", "drop table gone")
	s.fold()
	if st := s.status(); st.Inbox != 0 {
		t.Errorf("the inbox still holds %d tags of a table that is gone", st.Inbox)
	}
	id := s.capture("orders", "").ID
	if got := s.list(weir.QueueSelector{CaptureID: id}); len(got) != 1 {
		t.Errorf("the other table's changes are %+v, want one", got)
	}
}

// testFoldBusyRows folds while a user's open transaction holds queue rows: what
// is not held moves, what is held moves afterwards.
func testFoldBusyRows(t *testing.T, e Engine) {
	if e.SingleWriter || len(e.InboxLevels) == 0 {
		t.Skipf("not covered: %s has one writer at a time", e.Name)
	}
	for _, there := range []bool{false, true} {
		t.Run(fmt.Sprintf("queue row there %t", there), func(t *testing.T) {
			s := newSource(t, e, threeTables(e)...)
			s.apply(weir.CaptureSpec{Table: s.table("events"), InstanceGUID: "thing", ChangeType: "Thing Event Changed", Tagging: weir.AtOnce})
			a := weir.NewGUID()
			if there {
				s.execf("insert into events values (1, '%s', 'x')", a)
			}
			tx := s.begin(sql.LevelDefault)
			exec(t, tx, fmt.Sprintf("insert into events values (2, '%s', 'y')", a))
			other := s.begin(e.InboxLevels[0])
			exec(t, other, fmt.Sprintf("insert into events values (3, '%s', 'z')", a))
			for i := range 50 {
				exec(t, other, fmt.Sprintf("insert into events values (%d, '%s', 'z')", 10+i, weir.NewGUID()))
			}
			commit(t, other)
			eventually(t, "all that is free is folded", func() bool {
				s.fold()
				return s.queueStatus(weir.DefaultQueue).Depth >= 50
			})
			commit(t, tx)
			s.fold()
			if st := s.status(); st.Inbox != 0 || s.queueStatus(weir.DefaultQueue).Depth != 51 {
				t.Errorf("in the end the inbox holds %d tags and the queue %d changes, want 0 and 51", st.Inbox, s.queueStatus(weir.DefaultQueue).Depth)
			}
		})
	}
}
