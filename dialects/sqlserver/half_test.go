package sqlserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/triggers"
)

// TestHalfPairs: the driver makes U+FFFD of half a surrogate pair. What has one
// is refused; a U+FFFD that is there arrives.
func TestHalfPairs(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, "CREATE TABLE dbo.texts (ID int NOT NULL PRIMARY KEY, A nvarchar(50) NULL, B nvarchar(max) NULL)",
		"CREATE TABLE dbo.named (Name nvarchar(50) COLLATE Latin1_General_100_BIN2 NOT NULL, Part int NOT NULL, V int NULL, PRIMARY KEY (Name, Part))")
	if _, err := s.src.Init(ctx); err != nil {
		t.Fatal(err)
	}
	texts, named := weir.Table{Schema: "dbo", Name: "texts"}, weir.Table{Schema: "dbo", Name: "named"}
	plan, _, err := triggers.PlanFor(ctx, s.src, []weir.CaptureSpec{{Table: texts}, {Table: named}})
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(ctx, s.src, plan, nil); err != nil {
		t.Fatal(err)
	}
	// want claims all, and checks the rows and the faults.
	want := func(what string, rows, faults []string) {
		t.Helper()
		p, err := s.src.Claim(ctx, weir.ClaimRequest{PullGUID: weir.NewGUID(), Queue: weir.DefaultQueue, Name: "halves", Puller: "test", Limit: 100, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.src.Read(ctx, p, weir.ReadRequest{Encoding: weir.EncodingText})
		if err != nil {
			t.Fatal(err)
		}
		var gotRows, gotFaults []string
		for _, b := range r.Batch.Tables {
			for _, it := range b.Items {
				text := b.Capture.Table.Name
				for _, f := range slices.Concat(it.Rows...) {
					text += "|" + string(f)
				}
				gotRows = append(gotRows, text)
			}
		}
		for _, f := range r.Faults {
			gotFaults = append(gotFaults, fmt.Sprintf("%s %s %s %s", f.Err.Table, f.Err.Key, f.Err.Column, f.Err.Value))
			if !strings.Contains(f.Err.Error(), "half a surrogate pair") || f.Err.Hint == "" {
				t.Errorf("%s: the fault is %v, want half a surrogate pair and a hint in it", what, f.Err)
			}
		}
		slices.Sort(gotRows)
		slices.Sort(gotFaults)
		s.same(what+": the rows", rows, gotRows)
		s.same(what+": the faults", faults, gotFaults)
		if _, err := s.src.Settle(ctx, p.PullGUID); err != nil {
			t.Fatal(err)
		}
	}
	s.exec("INSERT INTO dbo.texts VALUES (1, N'a' + NCHAR(65533), NCHAR(65533) + N'  ' + NCHAR(65533) + N'  '), (2, N'plain', NULL)",
		"INSERT INTO dbo.named VALUES (N'k' + NCHAR(65533), 1, 7)")
	want("texts that have it", []string{"named|k\ufffd|1|7", "texts|1|a\ufffd|\ufffd  \ufffd  ", "texts|2|plain|"}, nil)
	list, err := s.src.Captures(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id := list[slices.IndexFunc(list, func(c *weir.Capture) bool { return c.Table == named })].ID
	if p, err := s.src.Backfill(ctx, id, 1, false); err != nil || p.Tagged != 1 {
		t.Errorf("the backfill of a key that has it: %+v, %v", p, err)
	}
	if _, err := s.src.Fold(ctx, 100); err != nil {
		t.Fatal(err)
	}
	want("after the backfill", []string{"named|k\ufffd|1|7"}, nil)

	t.Run("halves", func(t *testing.T) {
		testdb.OnlySQLServer(t, "texts with half a surrogate pair")
		s.exec("INSERT INTO dbo.texts VALUES (3, N'ok', N'x' + NCHAR(55357)), (4, NCHAR(56832) + NCHAR(65533), N'ok'), (5, NCHAR(55357) + NCHAR(56832), N'whole')",
			"INSERT INTO dbo.named VALUES (N'k' + NCHAR(55357), 1, 8)")
		want("texts with halves", []string{"texts|5|\U0001f600|whole"},
			[]string{"dbo.named [\"k\ufffd\",\"1\"]  ", "dbo.texts 3 B x\ufffd", "dbo.texts 4 A \ufffd\ufffd"})
		if p, err := s.src.Backfill(ctx, id, 1, true); err == nil || !strings.Contains(err.Error(), "half a surrogate pair") {
			t.Errorf("the backfill of a key with half a pair: %+v, %v, want it refused", p, err)
		}
	})
}
