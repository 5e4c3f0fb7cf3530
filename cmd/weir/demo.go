package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the demo writes to the source as an application does

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
)

// The demo's tables: related, with keys of one integer, of text, and of two
// columns.
var demoTables = []struct{ name, columns, key string }{
	{"customers", "id integer not null primary key, email text not null, city text", "id"},
	{"products", "sku text not null primary key, name text not null, price numeric(10, 2) not null", "sku"},
	{"orders", "id integer not null primary key, customer_id integer not null, status text not null, note text", "id"},
	{"order_items", "order_id integer not null, line_no integer not null, sku text not null, quantity integer not null, primary key (order_id, line_no)", "order_id, line_no"},
}

// demoResult is the last line of weir demo --json.
type demoResult struct {
	ChangesCaptured int64   `json:"changes_captured"` // row changes that the triggers saw
	RowsShipped     int64   `json:"rows_shipped"`     // rows written and keys deleted at the target
	SourceRows      int     `json:"source_rows"`
	TargetRows      int     `json:"target_rows"`
	Differences     int     `json:"differences"`
	Queue           int64   `json:"queue"` // changes left
	Outages         int     `json:"outages"`
	Seconds         float64 `json:"seconds"`
}

// demo is one run of weir demo.
type demo struct {
	out        io.Writer
	start      time.Time
	engine     string
	sourceURL  string
	targetURL  string
	schema     string // of weir's tables at a Postgres source
	tables     string // schema of the source's tables, empty on SQLite
	target     weir.TargetOptions
	app        *sql.DB // writes as an application
	targetDB   *sql.DB // reads, and takes the target away
	source     dialects.Source
	captured   atomic.Int64
	shipped    atomic.Int64
	outages    atomic.Int64
	nextOrder  atomic.Int64
	nextClient atomic.Int64
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%5.1fs  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

// open prepares both databases and returns what removes them.
func (d *demo) open(ctx context.Context, postgresURL string) (cleanup func(), err error) {
	if postgresURL == "" {
		return d.openSQLite(ctx)
	}
	return d.openPostgres(ctx, postgresURL)
}

func (d *demo) openSQLite(context.Context) (func(), error) {
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return nil, err
	}
	cleanup := func() { os.RemoveAll(dir) }
	d.engine = "SQLite"
	source, target := filepath.Join(dir, "source.db"), filepath.Join(dir, "target.db")
	d.sourceURL, d.targetURL = "sqlite:"+source, "sqlite:"+target
	const pragmas = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	if d.app, err = sql.Open("sqlite", "file:"+source+pragmas); err != nil {
		cleanup()
		return nil, err
	}
	if d.targetDB, err = sql.Open("sqlite", "file:"+target+pragmas); err != nil {
		cleanup()
		return nil, err
	}
	return cleanup, nil
}

func (d *demo) openPostgres(ctx context.Context, url string) (func(), error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, &weir.ConfigError{Key: "--postgres", Err: errors.New("the URL cannot be read"), Hint: "postgres://user@host:5432/database"}
	}
	d.engine = "PostgreSQL"
	var random [4]byte
	for i := range random {
		random[i] = byte(rand.IntN(256))
	}
	d.tables = "weir_demo_" + hex.EncodeToString(random[:])
	d.schema, d.target.Schema = d.tables+"_queue", d.tables+"_target"
	d.sourceURL, d.targetURL = url, url
	d.app, d.targetDB = stdlib.OpenDB(*cfg), stdlib.OpenDB(*cfg)
	schemas := []string{d.tables, d.schema, d.target.Schema}
	cleanup := func() {
		for _, s := range schemas {
			_, _ = d.app.ExecContext(context.WithoutCancel(ctx), "drop schema if exists "+pgx.Identifier{s}.Sanitize()+" cascade")
		}
	}
	if _, err := d.app.ExecContext(ctx, "create schema "+pgx.Identifier{d.tables}.Sanitize()); err != nil {
		return nil, fmt.Errorf("create the demo's schema: %w", err)
	}
	return cleanup, nil
}

