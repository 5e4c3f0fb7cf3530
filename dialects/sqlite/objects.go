package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-cdc/weir"
)

// tagArgs is what the templates "tag", "cancel" and "append" work on. Type,
// Cancels and Collision are SQL expressions; Cancels and Collision may be empty.
type tagArgs struct {
	Queue, Type, Cancels, Now, Capture, Rows, Guid, Collision string
}

// triggerBody are the statements that tag, in order.
type triggerBody struct {
	p    *plan
	stmt []string
	err  error
}

func (b *triggerBody) render(name string, a tagArgs) {
	text, err := render(name, a)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.stmt = append(b.stmt, strings.TrimSpace(text))
}

// refuse fails the user's statement where what weir needs of a row is missing:
// a change is never uncaptured in silence.
func (b *triggerBody) refuse(alias string) {
	p := b.p
	for _, k := range p.keyCols {
		e := alias + "." + ident(k.Name)
		if p.Kind == weir.Plain {
			if !k.NotNull && k != p.table.alias() {
				b.stmt = append(b.stmt, fmt.Sprintf("select raise(abort, %s) where %s is null",
					literal(fmt.Sprintf("weir: a row of %s without a value of its key column %s cannot be captured", p.table.name, k.Name)), e))
			}
			continue
		}
		where := guidOf(e).Valid + " is not 1"
		if p.Kind == weir.Child {
			where = e + " is not null and " + where
		}
		b.stmt = append(b.stmt, fmt.Sprintf("select raise(abort, %s) where %s",
			literal(fmt.Sprintf("weir: column %s of %s is no GUID (36 characters or 16 bytes), so the row cannot be captured", k.Name, p.table.name)), where))
	}
}

// tag adds the statements that tag the row behind the alias. cancels is empty
// for a type that cancels none.
func (b *triggerBody) tag(alias, changeType, cancels string) {
	p := b.p
	rows, err := p.rowSelect(alias, "")
	if err != nil && b.err == nil {
		b.err = err
	}
	a := tagArgs{Type: literal(changeType), Now: tagTime, Capture: strconv.Itoa(int(p.ID)), Rows: rows}
	if p.Tagging == weir.Deferred {
		b.render("append", a)
		return
	}
	if p.Kind == weir.Plain {
		a.Collision = literal(fmt.Sprintf("weir: two keys of %s have one instance GUID", p.table.name))
	}
	for _, q := range p.Queues {
		a.Queue = ident(queueTable(q))
		if cancels != "" {
			a.Cancels = literal(cancels)
			a.Guid = "select g.guid from (" + rows + ") g"
		}
		b.render("tag", a)
		if cancels != "" {
			b.render("cancel", a)
		}
	}
}

// triggersOf renders the capture's triggers: insert, delete, update that keeps
// the key, and update that changes it.
func triggersOf(p *plan) ([]weir.Object, error) {
	present, absent := weir.InstanceInserted, weir.InstanceDeleted
	cancelsPresent, cancelsAbsent := absent, present // what each of the two cancels
	if p.Kind == weir.Child {
		present, absent, cancelsPresent, cancelsAbsent = p.ChangeType, p.ChangeType, "", ""
	}
	var same []string
	for _, k := range p.keyCols {
		same = append(same, fmt.Sprintf("old.%s is new.%s collate binary", ident(k.Name), ident(k.Name)))
	}
	kept := strings.Join(same, " and ")
	var out []weir.Object
	for _, t := range []struct {
		name, event, when string
		body              func(*triggerBody)
	}{
		{"insert", "insert", "", func(b *triggerBody) { b.refuse("new"); b.tag("new", present, cancelsPresent) }},
		{"delete", "delete", "", func(b *triggerBody) { b.tag("old", absent, cancelsAbsent) }},
		{"update", "update", " when " + kept, func(b *triggerBody) { b.tag("new", present, "") }},
		{"rekey", "update", " when not (" + kept + ")", func(b *triggerBody) {
			b.refuse("new")
			b.tag("old", absent, cancelsAbsent)
			b.tag("new", present, cancelsPresent)
		}},
	} {
		b := &triggerBody{p: p}
		t.body(b)
		if b.err != nil {
			return nil, b.err
		}
		name := fmt.Sprintf("weir_%d_%s", p.ID, t.name)
		// As sqlite_schema keeps it.
		sql := fmt.Sprintf("CREATE TRIGGER %s after %s on %s for each row%s\nbegin\n    %s;\nend", ident(name), t.event, ident(p.table.name), t.when, strings.Join(b.stmt, ";\n    "))
		drop := "drop trigger if exists " + ident(name)
		out = append(out, weir.Object{
			Kind: weir.Trigger, Name: name, Table: p.Table, Group: p.Table,
			Create: []string{drop, sql, forgetBackfill(p.ID)}, Drop: []string{drop}, Fingerprint: fingerprintOf(sql),
		})
	}
	return out, nil
}

