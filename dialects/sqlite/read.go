package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// planOf reads the table of an installed capture, and makes sure that it is the
// one that was captured: its triggers and its key are there.
func planOf(ctx context.Context, c *session, r *registered) (*plan, error) {
	drift := func(format string, args ...any) error {
		return &weir.DriftError{Object: r.Table.String(), Err: fmt.Errorf(format, args...), Hint: "run weir triggers plan, then apply, then weir backfill " + r.Table.String()}
	}
	t, err := describe(ctx, c, r.Table.Name)
	if err != nil {
		return nil, err
	}
	if t == nil || t.kind != "table" {
		return nil, drift("the table is gone")
	}
	var triggers int
	if err := c.QueryRowContext(ctx, "select count(*) from sqlite_schema where type = 'trigger' and tbl_name = ?1 collate nocase and name glob ?2", t.name, fmt.Sprintf("weir_%d_*", r.ID)).Scan(&triggers); err != nil {
		return nil, err
	}
	if triggers < 4 {
		return nil, drift("it is not the table that was captured, or its triggers were dropped: %d of 4 are there", triggers)
	}
	p := &plan{Capture: &r.Capture, table: t}
	for i := range r.Key {
		col := t.column(r.Key[i].Name)
		if col == nil || col.declared != r.keyTypes[i] {
			return nil, drift("its key column %q is gone or has another type", r.Key[i].Name)
		}
		p.keyCols = append(p.keyCols, col)
		r.Key[i] = col.Column
	}
	if p.Kind == weir.Plain {
		unique := len(p.keyCols) == 1 && t.alias() == p.keyCols[0] || slices.ContainsFunc(t.indexes, func(x index) bool {
			return !x.partial && slices.EqualFunc(x.columns, p.keyCols, func(n string, c *column) bool { return equalNames(n, c.Name) })
		})
		if !unique {
			return nil, drift("its key (%s) is no longer unique", strings.Join(r.keyNames(), ", "))
		}
	}
	key, _ := t.key() // a set's table may have none
	p.backfillOrder(key)
	return p, nil
}

// lookup is how one instance's rows are found: by any of its values of the key
// columns. An instance GUID is found in lower case, in upper case, as bytes and
// as it was spelled.
type lookup struct {
	keys [][]value
}

// lookup decodes a change's key.
func (p *plan) lookup(ch weir.Change, spelled string) (*lookup, error) {
	if p.Kind == weir.Plain {
		if !ch.HasOldPrimaryKey {
			return nil, errors.New("the change has no old_primary_key, so its row cannot be found")
		}
		key, err := parseKey(ch.OldPrimaryKey, len(p.keyCols))
		return &lookup{keys: [][]value{key}}, err
	}
	lower := ch.InstanceGUID.String()
	l := &lookup{}
	if spelled != "" {
		key, err := parseKey(spelled, 1)
		if err != nil {
			return nil, err
		}
		l.keys = append(l.keys, key)
	}
	for _, v := range []value{lower, strings.ToUpper(lower), append([]byte{}, ch.InstanceGUID[:]...)} {
		if len(l.keys) == 0 || sqlText(l.keys[0][0]) != sqlText(v) {
			l.keys = append(l.keys, []value{v})
		}
	}
	if p.keyCols[0].affinity == affBlob && spelled == "" {
		l.keys[0], l.keys[len(l.keys)-1] = l.keys[len(l.keys)-1], l.keys[0]
	}
	return l, nil
}

// lookupChunk is how many keys one statement looks up.
const lookupChunk = 500

