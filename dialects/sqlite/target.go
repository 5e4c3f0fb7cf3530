package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

// Target is an SQLite database that receives.
type Target struct {
	db   *database
	opts weir.TargetOptions

	mu     sync.Mutex
	ledger weir.GUID
}

var _ weir.Target = (*Target)(nil)

// OpenTarget prepares the target at url, in the forms of [OpenSource]. The file
// is made at the first call when it is missing. A schema other than main is a
// [*weir.ConfigError].
func OpenTarget(ctx context.Context, url string, opts weir.TargetOptions) (*Target, error) {
	if opts.Schema != "" && !equalNames(opts.Schema, "main") {
		return nil, &weir.ConfigError{Key: "target.schema", Err: fmt.Errorf("SQLite has no schema %q", opts.Schema), Hint: "leave it out"}
	}
	if opts.Mode == "" {
		opts.Mode = weir.Mirror
	}
	if opts.NewColumns == "" {
		opts.NewColumns = weir.Evolve
	}
	db, err := open(url, weir.AtTarget, true)
	if err != nil {
		return nil, err
	}
	return &Target{db: db, opts: opts}, nil
}

// Close waits for the calls under way, and frees the connections.
func (t *Target) Close() error { return t.db.Close() }

// Encoding implements [weir.Target]: values of another SQLite keep their storage
// class.
func (t *Target) Encoding() weir.Encoding { return Encoding }

