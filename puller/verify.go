package puller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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

// VerifySource is the source's side.
type VerifySource interface {
	Verifiable
	// VerifyWaiting calls f with the canonical key of each change of the capture
	// that waits or is in flight in the queue, or is in the inbox.
	VerifyWaiting(ctx context.Context, c *weir.Capture, queue string, q weir.Comparison, f func(key []string)) error
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
	// Unsettled are keys that seem to differ while a change of them is under way.
	Unsettled []Difference `json:"unsettled"`
	LeftOut   []LeftOut    `json:"left_out,omitempty"`
}

// Of the buckets, those that differ are read key by key, so many rows of both
// sides at a time that they fit into memory.
const (
	verifyBuckets = 4096
	verifyRows    = 500_000
)

// Verify compares a capture's rows at the source with those at the target, by
// digests that each side computes, and changes nothing. A key that differs is
// read again, and reported only when no change of it was in the queue or the
// inbox before and after, and the source's row stayed as it was meanwhile;
// changes that are under way are waited for, for each part of the table at most
// wait long.
func Verify(ctx context.Context, source VerifySource, target Verifiable, c *weir.Capture, queue string, wait time.Duration) (*Verified, error) {
	out := &Verified{Table: c.Table.String(), ChangeType: c.ChangeType, Differing: []Difference{}, Unsettled: []Difference{}}
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
	s := &rereading{source: source, target: target, capture: c, queue: queue, q: q}
	for _, part := range out.differing(here, there) {
		settled, unsettled, err := s.run(ctx, part, wait)
		if err != nil {
			return nil, err
		}
		out.Differing, out.Unsettled = append(out.Differing, settled...), append(out.Unsettled, unsettled...)
	}
	for _, list := range [][]Difference{out.Differing, out.Unsettled} {
		slices.SortFunc(list, func(a, b Difference) int { return slices.Compare(a.Key, b.Key) })
	}
	return out, nil
}

// rereading tells the differences of some buckets from changes under way.
type rereading struct {
	source  VerifySource
	target  Verifiable
	capture *weir.Capture
	queue   string
	q       weir.Comparison
}

func (s *rereading) run(ctx context.Context, part []int, wait time.Duration) (settled, unsettled []Difference, err error) {
	began := time.Now()
	for {
		found, moving, err := s.read(ctx, part)
		if err != nil {
			return nil, nil, err
		}
		unsettled = unsettled[:0]
		settled = settled[:0]
		for _, d := range found {
			if moving[s.id(d.Key)] {
				unsettled = append(unsettled, d)
			} else {
				settled = append(settled, d)
			}
		}
		if len(unsettled) == 0 || time.Since(began) >= wait {
			return settled, unsettled, nil
		}
		select {
		case <-time.After(min(time.Second, wait)):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// read compares the buckets key by key, and returns what differs and which keys
// may be on their way: those of a change that was there before or after, and
// those whose row the source changed between.
func (s *rereading) read(ctx context.Context, part []int) (found []Difference, moving map[string]bool, err error) {
	moving = map[string]bool{}
	waiting := func() error {
		return s.source.VerifyWaiting(ctx, s.capture, s.queue, s.q, func(key []string) { moving[s.id(key)] = true })
	}
	if err := waiting(); err != nil {
		return nil, nil, err
	}
	before, err := s.source.VerifyKeys(ctx, s.capture, s.q, part)
	if err != nil {
		return nil, nil, err
	}
	there, err := s.target.VerifyKeys(ctx, s.capture, s.q, part)
	if err != nil {
		return nil, nil, err
	}
	after, err := s.source.VerifyKeys(ctx, s.capture, s.q, part)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range differences(before, after) {
		moving[s.id(d.Key)] = true
	}
	return differences(after, there), moving, waiting()
}

// id is a key as one text. A GUID may be spelled in more than one way.
func (s *rereading) id(key []string) string {
	id := keyID(key)
	if s.capture.Kind != weir.Plain {
		id = strings.ToLower(strings.ReplaceAll(key[0], "-", ""))
	}
	return id
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

func keyID(key []string) string {
	var b strings.Builder
	for _, k := range key {
		fmt.Fprintf(&b, "%d:%s", len(k), k)
	}
	return b.String()
}

func differences(here, there []weir.KeyDigest) []Difference {
	at := make(map[string]weir.KeyDigest, len(there))
	for _, d := range there {
		at[keyID(d.Key)] = d
	}
	var out []Difference
	for _, d := range here {
		t, found := at[keyID(d.Key)]
		delete(at, keyID(d.Key))
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
