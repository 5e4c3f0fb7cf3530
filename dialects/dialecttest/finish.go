package dialecttest

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

var finishTests = []test{
	{"Settle", testSettle},
	{"Release", testRelease},
	{"SettledIsNotReleased", testSettledIsNotReleased},
	{"Postpone", testPostpone},
	{"PostponeGrid", testPostponeGrid},
	{"PostponeAllOrNone", testPostponeAllOrNone},
	{"PostponeRetagged", testPostponeRetagged},
	{"Dead", testDead},
	{"Extend", testExtend},
	{"Expired", testExpired},
	{"ExpiredOtherLedger", testExpiredOtherLedger},
	{"LockedRows", testFinishLockedRows},
	{"LockedRowsPostpone", testPostponeLockedRows},
	{"Delay", testDelay},
}

func testSettle(t *testing.T, e Engine) {
	s := orders(t, e, 5)
	p := s.claim(3)
	s.exec("update orders set note = 'new' where id = 2")
	s.wantSettle("one of three was tagged anew", p.PullGUID, weir.SettleResult{Settled: 2, Done: true})
	s.wantSettle("again", p.PullGUID, weir.SettleResult{Settled: 0, Done: true})
	s.wantSettle("a pull that never was", weir.NewGUID(), weir.SettleResult{Settled: 0, Done: true})
	if st := s.status(); len(st.Pulls) != 0 {
		t.Errorf("a settled pull is still among %+v", st.Pulls)
	}
	s.wantTake("the rest", "Instance Inserted orders(2): 2|new", "Instance Inserted orders(4): 4|n4", "Instance Inserted orders(5): 5|n5")
	as := s.Extend(t.Context(), p.PullGUID, time.Minute)
	if !errors.Is(as, weir.ErrLeaseLost) {
		t.Errorf("Extend of a settled pull = %v, want ErrLeaseLost", as)
	}
}

func testRelease(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	p := s.claim(10)
	s.exec("update orders set note = 'new' where id = 2")
	s.release(p.PullGUID)
	s.release(p.PullGUID)
	s.release(weir.NewGUID())
	if q := s.queueStatus(weir.DefaultQueue); q.Ready != 3 || q.Depth != 3 {
		t.Errorf("after the release the queue is %+v, want 3 ready", q)
	}
	if st := s.status(); len(st.Pulls) != 0 {
		t.Errorf("a released pull is still among %+v", st.Pulls)
	}
	for what, err := range map[string]error{
		"Extend":   s.Extend(t.Context(), p.PullGUID, time.Minute),
		"Postpone": s.Postpone(t.Context(), p.PullGUID, []weir.Postponement{{InstanceGUID: p.Changes[0].InstanceGUID, ChangeType: p.Changes[0].ChangeType, Dead: true}}),
	} {
		if !errors.Is(err, weir.ErrLeaseLost) {
			t.Errorf("%s of a released pull = %v, want ErrLeaseLost", what, err)
		}
	}
	q := s.claim(10)
	for _, c := range q.Changes {
		if c.Attempts != 0 {
			t.Errorf("a release counted an attempt: %+v", c)
		}
	}
	// The old pull's late settle touches nothing of the new one's.
	if r, err := s.Settle(t.Context(), p.PullGUID); err == nil && r.Settled != 0 {
		t.Errorf("Settle of a released pull = %+v, want nothing settled", r)
	}
	s.wantSettle("the new pull", q.PullGUID, weir.SettleResult{Settled: 3, Done: true})
}

