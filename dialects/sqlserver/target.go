package sqlserver

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"text/template"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

// Target is a SQL Server database that receives.
type Target struct {
	db     *database
	opts   weir.TargetOptions
	schema string

	mu     sync.Mutex
	ledger weir.GUID
	known  map[string]*destination // by the source table's shape
}

var _ weir.Target = (*Target)(nil)

// OpenTarget prepares a pool for the target at url. It connects at the first
// call, so the server may be down. The tables go to opts.Schema, "dbo" when
// empty, which is made when it is missing.
func OpenTarget(_ context.Context, url string, opts weir.TargetOptions) (*Target, error) {
	if opts.Schema == "" {
		opts.Schema = DefaultSchema
	}
	if opts.Mode == "" {
		opts.Mode = weir.Mirror
	}
	if opts.NewColumns == "" {
		opts.NewColumns = weir.Evolve
	}
	db, err := open(url, weir.AtTarget, "weir target")
	if err != nil {
		return nil, err
	}
	return &Target{db: db, opts: opts, schema: opts.Schema, known: map[string]*destination{}}, nil
}

// Close frees the connections.
func (t *Target) Close() error { return t.db.Close() }

// Encoding implements [weir.Target]: a source of SQL Server gives its types, and
// a datetimeoffset's offset.
func (t *Target) Encoding() weir.Encoding { return Encoding }

func (t *Target) own(name string) string { return ident(t.schema) + "." + ident(name) }

// applySQL renders a file of sql/sqlserver/apply.
func (t *Target) applySQL(name string) (string, error) {
	text, err := fs.ReadFile(weirsql.FS, "sqlserver/apply/"+name+".sql")
	if err != nil {
		return "", err
	}
	parsed, err := template.New(name).Parse(string(text))
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, struct{ Schema, Ledger, Identity string }{
		ident(t.schema), literal(t.own("weir_ledger")), literal(t.own("weir_ledger_identity")),
	})
	return out.String(), err
}

// Ledger implements [weir.Target].
func (t *Target) Ledger(ctx context.Context) (weir.GUID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ledger.IsZero() {
		return t.ledger, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := t.db.tx(ctx, "open the ledger", weir.GUID{}, func(x *session) error {
		there, err := t.readLedger(ctx, x)
		if there || err != nil {
			return err
		}
		if err := alone(ctx, x, "weir ledger "+t.schema); err != nil {
			return err
		}
		if there, err := t.readLedger(ctx, x); there || err != nil {
			return err
		}
		if _, err := x.ExecContext(ctx, "IF SCHEMA_ID("+literal(t.schema)+") IS NULL EXEC("+literal("CREATE SCHEMA "+ident(t.schema))+")"); err != nil {
			return translate(err, weir.AtTarget, "create schema", t.schema)
		}
		text, err := t.applySQL("ledger")
		if err != nil {
			return err
		}
		if _, err := x.ExecContext(ctx, text); err != nil {
			return translate(err, weir.AtTarget, "create the ledger", t.schema)
		}
		if _, err := x.ExecContext(ctx, "INSERT INTO "+t.own("weir_ledger_identity")+" DEFAULT VALUES"); err != nil {
			return err
		}
		_, err = t.readLedger(ctx, x)
		return err
	})
	if err != nil {
		t.ledger = weir.GUID{}
	}
	return t.ledger, err
}

// readLedger finds the ledger's identity, if there is one.
func (t *Target) readLedger(ctx context.Context, x *session) (bool, error) {
	var id sql.NullInt64
	if err := x.QueryRowContext(ctx, "SELECT OBJECT_ID("+literal(t.own("weir_ledger_identity"))+", 'U')").Scan(&id); err != nil || !id.Valid {
		return false, err
	}
	var b []byte
	err := x.QueryRowContext(ctx, "SELECT ledger FROM "+t.own("weir_ledger_identity")).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil && len(b) == 16 {
		t.ledger = guidOf(b)
	}
	return err == nil, err
}

// alone makes the transaction the only one with this resource, or unavailable.
func alone(ctx context.Context, x *session, resource string) error {
	var r int
	if err := x.QueryRowContext(ctx, "DECLARE @r int; EXEC @r = sp_getapplock @Resource = @p1, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 5000; SELECT @r", cut(resource, 255)).Scan(&r); err != nil {
		return err
	}
	if r < 0 {
		return &weir.UnavailableError{Side: weir.AtTarget, Op: "lock " + resource, Err: fmt.Errorf("sp_getapplock returned %d", r)}
	}
	return nil
}

// Revoke implements [weir.Target].
func (t *Target) Revoke(ctx context.Context, pull weir.GUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := t.Ledger(ctx); err != nil {
		return false, err
	}
	var state string
	var err error
	err = t.deciding(ctx, "revoke", pull, func(x *session) error {
		var err error
		state, _, err = t.decide(ctx, x, pull, "revoked")
		return err
	})
	var u *weir.OutcomeUnknownError
	if errors.As(err, &u) {
		// Asking again is safe: the ledger keeps its first word.
		err = &weir.UnavailableError{Side: weir.AtTarget, Op: "revoke", Err: u.Err}
	}
	return state == "committed", err
}

// errDecided: another transaction decided the pull at the same moment; ask
// again.
var errDecided = errors.New("another transaction decided the pull")

// deciding runs a transaction that decides a pull, once more where another
// decided it at the same moment.
func (t *Target) deciding(ctx context.Context, op string, pull weir.GUID, f func(*session) error) error {
	err := t.db.tx(ctx, op, pull, f)
	if errors.Is(err, errDecided) {
		err = t.db.tx(ctx, op, pull, f)
	}
	return err
}

// decide enters the pull's state into the ledger (fresh), or returns the one that
// it has. It waits a moment for a transaction that is deciding the same pull.
func (t *Target) decide(ctx context.Context, x *session, pull weir.GUID, want string) (state string, fresh bool, err error) {
	if _, err := x.ExecContext(ctx, "SET LOCK_TIMEOUT 5000"); err != nil {
		return "", false, err
	}
	text, err := t.applySQL("decide")
	if err != nil {
		return "", false, err
	}
	result, err := x.ExecContext(ctx, text, pull.String(), want)
	if n := number(err); n == errUniqueKey || n == errUniqueIndex {
		return "", false, &weir.UnavailableError{Side: weir.AtTarget, Op: "decide", Err: errDecided}
	}
	if err != nil {
		return "", false, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return want, true, err
	}
	err = x.QueryRowContext(ctx, "SELECT state FROM "+t.own("weir_ledger")+" WHERE pull_guid = CONVERT(uniqueidentifier, @p1)", pull.String()).Scan(&state)
	return state, false, err
}

// Rows implements [weir.Target].
func (t *Target) Rows(ctx context.Context, captures []*weir.Capture) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	var total int64
	for _, c := range captures {
		d, err := describeTable(ctx, t.db, weir.Table{Schema: t.schema, Name: c.Table.Name})
		if err != nil {
			return 0, translate(err, weir.AtTarget, "count rows", c.Table.Name)
		}
		if d == nil {
			continue
		}
		where := "" // a table that was not made in this mode has no such column yet
		if ends := t.opts.Mode.EndColumn(); d.column(ends) != nil {
			where = " WHERE " + ident(ends) + " IS NULL"
		}
		var n int64
		if err := t.db.QueryRowContext(ctx, "SELECT COUNT_BIG(*) FROM "+tableName(d.Table)+where).Scan(&n); err != nil {
			return 0, translate(err, weir.AtTarget, "count rows", c.Table.Name)
		}
		total += n
	}
	return total, nil
}

