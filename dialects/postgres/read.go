package postgres

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weir-cdc/weir"
)

// Encoding is this dialect's own: each field is the value's binary wire form
// (the type's send function) for the column's Native type.
const Encoding weir.Encoding = "postgres"

// group is what one capture has to read.
type group struct {
	capture *registered
	plan    *plan
	items   []weir.Item
	texts   [][]string // the key columns' texts, by item
}

// Read implements [weir.Source]. It reads in one REPEATABLE READ, READ ONLY
// transaction begun after the claim was committed, with row_security = off, so
// that a policy is an error and not a deleted row.
func (s *Source) Read(ctx context.Context, pull *weir.Pull, req weir.ReadRequest) (*weir.ReadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, translate(err, weir.AtSource, "read", "")
	}
	defer conn.Release()
	// The locks come before the snapshot: a table that is rewritten between the
	// two would look empty. So what to lock is read before.
	before, err := s.readRegistry(ctx, conn)
	if err != nil {
		return nil, err
	}
	t, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, translate(err, weir.AtSource, "read", "")
	}
	defer rollback(ctx, t)
	locked, err := lockTables(ctx, t, before, pull)
	if err != nil {
		return nil, err
	}
	res, err := s.read(ctx, t, locked, pull, req)
	return res, translate(err, weir.AtSource, "read", "")
}

// lockTables keeps the tables of a pull as the catalog has them until the
// transaction ends. It takes no snapshot.
func lockTables(ctx context.Context, t pgx.Tx, list []registered, pull *weir.Pull) (map[weir.Table]bool, error) {
	locked := map[weir.Table]bool{}
	var names []string
	for _, c := range pull.Changes {
		if i := captureFor(list, c); i >= 0 && !locked[list[i].Table] {
			locked[list[i].Table] = true
			names = append(names, tableName(list[i].Table))
		}
	}
	if len(names) == 0 {
		return locked, nil
	}
	slices.Sort(names)
	if _, err := t.Exec(ctx, "set local lock_timeout = '"+lockTimeout+"'"); err != nil {
		return nil, translate(err, weir.AtSource, "read", "")
	}
	_, err := t.Exec(ctx, "lock table "+strings.Join(names, ", ")+" in access share mode")
	return locked, translate(err, weir.AtSource, "read", strings.Join(names, ", "))
}

func (s *Source) read(ctx context.Context, t pgx.Tx, locked map[weir.Table]bool, pull *weir.Pull, req weir.ReadRequest) (*weir.ReadResult, error) {
	list, err := s.readRegistry(ctx, t)
	if err != nil {
		return nil, err
	}
	out := &weir.ReadResult{Batch: &weir.Batch{}}
	groups := map[int32]*group{}
	var order []int32
	for _, c := range pull.Changes {
		i := captureFor(list, c)
		if i < 0 {
			out.Faults = append(out.Faults, weir.NoCapture(c))
			continue
		}
		g := groups[list[i].ID]
		if g == nil {
			g = &group{capture: &list[i]}
			groups[list[i].ID] = g
			order = append(order, list[i].ID)
		}
		g.items = append(g.items, weir.Item{Change: c})
	}
	slices.Sort(order)

	left := req.MaxBytes
	for _, id := range order {
		g := groups[id]
		if !locked[g.capture.Table] {
			return nil, &weir.UnavailableError{Side: weir.AtSource, Op: "read", Err: fmt.Errorf("the capture of %s changed meanwhile", g.capture.Table)}
		}
		if g.plan, err = planOf(ctx, t, g.capture); err != nil {
			return nil, err
		}
		if err := detached(ctx, t, s.schema, g.plan); err != nil {
			return nil, err
		}
		out.Faults = append(out.Faults, g.decodeKeys()...)
		if len(g.items) == 0 {
			continue
		}
		if req.MaxBytes > 0 && left <= 0 {
			for _, it := range g.items {
				out.Rest = append(out.Rest, it.Change)
			}
			continue
		}
		// A key that is unique has an index, and a few thousand probes of it cost
		// less than any walk over the table; the planner thinks otherwise from a few
		// thousand on. A set's column may have no index.
		how := "on"
		if !g.capture.Set {
			how = "off"
		}
		for _, sql := range []string{"set local enable_hashjoin = " + how, "set local enable_mergejoin = " + how, "savepoint reading"} {
			if _, err := t.Exec(ctx, sql); err != nil {
				return nil, err
			}
		}
		b, rest, bytes, err := readTable(ctx, t, g, req.Encoding, left)
		if isDataError(err) {
			// A key in the queue is no value of its column's type.
			faults, ferr := g.dropBadKeys(ctx, t)
			if ferr != nil {
				return nil, ferr
			}
			out.Faults = append(out.Faults, faults...)
			b, rest, bytes, err = readTable(ctx, t, g, req.Encoding, left)
		}
		if err != nil {
			return nil, translate(err, weir.AtSource, "read", g.capture.Table.String())
		}
		left -= bytes
		out.Rest = append(out.Rest, rest...)
		out.Batch.Bytes += bytes
		out.Batch.Tables = append(out.Batch.Tables, *b)
	}
	return out, nil
}

