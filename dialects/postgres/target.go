package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-cdc/weir"
)

// Target is a PostgreSQL database that receives.
type Target struct {
	pool   *pgxpool.Pool
	opts   weir.TargetOptions
	schema string

	mu     sync.Mutex
	ledger weir.GUID
	known  map[string]*destination // by the source table's shape
}

var _ weir.Target = (*Target)(nil)

// OpenTarget prepares a pool for the target at url. It connects at the first
// call, so the server may be down. The tables go to opts.Schema, "public" when
// empty, which is made when it is missing.
func OpenTarget(ctx context.Context, url string, opts weir.TargetOptions) (*Target, error) {
	if opts.Schema == "" {
		opts.Schema = "public"
	}
	if opts.Mode == "" {
		opts.Mode = weir.Mirror
	}
	if opts.NewColumns == "" {
		opts.NewColumns = weir.Evolve
	}
	pool, err := open(ctx, url, weir.AtTarget, "weir target")
	if err != nil {
		return nil, err
	}
	return &Target{pool: pool, opts: opts, schema: opts.Schema, known: map[string]*destination{}}, nil
}

// Close waits for the connections in use, and frees all.
func (t *Target) Close() error {
	t.pool.Close()
	return nil
}

// Encoding implements [weir.Target]: rows of another PostgreSQL pass undecoded.
func (t *Target) Encoding() weir.Encoding { return Encoding }

func (t *Target) own(name string) string { return ident(t.schema) + "." + ident(name) }

// Ledger implements [weir.Target].
func (t *Target) Ledger(ctx context.Context) (weir.GUID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ledger.IsZero() {
		return t.ledger, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var ledger [16]byte
	err := tx(ctx, t.pool, readCommitted, weir.AtTarget, "open the ledger", weir.GUID{}, func(x pgx.Tx) error {
		var schema, table bool
		if err := x.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1), "+
			"exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'weir_ledger_identity')", t.schema).Scan(&schema, &table); err != nil {
			return err
		}
		if !table {
			if _, err := x.Exec(ctx, "select pg_advisory_xact_lock(hashtext($1))", "weir ledger "+t.schema); err != nil {
				return err
			}
			if !schema {
				if _, err := x.Exec(ctx, "create schema if not exists "+ident(t.schema)); err != nil {
					return translate(err, weir.AtTarget, "create schema", t.schema)
				}
			}
			text, err := render("postgres/apply/ledger.sql", struct{ Schema string }{ident(t.schema)})
			if err != nil {
				return err
			}
			if _, err := x.Conn().PgConn().Exec(ctx, text).ReadAll(); err != nil {
				return translate(err, weir.AtTarget, "create the ledger", t.schema)
			}
		}
		return x.QueryRow(ctx, "select ledger from "+t.own("weir_ledger_identity")).Scan(&ledger)
	})
	if err != nil {
		return weir.GUID{}, err
	}
	t.ledger = ledger
	return t.ledger, nil
}

