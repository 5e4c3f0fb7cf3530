package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-cdc/weir"
)

// Source is a PostgreSQL database that changes.
type Source struct {
	pool   *pgxpool.Pool
	schema string
}

var _ weir.Source = (*Source)(nil)

// OpenSource prepares a pool for the source at url; schema is where weir's
// tables live, [DefaultSchema] when empty. It connects at the first call, so
// the server may be down.
func OpenSource(ctx context.Context, url, schema string) (*Source, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if len(schema) > maxName {
		return nil, &weir.ConfigError{Key: "source.schema", Hint: "a name of at most 63 bytes"}
	}
	pool, err := open(ctx, url, weir.AtSource, "weir source")
	if err != nil {
		return nil, err
	}
	return &Source{pool: pool, schema: schema}, nil
}

// Close waits for the connections in use, and frees all.
func (s *Source) Close() error {
	s.pool.Close()
	return nil
}

// own quotes the name of one of weir's own objects.
func (s *Source) own(name string) string { return ident(s.schema) + "." + ident(name) }
