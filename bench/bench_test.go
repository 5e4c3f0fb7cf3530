// Package bench measures what capture costs a writer, and how fast a queue
// drains, as ratios of interleaved rounds in one run:
//
//	go test ./bench -run '^$' -bench . -benchtime 1x
//
// Each benchmark reports the median of its rounds, the lowest and the highest.
// BENCH_ROUNDS and BENCH_SECONDS make them longer. The server is one of its
// own with fsync and synchronous commit on.
package bench

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/puller"
	"github.com/weir-cdc/weir/triggers"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

const rows = 200_000

func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// line is a source with a captured table and a bare one alike, and a target.
type line struct {
	url    string
	source *postgres.Source
	target *postgres.Target
	conn   *pgx.Conn
}

// accounts is shaped as pgbench's table of that name.
const accounts = `create table %[1]s (id integer primary key, branch integer, balance integer, filler char(84));
insert into %[1]s select g, g %% 100, 0, '' from generate_series(1, %[2]d) g`

func newLine(tb testing.TB, n int, tagging weir.Tagging) *line {
	tb.Helper()
	ctx := tb.Context()
	cluster := testdb.NewCluster(tb, "fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=512MB",
		"max_wal_size=8GB", "checkpoint_timeout=1h", "autovacuum=off")
	l := &line{url: cluster.Database()}
	var err error
	if l.conn, err = pgx.Connect(ctx, l.url); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.conn.Close(context.Background()) })
	for _, table := range []string{"bare", "captured"} {
		l.exec(tb, fmt.Sprintf(accounts, table, n))
	}
	if l.source, err = postgres.OpenSource(ctx, l.url, ""); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.source.Close() })
	if _, err := l.source.Init(ctx); err != nil {
		tb.Fatal(err)
	}
	plan, _, err := triggers.PlanFor(ctx, l.source, []weir.CaptureSpec{{Table: weir.ParseTable("public.captured"), Tagging: tagging}})
	if err != nil {
		tb.Fatal(err)
	}
	if err := triggers.Apply(ctx, l.source, plan, nil); err != nil {
		tb.Fatal(err)
	}
	if l.target, err = postgres.OpenTarget(ctx, l.url, weir.TargetOptions{Schema: "target"}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.target.Close() })
	l.exec(tb, "vacuum analyze")
	return l
}

