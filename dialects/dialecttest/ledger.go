package dialecttest

import (
	"errors"
	"sync"
	"testing"

	"github.com/weir-cdc/weir"
)

var ledgerTests = []test{
	{"Identity", testLedgerIdentity},
	{"ShipThenRevoke", testShipThenRevoke},
	{"RevokeThenShip", testRevokeThenShip},
	{"ShipTwice", testShipTwice},
	{"FailedShip", testFailedShip},
	{"Race", testLedgerRace},
	{"ShipRace", testShipRace},
	{"Forget", testForget},
}

const selectOne = "select id, v from one order by id"

func testLedgerIdentity(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	var wg sync.WaitGroup
	guids := make([]weir.GUID, 4)
	for i := range guids {
		other := openTarget(t, e, tg.url, weir.TargetOptions{})
		wg.Go(func() {
			g, err := other.Ledger(t.Context())
			if err != nil {
				t.Error(err)
			}
			guids[i] = g
		})
	}
	wg.Wait()
	for _, g := range guids {
		if g.IsZero() || g != guids[0] {
			t.Errorf("one target has the ledgers %v", guids)
		}
	}
	other := newTarget(t, e, weir.TargetOptions{})
	if g, err := other.Ledger(t.Context()); err != nil || g == guids[0] || g.IsZero() {
		t.Errorf("another target has the ledger %s, %v", g, err)
	}
}

func testShipThenRevoke(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	pull := weir.NewGUID()
	if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one("1", "a")}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if committed, err := tg.Revoke(t.Context(), pull); err != nil || !committed {
			t.Errorf("Revoke after Ship = %t, %v, want committed", committed, err)
		}
	}
	tg.wantRows(selectOne, "1|a")
	if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one("1", "a")}); err != nil {
		t.Errorf("Ship of a committed pull after Revoke = %v, want nil", err)
	}
}

func testRevokeThenShip(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	tg.ship(one("1", "before"))
	pull := weir.NewGUID()
	for range 2 {
		if committed, err := tg.Revoke(t.Context(), pull); err != nil || committed {
			t.Errorf("Revoke = %t, %v, want not committed", committed, err)
		}
	}
	for range 2 {
		if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one("1", "after")}); !errors.Is(err, weir.ErrRevoked) {
			t.Errorf("Ship of a revoked pull = %v, want ErrRevoked", err)
		}
	}
	tg.wantRows(selectOne, "1|before")
	// On a target that nothing was shipped to.
	empty := newTarget(t, e, weir.TargetOptions{})
	if committed, err := empty.Revoke(t.Context(), pull); err != nil || committed {
		t.Errorf("Revoke at an empty target = %t, %v, want not committed", committed, err)
	}
	if err := empty.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one("1", "x")}); !errors.Is(err, weir.ErrRevoked) {
		t.Errorf("Ship of a revoked pull = %v, want ErrRevoked", err)
	}
}

func testShipTwice(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	other := openTarget(t, e, tg.url, weir.TargetOptions{})
	pull := weir.NewGUID()
	for i, to := range []weir.Target{tg, tg, other} {
		if err := to.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one("1", numbered("v%d", 3)[i])}); err != nil {
			t.Fatal(err)
		}
	}
	tg.wantRows(selectOne, "1|v0")
	// A pull without rows is entered, too.
	empty := weir.NewGUID()
	if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: empty, Batch: &weir.Batch{}}); err != nil {
		t.Fatal(err)
	}
	if committed, err := tg.Revoke(t.Context(), empty); err != nil || !committed {
		t.Errorf("Revoke of an empty pull = %t, %v, want committed", committed, err)
	}
}

// testFailedShip ships the same pull again after a sure rollback.
func testFailedShip(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, "create table one (id "+e.Int+" not null primary key, v "+e.Text+" check (v <> 'bad'))")
	pull := weir.NewGUID()
	s := shaped("one", "id int32", "v text")
	b := batch(s.of(upsert("1", "good"), upsert("2", "bad")))
	err := tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: b})
	if r := as[*weir.RowError](t, err); r.Constraint {
		t.Errorf("a check that fails is the error %+v, want it to be the row's own fault", r)
	}
	tg.wantRows(selectOne)
	if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: b.Without([]weir.Fault{{Table: 0, Item: 1}})}); err != nil {
		t.Fatal(err)
	}
	tg.wantRows(selectOne, "1|good")
	if committed, err := tg.Revoke(t.Context(), pull); err != nil || !committed {
		t.Errorf("Revoke = %t, %v, want committed", committed, err)
	}
}

// testLedgerRace lets Ship and Revoke of one pull race: one wins, and both say
// the same.
func testLedgerRace(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	tg.ship(one("0", "x"))
	won := map[bool]int{}
	for i := range 60 {
		pull, key := weir.NewGUID(), numbered("%d", 100)[i+1]
		var shipErr, revokeErr error
		var committed bool
		var wg sync.WaitGroup
		start := make(chan struct{})
		wg.Go(func() {
			<-start
			shipErr = tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one(key, "x")})
		})
		wg.Go(func() {
			<-start
			if i%2 == 0 {
				_, _ = tg.Revoke(t.Context(), weir.NewGUID()) // a moment later
			}
			committed, revokeErr = tg.Revoke(t.Context(), pull)
		})
		close(start)
		wg.Wait()
		if revokeErr != nil || shipErr != nil && !errors.Is(shipErr, weir.ErrRevoked) {
			t.Fatalf("Ship = %v, Revoke = %v, want nil or ErrRevoked, and nil", shipErr, revokeErr)
		}
		there := len(tg.rows("select id from one where id = "+key)) == 1
		if (shipErr == nil) != committed || there != committed {
			t.Errorf("Ship = %v, Revoke = committed %t, and the row is there: %t", shipErr, committed, there)
		}
		won[committed]++
	}
	t.Logf("%d shipped, %d revoked", won[true], won[false])
}

// testShipRace ships one pull from several processes at once.
func testShipRace(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{Mode: weir.History})
	tg.ship(one("0", "x"))
	for i := range 10 {
		pull, key := weir.NewGUID(), numbered("%d", 100)[i+1]
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one(key, "x")}); err != nil && !errors.As(err, new(*weir.UnavailableError)) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		tg.wantRows("select count(*) from one where id = "+key, "1")
	}
}

func testForget(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	done, kept, revoked := weir.NewGUID(), weir.NewGUID(), weir.NewGUID()
	for _, pull := range []weir.GUID{done, kept} {
		if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: one("1", "first")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tg.Revoke(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	// A shipment that is turned back forgets nothing.
	if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: revoked, Batch: one("1", "x"), Forget: []weir.GUID{kept}}); !errors.Is(err, weir.ErrRevoked) {
		t.Errorf("Ship of a revoked pull = %v, want ErrRevoked", err)
	}
	if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: one("1", "second"), Forget: []weir.GUID{done, revoked, weir.NewGUID()}}); err != nil {
		t.Fatal(err)
	}
	// The ledger shows by what it lets through.
	for _, test := range []struct {
		pull weir.GUID
		err  error
		want string
	}{{kept, nil, "1|second"}, {revoked, weir.ErrRevoked, "1|second"}, {done, nil, "1|third"}} {
		if err := tg.Ship(t.Context(), weir.Shipment{PullGUID: test.pull, Batch: one("1", "third")}); !errors.Is(err, test.err) {
			t.Errorf("Ship = %v, want %v", err, test.err)
		}
		tg.wantRows(selectOne, test.want)
	}
}