// Ship implements [weir.Target].
func (t *Target) Ship(ctx context.Context, s weir.Shipment) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	if _, err := t.Ledger(ctx); err != nil {
		return err
	}
	dests, err := t.destinations(ctx, s.Batch)
	if err != nil {
		return err
	}
	for how, again := (way{}), true; again; {
		err = t.ship(ctx, s, dests, how)
		how, again = how.after(err)
	}
	if err != nil {
		t.forgetDestinations() // somebody may have changed the table
	}
	return err
}

func (t *Target) ship(ctx context.Context, s weir.Shipment, dests []*destination, how way) error {
	return t.deciding(ctx, "ship", s.PullGUID, func(x *session) error {
		state, fresh, err := t.decide(ctx, x, s.PullGUID, "committed")
		switch {
		case err != nil:
			return err
		case state == "revoked":
			return fmt.Errorf("ship pull %s: %w", s.PullGUID, weir.ErrRevoked)
		case !fresh:
			return nil // it was shipped before, whole
		}
		for _, g := range s.Forget {
			if _, err := x.ExecContext(ctx, "DELETE FROM "+t.own("weir_ledger")+" WHERE state = 'committed' AND pull_guid = CONVERT(uniqueidentifier, @p1)", g.String()); err != nil {
				return err
			}
		}
		a := application{tx: x, mode: t.opts.Mode, batch: s.Batch, dests: dests, way: how}
		return a.run(ctx)
	})
}

func (t *Target) forgetDestinations() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
}

// destinations makes or extends the batch's tables, each change in a
// transaction of its own, and returns how to write them.
func (t *Target) destinations(ctx context.Context, b *weir.Batch) ([]*destination, error) {
	out := make([]*destination, len(b.Tables))
	for i := range b.Tables {
		d, err := t.destination(ctx, &b.Tables[i])
		if err != nil {
			return nil, translate(err, weir.AtTarget, "prepare table", b.Tables[i].Capture.Table.Name)
		}
		out[i] = d
	}
	return out, nil
}