func (l *line) exec(tb testing.TB, sql string) {
	tb.Helper()
	if _, err := l.conn.Exec(tb.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func (l *line) timed(tb testing.TB, sql string) time.Duration {
	tb.Helper()
	start := time.Now()
	l.exec(tb, sql)
	return time.Since(start)
}

func (l *line) drain(tb testing.TB) puller.Result {
	tb.Helper()
	p, err := puller.New(l.source, l.target, puller.Config{Name: "bench"}, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	r, err := p.Drain(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// report gives the median of the ratios and their spread.
func report(b *testing.B, name string, ratios []float64) {
	b.Helper()
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], name)
	b.ReportMetric(ratios[0], name+"-min")
	b.ReportMetric(ratios[len(ratios)-1], name+"-max")
}

// throughput counts the single-row update transactions of some clients.
func (l *line) throughput(tb testing.TB, table string, clients int, d time.Duration) float64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	counts := make([]int, clients)
	for c := range clients {
		conn, err := pgx.Connect(tb.Context(), l.url)
		if err != nil {
			tb.Fatal(err)
		}
		wg.Go(func() {
			defer conn.Close(context.Background())
			for ctx.Err() == nil {
				id := rand.IntN(rows) + 1
				if _, err := conn.Exec(tb.Context(), "update "+table+" set balance = balance + 1 where id = $1", id); err != nil {
					tb.Error(err)
					return
				}
				counts[c]++
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / d.Seconds()
}

// BenchmarkSingleRow reports the throughput of single-row update transactions
// with capture as a share of that without.
func BenchmarkSingleRow(b *testing.B) {
	for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", tagging, clients), func(b *testing.B) {
				l := newLine(b, rows, tagging)
				second := time.Duration(setting("BENCH_SECONDS", 1)) * time.Second
				for b.Loop() {
					var ratios []float64
					for range setting("BENCH_ROUNDS", 5) {
						bare := l.throughput(b, "bare", clients, second)
						ratios = append(ratios, l.throughput(b, "captured", clients, second)/bare)
					}
					report(b, "of-bare", ratios)
				}
			})
		}
	}
}

// BenchmarkStatement reports the time of one statement of 200,000 rows with
// capture as a multiple of that without.
func BenchmarkStatement(b *testing.B) {
	for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
		b.Run(string(tagging), func(b *testing.B) {
			l := newLine(b, rows, tagging)
			for b.Loop() {
				var ratios []float64
				for range setting("BENCH_ROUNDS", 5) {
					bare := l.timed(b, "update bare set balance = balance + 1")
					captured := l.timed(b, "update captured set balance = balance + 1")
					ratios = append(ratios, captured.Seconds()/bare.Seconds())
					l.exec(b, "truncate weir.inbox, weir.instance_changes")
					l.exec(b, "vacuum bare")
					l.exec(b, "vacuum captured")
				}
				report(b, "times-bare", ratios)
			}
		})
	}
}

// tagAll tags every row of the captured table at once, in statements that are
// small enough for it.
func (l *line) tagAll(tb testing.TB, n int) {
	tb.Helper()
	l.exec(tb, fmt.Sprintf(`do $$ begin
		for i in 0 .. %d loop
			update captured set balance = balance + 1 where id between i * 1000 + 1 and i * 1000 + 1000;
			commit;
		end loop;
	end $$`, (n-1)/1000))
}

// BenchmarkDrain reports the speed of draining 200,000 waiting changes as a
// share of a plain binary COPY of the same rows, out and in through a client,
// and one merge.
func BenchmarkDrain(b *testing.B) {
	l := newLine(b, rows, weir.AtOnce)
	l.tagAll(b, rows)
	l.drain(b)
	l.exec(b, "create table plain (like captured including all)")
	for b.Loop() {
		var ratios []float64
		for range setting("BENCH_ROUNDS", 5) {
			l.exec(b, "vacuum analyze")
			plain := l.copyAndMerge(b)
			l.tagAll(b, rows)
			l.exec(b, "vacuum analyze")
			start := time.Now()
			r := l.drain(b)
			drain := time.Since(start)
			if r.Upserted != rows {
				b.Fatalf("drained %d rows, want %d", r.Upserted, rows)
			}
			ratios = append(ratios, plain.Seconds()/drain.Seconds())
			b.ReportMetric(rows/drain.Seconds(), "rows/s")
			b.ReportMetric(rows/plain.Seconds(), "plain-rows/s")
		}
		report(b, "of-copy", ratios)
	}
}

func (l *line) copyAndMerge(tb testing.TB) time.Duration {
	tb.Helper()
	ctx := tb.Context()
	start := time.Now()
	out, err := pgx.Connect(ctx, l.url)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Close(ctx)
	var data bytes.Buffer
	if _, err := out.PgConn().CopyTo(ctx, &data, "copy captured to stdout (format binary)"); err != nil {
		tb.Fatal(err)
	}
	l.exec(tb, "begin; create temporary table stage (like captured) on commit drop")
	if _, err := l.conn.PgConn().CopyFrom(ctx, &data, "copy stage from stdin (format binary)"); err != nil {
		tb.Fatal(err)
	}
	l.exec(tb, "insert into plain select * from stage on conflict (id) do update set branch = excluded.branch, balance = excluded.balance, filler = excluded.filler; commit")
	return time.Since(start)
}

// TestHotKeys: 200,000 updates of 1,000 rows ship 1,000 rows.
func TestHotKeys(t *testing.T) {
	l := newLine(t, 1000, weir.AtOnce)
	l.exec(t, `do $$ begin
		for i in 1 .. 200 loop
			update captured set balance = balance + 1;
			commit;
		end loop;
	end $$`)
	if r := l.drain(t); r.Upserted != 1000 || r.Deleted != 0 {
		t.Fatalf("200,000 updates over 1,000 keys shipped %d rows and %d deletes, want 1,000 and 0", r.Upserted, r.Deleted)
	}
	var wrong int
	if err := l.conn.QueryRow(t.Context(), "select count(*) from (select * from captured except select * from target.captured) d").Scan(&wrong); err != nil || wrong != 0 {
		t.Fatalf("%d rows differ (%v)", wrong, err)
	}
}

// BenchmarkMemory drains a million rows and fails when the process takes 200 MB
// or more at any moment.
func BenchmarkMemory(b *testing.B) {
	const million = 1_000_000
	l := newLine(b, million, weir.AtOnce)
	captures, err := l.source.Captures(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := puller.Backfill(b.Context(), l.source, captures[0].ID, 20_000, true, nil); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		debug.FreeOSMemory()
		stop, peak := make(chan struct{}), make(chan uint64)
		go func() {
			var most uint64
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.Sys-m.HeapReleased)
				select {
				case <-stop:
					peak <- most
					return
				case <-tick.C:
				}
			}
		}()
		r := l.drain(b)
		close(stop)
		most := <-peak
		b.ReportMetric(float64(most)/(1<<20), "MB-peak")
		if r.Upserted != million {
			b.Errorf("drained %d rows, want %d", r.Upserted, million)
		}
		if most >= 200<<20 {
			b.Errorf("the process took %d MB, want under 200", most>>20)
		}
	}
}
