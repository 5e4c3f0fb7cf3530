package sqlserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-cdc/weir"
)

// largeStatement is the number of rows from which tagging at once costs the
// user more than appending to the inbox and folding cost altogether.
const largeStatement = 1000

// tagArgs is what the shared pieces of tag.sql.tmpl work on.
type tagArgs struct {
	Schema    string
	Queue     string // quoted
	Rows      string // a table variable or temporary table of tags
	When      string // a condition, or empty: always
	MayCancel string // a condition, or empty: always
}

func (s *Source) tagArgs(queue, rows string) tagArgs {
	return tagArgs{Schema: ident(s.schema), Queue: s.own(queueTable(queue)), Rows: rows}
}

func queueTable(queue string) string {
	if queue == weir.DefaultQueue {
		return "InstanceChanges"
	}
	return "InstanceChanges_" + queue
}

// tagging is what a capture's templates work on.
type tagging struct {
	Schema, Table, Trigger, Present string // quoted
	Comment                         string // the table's name, for people
	TableText                       string // the same as a literal
	ID                              int32
	Large                           int
	AtOnce, Child, Snapshots        bool
	PresentType, AbsentType         string // literals
	New, Old                        string // selects of InstanceGUID, ConceptGUID and OldPrimaryKey
	MayMove                         string // a condition: the statement may have changed keys
	KeyValues, KeyMatch             string
	Queues                          []tagArgs
}

func (s *Source) tagging(p *plan) tagging {
	t := tagging{
		Schema: ident(s.schema), Table: tableName(p.Table), Trigger: ident(p.Table.Schema) + "." + ident(triggerName(p.ID)),
		Present: s.own(presentName(p.ID)), ID: p.ID, Large: largeStatement,
		Comment:   strings.NewReplacer("\n", " ", "\r", " ").Replace(p.Table.String()),
		TableText: literal(p.Table.String()),
		AtOnce:    p.Tagging == weir.AtOnce, Child: p.Kind == weir.Child, Snapshots: s.made.snapshots,
		PresentType: "'" + weir.InstanceInserted + "'", AbsentType: "'" + weir.InstanceDeleted + "'",
		KeyValues: p.keyValues("f"), KeyMatch: p.keyMatch("t", "k"),
	}
	if t.Child {
		t.PresentType = "'" + strings.ReplaceAll(p.ChangeType, "'", "''") + "'"
	}
	r := p.row("r")
	rows := func(from string) string {
		list := fmt.Sprintf("SELECT %s AS InstanceGUID, %s AS ConceptGUID, %s AS OldPrimaryKey FROM %s r", r.guid, r.concept, r.key, from)
		if p.Kind != weir.Plain && !p.keyCols[0].NotNull {
			list += " WHERE " + r.guid + " IS NOT NULL"
		}
		if p.Set && !t.Child {
			list = fmt.Sprintf("SELECT s.InstanceGUID, s.ConceptGUID, s.OldPrimaryKey FROM (SELECT d.*, ROW_NUMBER() OVER (PARTITION BY d.InstanceGUID ORDER BY d.InstanceGUID) AS n FROM (%s) d) s WHERE s.n = 1", list)
		}
		return list
	}
	t.New, t.Old = rows("inserted"), rows("deleted")
	// UPDATE() takes no computed column, and the manual does not say that it knows
	// of a foreign key's action; Babelfish's does not.
	var updated []string
	for _, c := range p.keyCols {
		if c.computed || c.cascaded {
			updated = []string{"1 = 1"}
			break
		}
		updated = append(updated, "UPDATE("+ident(c.Name)+")")
	}
	t.MayMove = "(" + strings.Join(updated, " OR ") + ")"
	for _, q := range p.Queues {
		a := s.tagArgs(q, "@tags")
		a.MayCancel = "@cancels = 1"
		t.Queues = append(t.Queues, a)
	}
	return t
}

func triggerName(capture int32) string { return fmt.Sprintf("weir_%d", capture) }
func presentName(capture int32) string { return fmt.Sprintf("GI_Capture_%d_Present", capture) }

