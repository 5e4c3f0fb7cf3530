package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
)

func backfillCommand(a *app) *cobra.Command {
	var restart bool
	var chunk int
	cmd := &cobra.Command{
		Use:   "backfill [TABLE...]",
		Short: "Tag the rows that were there before the triggers",
		Long: `Tag the rows of captured tables, all or those that are named, in the order of their
keys and in chunks, beside live writes. What is tagged is pulled like any change.
A backfill that was stopped goes on where it was; one that is done stays done
until --restart.`,
		Example: `  weir backfill
  weir backfill public.orders --chunk 10000
  weir backfill public.orders --restart`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if chunk < 1 {
				return usagef("1 or more", "--chunk %d is too small", chunk)
			}
			return a.withSource(cmd, func(ctx context.Context, _ *config.Config, s dialects.Source) error {
				captures, err := capturesNamed(ctx, s, args)
				if err != nil {
					return err
				}
				for _, c := range captures {
					if err := a.backfill(ctx, s, c, chunk, restart); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&restart, "restart", false, "begin anew")
	cmd.Flags().IntVar(&chunk, "chunk", 5000, "rows to tag in one transaction")
	return cmd
}

// capturesNamed are the installed captures of the tables, or all; by table.
func capturesNamed(ctx context.Context, s dialects.Source, names []string) ([]*weir.Capture, error) {
	all, err := s.Captures(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &weir.ConfigError{Key: "source", Err: errors.New("no capture is installed"), Hint: "weir triggers apply"}
	}
	slices.SortFunc(all, func(a, b *weir.Capture) int { return strings.Compare(a.Table.String(), b.Table.String()) })
	if len(names) == 0 {
		return all, nil
	}
	var out []*weir.Capture
	var known []string
	for _, c := range all {
		known = append(known, c.Table.String())
	}
	for _, name := range names {
		table := weir.ParseTable(name)
		n := len(out)
		for _, c := range all {
			if c.Table == table && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
		if len(out) == n {
			return nil, usagef(strings.Join(known, ", "), "%s is not captured", name)
		}
	}
	return out, nil
}

// backfillTries is how often in a row a chunk may find the source unavailable.
const backfillTries = 5

func (a *app) backfill(ctx context.Context, s dialects.Source, c *weir.Capture, chunk int, restart bool) error {
	name := c.Table.String()
	if c.ChangeType != "" {
		name += " (" + c.ChangeType + ")"
	}
	p := a.newProgress()
	began := time.Now()
	for tries := 0; ; {
		at, err := s.Backfill(ctx, c.ID, chunk, restart)
		var outage *weir.UnavailableError
		switch {
		case errors.As(err, &outage) && ctx.Err() == nil && tries < backfillTries:
			tries++
			a.log.Warn("backfill waits", "table", name, "try", tries, "error", err)
			select {
			case <-time.After(time.Duration(tries) * time.Second):
			case <-ctx.Done():
			}
			continue
		case err != nil && ctx.Err() != nil:
			p.end()
			return fmt.Errorf("backfill of %s stopped; the next weir backfill goes on from here", name)
		case err != nil:
			p.end()
			return err
		}
		tries, restart = 0, false
		p.at(name, at.Tagged, at.Estimate)
		if at.Done {
			p.end()
			_, err := fmt.Fprintf(a.stdout, "%s: %s tagged in %s\n", clean(name), count(at.Tagged, "row"), human(time.Since(began)))
			return err
		}
		if ctx.Err() != nil {
			p.end()
			return fmt.Errorf("backfill of %s stopped after %s; the next weir backfill goes on from here", name, count(at.Tagged, "row"))
		}
	}
}