// testSettledIsNotReleased keeps a known outcome from being turned round while
// a user's transaction hides one of its rows.
func testSettledIsNotReleased(t *testing.T, e Engine) {
	if e.SingleWriter {
		t.Skipf("not covered: %s has one writer at a time", e.Name)
	}
	s := orders(t, e, 2)
	settled := s.claim(1)
	released := s.claim(1)
	tx := s.begin(sql.LevelDefault)
	exec(t, tx, "update orders set note = 'busy'")
	s.wantSettle("its row is locked", settled.PullGUID, weir.SettleResult{Settled: 0, Done: false})
	s.release(released.PullGUID)
	if err := s.Release(t.Context(), settled.PullGUID); err == nil {
		t.Error("a settled pull was released")
	}
	if _, err := s.Settle(t.Context(), released.PullGUID); err == nil {
		t.Error("a released pull was settled")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	list, err := s.Expired(t.Context(), "test", s.ledger)
	if err != nil {
		t.Fatal(err)
	}
	states := map[weir.GUID]weir.PullState{}
	for _, x := range list {
		states[x.PullGUID] = x.State
	}
	if len(states) != 2 || states[settled.PullGUID] != weir.StateSettled || states[released.PullGUID] != weir.StateReleased {
		t.Errorf("Expired = %+v, want one settled and one released", list)
	}
	s.wantSettle("free again", settled.PullGUID, weir.SettleResult{Settled: 1, Done: true})
	s.release(released.PullGUID)
	s.wantTake("what was released", fmt.Sprintf("Instance Inserted orders(%s): %[1]s|n%[1]s", released.Changes[0].OldPrimaryKey))
}

// put postpones changes of a pull.
func (s *source) put(p *weir.Pull, what ...weir.Postponement) {
	s.t.Helper()
	if err := s.Postpone(s.t.Context(), p.PullGUID, what); err != nil {
		s.t.Fatal(err)
	}
}

func postponement(c weir.Change, delay time.Duration, message string) weir.Postponement {
	return weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType, Delay: delay, Error: message}
}

func testPostpone(t *testing.T, e Engine) {
	s := orders(t, e, 4)
	p := s.claim(10)
	before := s.status().Now
	message := "value it's \"bad\" ü🙂\n\x00 \xff end"
	s.put(p, postponement(p.Changes[0], time.Hour, message), postponement(p.Changes[1], 0, "at once"), postponement(p.Changes[2], time.Hour, ""))
	after := s.status().Now

	r := s.row(p.Changes[0].InstanceGUID, p.Changes[0].ChangeType)
	if r.State != weir.Postponed || !r.PullGUID.IsZero() || r.Attempts != 1 || r.NotBefore.Before(before.Add(time.Hour-time.Millisecond)) || r.NotBefore.After(after.Add(time.Hour)) {
		t.Errorf("a change postponed for an hour at %v is %+v", before, r)
	}
	if !strings.HasPrefix(r.LastError, "value it's \"bad\" ü🙂\n") || !strings.HasSuffix(r.LastError, " end") {
		t.Errorf("the error is kept as %q, want %q with what cannot be kept replaced", r.LastError, message)
	}
	r = s.row(p.Changes[1].InstanceGUID, p.Changes[1].ChangeType)
	if r.State != weir.Ready || r.Attempts != 1 || r.LastError != "at once" || !r.NotBefore.IsZero() {
		t.Errorf("a change given back at once is %+v", r)
	}
	r = s.row(p.Changes[2].InstanceGUID, p.Changes[2].ChangeType)
	if r.State != weir.Postponed || r.Attempts != 0 || r.LastError != "" {
		t.Errorf("a change that is not at fault is %+v", r)
	}
	if q := s.queueStatus(weir.DefaultQueue); q.Depth != 4 || q.Postponed != 2 || q.Ready != 1 || q.InFlight != 1 {
		t.Errorf("the queue is %+v, want 2 postponed, 1 ready and 1 in flight", q)
	}
	s.wantSettle("three of four were postponed", p.PullGUID, weir.SettleResult{Settled: 1, Done: true})

	q := s.claim(10)
	if len(q.Changes) != 1 || q.Changes[0].InstanceGUID != p.Changes[1].InstanceGUID || q.Changes[0].Attempts != 1 {
		t.Errorf("Claim brought %+v, want the change that was given back, with one attempt", q.Changes)
	}
	s.put(q, postponement(q.Changes[0], 0, "once more"))
	q2 := s.claim(10)
	if len(q2.Changes) != 1 || q2.Changes[0].Attempts != 2 {
		t.Errorf("Claim brought %+v, want the change with two attempts", q2.Changes)
	}
	s.wantSettle("nothing was left of it", q.PullGUID, weir.SettleResult{Settled: 0, Done: true})
	s.wantSettle("the last try worked", q2.PullGUID, weir.SettleResult{Settled: 1, Done: true})

	// A new version starts anew.
	s.exec("update orders set note = 'new'")
	for _, r := range s.list(weir.QueueSelector{}) {
		if r.State != weir.Ready || r.Attempts != 0 || !r.NotBefore.IsZero() {
			t.Errorf("a change tagged anew is %+v, want ready and without attempts", r)
		}
	}
	// A delay that passes.
	q = s.claim(1)
	s.put(q, postponement(q.Changes[0], 30*time.Millisecond, "soon"))
	s.release(q.PullGUID)
	eventually(t, "the postponed change comes due", func() bool { return s.queueStatus(weir.DefaultQueue).Ready == 4 })
	if got := len(s.claim(10).Changes); got != 4 {
		t.Errorf("Claim brought %d changes, want all 4", got)
	}
}

