package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// conceptOf is the concept of a plain table.
func conceptOf(t string) weir.GUID { return weir.ConceptOf(folded(t)) }

// folded is the table of a name, which is one in any case.
func folded(t string) weir.Table { return weir.Table{Name: lowerASCII(t)} }

// seedsOf are where a table's hashes begin.
func seedsOf(t string) []uint32 {
	h := sha256.Sum256([]byte("weir instance\x00\x00" + lowerASCII(t)))
	seeds := make([]uint32, 4)
	for i := range seeds {
		seeds[i] = binary.BigEndian.Uint32(h[4*i:]) % 2147483579
	}
	return seeds
}

// plan is a capture with what its SQL needs beyond the capture itself.
type plan struct {
	*weir.Capture
	table   *table
	keyCols []*column // the columns of Capture.Key
	order   []string  // quoted: what a backfill walks by
}

// Resolve reads the catalog for the specs and renders what their installation
// needs. It changes nothing.
func (s *Source) Resolve(ctx context.Context, specs []weir.CaptureSpec) ([]weir.Resolved, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var out []weir.Resolved
	err := s.db.read(ctx, "plan", func(ctx context.Context, c *session) error {
		registered, err := readRegistry(ctx, c)
		if err != nil {
			return err
		}
		taken := map[int32]string{}
		for _, r := range registered {
			taken[r.ID] = lowerASCII(r.Table.Name) + "\x00" + r.ChangeType
		}
		prefixes := map[string]string{}
		var errs []error
		for _, spec := range specs {
			p, warnings, err := resolve(ctx, c, spec)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			me := lowerASCII(p.Table.Name) + "\x00" + p.ChangeType
			for taken[p.ID] != "" && taken[p.ID] != me {
				p.ID++
			}
			taken[p.ID] = me
			if p.Kind == weir.Plain {
				prefix := instancePrefix(p.Table.Name)
				if other, clash := prefixes[prefix]; clash && other != p.Table.Name {
					errs = append(errs, &weir.ConfigError{Key: "captures: " + p.Table.String(),
						Err: fmt.Errorf("its instance GUIDs would collide with those of %s", other), Hint: "rename one of the two tables"})
					continue
				}
				prefixes[prefix] = p.Table.Name
			}
			objects, err := objectsOf(p)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out = append(out, weir.Resolved{Capture: p.Capture, Objects: objects, Warnings: warnings})
		}
		return errors.Join(errs...)
	})
	return out, err
}

