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

// inboxTag is a row of the inbox.
type inboxTag struct {
	weir.Change
	instance         string
	concept, spelled sql.NullString
	on               int64
}

// Fold implements [weir.Source].
func (s *Source) Fold(ctx context.Context, limit int) (int, error) {
	var some bool
	probe, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.db.read(probe, "fold", func(ctx context.Context, c *session) error {
		return c.QueryRowContext(ctx, "select exists (select 1 from weir_inbox)").Scan(&some)
	}); err != nil || !some {
		return 0, err
	}
	folded := 0
	err := s.call(ctx, "fold", weir.GUID{}, func(ctx context.Context, c *session) error {
		var err error
		folded, err = fold(ctx, c, limit)
		return err
	})
	return folded, err
}

func fold(ctx context.Context, c *session, limit int) (int, error) {
	list, err := readRegistry(ctx, c)
	if err != nil {
		return 0, err
	}
	// The last tag of each instance and kind of type comes last.
	var tags []*inboxTag
	at := map[string]int{}
	var t inboxTag
	var id, last int64
	var key sql.NullString
	n := 0
	if err := c.each(ctx, "select id, instance_guid, change_type, changed_on, concept_guid, old_primary_key, coalesce(capture_id, 0), instance_key from weir_inbox order by id limit ?", []any{limit},
		[]any{&id, &t.instance, &t.ChangeType, &t.on, &t.concept, &key, &t.CaptureID, &t.spelled}, func() error {
			n, last = n+1, id
			k := t
			k.OldPrimaryKey, k.HasOldPrimaryKey = key.String, key.Valid
			var err error
			if k.InstanceGUID, err = weir.ParseGUID(t.instance); err != nil {
				return fmt.Errorf("fold: inbox row %d: %w", id, err)
			}
			k.ConceptGUID, _ = weir.ParseGUID(t.concept.String) // zero where there is none
			of := t.instance + t.ChangeType
			if ownType(t.ChangeType) {
				of = t.instance
			}
			i, ok := at[of]
			switch {
			case !ok:
				at[of] = len(tags)
				tags = append(tags, &k)
			case k.on >= tags[i].on:
				tags[i] = &k
			}
			return nil
		}); err != nil {
		return 0, err
	}
	byCapture := map[int32][]*inboxTag{}
	for _, t := range tags {
		if t.CaptureID != 0 && ownType(t.ChangeType) {
			byCapture[t.CaptureID] = append(byCapture[t.CaptureID], t)
		}
	}
	for i := range list {
		if err := decidePresence(ctx, c, &list[i], byCapture[list[i].ID]); err != nil {
			return 0, err
		}
	}
	w := &tagger{statements: map[string]*sql.Stmt{}}
	defer w.close()
	for _, t := range tags {
		for _, q := range queuesFor(list, t.Change) {
			if err := w.tag(ctx, c, q, t); err != nil {
				return 0, err
			}
		}
	}
	_, err = c.ExecContext(ctx, "delete from weir_inbox where id <= ?", last)
	return n, err
}

func ownType(changeType string) bool {
	return changeType == weir.InstanceInserted || changeType == weir.InstanceDeleted
}

// decidePresence sets the type of a capture's tags by the row's presence. Where
// the table is not as captured, the latest tag stands; the read says what is
// wrong.
func decidePresence(ctx context.Context, c *session, r *registered, tags []*inboxTag) error {
	if len(tags) == 0 {
		return nil
	}
	p, err := planOf(ctx, c, r)
	if err != nil {
		var d *weir.DriftError
		if errors.As(err, &d) {
			return nil
		}
		return err
	}
	var items []*lookup
	var of []*inboxTag
	for _, t := range tags {
		l, err := p.lookup(t.Change, t.spelled.String)
		if err != nil {
			continue
		}
		items, of = append(items, l), append(of, t)
		t.ChangeType = weir.InstanceDeleted
	}
	return p.find(ctx, c, items, nil, func(place int, _ []value) error {
		of[place].ChangeType = weir.InstanceInserted
		return nil
	})
}

// queuesFor are the queues that a tag goes to. A capture knows its queues; a tag
// of other code goes to those of the captures of its concept, and to the default
// queue where there is none.
func queuesFor(list []registered, ch weir.Change) []string {
	var out []string
	for i := range list {
		r := &list[i]
		if ch.CaptureID != 0 {
			if r.ID == ch.CaptureID {
				return r.Queues
			}
			continue
		}
		ofType := r.Kind != weir.Child && ownType(ch.ChangeType) || r.Kind == weir.Child && r.ChangeType == ch.ChangeType
		if !ofType || !r.ConceptGUID.IsZero() && r.ConceptGUID != ch.ConceptGUID {
			continue
		}
		for _, q := range r.Queues {
			if !slices.Contains(out, q) {
				out = append(out, q)
			}
		}
	}
	if len(out) == 0 {
		return []string{weir.DefaultQueue}
	}
	return out
}

// tagger writes tags into queues, with a statement prepared once a queue.
type tagger struct {
	statements map[string]*sql.Stmt
}

func (w *tagger) close() {
	for _, st := range w.statements {
		st.Close()
	}
}

func (w *tagger) prepared(ctx context.Context, c *session, text string) (*sql.Stmt, error) {
	if st := w.statements[text]; st != nil {
		return st, nil
	}
	st, err := c.PrepareContext(ctx, text)
	if err == nil {
		w.statements[text] = st
	}
	return st, err
}

func (w *tagger) tag(ctx context.Context, c *session, queue string, t *inboxTag) error {
	cancels := map[string]string{weir.InstanceInserted: weir.InstanceDeleted, weir.InstanceDeleted: weir.InstanceInserted}[t.ChangeType]
	a := tagArgs{
		Queue: ident(queueTable(queue)), Type: "?2", Now: "?3", Capture: "?6", Guid: "select ?1",
		Rows: "select ?1 as guid, ?4 as concept, ?5 as key, ?7 as spelled",
	}
	args := []any{t.instance, t.ChangeType, t.on, t.concept, sql.NullString{String: t.OldPrimaryKey, Valid: t.HasOldPrimaryKey},
		sql.NullInt32{Int32: t.CaptureID, Valid: t.CaptureID != 0}, t.spelled}
	if cancels != "" {
		a.Cancels = literal(cancels)
	}
	text, err := render("tag", a)
	if err != nil {
		return err
	}
	st, err := w.prepared(ctx, c, strings.TrimSpace(text))
	if err != nil {
		return err
	}
	if _, err := st.ExecContext(ctx, args...); err != nil || cancels == "" {
		return err
	}
	if text, err = render("cancel", a); err != nil {
		return err
	}
	if st, err = w.prepared(ctx, c, strings.TrimSpace(text)); err != nil {
		return err
	}
	_, err = st.ExecContext(ctx, t.instance)
	return err
}