// objects renders what the capture's installation needs.
func (s *Source) objects(p *plan) ([]weir.Object, error) {
	var out []weir.Object
	for _, q := range p.Queues {
		if q == weir.DefaultQueue {
			continue
		}
		o, err := s.queueObject(q, true)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	out = append(out, s.registration(p))
	t := s.tagging(p)
	if p.Kind != weir.Child {
		text, err := s.render("tagging/present.sql.tmpl", t)
		if err != nil {
			return nil, err
		}
		out = append(out, weir.Object{
			Kind: weir.Function, Name: presentName(p.ID), Table: p.Table, Group: p.Table,
			Create: s.moduleSQL(text), Drop: []string{"DROP PROCEDURE IF EXISTS " + t.Present},
			Fingerprint: moduleFingerprint(text, false),
		})
	}
	text, err := s.render("tagging/trigger.sql.tmpl", t)
	if err != nil {
		return nil, err
	}
	out = append(out, s.triggerObject(p.Table, p.ID, text))
	return out, nil
}

// triggerObject makes or replaces the trigger. To alter it would drop its place
// among the table's triggers (First or Last), so that is put back; and a
// trigger that was disabled is enabled.
func (s *Source) triggerObject(t weir.Table, id int32, text string) weir.Object {
	trigger := ident(t.Schema) + "." + ident(triggerName(id))
	enable := fmt.Sprintf("ALTER TABLE %s ENABLE TRIGGER %s", tableName(t), ident(triggerName(id)))
	create := append([]string{s.forgetBackfill(id)}, append(s.moduleSQL(text), enable)...)
	if !s.made.babelfish {
		create = []string{s.forgetBackfill(id), fmt.Sprintf(`DECLARE @weir_order_%[1]d TABLE (stmt varchar(10) NOT NULL, place varchar(10) NOT NULL);
INSERT INTO @weir_order_%[1]d (stmt, place)
SELECT e.type_desc, CASE WHEN e.is_first = 1 THEN 'First' ELSE 'Last' END
FROM sys.trigger_events e WHERE e.object_id = OBJECT_ID(%[2]s) AND (e.is_first = 1 OR e.is_last = 1);
EXEC(%[3]s);
DECLARE @weir_stmt_%[1]d varchar(10), @weir_place_%[1]d varchar(10);
WHILE EXISTS (SELECT 1 FROM @weir_order_%[1]d)
BEGIN
    SELECT TOP (1) @weir_stmt_%[1]d = stmt, @weir_place_%[1]d = place FROM @weir_order_%[1]d;
    EXEC sys.sp_settriggerorder @triggername = %[2]s, @order = @weir_place_%[1]d, @stmttype = @weir_stmt_%[1]d;
    DELETE FROM @weir_order_%[1]d WHERE stmt = @weir_stmt_%[1]d;
END`, id, literal(trigger), literal(text)), enable}
	}
	return weir.Object{
		Kind: weir.Trigger, Name: triggerName(id), Table: t, Group: t, Create: create,
		Drop:        []string{"DROP TRIGGER IF EXISTS " + trigger},
		Fingerprint: moduleFingerprint(text, false),
	}
}

// moduleFingerprint is made of what the catalog shows: the text from the
// module's kind on, since the server keeps CREATE OR ALTER in its own way.
func moduleFingerprint(text string, disabled bool) string {
	for _, kind := range []string{"TRIGGER ", "PROCEDURE "} {
		if i := strings.Index(text, kind); i >= 0 && i < 200 {
			text = text[i:]
			break
		}
	}
	h := sha256.Sum256([]byte(strings.TrimSpace(text)))
	return fmt.Sprintf("%t|%s", disabled, hex.EncodeToString(h[:8]))
}

var queueNames = regexp.MustCompile(`^[a-z0-9_]{1,30}$`)

// queueObject makes a queue beside the default one, and the routine that tags
// into it.
func (s *Source) queueObject(queue string, empty bool) (weir.Object, error) {
	if !queueNames.MatchString(queue) {
		return weir.Object{}, &weir.ConfigError{Key: "queue", Err: fmt.Errorf("the name %q is not 1 to 30 characters of a-z, 0-9 and _", queue), Hint: "another name"}
	}
	text, err := s.tagRoutine(queue)
	if err != nil {
		return weir.Object{}, err
	}
	table := queueTable(queue)
	o := weir.Object{Kind: weir.QueueTable, Name: queue, Fingerprint: "queue", Create: append([]string{
		fmt.Sprintf(`IF OBJECT_ID(%s, N'U') IS NULL
CREATE TABLE %s (
    InstanceGUID     uniqueidentifier NOT NULL,
    ChangeType       varchar(40)      NOT NULL,
    ChangedOn        datetime2(7)     NOT NULL,
    PullGUID         uniqueidentifier NULL,
    ConceptGUID      uniqueidentifier NULL,
    OldPrimaryKey    varchar(500)     NULL,
    WaitsForPullGUID uniqueidentifier NULL,
    CaptureID        int              NULL,
    Attempts         int              NULL,
    NotBefore        datetime2(7)     NULL,
    CONSTRAINT %s PRIMARY KEY CLUSTERED (InstanceGUID, ChangeType) WITH (ALLOW_PAGE_LOCKS = OFF)
)`, literal(s.own(table)), s.own(table), ident("PK_"+table)),
		fmt.Sprintf("ALTER TABLE %s SET (LOCK_ESCALATION = DISABLE)", s.own(table)),
		fmt.Sprintf("IF INDEXPROPERTY(OBJECT_ID(%s), %s, 'IndexID') IS NULL CREATE INDEX %s ON %s (PullGUID, ChangedOn) WITH (ALLOW_PAGE_LOCKS = OFF)",
			literal(s.own(table)), literal("IX_GI_"+table+"_Pull"), ident("IX_GI_"+table+"_Pull"), s.own(table)),
		fmt.Sprintf("IF NOT EXISTS (SELECT 1 FROM %s WHERE Queue = '%s') INSERT INTO %s (Queue) VALUES ('%s')", s.own("GI_Queues"), queue, s.own("GI_Queues"), queue),
	}, s.moduleSQL(text)...)}
	if s.made.babelfish {
		// INDEXPROPERTY does not know its indexes.
		o.Create[2] = fmt.Sprintf("IF NOT EXISTS (SELECT 1 FROM %s WHERE Queue = '%s') CREATE INDEX %s ON %s (PullGUID, ChangedOn)", s.own("GI_Queues"), queue, ident("IX_GI_"+table+"_Pull"), s.own(table))
	}
	if empty {
		o.Drop = []string{
			fmt.Sprintf("DELETE FROM %s WHERE Queue = '%s'", s.own("GI_Queues"), queue),
			"DROP PROCEDURE IF EXISTS " + s.own("GI_Tag_"+queue),
			"DROP TABLE " + s.own(table),
		}
	}
	return o, nil
}

func jsonArray(list []string) string {
	if list == nil {
		list = []string{}
	}
	b, _ := json.Marshal(list) // strings cannot fail
	return string(b)
}

func (s *Source) registration(p *plan) weir.Object {
	null := func(v string) string {
		if v == "" {
			return "NULL"
		}
		return literal(v)
	}
	concept := "NULL"
	if !p.ConceptGUID.IsZero() {
		concept = "'" + p.ConceptGUID.String() + "'"
	}
	var names, types []string
	for _, c := range p.keyCols {
		names, types = append(names, c.Name), append(types, c.Native)
	}
	set := 0
	if p.Set {
		set = 1
	}
	id := int(p.ID)
	sets := fmt.Sprintf(`TableSchema = %s, TableName = %s, TableID = OBJECT_ID(%s), Kind = '%s', ChangeType = %s, ConceptGUID = %s, ConceptColumn = %s, OldKeyColumn = %s, KeyColumns = %s, KeyTypes = %s, IsSet = %d, RowKey = %s, Tagging = '%s'`,
		literal(p.Table.Schema), literal(p.Table.Name), literal(tableName(p.Table)), p.Kind, literal(p.ChangeType), concept, null(p.ConceptColumn), null(p.OldKeyColumn),
		literal(jsonArray(names)), literal(jsonArray(types)), set, literal(jsonArray(p.RowKey)), p.Tagging)
	o := weir.Object{
		Kind: weir.Registration, Name: strconv.Itoa(id), Table: p.Table, Group: p.Table,
		Fingerprint: registrationFingerprint(p.Capture, p.table.id, types),
		Create: []string{
			s.forgetBackfill(p.ID),
			fmt.Sprintf(`IF NOT EXISTS (SELECT 1 FROM %[1]s WHERE CaptureID = %[2]d)
INSERT INTO %[1]s (CaptureID, TableSchema, TableName, TableID, Kind, ChangeType, KeyColumns, KeyTypes, IsSet, RowKey, Tagging) VALUES (%[2]d, N'', N'', 0, 'plain', '', N'[]', N'[]', 0, N'[]', 'at once')`,
				s.own("GI_Captures"), id),
			fmt.Sprintf("UPDATE %s SET %s WHERE CaptureID = %d", s.own("GI_Captures"), sets, id),
			fmt.Sprintf("DELETE FROM %s WHERE CaptureID = %d AND Queue NOT IN ('%s')", s.own("GI_CaptureQueues"), id, strings.Join(p.Queues, "', '")),
		},
	}
	for _, q := range p.Queues {
		o.Create = append(o.Create, fmt.Sprintf("IF NOT EXISTS (SELECT 1 FROM %[1]s WHERE CaptureID = %[2]d AND Queue = '%[3]s') INSERT INTO %[1]s (CaptureID, Queue) VALUES (%[2]d, '%[3]s')",
			s.own("GI_CaptureQueues"), id, q))
		o.Create = append(o.Create, s.widening(p, queueTable(q))...)
	}
	o.Drop = s.unregister(p.ID)
	return o
}

// widening makes a queue's OldPrimaryKey hold the capture's keys, where it does
// not yet.
func (s *Source) widening(p *plan, table string) []string {
	if p.wide == "" {
		return nil
	}
	object := literal(s.own(table))
	size := fmt.Sprintf("(SELECT c.max_length / CASE WHEN c.system_type_id = 231 THEN 2 ELSE 1 END FROM sys.columns c WHERE c.object_id = OBJECT_ID(%s) AND c.name = N'OldPrimaryKey')", object)
	national := fmt.Sprintf("EXISTS (SELECT 1 FROM sys.columns c WHERE c.object_id = OBJECT_ID(%s) AND c.name = N'OldPrimaryKey' AND c.system_type_id = 231)", object)
	// Without a word of it the column may be null, whatever the session's settings ("ALTER TABLE", ANSI_NULL defaults).
	alter := func(typ string, n int) string {
		return fmt.Sprintf("ALTER TABLE %s ALTER COLUMN OldPrimaryKey %s(%d)", s.own(table), typ, n)
	}
	if p.wide == "nvarchar" {
		n := max(p.wideSize, 500)
		return []string{fmt.Sprintf("IF NOT %s OR %s BETWEEN 0 AND %d %s", national, size, n-1, alter("nvarchar", n))}
	}
	return []string{
		fmt.Sprintf("IF %s AND %s BETWEEN 0 AND %d %s", national, size, p.wideSize-1, alter("nvarchar", p.wideSize)),
		fmt.Sprintf("IF NOT %s AND %s BETWEEN 0 AND %d %s", national, size, p.wideSize-1, alter("varchar", p.wideSize)),
	}
}

// forgetBackfill makes the next backfill begin anew: a table made again, a key
// changed, a queue added, a trigger that was missing or disabled for a while
// have rows that no trigger tagged. It comes before all else: a chunk that is
// under way holds the progress, and ends first; one that comes later finds what
// is installed then.
func (s *Source) forgetBackfill(id int32) string {
	return fmt.Sprintf(`UPDATE %[1]s SET LastKey = NULL, Tagged = 0, StartedOn = SYSUTCDATETIME(), DoneOn = NULL WHERE CaptureID = %[2]d;
IF NOT EXISTS (SELECT 1 FROM %[1]s WHERE CaptureID = %[2]d)
INSERT INTO %[1]s (CaptureID, Tagged, StartedOn) VALUES (%[2]d, 0, SYSUTCDATETIME())`, s.own("GI_Backfills"), id)
}

func (s *Source) unregister(id int32) []string {
	return []string{
		fmt.Sprintf("DELETE FROM %s WHERE CaptureID = %d", s.own("GI_Backfills"), id),
		fmt.Sprintf("DELETE FROM %s WHERE CaptureID = %d", s.own("GI_Captures"), id),
	}
}

func registrationFingerprint(c *weir.Capture, id int64, keyTypes []string) string {
	var key []string
	for i, k := range c.Key {
		key = append(key, k.Name+" "+keyTypes[i])
	}
	return fmt.Sprintf("%d|%q|%s|%s|%q|%q|%q|%q|%t|%q|%s|%q", id, c.Table.String(), c.Kind, c.ConceptGUID, c.ChangeType, c.ConceptColumn,
		c.OldKeyColumn, key, c.Set, c.RowKey, c.Tagging, c.Queues)
}

var captureObject = regexp.MustCompile(`^(?:weir|GI_Capture)_(\d+)(?:_Present)?$`)

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
	if _, err := s.server(ctx); err != nil {
		return nil, err
	}
	registered, err := s.registered(ctx, s)
	if err != nil {
		return nil, err
	}
	var out []weir.Object
	group := map[int32]weir.Table{}
	for _, c := range registered {
		group[c.ID] = c.Table
		out = append(out, weir.Object{
			Kind: weir.Registration, Name: strconv.Itoa(int(c.ID)), Table: c.Table, Group: c.Table, Drop: s.unregister(c.ID),
			Fingerprint: registrationFingerprint(&c.Capture, c.tableID, c.keyTypes),
		})
	}
	queues, err := s.queues(ctx, s)
	if err != nil {
		return nil, translate(err, weir.AtSource, "read queues", "")
	}
	for _, q := range queues {
		if q == weir.DefaultQueue {
			continue
		}
		var any int
		if err := s.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT TOP (1) 1 AS x FROM %s) c", s.own(queueTable(q)))).Scan(&any); err != nil {
			return nil, translate(err, weir.AtSource, "read what is installed", "")
		}
		// A queue with changes in it is kept, whoever fed it.
		o, err := s.queueObject(q, any == 0)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	var name, schema, table string
	var text sql.NullString
	var disabled bool
	err = each(ctx, s, `SELECT p.name, m.definition FROM sys.procedures p LEFT JOIN sys.sql_modules m ON m.object_id = p.object_id
WHERE p.schema_id = SCHEMA_ID(@p1) AND LOWER(p.name) LIKE 'gi[_]capture[_]%[_]present' ORDER BY p.name`, []any{s.schema}, []any{&name, &text}, func() error {
		id := captureOf(properName(name))
		out = append(out, weir.Object{
			Kind: weir.Function, Name: presentName(id), Table: group[id], Group: group[id],
			Drop: []string{"DROP PROCEDURE IF EXISTS " + s.own(presentName(id))}, Fingerprint: moduleFingerprint(text.String, false),
		})
		return nil
	})
	if err != nil {
		return nil, translate(err, weir.AtSource, "read what is installed", "")
	}
	err = each(ctx, s, `SELECT g.name, s.name, o.name, g.is_disabled, m.definition
FROM sys.triggers g LEFT JOIN sys.sql_modules m ON m.object_id = g.object_id JOIN sys.objects o ON o.object_id = g.parent_id JOIN sys.schemas s ON s.schema_id = o.schema_id
WHERE g.name LIKE 'weir[_]%' ORDER BY s.name, o.name, g.name`, nil, []any{&name, &schema, &table, &disabled, &text}, func() error {
		id := captureOf(name)
		// Two of weir's schemas may capture in one database.
		if id == 0 || !strings.Contains(text.String, s.own("GI_Inbox")) && group[id] == (weir.Table{}) {
			return nil
		}
		t := weir.Table{Schema: schema, Name: table}
		g, known := group[id]
		if !known {
			g = t
		}
		out = append(out, weir.Object{
			Kind: weir.Trigger, Name: name, Table: t, Group: g, Drop: []string{"DROP TRIGGER IF EXISTS " + ident(schema) + "." + ident(name)},
			Fingerprint: moduleFingerprint(text.String, disabled), Disabled: disabled,
		})
		return nil
	})
	if err != nil {
		return nil, translate(err, weir.AtSource, "read what is installed", "")
	}
	return out, nil
}

