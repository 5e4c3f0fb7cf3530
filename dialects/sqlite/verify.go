package sqlite

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-cdc/weir"
)

// verifyTimeout bounds one scan of a table.
const verifyTimeout = 2 * time.Hour

// VerifyShape returns the columns of a captured table. [*weir.DriftError] where
// it is not the table that was captured.
func (s *Source) VerifyShape(ctx context.Context, c *weir.Capture, _ []string) (*weir.Shape, error) {
	out := &weir.Shape{Encoding: Encoding, Exists: true}
	return out, s.verify(ctx, c, func(_ context.Context, _ *session, p *plan) error {
		for i := range p.table.columns {
			out.Columns = append(out.Columns, p.table.columns[i].Column)
		}
		return nil
	})
}

// verify runs f in one read transaction, with the capture's plan.
func (s *Source) verify(ctx context.Context, c *weir.Capture, f func(context.Context, *session, *plan) error) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	return s.db.read(ctx, "verify", func(ctx context.Context, x *session) error {
		list, err := readRegistry(ctx, x)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(r registered) bool { return r.ID == c.ID })
		if i < 0 {
			return &weir.ConfigError{Key: "captures: " + c.Table.String(), Err: errors.New("it is not installed"), Hint: "weir triggers apply"}
		}
		p, err := planOf(ctx, x, &list[i])
		if err != nil {
			return err
		}
		return f(ctx, x, p)
	})
}

// VerifyBuckets digests the rows of a captured table by bucket, in one read
// transaction.
func (s *Source) VerifyBuckets(ctx context.Context, c *weir.Capture, q weir.Comparison) (out []weir.BucketDigest, err error) {
	err = s.verify(ctx, c, func(ctx context.Context, x *session, p *plan) error {
		out, err = bucketDigests(ctx, x, p.table, "", q)
		return err
	})
	return out, err
}

// VerifyKeys digests the rows of some buckets by key.
func (s *Source) VerifyKeys(ctx context.Context, c *weir.Capture, q weir.Comparison, buckets []int) (out []weir.KeyDigest, err error) {
	err = s.verify(ctx, c, func(ctx context.Context, x *session, p *plan) error {
		out, err = keyDigests(ctx, x, p.table, "", q, buckets)
		return err
	})
	return out, err
}

// VerifyWaiting calls f with the key of each change of the capture in the queue
// and in the inbox, in one read transaction.
func (s *Source) VerifyWaiting(ctx context.Context, c *weir.Capture, queue string, q weir.Comparison, f func(key []string)) error {
	return s.verify(ctx, c, func(ctx context.Context, x *session, p *plan) error {
		list, err := readRegistry(ctx, x)
		if err != nil {
			return err
		}
		table, err := queueOf(ctx, x, queue)
		if err != nil {
			return err
		}
		const columns = "select instance_guid, change_type, coalesce(concept_guid, ''), coalesce(old_primary_key, ''), old_primary_key is not null, coalesce(capture_id, 0) from "
		const where = " where capture_id = ?1 or capture_id is null"
		var instance, concept string
		var ch weir.Change
		return x.each(ctx, columns+table+where+" union all "+columns+"weir_inbox"+where, []any{c.ID},
			[]any{&instance, &ch.ChangeType, &concept, &ch.OldPrimaryKey, &ch.HasOldPrimaryKey, &ch.CaptureID}, func() error {
				ch.InstanceGUID, _ = weir.ParseGUID(instance) // zero for what weir did not write
				ch.ConceptGUID, _ = weir.ParseGUID(concept)
				if i := captureFor(list, ch); i < 0 || list[i].ID != c.ID {
					return nil
				}
				if p.Kind != weir.Plain {
					f([]string{ch.InstanceGUID.String()})
					return nil
				}
				key, err := parseKey(ch.OldPrimaryKey, len(p.keyCols))
				if err != nil {
					return nil // the key of no row
				}
				out := make([]string, len(key))
				for i, v := range key {
					if n, ok := v.(int64); ok && p.keyCols[i].affinity == affReal {
						v = float64(n) // as the table holds it
					}
					out[i] = canonical(q.Key[i].Form, p.keyCols[i].Kind, v)
				}
				f(out)
				return nil
			})
	})
}

