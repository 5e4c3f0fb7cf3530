package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"

	"github.com/weir-cdc/weir"
)

func TestQueue(t *testing.T) {
	setup := func(t *testing.T, rows int) *fixture {
		f := newFixture(t, "create table t (id integer primary key, v)")
		f.plain("t")
		for i := 1; i <= rows; i++ {
			f.exec("insert into t values (?, 0)", i)
		}
		return f
	}
	rows := func(f *fixture) []string {
		f.t.Helper()
		list, err := f.source.List(f.ctx, weir.QueueSelector{})
		if err != nil {
			f.t.Fatal(err)
		}
		var out []string
		for _, r := range list {
			out = append(out, fmt.Sprintf("%s %s %d %s", r.OldPrimaryKey, r.State, r.Attempts, r.LastError))
		}
		return out
	}
	t.Run("OldestFirst", func(t *testing.T) {
		f := setup(t, 3)
		f.exec("update weir_instance_changes set changed_on = 100 - old_primary_key")
		p := f.claim(2)
		if len(p.Changes) != 2 || p.Changes[0].OldPrimaryKey != "3" || p.Changes[1].OldPrimaryKey != "2" || p.Changes[0].ChangedOn != time.UnixMicro(97).UTC() {
			t.Errorf("%+v", p.Changes)
		}
		want(t, rows(f), "3 in flight 0 ", "2 in flight 0 ", "1 ready 0 ")
		st, err := f.source.Status(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if q := st.Queues[0]; q.Depth != 3 || q.Ready != 1 || q.InFlight != 2 || len(q.Groups) != 1 || q.Groups[0].Depth != 3 || q.Groups[0].Table != "t" || len(st.Pulls) != 1 || st.Pulls[0].Rows != 2 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("Filters", func(t *testing.T) {
		f := setup(t, 2)
		f.exec("delete from t where id = 2")
		id := int32(0)
		if err := f.app.QueryRow("select capture_id from weir_captures").Scan(&id); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			set  func(*weir.ClaimRequest)
			rows int
		}{
			{func(r *weir.ClaimRequest) { r.Captures = []int32{id + 1} }, 0},
			{func(r *weir.ClaimRequest) { r.Concepts = []weir.GUID{{9}} }, 0},
			{func(r *weir.ClaimRequest) { r.From = time.Now().Add(time.Hour) }, 0},
			{func(r *weir.ClaimRequest) { r.ChangeTypes = []string{weir.InstanceDeleted} }, 1},
			{func(r *weir.ClaimRequest) { r.Captures = []int32{id}; r.Concepts = []weir.GUID{conceptOf("t")} }, 1},
		} {
			req := f.request(10)
			x.set(&req)
			p, err := f.source.Claim(f.ctx, req)
			if x.rows == 0 != errors.Is(err, weir.ErrQueueEmpty) || err == nil && len(p.Changes) != x.rows {
				t.Errorf("%+v: %v", req, err)
			}
		}
		req := f.request(1)
		req.Queue = "no"
		var c *weir.ConfigError
		if _, err := f.source.Claim(f.ctx, req); !errors.As(err, &c) {
			t.Error(err)
		}
	})
	t.Run("BothTypesGoOneAfterTheOther", func(t *testing.T) {
		f := setup(t, 1)
		f.exec("insert into weir_instance_changes (instance_guid, change_type, changed_on) select instance_guid, 'Instance Deleted', changed_on + 1 from weir_instance_changes")
		p := f.claim(10)
		if len(p.Changes) != 1 || p.Changes[0].ChangeType != weir.InstanceInserted {
			t.Fatalf("%+v", p.Changes)
		}
		if _, err := f.source.Claim(f.ctx, f.request(10)); !errors.Is(err, weir.ErrQueueEmpty) {
			t.Error(err)
		}
	})
	t.Run("ReleaseSettleTwice", func(t *testing.T) {
		f := setup(t, 2)
		p := f.claim(10)
		for range 2 {
			if err := f.source.Release(f.ctx, p.PullGUID); err != nil {
				t.Fatal(err)
			}
		}
		want(t, rows(f), "1 ready 0 ", "2 ready 0 ")
		if err := f.source.Extend(f.ctx, p.PullGUID, time.Hour); !errors.Is(err, weir.ErrLeaseLost) {
			t.Error(err)
		}
		if err := f.source.Postpone(f.ctx, p.PullGUID, nil); !errors.Is(err, weir.ErrLeaseLost) {
			t.Error(err)
		}
		p = f.claim(10)
		f.exec("update t set v = 1 where id = 1") // no longer the pull's
		for i := range 2 {
			r, err := f.source.Settle(f.ctx, p.PullGUID)
			if err != nil || r.Settled != 1-i || !r.Done {
				t.Fatalf("%+v %v", r, err)
			}
		}
		want(t, rows(f), "1 ready 0 ")
		want(t, f.strings("select count(*) from weir_pulls"), "0")
	})
	t.Run("Postpone", func(t *testing.T) {
		f := setup(t, 4)
		p := f.claim(10)
		var what []weir.Postponement
		for i, c := range p.Changes {
			x := weir.Postponement{InstanceGUID: c.InstanceGUID, ChangeType: c.ChangeType, Delay: time.Hour, Error: "bad " + c.OldPrimaryKey}
			switch i {
			case 0:
				x.Dead = true
			case 1:
				x.Align = true
			case 2:
				x.Delay, x.Error = 0, ""
			}
			what = append(what, x)
		}
		if err := f.source.Postpone(f.ctx, p.PullGUID, what); err != nil {
			t.Fatal(err)
		}
		want(t, rows(f), "1 dead 1 bad 1", "2 postponed 1 bad 2", "3 ready 0 ", "4 postponed 1 bad 4")
		want(t, f.strings("select not_before % 3600000000 from weir_instance_changes where old_primary_key = '2'"), "0")
		if q := f.claim(10); len(q.Changes) != 1 || q.Changes[0].OldPrimaryKey != "3" {
			t.Errorf("%+v", q.Changes)
		}
		f.exec("update t set v = 1 where id = 1") // a new version is tried again
		want(t, rows(f), "2 postponed 1 bad 2", "3 in flight 0 ", "4 postponed 1 bad 4", "1 ready 0 bad 1")
		if n, err := f.source.Retry(f.ctx, weir.QueueSelector{State: weir.Postponed, Limit: 1}); n != 1 || err != nil {
			t.Error(n, err)
		}
		if n, err := f.source.Delay(f.ctx, weir.QueueSelector{State: weir.Ready}, time.Hour); n != 2 || err != nil {
			t.Error(n, err)
		}
		want(t, rows(f), "2 postponed 0 bad 2", "3 in flight 0 ", "4 postponed 1 bad 4", "1 postponed 0 bad 1")
	})
	t.Run("Expired", func(t *testing.T) {
		f := setup(t, 1)
		req := f.request(1)
		req.Lease = -time.Second
		p, err := f.source.Claim(f.ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.source.Expired(f.ctx, "p", req.Ledger)
		if err != nil || len(got) != 1 || got[0].PullGUID != p.PullGUID || got[0].State != weir.StateClaimed || got[0].Rows != 1 || got[0].Puller != "test" {
			t.Errorf("%+v %v", got, err)
		}
		var c *weir.ConfigError
		if _, err := f.source.Expired(f.ctx, "p", weir.GUID{2}); !errors.As(err, &c) {
			t.Error(err)
		}
		if got, err := f.source.Expired(f.ctx, "other", weir.GUID{2}); len(got) > 0 || err != nil {
			t.Error(got, err)
		}
		if err := f.source.Extend(f.ctx, p.PullGUID, time.Hour); err != nil {
			t.Error(err)
		}
		if got, err := f.source.Expired(f.ctx, "p", req.Ledger); len(got) > 0 || err != nil {
			t.Error(got, err)
		}
	})
	t.Run("ManyPullers", func(t *testing.T) {
		f := setup(t, 200)
		var mu sync.Mutex
		seen := map[weir.GUID]int{}
		var wg sync.WaitGroup
		for range 4 {
			// As another process would: connections of its own.
			other, err := OpenSource(f.ctx, "file:"+strings.ReplaceAll(f.path, " ", "%20"))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			wg.Go(func() {
				for {
					p, err := other.Claim(f.ctx, f.request(7))
					var u *weir.UnavailableError
					switch {
					case errors.Is(err, weir.ErrQueueEmpty):
						return
					case errors.As(err, &u):
						continue
					case err != nil:
						t.Error(err)
						return
					}
					if len(p.Changes) > 7 {
						t.Errorf("%d changes", len(p.Changes))
					}
					mu.Lock()
					for _, c := range p.Changes {
						seen[c.InstanceGUID]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(seen) != 200 {
			t.Errorf("%d of 200 were claimed", len(seen))
		}
		for g, n := range seen {
			if n != 1 {
				t.Errorf("%s was claimed %d times", g, n)
			}
		}
	})
	t.Run("BusyIsAnOutage", func(t *testing.T) {
		f := setup(t, 1)
		tx, err := f.app.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var u *weir.UnavailableError
		if _, err := f.source.Claim(f.ctx, f.request(1)); !errors.As(err, &u) || u.Side != weir.AtSource {
			t.Errorf("%v", err)
		}
		if _, err := f.source.Status(f.ctx); err != nil { // a reader does not wait
			t.Error(err)
		}
	})
}

func TestClaimWalksTheIndex(t *testing.T) {
	f := newFixture(t)
	text, err := render("queue/claim.sql", struct{ Table string }{"weir_instance_changes"})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := f.app.Query("explain query plan "+text, nil, nil, nil, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var a, b, c int
		var s string
		if err := rows.Scan(&a, &b, &c, &s); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, s)
	}
	all := strings.Join(plan, "\n")
	if !strings.Contains(all, "SEARCH weir_instance_changes USING PRIMARY KEY (instance_guid=? AND change_type=?)") || !strings.Contains(all, "SCAN q USING INDEX weir_instance_changes_unclaimed") || strings.Contains(all, "TEMP B-TREE FOR ORDER BY") {
		t.Error(all)
	}
}

func TestDriftAndInit(t *testing.T) {
	f := newFixture(t, "create table t (id integer primary key, v)")
	f.plain("t")
	f.exec("insert into t values (1, 1)")
	if v, err := f.source.Init(f.ctx); v != 1 || err != nil { // may be called again
		t.Fatal(v, err)
	}
	// A crash between a migration and its version.
	f.exec("update weir_schema_migrations set dirty = 1")
	if v, err := f.source.Init(f.ctx); v != 1 || err != nil {
		t.Fatal(v, err)
	}
	want(t, f.queue(), "Instance Inserted 1")
	var c *weir.ConfigError
	if err := f.source.Down(f.ctx); !errors.As(err, &c) {
		t.Error(err)
	}
	compare := func() (drift []string) {
		t.Helper()
		list, err := f.source.Resolve(f.ctx, []weir.CaptureSpec{{Table: weir.Table{Name: "t"}}})
		if err != nil {
			t.Fatal(err)
		}
		have, err := f.source.Installed(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]string{}
		for _, o := range have {
			there[string(o.Kind)+o.Name] = o.Fingerprint
		}
		for _, o := range list[0].Objects {
			if there[string(o.Kind)+o.Name] != o.Fingerprint {
				drift = append(drift, string(o.Kind))
			}
			delete(there, string(o.Kind)+o.Name)
		}
		for name := range there {
			drift = append(drift, "extra "+name)
		}
		return drift
	}
	want(t, compare())
	trigger := f.strings("select name from sqlite_schema where name like 'weir_%_update'")[0]
	f.exec("drop trigger " + trigger)
	want(t, compare(), "trigger")
	p := f.claim(1)
	var d *weir.DriftError
	if _, err := f.source.Read(f.ctx, p, weir.ReadRequest{}); !errors.As(err, &d) {
		t.Error(err)
	}
	f.exec("create trigger " + trigger + " after update on t begin select 1; end")
	want(t, compare(), "trigger")
	f.plain("t")
	want(t, compare())
	f.exec("drop table t")
	if _, err := f.source.Read(f.ctx, p, weir.ReadRequest{}); !errors.As(err, &d) {
		t.Error(err)
	}
	f.exec("create table t (id integer primary key, v)")
	if _, err := f.source.Read(f.ctx, p, weir.ReadRequest{}); !errors.As(err, &d) {
		t.Error(err)
	}
	f.exec("drop table t")
	f.exec("create table t (v integer not null, id text primary key)")
	if got := compare(); len(got) != 5 {
		t.Errorf("%q", got)
	}
	have, err := f.source.Installed(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range have {
		if err := f.source.Apply(f.ctx, o.Group, o.Drop); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.source.Down(f.ctx); err != nil {
		t.Fatal(err)
	}
	want(t, f.strings("select name from sqlite_schema where name like 'weir%' or sql like '%weir%'"))
	if _, err := f.source.Status(f.ctx); !errors.As(err, &c) || !strings.Contains(c.Hint, "weir init") {
		t.Error(err)
	}
	none, err := OpenSource(f.ctx, "sqlite:/no/such/file.db")
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	var u *weir.UnavailableError
	if _, err := none.Init(f.ctx); !errors.As(err, &u) {
		t.Error(err)
	}
	for _, url := range []string{"sqlite::memory:", "sqlite:", "postgres://x", "file:x?mode=memory"} {
		if _, err := OpenSource(f.ctx, url); !errors.As(err, &c) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestBackfill(t *testing.T) {
	f := newFixture(t, "create table t (a text, b integer, v, primary key (b, a))", "create table k (id integer primary key, g text, rowid, oid)", "create table norowid (g text)")
	for i := range 25 {
		f.exec("insert into t values (?, ?, 0)", fmt.Sprint("k", i), i%3)
		f.exec("insert into k values (?, ?, 1, 1)", i, fmt.Sprintf("00000000-0000-0000-0000-%012d", i%4))
		f.exec("insert into norowid values (?)", fmt.Sprintf("00000000-0000-0000-0000-%012d", i%4))
	}
	list := f.capture(weir.CaptureSpec{Table: weir.Table{Name: "t"}}, weir.CaptureSpec{Table: weir.Table{Name: "k"}, InstanceGUID: "g", ChangeType: "Kids"},
		weir.CaptureSpec{Table: weir.Table{Name: "norowid"}, InstanceGUID: "g", ChangeType: "More"})
	for _, r := range list {
		id := r.Capture.ID
		for i := 1; ; i++ {
			p, err := f.source.Backfill(f.ctx, id, 10, false)
			if err != nil {
				t.Fatal(err)
			}
			if p.Table != r.Capture.Table || p.Estimate != 25 || p.Tagged != min(25, int64(10*i)) || p.Done != (i >= 3) {
				t.Errorf("%+v", p)
			}
			if p.Done {
				break
			}
		}
		if p, err := f.source.Backfill(f.ctx, id, 10, false); err != nil || !p.Done || p.Tagged != 25 {
			t.Errorf("%+v %v", p, err)
		}
	}
	if p, err := f.source.Backfill(f.ctx, list[0].Capture.ID, 10, true); err != nil || p.Done || p.Tagged != 10 {
		t.Errorf("%+v %v", p, err)
	}
	s := newSink(t, weir.TargetOptions{})
	f.drain(s)
	want(t, s.strings("select count(*) from t"), "25")
	want(t, s.strings("select count(*) from k"), "25")
	want(t, s.strings("select count(*) from norowid"), "25")
	var c *weir.ConfigError
	if _, err := f.source.Backfill(f.ctx, 1, 10, false); !errors.As(err, &c) {
		t.Error(err)
	}
}

func TestFailedMigration(t *testing.T) {
	f := newFixture(t, "create table t (id integer primary key)")
	up := func(sql string) error {
		first := &fstest.MapFile{Data: []byte("create table if not exists weir_inbox (id)")}
		_, err := f.source.migrate(f.ctx, fstest.MapFS{"000001_a.up.sql": first, "000002_b.up.sql": {Data: []byte(sql)}}, func(m *migrate.Migrate) error { return m.Up() })
		return err
	}
	var c *weir.ConfigError
	if err := up("create table weir_more (a); create table t (b);"); !errors.As(err, &c) || !strings.Contains(err.Error(), "migration 2") || !strings.Contains(err.Error(), "table t already exists") || c.Hint == "" {
		t.Errorf("%v", err)
	}
	want(t, f.strings("select version || ' ' || dirty from weir_schema_migrations"), "1 0")
	want(t, f.strings("select name from sqlite_schema where name = 'weir_more'"))
	f.plain("t")
	f.exec("insert into t values (1)")
	want(t, f.queue(), "Instance Inserted 1")
	if err := up("create table weir_more (a)"); err != nil {
		t.Error(err)
	}
	want(t, f.strings("select version || ' ' || dirty from weir_schema_migrations"), "2 0")
}
