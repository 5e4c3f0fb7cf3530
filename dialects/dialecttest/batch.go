package dialecttest

import (
	"fmt"
	"strings"

	"github.com/weir-cdc/weir"
)

// A shape is a table as a batch brings it, in the neutral encoding.
type shape struct {
	capture *weir.Capture
	columns []weir.Column
}

// shaped describes a table "name": columns are "column kind", the first of which
// is the key.
func shaped(name string, columns ...string) shape {
	s := shape{capture: &weir.Capture{ID: int32(len(name)*1000 + int(name[0])), Table: weir.Table{Schema: "src", Name: name}, Kind: weir.Plain, ConceptGUID: weir.NewGUID()}}
	for _, c := range columns {
		column, kind, _ := strings.Cut(c, " ")
		s.columns = append(s.columns, weir.Column{Name: column, Kind: weir.Kind(kind), Native: kind})
	}
	s.columns[0].NotNull = true
	s.capture.Key = s.columns[:1]
	return s
}

// set makes the shape one of a set: its first column is the parent.
func (s shape) set(rowKey ...string) shape {
	s.capture.Kind, s.capture.Set, s.capture.RowKey, s.capture.ChangeType = weir.Child, true, rowKey, "Child Changed"
	return s
}

// row makes a row of texts; <null> is NULL.
func row(texts ...string) weir.Row {
	r := make(weir.Row, len(texts))
	for i, text := range texts {
		if text != null {
			r[i] = weir.Field(text)
		}
	}
	return r
}

// upsert is an item with one row, its key in the first field.
func upsert(texts ...string) weir.Item {
	return weir.Item{Change: weir.Change{InstanceGUID: weir.NewGUID(), ChangeType: weir.InstanceInserted}, Key: row(texts[0]), Rows: []weir.Row{row(texts...)}}
}

// remove is an item whose row is absent.
func remove(key string) weir.Item {
	return weir.Item{Change: weir.Change{InstanceGUID: weir.NewGUID(), ChangeType: weir.InstanceDeleted}, Key: row(key)}
}

// children is an item of a set.
func children(parent string, rows ...weir.Row) weir.Item {
	return weir.Item{Change: weir.Change{InstanceGUID: weir.NewGUID(), ChangeType: "Child Changed"}, Key: row(parent), Rows: rows}
}

// of makes a batch part of the shape and items.
func (s shape) of(items ...weir.Item) weir.TableBatch {
	return weir.TableBatch{Capture: s.capture, Columns: s.columns, Encoding: weir.EncodingText, Items: items}
}

func batch(tables ...weir.TableBatch) *weir.Batch {
	b := &weir.Batch{Tables: tables}
	for _, t := range tables {
		for _, it := range t.Items {
			for _, r := range it.Rows {
				for _, f := range r {
					b.Bytes += int64(len(f))
				}
			}
		}
	}
	return b
}

// one is a batch of one row of the table "one".
func one(key, value string) *weir.Batch {
	return batch(shaped("one", "id int32", "v text").of(upsert(key, value)))
}

func numbered(format string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}
