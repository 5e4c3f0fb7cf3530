package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

const migrationsTable = "weir_schema_migrations"

// Init creates or upgrades weir's tables with golang-migrate, replaces the view
// weir_gi_instance_changed, and returns the version of the tables. It may be
// called again; a migration that was interrupted is run again.
func (s *Source) Init(ctx context.Context) (uint, error) {
	files, err := fs.Sub(weirsql.FS, "sqlite/migrations")
	if err != nil {
		return 0, err
	}
	version, err := s.migrate(ctx, files, func(m *migrate.Migrate) error { return m.Up() })
	if err != nil {
		return version, err
	}
	text, err := render("queue/gi_instance_changed.sql", struct {
		Instance, Concept guidSQL
		Now               string
	}{guidOf("new.instance_guid"), guidOf("new.concept_guid"), tagTime})
	if err != nil {
		return version, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return version, s.db.write(ctx, "init", weir.GUID{}, func(ctx context.Context, c *session) error {
		_, err := c.ExecContext(ctx, "drop view if exists weir_gi_instance_changed;\n"+text)
		return err
	})
}

// Down removes weir's tables with all that is in them. Captures must have been
// dropped before.
func (s *Source) Down(ctx context.Context) error {
	files, err := fs.Sub(weirsql.FS, "sqlite/migrations")
	if err != nil {
		return err
	}
	var queues []string
	err = s.db.read(ctx, "init --down", func(ctx context.Context, c *session) error {
		var left int
		if err := c.QueryRowContext(ctx, "select count(*) from weir_captures").Scan(&left); err != nil {
			return err
		}
		if left > 0 {
			return &weir.ConfigError{Key: "source", Err: fmt.Errorf("%d captures are installed", left), Hint: "run weir triggers drop first"}
		}
		var table string
		return c.each(ctx, "select table_name from weir_queues where name <> ?", []any{weir.DefaultQueue}, []any{&table}, func() error {
			queues = append(queues, table)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if err := s.db.write(ctx, "init --down", weir.GUID{}, func(ctx context.Context, c *session) error {
		for _, q := range queues {
			if _, err := c.ExecContext(ctx, "drop table "+ident(q)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if _, err := s.migrate(ctx, files, func(m *migrate.Migrate) error { return m.Down() }); err != nil {
		return err
	}
	return s.db.write(ctx, "init --down", weir.GUID{}, func(ctx context.Context, c *session) error {
		_, err := c.ExecContext(ctx, "drop table if exists "+migrationsTable)
		return err
	})
}

// migrate takes a step over files. golang-migrate's driver has no context: its
// statements are bounded by the time that a lock is waited for.
func (s *Source) migrate(ctx context.Context, files fs.FS, step func(*migrate.Migrate) error) (uint, error) {
	fail := func(err error) (uint, error) {
		return 0, interpretError(migrateCause(err), weir.AtSource, "init", "")
	}
	if err := s.db.look("init"); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		return fail(err)
	}
	// The migration's Close closes its database.
	own, err := openFile(s.db.path, url.Values{}, weir.AtSource, false)
	if err != nil {
		return 0, err
	}
	driver, err := migratesqlite.WithInstance(own.DB, &migratesqlite.Config{MigrationsTable: migrationsTable})
	if err != nil {
		own.Close()
		return fail(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", driver)
	if err != nil {
		own.Close()
		return fail(err)
	}
	defer m.Close()
	// A migration is one transaction, and each of its statements may run again:
	// a dirty version is run again from the one before.
	if err := clean(m); err != nil {
		return fail(err)
	}
	if err := step(m); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		v, _, _ := m.Version()
		if cerr := clean(m); cerr != nil {
			err = errors.Join(err, cerr)
		}
		cause := interpretError(migrateCause(err), weir.AtSource, "init", "")
		var u *weir.UnavailableError
		if errors.As(cause, &u) {
			return 0, cause
		}
		return 0, &weir.ConfigError{Key: "source", Err: fmt.Errorf("migration %d failed and was rolled back: %w", v, cause),
			Hint: "put right what the message names and run weir init again; the version before it is in place"}
	}
	v, _, err := m.Version()
	if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
		return fail(err)
	}
	return v, nil
}

func clean(m *migrate.Migrate) error {
	v, dirty, err := m.Version()
	if err != nil || !dirty {
		return nil
	}
	back := int(v) - 1
	if back <= 0 {
		back = migratedb.NilVersion
	}
	return m.Force(back)
}

// migrateCause finds the driver's error, which golang-migrate does not unwrap.
func migrateCause(err error) error {
	var p *migratedb.Error
	var v migratedb.Error
	switch {
	case errors.As(err, &p) && p.OrigErr != nil:
		return p.OrigErr
	case errors.As(err, &v) && v.OrigErr != nil:
		return v.OrigErr
	}
	return err
}
