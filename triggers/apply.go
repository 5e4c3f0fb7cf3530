package triggers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// ApplyError says how far Apply came. What is applied stays; to plan and apply
// again goes on with the rest.
type ApplyError struct {
	Applied []weir.Table // tables that are done
	Failed  weir.Table   // zero for the queues
	Left    []weir.Table // tables that were not begun
	Err     error
}

func (e *ApplyError) Error() string {
	failed := e.Failed.String()
	if e.Failed == (weir.Table{}) {
		failed = "queues"
	}
	return fmt.Sprintf("apply to %s (%d applied, %d left): %v", failed, len(e.Applied), len(e.Left), e.Err)
}
func (e *ApplyError) Unwrap() error { return e.Err }

// Apply carries the plan out, one transaction a table, and stops at the first
// that fails with an [*ApplyError]. after, if not nil, is called with each
// table that is done and its steps; the zero table are queues.
func Apply(ctx context.Context, e Engine, p *Plan, after func(group weir.Table, steps []Step)) error {
	groups := p.groups()
	var applied []weir.Table
	for i, g := range groups {
		var sql []string
		for _, s := range g {
			sql = append(sql, s.SQL...)
		}
		if err := e.Apply(ctx, g[0].Group, sql); err != nil {
			var left []weir.Table
			for _, rest := range groups[i+1:] {
				left = append(left, rest[0].Group)
			}
			return &ApplyError{Applied: applied, Failed: g[0].Group, Left: left, Err: err}
		}
		applied = append(applied, g[0].Group)
		if after != nil {
			after(g[0].Group, g)
		}
	}
	return nil
}

// PlanFor resolves the specs, looks at what is installed, and compares. Each
// resolved capture is returned too.
func PlanFor(ctx context.Context, e Engine, specs []weir.CaptureSpec) (*Plan, []weir.Resolved, error) {
	wanted, err := e.Resolve(ctx, specs)
	if err != nil {
		return nil, nil, err
	}
	installed, err := e.Installed(ctx)
	if err != nil {
		return nil, nil, err
	}
	return Compare(wanted, installed), wanted, nil
}

// PlanDrop plans to drop the captures of the given tables, or all.
func PlanDrop(ctx context.Context, e Engine, tables []weir.Table) (*Plan, error) {
	installed, err := e.Installed(ctx)
	if err != nil {
		return nil, err
	}
	return CompareDrop(installed, tables)
}

// Check returns what differs between the configuration and the source: one
// [*weir.DriftError] an object, joined; nil when nothing does. A table that is
// captured, and cannot be any more (it was dropped, it lost its key), is one; a
// table that never was is a [*weir.ConfigError].
func Check(ctx context.Context, e Engine, specs []weir.CaptureSpec) error {
	p, _, err := PlanFor(ctx, e, specs)
	var wrong *weir.ConfigError
	if errors.As(err, &wrong) {
		return checkEach(ctx, e, specs)
	}
	if err != nil {
		return err
	}
	return p.Drift()
}

// checkEach is Check where not every spec can be resolved.
func checkEach(ctx context.Context, e Engine, specs []weir.CaptureSpec) error {
	installed, err := e.Installed(ctx)
	if err != nil {
		return err
	}
	var good []weir.CaptureSpec
	var errs []error
	for _, spec := range specs {
		_, err := e.Resolve(ctx, []weir.CaptureSpec{spec})
		var wrong *weir.ConfigError
		if err == nil {
			good = append(good, spec)
			continue
		}
		lost := func(o weir.Object) bool {
			return strings.EqualFold(o.Group.Name, spec.Table.Name) && (spec.Table.Schema == "" || o.Group.Schema == "" || o.Group.Schema == spec.Table.Schema)
		}
		if !errors.As(err, &wrong) || !slices.ContainsFunc(installed, func(o weir.Object) bool { return o.Kind == weir.Registration && lost(o) }) {
			errs = append(errs, err)
			continue
		}
		installed = slices.DeleteFunc(installed, lost) // it is told once
		errs = append(errs, &weir.DriftError{
			Object: "table " + spec.Table.String(), Err: fmt.Errorf("it was captured, and cannot be any more: %w", wrong.Err),
			Hint: wrong.Hint + "; or take it out of captures and run weir triggers apply",
		})
	}
	wanted, err := e.Resolve(ctx, good)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, Compare(wanted, installed).Drift())...)
}

// Drift tells the plan's steps as differences.
func (p *Plan) Drift() error {
	fresh := map[weir.Table]bool{} // was never captured
	for _, s := range p.Steps {
		if s.Action == Create && s.Object.Kind == weir.Registration {
			fresh[s.Group] = true
		}
	}
	var errs []error
	for _, s := range p.Steps {
		d := &weir.DriftError{Object: describe(s.Object), Hint: "weir triggers plan shows the difference and what it means for the target, weir triggers apply removes it"}
		kind := s.Object.Kind
		switch {
		case s.Action == Create && kind == weir.Trigger && !fresh[s.Group] && s.Object.Table != s.Group:
			d.Err = fmt.Errorf("it is missing: it was dropped, or %s became part of %s after the capture", s.Object.Table, s.Group)
		case s.Action == Create && (kind == weir.Trigger || kind == weir.Function) && !fresh[s.Group]:
			d.Err = errors.New("it was dropped")
		case s.Action == Create:
			d.Err = errors.New("it is missing")
		case s.Action == Drop:
			d.Err = errors.New("it is installed, and the configuration does not want it")
		case kind == weir.Registration:
			d.Err = errors.New("the table, its key or its configuration is not what was captured")
		case s.Disabled:
			d.Err = errors.New("it is disabled")
		case kind == weir.Trigger:
			d.Err = errors.New("its definition was changed")
		case kind == weir.Function:
			d.Err = errors.New("its body, its settings, its owner or its rights were changed")
		default:
			d.Err = errors.New("it was changed")
		}
		errs = append(errs, d)
	}
	return errors.Join(errs...)
}

// Summary counts the steps: 2 to create, 1 to drop.
func (p *Plan) Summary() string {
	var parts []string
	for _, a := range []Action{Create, Replace, Drop} {
		n := 0
		for _, s := range p.Steps {
			if s.Action == a {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, a))
		}
	}
	return strings.Join(parts, ", ")
}
