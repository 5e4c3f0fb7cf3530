package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
)

func statusCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what waits in the queues and what is in flight",
		Example: `  weir status
  weir status --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSource(cmd, func(ctx context.Context, _ *config.Config, s dialects.Source) error {
				st, err := s.Status(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(a.stdout, st)
				}
				return a.printStatus(st)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) printStatus(st *weir.Status) error {
	fmt.Fprintf(a.stdout, "inbox: %s\n\n", count(st.Inbox, "tag"))
	t := newTable(a.stdout, "QUEUE", "DEPTH", "READY", "IN FLIGHT", "WAITING", "POSTPONED", "DEAD", "OLDEST")
	groups := 0
	for _, q := range st.Queues {
		t.row(q.Queue, q.Depth, q.Ready, q.InFlight, q.Waiting, q.Postponed, q.Dead, age(q.OldestAge))
		groups += len(q.Groups)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if groups > 0 {
		fmt.Fprintln(a.stdout)
		t = newTable(a.stdout, "QUEUE", "TABLE", "CHANGE TYPE", "CONCEPT", "DEPTH", "OLDEST")
		for _, q := range st.Queues {
			for _, g := range q.Groups {
				t.row(q.Queue, g.Table, g.ChangeType, guid(g.ConceptGUID), g.Depth, age(g.OldestAge))
			}
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if len(st.Pulls) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	t = newTable(a.stdout, "PULL", "NAME", "QUEUE", "PULLER", "STATE", "ROWS", "CLAIMED", "LEASE")
	for _, p := range st.Pulls {
		lease := "over since " + human(st.Now.Sub(p.LeaseUntil))
		if p.LeaseUntil.After(st.Now) {
			lease = human(p.LeaseUntil.Sub(st.Now)) + " left"
		}
		t.row(p.PullGUID, p.Name, p.Queue, p.Puller, p.State, p.Rows, human(st.Now.Sub(p.ClaimedOn))+" ago", lease)
	}
	return t.flush()
}

// guid writes a GUID, or nothing for NULL.
func guid(g weir.GUID) string {
	if g.IsZero() {
		return ""
	}
	return g.String()
}

// when writes a moment to the second, in UTC, or nothing for none.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