// VerifyShape returns the columns of a capture's table that have the given names
// and are not computed here, by those names.
func (t *Target) VerifyShape(ctx context.Context, c *weir.Capture, names []string) (*weir.Shape, error) {
	out := &weir.Shape{Encoding: Encoding}
	return out, t.verify(ctx, c, func(_ context.Context, _ *session, have *table, _ string) error {
		out.Exists = true
		for _, n := range names {
			if col := have.column(n); col != nil && !col.generated {
				as := col.Column
				as.Name = n
				out.Columns = append(out.Columns, as)
			}
		}
		return nil
	})
}

// verify runs f in one read transaction, with the table and the condition of the
// rows that are the source's now; not at all where there is no table.
func (t *Target) verify(ctx context.Context, c *weir.Capture, f func(context.Context, *session, *table, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	return t.db.read(ctx, "verify", func(ctx context.Context, x *session) error {
		have, err := describe(ctx, x, c.Table.Name)
		if err != nil || have == nil {
			return err
		}
		current := ""
		if ends := t.opts.Mode.EndColumn(); have.column(ends) != nil {
			current = "t." + ident(ends) + " is null"
		}
		return f(ctx, x, have, current)
	})
}

// VerifyBuckets digests the rows that are the source's now by bucket.
func (t *Target) VerifyBuckets(ctx context.Context, c *weir.Capture, q weir.Comparison) (out []weir.BucketDigest, err error) {
	err = t.verify(ctx, c, func(ctx context.Context, x *session, have *table, current string) error {
		out, err = bucketDigests(ctx, x, have, current, q)
		return err
	})
	return out, err
}

// VerifyKeys digests the rows of some buckets by key.
func (t *Target) VerifyKeys(ctx context.Context, c *weir.Capture, q weir.Comparison, buckets []int) (out []weir.KeyDigest, err error) {
	err = t.verify(ctx, c, func(ctx context.Context, x *session, have *table, current string) error {
		out, err = keyDigests(ctx, x, have, current, q, buckets)
		return err
	})
	return out, err
}

// digest is a count and a sum of hashes, as the other engines' SQL makes them:
// two numbers of 60 bits of the MD5 of each row's canonical text.
type digest struct {
	rows      int64
	high, low big.Int
}

func (d *digest) add(text string) {
	h := md5.Sum([]byte(text))
	first, second := binary.BigEndian.Uint64(h[:8]), binary.BigEndian.Uint64(h[8:])
	var n big.Int
	d.rows++
	d.high.Add(&d.high, n.SetUint64(first>>4))
	d.low.Add(&d.low, n.SetUint64((first&0xf)<<56|second>>8))
}

func (d *digest) sum() string { return d.high.String() + " " + d.low.String() }

func bucketDigests(ctx context.Context, c *session, t *table, current string, q weir.Comparison) ([]weir.BucketDigest, error) {
	all := map[int]*digest{}
	err := scanDigests(ctx, c, t, current, q, func(bucket int, _ []string, row string) {
		d := all[bucket]
		if d == nil {
			d = &digest{}
			all[bucket] = d
		}
		d.add(row)
	})
	var out []weir.BucketDigest
	for bucket, d := range all {
		out = append(out, weir.BucketDigest{Bucket: bucket, Rows: d.rows, Sum: d.sum()})
	}
	return out, err
}

func keyDigests(ctx context.Context, c *session, t *table, current string, q weir.Comparison, buckets []int) ([]weir.KeyDigest, error) {
	wanted := map[int]bool{}
	for _, b := range buckets {
		wanted[b] = true
	}
	type one struct {
		key []string
		digest
	}
	all := map[string]*one{}
	err := scanDigests(ctx, c, t, current, q, func(bucket int, key []string, row string) {
		if !wanted[bucket] {
			return
		}
		id := quotedTexts(key)
		d := all[id]
		if d == nil {
			d = &one{key: slices.Clone(key)}
			all[id] = d
		}
		d.add(row)
	})
	var out []weir.KeyDigest
	for _, d := range all {
		out = append(out, weir.KeyDigest{Key: d.key, Rows: d.rows, Sum: d.sum()})
	}
	return out, err
}

// scanDigests calls f for each row with its bucket, its key and its canonical
// text. SQLite runs in this process, so the texts are made here.
func scanDigests(ctx context.Context, c *session, t *table, current string, q weir.Comparison, f func(bucket int, key []string, row string)) error {
	var list, where []string
	var columns []*column
	if current != "" {
		where = append(where, current)
	}
	for i, k := range slices.Concat(q.Key, q.Columns) {
		col := t.column(k.Name)
		if col == nil {
			return fmt.Errorf("column %q is gone", k.Name)
		}
		columns = append(columns, col)
		// An expression: the driver would make a time of a column declared as one.
		list = append(list, "+t."+ident(col.Name))
		if i < len(q.Key) {
			where = append(where, "t."+ident(col.Name)+" is not null")
		}
	}
	row := make([]value, len(columns))
	dest := make([]any, len(columns))
	for i := range row {
		dest[i] = &row[i]
	}
	key, texts := make([]string, len(q.Key)), make([]string, len(q.Columns))
	return c.each(ctx, "select "+strings.Join(list, ", ")+" from "+ident(t.name)+" t where "+strings.Join(where, " and "), nil, dest, func() error {
		for i, v := range row {
			if b, ok := v.([]byte); ok && b == nil {
				v = []byte{}
			}
			switch n := i - len(q.Key); {
			case n < 0:
				key[i] = canonical(q.Key[i].Form, columns[i].Kind, v)
			case v == nil:
				texts[n] = "null"
			default:
				texts[n] = quotedText(canonical(q.Columns[n].Form, columns[i].Kind, v))
			}
		}
		h := md5.Sum([]byte(quotedTexts(key)))
		f(int(int64(binary.BigEndian.Uint32(h[:4]))%int64(q.Buckets)), key, strings.Join(texts, ","))
		return nil
	})
}

func quotedText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func quotedTexts(texts []string) string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = quotedText(s)
	}
	return strings.Join(quoted, ",")
}

