package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/internal/testdb"
)

// TestTargetChangedMeanwhile: an index that comes while weir runs is found when
// it first stands in the way.
func TestTargetChangedMeanwhile(t *testing.T) {
	w := &world{TB: t, url: testdb.Postgres(t)}
	w.user = w.session(w.url)
	tg, err := postgres.OpenTarget(context.Background(), w.url, weir.TargetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	columns := []weir.Column{{Name: "k", Kind: weir.Int32, Native: "integer"}, {Name: "v", Kind: weir.Text, Native: "text"}}
	capture := &weir.Capture{ID: 1, Table: weir.Table{Schema: "app", Name: "t"}, Kind: weir.Plain, Key: columns[:1]}
	ship := func(first, second string) error {
		b := weir.TableBatch{Capture: capture, Columns: columns, Encoding: weir.EncodingText}
		for k, v := range map[string]string{"1": first, "2": second} {
			b.Items = append(b.Items, weir.Item{Key: []weir.Field{weir.Field(k)}, Rows: []weir.Row{{weir.Field(k), weir.Field(v)}}})
		}
		return tg.Ship(context.Background(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: &weir.Batch{Tables: []weir.TableBatch{b}}})
	}
	if err := ship("a", "b"); err != nil {
		t.Fatal(err)
	}
	w.exec("alter table public.t add unique (v)")
	var r *weir.RowError
	if err := ship("b", "a"); err != nil && !errors.As(err, &r) {
		t.Fatal(err)
	}
	if err := ship("b", "a"); err != nil {
		t.Errorf("the second try: %v", err)
	}
	if got := one[string](w, "select string_agg(v, '' order by k) from public.t"); got != "ba" {
		t.Errorf("the table holds %s, want ba", got)
	}
}