func resolve(ctx context.Context, c *session, spec weir.CaptureSpec) (*plan, []string, error) {
	refuse := func(why, hint string) (*plan, []string, error) {
		return nil, nil, &weir.ConfigError{Key: "captures: " + spec.Table.String(), Err: errors.New(why), Hint: hint}
	}
	if spec.Table.Schema != "" && !equalNames(spec.Table.Schema, "main") {
		return refuse(fmt.Sprintf("schema %q: a trigger can only be on a table of the database file itself", spec.Table.Schema), "name the table without a schema")
	}
	t, err := describe(ctx, c, spec.Table.Name)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case t == nil:
		hint, err := nearNames(ctx, c, spec.Table.Name)
		if err != nil {
			return nil, nil, err
		}
		return refuse("there is no such table", hint)
	case t.kind != "table":
		return refuse("it is no ordinary table but of the kind "+t.kind, "capture the tables under it")
	case strings.HasPrefix(lowerASCII(t.name), "weir_"), strings.HasPrefix(lowerASCII(t.name), "sqlite_"):
		return refuse("it is a table of weir's or of SQLite's own", "leave it out")
	}
	cp := &weir.Capture{
		ID: weir.CaptureIDOf(folded(t.name), spec.ChangeType), Table: weir.Table{Name: t.name}, Kind: weir.Plain, ChangeType: spec.ChangeType,
		Tagging: spec.Tagging, Queues: slices.Clone(spec.Queues),
	}
	if len(cp.Queues) == 0 {
		cp.Queues = []string{weir.DefaultQueue}
	}
	slices.Sort(cp.Queues)
	p := &plan{Capture: cp, table: t}
	var warnings []string
	switch {
	case len([]rune(spec.ChangeType)) > weir.MaxChangeType:
		return refuse("its change_type is longer than 40 characters", "shorten it")
	case ownType(spec.ChangeType):
		return refuse(fmt.Sprintf("its change_type is %q, which rows of their own have", spec.ChangeType), "give the children's change another name")
	}
	columnName := func(name string) (string, error) {
		if name == "" {
			return "", nil
		}
		if col := t.column(name); col != nil {
			return col.Name, nil
		}
		return "", fmt.Errorf("it has no column %q", name)
	}
	if cp.OldKeyColumn, err = columnName(spec.OldPrimaryKey); err != nil {
		return refuse(err.Error(), "name a column of the table")
	}
	if spec.ConceptGUID != "" {
		if g, err := weir.ParseGUID(spec.ConceptGUID); err == nil {
			cp.ConceptGUID = g
		} else if cp.ConceptColumn, err = columnName(spec.ConceptGUID); err != nil {
			return refuse(fmt.Sprintf("concept_guid %q is neither a GUID nor a column of it", spec.ConceptGUID), "a column's name or 8-4-4-4-12 hexadecimal digits")
		}
	}
	key, why := t.key()
	switch {
	case spec.InstanceGUID == "":
		if spec.ChangeType != "" {
			return refuse("change_type is for children of an instance", "name the parent's column by instance_guid, or leave change_type out")
		}
		if spec.OldPrimaryKey != "" {
			return refuse("old_primary_key is for instance tables", "leave it out: a plain table's key goes there")
		}
		if cp.ConceptGUID.IsZero() && cp.ConceptColumn == "" {
			cp.ConceptGUID = conceptOf(t.name)
		}
		if why != nil {
			return refuse(why.Error(), "make the table anew with a PRIMARY KEY, or CREATE UNIQUE INDEX over NOT NULL columns that have a type and collate BINARY")
		}
		p.keyCols = key
		for _, k := range key {
			if k.NotNull || k == t.alias() {
				continue
			}
			var has bool
			if err := c.QueryRowContext(ctx, fmt.Sprintf("select exists (select 1 from %s where %s is null)", ident(t.name), ident(k.Name))).Scan(&has); err != nil {
				return nil, nil, err
			}
			if has {
				return refuse(fmt.Sprintf("key column %q is null in some rows", k.Name), "give these rows a key: rows without one cannot be told apart")
			}
			warnings = append(warnings, fmt.Sprintf("key column %q of %s is not declared NOT NULL: once captured, a row without a key is refused", k.Name, t.name))
		}
	default:
		name, err := columnName(spec.InstanceGUID)
		if err != nil {
			return refuse(err.Error(), "name a column of the table")
		}
		p.keyCols = []*column{t.column(name)}
		for _, k := range key {
			cp.RowKey = append(cp.RowKey, k.Name)
		}
		unique := slices.ContainsFunc(t.indexes, func(x index) bool {
			return !x.partial && len(x.columns) == 1 && equalNames(x.columns[0], name)
		})
		cp.Kind, cp.Set = weir.Instance, !unique
		if spec.ChangeType != "" {
			cp.Kind, cp.Set = weir.Child, true
			if !p.keyCols[0].NotNull {
				warnings = append(warnings, fmt.Sprintf("rows of %s whose %q is null belong to no instance, and are not captured", t.name, name))
			}
		} else if !p.keyCols[0].NotNull {
			return refuse(fmt.Sprintf("column %q may be null", name), "make the table anew with the column declared NOT NULL: every row needs its instance GUID")
		}
		if cp.Set && !slices.ContainsFunc(t.indexes, func(x index) bool { return len(x.columns) > 0 && equalNames(x.columns[0], name) }) {
			warnings = append(warnings, fmt.Sprintf("no index of %s begins with %q: each read of one instance's rows walks the whole table", t.name, name))
		}
	}
	for _, k := range p.keyCols {
		cp.Key = append(cp.Key, k.Column)
	}
	switch {
	case cp.Tagging != "":
	case cp.Set:
		cp.Tagging = weir.Deferred // many rows, one tag
	default:
		cp.Tagging = weir.AtOnce
	}
	warnings = append(warnings, p.replaceWarnings()...)
	p.backfillOrder(key)
	return p, warnings, nil
}

// replaceWarnings tell of changes that fire no trigger.
func (p *plan) replaceWarnings() []string {
	var others []string
	for _, x := range p.table.indexes {
		if x.origin == "pk" && p.Kind == weir.Plain || p.Kind == weir.Plain && slices.EqualFunc(x.columns, p.keyCols, func(n string, c *column) bool { return equalNames(n, c.Name) }) {
			continue
		}
		others = append(others, x.name)
	}
	if len(others) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("INSERT OR REPLACE and UPDATE OR REPLACE on %s: a row that they remove because of another unique index (%s) is captured only where the application sets PRAGMA recursive_triggers = ON",
		p.table.name, strings.Join(others, ", "))}
}

func (p *plan) backfillOrder(key []*column) {
	if len(key) == 0 && p.table.rowid != "" {
		p.order = []string{p.table.rowid}
		return
	}
	for _, k := range key {
		p.order = append(p.order, ident(k.Name))
	}
}

// instancePrefix is what the instance GUIDs of a plain table with one integer
// key begin with.
func instancePrefix(t string) string {
	g := conceptOf(t)
	return g.String()[:18]
}

// guidSQL are expressions over one that holds a GUID as text or as 16 bytes.
type guidSQL struct {
	Valid string // 1 where it is a GUID
	Text  string // in lower case
}

