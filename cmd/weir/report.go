package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// report prints an error for a person, each of those that are joined by itself,
// and returns the exit code. Where the log is JSON, so is each of them.
func (a *app) report(err error) int {
	if a.log != nil {
		if _, ok := a.log.Handler().(*slog.JSONHandler); ok {
			for _, e := range parts(err) {
				text, hint := split(e)
				log := a.log.With("error", text)
				if hint != "" {
					log = log.With("hint", hint)
				}
				log.Error("failed")
			}
			return exitCode(err)
		}
	}
	var hints []string
	for _, e := range parts(err) {
		text, hint := split(e)
		for i, line := range strings.Split(text, "\n") {
			if i == 0 {
				line = "weir: " + line
			} else {
				line = "  " + strings.TrimSpace(line)
			}
			fmt.Fprintln(a.stderr, clean(line))
		}
		// The same remedy for many faults is given once, behind the last of them.
		if hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
			if !shared(err, hint) {
				fmt.Fprintln(a.stderr, "Try: "+clean(hint))
			}
		}
	}
	for _, hint := range hints {
		if shared(err, hint) {
			fmt.Fprintln(a.stderr, "Try: "+clean(hint))
		}
	}
	return exitCode(err)
}

// shared reports that more than one of the joined errors has the hint.
func shared(err error, hint string) bool {
	n := 0
	for _, e := range parts(err) {
		if _, h := split(e); h == hint {
			n++
		}
	}
	return n > 1
}

// parts takes joined errors apart.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	j, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	var texts []string
	for _, e := range j.Unwrap() {
		texts = append(texts, e.Error())
		out = append(out, parts(e)...)
	}
	// An error that wraps several and has a text of its own is one.
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return out
}

// split takes the hint out of an error's text.
func split(err error) (text, hint string) {
	var (
		u *usageError
		c *weir.ConfigError
		d *weir.DriftError
		o *weir.UnavailableError
	)
	switch {
	case errors.As(err, &u):
		hint = u.hint
	case errors.As(err, &c):
		hint = c.Hint
	case errors.As(err, &d):
		hint = d.Hint
	case errors.As(err, &o):
		return err.Error(), o.Hint
	}
	text = err.Error()
	if hint != "" {
		text = strings.Replace(text, ". Try: "+hint, "", 1)
		text = strings.TrimSuffix(strings.Replace(text, "Try: "+hint, "", 1), ": ")
		return text, hint
	}
	text, hint, _ = strings.Cut(text, ". Try: ")
	return text, hint
}
