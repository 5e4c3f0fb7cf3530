package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
	"github.com/weir-cdc/weir/puller"
)

func pullCommand(a *app) *cobra.Command {
	var allowDeletes, asJSON bool
	cmd := &cobra.Command{
		Use:   "pull NAME",
		Short: "Drain one pull now, then exit",
		Long: `Drain one pull now: claim, read, ship and settle in batches until its queue has
nothing more for it. It may run beside weir run and other pullers.
SIGTERM and Ctrl-C stop it after the batch in hand, a second one at once.`,
		Example: `  weir pull warehouse
  weir pull warehouse --allow-deletes
  weir pull warehouse --json`,
		Args:              exactArgs("NAME"),
		ValidArgsFunction: a.completePull,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPull(cmd, args[0], func(ctx context.Context, c *config.Config, place int, s dialects.Source, t weir.Target) error {
				p, err := a.puller(ctx, c, place, s, t, allowDeletes)
				if err != nil {
					return err
				}
				r, err := p.Drain(ctx)
				err = locate(c, place, err)
				if err == nil && ctx.Err() != nil {
					err = errors.New("stopped before the queue was empty")
				}
				if n := r.Postponed + r.Dead; err == nil && n > 0 {
					err = fmt.Errorf("%s not shipped, and kept: weir queue list shows why, weir queue retry tries again at once", count(n, "row"))
				}
				switch {
				case asJSON:
					err = errors.Join(err, printJSON(a.stdout, r))
				case err == nil || r.Pulls > 0 || r.Postponed+r.Dead > 0:
					fmt.Fprintf(a.stdout, "%s: %s\n", clean(args[0]), describe(r))
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&allowDeletes, "allow-deletes", false, "do not stop at max_deletes, this time")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// describe tells a person what a run did.
func describe(r puller.Result) string {
	s := fmt.Sprintf("%s, %d upserted, %d deleted", count(r.Pulls, "batch"), r.Upserted, r.Deleted)
	for _, more := range []struct {
		n    int
		name string
	}{{r.Postponed, "postponed"}, {r.Dead, "dead letters"}, {r.Recovered, "pulls recovered"}} {
		if more.n > 0 {
			s += fmt.Sprintf(", %d %s", more.n, more.name)
		}
	}
	return s + " in " + human(r.Duration)
}

// puller makes the puller of a pull of the configuration. The source is asked
// only where the pull takes some of the captures.
func (a *app) puller(ctx context.Context, c *config.Config, place int, s weir.Source, t weir.Target, allowDeletes bool) (*puller.Puller, error) {
	p := &c.Pulls[place]
	captures, err := captureIDs(ctx, c, place, s)
	if err != nil {
		return nil, err
	}
	return puller.New(s, t, puller.Config{
		Name: p.Name, Queue: p.Queue, Captures: captures, Concepts: p.Concepts, ChangeTypes: p.ChangeTypes,
		Batch: p.Batch, Lease: time.Duration(p.Lease), MaxAttempts: p.MaxAttempts,
		MaxDeletes: puller.Limit{Rows: p.MaxDeletes.Rows, Percent: p.MaxDeletes.Percent}, AllowDeletes: allowDeletes,
	}, a.log)
}

// captureIDs are the ids of the captures that a pull names, none where it takes
// all.
func captureIDs(ctx context.Context, c *config.Config, place int, s weir.Source) ([]int32, error) {
	names := c.Pulls[place].Captures
	if len(names) == 0 {
		return nil, nil
	}
	installed, err := s.Captures(ctx)
	if err != nil {
		return nil, err
	}
	var out []int32
	var errs []error
	for i, name := range names {
		n := len(out)
		for _, x := range installed {
			if sameTable(name, x.Table) {
				out = append(out, x.ID)
			}
		}
		if len(out) == n {
			errs = append(errs, c.Fault(fmt.Sprintf("pulls[%d].captures[%d]", place, i), fmt.Errorf("the capture of %s is not installed", name), "weir triggers apply"))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), errors.Join(errs...)
}

// sameTable reports that a name of the user's means an installed table; without
// a schema it means that of any.
func sameTable(name string, table weir.Table) bool {
	t := weir.ParseTable(name)
	return t == table || t.Schema == "" && t.Name == table.Name
}

func queueRelease(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release PULLGUID",
		Short: "Finish a pull that nobody works on, by the word of the target's ledger",
		Long: `Finish a pull whose puller is gone, without waiting for its lease. The target's
ledger decides: a pull that committed there is settled; any other is revoked, so
that it can never commit, and its changes go back to the queue. A puller that is
at work on it after all finds that out and loses nothing.

With --force no ledger is asked, and the changes go back to the queue: for a pull
whose target is gone for good. If that target still lives and a puller still works
for it, the puller may bring an older version of a row there.`,
		Example: `  weir queue release 6f9619ff-8b86-4d01-b42d-00cf4fc964ff
  weir queue release --force 6f9619ff-8b86-4d01-b42d-00cf4fc964ff`,
		Args: exactArgs("PULLGUID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			guid, err := weir.ParseGUID(args[0])
			if err != nil {
				return usagef("weir status lists the pulls that live", "%q is no PullGUID", args[0])
			}
			return a.withSource(cmd, func(ctx context.Context, c *config.Config, s dialects.Source) error {
				if force {
					if err := s.Release(ctx, guid); err != nil {
						return err
					}
					_, err := fmt.Fprintf(a.stdout, "pull %s is released without its ledger's word\n", guid)
					return err
				}
				return a.release(ctx, c, s, guid)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "do not ask the target's ledger: the target is gone for good")
	return cmd
}

func (a *app) release(ctx context.Context, c *config.Config, s dialects.Source, guid weir.GUID) (err error) {
	st, err := s.Status(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(st.Pulls, func(p weir.LivePull) bool { return p.PullGUID == guid })
	if i < 0 {
		return fmt.Errorf("there is no such pull at the source: %s was settled or released before", guid)
	}
	live := st.Pulls[i]
	_, place, err := c.Pull(live.Name)
	if err != nil {
		return err
	}
	t, err := openTarget(ctx, c, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	ledger, err := t.Ledger(ctx)
	if err != nil {
		return err
	}
	if !live.Ledger.IsZero() && live.Ledger != ledger {
		// Another ledger cannot tell what became of the pull, nor bar it.
		return c.Fault(fmt.Sprintf("pulls[%d].target", place), fmt.Errorf("it is not the target that pull %s ships to", guid), "the target that it was")
	}
	p, err := puller.New(s, t, puller.Config{Name: live.Name, Queue: live.Queue, Lease: time.Duration(c.Pulls[place].Lease)}, a.log)
	if err != nil {
		return err
	}
	committed, err := p.Finish(ctx, guid)
	if err != nil {
		return err
	}
	done := "revoked, and its changes are back in the queue"
	if committed {
		done = "settled: it had committed at the target"
	}
	_, err = fmt.Fprintf(a.stdout, "pull %s is %s\n", guid, done)
	return err
}

// withPull runs f with the source and the target of a pull open.
func (a *app) withPull(cmd *cobra.Command, name string, f func(ctx context.Context, c *config.Config, place int, s dialects.Source, t weir.Target) error) error {
	return a.withSource(cmd, func(ctx context.Context, c *config.Config, s dialects.Source) (err error) {
		_, place, err := c.Pull(name)
		if err != nil {
			return err
		}
		t, err := openTarget(ctx, c, place)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.Close()) }()
		return f(ctx, c, place, s, t)
	})
}

// completePull completes the name of a pull, the only argument.
func (a *app) completePull(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := config.Load(a.setting(cmd, "config", "WEIR_CONFIG", ""), a.env)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range c.Pulls {
		names = append(names, c.Pulls[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
