package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-cdc/weir"
)

// errRollback ends a trial that must leave no trace.
var errRollback = errors.New("roll back")

// Isolate implements [weir.Target]. It applies the batch again and again in
// transactions that are rolled back, each time without the items that are known
// to be at fault, until nothing is: a row that is left out may be what another
// one needs.
func (t *Target) Isolate(ctx context.Context, b *weir.Batch) ([]weir.Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	if _, err := t.Ledger(ctx); err != nil {
		return nil, err
	}
	c, err := t.db.connect(ctx, "isolate")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var faults []weir.Fault
	err = c.write(ctx, weir.AtTarget, "isolate", weir.GUID{}, func(ctx context.Context, c *session) error {
		a, err := t.prepare(ctx, c, b)
		if err != nil {
			return err
		}
		iso := &isolation{application: a, known: map[[2]int]bool{}}
		a.out, a.faults = iso.known, nil
		if err := iso.values(ctx); err != nil {
			return err
		}
		for again := true; again; {
			before := len(iso.found)
			if err := iso.round(ctx); err != nil {
				return err
			}
			again = len(iso.found) > before
		}
		faults = iso.found
		return errRollback
	})
	if err != nil && !errors.Is(err, errRollback) {
		return nil, err
	}
	slices.SortFunc(faults, func(a, b weir.Fault) int {
		if a.Table != b.Table {
			return a.Table - b.Table
		}
		return a.Item - b.Item
	})
	return faults, nil
}

// isolation finds faults within one transaction.
type isolation struct {
	*application
	known map[[2]int]bool
	found []weir.Fault
}

func (s *isolation) blame(table, item int, err *weir.RowError) {
	if at := [2]int{table, item}; !s.known[at] {
		s.known[at] = true
		e := *err
		e.Table, e.Key = s.dests[table].name, itemKey(&s.batch.Tables[table].Items[item])
		s.found = append(s.found, weir.Fault{Table: table, Item: item, Err: &e})
	}
}

// try runs f after a savepoint and rolls back to it.
func (s *isolation) try(ctx context.Context, f func() error) error {
	if _, err := s.c.ExecContext(ctx, "savepoint weir_trial"); err != nil {
		return err
	}
	err := f()
	if _, rerr := s.c.ExecContext(context.WithoutCancel(ctx), "rollback to weir_trial"); rerr != nil {
		return errors.Join(err, rerr)
	}
	_, rerr := s.c.ExecContext(context.WithoutCancel(ctx), "release weir_trial")
	return errors.Join(err, rerr)
}

