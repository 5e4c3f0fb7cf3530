package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/config"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // wrong usage or configuration
	exitDiffers = 3 // differs or drifted
)

// app is what the commands share.
type app struct {
	env            config.Lookup
	stdin          io.Reader
	stdout, stderr io.Writer
	log            *slog.Logger
	flags          struct{ config, logFormat, logLevel string }
	// started reports that the arguments were right: what fails later is no
	// wrong usage.
	started bool
}

// commands are added to the root in this order.
var commands = []func(*app) *cobra.Command{
	initCommand, triggersCommand, backfillCommand, pullCommand, runCommand, verifyCommand,
	statusCommand, queueCommand, demoCommand, configCommand, versionCommand,
}

// run is the command: it never ends the process, and writes only where it is
// told. ctx ends when the user wants it to stop.
func run(ctx context.Context, args []string, env config.Lookup, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		var u *usageError
		if !errors.As(err, &u) {
			err = &usageError{err: err, hint: "weir --help"}
		}
	}
	if err != nil && a.log == nil {
		err = errors.Join(err, a.setUpLog(root, nil)) // wrong arguments are found before
	}
	return a.report(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Capture a database's changes and pull them into another",
		Long: `weir captures changes with triggers, keeps only the latest change of each row in
a queue beside the data, and pulls that queue on a schedule into a target.

Results go to standard output, logs and messages to standard error.
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 differs or drifted.`,
		Example: `  weir demo
  weir init
  weir triggers apply
  weir backfill
  weir run`,
		Version:       version().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.setUpLog(cmd, nil); err != nil {
				return err
			}
			a.started = true
			return nil
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err: err, hint: cmd.CommandPath() + " --help"}
	})
	f := root.PersistentFlags()
	f.StringVar(&a.flags.config, "config", "weir.yaml", "the configuration (WEIR_CONFIG)")
	f.StringVar(&a.flags.logFormat, "log-format", "text", "text or json (WEIR_LOG_FORMAT)")
	f.StringVar(&a.flags.logLevel, "log-level", "info", "debug, info, warn or error (WEIR_LOG_LEVEL)")
	for _, c := range commands {
		root.AddCommand(c(a))
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Example = "  weir completion bash > /etc/bash_completion.d/weir"
		for _, shell := range c.Commands() {
			shell.Example = "  weir completion " + shell.Name()
		}
	}
	groups(root)
	return root
}

// groups makes every command that only holds others say so when it is called
// by itself, or with a word that it does not know.
func groups(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		groups(c)
	}
	if !cmd.HasSubCommands() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return &usageError{err: errors.New("a command is missing"), hint: cmd.CommandPath() + " --help"}
		}
		hint := cmd.CommandPath() + " --help"
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = cmd.CommandPath() + " " + near[0]
		}
		return &usageError{err: fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), hint: hint}
	}
}

// usageError is a wrong use of the command line.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(hint, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), hint: hint}
}

// exactArgs wants the arguments that names say.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef(cmd.UseLine(), "%s is missing", names[len(args)])
		case len(args) > len(names):
			return usagef(cmd.UseLine(), "unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// isTerminal reports that a person reads w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// exitCode is what an error means to a script.
func exitCode(err error) int {
	var (
		u *usageError
		c *weir.ConfigError
		d *weir.DriftError
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &u), errors.As(err, &c):
		return exitUsage
	case errors.As(err, &d):
		return exitDiffers
	}
	return exitFailed
}
