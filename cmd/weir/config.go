package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir/internal/config"
)

func configCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration, or print its JSON Schema",
		Example: `  weir config check
  weir config schema`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of weir.yaml, for editors",
		Example: `  weir config schema > weir.schema.json
  # and as the first line of weir.yaml:
  # yaml-language-server: $schema=weir.schema.json`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			schema, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(schema)
			return err
		},
	}, configCheck(a))
	return cmd
}

func configCheck(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration without connecting to anything",
		Example: `  weir config check
  weir config check --config other.yaml --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, configJSON(c))
			}
			a.doubt(c)
			fmt.Fprintf(a.stdout, "%s is right\n\nsource: %s\n\n", c.File(), c.Source.URL)
			t := newTable(a.stdout, "CAPTURE", "CHANGE TYPE", "TAGGING", "QUEUES")
			for _, s := range c.Specs() {
				t.row(s.Table, s.ChangeType, s.Tagging, strings.Join(s.Queues, ", "))
			}
			if err := t.flush(); err != nil {
				return err
			}
			fmt.Fprintln(a.stdout)
			t = newTable(a.stdout, "PULL", "QUEUE", "SCHEDULE", "MODE", "TARGET")
			for i := range c.Pulls {
				p := &c.Pulls[i]
				t.row(p.Name, p.Queue, p.Schedule, p.Target.Mode, p.Target.URL)
			}
			return t.flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func configJSON(c *config.Config) any {
	type capture struct {
		Table      string   `json:"table"`
		ChangeType string   `json:"change_type"`
		Tagging    string   `json:"tagging"`
		Queues     []string `json:"queues"`
	}
	type pull struct {
		Name     string     `json:"name"`
		Queue    string     `json:"queue"`
		Schedule string     `json:"schedule"`
		Mode     string     `json:"mode"`
		Target   config.URL `json:"target"`
	}
	out := struct {
		File     string     `json:"file"`
		Source   config.URL `json:"source"`
		Captures []capture  `json:"captures"`
		Pulls    []pull     `json:"pulls"`
		Warnings []string   `json:"warnings"`
	}{c.File(), c.Source.URL, []capture{}, []pull{}, append([]string{}, c.Warnings()...)}
	for _, s := range c.Specs() {
		out.Captures = append(out.Captures, capture{s.Table.String(), s.ChangeType, string(s.Tagging), s.Queues})
	}
	for i := range c.Pulls {
		p := &c.Pulls[i]
		out.Pulls = append(out.Pulls, pull{p.Name, p.Queue, p.Schedule, string(p.Target.Mode), p.Target.URL})
	}
	return out
}
