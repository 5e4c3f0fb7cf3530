package puller

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDrain_MaxDeletes(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     Config
		deleted int
		limit   int64 // 0: it goes through
	}{
		"rows":             {Config{Batch: 4, MaxDeletes: Limit{Rows: 10}}, 8, 10},
		"just enough":      {Config{Batch: 4, MaxDeletes: Limit{Rows: 12}}, 12, 0},
		"percent":          {Config{Batch: 4, MaxDeletes: Limit{Percent: 25}}, 4, 5},
		"percent, enough":  {Config{Batch: 4, MaxDeletes: Limit{Percent: 60}}, 12, 0},
		"of other tables":  {Config{Batch: 4, MaxDeletes: Limit{Percent: 1}, Captures: []int32{2}}, 12, 0}, // 0 rows: nothing can be lost
		"allowed":          {Config{Batch: 4, MaxDeletes: Limit{Rows: 1}, AllowDeletes: true}, 12, 0},
		"no limit":         {Config{Batch: 4}, 12, 0},
		"more than a zero": {Config{Batch: 20, MaxDeletes: Limit{Percent: 1}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			act(t, c.cfg, func(s *scene) {
				s.fill(20)
				_, all := s.process(Config{})
				if _, err := all.Drain(s.t.Context()); err != nil {
					t.Fatal(err)
				}
				for key := 1; key <= 12; key++ {
					s.del(key, false)
					time.Sleep(time.Millisecond)
				}
				r, err := s.p.Drain(s.t.Context())
				if r.Deleted != c.deleted {
					t.Errorf("%+v", r)
				}
				var limit *DeleteLimitError
				switch {
				case name == "more than a zero":
					if !errors.As(err, &limit) || limit.Limit != 0 || limit.Deletes != 12 {
						t.Errorf("%v", err)
					}
				case c.limit == 0:
					if err != nil {
						t.Error(err)
					}
					s.rest()
					return
				case !errors.As(err, &limit) || limit.Limit != c.limit || !strings.Contains(err.Error(), "weir pull pull --allow-deletes"):
					t.Errorf("%v", err)
				}
				s.free(12 - c.deleted)
				if n := s.proc.count("rows"); n > 1 {
					t.Errorf("the target's rows were counted %d times", n)
				}
			})
		})
	}
}

// A target that has nothing yet can lose nothing; rows at fault are not counted.
func TestDrain_MaxDeletesCountsWhatIsShipped(t *testing.T) {
	act(t, Config{Batch: 4, MaxDeletes: Limit{Percent: 10}}, func(s *scene) {
		for range 3 {
			s.put(1, row{unique: 1}, false)
			s.del(1, false)
			s.drain()
		}
		s.rest()
	})
}
