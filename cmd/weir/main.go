// Command weir captures changes of a database by triggers, and pulls them into
// another. See weir --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // schedules have time zones, and a container may have none
)

func main() {
	// The first signal asks to stop after the batch in hand. The second has the
	// system's own effect, and ends the process at once: the protocol is made for
	// that.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr))
}
