package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-cdc/weir"
)

// capture SQL templates get this.
type tagging struct {
	Schema                  string
	ID                      int32
	PresentType, AbsentType string // literals
	AtOnce, Child, RowLevel bool
	RefuseTruncate          bool
	New, Old, Both          string // selects of guid, key, concept
	KeysGone                string // a select that has rows if the statement took keys away
	NewIsSmall, OldIsSmall  string // conditions: few rows enough to tag at once
	OldIsOnce               string // OldIsSmall, and surely each instance is there once
	KeysKept                string // a condition: NewIsSmall, surely no keys were taken away, and each instance is there once
	KeysKeptInMany          string // the same for as many rows as an array of keys may have
	Ordered                 bool   // the queue's rows are shared with other rows' captures
	TruncateRows            string // as Old, of %s
	Table, KeyMatch         string
	Queues                  []queueSQL
}

type queueSQL struct{ Table, TagFunction string }

// tagArgs is what the templates "tag", "upsert" and "append" work on.
type tagArgs struct {
	Schema              string
	ID                  int32
	Queue               queueSQL
	Type, Cancels, Rows string
	When                string
	Ordered             bool
}

// Tag gives the template of a queue its arguments; cancels is empty for a type
// that cancels none, when is the condition under which anything is done.
func (t tagging) Tag(q queueSQL, typ, cancels, rows, when string) tagArgs {
	if t.Child {
		cancels = ""
	}
	return tagArgs{Schema: t.Schema, ID: t.ID, Queue: q, Type: typ, Cancels: cancels, Rows: rows, When: when, Ordered: t.Ordered}
}

// Append gives the template of the inbox its arguments.
func (t tagging) Append(typ, rows string) tagArgs {
	return tagArgs{Schema: t.Schema, ID: t.ID, Type: typ, Rows: rows}
}

// largeStatement is the number of rows from which tagging at once costs the
// user more than appending to the inbox and folding cost altogether.
const largeStatement = 1000

// arrayStatement is the number of rows from which keys are compared without
// putting them into an array, which has to fit into 1 GB.
const arrayStatement = 1_000_000

func (s *Source) tagging(p *plan) tagging {
	r := p.row("r")
	present, absent := weir.InstanceInserted, weir.InstanceDeleted
	if p.Kind == weir.Child {
		present, absent = p.ChangeType, p.ChangeType
	}
	where := ""
	if p.Kind != weir.Plain && !p.keyCols[0].NotNull {
		where = " where " + r.guid + " is not null"
	}
	selects := func(from string) string {
		list := fmt.Sprintf("%s as guid, %s as key, %s as concept from %s r%s", r.guid, r.key, r.concept, from, where)
		if p.distinct {
			return "select distinct on (d.guid) d.guid, d.key, d.concept from (select " + list + ") d"
		}
		return "select " + list
	}
	newRows, oldRows := "new_rows", "old_rows"
	var columns []string
	for _, c := range p.keyCols {
		columns = append(columns, c.Name)
	}
	if p.rowLevel {
		fields := func(record string) string {
			var f []string
			for _, c := range append(append([]string{}, columns...), p.ConceptColumn, p.OldKeyColumn) {
				if c != "" {
					f = append(f, fmt.Sprintf("%s.%s as %s", record, ident(c), ident(c)))
				}
			}
			return "(select " + strings.Join(f, ", ") + ")"
		}
		newRows, oldRows = fields("new"), fields("old")
	}
	t := tagging{
		Schema: ident(s.schema), ID: p.ID,
		PresentType: literal(present), AbsentType: literal(absent),
		AtOnce: p.Tagging == weir.AtOnce, Ordered: p.Set || p.distinct, Child: p.Kind == weir.Child, RowLevel: p.rowLevel, RefuseTruncate: p.RefuseTruncate,
		New: selects(newRows), Old: selects(oldRows),
		TruncateRows: selects("only %s"), // ident and literal leave no other % in it
		Table:        tableName(p.Table), KeyMatch: p.keyMatch("t", "k"),
	}
	qualified := make([]string, len(columns))
	for i, c := range columns {
		qualified[i] = "r." + ident(c)
	}
	keys := strings.Join(qualified, ", ")
	t.KeysGone = fmt.Sprintf("select %s from %s r except select %s from %s r", keys, oldRows, keys, newRows)
	// Rows come in one order in both transition tables unless they moved between
	// partitions; if the keys agree place by place, none is gone. There are never
	// more new rows than old. Arrays of sub-selects are the cheapest form: a
	// statement of one row pays for every node of the plan.
	kept := func(n int) string {
		record := keys
		if len(columns) > 1 {
			record = "row(" + keys + ")"
		}
		return fmt.Sprintf("array(select %s from %s r limit %d) = array(select %s from %s r limit %d)", record, newRows, n, record, oldRows, n+1)
	}
	once := ""
	if !p.distinct && !p.table.partitioned() {
		// An inheritance child that came after the capture may hold a key of the
		// table's too, and one statement both.
		once = " and not exists (select from pg_catalog.pg_inherits i where i.inhparent = tg_relid)"
	}
	t.KeysKept, t.KeysKeptInMany = kept(largeStatement)+once, kept(arrayStatement)
	atMost := func(rows string, n int) string {
		if p.rowLevel {
			return "true"
		}
		return fmt.Sprintf("(select count(*) from (select from %s limit %d) c) <= %d", rows, n+1, n)
	}
	t.NewIsSmall, t.OldIsSmall = atMost(newRows, largeStatement), atMost(oldRows, largeStatement)
	t.OldIsOnce = t.OldIsSmall + once
	t.Both = fmt.Sprintf("select distinct on (b.guid) b.guid, b.key, b.concept from (%s union all %s) b", t.New, t.Old)
	for _, q := range p.Queues {
		t.Queues = append(t.Queues, queueSQL{Table: s.own(queueTable(q)), TagFunction: s.own("tag_" + q)})
	}
	return t
}

