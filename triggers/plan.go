// Package triggers installs captures: it compares what the configuration wants
// with what the source has, and makes the difference, checks for it, or writes
// it down for others to apply. Plan and Render touch no database.
package triggers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// Engine is what this package needs of a dialect.
type Engine interface {
	// Resolve reads the catalog for the specs and renders what their
	// installation needs. It changes nothing. What cannot be captured is a
	// [*weir.ConfigError]; all of them are found and joined.
	Resolve(ctx context.Context, specs []weir.CaptureSpec) ([]weir.Resolved, error)
	// Installed returns what weir has installed, as the catalog shows it now.
	Installed(ctx context.Context) ([]weir.Object, error)
	// Apply runs the statements of one table in one transaction, and waits for
	// no lock longer than a moment: [*weir.UnavailableError] when it had to.
	Apply(ctx context.Context, group weir.Table, statements []string) error
}

// Action is what a step does with its object.
type Action string

// The actions.
const (
	Create  Action = "create"
	Replace Action = "replace"
	Drop    Action = "drop"
)

// Step does one thing to one object.
type Step struct {
	// Group is the table whose steps are applied in one transaction; zero for
	// queues.
	Group  weir.Table
	Action Action
	Object weir.Object
	// Disabled: what is replaced was found disabled.
	Disabled bool
	SQL      []string
}

// Plan is what would be done, in order.
type Plan struct {
	Steps []Step
	// Warnings tell what the triggers change for the application, what the
	// captures do not see, and what a plan leaves in place.
	Warnings []string
}

// Empty reports that nothing is to do.
func (p *Plan) Empty() bool { return len(p.Steps) == 0 }

// Compare plans how to come from what is installed to what is wanted. It is
// empty when they are alike.
//
// Queues are made first and dropped last. A table's steps stand together: drops
// before creations, in one transaction, so that its writers see the one or the
// other. Tables of which something is made come before tables of which all is
// dropped: a renamed table is captured under its new name before the old one's
// triggers go.
func Compare(wanted []weir.Resolved, installed []weir.Object) *Plan {
	p := &Plan{}
	have := map[identity]weir.Object{}
	for _, o := range installed {
		have[identify(o)] = o
	}
	want := map[identity]bool{}
	for _, r := range wanted {
		p.Warnings = append(p.Warnings, r.Warnings...)
		for _, o := range r.Objects {
			id := identify(o)
			if want[id] {
				continue // a queue that several captures feed
			}
			want[id] = true
			switch old, found := have[id]; {
			case !found:
				p.add(Create, o, o.Create)
			case old.Fingerprint != o.Fingerprint:
				p.add(Replace, o, o.Create)
				p.Steps[len(p.Steps)-1].Disabled = old.Disabled
			}
		}
	}
	for _, o := range installed {
		if !want[identify(o)] {
			p.drop(o)
		}
	}
	p.missed(wanted, installed)
	p.sort()
	return p
}

// CompareDrop plans to drop what is installed for the given tables; without
// any, all of it, queues included. A table without a schema means that of any.
func CompareDrop(installed []weir.Object, tables []weir.Table) (*Plan, error) {
	p := &Plan{}
	found := map[weir.Table]bool{}
	for _, o := range installed {
		i := slices.IndexFunc(tables, func(t weir.Table) bool {
			return t == o.Group || t.Schema == "" && t.Name != "" && t.Name == o.Group.Name
		})
		switch {
		case i >= 0:
			found[tables[i]] = true
		case len(tables) > 0:
			continue
		}
		p.drop(o)
	}
	for _, t := range tables {
		if !found[t] {
			return nil, &weir.ConfigError{Key: t.String(), Err: fmt.Errorf("no capture of it is installed"), Hint: installedTables(installed)}
		}
	}
	p.sort()
	return p, nil
}

