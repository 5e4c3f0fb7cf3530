package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir/internal/config"
)

// setting chooses what a flag, an environment variable, the file and the
// default say, in this order.
func (a *app) setting(cmd *cobra.Command, flag, variable, file string) string {
	f := cmd.Root().PersistentFlags().Lookup(flag)
	if f.Changed {
		return f.Value.String()
	}
	if v, ok := a.env(variable); ok && v != "" {
		return v
	}
	if file != "" {
		return file
	}
	return f.DefValue
}

// setUpLog makes the logger; it is made again when the file has been read.
func (a *app) setUpLog(cmd *cobra.Command, file *config.Log) error {
	if file == nil {
		file = &config.Log{}
	}
	var level slog.Level
	name := a.setting(cmd, "log-level", "WEIR_LOG_LEVEL", file.Level)
	switch name {
	case "debug", "info", "warn", "error":
		_ = level.UnmarshalText([]byte(name)) // these four are known
	default:
		return usagef("debug, info, warn or error", "log level %q is not known", name)
	}
	switch format := a.setting(cmd, "log-format", "WEIR_LOG_FORMAT", file.Format); format {
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: inSeconds}))
	case "text":
		a.log = slog.New(tint.NewTextHandler(a.stderr, &tint.Options{Level: level, TimeFormat: "15:04:05", NoColor: !a.colour()}))
	default:
		return usagef("text or json", "log format %q is not known", format)
	}
	return nil
}

// inSeconds gives a duration its unit: slog's JSON has bare nanoseconds.
func inSeconds(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		return slog.Float64(attr.Key+"_seconds", attr.Value.Duration().Seconds())
	}
	return attr
}

// colour follows https://no-color.org.
func (a *app) colour() bool {
	no, _ := a.env("NO_COLOR")
	kind, _ := a.env("TERM")
	return isTerminal(a.stderr) && no == "" && !strings.EqualFold(kind, "dumb")
}

// load reads the configuration, and with it the file's say about logging.
func (a *app) load(cmd *cobra.Command) (*config.Config, error) {
	c, err := config.Load(a.setting(cmd, "config", "WEIR_CONFIG", ""), a.env)
	if err != nil {
		return nil, err
	}
	if err := a.setUpLog(cmd, &c.Log); err != nil {
		return nil, err
	}
	if err := a.checkConfig(c); err != nil {
		return nil, err
	}
	return c, nil
}

// doubt logs what the configuration perhaps does not mean.
func (a *app) doubt(c *config.Config) {
	for _, w := range c.Warnings() {
		a.log.Warn(fmt.Sprintf("%s: %s", c.File(), w))
	}
}
