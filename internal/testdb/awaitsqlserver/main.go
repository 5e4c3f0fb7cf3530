// Command awaitsqlserver waits until the server of WEIR_TEST_SQLSERVER_URL takes
// the login: it listens long before. Its argument says for how long, such as 2m;
// it tries at least once. It exits with 1 when the time is over.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	_ "github.com/microsoft/go-mssqldb" // the driver sqlserver
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "awaitsqlserver:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("one argument is due: how long to wait, such as 2m")
	}
	limit, err := time.ParseDuration(os.Args[1])
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlserver", os.Getenv("WEIR_TEST_SQLSERVER_URL"))
	if err != nil {
		return fmt.Errorf("open WEIR_TEST_SQLSERVER_URL: %w", err)
	}
	defer db.Close()
	for start := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		// One that listens and does not answer is not to hold up the next try.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := db.PingContext(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Since(start) >= limit {
			return fmt.Errorf("connect to WEIR_TEST_SQLSERVER_URL: %w", err)
		}
	}
}