func installedTables(installed []weir.Object) string {
	var names []string
	for _, o := range installed {
		if name := o.Group.String(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "nothing is installed: weir triggers apply"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// identity tells objects apart. Triggers alone are named within their table:
// the table of another object may be unknown once its capture's registration is
// gone.
type identity struct {
	kind  weir.ObjectKind
	name  string
	table weir.Table
}

func identify(o weir.Object) identity {
	id := identity{kind: o.Kind, name: o.Name}
	if o.Kind == weir.Trigger {
		id.table = o.Table
	}
	return id
}

func (p *Plan) add(action Action, o weir.Object, sql []string) {
	p.Steps = append(p.Steps, Step{Group: o.Group, Action: action, Object: o, SQL: sql})
}

func (p *Plan) drop(o weir.Object) {
	switch {
	case len(o.Drop) == 0 && o.Kind == weir.QueueTable:
		p.Warnings = append(p.Warnings, fmt.Sprintf("queue %q is kept: it still holds changes", o.Name))
		return
	case len(o.Drop) == 0:
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s is kept: weir cannot drop it", describe(o)))
		return
	case o.Kind == weir.Registration:
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s will not be captured any more, and changes of it that wait in a queue cannot be shipped then: pull them first", o.Table))
	}
	p.add(Drop, o, o.Drop)
}

// kinds are in the order in which they are made.
var kinds = []weir.ObjectKind{weir.QueueTable, weir.Registration, weir.Function, weir.Trigger}

func (p *Plan) sort() {
	makes := map[weir.Table]bool{}
	for _, s := range p.Steps {
		makes[s.Group] = makes[s.Group] || s.Action != Drop
	}
	// phase: queues made, tables with something made, tables dropped, queues
	// dropped.
	phase := func(s Step) int {
		switch {
		case s.Object.Kind == weir.QueueTable && s.Action != Drop:
			return 0
		case s.Object.Kind == weir.QueueTable:
			return 3
		case makes[s.Group]:
			return 1
		}
		return 2
	}
	order := func(s Step) int {
		if k := slices.Index(kinds, s.Object.Kind); s.Action != Drop {
			return k + 1
		} else {
			return -k
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int {
		return cmp.Or(
			phase(a)-phase(b),
			strings.Compare(a.Group.Schema, b.Group.Schema), strings.Compare(a.Group.Name, b.Group.Name),
			order(a)-order(b),
			strings.Compare(a.Object.Table.Schema, b.Object.Table.Schema), strings.Compare(a.Object.Table.Name, b.Object.Table.Name),
			strings.Compare(a.Object.Name, b.Object.Name),
		)
	})
	slices.Sort(p.Warnings)
	p.Warnings = slices.Compact(p.Warnings)
}

// groups cuts the steps into those that are applied together.
func (p *Plan) groups() [][]Step {
	var out [][]Step
	for i, s := range p.Steps {
		if i > 0 && s.Group == p.Steps[i-1].Group {
			out[len(out)-1] = append(out[len(out)-1], s)
		} else {
			out = append(out, []Step{s})
		}
	}
	return out
}

// SQL writes the plan as a script: each table's statements under a heading.
func (p *Plan) SQL() string {
	var b strings.Builder
	for i, g := range p.groups() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "-- %s\n", heading(g))
		writeSteps(&b, g)
	}
	return b.String()
}

func heading(g []Step) string {
	if g[0].Object.Kind == weir.QueueTable {
		return "queues"
	}
	return oneLine(g[0].Group.String())
}

func writeSteps(b *strings.Builder, steps []Step) {
	for _, s := range steps {
		fmt.Fprintf(b, "\n-- %s %s\n", s.Action, oneLine(describe(s.Object)))
		writeSQL(b, s.SQL)
	}
}

func writeSQL(b *strings.Builder, statements []string) {
	for _, sql := range statements {
		b.WriteString(strings.TrimRight(strings.TrimSpace(sql), ";"))
		b.WriteString(";\n")
	}
}

// describe names an object for people.
func describe(o weir.Object) string {
	switch o.Kind {
	case weir.QueueTable:
		return fmt.Sprintf("queue %q", o.Name)
	case weir.Registration:
		return "registration of " + o.Table.String()
	case weir.Trigger:
		return fmt.Sprintf("trigger %s on %s", o.Name, o.Table)
	case weir.Function:
	}
	return string(o.Kind) + " " + o.Name
}

// oneLine keeps a name with a line break inside its comment.
func oneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`, "\u0085", `\u0085`, "\u2028", `\u2028`).Replace(s)
}
