package sqlserver

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
	migratesqlserver "github.com/golang-migrate/migrate/v4/database/sqlserver"
	bindata "github.com/golang-migrate/migrate/v4/source/go_bindata"

	"github.com/weir-cdc/weir"
	weirsql "github.com/weir-cdc/weir/sql"
)

// routines are installed whole at each Init, after the migrations: a file is
// the truth of each. A routine that another calls comes first.
var routines = []string{
	"GI_LogEvent", "GI_InstanceChanged", "GI_InstancesChanged", "GI_Fold",
	"GI_BeginPull", "GI_EndPull", "GI_CompletePull", "GI_ReleasePull", "GI_PostponePull", "GI_ExtendPull", "GI_ExpiredPulls",
}

// public are routines that a site may have of its own, from before: then they
// stay.
var public = map[string]bool{"GI_LogEvent": true, "GI_InstanceChanged": true}

// mark is in the text of every routine that weir made.
const mark = "-- made by weir"

// Init creates or upgrades weir's tables (golang-migrate, versions in the
// schema's GI_Migrations) and replaces its routines, and returns the schema's
// version. A queue table with the six columns that is there already is kept. It
// may be called again; an interrupted migration rolled back, and is tried
// again.
func (s *Source) Init(ctx context.Context) (uint, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	if _, err := s.server(ctx); err != nil {
		return 0, err
	}
	if _, err := s.ExecContext(ctx, "IF SCHEMA_ID("+literal(s.schema)+") IS NULL EXEC("+literal("CREATE SCHEMA "+ident(s.schema))+")"); err != nil {
		return 0, translate(err, weir.AtSource, "init", s.schema)
	}
	version, err := s.migrate(ctx)
	if err != nil {
		return version, err
	}
	return version, s.tx(ctx, "init", weir.GUID{}, func(t *session) error {
		if _, err := t.ExecContext(ctx, "SET LOCK_TIMEOUT 5000"); err != nil {
			return err
		}
		foreign, err := s.foreign(ctx, t)
		if err != nil {
			return err
		}
		log := logObjectAndText
		if foreign["GI_LogEvent"] {
			if log, err = s.logCall(ctx, t); err != nil {
				return err
			}
		}
		for _, name := range routines {
			if foreign[name] {
				continue
			}
			text, err := s.routine(name, log)
			if err != nil {
				return err
			}
			if err := s.module(ctx, t, text); err != nil {
				return fmt.Errorf("install routine %s: %w", name, err)
			}
		}
		queues, err := s.queues(ctx, t)
		if err != nil {
			return err
		}
		for _, q := range queues {
			text, err := s.tagRoutine(q)
			if err != nil {
				return err
			}
			if err := s.module(ctx, t, text); err != nil {
				return fmt.Errorf("install the routine of queue %s: %w", q, err)
			}
		}
		return nil
	})
}

// foreign finds routines of weir's names that weir did not make.
func (s *Source) foreign(ctx context.Context, q queryer) (map[string]bool, error) {
	found := map[string]bool{}
	for _, name := range routines {
		var text sql.NullString
		var there bool
		err := q.QueryRowContext(ctx, "SELECT CASE WHEN OBJECT_ID(@p1) IS NULL THEN 0 ELSE 1 END, (SELECT m.definition FROM sys.sql_modules m WHERE m.object_id = OBJECT_ID(@p1))", s.own(name)).Scan(&there, &text)
		switch {
		case err != nil:
			return nil, err
		case !there || strings.Contains(text.String, mark):
			continue
		case !public[name]:
			return nil, &weir.ConfigError{Key: "source", Err: fmt.Errorf("%s exists, and weir did not make it", s.own(name)), Hint: "rename it, or set source.schema to a schema of weir's own"}
		}
		found[name] = true
	}
	return found, nil
}

