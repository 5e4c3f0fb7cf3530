package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
)

// errMetadata: the snapshot is older than the table.
const errMetadata = 3961

// group is what one capture has to read.
type group struct {
	capture *registered
	plan    *plan
	items   []weir.Item
	texts   [][]string // the key columns' texts, by item
}

// Read implements [weir.Source]. Where the database allows it, it reads in one
// SNAPSHOT transaction begun after the claim was committed. Elsewhere it reads
// at READ COMMITTED, each row as it was committed last: a row that a user's
// transaction holds is waited for a moment, and is left for later then. It
// reads no dirty row, and skips none.
func (s *Source) Read(ctx context.Context, pull *weir.Pull, req weir.ReadRequest) (*weir.ReadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	if _, err := s.server(ctx); err != nil {
		return nil, err
	}
	conn, err := s.Conn(ctx)
	if err != nil {
		return nil, translate(err, weir.AtSource, "read", "")
	}
	defer conn.Close()
	var snapshots int
	if err := conn.QueryRowContext(ctx, "SELECT CONVERT(int, d.snapshot_isolation_state) FROM sys.databases d WHERE d.database_id = DB_ID()").Scan(&snapshots); err != nil {
		return nil, translate(err, weir.AtSource, "read", "")
	}
	if snapshots != 1 {
		res, err := s.read(ctx, conn, false, pull, req)
		return res, translate(err, weir.AtSource, "read", "")
	}
	if _, err := conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL SNAPSHOT"); err != nil {
		return nil, translate(err, weir.AtSource, "read", "")
	}
	t, end, err := begin(ctx, conn)
	if err != nil {
		discard(conn)
		return nil, translate(err, weir.AtSource, "read", "")
	}
	defer end()
	defer func() {
		t.rollback()
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
			discard(conn)
		}
	}()
	res, err := s.read(ctx, t, true, pull, req)
	if number(err) == errMetadata {
		return nil, &weir.UnavailableError{Side: weir.AtSource, Op: "read", Err: err}
	}
	return res, translate(err, weir.AtSource, "read", "")
}

func (s *Source) read(ctx context.Context, q queryer, snapshot bool, pull *weir.Pull, req weir.ReadRequest) (*weir.ReadResult, error) {
	list, err := s.registered(ctx, q)
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
	var stuck []weir.Change
	for _, id := range order {
		g := groups[id]
		if g.plan, err = s.planOf(ctx, q, g.capture); err != nil {
			return nil, err
		}
		out.Faults = append(out.Faults, g.splitKeys()...)
		halves, err := s.halfKeys(ctx, q, pull.Queue, g)
		if err != nil {
			return nil, translate(err, weir.AtSource, "read", g.capture.Table.String())
		}
		out.Faults = append(out.Faults, halves...)
		if len(g.items) == 0 {
			continue
		}
		if req.MaxBytes > 0 && left <= 0 {
			for _, it := range g.items {
				out.Rest = append(out.Rest, it.Change)
			}
			continue
		}
		r := &tableReader{s: s, q: q, g: g, left: left, encoding: weir.EncodingText, wait: !snapshot}
		if req.Encoding == Encoding {
			r.encoding = Encoding
		}
		if err := r.run(ctx); err != nil {
			return nil, translate(err, weir.AtSource, "read", g.capture.Table.String())
		}
		left -= r.bytes
		stuck = append(stuck, r.stuck...)
		out.Faults = append(out.Faults, r.faults...)
		out.Rest = append(out.Rest, r.rest...)
		out.Batch.Bytes += r.bytes
		if len(r.batch.Items) > 0 {
			out.Batch.Tables = append(out.Batch.Tables, r.batch)
		}
	}
	if len(stuck) == len(pull.Changes) {
		return nil, &weir.UnavailableError{Side: weir.AtSource, Op: "read", Err: errors.New("users' transactions hold every row of the batch")}
	}
	out.Rest = append(out.Rest, stuck...)
	return out, nil
}

// captureFor finds the capture of a change, whose type the database compares in
// any case.
func captureFor(list []registered, c weir.Change) int {
	return weir.Owner(c, len(list), func(i int) *weir.Capture { return &list[i].Capture }, strings.EqualFold)
}

// planOf reads a registered capture's table, and makes sure that it is the one
// that was captured.
func (s *Source) planOf(ctx context.Context, q queryer, c *registered) (*plan, error) {
	drift := func(why string) error {
		return &weir.DriftError{Object: c.Table.String(), Err: errors.New(why), Hint: "run weir triggers plan, then apply, then weir backfill " + c.Table.String()}
	}
	t, err := describeTable(ctx, q, c.Table)
	switch {
	case err != nil:
		return nil, translate(err, weir.AtSource, "describe", c.Table.String())
	case t == nil:
		return nil, drift("the captured table is gone, or renamed")
	case t.id != c.tableID:
		return nil, drift("the table is not the one that was captured: it was dropped and made again")
	}
	policy, err := s.filtered(ctx, q, t.id)
	if err != nil {
		return nil, err
	}
	if policy != "" {
		return nil, &weir.ConfigError{Key: c.Table.String(), Err: fmt.Errorf("the security policy %s filters its rows", policy),
			Hint: "a row that is hidden would be deleted at the target: take the filter predicate off, or the capture"}
	}
	p := &plan{Capture: &c.Capture, table: t}
	var key []string
	for i := range c.Key {
		col := t.column(c.Key[i].Name)
		if col == nil || col.Name != c.Key[i].Name {
			return nil, drift(fmt.Sprintf("key column %q is gone", c.Key[i].Name))
		}
		if col.Native != c.keyTypes[i] {
			return nil, drift(fmt.Sprintf("key column %q is now %s, it was %s", col.Name, col.Native, c.keyTypes[i]))
		}
		c.Key[i] = col.Column
		p.keyCols = append(p.keyCols, col)
		key = append(key, col.Name)
	}
	if c.Kind == weir.Plain && !slices.Equal(t.key, key) {
		return nil, drift("the table's key changed")
	}
	return p, nil
}

