package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
)

func queueCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "List the changes of a queue, and put them right by hand",
		Example: `  weir queue list --state dead
  weir queue retry --state dead`,
	}
	cmd.AddCommand(queueList(a), queueRelease(a), queuePostpone(a), queueRetry(a))
	return cmd
}

// selection is a choice of changes by flags.
type selection struct {
	queue, table, instance, pull, changeType, state string
	limit                                           int
	all                                             bool
}

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.queue, "queue", weir.DefaultQueue, "the queue")
	f.StringVar(&s.table, "table", "", "changes of this table only")
	f.StringVar(&s.instance, "instance", "", "changes of this InstanceGUID only")
	f.StringVar(&s.changeType, "type", "", "changes of this change type only")
	f.StringVar(&s.state, "state", "", "changes in this state only: "+strings.Join(states(), ", "))
}

func states() []string {
	return []string{string(weir.Ready), string(weir.InFlight), string(weir.Waiting), string(weir.Postponed), string(weir.Dead)}
}

// selectors are what the flags choose: one for each capture of the table.
func (s *selection) selectors(ctx context.Context, c *config.Config, src dialects.Source) ([]weir.QueueSelector, error) {
	sel := weir.QueueSelector{Queue: s.queue, ChangeType: s.changeType, State: weir.ChangeState(s.state), Limit: s.limit}
	if s.state != "" && !slices.Contains(states(), s.state) {
		return nil, usagef(strings.Join(states(), ", "), "--state %q is not known", s.state)
	}
	for flag, to := range map[string]struct {
		text string
		guid *weir.GUID
	}{"--instance": {s.instance, &sel.InstanceGUID}, "--pull": {s.pull, &sel.Pull}} {
		if to.text == "" {
			continue
		}
		g, err := weir.ParseGUID(to.text)
		if err != nil {
			return nil, usagef("8-4-4-4-12 hexadecimal digits", "%s %q is no GUID", flag, to.text)
		}
		*to.guid = g
	}
	if err := s.knownQueue(ctx, c, src); err != nil {
		return nil, err
	}
	if s.table == "" {
		return []weir.QueueSelector{sel}, nil
	}
	captures, err := src.Captures(ctx)
	if err != nil {
		return nil, err
	}
	var out []weir.QueueSelector
	var known []string
	for _, c := range captures {
		known = append(known, c.Table.String())
		if sameTable(s.table, c.Table) {
			sel.CaptureID = c.ID
			out = append(out, sel)
		}
	}
	if out == nil {
		return nil, usagef(strings.Join(known, ", "), "--table %s is not captured", s.table)
	}
	return out, nil
}

// knownQueue finds a queue that the configuration does not name, or not any
// more, at the source.
func (s *selection) knownQueue(ctx context.Context, c *config.Config, src dialects.Source) error {
	if slices.Contains(c.Queues(), s.queue) {
		return nil
	}
	st, err := src.Status(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, q := range st.Queues {
		if q.Queue == s.queue {
			return nil
		}
		known = append(known, q.Queue)
	}
	return usagef(strings.Join(known, ", "), "there is no queue %q", s.queue)
}

// chosen wants a choice, so that nobody touches the whole queue by a slip.
func (s *selection) chosen(cmd *cobra.Command) error {
	some := s.table != "" || s.instance != "" || s.changeType != "" || s.state != ""
	switch {
	case some && s.all:
		return usagef("one of the two", "--all and a choice of changes contradict each other")
	case !some && !s.all:
		return usagef(cmd.CommandPath()+" --state dead, or --all", "which changes is not said")
	}
	return nil
}

func queueList(a *app) *cobra.Command {
	var s selection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List changes, the oldest first",
		Example: `  weir queue list --state dead
  weir queue list --queue warehouse --table public.orders --limit 20 --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.limit < 0 {
				return usagef("a number, or 0 for all", "--limit %d is below 0", s.limit)
			}
			return a.withSource(cmd, func(ctx context.Context, c *config.Config, src dialects.Source) error {
				selectors, err := s.selectors(ctx, c, src)
				if err != nil {
					return err
				}
				rows := []weir.QueueRow{}
				for _, sel := range selectors {
					r, err := src.List(ctx, sel)
					if err != nil {
						return err
					}
					rows = append(rows, r...)
				}
				if s.limit > 0 {
					rows = rows[:min(len(rows), s.limit)]
				}
				if asJSON {
					return printJSON(a.stdout, struct {
						Rows []weir.QueueRow `json:"rows"`
					}{rows})
				}
				return a.printRows(rows)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&s.pull, "pull", "", "changes in flight in this PullGUID only")
	cmd.Flags().IntVar(&s.limit, "limit", 100, "at most so many; 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) printRows(rows []weir.QueueRow) error {
	t := newTable(a.stdout, "INSTANCE", "TABLE", "KEY", "CHANGE TYPE", "CHANGED ON", "STATE", "ATTEMPTS", "NOT BEFORE", "PULL", "LAST ERROR")
	for _, r := range rows {
		t.row(r.InstanceGUID, r.Table, r.OldPrimaryKey, r.ChangeType, when(r.ChangedOn), r.State, r.Attempts, when(r.NotBefore), guid(r.PullGUID), r.LastError)
	}
	return t.flush()
}

func queuePostpone(a *app) *cobra.Command {
	var s selection
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "postpone --for DURATION",
		Short: "Keep changes from being pulled for a time",
		Example: `  weir queue postpone --for 1h --table public.orders
  weir queue postpone --for 30m --all --queue warehouse`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if delay <= 0 {
				return usagef("--for 1h", "--for is missing, or not above 0")
			}
			return a.changeQueue(cmd, &s, "postponed", func(ctx context.Context, src dialects.Source, sel weir.QueueSelector) (int, error) {
				return src.Delay(ctx, sel, delay)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().DurationVar(&delay, "for", 0, "for how long: 30m, 1h, 24h")
	cmd.Flags().BoolVar(&s.all, "all", false, "every change of the queue")
	return cmd
}

func queueRetry(a *app) *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "retry",
		Short: "Make postponed changes and dead letters claimable at once",
		Example: `  weir queue retry --state dead
  weir queue retry --table public.orders
  weir queue retry --all`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.changeQueue(cmd, &s, "made claimable", func(ctx context.Context, src dialects.Source, sel weir.QueueSelector) (int, error) {
				return src.Retry(ctx, sel)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&s.all, "all", false, "every postponed change and dead letter of the queue")
	return cmd
}

func (a *app) changeQueue(cmd *cobra.Command, s *selection, done string, f func(context.Context, dialects.Source, weir.QueueSelector) (int, error)) error {
	if err := s.chosen(cmd); err != nil {
		return err
	}
	return a.withSource(cmd, func(ctx context.Context, c *config.Config, src dialects.Source) error {
		selectors, err := s.selectors(ctx, c, src)
		if err != nil {
			return err
		}
		total := 0
		for _, sel := range selectors {
			n, err := f(ctx, src, sel)
			if err != nil {
				return err
			}
			total += n
		}
		_, err = fmt.Fprintf(a.stdout, "%s %s\n", count(total, "change"), done)
		return err
	})
}