// keyMatch compares a table's key columns with an instance's guid and key text.
func (p *plan) keyMatch(table, key string) string {
	if p.Kind != weir.Plain {
		return fmt.Sprintf("%s.%s = %s.guid", table, ident(p.keyCols[0].Name), key)
	}
	var parts []string
	for i, c := range p.keyCols {
		text := key + ".key"
		if len(p.keyCols) > 1 {
			text = fmt.Sprintf("%s.key::json ->> %d", key, i)
		}
		right := c.fromKeyText(text)
		if c.isEnum {
			right = fmt.Sprintf("(%s)::%s", text, c.base)
		}
		parts = append(parts, fmt.Sprintf("%s.%s = %s", table, ident(c.Name), right))
	}
	return strings.Join(parts, " and ")
}

func queueTable(queue string) string {
	if queue == weir.DefaultQueue {
		return "instance_changes"
	}
	return "instance_changes_" + queue
}

// objects renders what the capture's installation needs.
func (s *Source) objects(p *plan) ([]weir.Object, error) {
	var out []weir.Object
	for _, q := range p.Queues {
		if q != weir.DefaultQueue {
			out = append(out, s.queueObject(q, true))
		}
	}
	out = append(out, s.registration(p))

	t := s.tagging(p)
	sets := p.row("r").sets
	for _, f := range []struct {
		name, file, template, args, returns, language string
		sets                                          []string
	}{
		{p.functionName("insert"), "tag", "insert", "", "trigger", "plpgsql", append(cancelSets(t.AtOnce), sets...)},
		{p.functionName("update"), "tag", "update", "", "trigger", "plpgsql", sets},
		{p.functionName("delete"), "tag", "delete", "", "trigger", "plpgsql", append(cancelSets(t.AtOnce), sets...)},
		{p.functionName("truncate"), "truncate", "", "", "trigger", "plpgsql", append([]string{"row_security = off"}, sets...)},
		{fmt.Sprintf("capture_%d_present", p.ID), "present", "", "i_guids uuid[], i_keys text[]", "uuid[]", "sql", append([]string{"row_security = off"}, sets...)},
	} {
		body, err := renderPart("postgres/tagging/"+f.file+".sql.tmpl", f.template, t)
		if err != nil {
			return nil, err
		}
		out = append(out, s.function(p, f.name, f.args, f.returns, f.language, append([]string{"search_path = pg_catalog, pg_temp"}, f.sets...), body))
	}
	for _, m := range p.family {
		out = append(out, s.triggerObjects(p, m)...)
	}
	return out, nil
}

// functionName names a trigger function after its capture and its table, for the
// people who meet it in an error's context.
func (p *plan) functionName(event string) string {
	return cut(fmt.Sprintf("capture_%d_%s_%s", p.ID, event, p.Table.Name))
}

// cancelSets keep the planner from walking the whole queue to find what a tag
// cancels: a plan made while the queue was small would be kept.
func cancelSets(atOnce bool) []string {
	if atOnce {
		return []string{"enable_seqscan = off"}
	}
	return nil
}

