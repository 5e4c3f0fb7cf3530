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
	"github.com/weir-cdc/weir/puller"
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
		n := len(out)
		for _, c := range all {
			if sameTable(name, c.Table) && !slices.Contains(out, c) {
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
	show, began, tries := a.newProgress(), time.Now(), 0
	defer show.end()
	for {
		at, err := puller.Backfill(ctx, s, c.ID, chunk, restart, func(at weir.BackfillProgress, rate float64) {
			tries, restart = 0, false
			show.at(name, at, rate)
		})
		var outage *weir.UnavailableError
		switch {
		case err == nil && at.Before:
			show.end()
			_, err := fmt.Fprintf(a.stdout, "%s: done on %s, with %s; nothing is tagged now. --restart begins anew\n", clean(name), when(at.DoneOn), count(at.Tagged, "row"))
			return err
		case err == nil:
			show.end()
			_, err := fmt.Fprintf(a.stdout, "%s: %s tagged in %s\n", clean(name), count(at.Tagged, "row"), human(time.Since(began)))
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("backfill of %s stopped; the next weir backfill goes on from here", name)
		case errors.As(err, &outage) && tries < backfillTries:
			tries++
			a.log.Warn("backfill waits", "table", name, "try", tries, "error", err)
			select {
			case <-time.After(time.Duration(tries) * time.Second):
			case <-ctx.Done():
			}
		default:
			return err
		}
	}
}