// Ledger implements [weir.Target]. It is read each time: a file that was put in
// the place of the one that this Target knows is a [*weir.ConfigError].
func (t *Target) Ledger(ctx context.Context) (weir.GUID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ledger := ""
	err := t.db.read(ctx, "open the ledger", func(ctx context.Context, c *session) error {
		var there bool
		if err := c.QueryRowContext(ctx, "select exists (select 1 from sqlite_schema where name = 'weir_ledger_identity')").Scan(&there); err != nil || !there {
			return err
		}
		err := c.QueryRowContext(ctx, "select ledger from weir_ledger_identity").Scan(&ledger)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err == nil && ledger == "" && t.ledger.IsZero() {
		ledger, err = t.makeLedger(ctx)
	}
	if err != nil {
		return weir.GUID{}, err
	}
	id := weir.GUID{}
	if ledger != "" {
		if id, err = weir.ParseGUID(ledger); err != nil {
			return weir.GUID{}, fmt.Errorf("open the ledger: %w", err)
		}
	}
	if !t.ledger.IsZero() && id != t.ledger {
		return weir.GUID{}, &weir.ConfigError{Key: "target.url", Err: fmt.Errorf("%s is another database than before: its ledger was %s", t.db.path, t.ledger),
			Hint: "bring the target's file back; or, if that target is gone, start again and release its pulls (weir queue release --force)"}
	}
	t.ledger = id
	return id, t.db.look("open the ledger")
}

func (t *Target) makeLedger(ctx context.Context) (string, error) {
	text, err := weirsql.FS.ReadFile("sqlite/apply/ledger.sql")
	if err != nil {
		return "", err
	}
	var ledger string
	err = t.db.write(ctx, "open the ledger", weir.GUID{}, func(ctx context.Context, c *session) error {
		if _, err := c.ExecContext(ctx, string(text)); err != nil {
			return err
		}
		if _, err := c.ExecContext(ctx, "insert into weir_ledger_identity (one, ledger) values (1, ?) on conflict do nothing", weir.NewGUID().String()); err != nil {
			return err
		}
		return c.QueryRowContext(ctx, "select ledger from weir_ledger_identity").Scan(&ledger)
	})
	return ledger, err
}

// Revoke implements [weir.Target].
func (t *Target) Revoke(ctx context.Context, pull weir.GUID) (bool, error) {
	if _, err := t.Ledger(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var state string
	err := t.db.write(ctx, "revoke", pull, func(ctx context.Context, c *session) error {
		var err error
		state, _, err = decide(ctx, c, pull, "revoked")
		return err
	})
	var u *weir.OutcomeUnknownError
	if errors.As(err, &u) {
		// Asking again is safe: the ledger keeps its first word.
		err = &weir.UnavailableError{Side: weir.AtTarget, Op: "revoke", Err: u.Err}
	}
	return state == "committed", err
}

// decide enters the pull's state into the ledger, or returns the one that it
// has. It runs under the write lock, so no other decision is under way.
func decide(ctx context.Context, c *session, pull weir.GUID, state string) (decided string, fresh bool, err error) {
	res, err := c.ExecContext(ctx, "insert into weir_ledger (pull_guid, state, decided_on) values (?, ?, "+now+") on conflict do nothing", pull.String(), state)
	if err != nil {
		return "", false, err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 1 {
		return state, true, err
	}
	err = c.QueryRowContext(ctx, "select state from weir_ledger where pull_guid = ?", pull.String()).Scan(&decided)
	return decided, false, err
}

// Rows implements [weir.Target].
func (t *Target) Rows(ctx context.Context, captures []*weir.Capture) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	var total int64
	err := t.db.read(ctx, "count rows", func(ctx context.Context, c *session) error {
		for _, cp := range captures {
			have, err := describe(ctx, c, cp.Table.Name)
			if err != nil {
				return err
			}
			if have == nil {
				continue
			}
			where := "" // a table that was not made in this mode has no such column yet
			if ends := t.opts.Mode.EndColumn(); have.column(ends) != nil {
				where = " where " + ident(ends) + " is null"
			}
			var n int64
			if err := c.QueryRowContext(ctx, "select count(*) from "+ident(have.name)+where).Scan(&n); err != nil {
				return interpretError(err, weir.AtTarget, "count rows", have.name)
			}
			total += n
		}
		return nil
	})
	return total, err
}

// Ship implements [weir.Target].
func (t *Target) Ship(ctx context.Context, s weir.Shipment) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	if _, err := t.Ledger(ctx); err != nil {
		return err
	}
	err := t.ship(ctx, s, false)
	var r *weir.RowError
	if errors.As(err, &r) && isUnique(r) {
		// Rows of the batch may have changed their unique values among them.
		err = t.ship(ctx, s, true)
	}
	if others, ok := constraintFault(err); ok && others && len(s.Batch.Tables) > 0 && !errors.As(err, &r) {
		// A deferred foreign key speaks at the commit.
		err = rowErrorOf(err, s.Batch.Tables[0].Capture.Table.Name, true)
	}
	return err
}

func (t *Target) ship(ctx context.Context, s weir.Shipment, replace bool) error {
	c, err := t.db.connect(ctx, "ship")
	if err != nil {
		return err
	}
	defer c.Close()
	return c.write(ctx, weir.AtTarget, "ship", s.PullGUID, func(ctx context.Context, c *session) error {
		state, fresh, err := decide(ctx, c, s.PullGUID, "committed")
		switch {
		case err != nil:
			return err
		case state == "revoked":
			return fmt.Errorf("ship pull %s: %w", s.PullGUID, weir.ErrRevoked)
		case !fresh:
			return nil // done before; the ledger's row is the proof
		}
		for part := range slices.Chunk(s.Forget, 500) {
			args := make([]any, len(part))
			for i, g := range part {
				args[i] = g.String()
			}
			if _, err := c.ExecContext(ctx, "delete from weir_ledger where state = 'committed' and pull_guid in (?"+strings.Repeat(", ?", len(part)-1)+")", args...); err != nil {
				return err
			}
		}
		a, err := t.prepare(ctx, c, s.Batch)
		if err != nil {
			return err
		}
		a.replace = replace
		return a.run(ctx)
	})
}

// prepare makes or extends the batch's tables, in the caller's transaction.
func (t *Target) prepare(ctx context.Context, c *session, b *weir.Batch) (*application, error) {
	a := &application{c: c, mode: t.opts.Mode, batch: b}
	if _, err := c.ExecContext(ctx, "pragma defer_foreign_keys = on"); err != nil {
		return nil, err
	}
	if err := c.QueryRowContext(ctx, "select "+now).Scan(&a.now); err != nil {
		return nil, err
	}
	for i := range b.Tables {
		d, err := t.destination(ctx, c, &b.Tables[i])
		if err != nil {
			return nil, interpretError(err, weir.AtTarget, "prepare table", b.Tables[i].Capture.Table.Name)
		}
		a.dests = append(a.dests, d)
	}
	return a, nil
}

func (t *Target) destination(ctx context.Context, c *session, b *weir.TableBatch) (*destination, error) {
	name := b.Capture.Table.Name
	have, err := describe(ctx, c, name)
	if err != nil {
		return nil, err
	}
	changes, err := t.alterations(have, name, b)
	if err != nil {
		return nil, err
	}
	for _, text := range changes {
		if _, err := c.ExecContext(ctx, text); err != nil {
			return nil, err
		}
	}
	if len(changes) > 0 {
		if have, err = describe(ctx, c, name); err != nil {
			return nil, err
		}
	}
	return newDestination(ctx, c, have, b, t.opts.Mode)
}

// alterations are the statements that make the table, or give it the columns
// that it lacks. The times that weir adds are text, as a timestamptz is.
func (t *Target) alterations(have *table, name string, b *weir.TableBatch) ([]string, error) {
	if strings.HasPrefix(lowerASCII(name), "weir_") || strings.HasPrefix(lowerASCII(name), "sqlite_") {
		return nil, &weir.ConfigError{Key: "target table " + name, Err: errors.New("names that begin with weir_ or sqlite_ are taken"), Hint: "rename the table at the source, or leave it out of the pull's captures"}
	}
	if err := t.opts.Mode.CheckNames(weir.Table{Name: name}, b.Columns); err != nil {
		return nil, err
	}
	extra := t.opts.Mode.OwnColumns()
	declare := func(c weir.Column) string {
		typ := createType(c.Kind)
		if b.Encoding == Encoding {
			typ = c.Native
		}
		return strings.TrimSpace(ident(c.Name) + " " + typ)
	}
	key := targetKey(b.Capture, t.opts.Mode)
	if have == nil {
		var cols []string
		for _, c := range b.Columns {
			def := declare(c)
			if slices.ContainsFunc(key, func(k string) bool { return equalNames(k, c.Name) }) {
				def += " not null"
			}
			cols = append(cols, def)
		}
		for _, c := range extra {
			cols = append(cols, ident(c)+" TIMESTAMPTZ")
		}
		if len(key) > 0 {
			cols = append(cols, "primary key ("+idents(key)+")")
		}
		text := []string{"create table " + ident(name) + " (\n    " + strings.Join(cols, ",\n    ") + "\n)"}
		if b.Capture.Set {
			text = append(text, "create index "+ident(name+"_weir_set")+" on "+ident(name)+" ("+ident(b.Capture.Key[0].Name)+")")
		}
		return text, nil
	}
	if err := t.opts.Mode.CheckTable(weir.Table{Name: have.name}, func(c string) bool { return have.column(c) != nil }, b); err != nil {
		return nil, err
	}
	var text []string
	for _, c := range b.Columns {
		if have.column(c.Name) != nil {
			continue
		}
		switch t.opts.NewColumns {
		case weir.Fail:
			return nil, &weir.ConfigError{Key: "target table " + name, Err: fmt.Errorf("the source has a column %q that it lacks", c.Name),
				Hint: "add the column, or set new_columns: evolve or ignore on the target"}
		case weir.Evolve:
			text = append(text, "alter table "+ident(have.name)+" add column "+declare(c))
		case weir.Ignore:
		}
	}
	for _, c := range extra {
		if have.column(c) == nil {
			text = append(text, "alter table "+ident(have.name)+" add column "+ident(c)+" TIMESTAMPTZ")
		}
	}
	return text, nil
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
			if !equalNames(k, key[0]) {
				key = append(key, k)
			}
		}
	}
	if mode == weir.History {
		key = append(key, weir.ValidFromColumn)
	}
	return key
}

// stamp is a time as the columns that weir adds hold it.
func stamp(micros int64) string {
	return timeOf(micros).Format("2006-01-02 15:04:05.000000") + "+00"
}

func parseStamp(s string) (int64, error) {
	t, err := time.Parse("2006-01-02 15:04:05.999999-07", s)
	return t.UnixMicro(), err
}
