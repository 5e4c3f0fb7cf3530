package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// plan is a capture with what its SQL needs beyond the capture itself.
type plan struct {
	*weir.Capture
	table    *table
	keyCols  []*column // the columns of Capture.Key
	wide     string    // the type that OldPrimaryKey must have at least, or empty
	wideSize int       // its characters
}

// maxKeyColumns is how many columns GI_Keys has room for.
const maxKeyColumns = 8

// Resolve reads the catalog for the specs and renders what their installation
// needs. It changes nothing.
func (s *Source) Resolve(ctx context.Context, specs []weir.CaptureSpec) ([]weir.Resolved, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := s.server(ctx); err != nil {
		return nil, err
	}
	registered, err := s.registered(ctx, s)
	if err != nil {
		return nil, err
	}
	taken := map[int32]string{}
	for _, c := range registered {
		taken[c.ID] = c.Table.String() + "\x00" + c.ChangeType
	}
	var out []weir.Resolved
	var errs []error
	suffixes := map[string]weir.Table{}
	for _, spec := range specs {
		p, warnings, err := s.resolve(ctx, spec)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		me := p.Table.String() + "\x00" + p.ChangeType
		for taken[p.ID] != "" && taken[p.ID] != me {
			p.ID++
		}
		taken[p.ID] = me
		if p.Kind == weir.Plain {
			suffix := instanceSuffix(p.Table)
			if other, clash := suffixes[suffix]; clash && other != p.Table {
				errs = append(errs, &weir.ConfigError{Key: "captures: " + p.Table.String(),
					Err: fmt.Errorf("its instance GUIDs would collide with those of %s", other), Hint: "rename one of the two tables"})
				continue
			}
			suffixes[suffix] = p.Table
		}
		objects, err := s.objects(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, weir.Resolved{Capture: p.Capture, Objects: objects, Warnings: warnings})
	}
	return out, errors.Join(errs...)
}