// captureFor finds the capture of a change.
func captureFor(list []registered, c weir.Change) int {
	return weir.Owner(c, len(list), func(i int) *weir.Capture { return &list[i].Capture }, func(a, b string) bool { return a == b })
}

// detached reports a partition or child that still has the capture's triggers
// but no longer belongs to the captured table: its rows would look deleted.
func detached(ctx context.Context, q queryer, schema string, p *plan) error {
	var name string
	err := q.QueryRow(ctx, `with recursive family as (
    select $2::bigint::oid as oid union select i.inhrelid from pg_inherits i join family f on f.oid = i.inhparent
)
select g.tgrelid::regclass::text
from pg_trigger g
join pg_proc p on p.oid = g.tgfoid
join pg_namespace n on n.oid = p.pronamespace
where n.nspname = $1 and g.tgname = $3 and g.tgparentid = 0 and g.tgrelid not in (select oid from family)
limit 1`, schema, int64(p.table.oid), triggerName(p.ID, "truncate")).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &weir.DriftError{Object: p.Table.String(), Err: fmt.Errorf("%s no longer belongs to it, but still has its triggers", name),
		Hint: "run weir triggers apply, which takes them off; the rows that left with it stay at the target until they are deleted there"}
}

// decodeKeys fills in the items' keys, and takes out those that have none.
func (g *group) decodeKeys() []weir.ChangeFault {
	p := g.plan
	var faults []weir.ChangeFault
	kept := g.items[:0]
	g.texts = make([][]string, 0, len(g.items))
	for _, it := range g.items {
		texts, err := keyTexts(p, it.Change)
		if err == nil {
			it.Key, err = neutralKey(p, texts)
		}
		if err != nil {
			faults = append(faults, weir.ChangeFault{Change: it.Change, Err: &weir.RowError{Table: p.Table.String(), Key: it.Change.OldPrimaryKey, Err: err,
				Hint: "old_primary_key is the key's text; of several columns a JSON array of texts"}})
			continue
		}
		kept = append(kept, it)
		g.texts = append(g.texts, texts)
	}
	g.items = kept
	return faults
}

func keyTexts(p *plan, c weir.Change) ([]string, error) {
	if p.Kind != weir.Plain {
		return []string{c.InstanceGUID.String()}, nil
	}
	if !c.HasOldPrimaryKey {
		return nil, errors.New("the change has no old_primary_key, so its row cannot be found")
	}
	if len(p.keyCols) == 1 {
		return []string{c.OldPrimaryKey}, nil
	}
	var texts []string
	if err := json.Unmarshal([]byte(c.OldPrimaryKey), &texts); err != nil {
		return nil, fmt.Errorf("decode the key: %w", err)
	}
	if len(texts) != len(p.keyCols) {
		return nil, fmt.Errorf("the key has %d values, %d are needed", len(texts), len(p.keyCols))
	}
	return texts, nil
}