func (s *Source) queueObject(queue string, empty bool) weir.Object {
	o := weir.Object{
		Kind: weir.QueueTable, Name: queue, Fingerprint: "queue",
		Create: []string{fmt.Sprintf("select %s.create_queue(%s)", ident(s.schema), literal(queue))},
	}
	if empty {
		o.Drop = []string{
			fmt.Sprintf("delete from %s where name = %s", s.own("queues"), literal(queue)),
			"drop function " + s.own("tag_"+queue) + "(text, uuid[], timestamptz[], uuid[], text[], integer[])",
			"drop table " + s.own(queueTable(queue)),
		}
	}
	return o
}

func (s *Source) registration(p *plan) weir.Object {
	null := func(v string, quoted string) string {
		if v == "" {
			return "null"
		}
		return quoted
	}
	concept := "null"
	if !p.ConceptGUID.IsZero() {
		concept = literal(p.ConceptGUID.String())
	}
	var names, types []string
	for _, c := range p.keyCols {
		names, types = append(names, c.Name), append(types, c.Native)
	}
	values := fmt.Sprintf("%d, %s, %s, %s::regclass::oid, %s, %s, %s, %s, %s, %s, %s, %s, %t, %s, %s, %t",
		p.ID, literal(p.Table.Schema), literal(p.Table.Name), literal(regclass(p.Table)), literal(string(p.Kind)), literal(p.ChangeType), concept,
		null(p.ConceptColumn, literal(p.ConceptColumn)), null(guidColumn(p), literal(guidColumn(p))), null(p.OldKeyColumn, literal(p.OldKeyColumn)),
		textArray(names), textArray(types), p.Set, textArray(p.RowKey), literal(string(p.Tagging)), p.RefuseTruncate)
	columns := []string{"table_schema", "table_name", "table_oid", "kind", "change_type", "concept_guid", "concept_column", "guid_column",
		"old_key_column", "key_columns", "key_types", "is_set", "row_key", "tagging", "refuse_truncate"}
	var set []string
	for _, c := range columns {
		set = append(set, c+" = excluded."+c)
	}
	o := weir.Object{
		Kind: weir.Registration, Name: strconv.Itoa(int(p.ID)), Table: p.Table, Group: p.Table,
		Fingerprint: registrationFingerprint(p.Capture, p.table.oid, types),
		Create: []string{
			fmt.Sprintf("insert into %s (capture_id, %s) values (%s) on conflict (capture_id) do update set %s",
				s.own("captures"), strings.Join(columns, ", "), values, strings.Join(set, ", ")),
			fmt.Sprintf("delete from %s where capture_id = %d and queue <> all (%s::text[])", s.own("capture_queues"), p.ID, textArray(p.Queues)),
			fmt.Sprintf("insert into %s (capture_id, queue) select %d, unnest(%s::text[]) on conflict do nothing", s.own("capture_queues"), p.ID, textArray(p.Queues)),
		},
	}
	o.Create = append(o.Create, s.forgetBackfill(p.ID)...)
	o.Drop = []string{s.unregister(p.ID)}
	return o
}

// forgetBackfill makes the next backfill begin anew: a table made again, a key
// changed, a queue or a partition added, a trigger that was missing or disabled
// for a while have rows that no trigger tagged. A chunk that is under way ends
// first: the progress that it is about to enter is of before.
func (s *Source) forgetBackfill(id int32) []string {
	return []string{
		fmt.Sprintf("select from %s where capture_id = %d for no key update", s.own("captures"), id),
		fmt.Sprintf("delete from %s where capture_id = %d", s.own("backfills"), id),
	}
}

func (s *Source) unregister(id int32) string {
	return fmt.Sprintf("delete from %s where capture_id = %d", s.own("captures"), id)
}

func guidColumn(p *plan) string {
	if p.Kind == weir.Plain {
		return ""
	}
	return p.keyCols[0].Name
}

func registrationFingerprint(c *weir.Capture, oid uint32, keyTypes []string) string {
	var key []string
	for i, k := range c.Key {
		key = append(key, k.Name+" "+keyTypes[i])
	}
	return fmt.Sprintf("%d|%q|%s|%s|%q|%q|%q|%q|%t|%q|%s|%t|%q", oid, c.Table.String(), c.Kind, c.ConceptGUID, c.ChangeType, c.ConceptColumn,
		c.OldKeyColumn, key, c.Set, c.RowKey, c.Tagging, c.RefuseTruncate, c.Queues)
}