func (s *Source) resolve(ctx context.Context, spec weir.CaptureSpec) (*plan, []string, error) {
	key := "captures: " + spec.Table.String()
	if strings.Contains(spec.Table.Name, ".") {
		// A name of three parts: the database in front must be this one.
		if other, err := s.ofDatabase(ctx, &spec.Table); err != nil {
			return nil, nil, err
		} else if other != "" {
			return nil, nil, &weir.ConfigError{Key: key, Err: fmt.Errorf("it is in the database %s", other), Hint: "a source is one database: give source.url that database"}
		}
	}
	if spec.Table.Schema == "" {
		spec.Table.Schema = DefaultSchema
	}
	t, err := findTable(ctx, s, spec.Table)
	if err != nil {
		return nil, nil, err
	}
	refuse := func(why, hint string) (*plan, []string, error) {
		return nil, nil, &weir.ConfigError{Key: "captures: " + t.String(), Err: errors.New(why), Hint: hint}
	}
	if t.kind != "U" {
		return refuse("it is not a table", "capture the tables under it")
	}
	about, err := s.about(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case about.history:
		return refuse("it is the history of a temporal table, which has no triggers", "capture the table whose history it is")
	case about.memory:
		return refuse("it is memory-optimized, whose triggers can only be natively compiled", "capture a disk-based table")
	case about.filtered != "":
		return refuse(fmt.Sprintf("the security policy %s filters its rows: a row that is hidden would be deleted at the target", about.filtered),
			"let the predicate pass weir's login, and say so by a policy without a FILTER predicate for it; or capture another table")
	case !about.maySelect:
		return refuse("the login that weir connects as may not read it", "GRANT SELECT ON "+tableName(t.Table)+" TO that login's user")
	case !about.mayAlter:
		return refuse("the login that weir connects as may not create triggers on it", "GRANT ALTER ON "+tableName(t.Table)+" TO that login's user")
	}
	if err := t.readCascades(ctx, s); err != nil {
		return nil, nil, translate(err, weir.AtSource, "describe", t.String())
	}
	c := &weir.Capture{
		ID: weir.CaptureIDOf(t.Table, spec.ChangeType), Table: t.Table, Kind: weir.Plain, ChangeType: spec.ChangeType,
		Tagging: spec.Tagging, Queues: slices.Clone(spec.Queues),
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{weir.DefaultQueue}
	}
	slices.Sort(c.Queues)
	p := &plan{Capture: c, table: t}
	if spec.RefuseTruncate {
		return refuse("SQL Server has no trigger for TRUNCATE", "leave truncate out; a foreign key to the table, or a denied ALTER, keeps others from truncating it")
	}
	for _, name := range []string{spec.InstanceGUID, spec.OldPrimaryKey} {
		if name != "" && t.column(name) == nil {
			return refuse(fmt.Sprintf("it has no column %q", name), "name the column as the catalog spells it")
		}
	}
	if spec.OldPrimaryKey != "" {
		col := t.column(spec.OldPrimaryKey)
		if _, _, ok := col.keyText("k"); !ok {
			return refuse(fmt.Sprintf("column %q of type %s has no text that weir can keep", col.Name, col.Native), "a column of numbers, text with a length, GUIDs, dates, times or binary")
		}
		c.OldKeyColumn = col.Name
	}
	if spec.ConceptGUID != "" {
		if g, err := weir.ParseGUID(spec.ConceptGUID); err == nil {
			c.ConceptGUID = g
		} else if col := t.column(spec.ConceptGUID); col == nil {
			return refuse(fmt.Sprintf("concept_guid %q is neither a GUID nor a column of it", spec.ConceptGUID), "a column's name or 8-4-4-4-12 hexadecimal digits")
		} else if col.base != "uniqueidentifier" {
			return refuse(fmt.Sprintf("column %q is no uniqueidentifier", spec.ConceptGUID), "a concept is a uniqueidentifier")
		} else {
			c.ConceptColumn = col.Name
		}
	}
	switch n := units(spec.ChangeType); {
	case n > weir.MaxChangeType:
		return refuse(fmt.Sprintf("change_type %q has %d characters", spec.ChangeType, n), fmt.Sprintf("at most %d characters", weir.MaxChangeType))
	case strings.EqualFold(spec.ChangeType, weir.InstanceInserted), strings.EqualFold(spec.ChangeType, weir.InstanceDeleted):
		return refuse(fmt.Sprintf("change_type %q is what rows of their own tag", spec.ChangeType), "another name, or leave change_type out for an instance table")
	case strings.ContainsFunc(spec.ChangeType, func(r rune) bool { return r > '~' }):
		if holds, err := s.holdsChangeType(ctx, spec.ChangeType); err != nil {
			return nil, nil, translate(err, weir.AtSource, "resolve", t.String())
		} else if !holds {
			return refuse(fmt.Sprintf("change_type %q is not text that ChangeType, varchar(40) in the database's collation, can hold", spec.ChangeType),
				"letters of the collation's code page, in at most 40 bytes")
		}
	}
	switch {
	case spec.InstanceGUID == "":
		if spec.ChangeType != "" {
			return refuse("change_type is for children of an instance", "name the parent's column by instance_guid, or leave change_type out")
		}
		if spec.OldPrimaryKey != "" {
			return refuse("old_primary_key is for instance tables", "leave it out: a plain table's key goes there")
		}
		if c.ConceptGUID.IsZero() && c.ConceptColumn == "" {
			c.ConceptGUID = weir.ConceptOf(t.Table)
		}
		if len(t.key) == 0 {
			return refuse("it has neither a primary key nor a unique index over not-null columns",
				"ALTER TABLE "+tableName(t.Table)+" ADD PRIMARY KEY (...), or a UNIQUE constraint over NOT NULL columns without a filter")
		}
		if len(t.key) > maxKeyColumns {
			return refuse(fmt.Sprintf("its key has %d columns", len(t.key)), fmt.Sprintf("a key of at most %d columns", maxKeyColumns))
		}
		for _, name := range t.key {
			col := t.column(name)
			if _, _, ok := col.keyText("k"); !ok {
				return refuse(fmt.Sprintf("key column %q of type %s can hold equal values whose texts differ, or has no lossless text", name, col.Native),
					"use a key of numbers, text whose collation tells accents apart (_AS), uniqueidentifier, dates, times or binary")
			}
			p.keyCols = append(p.keyCols, col)
		}
	default:
		col := t.column(spec.InstanceGUID)
		if col.base != "uniqueidentifier" {
			return refuse(fmt.Sprintf("column %q is no uniqueidentifier", spec.InstanceGUID), "instance_guid names a column of type uniqueidentifier")
		}
		p.keyCols = []*column{col}
		c.RowKey = t.key
		if spec.ChangeType != "" {
			c.Kind, c.Set = weir.Child, true
			break
		}
		c.Kind = weir.Instance
		if !col.NotNull {
			return refuse(fmt.Sprintf("column %q may be null", spec.InstanceGUID), "ALTER TABLE ... ALTER COLUMN ... uniqueidentifier NOT NULL: every row needs its instance GUID")
		}
		c.Set = !slices.ContainsFunc(t.uniques, func(u unique) bool { return u.plain && len(u.columns) == 1 && u.columns[0] == col.Name })
	}
	for _, col := range p.keyCols {
		c.Key = append(c.Key, col.Column)
	}
	s.widen(p)
	warnings := s.warnings(p, about)
	switch {
	case c.Set && c.Tagging == "":
		c.Tagging = weir.Deferred
	case c.Tagging == "":
		c.Tagging = weir.AtOnce
	case c.Set && c.Tagging == weir.AtOnce:
		warnings = append(warnings, fmt.Sprintf("%s tags something wider than its own row at once: transactions that touch rows of the same instances in different orders can deadlock, and wait for each other; tagging: deferred does not", t))
	}
	return p, warnings, nil
}