func testPostponeGrid(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	p := s.claim(10)
	before := s.status().Now
	var dues []time.Time
	for _, c := range p.Changes {
		s.put(p, weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType, Delay: time.Hour, Align: true, Error: "waits for another"})
		dues = append(dues, s.row(c.InstanceGUID, c.ChangeType).NotBefore)
	}
	after := s.status().Now
	for _, due := range dues {
		if due.UnixMicro()%time.Hour.Microseconds() != 0 || due.Before(before) || due.After(after.Add(time.Hour)) {
			t.Errorf("aligned to an hour at %v, a change is due at %v", before, due)
		}
		if !due.Equal(dues[0]) && before.Truncate(time.Hour).Equal(after.Truncate(time.Hour)) {
			t.Errorf("changes aligned to an hour are due at %v", dues)
		}
	}
}

func testPostponeAllOrNone(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	p := s.claim(2)
	var all []weir.Postponement
	for _, c := range p.Changes {
		all = append(all, postponement(c, time.Hour, "x"))
	}
	s.release(p.PullGUID)
	q := s.claim(2)
	if err := s.Postpone(t.Context(), p.PullGUID, all); !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("Postpone of a pull that is not live = %v, want ErrLeaseLost", err)
	}
	for _, r := range s.list(weir.QueueSelector{}) {
		if r.Attempts != 0 || r.LastError != "" || r.State == weir.Postponed {
			t.Errorf("Postpone of a pull that is not live changed %+v", r)
		}
	}
	// None is none; changes of other pulls are not touched.
	s.put(q)
	r := s.claim(10)
	s.put(q, postponement(r.Changes[0], time.Hour, "not yours"))
	if x := s.row(r.Changes[0].InstanceGUID, r.Changes[0].ChangeType); x.State != weir.InFlight || x.Attempts != 0 {
		t.Errorf("Postpone changed another pull's change to %+v", x)
	}
	s.wantSettle("the pull", q.PullGUID, weir.SettleResult{Settled: 2, Done: true})
	s.wantSettle("the other pull", r.PullGUID, weir.SettleResult{Settled: 1, Done: true})
}

func testPostponeRetagged(t *testing.T, e Engine) {
	s := orders(t, e, 2)
	p := s.claim(10)
	s.exec("update orders set note = 'new' where id = 1", "delete from orders where id = 2")
	s.put(p, postponement(p.Changes[0], time.Hour, "old"), weir.Postponement{InstanceGUID: p.Changes[1].InstanceGUID, ChangeType: p.Changes[1].ChangeType, Dead: true, Error: "old"})
	if q := s.queueStatus(weir.DefaultQueue); q.Waiting != 2 || q.Depth != 2 {
		t.Errorf("after a postponement of what was tagged anew the queue is %+v, want 2 waiting", q)
	}
	s.release(p.PullGUID)
	for _, c := range s.claim(10).Changes {
		if c.Attempts != 0 {
			t.Errorf("an attempt of the old version counts for the new one: %+v", c)
		}
	}
}

