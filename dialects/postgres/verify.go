package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// verifyTimeout bounds one scan of a table.
const verifyTimeout = 2 * time.Hour

// moneyOID is money's, whose text goes by the database's own lc_monetary.
const moneyOID = 790

// VerifyShape returns the columns of a captured table. [*weir.DriftError] where
// it is not the table that was captured.
func (s *Source) VerifyShape(ctx context.Context, c *weir.Capture, _ []string) (*weir.Shape, error) {
	p, err := s.verifyPlan(ctx, c)
	if err != nil {
		return nil, err
	}
	out := &weir.Shape{Encoding: Encoding, Exists: true}
	for i := range p.table.columns {
		out.Columns = append(out.Columns, p.table.columns[i].Column)
	}
	return out, nil
}

func (s *Source) verifyPlan(ctx context.Context, c *weir.Capture) (*plan, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := s.registered(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(r registered) bool { return r.ID == c.ID })
	if i < 0 {
		return nil, &weir.ConfigError{Key: "captures: " + c.Table.String(), Err: errors.New("it is not installed"), Hint: "weir triggers apply"}
	}
	return planOf(ctx, s.pool, &list[i])
}

// VerifyBuckets digests the rows of a captured table by bucket, in one statement
// and so in one snapshot.
func (s *Source) VerifyBuckets(ctx context.Context, c *weir.Capture, q weir.Comparison) ([]weir.BucketDigest, error) {
	p, err := s.verifyPlan(ctx, c)
	if err != nil {
		return nil, err
	}
	out, err := bucketDigests(ctx, s.pool, p.table, "", q)
	return out, translate(err, weir.AtSource, "verify", c.Table.String())
}

// VerifyKeys digests the rows of some buckets by key.
func (s *Source) VerifyKeys(ctx context.Context, c *weir.Capture, q weir.Comparison, buckets []int) ([]weir.KeyDigest, error) {
	p, err := s.verifyPlan(ctx, c)
	if err != nil {
		return nil, err
	}
	out, err := keyDigests(ctx, s.pool, p.table, "", q, buckets)
	return out, translate(err, weir.AtSource, "verify", c.Table.String())
}

// VerifyWaiting calls f with the key of each change of the capture in the queue
// and in the inbox, in one snapshot.
func (s *Source) VerifyWaiting(ctx context.Context, c *weir.Capture, queue string, q weir.Comparison, f func(key []string)) error {
	p, err := s.verifyPlan(ctx, c)
	if err != nil {
		return err
	}
	list, err := s.registered(ctx)
	if err != nil {
		return err
	}
	sql, err := renderPart("postgres/verify/digests.sql.tmpl", "waiting", s.queueArgs(queue))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, sql, c.ID)
	if err != nil {
		return translate(err, weir.AtSource, "verify", c.Table.String())
	}
	var instance, concept [16]byte
	var ch weir.Change
	_, err = pgx.ForEachRow(rows, []any{&instance, &ch.ChangeType, &concept, &ch.OldPrimaryKey, &ch.HasOldPrimaryKey, &ch.CaptureID}, func() error {
		ch.InstanceGUID, ch.ConceptGUID = instance, concept
		if i := captureFor(list, ch); i < 0 || list[i].ID != c.ID {
			return nil
		}
		texts, err := keyTexts(p, ch)
		if err != nil {
			return nil // the key of no row
		}
		key, err := neutralKey(p, texts)
		if err != nil {
			return nil // the same
		}
		out := make([]string, len(key))
		for i := range key {
			out[i] = canonicalKey(q.Key[i].Form, p.keyCols[i], key[i])
		}
		f(out)
		return nil
	})
	return translate(err, weir.AtSource, "verify", c.Table.String())
}

// canonicalKey is what the SQL of canonical makes of a key, from its neutral
// text.
func canonicalKey(form weir.Form, c *column, neutral weir.Field) string {
	text := string(neutral)
	switch {
	case form == weir.FormNumber && c.Kind == weir.Bool:
		if text == "true" {
			return "1"
		}
		return "0"
	case form == weir.FormNumber && strings.Contains(text, "."):
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	case form == weir.FormFloat:
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			return fmt.Sprintf("%016x", math.Float64bits(x))
		}
	case form == weir.FormBytes:
		return hex.EncodeToString(neutral)
	}
	return text
}

// VerifyShape returns the columns of a capture's table that have the given names
// and are not computed here.
func (t *Target) VerifyShape(ctx context.Context, c *weir.Capture, names []string) (*weir.Shape, error) {
	have, _, err := t.verifyTable(ctx, c)
	if err != nil {
		return nil, err
	}
	out := &weir.Shape{Encoding: Encoding}
	if have == nil {
		return out, nil
	}
	out.Exists = true
	for _, n := range names {
		if col := have.column(n); col != nil && !col.generated {
			out.Columns = append(out.Columns, col.Column)
		}
	}
	return out, nil
}