// objectsOf renders what the capture's installation needs.
func objectsOf(p *plan) ([]weir.Object, error) {
	var out []weir.Object
	for _, q := range p.Queues {
		if q != weir.DefaultQueue {
			o, err := queueObject(q, true)
			if err != nil {
				return nil, err
			}
			out = append(out, o)
		}
	}
	out = append(out, registration(p))
	triggers, err := triggersOf(p)
	return append(out, triggers...), err
}

// queueObject is a further queue; one with changes in it is not dropped.
func queueObject(queue string, empty bool) (weir.Object, error) {
	table := queueTable(queue)
	create, err := render("queue/create_queue.sql", struct{ Table string }{ident(table)})
	if err != nil {
		return weir.Object{}, err
	}
	o := weir.Object{
		Kind: weir.QueueTable, Name: queue, Fingerprint: "queue",
		Create: []string{
			strings.TrimSpace(create),
			fmt.Sprintf("create index if not exists %s on %s (changed_on) where pull_guid is null", ident(table+"_unclaimed"), ident(table)),
			fmt.Sprintf("create index if not exists %s on %s (pull_guid) where pull_guid is not null", ident(table+"_pull"), ident(table)),
			fmt.Sprintf("insert into weir_queues (name, table_name) values (%s, %s) on conflict do nothing", literal(queue), literal(table)),
		},
	}
	if empty {
		o.Drop = []string{"drop table if exists " + ident(table), "delete from weir_queues where name = " + literal(queue)}
	}
	return o, nil
}

func jsonList(list []string) string {
	if list == nil {
		list = []string{}
	}
	b, _ := json.Marshal(list) // strings never fail
	return string(b)
}

func registration(p *plan) weir.Object {
	null := func(s string) string {
		if s == "" {
			return "null"
		}
		return literal(s)
	}
	concept := "null"
	if !p.ConceptGUID.IsZero() {
		concept = literal(p.ConceptGUID.String())
	}
	names, types := keyIdentity(p.keyCols)
	columns := []string{"table_name", "kind", "change_type", "concept_guid", "concept_column", "old_key_column", "key_columns", "key_types", "is_set", "row_key", "tagging"}
	values := []string{literal(p.Table.Name), literal(string(p.Kind)), literal(p.ChangeType), concept, null(p.ConceptColumn), null(p.OldKeyColumn),
		literal(jsonList(names)), literal(jsonList(types)), strconv.Itoa(boolInt(p.Set)), literal(jsonList(p.RowKey)), literal(string(p.Tagging))}
	var set []string
	for _, c := range columns {
		set = append(set, c+" = excluded."+c)
	}
	create := []string{
		fmt.Sprintf("insert into weir_captures (capture_id, %s) values (%d, %s) on conflict (capture_id) do update set %s",
			strings.Join(columns, ", "), p.ID, strings.Join(values, ", "), strings.Join(set, ", ")),
		fmt.Sprintf("delete from weir_capture_queues where capture_id = %d", p.ID),
	}
	for _, q := range p.Queues {
		create = append(create, fmt.Sprintf("insert into weir_capture_queues (capture_id, queue) values (%d, %s)", p.ID, literal(q)))
	}
	create = append(create, forgetBackfill(p.ID))
	return weir.Object{
		Kind: weir.Registration, Name: strconv.Itoa(int(p.ID)), Table: p.Table, Group: p.Table,
		Create: create, Drop: unregister(p.ID), Fingerprint: registrationFingerprint(p.Capture, names, types),
	}
}

