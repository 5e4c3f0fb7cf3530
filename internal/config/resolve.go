package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// CapturesOf are the captures that a pull takes, in the file's order.
func (c *Config) CapturesOf(p *Pull) []*Capture {
	var out []*Capture
	for i := range c.Captures {
		table := c.table(c.Captures[i].Table)
		if len(p.Captures) == 0 || slices.ContainsFunc(p.Captures, func(name string) bool { return c.table(name) == table }) {
			out = append(out, &c.Captures[i])
		}
	}
	return out
}

// table is what a name means at the source: PostgreSQL's tables without a schema
// are in public, so that a table has one name here.
func (c *Config) table(name string) weir.Table {
	t := weir.ParseTable(name)
	if t.Schema == "" && strings.HasPrefix(c.Source.URL.Scheme(), "postgres") {
		t.Schema = "public"
	}
	return t
}

// Specs are the captures as the dialects take them, each with the queues of the
// pulls that want it; one that no pull wants feeds the default queue, for
// pullers written by hand.
func (c *Config) Specs() []weir.CaptureSpec {
	out := make([]weir.CaptureSpec, len(c.Captures))
	for i := range c.Captures {
		x := &c.Captures[i]
		out[i] = weir.CaptureSpec{
			Table: c.table(x.Table), InstanceGUID: x.InstanceGUID, ConceptGUID: x.ConceptGUID, OldPrimaryKey: x.OldPrimaryKey,
			ChangeType: x.ChangeType, Tagging: x.Tagging, RefuseTruncate: x.Truncate == "refuse", Queues: c.queuesOf(x),
		}
	}
	return out
}

func (c *Config) queuesOf(x *Capture) []string {
	var out []string
	for i := range c.Pulls {
		if p := &c.Pulls[i]; slices.Contains(c.CapturesOf(p), x) && !slices.Contains(out, p.Queue) {
			out = append(out, p.Queue)
		}
	}
	if len(out) == 0 {
		out = []string{weir.DefaultQueue}
	}
	slices.Sort(out)
	return out
}

// Queues are all queues that the pulls name, sorted, and the default queue.
func (c *Config) Queues() []string {
	out := []string{weir.DefaultQueue}
	for i := range c.Pulls {
		out = append(out, c.Pulls[i].Queue)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Options say how the target writes.
func (t *Target) Options() weir.TargetOptions {
	return weir.TargetOptions{Schema: t.Schema, Mode: t.Mode, NewColumns: t.NewColumns}
}

// Warnings tell what is allowed and perhaps not meant.
func (c *Config) Warnings() []string {
	var out []string
	for i := range c.Captures {
		x := &c.Captures[i]
		if len(c.Pulls) > 0 && !slices.ContainsFunc(c.Pulls, func(p Pull) bool { return slices.Contains(c.CapturesOf(&p), x) }) {
			out = append(out, fmt.Sprintf("no pull takes the changes of %s: they stay in queue %q", x.Table, weir.DefaultQueue))
		}
	}
	for i := range c.Pulls {
		p := &c.Pulls[i]
		inserted, deleted := slices.Contains(p.ChangeTypes, weir.InstanceInserted), slices.Contains(p.ChangeTypes, weir.InstanceDeleted)
		if inserted != deleted {
			out = append(out, fmt.Sprintf("pull %q takes only one of %q and %q: the other's changes do not reach its target", p.Name, weir.InstanceInserted, weir.InstanceDeleted))
		}
		for _, t := range p.ChangeTypes {
			if !slices.Contains(c.changeTypes(), t) {
				out = append(out, fmt.Sprintf("pull %q takes change type %q, which no capture tags (known: %s)", p.Name, t, strings.Join(c.changeTypes(), ", ")))
			}
		}
	}
	return out
}
