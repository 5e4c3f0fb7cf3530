package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

// BenchmarkTag compares inserts and updates with and without capture, 10,000
// rows a statement.
func BenchmarkTag(b *testing.B) {
	for _, key := range []string{"integer", "text"} {
		for _, tagging := range []weir.Tagging{"", weir.AtOnce, weir.Deferred} {
			b.Run(fmt.Sprintf("%s/%s", key, tagging), func(b *testing.B) {
				f := newFixture(b, "create table t (k "+key+" primary key, v)")
				if tagging != "" {
					f.capture(weir.CaptureSpec{Table: weir.Table{Name: "t"}, Tagging: tagging})
				}
				const rows = 10000
				var inserting, updating time.Duration
				for b.Loop() {
					began := time.Now()
					f.exec("insert into t with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000) select case '" + key + "' when 'text' then 'customer-' || i else i end, 0 from n")
					inserting += time.Since(began)
					began = time.Now()
					f.exec("update t set v = v + 1")
					updating += time.Since(began)
					f.exec("delete from t")
				}
				b.ReportMetric(float64(inserting.Nanoseconds())/float64(b.N*rows), "ns/insert")
				b.ReportMetric(float64(updating.Nanoseconds())/float64(b.N*rows), "ns/update")
			})
		}
	}
}

// BenchmarkDrain pulls 10,000 rows in batches of 5,000 from one file to another.
func BenchmarkDrain(b *testing.B) {
	f := newFixture(b, "create table t (id integer primary key, a text, b real, c text)")
	f.plain("t")
	s := newSink(b, weir.TargetOptions{})
	f.exec("insert into t with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000) select i, 'name ' || i, i * 1.5, 'some more text' from n")
	step := func(what *time.Duration, do func()) {
		began := time.Now()
		do()
		*what += time.Since(began)
	}
	var claim, read, ship, settle time.Duration
	for b.Loop() {
		f.exec("update t set b = b + 1")
		for range 2 {
			var p *weir.Pull
			var r *weir.ReadResult
			step(&claim, func() { p = f.claim(5000) })
			step(&read, func() { r = f.read(p, s.Encoding()) })
			step(&ship, func() {
				if err := s.Ship(b.Context(), weir.Shipment{PullGUID: p.PullGUID, Batch: r.Batch}); err != nil {
					b.Fatal(err)
				}
			})
			step(&settle, func() {
				if _, err := f.source.Settle(b.Context(), p.PullGUID); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
	for name, d := range map[string]time.Duration{"claim": claim, "read": read, "ship": ship, "settle": settle} {
		b.ReportMetric(float64(d.Nanoseconds())/float64(b.N*10000), name+"-ns/row")
	}
}