// find calls f for each row of the lookups, in their order, with the values of
// the columns.
func (p *plan) find(ctx context.Context, c *session, items []*lookup, columns []column, f func(place int, row []value) error) error {
	type one struct {
		place int
		key   []value
	}
	var all []one
	for place, l := range items {
		for _, key := range l.keys {
			all = append(all, one{place, key})
		}
	}
	list := []string{"k.column1"}
	for i := range columns {
		// An expression: the driver would make a time of a column declared as one.
		list = append(list, "+t."+ident(columns[i].Name))
	}
	var match []string
	for i, k := range p.keyCols {
		match = append(match, fmt.Sprintf("t.%s = k.column%d collate binary", ident(k.Name), i+2))
	}
	text := func(n int) string {
		row := "(?" + strings.Repeat(", ?", len(p.keyCols)) + ")"
		return fmt.Sprintf("select %s from (values %s) k cross join %s t on %s", strings.Join(list, ", "), strings.Repeat(row+", ", n-1)+row, ident(p.table.name), strings.Join(match, " and "))
	}
	chunk := max(1, min(lookupChunk, 30000/(len(p.keyCols)+1)))
	for len(all) > 0 {
		part := all[:min(chunk, len(all))]
		all = all[len(part):]
		args := make([]any, 0, len(part)*(1+len(p.keyCols)))
		for _, o := range part {
			args = append(append(args, o.place), o.key...)
		}
		st, err := c.PrepareContext(ctx, text(len(part)))
		if err != nil {
			return err
		}
		err = scanRows(ctx, st, args, len(columns), f)
		if err := errors.Join(err, st.Close()); err != nil {
			return err
		}
	}
	return nil
}