// neutralKey turns key texts into neutral fields, and refuses what the column's
// type surely cannot be.
func neutralKey(p *plan, texts []string) ([]weir.Field, error) {
	key := make([]weir.Field, len(texts))
	for i, text := range texts {
		c := p.keyCols[i]
		switch c.oid {
		case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
			bits := map[uint32]int{pgtype.Int2OID: 16, pgtype.Int4OID: 32, pgtype.Int8OID: 64}[c.oid]
			if _, err := strconv.ParseInt(text, 10, bits); err != nil {
				return nil, fmt.Errorf("%q is no %s", text, c.Native)
			}
		case pgtype.UUIDOID:
			if _, err := weir.ParseGUID(text); err != nil {
				return nil, err
			}
		case pgtype.ByteaOID:
			b, err := hex.DecodeString(text)
			if err != nil {
				return nil, fmt.Errorf("%q are no hexadecimal digits", text)
			}
			key[i] = b
			continue
		case pgtype.BPCharOID:
			// As the row has it: the key's text is without the blanks.
			text += strings.Repeat(" ", max(0, c.Length-utf8.RuneCountInString(text)))
		case pgtype.InetOID:
			text = hostOf(text)
		case pgtype.NumericOID:
			text = scaled(text, c.Scale)
		}
		key[i] = []byte(text)
	}
	return key, nil
}

// hostOf takes the mask off the text of a single address, as inet's output does.
func hostOf(inet string) string {
	if host, ok := strings.CutSuffix(inet, "/128"); ok {
		return host
	}
	if host, ok := strings.CutSuffix(inet, "/32"); ok && !strings.Contains(host, ":") {
		return host
	}
	return inet
}

// scaled gives a number's text as many digits after the point as its column's
// scale has.
func scaled(number string, scale int) string {
	if strings.ContainsAny(number, "NI") { // NaN, Infinity
		return number
	}
	whole, fraction, _ := strings.Cut(number, ".")
	if missing := scale - len(fraction); missing > 0 {
		return whole + "." + fraction + strings.Repeat("0", missing)
	}
	return number
}

// readTable reads the rows of one capture's items. It stops when left bytes are
// used up (0: no bound), but reads one item at least; what it did not read is
// returned.
func readTable(ctx context.Context, t pgx.Tx, g *group, want weir.Encoding, left int64) (*weir.TableBatch, []weir.Change, int64, error) {
	p := g.plan
	b := &weir.TableBatch{Capture: p.Capture, Encoding: weir.EncodingText, Items: g.items}
	binaryForm := want == Encoding
	if binaryForm {
		b.Encoding = Encoding
	}
	list := []string{"k.place"}
	formats := []int16{1}
	for i := range p.table.columns {
		c := &p.table.columns[i]
		b.Columns = append(b.Columns, c.Column)
		expr := "t." + ident(c.Name)
		format := int16(0)
		switch {
		case c.asText:
			expr += "::text"
		case c.oid == pgtype.BoolOID && !binaryForm:
			expr += "::text"
		}
		if binaryForm || c.oid == pgtype.ByteaOID {
			format = 1
		}
		list, formats = append(list, expr), append(formats, format)
	}
	var params, names, match []string
	args := make([][]byte, len(p.keyCols))
	oids := make([]uint32, len(p.keyCols))
	types := pgtype.NewMap()
	for i, c := range p.keyCols {
		column := make([]string, len(g.texts))
		for j := range g.texts {
			column[j] = g.texts[j][i]
		}
		enc, err := types.Encode(pgtype.TextArrayOID, pgtype.BinaryFormatCode, column, nil)
		if err != nil {
			return nil, nil, 0, err
		}
		args[i], oids[i] = enc, pgtype.TextArrayOID
		params, names = append(params, fmt.Sprintf("$%d", i+1)), append(names, fmt.Sprintf("k%d", i+1))
		match = append(match, fmt.Sprintf("t.%s = %s", ident(c.Name), c.fromKeyText(fmt.Sprintf("k.k%d", i+1))))
	}
	sql := fmt.Sprintf("select %s from unnest(%s) with ordinality as k (%s, place) join %s t on %s order by k.place",
		strings.Join(list, ", "), strings.Join(params, ", "), strings.Join(names, ", "), tableName(p.Table), strings.Join(match, " and "))
	argFormats := slices.Repeat([]int16{1}, len(args))

	var used int64
	stop := len(g.items)
	var arena arena
	rr := t.Conn().PgConn().ExecParams(ctx, sql, args, oids, argFormats, formats)
	for rr.NextRow() {
		values := rr.Values()
		place := int(binary.BigEndian.Uint64(values[0])) - 1
		if place >= stop {
			continue
		}
		row, n := arena.copy(values[1:])
		if left > 0 && used > 0 && used+n > left && len(b.Items[place].Rows) == 0 {
			stop = place
			continue
		}
		used += n
		b.Items[place].Rows = append(b.Items[place].Rows, row)
	}
	if _, err := rr.Close(); err != nil {
		return nil, nil, 0, err
	}
	var rest []weir.Change
	for _, it := range b.Items[stop:] {
		rest = append(rest, it.Change)
	}
	b.Items = b.Items[:stop]
	for i := range b.Items {
		for _, k := range b.Items[i].Key {
			used += int64(len(k))
		}
	}
	return b, rest, used, nil
}

