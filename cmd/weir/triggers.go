package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
	"github.com/weir-cdc/weir/triggers"
)

func triggersCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "triggers",
		Short: "Install, remove and check the triggers that capture",
		Example: `  weir triggers plan
  weir triggers apply`,
	}
	cmd.AddCommand(triggersPlan(a), triggersApply(a), triggersDrop(a), triggersCheck(a), triggersRender(a))
	return cmd
}

func triggersPlan(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do, as SQL and warnings; change nothing",
		Example: `  weir triggers plan
  weir triggers plan --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSource(cmd, func(ctx context.Context, c *config.Config, s dialects.Source) error {
				a.doubt(c)
				p, _, err := triggers.PlanFor(ctx, s, c.Specs())
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(a.stdout, planJSON(p))
				}
				return a.printPlan(p)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// printPlan writes the plan's SQL; warnings stand before it as comments, or go
// to the log where nothing is to do.
func (a *app) printPlan(p *triggers.Plan) error {
	if p.Empty() {
		a.warn(p)
		a.log.Info("nothing to do")
		return nil
	}
	for _, w := range p.Warnings {
		if _, err := fmt.Fprintf(a.stdout, "-- warning: %s\n", clean(w)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(a.stdout, p.SQL())
	return err
}

func (a *app) warn(p *triggers.Plan) {
	for _, w := range p.Warnings {
		a.log.Warn(w)
	}
}

type stepJSON struct {
	Table  string   `json:"table"`
	Action string   `json:"action"`
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	On     string   `json:"on"`
	SQL    []string `json:"sql"`
}

func planJSON(p *triggers.Plan) any {
	out := struct {
		Steps    []stepJSON `json:"steps"`
		Warnings []string   `json:"warnings"`
	}{[]stepJSON{}, append([]string{}, p.Warnings...)}
	for _, s := range p.Steps {
		out.Steps = append(out.Steps, stepJSON{
			Table: s.Group.String(), Action: string(s.Action), Kind: string(s.Object.Kind), Name: s.Object.Name, On: s.Object.Table.String(), SQL: s.SQL,
		})
	}
	return out
}

func triggersApply(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Install what the configuration wants, one transaction a table",
		Long: `Install what the configuration wants and drop what it does not. Each table is one
transaction under the weakest lock that works, which is waited for a moment only.
When one table fails, those before it stay applied; apply again goes on.`,
		Example: `  weir triggers apply
  weir triggers apply --dry-run`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSource(cmd, func(ctx context.Context, c *config.Config, s dialects.Source) error {
				a.doubt(c)
				p, _, err := triggers.PlanFor(ctx, s, c.Specs())
				if err != nil {
					return err
				}
				return a.applyPlan(ctx, s, p, dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the plan, and change nothing")
	return cmd
}

func (a *app) applyPlan(ctx context.Context, s dialects.Source, p *triggers.Plan, dryRun bool) error {
	if dryRun {
		return a.printPlan(p)
	}
	a.warn(p)
	err := triggers.Apply(ctx, s, p, func(group weir.Table, steps []triggers.Step) {
		name := group.String()
		if group == (weir.Table{}) {
			name = "queues"
		}
		a.log.Info("applied", "table", name, "steps", len(steps))
	})
	if err != nil {
		var failed *triggers.ApplyError
		if errors.As(err, &failed) && len(failed.Applied) > 0 {
			a.log.Warn("what was applied stays; apply again goes on with the rest")
		}
		return err
	}
	done := "nothing to do"
	if !p.Empty() {
		done = "done: " + p.Summary()
	}
	_, err = fmt.Fprintln(a.stdout, done)
	return err
}

func triggersDrop(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "drop [TABLE...]",
		Short: "Remove captures: of the tables that are named, or all",
		Long: `Remove the triggers of the tables that are named, or all that weir installed.
Changes that wait in the queue stay there; pull them first.`,
		Example: `  weir triggers drop public.orders
  weir triggers drop --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSource(cmd, func(ctx context.Context, _ *config.Config, s dialects.Source) error {
				var tables []weir.Table
				for _, name := range args {
					tables = append(tables, weir.ParseTable(name))
				}
				p, err := triggers.PlanDrop(ctx, s, tables)
				if err != nil {
					return err
				}
				return a.applyPlan(ctx, s, p, dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the plan, and change nothing")
	return cmd
}

func triggersCheck(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find triggers that are missing, changed, disabled or unwanted (exit 3)",
		Example: `  weir triggers check
  weir triggers check --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSource(cmd, func(ctx context.Context, c *config.Config, s dialects.Source) error {
				err := triggers.Check(ctx, s, c.Specs())
				var drift *weir.DriftError
				switch {
				case err != nil && !errors.As(err, &drift):
					return err
				case asJSON:
					return errors.Join(printJSON(a.stdout, driftJSON(err)), err)
				case err == nil:
					_, err = fmt.Fprintln(a.stdout, "no drift")
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func driftJSON(err error) any {
	type drift struct {
		Object     string `json:"object"`
		Difference string `json:"difference"`
	}
	out := struct {
		Drift []drift `json:"drift"`
	}{[]drift{}}
	for _, p := range parts(err) {
		var d *weir.DriftError
		if errors.As(p, &d) {
			out.Drift = append(out.Drift, drift{d.Object, fmt.Sprint(d.Err)})
		}
	}
	return out
}

func triggersRender(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "render --dir DIRECTORY",
		Short: "Write what apply would do as numbered golang-migrate files",
		Long: `Write what apply would do as pairs of golang-migrate files, one a table, numbered
on from the highest number in the directory, for people who apply by tools of
their own. A down file drops what its up file created.`,
		Example: `  weir triggers render --dir migrations`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usagef("weir triggers render --dir migrations", "--dir is missing")
			}
			return a.withSource(cmd, func(ctx context.Context, c *config.Config, s dialects.Source) error {
				a.doubt(c)
				p, _, err := triggers.PlanFor(ctx, s, c.Specs())
				if err != nil {
					return err
				}
				a.warn(p)
				written, err := triggers.Render(dir, p)
				for _, name := range written {
					fmt.Fprintln(a.stdout, name)
				}
				if err == nil && len(written) == 0 {
					a.log.Info("nothing to write")
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of the migrations")
	return cmd
}