// verifyTable describes the table, with the condition of the rows that are the
// source's now; nil where there is none.
func (t *Target) verifyTable(ctx context.Context, c *weir.Capture) (*table, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	have, err := describeTable(ctx, t.pool, weir.Table{Schema: t.schema, Name: c.Table.Name})
	if err != nil || have == nil {
		return nil, "", translate(err, weir.AtTarget, "verify", c.Table.Name)
	}
	if have.filtered {
		return nil, "", &weir.ConfigError{Key: "target table " + have.String(), Err: errors.New("row-level security hides rows from the role that weir connects as"), Hint: "ALTER ROLE ... BYPASSRLS"}
	}
	if ends := t.opts.Mode.EndColumn(); have.column(ends) != nil {
		return have, "t." + ident(ends) + " is null", nil
	}
	return have, "", nil
}

// VerifyBuckets digests the rows that are the source's now by bucket.
func (t *Target) VerifyBuckets(ctx context.Context, c *weir.Capture, q weir.Comparison) ([]weir.BucketDigest, error) {
	have, current, err := t.verifyTable(ctx, c)
	if err != nil || have == nil {
		return nil, err
	}
	out, err := bucketDigests(ctx, t.pool, have, current, q)
	return out, translate(err, weir.AtTarget, "verify", c.Table.Name)
}

// VerifyKeys digests the rows of some buckets by key.
func (t *Target) VerifyKeys(ctx context.Context, c *weir.Capture, q weir.Comparison, buckets []int) ([]weir.KeyDigest, error) {
	have, current, err := t.verifyTable(ctx, c)
	if err != nil || have == nil {
		return nil, err
	}
	out, err := keyDigests(ctx, t.pool, have, current, q, buckets)
	return out, translate(err, weir.AtTarget, "verify", c.Table.Name)
}

func bucketDigests(ctx context.Context, db queryer, t *table, current string, q weir.Comparison) ([]weir.BucketDigest, error) {
	sql, err := digestSQL("buckets", t, current, q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (weir.BucketDigest, error) {
		var d weir.BucketDigest
		err := r.Scan(&d.Bucket, &d.Rows, &d.Sum)
		return d, err
	})
}

func keyDigests(ctx context.Context, db queryer, t *table, current string, q weir.Comparison, buckets []int) ([]weir.KeyDigest, error) {
	sql, err := digestSQL("keys", t, current, q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	rows, err := db.Query(ctx, sql, buckets)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (weir.KeyDigest, error) {
		var d weir.KeyDigest
		err := r.Scan(&d.Key, &d.Rows, &d.Sum)
		return d, err
	})
}

// digestSQL renders a part of the template for a table. A row's canonical text
// are its columns' texts in single quotes, doubled within, or null, by commas.
func digestSQL(part string, t *table, current string, q weir.Comparison) (string, error) {
	var where, keys, names, keyTexts, rowTexts []string
	if current != "" {
		where = append(where, current)
	}
	quoted := func(text string) string {
		return "coalesce('''' || replace(" + text + ", '''', '''''') || '''', 'null')"
	}
	for i, k := range q.Key {
		col := t.column(k.Name)
		if col == nil {
			return "", fmt.Errorf("key column %q is gone", k.Name)
		}
		name := fmt.Sprintf("k%d", i+1)
		keys = append(keys, col.canonical("t."+ident(col.Name), k.Form)+" as "+name)
		names = append(names, name)
		keyTexts = append(keyTexts, quoted(name))
		where = append(where, "t."+ident(col.Name)+" is not null")
	}
	for _, c := range q.Columns {
		col := t.column(c.Name)
		if col == nil {
			return "", fmt.Errorf("column %q is gone", c.Name)
		}
		rowTexts = append(rowTexts, quoted(col.canonical("t."+ident(col.Name), c.Form)))
	}
	return renderPart("postgres/verify/digests.sql.tmpl", part, struct {
		Table, Where, Keys, KeyNames, KeyText, RowText string
		Buckets                                        int
	}{
		tableName(t.Table), strings.Join(where, " and "), strings.Join(keys, ", "), strings.Join(names, ", "),
		strings.Join(keyTexts, " || ',' || "), strings.Join(rowTexts, " || ',' || "), q.Buckets,
	})
}

// canonical is the SQL expression for a value's text in a form; null for null.
func (c *column) canonical(x string, form weir.Form) string {
	switch form {
	case weir.FormNumber:
		switch c.Kind {
		case weir.Bool:
			return x + "::integer::text"
		case weir.Decimal:
			return "trim_scale(" + x + ")::text"
		case weir.Float32, weir.Float64:
			return "trim_scale(" + x + "::text::numeric)::text"
		}
		return x + "::text"
	case weir.FormFloat:
		return "encode(float8send(" + x + "::text::double precision), 'hex')"
	case weir.FormBytes:
		return "encode(" + x + ", 'hex')"
	case weir.FormTime:
		return x + "::text"
	case weir.FormStored:
		if c.oid == moneyOID {
			return x + "::numeric::text"
		}
	case weir.FormText:
		if c.Kind == weir.Bool {
			return x + "::text" // true, where the output is t
		}
	}
	// The type's own output: a cast to text would cut the blanks of a char(n), and
	// give an address its mask. A composite value of nulls is no null.
	return "case when " + x + " is distinct from null then format('%s', " + x + ") end"
}