// name is a source table's name as SQL.
func (d *demo) name(table string) string {
	if d.tables == "" {
		return table
	}
	return pgx.Identifier{d.tables, table}.Sanitize()
}

func (d *demo) targetName(table string) string {
	if d.target.Schema == "" {
		return table
	}
	return pgx.Identifier{d.target.Schema, table}.Sanitize()
}

// specs are the captures of the demo's tables.
func (d *demo) specs() []weir.CaptureSpec {
	var specs []weir.CaptureSpec
	for _, t := range demoTables {
		specs = append(specs, weir.CaptureSpec{Table: weir.Table{Schema: d.tables, Name: t.name}, Queues: []string{weir.DefaultQueue}})
	}
	return specs
}

var cities = []string{"Ghent", "Łódź", "São Paulo", "Kyōto", "Reykjavík", "", "O'Fallon"}

// seed makes the tables and rows that are there before weir is.
func (d *demo) seed(ctx context.Context) (int, error) {
	for _, t := range demoTables {
		if _, err := d.app.ExecContext(ctx, "create table "+d.name(t.name)+" ("+t.columns+")"); err != nil {
			return 0, fmt.Errorf("create %s: %w", t.name, err)
		}
	}
	n := 0
	err := d.transaction(ctx, func(t *sql.Tx) error {
		for i := range 200 {
			if err := d.insertCustomer(ctx, t, int(d.nextClient.Add(1)), cities[i%len(cities)]); err != nil {
				return err
			}
			n++
		}
		for i := range 50 {
			if _, err := t.ExecContext(ctx, "insert into "+d.name("products")+" (sku, name, price) values ($1, $2, $3)",
				fmt.Sprintf("SKU-%03d", i), fmt.Sprintf("product %d", i), fmt.Sprintf("%d.%02d", i+1, i)); err != nil {
				return err
			}
			n++
		}
		for range 300 {
			m, err := d.insertOrder(ctx, t)
			if err != nil {
				return err
			}
			n += m
		}
		return nil
	})
	return n, err
}

func (d *demo) insertCustomer(ctx context.Context, t *sql.Tx, id int, city string) error {
	var c any = city
	if city == "" {
		c = nil
	}
	_, err := t.ExecContext(ctx, "insert into "+d.name("customers")+" (id, email, city) values ($1, $2, $3)", id, fmt.Sprintf("c%d@example.com", id), c)
	return err
}

func (d *demo) insertOrder(ctx context.Context, t *sql.Tx) (int, error) {
	id := d.nextOrder.Add(1)
	if _, err := t.ExecContext(ctx, "insert into "+d.name("orders")+" (id, customer_id, status, note) values ($1, $2, 'new', $3)",
		id, rand.IntN(int(d.nextClient.Load()))+1, "first line\nsecond \"line\" 🚀"); err != nil {
		return 0, err
	}
	lines := rand.IntN(3) + 1
	for l := range lines {
		if _, err := t.ExecContext(ctx, "insert into "+d.name("order_items")+" (order_id, line_no, sku, quantity) values ($1, $2, $3, $4)",
			id, l+1, fmt.Sprintf("SKU-%03d", rand.IntN(50)), rand.IntN(9)+1); err != nil {
			return 0, err
		}
	}
	return lines + 1, nil
}

func (d *demo) transaction(ctx context.Context, f func(*sql.Tx) error) error {
	t, err := d.app.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }()
	if err := f(t); err != nil {
		return err
	}
	return t.Commit()
}

// errRollBack makes a transaction of the workload roll back on purpose.
var errRollBack = errors.New("rolled back on purpose")

