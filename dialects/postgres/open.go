package postgres

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-cdc/weir"
)

// DefaultSchema is where weir's own tables live at a source.
const DefaultSchema = "weir"

// How long a call may take. Statements that could wait for a user have lock
// time-outs of their own, far shorter.
const (
	connectTimeout = 10 * time.Second
	callTimeout    = 30 * time.Second // protocol calls
	bulkTimeout    = 10 * time.Minute // reading and shipping a batch, DDL
	lockTimeout    = "400ms"          // under the default deadlock_timeout of 1 s
)

// patience is how long a server waits for the next statement of a transaction
// before it ends the session: a puller that is frozen, or cut off without a
// word, must not keep the rows that users write locked until the network
// notices. At the target the client has rows to encode in between.
var patience = map[weir.Side]string{weir.AtSource: "5s", weir.AtTarget: "60s"}

// settings make every rendering of a value independent of the server's and the
// role's configuration, and every unqualified name an error.
var settings = map[string]string{
	"search_path":        "pg_catalog",
	"DateStyle":          "ISO, YMD",
	"TimeZone":           "UTC",
	"IntervalStyle":      "postgres",
	"bytea_output":       "hex",
	"extra_float_digits": "3",
	"xmloption":          "content",
	"client_encoding":    "UTF8",
	"row_security":       "off",
	"jit":                "off",
}

func open(ctx context.Context, url string, side weir.Side, app string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, &weir.ConfigError{Key: string(side) + ".url", Err: redactParse(err), Hint: "postgres://user@host:5432/database"}
	}
	for k, v := range settings {
		cfg.ConnConfig.RuntimeParams[k] = v
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = app
	}
	if cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] == "" {
		cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = patience[side]
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	// Named prepared statements would break behind a transaction pooler, and
	// plans made for other sizes would be kept.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.MinConns = 0
	cfg.MaxConnIdleTime = time.Minute
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, translate(err, side, "connect", "")
	}
	return pool, nil
}

var passwordInText = regexp.MustCompile(`(?i)(password=)('[^']*'|\S+)|(//[^/@:]*:)[^@/]*`)

// redactParse keeps a password out of pgx's message, which quotes the string
// that it could not parse.
func redactParse(err error) error {
	return fmt.Errorf("%s", passwordInText.ReplaceAllString(err.Error(), "${1}${3}xxxxx"))
}

// tx runs f in one transaction at READ COMMITTED, or as opts say, and sorts the
// errors: what f returns is rolled back surely; an unanswered commit is unknown.
func tx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, side weir.Side, op string, pull weir.GUID, f func(pgx.Tx) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return translate(err, side, op, "")
	}
	defer conn.Release()
	t, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return translate(err, side, op, "")
	}
	if err := f(t); err != nil {
		rollback(ctx, t)
		return translate(err, side, op, "")
	}
	if err := t.Commit(ctx); err != nil {
		rollback(ctx, t)
		// A server that answered has rolled back; so has one that was never asked.
		if pgconn.SafeToRetry(err) || isServerError(err) {
			return translate(err, side, op, "")
		}
		return &weir.OutcomeUnknownError{Side: side, Op: op, Pull: pull, Err: err}
	}
	return nil
}

// rollback ends a transaction whatever the state of ctx. pgx closes a
// connection whose rollback fails, and the server then rolls back.
func rollback(ctx context.Context, t pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = t.Rollback(ctx)
}

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
