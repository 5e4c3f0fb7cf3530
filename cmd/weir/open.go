package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/internal/config"
)

// withSource loads the configuration, opens its source and gives both to f.
// Errors that come back name the file and line where they can.
func (a *app) withSource(cmd *cobra.Command, f func(ctx context.Context, c *config.Config, s dialects.Source) error) (err error) {
	c, err := a.load(cmd)
	if err != nil {
		return err
	}
	s, err := openSource(cmd.Context(), c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return locate(c, -1, f(cmd.Context(), c, s))
}

func openSource(ctx context.Context, c *config.Config) (dialects.Source, error) {
	s, err := dialects.OpenSource(ctx, c.Source.URL.Reveal(), dialects.SourceOptions{Schema: c.Source.Schema})
	if err != nil {
		return nil, at(c, "source.url", err)
	}
	return s, nil
}

func openTarget(ctx context.Context, c *config.Config, place int) (weir.Target, error) {
	t := &c.Pulls[place].Target
	target, err := dialects.OpenTarget(ctx, t.URL.Reveal(), t.Options())
	if err != nil {
		return nil, at(c, fmt.Sprintf("pulls[%d].target.url", place), err)
	}
	return target, nil
}

// checkConfig finds what only a dialect or the scheduler can tell to be wrong,
// without a connection.
func (a *app) checkConfig(c *config.Config) error {
	var errs []error
	check := func(key string, err error) {
		if err != nil {
			errs = append(errs, at(c, key, err))
		}
	}
	check("source.url", dialects.Check(c.Source.URL.Reveal()))
	for i := range c.Pulls {
		check(fmt.Sprintf("pulls[%d].target.url", i), dialects.Check(c.Pulls[i].Target.URL.Reveal()))
		if _, err := schedule(&c.Pulls[i]); err != nil {
			errs = append(errs, c.Fault(fmt.Sprintf("pulls[%d].schedule", i), err, `five cron fields ("*/5 * * * *"), @hourly, or @every 30s`))
		}
	}
	return errors.Join(errs...)
}

// at gives a configuration error the file and line of a key.
func at(c *config.Config, key string, err error) error {
	var e *weir.ConfigError
	if !errors.As(err, &e) || e.File != "" {
		return err
	}
	return c.Fault(key, e.Err, e.Hint)
}

// locate gives each configuration error that names a capture, the source, or
// the target of the pull at place (none: -1), the file and line of that.
func locate(c *config.Config, place int, err error) error {
	list := parts(err)
	changed := false
	for i, p := range list {
		e, ok := p.(*weir.ConfigError)
		if !ok || e.File != "" {
			continue
		}
		table, isCapture := strings.CutPrefix(e.Key, "captures: ")
		for j := range c.Captures {
			if t := weir.ParseTable(c.Captures[j].Table); isCapture && (t.String() == table || t.Schema == "" && strings.HasSuffix(table, "."+t.Name)) {
				f := c.Fault(fmt.Sprintf("captures[%d].table", j), e.Err, e.Hint)
				f.Key = table
				list[i], changed = f, true
				break
			}
		}
		// Dialects name an object behind the side: source public.orders.
		side, _, _ := strings.Cut(e.Key, " ")
		switch {
		case side == "source" || strings.HasPrefix(side, "source."):
		case place >= 0 && (side == "target" || strings.HasPrefix(side, "target.")):
			side = fmt.Sprintf("pulls[%d].%s", place, side)
		default:
			continue
		}
		f := c.Fault(side, e.Err, e.Hint)
		f.Key += e.Key[min(len(e.Key), strings.IndexByte(e.Key+" ", ' ')):]
		list[i], changed = f, true
	}
	if !changed {
		return err
	}
	return errors.Join(list...)
}