func (t *Target) destination(ctx context.Context, b *weir.TableBatch) (*destination, error) {
	if b.Encoding != Encoding && b.Encoding != weir.EncodingText {
		return nil, fmt.Errorf("the encoding %q is none that SQL Server reads", b.Encoding)
	}
	shape := fmt.Sprintf("%d %s %q %t %+v %q", b.Capture.ID, b.Capture.Table, b.Capture.RowKey, b.Capture.Set, b.Columns, b.Encoding)
	t.mu.Lock()
	d := t.known[shape]
	t.mu.Unlock()
	if d != nil {
		return d, nil
	}
	name := weir.Table{Schema: t.schema, Name: b.Capture.Table.Name}
	err := t.db.tx(ctx, "prepare table", weir.GUID{}, func(x *session) error {
		if _, err := x.ExecContext(ctx, "SET LOCK_TIMEOUT 5000"); err != nil {
			return err
		}
		if err := alone(ctx, x, "weir table "+name.String()); err != nil {
			return err
		}
		have, err := describeTable(ctx, x, name)
		if err != nil {
			return err
		}
		changes, err := t.alterations(have, name, b)
		if err != nil {
			return err
		}
		for _, text := range changes {
			if _, err := x.ExecContext(ctx, text); err != nil {
				return translate(err, weir.AtTarget, "prepare table", name.String())
			}
		}
		if len(changes) > 0 {
			if have, err = describeTable(ctx, x, name); err != nil {
				return err
			}
		}
		d, err = newDestination(ctx, x, have, b, t.opts.Mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[shape] = d
	return d, nil
}

// timeType is the type of the columns that weir adds.
const timeType = "datetimeoffset(7)"

// alterations are the statements that make the table, or give it the columns
// that it lacks.
func (t *Target) alterations(have *table, name weir.Table, b *weir.TableBatch) ([]string, error) {
	if units(name.Name) > maxName {
		return nil, &weir.ConfigError{Key: "target table " + name.String(), Hint: "a table name of at most 128 characters at the source"}
	}
	if err := t.opts.Mode.CheckNames(name, b.Columns); err != nil {
		return nil, err
	}
	extra := t.opts.Mode.OwnColumns()
	key := targetKey(b.Capture, t.opts.Mode)
	if have == nil {
		return createTable(name, b, key, extra), nil
	}
	if err := t.opts.Mode.CheckTable(name, func(c string) bool { return have.column(c) != nil }, b); err != nil {
		return nil, err
	}
	var out []string
	for _, c := range b.Columns {
		if have.column(c.Name) != nil {
			continue
		}
		switch t.opts.NewColumns {
		case weir.Fail:
			return nil, &weir.ConfigError{Key: "target table " + name.String(), Err: fmt.Errorf("the source has a column %q that it lacks", c.Name),
				Hint: "add the column, or set new_columns: evolve or ignore on the target"}
		case weir.Evolve:
			out = append(out, "ALTER TABLE "+tableName(name)+" ADD "+ident(c.Name)+" "+createType(c, b.Encoding)+" NULL")
		case weir.Ignore:
		}
	}
	for _, c := range extra {
		if have.column(c) == nil {
			out = append(out, "ALTER TABLE "+tableName(name)+" ADD "+ident(c)+" "+timeType+" NULL")
		}
	}
	return out, nil
}

func createTable(name weir.Table, b *weir.TableBatch, key, extra []string) []string {
	keys := keyTypes(key, b)
	var cols []string
	for _, c := range b.Columns {
		def := ident(c.Name) + " " + createType(c, b.Encoding) + " NULL"
		if typ, ok := keys[c.Name]; ok {
			def = ident(c.Name) + " " + typ + " NOT NULL"
		}
		cols = append(cols, def)
	}
	for _, c := range extra {
		null := " NULL"
		if c == weir.ValidFromColumn && len(key) > 0 {
			null = " NOT NULL"
		}
		cols = append(cols, ident(c)+" "+timeType+null)
	}
	if len(key) > 0 {
		cols = append(cols, "PRIMARY KEY ("+idents(key)+")")
	}
	out := []string{"CREATE TABLE " + tableName(name) + " (\n    " + strings.Join(cols, ",\n    ") + "\n)"}
	if b.Capture.Set {
		k := b.Capture.Key[0].Name
		for _, c := range b.Columns {
			if c.Name == k && len(key) == 0 && strings.Contains(createType(c, b.Encoding), "(max)") {
				return out // no index can be over it
			}
		}
		out = append(out, "CREATE INDEX "+ident(cut("weir_"+name.Name, maxName-6)+"_parent")+" ON "+tableName(name)+" ("+ident(k)+")")
	}
	return out
}

// targetKey is the primary key of a table that the target makes: the capture's
// key, with what tells a set's rows and a history's versions apart.
func targetKey(c *weir.Capture, mode weir.Mode) []string {
	var key []string
	for _, k := range c.Key {
		key = append(key, k.Name)
	}
	if c.Set {
		if len(c.RowKey) == 0 {
			return nil
		}
		for _, k := range c.RowKey {
			if k != key[0] {
				key = append(key, k)
			}
		}
	}
	if mode == weir.History {
		key = append(key, weir.ValidFromColumn)
	}
	return key
}
