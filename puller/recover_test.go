package puller

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

// abandon claims everything as a process that is gone, and ships it perhaps.
func (s *scene) abandon(ship bool) weir.GUID {
	s.t.Helper()
	proc, _ := s.process(Config{})
	pull, err := proc.Claim(s.t.Context(), weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "pull", Ledger: s.id, Limit: 100, Lease: time.Minute})
	if err != nil {
		s.t.Fatal(err)
	}
	if ship {
		read, err := proc.Read(s.t.Context(), pull, weir.ReadRequest{MaxBytes: 1 << 20})
		if err != nil {
			s.t.Fatal(err)
		}
		if err := proc.Ship(s.t.Context(), weir.Shipment{PullGUID: pull.PullGUID, Batch: read.Batch}); err != nil {
			s.t.Fatal(err)
		}
	}
	return pull.PullGUID
}

func TestRecover(t *testing.T) {
	for name, shipped := range map[string]bool{"shipped": true, "not shipped": false} {
		t.Run(name, func(t *testing.T) {
			act(t, Config{}, func(s *scene) {
				s.fill(3)
				guid := s.abandon(shipped)
				if r, err := s.p.Recover(s.t.Context()); err != nil || r.Recovered != 0 {
					t.Errorf("before its lease is over: %+v, %v", r, err)
				}
				time.Sleep(2 * time.Minute)
				if r, err := s.p.Recover(s.t.Context()); err != nil || r.Recovered != 1 {
					t.Errorf("%+v, %v", r, err)
				}
				if !shipped {
					s.free(3)
					if s.ledger[guid] != revoked {
						t.Errorf("the ledger says %q", s.ledger[guid])
					}
				}
				s.drain()
				s.rest()
			})
		})
	}
}

// Rows that a writer held when their pull was settled or released, and that it
// gave back unchanged, are finished by the next run.
func TestRecover_LockedRows(t *testing.T) {
	for name, shipped := range map[string]bool{"settled": true, "released": false} {
		t.Run(name, func(t *testing.T) {
			act(t, Config{}, func(s *scene) {
				s.fill(3)
				guid := s.abandon(shipped)
				s.locked[2] = true
				if committed, err := s.p.Finish(s.t.Context(), guid); committed != shipped || err != nil {
					t.Errorf("%v, %v", committed, err)
				}
				if s.pulls[guid] == nil || len(s.p.forget.pulls) != 0 {
					t.Error("the pull is gone, or forgotten, while a row names it")
				}
				delete(s.locked, 2)
				if r := s.drain(); r.Recovered != 1 {
					t.Errorf("%+v", r)
				}
				s.rest()
			})
		})
	}
}

// A pull that somebody is shipping at this moment keeps nobody from pulling.
func TestRecover_UnderWay(t *testing.T) {
	act(t, Config{}, func(s *scene) {
		s.fill(2)
		guid := s.abandon(false)
		time.Sleep(2 * time.Minute)
		s.underWay[guid] = true
		s.put(3, row{unique: 3}, false)
		r, err := s.p.Drain(s.t.Context())
		if outageOf(err) != weir.AtTarget || r.Upserted != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		delete(s.underWay, guid)
		s.drain()
		s.rest()
	})
}

func TestRecover_AnotherLedger(t *testing.T) {
	act(t, Config{}, func(s *scene) {
		s.fill(2)
		s.abandon(true)
		time.Sleep(2 * time.Minute)
		s.id = weir.GUID{2}
		_, err := s.p.Drain(s.t.Context())
		var wrong *weir.ConfigError
		if !errors.As(err, &wrong) || s.proc.count("claim") != 0 {
			t.Errorf("%v", err)
		}
	})
}
