package postgres

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

func TestSmokeShip(t *testing.T) {
	ctx := context.Background()
	url := os.Getenv("DEV_URL")
	s, err := OpenSource(ctx, url, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	exec := func(sql string) {
		t.Helper()
		if _, err := s.pool.Exec(ctx, sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	exec("drop schema if exists weir cascade")
	exec("drop schema if exists dw cascade")
	if _, err = s.Init(ctx); err != nil {
		t.Fatal(err)
	}
	exec("drop table if exists public.t")
	exec("create table public.t (id int primary key, v text not null, n numeric(10,2))")
	rs, err := s.Resolve(ctx, []weir.CaptureSpec{{Table: weir.ParseTable("public.t")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rs[0].Objects {
		if err := s.Apply(ctx, o.Group, o.Create); err != nil {
			t.Fatal(err)
		}
	}
	tg, err := OpenTarget(ctx, url, weir.TargetOptions{Schema: "dw"})
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	ledger, err := tg.Ledger(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pull := func() {
		t.Helper()
		p, err := s.Claim(ctx, weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "n", Queue: "default", Limit: 100, Lease: time.Minute, Ledger: ledger})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Read(ctx, p, weir.ReadRequest{Encoding: tg.Encoding()})
		if err != nil {
			t.Fatal(err)
		}
		if err := tg.Ship(ctx, weir.Shipment{PullGUID: p.PullGUID, Batch: r.Batch}); err != nil {
			fmt.Println("ship:", err)
			f, err := tg.Isolate(ctx, r.Batch)
			fmt.Println("isolate:", err)
			for _, x := range f {
				fmt.Println(x.Err, x.Err.Constraint)
			}
		}
		fmt.Println(s.Settle(ctx, p.PullGUID))
	}
	show := func() {
		rows, _ := s.pool.Query(ctx, "select * from dw.t order by 1")
		for rows.Next() {
			v, _ := rows.Values()
			fmt.Println(v...)
		}
	}
	exec("insert into public.t select g, 'x' || g, 1.5 from generate_series(1, 5) g")
	pull()
	show()
	exec("create unique index on dw.t (v)")
	exec("alter table dw.t add extra text default 'e'")
	exec("alter table dw.t alter n type numeric(10,1)")
	tg.forgetDestinations()
	exec("update public.t set v = case id when 1 then 'x2' else 'x1' end where id in (1,2)")
	exec("delete from public.t where id = 3")
	pull()
	show()
	exec("update public.t set n = 1.55 where id = 4")
	exec("update public.t set v = case id when 1 then 'x1' else 'x2' end where id in (1,2)")
	exec("insert into public.t values (9, 'x3', null)")
	pull()
	show()
}