// canonical is a value's text in a form. A value that is none of its column's
// kind has a text that no value of the kind has.
func canonical(form weir.Form, k weir.Kind, v value) string {
	if form == weir.FormStored {
		return string(encode(v))
	}
	f, ok := neutral(k, v)
	if !ok {
		return "!" + string(encode(v))
	}
	text := string(f)
	switch form {
	case weir.FormNumber:
		switch v := v.(type) {
		case int64:
			return strconv.FormatInt(v, 10)
		case float64:
			if !math.IsInf(v, 0) {
				text = strconv.FormatFloat(v, 'f', -1, 64)
			}
		}
		return plainNumber(text)
	case weir.FormFloat:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "!" + text
		}
		return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, math.Float64bits(x)))
	case weir.FormBytes:
		return hex.EncodeToString(f)
	case weir.FormTime:
		return plainTime(text)
	case weir.FormText, weir.FormStored:
	}
	return text
}

// plainNumber takes the zeros off a number's digits that say nothing.
func plainNumber(s string) string {
	if strings.ContainsAny(s, "NI") { // NaN, Infinity
		return s
	}
	digits, negative := strings.CutPrefix(s, "-")
	digits = strings.TrimLeft(digits, "0")
	if strings.Contains(digits, ".") {
		digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
	}
	if digits == "" {
		return "0"
	}
	if digits[0] == '.' {
		digits = "0" + digits
	}
	if negative {
		return "-" + digits
	}
	return digits
}

// plainTime takes the zeros off the end of a second's fraction and of a zone.
func plainTime(s string) string {
	s, bc := strings.CutSuffix(s, " BC")
	zone := ""
	if colon := strings.IndexByte(s, ':'); colon >= 0 {
		if i := strings.IndexAny(s[colon:], "+-"); i >= 0 {
			s, zone = s[:colon+i], s[colon+i:]
		}
	}
	for strings.HasSuffix(zone, ":00") {
		zone = strings.TrimSuffix(zone, ":00")
	}
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	s += zone
	if bc {
		s += " BC"
	}
	return s
}
