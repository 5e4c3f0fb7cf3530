package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

// routines are installed whole at each Init, after the migrations: a file is
// the truth of each. A routine that another calls comes first.
var routines = []string{
	"assert_read_committed", "create_queue", "live_pull", "queues_of", "fold_slice", "fold", "gi_instance_changed",
	"claim", "settle", "release", "postpone", "extend", "expired",
}

// Init creates or upgrades weir's tables (golang-migrate, versions in the
// schema's schema_migrations) and replaces its routines, and returns the
// schema's version. It may be called again; an interrupted migration rolled
// back, and is tried again.
func (s *Source) Init(ctx context.Context) (uint, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	if _, err := s.pool.Exec(ctx, "create schema if not exists "+ident(s.schema)); err != nil {
		return 0, translate(err, weir.AtSource, "init", s.schema)
	}
	version, err := s.migrate(ctx, up)
	if err != nil {
		return version, err
	}
	return version, tx(ctx, s.pool, readCommitted, weir.AtSource, "init", weir.GUID{}, func(t pgx.Tx) error {
		for _, name := range routines {
			text, err := s.routine(name)
			if err != nil {
				return err
			}
			if _, err := t.Exec(ctx, text); err != nil {
				return s.routineError(name, err)
			}
		}
		// Routines that queues carry of their own, for those that exist already.
		if _, err := t.Exec(ctx, "select "+ident(s.schema)+".create_queue(q.name) from "+ident(s.schema)+".queues q order by q.name"); err != nil {
			return err
		}
		_, err := t.Exec(ctx, "revoke all on all functions in schema "+ident(s.schema)+" from public")
		return err
	})
}

// up applies what is new, one at a time: Up reads the next one ahead, and leaves
// a goroutine behind where the one before it fails.
func up(m *migrate.Migrate) error {
	for {
		if err := m.Steps(1); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// routineError says what stands in a routine's way. Nothing of weir's leaves a
// function of that name with another result behind.
func (s *Source) routineError(name string, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.HasPrefix(pg.Code, "42") {
		return fmt.Errorf("install routine %s: %w", name, err)
	}
	h := "drop or rename what the message names and run weir init again; the routines before are in place"
	if pg.Code == "42501" {
		h = "run weir init as the role that ran it first, or make the role that weir connects as a member of it"
	}
	return &weir.ConfigError{Key: "source", Err: fmt.Errorf("install routine %s.%s: %w", ident(s.schema), name, err), Hint: h}
}

// Down removes weir's schema with all that is in it: queue, ledger of pulls and
// registry. Captures must have been dropped before.
func (s *Source) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	var left int
	if err := s.pool.QueryRow(ctx, "select count(*) from "+s.own("captures")).Scan(&left); err != nil {
		return translate(err, weir.AtSource, "init --down", "")
	}
	if left > 0 {
		return &weir.ConfigError{Key: "source", Err: fmt.Errorf("%d captures are installed", left), Hint: "run weir triggers drop first"}
	}
	if _, err := s.pool.Exec(ctx, "select "+s.own("assert_read_committed")+"('init --down')"); err != nil {
		return translate(err, weir.AtSource, "init --down", "")
	}
	// The versions table goes with the schema; the down migrations are for those
	// who run golang-migrate themselves.
	_, err := s.pool.Exec(ctx, "drop schema "+ident(s.schema)+" cascade")
	return translate(err, weir.AtSource, "init --down", s.schema)
}

func (s *Source) migrate(ctx context.Context, step func(*migrate.Migrate) error) (uint, error) {
	files, err := fs.Sub(weirsql.FS, "postgres/migrations")
	if err != nil {
		return 0, err
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		return 0, fmt.Errorf("init: %w", err)
	}
	cfg := s.pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams["search_path"] = pgx.Identifier{s.schema}.Sanitize()
	cfg.RuntimeParams["lock_timeout"] = "10s" // migrate's driver has no context
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	driver, err := migratepgx.WithInstance(db, &migratepgx.Config{
		SchemaName: s.schema, MigrationsTable: "schema_migrations", StatementTimeout: bulkTimeout,
	})
	if err != nil {
		return 0, translate(migrateCause(err), weir.AtSource, "init", "")
	}
	m, err := migrate.NewWithInstance("iofs", source, "postgres", driver)
	if err != nil {
		return 0, fmt.Errorf("init: %w", err)
	}
	m.LockTimeout = 30 * time.Second
	defer m.Close()
	// Each migration is one implicit transaction: a dirty version did not happen.
	if err := clean(m); err != nil {
		return 0, translate(migrateCause(err), weir.AtSource, "init", "")
	}
	if err := step(m); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		v, _, _ := m.Version()
		if cerr := clean(m); cerr != nil {
			err = errors.Join(err, cerr)
		}
		cause := translate(migrateCause(err), weir.AtSource, "init", s.schema)
		var u *weir.UnavailableError
		if errors.As(cause, &u) {
			return 0, cause
		}
		return 0, &weir.ConfigError{
			Key: "source", Err: fmt.Errorf("migration %d of weir's schema %q failed and was rolled back: %w", v, s.schema, cause),
			Hint: "put right what the message names and run weir init again; the version before it is in place",
		}
	}
	v, _, err := m.Version()
	if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
		return 0, translate(migrateCause(err), weir.AtSource, "init", "")
	}
	return v, nil
}

// clean sets a version whose migration did not end back to the one before.
func clean(m *migrate.Migrate) error {
	v, dirty, err := m.Version()
	if err != nil || !dirty {
		return nil
	}
	back := int(v) - 1
	if back <= 0 {
		back = database.NilVersion
	}
	return m.Force(back)
}

// migrateCause reaches the driver's error, which golang-migrate's own type hides
// (it has no Unwrap, and comes as a value and as a pointer).
func migrateCause(err error) error {
	var p *database.Error
	var v database.Error
	switch {
	case errors.As(err, &p) && p.OrigErr != nil:
		return p.OrigErr
	case errors.As(err, &v) && v.OrigErr != nil:
		return v.OrigErr
	}
	return err
}

func (s *Source) routine(name string) (string, error) {
	return render("postgres/queue/"+name+".sql", struct{ Schema, SchemaLiteral string }{
		ident(s.schema), literal(s.schema),
	})
}

// render executes a template of weirsql; a placeholder without a value is an
// error.
func render(path string, data any) (string, error) {
	return renderPart(path, "", data)
}

// renderPart executes one named definition of a file, or all of it.
func renderPart(path, part string, data any) (string, error) {
	text, err := fs.ReadFile(weirsql.FS, path)
	if err != nil {
		return "", fmt.Errorf("render %s: %w", path, err)
	}
	t, err := template.New(path).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return "", fmt.Errorf("render %s: %w", path, err)
	}
	var b bytes.Buffer
	if part == "" {
		part = path
	}
	if err := t.ExecuteTemplate(&b, part, data); err != nil {
		return "", fmt.Errorf("render %s: %w", path, err)
	}
	return b.String(), nil
}
