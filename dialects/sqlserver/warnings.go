package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-cdc/weir"
)

// about is what the plan must know of a table beyond its columns.
type about struct {
	history, memory, published bool
	filtered                   string // the security policy that hides rows
	maySelect, mayAlter        bool
	owner, weirOwner           int
	nested                     bool // the server option nested triggers
	insteadOf, others          int  // triggers
}

func (s *Source) about(ctx context.Context, t *table) (about, error) {
	var a about
	var temporal int
	if err := s.QueryRowContext(ctx, catalogSQL("about"), t.id, tableName(t.Table), s.schema).Scan(&temporal, &a.memory, &a.maySelect, &a.mayAlter,
		&a.owner, &a.weirOwner, &a.nested, &a.insteadOf, &a.others, &a.published); err != nil {
		return a, translate(err, weir.AtSource, "describe", t.String())
	}
	a.history = temporal == 1
	filtered, err := s.filtered(ctx, s, t.id)
	a.filtered = filtered
	return a, err
}

// filtered finds an enabled security policy that filters the rows of a table.
func (s *Source) filtered(ctx context.Context, q queryer, table int64) (string, error) {
	if s.made.babelfish {
		return "", nil // has no security policies
	}
	var name string
	err := q.QueryRowContext(ctx, `SELECT TOP (1) SCHEMA_NAME(p.schema_id) + N'.' + p.name
FROM sys.security_predicates r JOIN sys.security_policies p ON p.object_id = r.object_id
WHERE r.target_object_id = @p1 AND r.predicate_type = 0 AND p.is_enabled = 1`, table).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return name, translate(err, weir.AtSource, "read security policies", "")
}

// warnings tell what the trigger changes for the application, and what it does
// not see.
func (s *Source) warnings(p *plan, a about) []string {
	t := p.Table
	out := []string{
		fmt.Sprintf("%s gets a trigger: INSERT, UPDATE, DELETE or MERGE of it with OUTPUT and without INTO fails from then on (error 334). Entity Framework Core must be told: ToTable(tb => tb.HasTrigger(%q))", t, triggerName(p.ID)),
		fmt.Sprintf("bulk loads of %s (BULK INSERT, bcp, SqlBulkCopy) are captured only with FIRE_TRIGGERS, and TRUNCATE and ALTER TABLE ... SWITCH never are: run weir backfill --restart %s after those that add or change rows; rows that TRUNCATE or SWITCH removed stay at the target until they are deleted there, so DELETE is the statement to use", t, t),
	}
	if p.Kind == weir.Child && !p.keyCols[0].NotNull {
		out = append(out, fmt.Sprintf("rows of %s whose %s is null belong to no instance, and are not captured", t, ident(p.keyCols[0].Name)))
	}
	if !a.nested {
		out = append(out, fmt.Sprintf("the server option nested triggers is 0: what other triggers write to %s is not captured", t))
	}
	if a.insteadOf > 0 {
		out = append(out, fmt.Sprintf("%s has an INSTEAD OF trigger: what it writes to %s itself is captured, as the statement that it stands for is not", t, t))
	}
	if a.others > 0 {
		out = append(out, fmt.Sprintf("%s has other AFTER triggers: weir's runs among them in no fixed order, and captures what is committed in the end. If one of them must be first or last, say so by sp_settriggerorder; weir keeps the order of its own", t))
	}
	if a.published {
		out = append(out, fmt.Sprintf("%s is published by replication: weir's trigger is made without NOT FOR REPLICATION, so what a replication agent writes to it is captured as well", t))
	}
	if a.owner != a.weirOwner {
		out = append(out, fmt.Sprintf("%s has another owner than %s, so the rights of its writers do not reach weir's tables through the trigger: GRANT SELECT, INSERT, UPDATE, DELETE ON %s, INSERT ON %s and SELECT ON %s TO those who write it, or its writes fail",
			t, s.own("InstanceChanges"), s.own("InstanceChanges"), s.own("GI_Inbox"), s.own("GI_Pulls")))
	}
	for _, c := range p.keyCols {
		if p.Kind == weir.Plain && c.caseless() {
			out = append(out, fmt.Sprintf("key column %s of %s holds a and A equal: they are one row to weir. Keys that it holds equal by more than case and blanks at the end (ß and ss, full-width letters) are not known as one, and a key that changes its spelling alone leaves the old spelling at a target that tells the two apart", c.Name, t))
		}
	}
	return out
}

// ofDatabase takes the database off a name of three parts, db.schema.table,
// that stands in t. It returns the name of the database where it is another.
func (s *Source) ofDatabase(ctx context.Context, t *weir.Table) (string, error) {
	if there, err := describeTable(ctx, s, *t); err != nil || there != nil {
		return "", translate(err, weir.AtSource, "describe", t.String())
	}
	var name string
	if err := s.QueryRowContext(ctx, "SELECT DB_NAME()").Scan(&name); err != nil {
		return "", translate(err, weir.AtSource, "describe", t.String())
	}
	schema, table, _ := strings.Cut(t.Name, ".")
	if !strings.EqualFold(t.Schema, name) {
		return t.Schema, nil
	}
	*t = weir.Table{Schema: schema, Name: table}
	return "", nil
}