func scanRows(ctx context.Context, st *sql.Stmt, args []any, columns int, f func(place int, row []value) error) error {
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var place int
	row := make([]value, columns)
	dest := []any{&place}
	for i := range row {
		dest = append(dest, &row[i])
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for i := range row {
			if b, ok := row[i].([]byte); ok && b == nil {
				row[i] = []byte{}
			}
		}
		if err := f(place, row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Read implements [weir.Source]: one read transaction, begun after the claim
// was committed.
func (s *Source) Read(ctx context.Context, pull *weir.Pull, req weir.ReadRequest) (*weir.ReadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	out := &weir.ReadResult{Batch: &weir.Batch{}}
	err := s.db.read(ctx, "read", func(ctx context.Context, c *session) error {
		list, err := readRegistry(ctx, c)
		if err != nil {
			return err
		}
		spelled, err := spelledKeys(ctx, c, pull)
		if err != nil {
			return err
		}
		groups := map[int32][]weir.Change{}
		for _, ch := range pull.Changes {
			i := captureFor(list, ch)
			if i < 0 {
				out.Faults = append(out.Faults, weir.NoCapture(ch))
				continue
			}
			groups[list[i].ID] = append(groups[list[i].ID], ch)
		}
		left := req.MaxBytes
		for i := range list {
			changes := groups[list[i].ID]
			if len(changes) == 0 {
				continue
			}
			if req.MaxBytes > 0 && left <= 0 {
				out.Rest = append(out.Rest, changes...)
				continue
			}
			p, err := planOf(ctx, c, &list[i])
			if err != nil {
				return err
			}
			r := &tableRead{plan: p, encoding: weir.EncodingText, left: left, bounded: req.MaxBytes > 0, out: out}
			if req.Encoding == Encoding {
				r.encoding = Encoding
			}
			if err := r.run(ctx, c, changes, spelled); err != nil {
				return interpretError(err, weir.AtSource, "read", p.Table.Name)
			}
			left -= r.used
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// spelledKeys are the instance GUIDs of a pull as their tables spell them.
func spelledKeys(ctx context.Context, c *session, pull *weir.Pull) (map[weir.GUID]string, error) {
	_, table, _, err := pullOf(ctx, c, pull.PullGUID)
	if err != nil || table == "" {
		return nil, err
	}
	out := map[weir.GUID]string{}
	var guid, key string
	err = c.each(ctx, "select instance_guid, instance_key from "+table+" where pull_guid = ? and instance_key is not null", []any{pull.PullGUID.String()}, []any{&guid, &key}, func() error {
		if g, err := weir.ParseGUID(guid); err == nil {
			out[g] = key
		}
		return nil
	})
	return out, err
}

// captureFor finds the capture of a change.
func captureFor(list []registered, c weir.Change) int {
	return weir.Owner(c, len(list), func(i int) *weir.Capture { return &list[i].Capture }, func(a, b string) bool { return a == b })
}

// tableRead reads the rows of one capture's changes.
type tableRead struct {
	*plan
	encoding weir.Encoding
	left     int64
	bounded  bool
	used     int64
	out      *weir.ReadResult
}

func (r *tableRead) fault(ch weir.Change, key string, column string, v value, why string, hint string) {
	e := &weir.RowError{Table: r.table.name, Key: key, Column: column, Err: errors.New(why), Hint: hint}
	if column != "" {
		e.Value = shorten(sqlText(v))
	}
	r.out.Faults = append(r.out.Faults, weir.ChangeFault{Change: ch, Err: e})
}

func (r *tableRead) run(ctx context.Context, c *session, changes []weir.Change, spelled map[weir.GUID]string) error {
	b := weir.TableBatch{Capture: r.Capture, Encoding: r.encoding}
	for i := range r.table.columns {
		b.Columns = append(b.Columns, r.table.columns[i].Column)
	}
	var items []weir.Item
	var lookups []*lookup
	for _, ch := range changes {
		l, err := r.lookup(ch, spelled[ch.InstanceGUID])
		if err != nil {
			r.fault(ch, ch.OldPrimaryKey, "", nil, err.Error(), "old_primary_key holds the key's values as SQL literals, joined by commas")
			continue
		}
		it := weir.Item{Change: ch}
		if it.Key, err = r.neutralKey(l.keys[0], r.encoding); err != nil {
			r.fault(ch, r.keyShown(ch, l), "", nil, err.Error(), "give the row a key of the type that its column declares")
			continue
		}
		items, lookups = append(items, it), append(lookups, l)
	}
	stop := len(items)
	bad := map[int]bool{}
	err := r.find(ctx, c, lookups, r.table.columns, func(place int, row []value) error {
		if place >= stop || bad[place] {
			return nil
		}
		fields := make(weir.Row, len(row))
		size := int64(24 * len(row))
		for i, v := range row {
			if v == nil {
				continue
			}
			col := &r.table.columns[i]
			if r.encoding == Encoding {
				fields[i] = encode(v)
			} else {
				f, ok := neutral(col.Kind, v)
				if !ok {
					bad[place] = true
					r.fault(items[place].Change, r.keyShown(items[place].Change, lookups[place]), col.Name, v, fmt.Sprintf("the value is no %s, which the column's type %q promises to other engines", col.Kind, col.declared),
						"correct the value, or declare the column as TEXT")
					return nil
				}
				fields[i] = f
			}
			size += int64(len(fields[i]))
		}
		it := &items[place]
		if r.bounded && r.used > 0 && r.used+size > r.left && len(it.Rows) == 0 {
			stop = place
			return nil
		}
		if r.Kind != weir.Plain && len(it.Rows) == 0 {
			// The GUID as this row spells it is the key that the target knows.
			i := slices.IndexFunc(r.table.columns, func(c column) bool { return c.Name == r.keyCols[0].Name })
			key, err := r.neutralKey([]value{row[i]}, r.encoding)
			if err != nil {
				return err
			}
			it.Key = key
		}
		r.used += size
		it.Rows = append(it.Rows, fields)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range items {
		switch {
		case i >= stop:
			r.out.Rest = append(r.out.Rest, items[i].Change)
		case !bad[i]:
			for _, k := range items[i].Key {
				r.used += int64(len(k))
			}
			b.Items = append(b.Items, items[i])
		}
	}
	if len(b.Items) > 0 {
		r.out.Batch.Tables = append(r.out.Batch.Tables, b)
	}
	r.out.Batch.Bytes += r.used
	return nil
}

// neutralKey writes a key for the target. A target of this dialect gets texts as
// they are stored; bytes where a text is declared, and the reverse, could not be
// told apart there.
func (p *plan) neutralKey(key []value, e weir.Encoding) ([]weir.Field, error) {
	out := make([]weir.Field, len(key))
	for i, v := range key {
		k := p.keyCols[i].Kind
		f, ok := neutral(k, v)
		if e == Encoding {
			switch v.(type) {
			case string:
				f, ok = weir.Field(plainText(v)), k != weir.Bytes
			case []byte:
				f, ok = weir.Field(plainText(v)), k == weir.Bytes || ok
			default:
				ok = ok || k != weir.Bytes
			}
		}
		if !ok {
			return nil, fmt.Errorf("key column %q: %s is no %s", p.keyCols[i].Name, shorten(sqlText(v)), k)
		}
		out[i] = f
	}
	return out, nil
}

// keyShown is a change's key for people.
func (p *plan) keyShown(ch weir.Change, l *lookup) string {
	if p.Kind == weir.Plain {
		return ch.OldPrimaryKey
	}
	return shorten(sqlText(l.keys[0][0]))
}