func testDead(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	p := s.claim(2)
	for _, c := range p.Changes {
		s.put(p, weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType, Delay: time.Minute, Dead: true, Error: "hopeless " + c.OldPrimaryKey})
	}
	s.wantSettle("all are dead letters", p.PullGUID, weir.SettleResult{Settled: 0, Done: true})
	dead := s.list(weir.QueueSelector{State: weir.Dead})
	if len(dead) != 2 || dead[0].LastError != "hopeless "+dead[0].OldPrimaryKey || dead[0].Attempts != 1 || !dead[0].NotBefore.IsZero() {
		t.Errorf("the dead letters are %+v", dead)
	}
	if q := s.queueStatus(weir.DefaultQueue); q.Dead != 2 || q.Ready != 1 || q.Postponed != 0 || q.Depth != 3 {
		t.Errorf("the queue is %+v, want 2 dead and 1 ready", q)
	}
	q := s.claim(10)
	if len(q.Changes) != 1 {
		t.Errorf("Claim brought %+v, want the one that is alive", q.Changes)
	}
	s.settle(q.PullGUID)
	if q := s.queueStatus(weir.DefaultQueue); q.OldestAge != 0 {
		t.Errorf("with dead letters alone the oldest age is %v, want 0", q.OldestAge)
	}
	// By hand.
	n, err := s.Retry(t.Context(), weir.QueueSelector{InstanceGUID: dead[0].InstanceGUID, State: weir.Dead})
	if err != nil || n != 1 {
		t.Errorf("Retry = %d, %v, want 1", n, err)
	}
	q = s.claim(10)
	if len(q.Changes) != 1 || q.Changes[0].InstanceGUID != dead[0].InstanceGUID || q.Changes[0].Attempts != 0 {
		t.Errorf("after Retry Claim brought %+v, want the dead letter, its attempts forgotten", q.Changes)
	}
	s.settle(q.PullGUID)
	// By a new version.
	s.execf("update orders set note = 'new' where id = %s", dead[1].OldPrimaryKey)
	q = s.claim(10)
	if len(q.Changes) != 1 || q.Changes[0].InstanceGUID != dead[1].InstanceGUID || q.Changes[0].Attempts != 0 {
		t.Errorf("after a new version Claim brought %+v, want it", q.Changes)
	}
	s.settle(q.PullGUID)
	s.wantEmpty("in the end")
}

