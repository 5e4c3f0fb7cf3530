package sqlserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// Backfill tags the next keys of a capture, at most limit, in the order of the
// key, by the inbox, in one transaction with its progress, so that it can be
// killed and resumed. restart begins anew.
func (s *Source) Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error) {
	out := weir.BackfillProgress{CaptureID: captureID}
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	if _, err := s.server(ctx); err != nil {
		return out, err
	}
	err := s.tx(ctx, "backfill", weir.GUID{}, func(t *session) error {
		// The update is the lock of this backfill. An apply that registers the capture
		// anew makes it, too: it comes before this chunk, which then finds what is
		// registered now, or after, and forgets its progress.
		progress := s.own("GI_Backfills")
		if _, err := t.ExecContext(ctx, fmt.Sprintf(`UPDATE %[1]s SET Tagged = Tagged WHERE CaptureID = %[2]d;
IF NOT EXISTS (SELECT 1 FROM %[1]s WHERE CaptureID = %[2]d)
    INSERT INTO %[1]s (CaptureID, Tagged, StartedOn) VALUES (%[2]d, 0, SYSUTCDATETIME());`, progress, captureID)); err != nil {
			return s.uninstalled(err)
		}
		list, err := s.registered(ctx, t)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(r registered) bool { return r.ID == captureID })
		if i < 0 {
			return &weir.ConfigError{Key: "captures", Err: fmt.Errorf("capture %d is not installed", captureID), Hint: "run weir triggers apply"}
		}
		c := list[i]
		out.Table = c.Table
		p, err := s.planOf(ctx, t, &c)
		if err != nil {
			return err
		}
		if err := t.QueryRowContext(ctx, "SELECT COALESCE(SUM(CONVERT(bigint, p.rows)), 0) FROM sys.partitions p WHERE p.object_id = @p1 AND p.index_id IN (0, 1)", p.table.id).Scan(&out.Estimate); err != nil {
			return err
		}
		out.Estimate = max(out.Estimate, 0)
		if restart {
			if _, err := t.ExecContext(ctx, "UPDATE "+progress+" SET LastKey = NULL, Tagged = 0, StartedOn = SYSUTCDATETIME(), DoneOn = NULL WHERE CaptureID = @p1", captureID); err != nil {
				return err
			}
		}
		var lastKey sql.NullString
		var done sql.NullTime
		if err := t.QueryRowContext(ctx, "SELECT LastKey, Tagged, DoneOn FROM "+s.own("GI_Backfills")+" WHERE CaptureID = @p1", captureID).
			Scan(&lastKey, &out.Tagged, &done); err != nil {
			return err
		}
		if done.Valid {
			out.Done, out.Before, out.DoneOn = true, true, done.Time
			return nil
		}
		var last []string
		if lastKey.Valid {
			if err := json.Unmarshal([]byte(lastKey.String), &last); err != nil {
				return fmt.Errorf("the progress of the backfill of %s: %w", c.Table, err)
			}
		}
		n, next, err := s.backfill(ctx, t, p, last, limit)
		if err != nil {
			return translate(err, weir.AtSource, "backfill", c.Table.String())
		}
		out.Tagged += int64(n)
		out.Done = n < limit
		if next != nil {
			lastKey = sql.NullString{String: jsonArray(next), Valid: true}
		}
		_, err = t.ExecContext(ctx, "UPDATE "+s.own("GI_Backfills")+" SET LastKey = @p2, Tagged = @p3, DoneOn = CASE WHEN @p4 = 1 THEN SYSUTCDATETIME() END WHERE CaptureID = @p1",
			captureID, lastKey, out.Tagged, boolInt(out.Done))
		return err
	})
	return out, err
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// backfill appends the next keys to the inbox, and returns their number and the
// last one.
func (s *Source) backfill(ctx context.Context, t *session, p *plan, last []string, limit int) (int, []string, error) {
	var columns, texts, counts, order, sorted []string
	var args []any
	after := "1 = 1"
	for i, c := range p.keyCols {
		columns = append(columns, "r."+ident(c.Name))
		order, sorted = append(order, "r."+ident(c.Name)), append(sorted, "r."+ident(c.Name)+" DESC")
		text, _, ok := c.keyText("r." + ident(c.Name))
		if !ok {
			return 0, nil, fmt.Errorf("key column %s has no text", c.Name)
		}
		texts, counts = append(texts, text), append(counts, replacements(text))
		if last != nil {
			args = append(args, sql.Named(fmt.Sprintf("k%d", i+1), last[i]))
		}
	}
	if last != nil {
		// (a, b) > (x, y), as SQL Server can write it.
		var any []string
		for i, c := range p.keyCols {
			var all []string
			for j := range i {
				all = append(all, fmt.Sprintf("%s = %s", columns[j], p.keyCols[j].fromKeyText(fmt.Sprintf("@k%d", j+1))))
			}
			any = append(any, strings.Join(append(all, fmt.Sprintf("%s > %s", columns[i], c.fromKeyText(fmt.Sprintf("@k%d", i+1)))), " AND "))
		}
		after = "(" + strings.Join(any, " OR ") + ")"
	}
	for _, name := range []string{p.ConceptColumn, p.OldKeyColumn} {
		if name != "" && !slices.Contains(columns, "r."+ident(name)) {
			columns = append(columns, "r."+ident(name))
		}
	}
	r := p.row("r")
	typ := weir.InstanceInserted
	if p.Kind == weir.Child {
		typ = p.ChangeType
	}
	pick := fmt.Sprintf("SELECT TOP (@limit) %s INTO #GI_Chunk FROM %s r WHERE %s ORDER BY %s", strings.Join(columns, ", "), tableName(p.Table), after, strings.Join(order, ", "))
	if p.Set {
		null := ""
		if !p.keyCols[0].NotNull {
			null = " AND " + columns[0] + " IS NOT NULL"
		}
		pick = fmt.Sprintf("SELECT TOP (@limit) %s INTO #GI_Chunk FROM (SELECT r.*, ROW_NUMBER() OVER (PARTITION BY %s ORDER BY %s) AS weir_n FROM %s r WHERE %s%s) r WHERE r.weir_n = 1 ORDER BY %s",
			strings.Join(columns, ", "), columns[0], columns[0], tableName(p.Table), after, null, strings.Join(order, ", "))
	}
	args = append(args, sql.Named("limit", limit), sql.Named("id", p.ID), sql.Named("type", typ))
	// The chunk's keys are read once, and both tagged and counted.
	text := pick + `;
INSERT INTO ` + s.own("GI_Inbox") + ` (InstanceGUID, ChangeType, ChangedOn, ConceptGUID, OldPrimaryKey, CaptureID)
SELECT ` + r.guid + ", @type, SYSUTCDATETIME(), " + r.concept + ", " + r.key + `, @id FROM #GI_Chunk r;
SELECT (SELECT COUNT(*) FROM #GI_Chunk), ` + strings.Join(append(texts, counts...), ", ") + " FROM (SELECT TOP (1) r.* FROM #GI_Chunk r ORDER BY " + strings.Join(sorted, ", ") + `) r;
DROP TABLE #GI_Chunk`
	next, replaced := make([]string, len(p.keyCols)), make([]int, len(p.keyCols))
	var n int
	dest := []any{&n}
	for i := range next {
		dest = append(dest, &next[i])
	}
	for i := range replaced {
		dest = append(dest, &replaced[i])
	}
	err := t.QueryRowContext(ctx, s.spoken(text), args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil, nil
	}
	for i, key := range next {
		// It would not be found again, and rows behind it be left out.
		if err == nil && strings.Count(key, replacement) != replaced[i] {
			err = &weir.RowError{Table: p.Table.String(), Key: key, Column: p.keyCols[i].Name, Value: key, Err: errHalf, Hint: halfHint}
		}
	}
	return n, next, err
}
