package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

// TestReadDuringRewrite: ALTER TABLE that rewrites a table leaves older
// snapshots an empty one. A read that meets it waits, and must not take every
// row for deleted.
func TestReadDuringRewrite(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, v integer); create table public.u (k integer primary key, v integer)")
	w.apply(plain("public", "t"), plain("public", "u"))
	w.exec("insert into public.t values (1, 10), (2, 20); insert into public.u values (3, 30)")
	pull := w.claim(10)

	ddl := w.session(w.url)
	w.on(ddl, "begin; alter table public.t alter v type bigint")
	type result struct {
		res *weir.ReadResult
		err error
	}
	done := make(chan result, 1)
	go func() {
		res, err := w.src.Read(context.Background(), pull, weir.ReadRequest{Encoding: weir.EncodingText})
		done <- result{res, err}
	}()
	w.until("the read waits", "select count(*) = 1 from pg_locks where relation = 'public.t'::regclass and not granted")
	w.on(ddl, "commit")
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if upserts, deletes := r.res.Batch.Counts(); upserts != 3 || deletes != 0 {
		t.Errorf("read %d rows and %d deleted, want 3 and none", upserts, deletes)
	}
}

// until waits for a query to be true.
func (w *world) until(what, sql string) {
	w.Helper()
	for start := time.Now(); !one[bool](w, sql); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			w.Fatalf("%s: not within 20 s", what)
		}
	}
}

// TestReadLocked: a table that is locked for long is an outage, not a deletion.
func TestReadLocked(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key)")
	w.apply(plain("public", "t"))
	w.exec("insert into public.t values (1)")
	pull := w.claim(10)
	ddl := w.session(w.url)
	w.on(ddl, "begin; lock table public.t")
	_, err := w.src.Read(context.Background(), pull, weir.ReadRequest{Encoding: weir.EncodingText})
	var u *weir.UnavailableError
	if !errors.As(err, &u) || u.Side != weir.AtSource {
		t.Errorf("%v, want a *weir.UnavailableError of the source", err)
	}
}

// TestReadAnotherTable: what is read is the table that was captured, or nothing.
func TestReadAnotherTable(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, v text)")
	spec := plain("public", "t")
	w.apply(spec)
	for _, change := range []struct{ sql, says string }{
		{"alter table public.t rename to old; create table public.t (k integer primary key, v text)", "dropped and made again"},
		{"drop table public.t; alter table public.old rename to t", ""},
		{"alter table public.t rename to u", "does not exist"},
		{"alter table public.u rename to t; alter table public.t rename k to id", "\"k\" is gone"},
		{"alter table public.t rename id to k; alter table public.t alter k type bigint", "it was integer"},
		{"alter table public.t alter k type integer; alter table public.t drop constraint t_pkey, add primary key (k, v)", "key changed"},
		{"alter table public.t drop constraint t_pkey, add primary key (k)", ""},
		{"alter table public.t set schema weir", "does not exist"},
		{"alter table weir.t set schema public", ""},
	} {
		w.exec("select weir.gi_instance_changed(gen_random_uuid(), (select concept_guid from weir.captures), 'Instance Inserted', '1')")
		w.exec(change.sql)
		_, err := w.read()
		if change.says == "" {
			if err != nil {
				t.Errorf("%s: %v", change.sql, err)
			}
			continue
		}
		drift(t, err, change.says)
	}
}

// TestReadHiddenRows: a policy that hides rows is an error, and never a row
// that looks deleted.
func TestReadHiddenRows(t *testing.T) {
	w := newWorld(t, "create table public.t (k integer primary key, v text)")
	role := w.role("puller", "")
	w.apply(plain("public", "t"))
	w.exec("insert into public.t values (1, 'a'), (2, 'b')")
	w.exec("grant usage on schema weir to " + role + "; grant execute on all functions in schema weir to " + role + "; grant select on all tables in schema weir to " + role + "; grant select on public.t to " + role)
	src := openSource(t, w.as(role), "")
	pull := w.claim(10)
	req := weir.ReadRequest{Encoding: weir.EncodingText}
	res, err := src.Read(context.Background(), pull, req)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := res.Batch.Counts(); n != 2 {
		t.Errorf("read %d rows, want 2", n)
	}
	w.exec("grant trigger on public.t to " + role)
	w.exec("alter table public.t enable row level security; create policy one on public.t using (k = 1)")
	_, err = src.Read(context.Background(), pull, req)
	var c *weir.ConfigError
	if !errors.As(err, &c) || !strings.Contains(err.Error(), "row-level security") {
		t.Errorf("%v, want a *weir.ConfigError about row-level security", err)
	}
	if _, err := src.Resolve(context.Background(), []weir.CaptureSpec{plain("public", "t")}); err == nil || !strings.Contains(err.Error(), "row-level security") {
		t.Errorf("plan: %v, want it refused for row-level security", err)
	}
	w.exec("alter role " + role + " bypassrls")
	if res, err = src.Read(context.Background(), pull, req); err != nil {
		t.Fatal(err)
	}
	if n, gone := res.Batch.Counts(); n != 2 || gone != 0 {
		t.Errorf("read %d rows and %d deleted, want 2 and none", n, gone)
	}
}