func guidOf(e string) guidSQL {
	hexDigits := "[0-9a-fA-F]"
	glob := strings.Repeat(hexDigits, 8) + "-" + strings.Repeat(strings.Repeat(hexDigits, 4)+"-", 3) + strings.Repeat(hexDigits, 12)
	h := "lower(hex(" + e + "))"
	return guidSQL{
		Valid: fmt.Sprintf("case typeof(%s) when 'blob' then length(%s) = 16 when 'text' then %s glob '%s' end", e, e, e, glob),
		Text: fmt.Sprintf("case typeof(%s) when 'blob' then substr(%s, 1, 8) || '-' || substr(%s, 9, 4) || '-' || substr(%s, 13, 4) || '-' || substr(%s, 17, 4) || '-' || substr(%s, 21) else lower(%s) end",
			e, h, h, h, h, h, e),
	}
}

// keyText is the SQL literal of a key column's value. Equal values give one
// text: a REAL that is a whole number is written as an integer. quote stops at a
// NUL character.
func keyText(c *column, e string) string {
	if c.affinity == affInteger && c.strict || c.affinity == affInteger && c.pk == 1 && strings.EqualFold(c.declared, "integer") {
		return e
	}
	return fmt.Sprintf("case typeof(%[1]s) when 'integer' then %[1]s "+
		"when 'real' then case when %[1]s = cast(%[1]s as integer) then cast(%[1]s as integer) else quote(%[1]s) end "+
		"when 'text' then case when instr(%[1]s, char(0)) then 'CAST(X''' || hex(%[1]s) || ''' AS TEXT)' else quote(%[1]s) end "+
		"else quote(%[1]s) end", e)
}

// rowSelect selects guid, key, concept and spelled of the row behind an alias;
// from, where it is not empty, is what the alias stands for.
func (p *plan) rowSelect(alias, from string) (string, error) {
	col := func(name string) string { return alias + "." + ident(name) }
	concept := "null"
	switch {
	case p.ConceptColumn != "":
		concept = guidOf(col(p.ConceptColumn)).Text
	case !p.ConceptGUID.IsZero():
		concept = literal(p.ConceptGUID.String())
	}
	if from != "" {
		from = " from " + from
	}
	if p.Kind != weir.Plain {
		e := col(p.keyCols[0].Name)
		key := "null"
		if p.OldKeyColumn != "" {
			key = "cast(" + col(p.OldKeyColumn) + " as text)"
		}
		g := guidOf(e)
		where := ""
		if p.Kind == weir.Child || from != "" {
			where = " where " + e + " is not null"
		}
		return fmt.Sprintf("select %s as guid, %s as key, %s as concept, nullif(quote(%s), quote(lower(%s))) as spelled%s%s", g.Text, key, concept, e, e, from, where), nil
	}
	texts := make([]string, len(p.keyCols))
	for i, k := range p.keyCols {
		texts[i] = keyText(k, col(k.Name))
	}
	key := "cast(" + texts[0] + " as text)"
	if len(texts) > 1 {
		key = "(" + strings.Join(texts, ") || ',' || (") + ")"
	}
	hash, err := render("hash", struct {
		Key   string
		Seeds []uint32
	}{key, seedsOf(p.table.name)})
	if err != nil {
		return "", err
	}
	k := col(p.keyCols[0].Name)
	whole := fmt.Sprintf("printf('%s-%%04x-%%012x', ((%s >> 48) + 32768) & 65535, %s & 281474976710655)", instancePrefix(p.table.name), k, k)
	switch {
	case len(p.keyCols) == 1 && (p.table.alias() != nil || p.keyCols[0].strict && p.keyCols[0].affinity == affInteger):
		return fmt.Sprintf("select %s as guid, %s as key, %s as concept, null as spelled%s", whole, key, concept, from), nil
	case len(p.keyCols) == 1 && p.keyCols[0].affinity == affInteger:
		return fmt.Sprintf("select case typeof(%s) when 'integer' then %s else (%s) end as guid, %s as key, %s as concept, null as spelled%s", k, whole, hash, key, concept, from), nil
	case from != "":
		return fmt.Sprintf("select (%s) as guid, %s as key, %s as concept, null as spelled%s", hash, key, concept, from), nil
	}
	// As a table of one row the hash is computed once, however often guid is used.
	return fmt.Sprintf("select h.guid, %s as key, %s as concept, null as spelled from (%s) h", key, concept, hash), nil
}

func fingerprintOf(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:12])
}

// nearNames is the hint for a table that does not exist.
func nearNames(ctx context.Context, c *session, name string) (string, error) {
	var near []string
	var other string
	err := c.each(ctx, "select name from pragma_table_list where schema = 'main' and type = 'table' and name not like 'sqlite!_%' escape '!' and name not like 'weir!_%' escape '!' order by name", nil, []any{&other}, func() error {
		if distance(lowerASCII(name), lowerASCII(other)) <= 2 {
			near = append(near, other)
		}
		return nil
	})
	if len(near) == 0 {
		return "check the name", err
	}
	return "did you mean " + strings.Join(near, " or ") + "?", err
}

// distance counts the characters to insert, delete or replace (Levenshtein).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			cost := diagonal
			if x[i] != y[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(y)]
}
