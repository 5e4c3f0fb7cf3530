package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-cdc/weir"
)

// minLease is long enough for a heartbeat to be late once.
const minLease = 5 * time.Second

// validate finds what contradicts itself. Each value is right by itself.
func (c *Config) validate(d *decoder) {
	c.validateSource(d)
	c.validateCaptures(d)
	names := map[string]string{}
	for i := range c.Pulls {
		p, at := &c.Pulls[i], fmt.Sprintf("pulls[%d]", i)
		if first, again := names[p.Name]; again {
			d.at(at+".name", "another name", "%q is the name of %s already", p.Name, first)
		}
		names[p.Name] = at
		c.validatePull(d, p, at)
	}
	if len(d.errs) == 0 {
		c.validateLines(d)
	}
}

func (c *Config) validateSource(d *decoder) {
	if c.Source.Schema != "" && embedded(c.Source.URL) {
		d.at("source.schema", "remove the key", "SQLite has no schemas")
	}
}

func (c *Config) validateCaptures(d *decoder) {
	type identity struct {
		table      weir.Table
		changeType string
	}
	seen := map[identity]string{}
	for i := range c.Captures {
		x, at := &c.Captures[i], fmt.Sprintf("captures[%d]", i)
		id := identity{c.table(x.Table), x.ChangeType}
		if first, again := seen[id]; again {
			d.at(at+".table", "remove one of the two, or give it a change_type of its own", "%s is captured by %s already", x.Table, first)
		}
		seen[id] = at
		if id.table.Name == "" {
			d.at(at+".table", "schema.table", "%q names no table", x.Table)
		}
		switch {
		case x.InstanceGUID == "" && x.ChangeType != "":
			d.at(at+".change_type", "name the column with the parent's GUID by instance_guid, or leave change_type out", "a child table needs instance_guid")
		case x.InstanceGUID == "" && x.OldPrimaryKey != "":
			d.at(at+".old_primary_key", "leave it out: a plain table's key goes to the queue by itself", "only an instance table has an old primary key")
		case x.ChangeType == weir.InstanceInserted || x.ChangeType == weir.InstanceDeleted:
			d.at(at+".change_type", "a name of your own, such as Instance Event Changed", "%q is what instances tag themselves", x.ChangeType)
		case utf8.RuneCountInString(x.ChangeType) > weir.MaxChangeType:
			d.at(at+".change_type", fmt.Sprintf("at most %d characters", weir.MaxChangeType), "%q is too long", x.ChangeType)
		}
	}
}

func (c *Config) validatePull(d *decoder, p *Pull, at string) {
	if _, err := time.LoadLocation(p.TimeZone); err != nil {
		d.at(at+".time_zone", "a name of the time zone database: UTC, Europe/Berlin", "%q is no time zone", p.TimeZone)
	}
	if time.Duration(p.Lease) < minLease {
		d.at(at+".lease", minLease.String()+" or more", "%s is too short", time.Duration(p.Lease))
	}
	if p.Target.Schema != "" && embedded(p.Target.URL) {
		d.at(at+".target.schema", "remove the key", "SQLite has no schemas")
	}
	var tables []string
	for _, x := range c.Captures {
		tables = append(tables, x.Table)
	}
	for j, name := range p.Captures {
		key := fmt.Sprintf("%s.captures[%d]", at, j)
		table := c.table(name)
		if !slices.ContainsFunc(tables, func(t string) bool { return c.table(t) == table }) {
			hint := nearest(name, tables)
			if hint == "" {
				hint = "add it to captures"
			}
			d.at(key, hint, "there is no capture of %s", name)
		}
		if slices.Contains(p.Captures[:j], name) {
			d.at(key, "remove one of the two", "%s is in the list already", name)
		}
	}
	for j, name := range p.ChangeTypes {
		if known := c.changeTypes(); !slices.Contains(known, name) && utf8.RuneCountInString(name) > weir.MaxChangeType {
			d.at(fmt.Sprintf("%s.change_types[%d]", at, j), nearest(name, known), "%q is longer than the %d characters of a change type", name, weir.MaxChangeType)
		}
	}
	landed := map[string]string{}
	for _, x := range c.CapturesOf(p) {
		table := c.table(x.Table)
		name := table.Name
		if embedded(p.Target.URL) {
			name = strings.ToLower(name)
		}
		if other, taken := landed[name]; taken && other != table.String() {
			d.at(at+".captures", "name one of the two by captures, and pull the other to another target.schema by a pull with a queue of its own",
				"%s and %s would both be written to table %s of the target", other, table, table.Name)
		}
		landed[name] = table.String()
		if weir.IsLedger(name) {
			d.at(at+".captures", "rename the table at the source, or name the others by captures", "%s would be written to table %s of the target, which is weir's own", table, table.Name)
		}
		if c.samePlace(p, table) {
			d.at(at+".target", "another database or schema", "the target's table %s is the captured table itself", table)
		}
	}
}

// validateLines finds pulls that stand in each other's way.
func (c *Config) validateLines(d *decoder) {
	for i := range c.Pulls {
		for j := range i {
			a, b, at := &c.Pulls[j], &c.Pulls[i], fmt.Sprintf("pulls[%d]", i)
			shared := c.shared(a, b)
			switch {
			case len(shared) == 0:
			case a.Queue == b.Queue:
				d.at(at+".queue", "queue: "+queueName(b.Name),
					"it shares queue %q and %s with pull %q, so each change would reach only one of the two", b.Queue, strings.Join(shared, ", "), a.Name)
			case a.Target.URL.Reveal() == b.Target.URL.Reveal() && a.Target.Schema == b.Target.Schema:
				d.at(at+".target", "another target.schema, or other captures",
					"it writes %s to the target of pull %q, so an older version of a row could overwrite a newer one", strings.Join(shared, ", "), a.Name)
			}
		}
	}
}

// shared are the tables of which one change could belong to both pulls.
func (c *Config) shared(a, b *Pull) []string {
	if !meet(a.Concepts, b.Concepts) || !meet(a.ChangeTypes, b.ChangeTypes) {
		return nil
	}
	var out []string
	of := c.CapturesOf(b)
	for _, x := range c.CapturesOf(a) {
		if slices.ContainsFunc(of, func(y *Capture) bool { return x == y }) && !slices.Contains(out, x.Table) {
			out = append(out, x.Table)
		}
	}
	return out
}

// meet reports whether two filters let something through together; an empty
// filter lets all through.
func meet[T comparable](a, b []T) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(v T) bool { return slices.Contains(b, v) })
}

// samePlace reports that the target's table is the source's.
func (c *Config) samePlace(p *Pull, table weir.Table) bool {
	if c.Source.URL.Reveal() != p.Target.URL.Reveal() {
		return false
	}
	schema := p.Target.Schema
	if schema == "" && !embedded(p.Target.URL) {
		schema = "public"
	}
	return embedded(p.Target.URL) || schema == table.Schema
}

func (c *Config) changeTypes() []string {
	out := []string{weir.InstanceInserted, weir.InstanceDeleted}
	for _, x := range c.Captures {
		if x.ChangeType != "" && !slices.Contains(out, x.ChangeType) {
			out = append(out, x.ChangeType)
		}
	}
	return out
}

// embedded reports a database without a server, which has no schemas.
func embedded(u URL) bool { return u.Scheme() == "sqlite" || u.Scheme() == "file" }

// queueName makes a queue's name of a pull's.
func queueName(pull string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(pull))
	return name[:min(len(name), 30)]
}