func (s *Source) function(p *plan, name, args, returns, language string, sets []string, body string) weir.Object {
	var b strings.Builder
	fmt.Fprintf(&b, "create or replace function %s(%s)\nreturns %s\nlanguage %s\nsecurity definer\n", s.own(name), args, returns, language)
	for _, set := range sets {
		fmt.Fprintf(&b, "set %s\n", set)
	}
	b.WriteString("as " + dollar(body))
	signature := s.own(name) + "(" + argTypes(args) + ")"
	return weir.Object{
		Kind: weir.Function, Name: name, Table: p.Table, Group: p.Table,
		Create: []string{b.String(), // to replace a function leaves its owner and its rights as they are
			"alter function " + signature + " owner to " + p.owner,
			"revoke all on function " + signature + " from public"},
		Drop:        []string{"drop function if exists " + signature},
		Fingerprint: functionFingerprint(language, functionRights{definer: true, owned: true}, sets, body),
	}
}

func argTypes(args string) string {
	if args == "" {
		return ""
	}
	return "uuid[], text[]"
}

// functionRights are whose rights a function has, and who may call it.
type functionRights struct {
	definer bool // it runs with its owner's rights
	owned   bool // by the owner of weir's tables
	public  bool // PUBLIC may execute it
}

// functionFingerprint is made of what pg_proc shows: a setting there is
// name=value without the quotes of SET.
func functionFingerprint(language string, rights functionRights, sets []string, body string) string {
	var config []string
	for _, set := range sets {
		name, value, _ := strings.Cut(set, " = ")
		config = append(config, strings.ToLower(name)+"="+strings.Trim(value, "'"))
	}
	h := sha256.Sum256([]byte(body))
	return fmt.Sprintf("%s|%+v|%s|%s", language, rights, strings.Join(config, ","), hex.EncodeToString(h[:8]))
}

// The bits of pg_trigger.tgtype (catalog/pg_trigger.h).
const (
	triggerRow      = 1
	triggerBefore   = 2
	triggerInsert   = 4
	triggerDelete   = 8
	triggerUpdate   = 16
	triggerTruncate = 32
)

func (s *Source) triggerObjects(p *plan, m member) []weir.Object {
	make := func(event, timing, references, level string, bits int) weir.Object {
		function := p.functionName(event)
		name := triggerName(p.ID, event)
		if level == "row" {
			// A statement's trigger cannot replace one that has clones.
			name += "_row"
		}
		// A trigger made or replaced is enabled; more needs the table's owner.
		create := []string{fmt.Sprintf("create or replace trigger %s %s %s on %s%s for each %s execute function %s()",
			ident(name), timing, event, tableName(m.Table), references, level, s.own(function))}
		enabled := "O"
		if p.rowLevel {
			enabled = "A"
			create = append(create, fmt.Sprintf("alter table %s enable always trigger %s", tableName(m.Table), ident(name)))
		}
		create = append(create, s.forgetBackfill(p.ID)...)
		var oldTable, newTable string
		if strings.Contains(references, "old table") {
			oldTable = "old_rows"
		}
		if strings.Contains(references, "new table") {
			newTable = "new_rows"
		}
		return weir.Object{
			Kind: weir.Trigger, Name: name, Table: m.Table, Group: p.Table,
			Create:      create,
			Drop:        []string{fmt.Sprintf("drop trigger if exists %s on %s", ident(name), tableName(m.Table))},
			Fingerprint: triggerFingerprint(bits, enabled, function, oldTable, newTable),
		}
	}
	truncate := make("truncate", "before", "", "statement", triggerBefore|triggerTruncate)
	switch {
	case p.rowLevel && p.table.partitioned() && m.oid != p.table.oid:
		// The root's row triggers are cloned to every partition, now and later;
		// a statement's are not.
		return []weir.Object{truncate}
	case p.rowLevel:
		return []weir.Object{
			make("insert", "after", "", "row", triggerRow|triggerInsert),
			make("update", "after", "", "row", triggerRow|triggerUpdate),
			make("delete", "after", "", "row", triggerRow|triggerDelete),
			truncate,
		}
	}
	return []weir.Object{
		make("insert", "after", " referencing new table as new_rows", "statement", triggerInsert),
		make("update", "after", " referencing old table as old_rows new table as new_rows", "statement", triggerUpdate),
		make("delete", "after", " referencing old table as old_rows", "statement", triggerDelete),
		truncate,
	}
}

func triggerName(capture int32, event string) string {
	return fmt.Sprintf("weir_%d_%s", capture, event)
}

func triggerFingerprint(bits int, enabled, function, oldTable, newTable string) string {
	return fmt.Sprintf("%d|%s|%s|%s|%s", bits, enabled, function, oldTable, newTable)
}

var captureObject = regexp.MustCompile(`^(?:weir|capture)_(\d+)_`)

