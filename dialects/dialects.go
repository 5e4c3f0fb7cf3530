// Package dialects opens sources and targets: a URL's scheme says which engine.
package dialects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects/postgres"
	"github.com/weir-cdc/weir/dialects/sqlite"
	"github.com/weir-cdc/weir/dialects/sqlserver"
)

// Source is a source as the command needs it: the pull protocol, and what
// setting up and looking after a queue takes.
type Source interface {
	weir.Source

	// Init creates or upgrades weir's tables, and returns their version. It may
	// be called again.
	Init(ctx context.Context) (uint, error)
	// Down removes weir's tables with all that is in them. [*weir.ConfigError]
	// while captures are installed.
	Down(ctx context.Context) error

	// Resolve, Installed and Apply are the [triggers.Engine].
	Resolve(ctx context.Context, specs []weir.CaptureSpec) ([]weir.Resolved, error)
	Installed(ctx context.Context) ([]weir.Object, error)
	Apply(ctx context.Context, group weir.Table, statements []string) error

	// Backfill tags the next keys of a capture, at most limit, in one
	// transaction with its progress, so that it can be killed and resumed.
	// restart begins anew.
	Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error)

	// Status counts the queues' changes and lists the live pulls.
	Status(ctx context.Context) (*weir.Status, error)
	// List returns changes of a queue, the oldest first.
	List(ctx context.Context, sel weir.QueueSelector) ([]weir.QueueRow, error)
	// Retry makes postponed and dead changes claimable at once, with their
	// attempts forgotten, and returns how many.
	Retry(ctx context.Context, sel weir.QueueSelector) (int, error)
	// Delay keeps changes that no pull holds from being claimed for a time, and
	// returns how many.
	Delay(ctx context.Context, sel weir.QueueSelector, d time.Duration) (int, error)
}

var (
	_ Source = (*postgres.Source)(nil)
	_ Source = (*sqlite.Source)(nil)
	_ Source = (*sqlserver.Source)(nil)
)

// SourceOptions say how weir works at a source.
type SourceOptions struct {
	// Schema is where weir's own tables live; empty means the dialect's default.
	// SQLite has none.
	Schema string
}

// supported is what a URL may look like.
const supported = "postgres://user@host/database, sqlserver://user@host?database=NAME or sqlite:FILE"

// Check reports a URL whose scheme no dialect knows, as a [*weir.ConfigError].
// It connects to nothing.
func Check(url string) error {
	switch scheme(url) {
	case "postgres", "postgresql", "sqlite", "file", "sqlserver":
		return nil
	}
	return unknown(url)
}

// OpenSource prepares the source at url. It connects at the first call, so the
// server may be down. An unknown scheme is a [*weir.ConfigError].
func OpenSource(ctx context.Context, url string, opts SourceOptions) (Source, error) {
	// A nil pointer in the interface would not be nil, so errors return early.
	switch scheme(url) {
	case "postgres", "postgresql":
		x, err := postgres.OpenSource(ctx, url, opts.Schema)
		if err != nil {
			return nil, err
		}
		return x, nil
	case "sqlite", "file":
		x, err := sqlite.OpenSource(ctx, url)
		if err != nil {
			return nil, err
		}
		return x, nil
	case "sqlserver":
		x, err := sqlserver.OpenSource(ctx, url, opts.Schema)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	return nil, unknown(url)
}

// OpenTarget prepares the target at url. It connects at the first call, so the
// server may be down. An unknown scheme is a [*weir.ConfigError].
func OpenTarget(ctx context.Context, url string, opts weir.TargetOptions) (weir.Target, error) {
	switch scheme(url) {
	case "postgres", "postgresql":
		x, err := postgres.OpenTarget(ctx, url, opts)
		if err != nil {
			return nil, err
		}
		return x, nil
	case "sqlite", "file":
		x, err := sqlite.OpenTarget(ctx, url, opts)
		if err != nil {
			return nil, err
		}
		return x, nil
	case "sqlserver":
		x, err := sqlserver.OpenTarget(ctx, url, opts)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	return nil, unknown(url)
}

// scheme is what stands before the first colon, in lower case.
func scheme(url string) string {
	s, _, found := strings.Cut(url, ":")
	if !found {
		return ""
	}
	return strings.ToLower(s)
}

// unknown shows the scheme, and only where it is surely one: without a scheme,
// what stands before the first colon may be anything.
func unknown(url string) error {
	err := errors.New("it has no scheme")
	if s := scheme(url); s != "" && strings.HasPrefix(url[len(s):], "://") {
		err = fmt.Errorf("scheme %q is not supported", s)
	}
	return &weir.ConfigError{Key: "url", Err: err, Hint: supported}
}
