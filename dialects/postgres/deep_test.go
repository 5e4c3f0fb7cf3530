package postgres_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

// deep is how many changes the deep queues hold: 300,000 with WEIR_TEST_LOAD,
// which asks for the long form of tests.
func deep() int {
	if os.Getenv("WEIR_TEST_LOAD") != "" {
		return 300_000
	}
	return 60_000
}

// idle opens a transaction whose snapshot keeps every dead row where it is.
func (w *world) idle() {
	w.Helper()
	c := w.session(w.url)
	w.on(c, "begin isolation level repeatable read")
	w.on(c, "select count(*) from pg_class")
}

// blocks is how many blocks of weir's tables a session of the user's has looked
// at. Unlike time, it does not depend on what else the machine does.
func (w *world) blocks() int64 {
	w.Helper()
	w.exec("select pg_stat_force_next_flush()")
	w.exec("select pg_stat_clear_snapshot()")
	return one[int64](w, "select sum(coalesce(heap_blks_hit + heap_blks_read, 0) + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint from pg_statio_user_tables where schemaname = 'weir'")
}

// cost is what a step took.
type cost struct {
	blocks int64
	time   time.Duration
}

func (c *cost) of(w *world, step func()) {
	before, start := w.blocks(), time.Now()
	step()
	took := time.Since(start)
	c.blocks, c.time = c.blocks+w.blocks()-before, c.time+took
}

// TestDeepQueue: under an open transaction, which keeps vacuum from removing
// anything, claims with the From hint keep their rate to the queue's end; those
// without it walk over all that was claimed before.
func TestDeepQueue(t *testing.T) {
	drain := func(hint bool) float64 {
		w := newWorld(t)
		w.idle()
		w.exec(fmt.Sprintf("insert into weir.instance_changes (instance_guid, change_type, changed_on, old_primary_key) select md5(g::text)::uuid, 'Instance Inserted', clock_timestamp(), g::text from generate_series(1, %d) g", deep()))
		w.exec("analyze weir.instance_changes")
		from, left := "-infinity", deep()
		claim := func(limit int) {
			guid := weir.NewGUID().String()
			list := ask[time.Time](w, fmt.Sprintf("select changed_on from weir.claim('default', '%s', 'test', 'test', '%s', %d, '1 min', i_from => '%s')", guid, guid, limit, from))
			if len(list) != limit {
				t.Fatalf("claimed %d, want %d", len(list), limit)
			}
			left -= limit
			if hint {
				from = slices.MaxFunc(list, time.Time.Compare).UTC().Format("2006-01-02 15:04:05.999999+00")
			}
			w.exec("select weir.settle('" + guid + "')")
		}
		var first, last cost
		first.of(w, func() {
			for range 10 {
				claim(50)
			}
		})
		for left > 5500 {
			claim(5000)
		}
		last.of(w, func() {
			for range 10 {
				claim(50)
			}
		})
		claim(left)
		if n := one[int64](w, "select count(*) from weir.instance_changes"); n != 0 {
			t.Errorf("%d changes are left", n)
		}
		t.Logf("hint %t: the first claims cost %d blocks and %v, the last %d blocks and %v", hint, first.blocks, first.time, last.blocks, last.time)
		return float64(last.blocks) / float64(first.blocks)
	}
	with, without := drain(true), drain(false)
	if with > 1.3 {
		t.Errorf("the last claims with the hint cost %.2f times the first ones, want a steady rate", with)
	}
	if without < 2*with {
		t.Errorf("without the hint it is %.2f times: the hint is not needed, or the test is no measure", without)
	}
}
