package puller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// Verifiable is a side of a pull that can be compared with the other. Each call
// reads committed data in one snapshot, holds no transaction on return, and may
// scan a whole table.
type Verifiable interface {
	// VerifyShape returns the columns of the capture's table: at a source all, at
	// a target those of the names that a shipment writes.
	VerifyShape(ctx context.Context, c *weir.Capture, names []string) (*weir.Shape, error)
	// VerifyBuckets digests the rows by bucket, in no order; a bucket without rows
	// is left out.
	VerifyBuckets(ctx context.Context, c *weir.Capture, q weir.Comparison) ([]weir.BucketDigest, error)
	// VerifyKeys digests the rows of the buckets by key, in no order.
	VerifyKeys(ctx context.Context, c *weir.Capture, q weir.Comparison, buckets []int) ([]weir.KeyDigest, error)
}

// Difference is a key whose rows differ.
type Difference struct {
	// Key are the texts of the key's columns.
	Key []string `json:"key"`
	// How is missing (at the target), extra (there) or changed.
	How string `json:"how"`
}

// The ways in which a key's rows differ.
const (
	Missing = "missing"
	Extra   = "extra"
	Changed = "changed"
)

// LeftOut is a column that was not compared.
type LeftOut struct {
	Column string `json:"column"`
	Why    string `json:"why"`
}

// Verified is what the comparison of one capture's table found.
type Verified struct {
	Table      string       `json:"table"`
	ChangeType string       `json:"change_type,omitempty"` // of a child capture
	SourceRows int64        `json:"source_rows"`
	TargetRows int64        `json:"target_rows"`
	Differing  []Difference `json:"differing"` // by key
	LeftOut    []LeftOut    `json:"left_out,omitempty"`
}

// Of the buckets, those that differ are read key by key, so many rows of both
// sides at a time that they fit into memory.
const (
	verifyBuckets = 4096
	verifyRows    = 500_000
)

// Verify compares a capture's rows at the source with those at the target, by
// digests that each side computes, and changes nothing. What is changed at the
// source while it runs, or waits to be pulled, may be among the differences.
func Verify(ctx context.Context, source, target Verifiable, c *weir.Capture) (*Verified, error) {
	out := &Verified{Table: c.Table.String(), ChangeType: c.ChangeType, Differing: []Difference{}}
	q, err := out.comparison(ctx, source, target, c)
	if err != nil {
		return nil, err
	}
	here, err := source.VerifyBuckets(ctx, c, q)
	if err != nil {
		return nil, err
	}
	there, err := target.VerifyBuckets(ctx, c, q)
	if err != nil {
		return nil, err
	}
	for _, part := range out.differing(here, there) {
		here, err := source.VerifyKeys(ctx, c, q, part)
		if err != nil {
			return nil, err
		}
		there, err := target.VerifyKeys(ctx, c, q, part)
		if err != nil {
			return nil, err
		}
		out.Differing = append(out.Differing, differences(here, there)...)
	}
	slices.SortFunc(out.Differing, func(a, b Difference) int { return slices.Compare(a.Key, b.Key) })
	return out, nil
}

// comparison decides how the columns of both sides are compared.
func (v *Verified) comparison(ctx context.Context, source, target Verifiable, c *weir.Capture) (weir.Comparison, error) {
	q := weir.Comparison{Buckets: verifyBuckets}
	from, err := source.VerifyShape(ctx, c, nil)
	if err != nil {
		return q, err
	}
	var names []string
	for _, col := range from.Columns {
		names = append(names, col.Name)
	}
	to, err := target.VerifyShape(ctx, c, names)
	if err != nil {
		return q, err
	}
	if !to.Exists {
		to = from // no row is there, in whatever form
	}
	same := from.Encoding == to.Encoding
	keys := map[string]weir.Form{}
	for _, col := range from.Columns {
		i := slices.IndexFunc(to.Columns, func(t weir.Column) bool { return t.Name == col.Name })
		if i < 0 {
			v.LeftOut = append(v.LeftOut, LeftOut{col.Name, "the target has no such column, or computes it"})
			continue
		}
		form, ok := weir.FormOf(col, to.Columns[i], same)
		if !ok {
			v.LeftOut = append(v.LeftOut, LeftOut{col.Name, fmt.Sprintf("the target holds %s as %s, which may have another text", col.Native, to.Columns[i].Native)})
			continue
		}
		q.Columns = append(q.Columns, weir.Compared{Name: col.Name, Form: form})
		// A key is found by its value, whatever its zeros.
		if f, ok := weir.FormOf(col, to.Columns[i], false); ok {
			form = f
		}
		keys[col.Name] = form
	}
	for _, k := range c.Key {
		form, ok := keys[k.Name]
		if !ok {
			return q, &weir.ConfigError{Key: "target table " + c.Table.Name, Err: fmt.Errorf("its key column %q cannot be compared with the source's", k.Name), Hint: "give the column the type that docs/types.md names"}
		}
		q.Key = append(q.Key, weir.Compared{Name: k.Name, Form: form})
	}
	return q, nil
}

// differing counts the rows, and returns the buckets that differ, in parts of at
// most verifyRows rows, or of one bucket.
func (v *Verified) differing(here, there []weir.BucketDigest) [][]int {
	type pair struct{ here, there weir.BucketDigest }
	pairs := make([]pair, verifyBuckets)
	for _, b := range here {
		pairs[b.Bucket].here = b
		v.SourceRows += b.Rows
	}
	for _, b := range there {
		pairs[b.Bucket].there = b
		v.TargetRows += b.Rows
	}
	var parts [][]int
	var size int64
	for i, p := range pairs {
		if p.here == p.there {
			continue
		}
		n := p.here.Rows + p.there.Rows
		if len(parts) == 0 || size+n > verifyRows {
			parts, size = append(parts, nil), 0
		}
		last := &parts[len(parts)-1]
		*last = append(*last, i)
		size += n
	}
	return parts
}

func differences(here, there []weir.KeyDigest) []Difference {
	id := func(d weir.KeyDigest) string {
		var b strings.Builder
		for _, k := range d.Key {
			fmt.Fprintf(&b, "%d:%s", len(k), k)
		}
		return b.String()
	}
	at := make(map[string]weir.KeyDigest, len(there))
	for _, d := range there {
		at[id(d)] = d
	}
	var out []Difference
	for _, d := range here {
		t, found := at[id(d)]
		delete(at, id(d))
		switch {
		case !found:
			out = append(out, Difference{d.Key, Missing})
		case d.Rows != t.Rows || d.Sum != t.Sum:
			out = append(out, Difference{d.Key, Changed})
		}
	}
	for _, d := range at {
		out = append(out, Difference{d.Key, Extra})
	}
	return out
}
