package sqlite

import (
	"context"

	_ "modernc.org/sqlite" // the driver

	"github.com/weir-cdc/weir"
)

// Source is an SQLite database that changes.
type Source struct {
	db *database
}

var _ weir.Source = (*Source)(nil)

// OpenSource prepares the source at url: sqlite:path, sqlite://path,
// sqlite:///absolute/path or file:path. The file is opened at the first call,
// and is unavailable while it does not exist. It is put in WAL mode.
func OpenSource(ctx context.Context, url string) (*Source, error) {
	db, err := open(url, weir.AtSource, false)
	if err != nil {
		return nil, err
	}
	return &Source{db: db}, nil
}

// Close waits for the calls under way, and frees the connections.
func (s *Source) Close() error { return s.db.Close() }