// values finds what the target's columns cannot hold.
func (s *isolation) values(ctx context.Context) error {
	var found []weir.Fault
	s.faults = &found
	err := s.try(ctx, func() error {
		for i := range s.batch.Tables {
			if err := s.load(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	s.faults = nil
	for _, f := range found {
		s.blame(f.Table, f.Item, f.Err)
	}
	return err
}

// round applies the batch without the known faults, and finds more.
func (s *isolation) round(ctx context.Context) error {
	s.replace = true
	var failed *weir.RowError
	at := -1
	err := s.try(ctx, func() error {
		for i := range s.batch.Tables {
			if err := s.load(ctx, i); err != nil {
				return err
			}
		}
		order := s.order()
		for _, i := range slices.Backward(order) {
			if err := s.noteReferenced(ctx, i); err != nil {
				return err
			}
			if err := s.remove(ctx, i); err != nil {
				at = i
				return s.culprits(ctx, i, err, s.remove)
			}
		}
		for _, i := range order {
			if err := s.park(ctx, i); err != nil {
				at = i
				return s.culprits(ctx, i, err, s.park)
			}
		}
		for _, i := range order {
			if err := s.merge(ctx, i); err != nil {
				at = i
				if isUnique(err) {
					before := len(s.found)
					if err := s.takenValues(ctx, i); err != nil || len(s.found) > before {
						return err
					}
				}
				return s.culprits(ctx, i, err, s.merge)
			}
		}
		for _, i := range order {
			if err := s.orphans(ctx, i); err != nil {
				return err
			}
			if err := s.stillReferenced(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.As(err, &failed) && at >= 0 {
		return fmt.Errorf("isolate: a row of %s is at fault, and none alone: %w", s.dests[at].name, err)
	}
	return err
}

// places blames the items that a query over a staging table returns.
func (s *isolation) places(ctx context.Context, i int, query string, why error, constraint bool) error {
	var place int
	e := &weir.RowError{Constraint: constraint, Err: why}
	if constraint {
		e.Hint = retryHint
	}
	return s.c.each(ctx, query, nil, []any{&place}, func() error {
		s.blame(i, place, e)
		return nil
	})
}

// staged returns the staging columns of target columns; nil where one is not
// staged.
func (d *destination) staged(names []string) []string {
	var out []string
	for _, n := range names {
		i := slices.IndexFunc(d.columns, func(m mapped) bool { return equalNames(m.target.Name, n) })
		if i < 0 {
			return nil
		}
		out = append(out, d.columns[i].stage())
	}
	return out
}

func pairs(format string, a, b []string) string {
	var out []string
	for i := range a {
		out = append(out, fmt.Sprintf(format, a[i], b[i]))
	}
	return strings.Join(out, " and ")
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = ident(n)
	}
	return out
}

// takenValues blames the rows whose unique values rows outside the batch hold,
// and of rows of the batch with one unique value all but the first. Rows that
// exchange values among them are not blamed.
func (s *isolation) takenValues(ctx context.Context, i int) error {
	d := s.dests[i]
	var keys, stagedKeys []string
	for _, k := range d.key {
		keys, stagedKeys = append(keys, "t."+ident(k.target.Name)), append(stagedKeys, k.stage())
	}
	for _, u := range d.uniques {
		cols := d.staged(u.columns)
		if u.partial || len(cols) == 0 {
			continue
		}
		why := fmt.Errorf("another row holds its value of the unique index over %s", strings.Join(u.columns, ", "))
		if err := s.places(ctx, i, fmt.Sprintf("select distinct s.place from %s s join %s t on %s where (%s) not in (select %s from %s)",
			stageTable(i), ident(d.name), pairs("t.%s = s.%s", quoted(u.columns), cols), strings.Join(keys, ", "), strings.Join(stagedKeys, ", "), stageTable(i)), why, true); err != nil {
			return err
		}
		if err := s.places(ctx, i, fmt.Sprintf("select distinct s.place from %s s join %s o on %s where o.rowid < s.rowid",
			stageTable(i), stageTable(i), pairs("s.%s = o.%s", cols, cols)), why, true); err != nil {
			return err
		}
	}
	return nil
}

// orphans blames rows whose parent is not there, now that all is applied.
func (s *isolation) orphans(ctx context.Context, i int) error {
	d := s.dests[i]
	for _, f := range d.out {
		cols := d.staged(f.columns)
		if len(cols) == 0 {
			continue
		}
		var set []string
		for _, c := range cols {
			set = append(set, "s."+c+" is not null")
		}
		if err := s.places(ctx, i, fmt.Sprintf("select distinct s.place from %s s where %s and not exists (select 1 from %s p where %s)",
			stageTable(i), strings.Join(set, " and "), ident(f.parent), pairs("p.%s = s.%s", quoted(f.named), cols)),
			fmt.Errorf("the row of %s that it refers to is not there", f.parent), true); err != nil {
			return err
		}
	}
	return nil
}

func referencedTable(i, f int) string { return fmt.Sprintf("temp.weir_referenced_%d_%d", i, f) }

// restrains reports whether the foreign key keeps a parent from being deleted.
func (f foreignKey) restrains() bool {
	return f.onDelete == "NO ACTION" || f.onDelete == "RESTRICT"
}

// noteReferenced keeps the values by which other rows may refer to those that
// will be deleted. A RESTRICT speaks at once, so its rows are blamed before.
func (s *isolation) noteReferenced(ctx context.Context, i int) error {
	d := s.dests[i]
	if s.mode != weir.Mirror {
		return nil
	}
	var on []string
	for _, k := range d.key {
		on = append(on, fmt.Sprintf("t.%s = g.%s", ident(k.target.Name), k.stage()))
	}
	for n, f := range d.in {
		if !f.restrains() {
			continue
		}
		table := referencedTable(i, n)
		var list []string
		for j, c := range f.named {
			list = append(list, fmt.Sprintf("t.%s as v%d", ident(c), j))
		}
		if _, err := s.c.ExecContext(ctx, "drop table if exists "+table); err != nil {
			return err
		}
		if _, err := s.c.ExecContext(ctx, fmt.Sprintf("create temporary table %s as select g.place, %s from %s g join %s t on %s",
			strings.TrimPrefix(table, "temp."), strings.Join(list, ", "), goneTable(i), ident(d.name), strings.Join(on, " and "))); err != nil {
			return err
		}
		if f.onDelete != "RESTRICT" {
			continue
		}
		before := len(s.found)
		if err := s.referenced(ctx, i, n, false); err != nil {
			return err
		}
		if len(s.found) > before {
			var places []string
			for _, f := range s.found[before:] {
				places = append(places, fmt.Sprint(f.Item))
			}
			if _, err := s.c.ExecContext(ctx, fmt.Sprintf("delete from %s where place in (%s)", goneTable(i), strings.Join(places, ", "))); err != nil {
				return err
			}
		}
	}
	return nil
}

// referenced blames the noted rows that others refer to. Before the delete they
// are still there themselves; afterwards an upsert may have brought the value
// back under another key.
func (s *isolation) referenced(ctx context.Context, i, n int, deleted bool) error {
	f := s.dests[i].in[n]
	var values []string
	for j := range f.named {
		values = append(values, fmt.Sprintf("v%d", j))
	}
	query := fmt.Sprintf("select distinct r.place from %s r where exists (select 1 from %s c where %s)",
		referencedTable(i, n), ident(f.table), pairs("c.%s = r.%s", quoted(f.columns), values))
	if deleted {
		query += fmt.Sprintf(" and not exists (select 1 from %s p where %s)", ident(s.dests[i].name), pairs("p.%s = r.%s", quoted(f.named), values))
	}
	return s.places(ctx, i, query, fmt.Errorf("rows of %s still refer to it", f.table), true)
}

// stillReferenced blames keys that are deleted while rows refer to them.
func (s *isolation) stillReferenced(ctx context.Context, i int) error {
	if s.mode != weir.Mirror {
		return nil
	}
	for n, f := range s.dests[i].in {
		if f.restrains() {
			if err := s.referenced(ctx, i, n, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// culprits finds by halving the items of table i that make step fail. Each try
// has the batch's other items of the table out of the staging tables.
func (s *isolation) culprits(ctx context.Context, i int, cause error, step func(context.Context, int) error) error {
	var row *weir.RowError
	if !errors.As(cause, &row) {
		return cause
	}
	var places []int
	var place int
	if err := s.c.each(ctx, fmt.Sprintf("select place from %s union select place from %s order by 1", stageTable(i), goneTable(i)), nil, []any{&place}, func() error {
		places = append(places, place)
		return nil
	}); err != nil {
		return err
	}
	before := len(s.found)
	var halve func(part []int) error
	halve = func(part []int) error {
		var inner error
		err := s.tryNested(ctx, func() error {
			for _, table := range []string{stageTable(i), goneTable(i)} {
				if _, err := s.c.ExecContext(ctx, fmt.Sprintf("delete from %s where place not between ?1 and ?2", table), part[0], part[len(part)-1]); err != nil {
					return err
				}
			}
			inner = step(ctx, i)
			return nil
		})
		var r *weir.RowError
		switch {
		case err != nil:
			return err
		case inner == nil:
			return nil
		case !errors.As(inner, &r):
			return inner
		case len(part) == 1:
			s.blame(i, part[0], r)
			return nil
		}
		half := len(part) / 2
		if err := halve(part[:half]); err != nil {
			return err
		}
		return halve(part[half:])
	}
	if err := halve(places); err != nil {
		return err
	}
	if len(s.found) == before {
		return cause
	}
	return nil
}

func (s *isolation) tryNested(ctx context.Context, f func() error) error {
	if _, err := s.c.ExecContext(ctx, "savepoint weir_half"); err != nil {
		return err
	}
	err := f()
	_, rerr := s.c.ExecContext(context.WithoutCancel(ctx), "rollback to weir_half")
	_, lerr := s.c.ExecContext(context.WithoutCancel(ctx), "release weir_half")
	return errors.Join(err, rerr, lerr)
}