// forgetBackfill makes the next backfill begin anew: a table made again, a key
// changed, a queue added, a trigger that was missing for a while have rows that
// no trigger tagged.
func forgetBackfill(id int32) string {
	return fmt.Sprintf("delete from weir_backfills where capture_id = %d", id)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func keyIdentity(cols []*column) (names, types []string) {
	for _, k := range cols {
		names, types = append(names, k.Name), append(types, k.declared)
	}
	return names, types
}

func unregister(id int32) []string {
	var out []string
	for _, table := range []string{"weir_capture_queues", "weir_backfills", "weir_captures"} {
		out = append(out, fmt.Sprintf("delete from %s where capture_id = %d", table, id))
	}
	return out
}

func registrationFingerprint(c *weir.Capture, names, types []string) string {
	return fmt.Sprintf("%q|%s|%s|%q|%q|%q|%q|%q|%t|%q|%s|%q", c.Table.Name, c.Kind, c.ConceptGUID, c.ChangeType, c.ConceptColumn,
		c.OldKeyColumn, names, types, c.Set, c.RowKey, c.Tagging, c.Queues)
}

var captureTrigger = regexp.MustCompile(`^weir_([0-9]+)_`)

// Installed returns what weir has installed, as the database shows it now.
func (s *Source) Installed(ctx context.Context) ([]weir.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var out []weir.Object
	err := s.db.read(ctx, "read what is installed", func(ctx context.Context, c *session) error {
		registered, err := readRegistry(ctx, c)
		if err != nil {
			return err
		}
		group := map[string]weir.Table{}
		for _, r := range registered {
			id := strconv.Itoa(int(r.ID))
			group[id] = r.Table
			out = append(out, weir.Object{
				Kind: weir.Registration, Name: id, Table: r.Table, Group: r.Table, Drop: unregister(r.ID),
				Fingerprint: registrationFingerprint(&r.Capture, r.keyNames(), r.keyTypes),
			})
		}
		queues, err := readQueues(ctx, c)
		if err != nil {
			return err
		}
		for _, q := range queues {
			if q == weir.DefaultQueue {
				continue
			}
			var empty bool
			if err := c.QueryRowContext(ctx, fmt.Sprintf("select not exists (select 1 from %s)", ident(queueTable(q)))).Scan(&empty); err != nil {
				return err
			}
			o, err := queueObject(q, empty)
			if err != nil {
				return err
			}
			out = append(out, o)
		}
		var name, table, sql string
		return c.each(ctx, "select name, tbl_name, sql from sqlite_schema where type = 'trigger' and name glob 'weir_*' and tbl_name not glob 'weir_*' order by tbl_name, name",
			nil, []any{&name, &table, &sql}, func() error {
				t := weir.Table{Name: table}
				g := t
				if m := captureTrigger.FindStringSubmatch(name); m != nil {
					if r, ok := group[m[1]]; ok {
						g = r
					}
				}
				out = append(out, weir.Object{
					Kind: weir.Trigger, Name: name, Table: t, Group: g,
					Drop: []string{"drop trigger if exists " + ident(name)}, Fingerprint: fingerprintOf(sql),
				})
				return nil
			})
	})
	return out, err
}

// Apply runs the statements of one table in one transaction.
func (s *Source) Apply(ctx context.Context, group weir.Table, statements []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.db.write(ctx, "apply to "+group.String(), weir.GUID{}, func(ctx context.Context, c *session) error {
		for _, sql := range statements {
			if _, err := c.ExecContext(ctx, sql); err != nil {
				return interpretError(err, weir.AtSource, "apply", group.String())
			}
		}
		return nil
	})
}