func captureOf(name string) int32 {
	m := captureObject.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	id, err := strconv.ParseInt(m[1], 10, 32)
	if err != nil {
		return 0
	}
	return int32(id)
}

// Installed returns what weir has installed, as the catalog shows it now.
func (s *Source) Installed(ctx context.Context) ([]weir.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	registered, err := s.registered(ctx)
	if err != nil {
		return nil, err
	}
	var out []weir.Object
	group := map[int32]weir.Table{}
	fed := map[string]bool{}
	for _, c := range registered {
		group[c.ID] = c.Table
		for _, q := range c.Queues {
			fed[q] = true
		}
		out = append(out, weir.Object{
			Kind: weir.Registration, Name: strconv.Itoa(int(c.ID)), Table: c.Table, Group: c.Table, Drop: []string{s.unregister(c.ID)},
			Fingerprint: registrationFingerprint(&c.Capture, c.oid, c.keyTypes),
		})
	}
	queues, err := s.queues(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		if q == weir.DefaultQueue {
			continue
		}
		var empty bool
		if err := s.pool.QueryRow(ctx, fmt.Sprintf("select not exists (select from %s)", s.own(queueTable(q)))).Scan(&empty); err != nil {
			return nil, translate(err, weir.AtSource, "read what is installed", "")
		}
		// A queue with changes in it is kept, whoever fed it.
		out = append(out, s.queueObject(q, empty))
	}
	rows, err := s.pool.Query(ctx, `select p.proname::text, l.lanname::text, p.prosecdef, p.proowner = t.relowner,
			exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0), coalesce(array_to_string(p.proconfig, E'\x01'), ''), p.prosrc, p.oid::regprocedure::text
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang
		join pg_class t on t.relnamespace = n.oid and t.relname = 'captures'
		where n.nspname = $1 and p.proname ~ '^capture_[0-9]+_' order by p.proname`, s.schema)
	if err != nil {
		return nil, translate(err, weir.AtSource, "read what is installed", "")
	}
	var name, language, config, body, signature string
	var rights functionRights
	if _, err := pgx.ForEachRow(rows, []any{&name, &language, &rights.definer, &rights.owned, &rights.public, &config, &body, &signature}, func() error {
		var sets []string
		if config != "" {
			for _, c := range strings.Split(config, "\x01") {
				k, v, _ := strings.Cut(c, "=")
				sets = append(sets, k+" = "+v)
			}
		}
		id := captureOf(name)
		out = append(out, weir.Object{
			Kind: weir.Function, Name: name, Table: group[id], Group: group[id], Drop: []string{"drop function if exists " + signature},
			Fingerprint: functionFingerprint(language, rights, sets, body),
		})
		return nil
	}); err != nil {
		return nil, translate(err, weir.AtSource, "read what is installed", "")
	}
	rows, err = s.pool.Query(ctx, `select g.tgname::text, n.nspname::text, c.relname::text, g.tgtype::integer, g.tgenabled::text, p.proname::text,
			coalesce(g.tgoldtable::text, ''), coalesce(g.tgnewtable::text, '')
		from pg_trigger g join pg_class c on c.oid = g.tgrelid join pg_namespace n on n.oid = c.relnamespace
		join pg_proc p on p.oid = g.tgfoid join pg_namespace pn on pn.oid = p.pronamespace
		where pn.nspname = $1 and g.tgname ~ '^weir_[0-9]+_' and g.tgparentid = 0 order by 2, 3, 1`, s.schema)
	if err != nil {
		return nil, translate(err, weir.AtSource, "read what is installed", "")
	}
	var schema, table, enabled, function, oldTable, newTable string
	var bits int
	if _, err := pgx.ForEachRow(rows, []any{&name, &schema, &table, &bits, &enabled, &function, &oldTable, &newTable}, func() error {
		t := weir.Table{Schema: schema, Name: table}
		g, known := group[captureOf(name)]
		if !known {
			g = t
		}
		out = append(out, weir.Object{
			Kind: weir.Trigger, Name: name, Table: t, Group: g, Drop: []string{fmt.Sprintf("drop trigger if exists %s on %s", ident(name), tableName(t))},
			Fingerprint: triggerFingerprint(bits, enabled, function, oldTable, newTable),
			Disabled:    enabled == "D" || enabled == "R", // R: for replication's writes alone
		})
		return nil
	}); err != nil {
		return nil, translate(err, weir.AtSource, "read what is installed", "")
	}
	return out, nil
}

func (s *Source) queues(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, "select name from "+s.own("queues")+" order by name")
	if err != nil {
		return nil, translate(err, weir.AtSource, "read queues", "")
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, translate(err, weir.AtSource, "read queues", "")
}