// module runs a CREATE OR ALTER, whose statement must stand alone in its batch.
func (s *Source) module(ctx context.Context, q queryer, text string) error {
	for _, sql := range s.moduleSQL(text) {
		if _, err := q.ExecContext(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// moduleSQL turns a CREATE OR ALTER into statements that this server knows and
// that may stand among others: a file of golang-migrate is one batch.
func (s *Source) moduleSQL(text string) []string {
	if s.made.babelfish {
		return babelfishModule(text)
	}
	return []string{"EXEC(" + literal(text) + ")"}
}

// Down removes weir's tables with all that is in them: queue, pulls and
// registry. Captures must have been dropped before. A queue that the site had
// before weir stays, without weir's columns.
func (s *Source) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	var left int
	if err := s.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+s.own("GI_Captures")).Scan(&left); err != nil {
		return translate(err, weir.AtSource, "init --down", "")
	}
	if left > 0 {
		return &weir.ConfigError{Key: "source", Err: fmt.Errorf("%d captures are installed", left), Hint: "run weir triggers drop first"}
	}
	down, err := s.render("migrations/000001_create_queue.down.sql", s.names())
	if err != nil {
		return err
	}
	queues, err := s.queues(ctx, s)
	if err != nil {
		return err
	}
	return s.tx(ctx, "init --down", weir.GUID{}, func(t *session) error {
		foreign, err := s.foreign(ctx, t)
		if err != nil {
			return err
		}
		var drops []string
		for i := len(routines) - 1; i >= 0; i-- {
			if !foreign[routines[i]] {
				drops = append(drops, "DROP PROCEDURE IF EXISTS "+s.own(routines[i]))
			}
		}
		for _, q := range queues {
			drops = append(drops, "DROP PROCEDURE IF EXISTS "+s.own("GI_Tag_"+q))
			if q != weir.DefaultQueue {
				drops = append(drops, "DROP TABLE "+s.own(queueTable(q)))
			}
		}
		for _, sql := range append(drops, down, "DROP TABLE "+s.own("GI_Migrations")) {
			if _, err := t.ExecContext(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Source) migrate(ctx context.Context) (uint, error) {
	entries, err := fs.ReadDir(weirsql.FS, "sqlserver/migrations")
	if err != nil {
		return 0, err
	}
	var files []string
	for _, e := range entries {
		files = append(files, e.Name())
	}
	source, err := bindata.WithInstance(bindata.Resource(files, func(name string) ([]byte, error) {
		text, err := s.render("migrations/"+name, s.names())
		return []byte(text), err
	}))
	if err != nil {
		return 0, fmt.Errorf("init: %w", err)
	}
	// One init at a time: the driver's own lock is waited for without end.
	guard, err := s.Conn(ctx)
	if err != nil {
		return 0, translate(err, weir.AtSource, "init", "")
	}
	defer guard.Close()
	var got int
	if err := guard.QueryRowContext(ctx, "DECLARE @r int; EXEC @r = sys.sp_getapplock @Resource = N'weir init', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 30000; SELECT @r").Scan(&got); err != nil {
		return 0, translate(err, weir.AtSource, "init", "")
	}
	if got < 0 {
		return 0, &weir.UnavailableError{Side: weir.AtSource, Op: "init", Err: errors.New("another weir init runs")}
	}
	defer func() {
		_, _ = guard.ExecContext(context.WithoutCancel(ctx), "EXEC sys.sp_releaseapplock @Resource = N'weir init', @LockOwner = 'Session'")
	}()

	db, err := open(s.url, weir.AtSource, "weir init")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	driver, err := migratesqlserver.WithInstance(db.DB, &migratesqlserver.Config{SchemaName: s.schema, MigrationsTable: "GI_Migrations"})
	if err != nil {
		return 0, translate(migrateCause(err), weir.AtSource, "init", "")
	}
	m, err := migrate.NewWithInstance("go-bindata", source, "sqlserver", driver)
	if err != nil {
		return 0, fmt.Errorf("init: %w", err)
	}
	m.LockTimeout = 30 * time.Second
	defer m.Close()
	back := func(v uint) error {
		to := int(v) - 1
		if to == 0 {
			to = migratedb.NilVersion
		}
		return m.Force(to)
	}
	// Each migration is one transaction: a dirty version did not happen.
	if v, dirty, err := m.Version(); err == nil && dirty {
		if err := back(v); err != nil {
			return 0, translate(migrateCause(err), weir.AtSource, "init", "")
		}
	}
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		v, dirty, verr := m.Version()
		if verr == nil && dirty {
			if ferr := back(v); ferr != nil {
				err = errors.Join(err, ferr)
			}
		}
		cause := translate(migrateCause(err), weir.AtSource, "init", s.schema)
		if u := new(weir.UnavailableError); errors.As(cause, &u) {
			return 0, cause
		}
		return 0, &weir.ConfigError{
			Key: "source", Err: fmt.Errorf("migration %d failed and was rolled back: %w", v, cause),
			Hint: "put right what the message names and run weir init again; the version before it is in place",
		}
	}
	v, _, err := m.Version()
	if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
		return 0, translate(migrateCause(err), weir.AtSource, "init", "")
	}
	return v, nil
}

// migrateCause reaches the driver's error, which golang-migrate's own type hides
// (it has no Unwrap, and comes as a value and as a pointer).
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

// names are the schema as SQL, as SQL inside a literal, and as a literal's text.
type names struct{ Schema, SchemaText, SchemaName string }

func (s *Source) names() names {
	return names{ident(s.schema), strings.ReplaceAll(ident(s.schema), "'", "''"), strings.ReplaceAll(s.schema, "'", "''")}
}

// How many texts GI_LogEvent is called with: the object and the message, the
// message alone, or not at all.
const (
	logNothing = iota
	logText
	logObjectAndText
)

// logCall finds out how the site's own GI_LogEvent can be called, by its
// parameters: one text or two, and nothing else.
func (s *Source) logCall(ctx context.Context, q queryer) (int, error) {
	rows, err := q.QueryContext(ctx, "EXEC sys.sp_sproc_columns @procedure_name = N'GI_LogEvent', @procedure_owner = @p1, @fUsePattern = 0", s.schema)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	row, dest := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		dest[i] = &row[i]
	}
	is := func(column string, among ...int64) bool {
		i := slices.IndexFunc(columns, func(name string) bool { return strings.EqualFold(name, column) })
		n, _ := row[max(i, 0)].(int64)
		return i >= 0 && slices.Contains(among, n)
	}
	texts := 0
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return 0, err
		}
		const returned, in = 5, 1
		switch {
		case is("COLUMN_TYPE", returned):
		case is("COLUMN_TYPE", in) && is("DATA_TYPE", -10, -9, -8, -1, 1, 12): // ODBC's numbers of texts
			texts++
		default:
			return logNothing, nil
		}
	}
	if err := rows.Err(); err != nil || texts > logObjectAndText {
		return logNothing, err
	}
	return texts, nil
}

func (s *Source) routine(name string, log int) (string, error) {
	text, err := s.render("queue/"+strings.ToLower(name)+".sql", struct {
		names
		Log  int
		Tags tagArgs
	}{s.names(), log, s.tagArgs(weir.DefaultQueue, "@tags")})
	return mark + "\n" + text, err
}

func (s *Source) tagRoutine(queue string) (string, error) {
	text, err := s.render("queue/gi_tag.sql.tmpl", struct {
		tagArgs
		Name string
	}{s.tagArgs(queue, "#GI_Tags"), s.own("GI_Tag_" + queue)})
	return mark + "\n" + text, err
}

// render executes a template of weirsql, which may use the pieces of
// tagging/tag.sql.tmpl; a placeholder without a value is an error.
func (s *Source) render(name string, data any) (string, error) {
	files := []string{"sqlserver/" + name, "sqlserver/tagging/tag.sql.tmpl"}
	t, err := template.New(path.Base(name)).Option("missingkey=error").ParseFS(weirsql.FS, files...)
	if err != nil {
		return "", fmt.Errorf("render %s: %w", name, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("render %s: %w", name, err)
	}
	text := strings.TrimSpace(b.String()) + "\n"
	return s.spoken(text), nil
}