func testExtend(t *testing.T, e Engine) {
	s := orders(t, e, 1)
	req := s.request(1)
	req.Lease = time.Millisecond
	p := s.claimBy(req)
	s.expire(p.PullGUID)
	before := s.status().Now
	if err := s.Extend(t.Context(), p.PullGUID, time.Hour); err != nil {
		t.Fatal(err)
	}
	st := s.status()
	if until := st.Pulls[0].LeaseUntil; until.Before(before.Add(time.Hour-time.Millisecond)) || until.After(st.Now.Add(time.Hour)) {
		t.Errorf("extended by an hour at %v, the lease ends at %v", before, until)
	}
	if list, err := s.Expired(t.Context(), "test", s.ledger); err != nil || len(list) != 0 {
		t.Errorf("Expired after Extend = %+v, %v, want none", list, err)
	}
	// Shorter is as good as longer.
	if err := s.Extend(t.Context(), p.PullGUID, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	s.expire(p.PullGUID)
	for what, err := range map[string]error{"an unknown pull": s.Extend(t.Context(), weir.NewGUID(), time.Hour)} {
		if !errors.Is(err, weir.ErrLeaseLost) {
			t.Errorf("Extend of %s = %v, want ErrLeaseLost", what, err)
		}
	}
}

func testExpired(t *testing.T, e Engine) {
	s := orders(t, e, 4)
	live := s.claim(1)
	req := s.request(2)
	req.Lease, req.Puller = time.Millisecond, "gone:1"
	p := s.claimBy(req)
	s.expire(p.PullGUID)
	list, err := s.Expired(t.Context(), "test", s.ledger)
	if err != nil {
		t.Fatal(err)
	}
	if want := []weir.Expired{{PullGUID: p.PullGUID, Puller: "gone:1", Rows: 2, State: weir.StateClaimed}}; !slices.Equal(list, want) {
		t.Errorf("Expired = %+v, want %+v", list, want)
	}
	if list, err := s.Expired(t.Context(), "another", s.ledger); err != nil || len(list) != 0 {
		t.Errorf("Expired of another name = %+v, %v, want none", list, err)
	}
	// An expired pull is live until it is finished: it may still settle.
	s.wantSettle("an expired pull", p.PullGUID, weir.SettleResult{Settled: 2, Done: true})
	if list, err := s.Expired(t.Context(), "test", s.ledger); err != nil || len(list) != 0 {
		t.Errorf("Expired after the settle = %+v, %v, want none", list, err)
	}
	s.wantSettle("the live pull", live.PullGUID, weir.SettleResult{Settled: 1, Done: true})
}

func testExpiredOtherLedger(t *testing.T, e Engine) {
	s := orders(t, e, 1)
	other := weir.NewGUID()
	req := s.request(1)
	req.Lease = time.Hour
	p := s.claimBy(req)
	if list, err := s.Expired(t.Context(), "test", other); err != nil || len(list) != 0 {
		t.Errorf("Expired into another ledger beside a pull whose lease runs = %+v, %v, want none", list, err)
	}
	if err := s.Extend(t.Context(), p.PullGUID, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	s.expire(p.PullGUID)
	_, err := s.Expired(t.Context(), "test", other)
	c := wantConfig(t, "Expired into another ledger", err)
	if text := c.Error(); !strings.Contains(text, p.PullGUID.String()) || !strings.Contains(text, s.ledger.String()) || !strings.Contains(text, other.String()) {
		t.Errorf("the error is %q, want the pull and both ledgers in it", text)
	}
}

func testFinishLockedRows(t *testing.T, e Engine) {
	for _, op := range []string{"settle", "release"} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commit %t", op, commits), func(t *testing.T) {
				s := orders(t, e, 3)
				p := s.claim(10)
				tx := s.begin(sql.LevelDefault)
				exec(t, tx, "update orders set note = 'busy' where id = 2", "delete from orders where id = 3")
				finish := func() (weir.SettleResult, error) {
					if op == "settle" {
						return s.Settle(t.Context(), p.PullGUID)
					}
					return weir.SettleResult{}, s.Release(t.Context(), p.PullGUID)
				}
				r, err := finish()
				if e.SingleWriter {
					as[*weir.UnavailableError](t, err)
				} else {
					if err != nil {
						t.Fatal(err)
					}
					if op == "settle" && r != (weir.SettleResult{Settled: 1}) {
						t.Errorf("with two rows locked Settle = %+v, want 1 settled, not done", r)
					}
					s.wantNothingBut(op == "release", "1")
				}
				var want []string
				if commits {
					commit(t, tx)
					want = []string{"Instance Inserted orders(2): 2|busy", "Instance Deleted orders(3)"}
				} else {
					if err := tx.Rollback(); err != nil {
						t.Fatal(err)
					}
					if op == "release" {
						want = []string{"Instance Inserted orders(2): 2|n2", "Instance Inserted orders(3): 3|n3"}
					}
				}
				if !e.SingleWriter {
					list, err := s.Expired(t.Context(), "test", s.ledger)
					state := map[string]weir.PullState{"settle": weir.StateSettled, "release": weir.StateReleased}[op]
					if err != nil || len(list) != 1 || list[0].PullGUID != p.PullGUID || list[0].State != state {
						t.Errorf("Expired = %+v, %v, want the pull as %s", list, err, state)
					}
				}
				r, err = finish()
				if err != nil {
					t.Fatal(err)
				}
				if op == "settle" && !r.Done {
					t.Errorf("after the user's transaction Settle = %+v, want done", r)
				}
				if st := s.status(); len(st.Pulls) != 0 {
					t.Errorf("the pull is still among %+v", st.Pulls)
				}
				if op == "release" && e.SingleWriter {
					want = append(want, "Instance Inserted orders(1): 1|n1")
				}
				s.wantTake("in the end", want...)
			})
		}
	}
}

