package dialecttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

var outageTests = []test{
	{"Source", testOutageSource},
	{"Target", testOutageTarget},
	{"Cancelled", testCancelled},
}

// wantUnavailable fails unless err is an outage, of the given side.
func wantUnavailable(t *testing.T, op string, side weir.Side, err error) {
	t.Helper()
	var u *weir.UnavailableError
	if !errors.As(err, &u) {
		t.Errorf("%s = %v (%T), want a *weir.UnavailableError", op, err, err)
		return
	}
	if u.Side != side || u.Op == "" || u.Err == nil {
		t.Errorf("%s = %+v, want the %s's, with what was tried and why it failed", op, u, side)
	}
}

// sourceCalls are all that a source can be asked.
func sourceCalls(ctx context.Context, s Source, req weir.ClaimRequest, p *weir.Pull, id int32) map[string]func() error {
	return map[string]func() error{
		"Captures": func() error { _, err := s.Captures(ctx); return err },
		"Fold":     func() error { _, err := s.Fold(ctx, 10); return err },
		"Claim":    func() error { _, err := s.Claim(ctx, req); return err },
		"Read":     func() error { _, err := s.Read(ctx, p, weir.ReadRequest{Encoding: weir.EncodingText}); return err },
		"Settle":   func() error { _, err := s.Settle(ctx, p.PullGUID); return err },
		"Release":  func() error { return s.Release(ctx, p.PullGUID) },
		"Postpone": func() error {
			return s.Postpone(ctx, p.PullGUID, []weir.Postponement{postponement(p.Changes[0], 0, "x")})
		},
		"Extend":  func() error { return s.Extend(ctx, p.PullGUID, time.Hour) },
		"Expired": func() error { _, err := s.Expired(ctx, "test", weir.NewGUID()); return err },
		"Init":    func() error { _, err := s.Init(ctx); return err },
		"Down":    func() error { return s.Down(ctx) },
		"Resolve": func() error {
			_, err := s.Resolve(ctx, []weir.CaptureSpec{{Table: weir.Table{Name: "orders"}}})
			return err
		},
		"Installed": func() error { _, err := s.Installed(ctx); return err },
		"Apply":     func() error { return s.Apply(ctx, weir.Table{Name: "orders"}, []string{"delete from orders"}) },
		"Backfill":  func() error { _, err := s.Backfill(ctx, id, 10, false); return err },
		"Status":    func() error { _, err := s.Status(ctx); return err },
		"List":      func() error { _, err := s.List(ctx, weir.QueueSelector{}); return err },
		"Retry":     func() error { _, err := s.Retry(ctx, weir.QueueSelector{}); return err },
		"Delay":     func() error { _, err := s.Delay(ctx, weir.QueueSelector{}, time.Hour); return err },
	}
}

func targetCalls(ctx context.Context, tg weir.Target) map[string]func() error {
	return map[string]func() error{
		"Ledger":  func() error { _, err := tg.Ledger(ctx); return err },
		"Ship":    func() error { return tg.Ship(ctx, weir.Shipment{PullGUID: weir.NewGUID(), Batch: one("2", "lost")}) },
		"Isolate": func() error { _, err := tg.Isolate(ctx, one("2", "lost")); return err },
		"Revoke":  func() error { _, err := tg.Revoke(ctx, weir.NewGUID()); return err },
		"Rows":    func() error { _, err := tg.Rows(ctx, []*weir.Capture{one("2", "lost").Tables[0].Capture}); return err },
	}
}

// testOutageSource asks all methods while the database cannot be reached: those
// of a source that was never connected, and of one that lost its connections.
func testOutageSource(t *testing.T, e Engine) {
	for _, used := range []bool{false, true} {
		t.Run(map[bool]string{false: "never connected", true: "connection lost"}[used], func(t *testing.T) {
			s := orders(t, e, 3)
			p := s.claim(1)
			url, cut := e.Breakable(t, s.url)
			broken := openSource(t, e, url)
			if used {
				if _, err := broken.Status(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			cut()
			for op, call := range sourceCalls(t.Context(), broken, s.request(10), p, s.capture("orders", "").ID) {
				began := time.Now()
				wantUnavailable(t, op, weir.AtSource, call())
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("%s took %v to find that out", op, took)
				}
			}
		})
	}
}

func testOutageTarget(t *testing.T, e Engine) {
	for _, used := range []bool{false, true} {
		t.Run(map[bool]string{false: "never connected", true: "connection lost"}[used], func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{})
			tg.ship(one("1", "before"))
			url, cut := e.Breakable(t, tg.url)
			broken := openTarget(t, e, url, weir.TargetOptions{})
			if used {
				if _, err := broken.Ledger(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			cut()
			for op, call := range targetCalls(t.Context(), broken) {
				if op == "Ledger" && used {
					continue // it is known
				}
				wantUnavailable(t, op, weir.AtTarget, call())
			}
		})
	}
}

// testCancelled: a caller's context that has ended is an outage, too, and
// nothing was done.
func testCancelled(t *testing.T, e Engine) {
	s := orders(t, e, 3)
	p := s.claim(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for op, call := range sourceCalls(ctx, s, s.request(10), p, s.capture("orders", "").ID) {
		wantUnavailable(t, op, weir.AtSource, call())
	}
	if q := s.queueStatus(weir.DefaultQueue); q.InFlight != 1 || q.Ready != 2 {
		t.Errorf("calls that were cancelled left the queue as %+v, want 1 in flight and 2 ready", q)
	}
	s.wantRows("select count(*) from orders", "3")
	tg := newTarget(t, e, weir.TargetOptions{})
	tg.ship(one("1", "a"))
	for op, call := range targetCalls(ctx, tg) {
		if op != "Ledger" {
			wantUnavailable(t, op, weir.AtTarget, call())
		}
	}
	tg.wantRows(selectOne, "1|a")
}
