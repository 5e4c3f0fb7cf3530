package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// Backfill tags the next rows of a capture, at most limit, in the order of the
// table's key, by the inbox, in one transaction with its progress, so that it
// can be killed and resumed. restart begins anew.
func (s *Source) Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error) {
	out := weir.BackfillProgress{CaptureID: captureID}
	err := s.call(ctx, "backfill", weir.GUID{}, func(ctx context.Context, c *session) error {
		list, err := readRegistry(ctx, c)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(r registered) bool { return r.ID == captureID })
		if i < 0 {
			return &weir.ConfigError{Key: "captures", Err: fmt.Errorf("capture %d is not installed", captureID), Hint: "run weir triggers apply"}
		}
		p, err := planOf(ctx, c, &list[i])
		if err != nil {
			return err
		}
		out.Table = p.Table
		var last sql.NullString
		var done sql.NullInt64
		err = c.QueryRowContext(ctx, "select last_key, tagged, estimate, done_on from weir_backfills where capture_id = ?", captureID).Scan(&last, &out.Tagged, &out.Estimate, &done)
		switch {
		case errors.Is(err, sql.ErrNoRows), err == nil && restart:
			last, out.Tagged, done = sql.NullString{}, 0, sql.NullInt64{}
			if err := c.QueryRowContext(ctx, "select count(*) from "+ident(p.table.name)).Scan(&out.Estimate); err != nil {
				return err
			}
			if _, err := c.ExecContext(ctx, "insert into weir_backfills (capture_id, tagged, estimate, started_on) values (?1, 0, ?2, "+now+") "+
				"on conflict (capture_id) do update set last_key = null, tagged = 0, estimate = ?2, started_on = excluded.started_on, done_on = null", captureID, out.Estimate); err != nil {
				return err
			}
		case err != nil:
			return err
		}
		if done.Valid {
			out.Done, out.Before, out.DoneOn = true, true, timeOf(done.Int64)
			return nil
		}
		n, next, err := p.tagNext(ctx, c, last, limit)
		if err != nil {
			return interpretError(err, weir.AtSource, "backfill", p.table.name)
		}
		out.Tagged += int64(n)
		out.Done = n < limit
		_, err = c.ExecContext(ctx, "update weir_backfills set last_key = ?2, tagged = ?3, done_on = case when ?4 then "+now+" end where capture_id = ?1", captureID, next, out.Tagged, out.Done)
		return err
	})
	return out, err
}

// tagNext appends the rows behind the last key to the inbox, and returns how
// many it walked over and the key of the last.
func (p *plan) tagNext(ctx context.Context, c *session, last sql.NullString, limit int) (int, sql.NullString, error) {
	order := strings.Join(p.order, ", ")
	where, having := "", []string{}
	var args []any
	if last.Valid {
		key, err := parseKey(last.String, len(p.order))
		if err != nil {
			return 0, last, err
		}
		where = fmt.Sprintf(" where (%s) > (?%s)", order, strings.Repeat(", ?", len(key)-1))
		args = append(args, key...)
	}
	// The walk is by the table's key, the tags by the capture's.
	page := fmt.Sprintf("(select * from %s%s order by %s limit %d)", ident(p.table.name), where, order, limit)
	if p.order[0] == p.table.rowid {
		page = fmt.Sprintf("(select %s, * from %s%s order by %s limit %d)", p.table.rowid, ident(p.table.name), where, order, limit)
	}
	rows, err := p.rowSelect("r", page+" r")
	if err != nil {
		return 0, last, err
	}
	if p.Kind == weir.Plain {
		for _, k := range p.keyCols {
			having = append(having, "r."+ident(k.Name)+" is not null")
		}
		rows += " where " + strings.Join(having, " and ")
	}
	if err := p.refuseInvalid(ctx, c, page, args); err != nil {
		return 0, last, err
	}
	changeType := weir.InstanceInserted
	if p.Kind == weir.Child {
		changeType = p.ChangeType
	}
	text, err := render("append", tagArgs{Type: literal(changeType), Now: now, Capture: fmt.Sprint(p.ID), Rows: rows})
	if err != nil {
		return 0, last, err
	}
	var n int
	var quotedKeys []string
	for _, o := range p.order {
		quotedKeys = append(quotedKeys, "+r."+o)
	}
	// The key of the page's last row, and how many there are.
	row := make([]value, len(p.order))
	dest := []any{&n}
	for i := range row {
		dest = append(dest, &row[i])
	}
	err = c.QueryRowContext(ctx, fmt.Sprintf("select (select count(*) from %s r), %s from %s r order by %s limit 1", page, strings.Join(quotedKeys, ", "), page, descending(p.order)),
		append(slices.Clone(args), args...)...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, last, nil
	}
	if err != nil {
		return 0, last, err
	}
	if _, err := c.ExecContext(ctx, text, args...); err != nil {
		return 0, last, err
	}
	texts := make([]string, len(row))
	for i, v := range row {
		texts[i] = sqlText(v)
	}
	return n, sql.NullString{String: strings.Join(texts, ","), Valid: true}, nil
}

func descending(order []string) string {
	var out []string
	for _, o := range order {
		out = append(out, "r."+o+" desc")
	}
	return strings.Join(out, ", ")
}

// refuseInvalid fails where a row's instance GUID is none, as the triggers do.
func (p *plan) refuseInvalid(ctx context.Context, c *session, page string, args []any) error {
	if p.Kind == weir.Plain {
		return nil
	}
	e := "r." + ident(p.keyCols[0].Name)
	var bad string
	err := c.QueryRowContext(ctx, fmt.Sprintf("select quote(%s) from %s r where %s is not null and %s is not 1 limit 1", e, page, e, guidOf(e).Valid), args...).Scan(&bad)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &weir.ConfigError{Key: "captures: " + p.table.name, Err: fmt.Errorf("column %s holds %s, which is no GUID", p.keyCols[0].Name, shorten(bad)),
		Hint: "correct the value: a GUID is 36 characters or 16 bytes"}
}