// properName is a routine's name where the catalog folds it to lower case.
func properName(name string) string {
	if rest, found := strings.CutPrefix(strings.ToLower(name), "gi_capture_"); found {
		return "GI_Capture_" + strings.TrimSuffix(rest, "_present") + "_Present"
	}
	return name
}

func (s *Source) queues(ctx context.Context, q queryer) ([]string, error) {
	var names []string
	var name string
	err := each(ctx, q, "SELECT Queue FROM "+s.own("GI_Queues")+" ORDER BY Queue", nil, []any{&name}, func() error {
		names = append(names, name)
		return nil
	})
	return names, err
}

// Apply runs the statements of one table in one transaction. Creating a
// trigger needs the table to itself (Sch-M) for the moment it takes. Whoever
// waits behind a lock that is waited for waits too, so Apply gives up after a
// second and tries again a few times; then it is unavailable, and nothing is
// changed.
func (s *Source) Apply(ctx context.Context, group weir.Table, statements []string) error {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	var err error
	for try := range 5 {
		if try > 0 {
			select {
			case <-time.After(time.Duration(try) * 500 * time.Millisecond):
			case <-ctx.Done():
				return &weir.UnavailableError{Side: weir.AtSource, Op: "apply", Err: ctx.Err()}
			}
		}
		err = s.tx(ctx, "apply to "+group.String(), weir.GUID{}, func(t *session) error {
			if _, err := t.ExecContext(ctx, "SET LOCK_TIMEOUT 1000"); err != nil {
				return err
			}
			if group != (weir.Table{}) && s.made != nil && s.made.babelfish {
				// Between DROP and CREATE no writer may come in.
				if _, err := t.ExecContext(ctx, "SELECT TOP (0) 1 FROM "+tableName(group)+" WITH (TABLOCKX, HOLDLOCK)"); err != nil {
					return translate(err, weir.AtSource, "apply", group.String())
				}
			}
			for _, sql := range statements {
				if _, err := t.ExecContext(ctx, sql); err != nil {
					return translate(err, weir.AtSource, "apply", group.String())
				}
			}
			return nil
		})
		var u *weir.UnavailableError
		if !errors.As(err, &u) {
			return err
		}
	}
	return err
}
