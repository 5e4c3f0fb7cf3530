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

// shownKeys is how many differing keys of a table are printed for a person.
const shownKeys = 20

// verification is what weir verify prints as JSON.
type verification struct {
	Pull      string             `json:"pull"`
	Differing int                `json:"differing"`
	Unsettled int                `json:"unsettled"`
	Tables    []*puller.Verified `json:"tables"`
}

func verifyCommand(a *app) *cobra.Command {
	var asJSON bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "verify NAME",
		Short: "Compare the target of a pull with the source",
		Long: `Compare the rows of a pull's tables at the source with those at the target, by
digests that each side computes, and list the keys that differ. Nothing is
changed. Each table is scanned once on each side, and again where it differs.
A key that differs while a change of it waits or is in flight is read again until
the change has arrived, or --wait is over; then it is unsettled, and listed apart.
Exit code 3 while something differs.`,
		Example: `  weir verify warehouse
  weir verify warehouse --json`,
		Args:              exactArgs("NAME"),
		ValidArgsFunction: a.completePull,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPull(cmd, args[0], func(ctx context.Context, c *config.Config, place int, s dialects.Source, t weir.Target) error {
				v, err := a.verify(ctx, c, place, s, t, wait)
				if err != nil {
					return locate(c, place, err)
				}
				if asJSON {
					err = printJSON(a.stdout, v)
				} else {
					err = a.printVerification(v)
				}
				if err == nil && v.Differing > 0 {
					err = &weir.DriftError{Object: "pull " + v.Pull, Err: fmt.Errorf("%s of the target differ from the source", count(v.Differing, "key")),
						Hint: "docs/verify.md says how to repair them"}
				}
				return err
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait for changes that are under way")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) verify(ctx context.Context, c *config.Config, place int, s dialects.Source, t weir.Target, wait time.Duration) (*verification, error) {
	p := &c.Pulls[place]
	source, ok := s.(puller.VerifySource)
	if !ok {
		return nil, &weir.ConfigError{Key: "source.url", Err: errors.New("weir verify does not support SQL Server yet"), Hint: "a source of PostgreSQL or SQLite"}
	}
	target, ok := t.(puller.Verifiable)
	if !ok {
		return nil, &weir.ConfigError{Key: "target.url", Err: errors.New("weir verify does not support SQL Server yet"), Hint: "a target of PostgreSQL or SQLite"}
	}
	captures, err := verified(ctx, c, place, s)
	if err != nil {
		return nil, err
	}
	out := &verification{Pull: p.Name, Tables: []*puller.Verified{}}
	for _, cp := range captures {
		a.log.Debug("verify", "pull", p.Name, "table", cp.Table.String())
		v, err := puller.Verify(ctx, source, target, cp, p.Queue, wait)
		if err != nil {
			return nil, err
		}
		out.Differing += len(v.Differing)
		out.Unsettled += len(v.Unsettled)
		out.Tables = append(out.Tables, v)
	}
	return out, nil
}

// verified are the captures whose changes the pull takes, by table. A pull that
// takes some changes of a table only does not make it equal to the source.
func verified(ctx context.Context, c *config.Config, place int, s weir.Source) ([]*weir.Capture, error) {
	p := &c.Pulls[place]
	ids, err := captureIDs(ctx, c, place, s)
	if err != nil {
		return nil, err
	}
	if len(p.ChangeTypes) > 0 || len(p.Concepts) > 0 {
		key := "concepts"
		if len(p.ChangeTypes) > 0 {
			key = "change_types"
		}
		return nil, c.Fault(fmt.Sprintf("pulls[%d].%s", place, key), errors.New("weir verify cannot compare a pull that takes a part of the changes"), "a pull that chooses by captures")
	}
	all, err := s.Captures(ctx)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(all, func(x *weir.Capture) bool {
		return len(ids) > 0 && !slices.Contains(ids, x.ID) || !slices.Contains(x.Queues, p.Queue)
	})
	if len(out) == 0 {
		return nil, &weir.ConfigError{Key: "source", Err: fmt.Errorf("no capture is installed whose changes go to the queue %q", p.Queue), Hint: "weir triggers apply"}
	}
	slices.SortFunc(out, func(a, b *weir.Capture) int {
		return strings.Compare(a.Table.String()+"\x00"+a.ChangeType, b.Table.String()+"\x00"+b.ChangeType)
	})
	return out, nil
}

func (a *app) printVerification(v *verification) error {
	out := newTable(a.stdout, "TABLE", "SOURCE", "TARGET", "DIFFERING", "UNSETTLED")
	for _, t := range v.Tables {
		out.row(t.Table, t.SourceRows, t.TargetRows, len(t.Differing), len(t.Unsettled))
	}
	if err := out.flush(); err != nil {
		return err
	}
	for _, t := range v.Tables {
		a.printKeys(t.Table, "", t.Differing)
		a.printKeys(t.Table, ", unsettled", t.Unsettled)
		for _, l := range t.LeftOut {
			fmt.Fprintf(a.stdout, "%s: column %s was not compared: %s\n", clean(t.Table), clean(l.Column), clean(l.Why))
		}
	}
	return nil
}

func (a *app) printKeys(table, more string, list []puller.Difference) {
	for i, d := range list {
		if i == shownKeys {
			fmt.Fprintf(a.stdout, "%s: and %d more%s; --json lists all\n", clean(table), len(list)-i, more)
			return
		}
		fmt.Fprintf(a.stdout, "%s %s: %s%s\n", clean(table), clean(strings.Join(d.Key, ", ")), d.How, more)
	}
}