// wantNothingBut claims what a release freed, and settles it.
func (s *source) wantNothingBut(freed bool, key string) {
	s.t.Helper()
	if !freed {
		s.wantNothing("beside the user's transaction")
		return
	}
	p := s.claim(10)
	if got := keys(p.Changes); !slices.Equal(got, []string{key}) {
		s.t.Errorf("Claim brought %q, want %s", got, key)
	}
	s.settle(p.PullGUID)
}

func testPostponeLockedRows(t *testing.T, e Engine) {
	s := orders(t, e, 2)
	p := s.claim(10)
	tx := s.begin(sql.LevelDefault)
	exec(t, tx, "update orders set note = 'busy' where id = 2")
	began := time.Now()
	err := s.Postpone(t.Context(), p.PullGUID, []weir.Postponement{postponement(p.Changes[0], time.Hour, "x"), postponement(p.Changes[1], time.Hour, "x")})
	as[*weir.UnavailableError](t, err)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Postpone waited %v for a user's transaction", took)
	}
	for _, r := range s.list(weir.QueueSelector{}) {
		if r.Attempts != 0 || r.State != weir.InFlight || r.LastError != "" {
			t.Errorf("a Postpone that could not be done changed %+v", r)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.put(p, postponement(p.Changes[0], time.Hour, "x"), postponement(p.Changes[1], time.Hour, "x"))
	if q := s.queueStatus(weir.DefaultQueue); q.Postponed != 2 {
		t.Errorf("afterwards the queue is %+v, want 2 postponed", q)
	}
}

func testDelay(t *testing.T, e Engine) {
	s := orders(t, e, 4)
	p := s.claim(1)
	n, err := s.Delay(t.Context(), weir.QueueSelector{}, time.Hour)
	if err != nil || n != 3 {
		t.Errorf("Delay = %d, %v, want the 3 that no pull holds", n, err)
	}
	s.wantNothing("all is delayed")
	s.release(p.PullGUID)
	q := s.claim(10)
	if len(q.Changes) != 1 {
		t.Errorf("Claim brought %+v, want the one that was in flight", q.Changes)
	}
	if n, err = s.Retry(t.Context(), weir.QueueSelector{State: weir.Postponed}); err != nil || n != 3 {
		t.Errorf("Retry = %d, %v, want 3", n, err)
	}
	if n, err = s.Retry(t.Context(), weir.QueueSelector{}); err != nil || n != 0 {
		t.Errorf("Retry again = %d, %v, want 0", n, err)
	}
	if got := len(s.claim(10).Changes); got != 3 {
		t.Errorf("Claim brought %d changes, want 3", got)
	}
	// What the selector chooses.
	s = orders(t, e, 4)
	rows := s.list(weir.QueueSelector{Limit: 2})
	if len(rows) != 2 || rows[1].ChangedOn.Before(rows[0].ChangedOn) {
		t.Errorf("List of at most 2 = %+v, want the two oldest", rows)
	}
	if n, err := s.Delay(t.Context(), weir.QueueSelector{InstanceGUID: rows[0].InstanceGUID, ChangeType: weir.InstanceDeleted}, time.Hour); err != nil || n != 0 {
		t.Errorf("Delay of a type that the instance has not = %d, %v, want 0", n, err)
	}
	if n, err := s.Delay(t.Context(), weir.QueueSelector{InstanceGUID: rows[0].InstanceGUID}, time.Hour); err != nil || n != 1 {
		t.Errorf("Delay of one instance = %d, %v, want 1", n, err)
	}
	if got := len(s.list(weir.QueueSelector{State: weir.Postponed})); got != 1 {
		t.Errorf("%d changes are postponed, want 1", got)
	}
	if got := len(s.list(weir.QueueSelector{CaptureID: s.capture("orders", "").ID})); got != 4 {
		t.Errorf("the capture has %d changes, want 4", got)
	}
	pull := s.claim(2)
	if got := len(s.list(weir.QueueSelector{Pull: pull.PullGUID})); got != 2 {
		t.Errorf("the pull has %d changes, want 2", got)
	}
}