// holdsChangeType asks the server whether a change type stays as it is in
// weir's columns, which are varchar in the database's collation, and in the
// queue's own, which a site may have made with another.
func (s *Source) holdsChangeType(ctx context.Context, changeType string) (bool, error) {
	collations := []string{"DATABASE_DEFAULT"}
	queue, err := describeTable(ctx, s, weir.Table{Schema: s.schema, Name: queueTable(weir.DefaultQueue)})
	if err != nil {
		return false, err
	}
	if queue != nil {
		if c := queue.column("ChangeType"); c != nil && c.base == "varchar" {
			collations = append(collations, c.collation)
		}
	}
	for _, c := range collations {
		var held string
		if err := s.QueryRowContext(ctx, fmt.Sprintf("SELECT CONVERT(varchar(%d), @p1 COLLATE %s)", weir.MaxChangeType, c), changeType).Scan(&held); err != nil || held != changeType {
			return false, err
		}
	}
	return true, nil
}

// widen finds what OldPrimaryKey must hold for the capture's keys: never cut,
// and every character.
func (s *Source) widen(p *plan) {
	cols := p.keyCols
	if p.Kind != weir.Plain {
		if p.OldKeyColumn == "" {
			return
		}
		cols = []*column{p.table.column(p.OldKeyColumn)}
	}
	n, national := 0, false
	for _, c := range cols {
		w := c.keyWidth()
		if len(cols) > 1 {
			if w += 3; c.textual() {
				w = 2*w + 3
			}
		}
		n += w
		national = national || c.textual() && (c.unicode() || c.codePage != s.made.ansiCodes)
	}
	p.wideSize = min(n+2, 4000)
	switch {
	case national:
		p.wide = "nvarchar"
	case p.wideSize > 500:
		p.wide = "varchar"
	}
}