// tableReader reads the rows of one capture's items.
type tableReader struct {
	s        *Source
	q        queryer
	g        *group
	encoding weir.Encoding
	left     int64 // the bytes that may be used; 0: no bound
	wait     bool  // rows may be locked by users

	batch  weir.TableBatch
	bytes  int64
	rest   []weir.Change
	stuck  []weir.Change
	faults []weir.ChangeFault
	fails  int
}

// mostFails bounds how often one table's read waits for locks in vain.
const mostFails = 40

func (r *tableReader) run(ctx context.Context) error {
	p := r.g.plan
	r.batch = weir.TableBatch{Capture: p.Capture, Encoding: r.encoding}
	for i := range p.table.columns {
		r.batch.Columns = append(r.batch.Columns, p.table.columns[i].Column)
	}
	if err := r.slice(ctx, 0, len(r.g.items)); err != nil {
		return err
	}
	return r.halves(ctx)
}

// slice reads the items from..to-1; where a row is locked, in halves.
func (r *tableReader) slice(ctx context.Context, from, to int) error {
	changes := func() (out []weir.Change) {
		for _, it := range r.g.items[from:to] {
			out = append(out, it.Change)
		}
		return out
	}
	if r.left > 0 && r.bytes >= r.left && len(r.batch.Items) > 0 {
		r.rest = append(r.rest, changes()...)
		return nil
	}
	if r.fails >= mostFails {
		r.stuck = append(r.stuck, changes()...)
		return nil
	}
	err := r.query(ctx, from, to)
	if !r.wait || number(err) != errLockTimeout {
		return err
	}
	r.fails++
	if to-from == 1 {
		r.stuck = append(r.stuck, changes()...)
		return nil
	}
	half := (from + to) / 2
	if err := r.slice(ctx, from, half); err != nil {
		return err
	}
	return r.slice(ctx, half, to)
}

// query reads the items from..to-1 by one statement. Of what it found, the
// items that no longer fit go to rest.
func (r *tableReader) query(ctx context.Context, from, to int) error {
	p := r.g.plan
	var places []int
	for i := from; i < to; i++ {
		places = append(places, i)
	}
	text, keys := r.given(places)
	var list []string
	for i, c := range p.keyCols {
		list = append(list, c.readExpr(fmt.Sprintf("k.K%d", i+1)))
	}
	for i := range p.table.columns {
		list = append(list, p.table.columns[i].readExpr("t."+ident(p.table.columns[i].Name)))
	}
	text += fmt.Sprintf("SELECT k.Place, CASE WHEN t.%s IS NULL THEN 0 ELSE 1 END, %s FROM #GI_Read k LEFT JOIN %s t ON %s ORDER BY k.Place",
		ident(p.keyCols[0].Name), strings.Join(list, ", "), tableName(p.Table), p.keyMatch("t", "k"))
	// A key that is unique has an index, which is sought. A set's column may have
	// none.
	if !p.Set {
		text += " OPTION (LOOP JOIN)"
	}
	rows, err := r.q.QueryContext(ctx, text, sql.Named("keys", mssql.TVP{TypeName: r.s.schema + ".GI_Keys", Value: keys}))
	if err != nil {
		return err
	}
	defer rows.Close()
	fields := make([]any, len(list))
	var place, present int
	dest := []any{&place, &present}
	for i := range fields {
		dest = append(dest, &fields[i])
	}
	found := make([]weir.Item, 0, to-from)
	var faults []weir.ChangeFault
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		change := r.g.items[place].Change
		if n := len(found); n > 0 && found[n-1].Change.InstanceGUID == change.InstanceGUID && found[n-1].Change.ChangeType == change.ChangeType {
			row, err := r.fields(fields)
			if err != nil {
				return err
			}
			found[n-1].Rows = append(found[n-1].Rows, row)
			continue
		}
		it := weir.Item{Change: change}
		for i, c := range p.keyCols {
			if fields[i] == nil {
				faults = append(faults, badKey(p, change, fmt.Errorf("%q is no %s", r.g.texts[place][i], c.Native)))
				it.Key = nil
				break
			}
			f, err := c.field(fields[i], weir.EncodingText)
			if err != nil {
				return err
			}
			it.Key = append(it.Key, f)
		}
		if it.Key == nil {
			continue
		}
		if present == 1 {
			row, err := r.fields(fields)
			if err != nil {
				return err
			}
			it.Rows = []weir.Row{row}
		}
		found = append(found, it)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	r.faults = append(r.faults, faults...)
	for _, it := range found {
		n := int64(0)
		for _, k := range it.Key {
			n += int64(len(k))
		}
		for _, row := range it.Rows {
			n += int64(len(row) * 24)
			for _, f := range row {
				n += int64(len(f))
			}
		}
		if r.left > 0 && r.bytes > 0 && r.bytes+n > r.left {
			r.rest = append(r.rest, it.Change)
			continue
		}
		r.bytes += n
		r.batch.Items = append(r.batch.Items, it)
	}
	return nil
}

// fields are a row's, behind the decoded key.
func (r *tableReader) fields(values []any) (weir.Row, error) {
	p := r.g.plan
	row := make(weir.Row, len(p.table.columns))
	for i := range row {
		f, err := p.table.columns[i].field(values[len(p.keyCols)+i], r.encoding)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", p.table.columns[i].Name, err)
		}
		row[i] = f
	}
	return row, nil
}