// write runs one random transaction of the application, and counts the row
// changes that committed.
func (d *demo) write(ctx context.Context) error {
	var n int64
	err := d.transaction(ctx, func(t *sql.Tx) error {
		run := func(format string, args ...any) error {
			r, err := t.ExecContext(ctx, format, args...)
			if err != nil {
				return err
			}
			m, err := r.RowsAffected()
			n += m
			return err
		}
		client, order := rand.IntN(int(d.nextClient.Load()))+1, rand.IntN(int(d.nextOrder.Load()))+1
		switch rand.IntN(10) {
		case 0:
			n++
			return d.insertCustomer(ctx, t, int(d.nextClient.Add(1)), cities[rand.IntN(len(cities))])
		case 1, 2:
			m, err := d.insertOrder(ctx, t)
			n += int64(m)
			return err
		case 3, 4:
			return run("update "+d.name("orders")+" set status = $1 where id = $2", []string{"paid", "sent", "done"}[rand.IntN(3)], order)
		case 5:
			return run("update "+d.name("products")+" set price = price + 0.25 where sku = $1", fmt.Sprintf("SKU-%03d", rand.IntN(50)))
		case 6: // the key changes
			to := d.nextClient.Add(1)
			return run("update "+d.name("customers")+" set id = $1 where id = $2", to, client)
		case 7:
			return run("update "+d.name("order_items")+" set line_no = line_no + 10 where order_id = $1", order)
		case 8:
			if err := run("delete from "+d.name("order_items")+" where order_id = $1", order); err != nil {
				return err
			}
			return run("delete from "+d.name("orders")+" where id = $1", order)
		default:
			if err := run("update " + d.name("customers") + " set city = 'nowhere'"); err != nil {
				return err
			}
			return errRollBack
		}
	})
	if errors.Is(err, errRollBack) {
		return nil
	}
	if err == nil {
		d.captured.Add(n)
	}
	return err
}

// workload writes from several sessions until ctx ends.
func (d *demo) workload(ctx context.Context, sessions int) error {
	var wg sync.WaitGroup
	errs := make([]error, sessions)
	for i := range sessions {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := d.write(ctx); err != nil && ctx.Err() == nil {
					errs[i] = fmt.Errorf("the application's write failed: %w", err)
					return
				}
				_ = pause(ctx, 4*time.Millisecond) // applications think, and SQLite has one writer
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// takeAway makes the target unusable, as another session that holds it would,
// until the returned function is called.
func (d *demo) takeAway(ctx context.Context) (giveBack func() error, err error) {
	conn, err := d.targetDB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	begin := []string{"begin", "lock table " + d.targetName("weir_ledger") + " in access exclusive mode"}
	if d.tables == "" {
		begin = []string{"begin exclusive"}
	}
	for _, s := range begin {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			conn.Close()
			return nil, fmt.Errorf("take the target away: %w", err)
		}
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "rollback")
		return errors.Join(err, conn.Close())
	}, nil
}

// compare reads every row of both sides.
func (d *demo) compare(ctx context.Context) (source, target, differences int, err error) {
	for _, t := range demoTables {
		here, err := readRows(ctx, d.app, "select * from "+d.name(t.name)+" order by "+t.key)
		if err != nil {
			return 0, 0, 0, err
		}
		there, err := readRows(ctx, d.targetDB, "select * from "+d.targetName(t.name)+" order by "+t.key)
		if err != nil {
			return 0, 0, 0, err
		}
		source, target = source+len(here), target+len(there)
		slices.Sort(here)
		slices.Sort(there)
		differences += countDifferences(here, there)
	}
	return source, target, differences, nil
}

func readRows(ctx context.Context, db *sql.DB, query string) ([]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		parts := make([]string, len(values))
		for i, v := range values {
			parts[i] = fmt.Sprintf("%q", fmt.Sprint(*v.(*any)))
		}
		out = append(out, strings.Join(parts, ","))
	}
	return out, rows.Err()
}

// countDifferences counts the elements of two sorted lists that the other has
// not, a changed row once.
func countDifferences(a, b []string) int {
	onlyA, onlyB := 0, 0
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			onlyA++
			a = a[1:]
		case len(a) == 0 || b[0] < a[0]:
			onlyB++
			b = b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return max(onlyA, onlyB)
}

func writeJSONLine(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(text))
	return err
}
