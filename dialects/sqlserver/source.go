package sqlserver

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/weir-cdc/weir"
)

// Source is a SQL Server database that changes.
type Source struct {
	*database
	url    string
	schema string

	mu   sync.Mutex
	made *server // once it is known
}

// server is what weir asks a server and its database once.
type server struct {
	babelfish bool // no CREATE OR ALTER, no trigger order
	snapshots bool // the database allows snapshot isolation
	ansiCodes int  // code page of the database's collation
}

var _ weir.Source = (*Source)(nil)

// OpenSource prepares a pool for the source at url; schema is where weir's
// tables live, [DefaultSchema] when empty. It connects at the first call, so
// the server may be down.
func OpenSource(ctx context.Context, url, schema string) (*Source, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	// golang-migrate quotes a name by nothing more than brackets.
	if units(schema) > maxName || strings.ContainsAny(schema, "[]'") {
		return nil, &weir.ConfigError{Key: "source.schema", Err: errors.New("the name is too long or has brackets or quotes in it"),
			Hint: "a name of at most 128 characters without [ ] and '"}
	}
	db, err := open(url, weir.AtSource, "weir source")
	if err != nil {
		return nil, err
	}
	return &Source{database: db, url: url, schema: schema}, nil
}

// Close frees the connections.
func (s *Source) Close() error { return s.DB.Close() }

// own quotes the name of one of weir's own objects.
func (s *Source) own(name string) string { return ident(s.schema) + "." + ident(name) }

// server asks the server what it is.
func (s *Source) server(ctx context.Context) (server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != nil {
		return *s.made, nil
	}
	var v server
	err := s.QueryRowContext(ctx, `SELECT CASE WHEN SERVERPROPERTY('Babelfish') IS NULL THEN 0 ELSE 1 END,
       CASE WHEN d.snapshot_isolation_state <> 0 THEN 1 ELSE 0 END,
       COALESCE(CONVERT(int, COLLATIONPROPERTY(CONVERT(nvarchar(128), DATABASEPROPERTYEX(DB_NAME(), 'Collation')), 'CodePage')), 0)
FROM sys.databases d WHERE d.database_id = DB_ID()`).Scan(&v.babelfish, &v.snapshots, &v.ansiCodes)
	if err != nil {
		return v, translate(err, weir.AtSource, "connect", "")
	}
	s.made = &v
	return v, nil
}
