package postgres

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

func TestSmoke(t *testing.T) {
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
	v, err := s.Init(ctx)
	fmt.Println(v, err)
	v, err = s.Init(ctx)
	fmt.Println(v, err)
	exec("drop table if exists public.t")
	exec("create table public.t (id int primary key, v text)")
	rs, err := s.Resolve(ctx, []weir.CaptureSpec{{Table: weir.ParseTable("public.t")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rs[0].Objects {
		if os.Getenv("SHOW") != "" {
			fmt.Println(o.Create, o.Fingerprint)
		}
		if err := s.Apply(ctx, o.Group, o.Create); err != nil {
			t.Fatal(err)
		}
	}
	inst, err := s.Installed(ctx)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, o := range inst {
		have[string(o.Kind)+o.Table.String()+o.Name] = o.Fingerprint
	}
	for _, o := range rs[0].Objects {
		if have[string(o.Kind)+o.Table.String()+o.Name] != o.Fingerprint {
			t.Error(o.Kind, o.Name, o.Fingerprint, have[string(o.Kind)+o.Table.String()+o.Name])
		}
	}
	exec("insert into public.t select g, 'x' from generate_series(-3, 10) g")
	exec("update public.t set id = id + 100")
	exec("delete from public.t where id = 105")
	p, err := s.Claim(ctx, weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "n", Queue: "default", Limit: 100, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Changes {
		fmt.Println(c)
	}
	r, err := s.Read(ctx, p, weir.ReadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range r.Batch.Tables[0].Items {
		fmt.Printf("%s %q\n", it.Key, it.Rows)
	}
	exec("update public.t set v = 'y' where id = 107")
	fmt.Println(s.Settle(ctx, p.PullGUID))
	st, err := s.Backfill(ctx, rs[0].Capture.ID, 4, false)
	fmt.Println(st, err)
	st, err = s.Backfill(ctx, rs[0].Capture.ID, 4, false)
	fmt.Println(st, err)
	fmt.Println(s.Fold(ctx, 1000))
}