func isDataError(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && strings.HasPrefix(pg.Code, "22")
}

// dropBadKeys takes out the items whose key text the column's type refuses, by
// halving, after an error since the savepoint "reading".
func (g *group) dropBadKeys(ctx context.Context, t pgx.Tx) ([]weir.ChangeFault, error) {
	p := g.plan
	var casts []string
	for i, c := range p.keyCols {
		casts = append(casts, "count("+c.fromKeyText(fmt.Sprintf("k.k%d", i+1))+")")
	}
	var faults []weir.ChangeFault
	bad := map[int]bool{}
	var check func(from, to int) error
	check = func(from, to int) error {
		if _, err := t.Exec(ctx, "rollback to savepoint reading"); err != nil {
			return err
		}
		var params, names []string
		var args []any
		for i := range p.keyCols {
			var column []string
			for _, texts := range g.texts[from:to] {
				column = append(column, texts[i])
			}
			args = append(args, column)
			params, names = append(params, fmt.Sprintf("$%d::text[]", i+1)), append(names, fmt.Sprintf("k%d", i+1))
		}
		_, err := t.Exec(ctx, fmt.Sprintf("select %s from unnest(%s) as k (%s)", strings.Join(casts, ", "), strings.Join(params, ", "), strings.Join(names, ", ")), args...)
		switch {
		case err == nil:
			return nil
		case !isDataError(err):
			return err
		case to-from == 1:
			bad[from] = true
			faults = append(faults, weir.ChangeFault{Change: g.items[from].Change, Err: &weir.RowError{
				Table: p.Table.String(), Key: g.items[from].Change.OldPrimaryKey, Err: err, Hint: "the key is no value of the key's type; weir queue list shows it"}})
			return nil
		}
		half := (from + to) / 2
		return errors.Join(check(from, half), check(half, to))
	}
	if err := check(0, len(g.items)); err != nil {
		return nil, err
	}
	var items []weir.Item
	var texts [][]string
	for i := range g.items {
		if !bad[i] {
			g.items[i].Rows = nil
			items, texts = append(items, g.items[i]), append(texts, g.texts[i])
		}
	}
	g.items, g.texts = items, texts
	_, err := t.Exec(ctx, "rollback to savepoint reading")
	return faults, err
}

// arena holds many small fields in few allocations.
type arena struct{ free []byte }

func (a *arena) copy(values [][]byte) (weir.Row, int64) {
	row := make(weir.Row, len(values))
	var n int64
	for i, v := range values {
		if v == nil {
			continue
		}
		if len(v) == 0 {
			row[i] = weir.Field{}
			continue
		}
		if len(v) > len(a.free) {
			a.free = make([]byte, max(64<<10, len(v)))
		}
		f := a.free[:len(v):len(v)]
		a.free = a.free[len(v):]
		copy(f, v)
		row[i] = f
		n += int64(len(v))
	}
	return row, n + int64(len(values)*24)
}
