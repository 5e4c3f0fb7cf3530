package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
)

func initCommand(a *app) *cobra.Command {
	var down, yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create or upgrade weir's tables at the source",
		Long: `Create or upgrade weir's own tables and functions at the source: the queue, the
inbox, the pulls, the registry of captures. It may be run again at any time.`,
		Example: `  weir init
  weir init --dry-run
  weir init --down --yes`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && !down {
				return usagef("weir init --down --yes", "--yes is for --down")
			}
			return a.withSource(cmd, func(ctx context.Context, c *config.Config, s dialects.Source) error {
				switch {
				case down:
					return a.initDown(ctx, c, s, yes, dryRun)
				case dryRun:
					return a.initDry(ctx, c, s)
				}
				version, err := s.Init(ctx)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.stdout, "weir's tables are at version %d in %s\n", version, c.Source.URL)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&down, "down", false, "remove weir's tables and all that is in them")
	f.BoolVar(&yes, "yes", false, "do not ask before --down")
	f.BoolVar(&dryRun, "dry-run", false, "say what would happen, and change nothing")
	return cmd
}

func (a *app) initDry(ctx context.Context, c *config.Config, s dialects.Source) error {
	_, err := s.Status(ctx)
	var missing *weir.ConfigError
	switch {
	case errors.As(err, &missing) && strings.Contains(missing.Hint, "weir init"):
		_, err = fmt.Fprintf(a.stdout, "would create weir's tables in %s\n", c.Source.URL)
	case err == nil:
		_, err = fmt.Fprintf(a.stdout, "would upgrade weir's tables in %s where they are of an older version\n", c.Source.URL)
	}
	return err
}

func (a *app) initDown(ctx context.Context, c *config.Config, s dialects.Source, yes, dryRun bool) error {
	captures, err := s.Captures(ctx)
	if err != nil {
		return err
	}
	if len(captures) > 0 {
		return c.Fault("source", fmt.Errorf("%s installed", are(len(captures), "capture")), "weir triggers drop, and then weir init --down again")
	}
	st, err := s.Status(ctx)
	if err != nil {
		return err
	}
	waiting := st.Inbox
	for _, q := range st.Queues {
		waiting += q.Depth
	}
	what := fmt.Sprintf("weir's tables in %s, with %s that no target has", c.Source.URL, count(waiting, "change"))
	if dryRun {
		_, err = fmt.Fprintln(a.stdout, "would remove "+what)
		return err
	}
	if !yes {
		fmt.Fprintf(a.stderr, "This removes %s.\nType yes to go on: ", what)
		answer, _ := bufio.NewReader(a.stdin).ReadString('\n') // an end is no yes
		if strings.TrimSpace(answer) != "yes" {
			fmt.Fprintln(a.stderr)
			return usagef("weir init --down --yes", "nothing was removed")
		}
	}
	if err := s.Down(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, "removed "+what)
	return err
}

// are counts with the verb: 1 capture is, 2 captures are.
func are[N int | int64](n N, noun string) string {
	if n == 1 {
		return count(n, noun) + " is"
	}
	return count(n, noun) + " are"
}
