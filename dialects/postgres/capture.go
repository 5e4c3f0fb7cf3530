package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weir-cdc/weir"
)

// plan is a capture with what its SQL needs beyond the capture itself.
type plan struct {
	*weir.Capture
	table    *table
	keyCols  []*column // the columns of Capture.Key
	family   []member
	distinct bool   // one statement may hold a key twice
	rowLevel bool   // a subscription writes the table
	owner    string // of weir's tables, as SQL: its functions write there with its rights
}

// member is a table that triggers are attached to.
type member struct {
	weir.Table
	oid uint32
}

// Resolve reads the catalog for the specs and renders what their installation
// needs. It changes nothing.
func (s *Source) Resolve(ctx context.Context, specs []weir.CaptureSpec) ([]weir.Resolved, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	registered, err := s.registered(ctx)
	if err != nil {
		return nil, err
	}
	taken := map[int32]string{}
	for _, c := range registered {
		taken[c.ID] = c.Table.String() + "\x00" + c.ChangeType
	}
	var owner string
	if err := s.pool.QueryRow(ctx, "select case when pg_get_userbyid(c.relowner) = current_user then 'current_user' else quote_ident(pg_get_userbyid(c.relowner)) end "+
		"from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'captures'", s.schema).Scan(&owner); err != nil {
		return nil, translate(err, weir.AtSource, "plan", "")
	}
	var out []weir.Resolved
	var errs []error
	prefixes := map[string]weir.Table{}
	for _, spec := range specs {
		p, warnings, err := s.resolve(ctx, spec)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.owner = owner
		me := p.Table.String() + "\x00" + p.ChangeType
		for taken[p.ID] != "" && taken[p.ID] != me {
			p.ID++
		}
		taken[p.ID] = me
		if p.Kind == weir.Plain {
			prefix := instancePrefix(p.Table)
			if other, clash := prefixes[prefix]; clash && other != p.Table {
				errs = append(errs, &weir.ConfigError{Key: "captures: " + p.Table.String(),
					Err: fmt.Errorf("its instance GUIDs would collide with those of %s", other), Hint: "rename one of the two tables"})
				continue
			}
			prefixes[prefix] = p.Table
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
	t, err := findTable(ctx, s.pool, spec.Table)
	if err != nil {
		return nil, nil, err
	}
	refuse := func(why, hint string) (*plan, []string, error) {
		return nil, nil, &weir.ConfigError{Key: "captures: " + t.String(), Err: errors.New(why), Hint: hint}
	}
	switch {
	case strings.HasPrefix(t.Schema, "pg_"), t.Schema == "information_schema":
		return refuse("it is PostgreSQL's own, and no trigger sees what is written there", "leave it out")
	case s.keeps(t.Table):
		return refuse("it is a table of weir's own", "leave it out")
	case t.relkind != "r" && t.relkind != "p":
		return refuse("it is not a table", "capture the tables under it")
	case t.partition:
		return refuse("it is a partition", "capture the partitioned table that it belongs to")
	case !t.maySelect:
		return refuse("the role that weir connects as may not read it", "GRANT SELECT ON "+tableName(t.Table)+" TO that role")
	case !t.mayTrigger:
		return refuse("the role that weir connects as may not create triggers on it", "GRANT TRIGGER ON "+tableName(t.Table)+" TO that role")
	case t.filtered:
		return refuse("row-level security hides rows of it from the role that weir connects as", "ALTER ROLE ... BYPASSRLS, or connect as the table's owner: a row that is hidden would be deleted at the target")
	}
	c := &weir.Capture{
		ID: weir.CaptureIDOf(t.Table, spec.ChangeType), Table: t.Table, Kind: weir.Plain, ChangeType: spec.ChangeType,
		Tagging: spec.Tagging, RefuseTruncate: spec.RefuseTruncate, Queues: slices.Clone(spec.Queues), OldKeyColumn: spec.OldPrimaryKey,
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{weir.DefaultQueue}
	}
	slices.Sort(c.Queues)
	p := &plan{Capture: c, table: t, rowLevel: t.subscribed, distinct: t.children || !t.immediate}
	for _, name := range []string{spec.InstanceGUID, spec.OldPrimaryKey} {
		if name != "" && t.column(name) == nil {
			return refuse(fmt.Sprintf("it has no column %q", name), "name the column as the catalog spells it")
		}
	}
	if spec.ConceptGUID != "" {
		if g, err := weir.ParseGUID(spec.ConceptGUID); err == nil {
			c.ConceptGUID = g
		} else if col := t.column(spec.ConceptGUID); col == nil {
			return refuse(fmt.Sprintf("concept_guid %q is neither a GUID nor a column of it", spec.ConceptGUID), "a column's name or 8-4-4-4-12 hexadecimal digits")
		} else if col.oid != pgtype.UUIDOID {
			return refuse(fmt.Sprintf("column %q is no uuid", spec.ConceptGUID), "a concept is a uuid")
		} else {
			c.ConceptColumn = spec.ConceptGUID
		}
	}
	switch n := utf8.RuneCountInString(spec.ChangeType); {
	case n > weir.MaxChangeType:
		return refuse(fmt.Sprintf("change_type %q has %d characters", spec.ChangeType, n), fmt.Sprintf("at most %d characters", weir.MaxChangeType))
	case spec.ChangeType == weir.InstanceInserted || spec.ChangeType == weir.InstanceDeleted:
		return refuse(fmt.Sprintf("change_type %q is what rows of their own tag", spec.ChangeType), "another name, or leave change_type out for an instance table")
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
				"ALTER TABLE "+tableName(t.Table)+" ADD PRIMARY KEY (...), or a UNIQUE constraint over NOT NULL columns without a predicate")
		}
		for _, name := range t.key {
			col := t.column(name)
			if _, _, ok := col.keyText("k"); !ok {
				return refuse(fmt.Sprintf("key column %q of type %s can hold equal values whose texts differ, or has no lossless text", name, col.Native),
					"use a key of numbers, text with a deterministic collation, uuid, dates, times, bytea, inet or enums")
			}
			p.keyCols = append(p.keyCols, col)
		}
	default:
		col := t.column(spec.InstanceGUID)
		if col.oid != pgtype.UUIDOID {
			return refuse(fmt.Sprintf("column %q is no uuid", spec.InstanceGUID), "instance_guid names a column of type uuid")
		}
		p.keyCols = []*column{col}
		c.RowKey = t.key
		if spec.ChangeType != "" {
			c.Kind, c.Set = weir.Child, true
			break
		}
		c.Kind = weir.Instance
		if !col.NotNull {
			return refuse(fmt.Sprintf("column %q may be null", spec.InstanceGUID), "ALTER TABLE ... ALTER COLUMN ... SET NOT NULL: every row needs its instance GUID")
		}
		var unique bool
		if err := s.pool.QueryRow(ctx, catalogSQL("unique_column"), int64(t.oid), col.Name).Scan(&unique); err != nil {
			return nil, nil, translate(err, weir.AtSource, "describe", t.String())
		}
		c.Set = !unique
	}
	for _, col := range p.keyCols {
		c.Key = append(c.Key, col.Column)
	}
	warnings, err := s.attach(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if c.Set || p.rowLevel {
		p.distinct = true
	}
	switch {
	case p.rowLevel, c.Set && c.Tagging == "":
		c.Tagging = weir.Deferred
	case c.Tagging == "":
		c.Tagging = weir.AtOnce
	case c.Set && c.Tagging == weir.AtOnce:
		warnings = append(warnings, fmt.Sprintf("%s tags something wider than its own row at once: transactions that touch rows of the same instances in different orders can deadlock, and wait for each other; tagging: deferred does not", t))
	}
	return p, warnings, nil
}

// keeps reports that a table is weir's own: at the source, where others may
// stand in the same schema, or at a target that is the same database.
func (s *Source) keeps(t weir.Table) bool {
	switch t.Name {
	case weir.LedgerTable, weir.LedgerIdentityTable:
		return true
	case "queues", "inbox", "pulls", "failures", "captures", "capture_queues", "backfills", "schema_migrations", "instance_changes":
		return t.Schema == s.schema
	}
	return t.Schema == s.schema && strings.HasPrefix(t.Name, "instance_changes_")
}

// attach finds the tables that the triggers go on.
func (s *Source) attach(ctx context.Context, p *plan) ([]string, error) {
	t := p.table
	var warnings []string
	rows, err := s.pool.Query(ctx, catalogSQL("family"), int64(t.oid), triggerName(p.ID, "truncate"))
	if err != nil {
		return nil, translate(err, weir.AtSource, "describe", t.String())
	}
	var schema, name, kind string
	var oid int64
	var subscribed, has, rootHas bool
	var foreign, late []string
	if _, err := pgx.ForEachRow(rows, []any{&schema, &name, &oid, &kind, &subscribed, &has}, func() error {
		m := member{Table: weir.Table{Schema: schema, Name: name}, oid: uint32(oid)}
		p.rowLevel = p.rowLevel || subscribed
		rootHas = rootHas || has && m.oid == t.oid
		switch {
		case kind == "f":
			foreign = append(foreign, m.String())
		case kind == "r" && rootHas && !has:
			late = append(late, m.String())
		}
		p.family = append(p.family, m)
		return nil
	}); err != nil {
		return nil, translate(err, weir.AtSource, "describe", t.String())
	}
	if len(foreign) > 0 {
		return nil, &weir.ConfigError{Key: "captures: " + t.String(), Err: fmt.Errorf("%s belongs to it and is a foreign table: its rows cannot be captured here, and statements on %s that reach it would fail", strings.Join(foreign, ", "), t),
			Hint: "detach it, and capture it where it is"}
	}
	for _, name := range late {
		warnings = append(warnings, fmt.Sprintf("%s became part of %s after its capture: the rows that it came with, and those written by its own name until now, are not tagged; run weir backfill %s after apply", name, t, t))
	}
	if t.children {
		warnings = append(warnings, fmt.Sprintf("%s has inheritance children: their rows are captured with it, and keys must be unique over all of them, which PostgreSQL does not enforce", t))
	}
	if p.rowLevel {
		warnings = append(warnings, fmt.Sprintf("a subscription writes %s: it gets row-level triggers enabled always, since logical replication fires no others; a large statement costs more", t))
	}
	if p.Kind == weir.Child && !p.keyCols[0].NotNull {
		warnings = append(warnings, fmt.Sprintf("rows of %s whose %s is null belong to no instance, and are not captured", t, ident(p.keyCols[0].Name)))
	}
	if p.RefuseTruncate {
		warnings = append(warnings, fmt.Sprintf("TRUNCATE of %s will fail (truncate: refuse)", t))
	}
	return warnings, nil
}

// instancePrefix is what the instance GUIDs of a plain table with one integer
// key begin with: 16 hexadecimal digits. It follows the table's name and not a
// configured concept, which two tables may share.
func instancePrefix(t weir.Table) string {
	g := weir.ConceptOf(t)
	return hex.EncodeToString(g[:8])
}

// instanceSeed is what the hash of other keys begins with.
func instanceSeed(t weir.Table) string {
	g := weir.ConceptOf(t)
	return hex.EncodeToString(g[:])
}

// rowSQL are the expressions over a row alias that a capture's SQL is made of.
type rowSQL struct {
	guid, key, concept string
	sets               []string // settings that the key's text depends on
}

func (p *plan) row(alias string) rowSQL {
	col := func(name string) string { return alias + "." + ident(name) }
	r := rowSQL{key: "null::text", concept: "null::uuid"}
	switch {
	case p.ConceptColumn != "":
		r.concept = col(p.ConceptColumn)
	case !p.ConceptGUID.IsZero():
		r.concept = literal(p.ConceptGUID.String()) + "::uuid"
	}
	if p.Kind != weir.Plain {
		r.guid = col(p.keyCols[0].Name)
		if p.OldKeyColumn != "" {
			r.key = col(p.OldKeyColumn) + "::text"
		}
		return r
	}
	texts := make([]string, len(p.keyCols))
	for i, c := range p.keyCols {
		text, sets, _ := c.keyText(col(c.Name))
		texts[i] = text
		for _, set := range sets {
			if !slices.Contains(r.sets, set) {
				r.sets = append(r.sets, set)
			}
		}
	}
	r.key = texts[0]
	if len(texts) > 1 {
		r.key = "json_build_array(" + strings.Join(texts, ", ") + ")::text"
	}
	if len(p.keyCols) == 1 && isInteger(p.keyCols[0].oid) {
		// The key with its sign bit flipped sorts in a uuid as the key does.
		r.guid = fmt.Sprintf("(%s || encode(int8send(%s::bigint # (-9223372036854775808)), 'hex'))::uuid", literal(instancePrefix(p.Table)), col(p.keyCols[0].Name))
	} else {
		r.guid = fmt.Sprintf("md5(%s || %s)::uuid", literal(instanceSeed(p.Table)), r.key)
	}
	return r
}

func isInteger(oid uint32) bool {
	return oid == pgtype.Int2OID || oid == pgtype.Int4OID || oid == pgtype.Int8OID
}