// Revoke implements [weir.Target].
func (t *Target) Revoke(ctx context.Context, pull weir.GUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := t.Ledger(ctx); err != nil {
		return false, err
	}
	var state string
	err := tx(ctx, t.pool, readCommitted, weir.AtTarget, "revoke", pull, func(x pgx.Tx) error {
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

// decide enters the pull's state into the ledger (fresh), or returns the one that
// it has. It waits a moment for a transaction that is deciding the same pull.
func (t *Target) decide(ctx context.Context, x pgx.Tx, pull weir.GUID, want string) (state string, fresh bool, err error) {
	if _, err := x.Exec(ctx, "set local lock_timeout = '5s'"); err != nil {
		return "", false, err
	}
	tag, err := x.Exec(ctx, "insert into "+t.own("weir_ledger")+" (pull_guid, state) values ($1::text::uuid, $2) on conflict do nothing", pull.String(), want)
	if err != nil {
		return "", false, err
	}
	if tag.RowsAffected() == 1 {
		return want, true, nil
	}
	err = x.QueryRow(ctx, "select state from "+t.own("weir_ledger")+" where pull_guid = $1::text::uuid", pull.String()).Scan(&state)
	return state, false, err
}

// Rows implements [weir.Target].
func (t *Target) Rows(ctx context.Context, captures []*weir.Capture) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	var total int64
	for _, c := range captures {
		d, err := describeTable(ctx, t.pool, weir.Table{Schema: t.schema, Name: c.Table.Name})
		if err != nil {
			return 0, translate(err, weir.AtTarget, "count rows", c.Table.Name)
		}
		if d == nil {
			continue
		}
		where := "" // a table that was not made in this mode has no such column yet
		if ends := t.opts.Mode.EndColumn(); d.column(ends) != nil {
			where = " where " + ident(ends) + " is null"
		}
		var n int64
		if err := t.pool.QueryRow(ctx, "select count(*) from "+tableName(d.Table)+where).Scan(&n); err != nil {
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
	return tx(ctx, t.pool, readCommitted, weir.AtTarget, "ship", s.PullGUID, func(x pgx.Tx) error {
		state, fresh, err := t.decide(ctx, x, s.PullGUID, "committed")
		switch {
		case err != nil:
			return err
		case state == "revoked":
			return fmt.Errorf("ship pull %s: %w", s.PullGUID, weir.ErrRevoked)
		case !fresh:
			return nil // it was shipped before, whole
		}
		if len(s.Forget) > 0 {
			if _, err := x.Exec(ctx, "delete from "+t.own("weir_ledger")+" where state = 'committed' and pull_guid = any ($1::text[]::uuid[])", guidTexts(s.Forget)); err != nil {
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
	shape := fmt.Sprintf("%d %s %q %t %+v %q", b.Capture.ID, b.Capture.Table, b.Capture.RowKey, b.Capture.Set, b.Columns, b.Encoding)
	t.mu.Lock()
	d := t.known[shape]
	t.mu.Unlock()
	if d != nil {
		return d, nil
	}
	name := weir.Table{Schema: t.schema, Name: b.Capture.Table.Name}
	err := tx(ctx, t.pool, readCommitted, weir.AtTarget, "prepare table", weir.GUID{}, func(x pgx.Tx) error {
		if _, err := x.Exec(ctx, "set local lock_timeout = '5s'"); err != nil {
			return err
		}
		if _, err := x.Exec(ctx, "select pg_advisory_xact_lock(hashtext($1))", "weir table "+name.String()); err != nil {
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
		for _, sql := range changes {
			if _, err := x.Exec(ctx, sql); err != nil {
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

// alterations are the statements that make the table, or give it the columns
// that it lacks.
func (t *Target) alterations(have *table, name weir.Table, b *weir.TableBatch) ([]string, error) {
	if len(name.Name) > maxName {
		return nil, &weir.ConfigError{Key: "target table " + name.String(), Hint: "a table name of at most 63 bytes at the source"}
	}
	if err := t.opts.Mode.CheckNames(name, b.Columns); err != nil {
		return nil, err
	}
	extra := t.opts.Mode.OwnColumns()
	key := targetKey(b.Capture, t.opts.Mode)
	if have == nil {
		var cols []string
		for _, c := range b.Columns {
			def := ident(c.Name) + " " + createType(c, b.Encoding)
			for _, k := range key {
				if k == c.Name {
					def += " not null"
				}
			}
			cols = append(cols, def)
		}
		for _, c := range extra {
			cols = append(cols, ident(c)+" timestamptz")
		}
		if len(key) > 0 {
			cols = append(cols, "primary key ("+idents(key)+")")
		}
		sql := []string{"create table " + tableName(name) + " (\n    " + strings.Join(cols, ",\n    ") + "\n)"}
		if b.Capture.Set {
			sql = append(sql, "create index on "+tableName(name)+" ("+ident(b.Capture.Key[0].Name)+")")
		}
		return sql, nil
	}
	if err := t.opts.Mode.CheckTable(name, func(c string) bool { return have.column(c) != nil }, b); err != nil {
		return nil, err
	}
	var sql []string
	for _, c := range b.Columns {
		if have.column(c.Name) != nil {
			continue
		}
		switch t.opts.NewColumns {
		case weir.Fail:
			return nil, &weir.ConfigError{Key: "target table " + name.String(), Err: fmt.Errorf("the source has a column %q that it lacks", c.Name),
				Hint: "add the column, or set new_columns: evolve or ignore on the target"}
		case weir.Evolve:
			sql = append(sql, "alter table "+tableName(name)+" add column "+ident(c.Name)+" "+createType(c, b.Encoding))
		case weir.Ignore:
		}
	}
	for _, c := range extra {
		if have.column(c) == nil {
			sql = append(sql, "alter table "+tableName(name)+" add column "+ident(c)+" timestamptz")
		}
	}
	return sql, nil
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

// createType is the type of a column that the target makes. A PostgreSQL
// source's type is kept; another engine's limits are not, since it may not have
// kept them itself. The name is the catalog's own, to which it is compared.
func createType(c weir.Column, e weir.Encoding) string {
	if e == Encoding {
		return c.Native
	}
	switch c.Kind {
	case weir.Bool:
		return "boolean"
	case weir.Int16:
		return "smallint"
	case weir.Int32:
		return "integer"
	case weir.Int64:
		return "bigint"
	case weir.Float32:
		return "real"
	case weir.Float64:
		return "double precision"
	case weir.Decimal:
		return "numeric"
	case weir.Bytes:
		return "bytea"
	case weir.UUID:
		return "uuid"
	case weir.Date:
		return "date"
	case weir.Time:
		return "time without time zone"
	case weir.TimeTZ:
		return "time with time zone"
	case weir.Timestamp:
		return "timestamp without time zone"
	case weir.TimestampTZ:
		return "timestamp with time zone"
	case weir.JSON:
		return "json"
	case weir.XML:
		return "xml"
	case weir.Text, weir.Any, weir.Other:
	}
	return "text"
}
