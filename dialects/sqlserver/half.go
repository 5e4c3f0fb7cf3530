package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
)

// A text of SQL Server may hold half a surrogate pair, which is text nowhere
// else, and of which the driver makes U+FFFD. So where U+FFFD arrives, the server
// is asked how many there are, and what has more is refused.

const replacement = "\ufffd"

var errHalf = errors.New("the text has half a surrogate pair, which is no character")

const halfHint = "correct the text at the source"

// replacements is the SQL expression of how many U+FFFD a text has.
func replacements(expr string) string {
	expr = "CONVERT(nvarchar(max), " + expr + ")"
	return fmt.Sprintf("COALESCE(LEN(%[1]s + N'.') - LEN(REPLACE(%[1]s COLLATE Latin1_General_BIN2, NCHAR(65533), N'') + N'.'), 0)", expr)
}

// halfKeys takes out the items whose key, as it stands in the queue, has half a
// pair: its row would not be found, and so be taken for deleted.
func (s *Source) halfKeys(ctx context.Context, q queryer, queue string, g *group) ([]weir.ChangeFault, error) {
	var faults []weir.ChangeFault
	var items []weir.Item
	var texts [][]string
	for i, it := range g.items {
		key := it.Change.OldPrimaryKey
		if g.plan.Kind == weir.Plain && strings.Contains(key, replacement) {
			var n int64
			err := q.QueryRowContext(ctx, "SELECT "+replacements("q.OldPrimaryKey")+" FROM "+s.own(queueTable(queue))+" q WHERE q.InstanceGUID = CONVERT(uniqueidentifier, @p1) AND q.ChangeType = @p2",
				it.Change.InstanceGUID.String(), it.Change.ChangeType).Scan(&n)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return nil, err
			}
			if err == nil && n != int64(strings.Count(key, replacement)) {
				faults = append(faults, weir.ChangeFault{Change: it.Change, Err: &weir.RowError{Table: g.plan.Table.String(), Key: key, Err: errHalf, Hint: halfHint}})
				continue
			}
		}
		items, texts = append(items, it), append(texts, g.texts[i])
	}
	g.items, g.texts = items, texts
	return faults, nil
}

// halves takes the items out of the batch of which a text has half a pair.
func (r *tableReader) halves(ctx context.Context) error {
	type id struct {
		instance weir.GUID
		typ      string
	}
	p := r.g.plan
	suspects := map[id]*weir.Item{}
	var columns []int
	for n := range r.batch.Items {
		it := &r.batch.Items[n]
		for _, row := range it.Rows {
			for i, f := range row {
				if p.table.columns[i].Kind != weir.Bytes && strings.Contains(string(f), replacement) {
					suspects[id{it.Change.InstanceGUID, it.Change.ChangeType}] = it
					if !slices.Contains(columns, i) {
						columns = append(columns, i)
					}
				}
			}
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	var places []int
	for i, it := range r.g.items {
		if suspects[id{it.Change.InstanceGUID, it.Change.ChangeType}] != nil {
			places = append(places, i)
		}
	}
	text, keys := r.given(places)
	counts := make([]int64, len(columns))
	var place int
	dest := []any{&place}
	var list []string
	for n, i := range columns {
		c := &p.table.columns[i]
		list = append(list, fmt.Sprintf("COALESCE(SUM(CONVERT(bigint, %s)), 0)", replacements(c.readExpr("t."+ident(c.Name)))))
		dest = append(dest, &counts[n])
	}
	text += fmt.Sprintf("SELECT k.Place, %s FROM #GI_Read k JOIN %s t ON %s GROUP BY k.Place", strings.Join(list, ", "), tableName(p.Table), p.keyMatch("t", "k"))
	bad := map[*weir.Item]bool{}
	if err := each(ctx, r.q, text, []any{sql.Named("keys", mssql.TVP{TypeName: r.s.schema + ".GI_Keys", Value: keys})}, dest, func() error {
		c := r.g.items[place].Change
		it := suspects[id{c.InstanceGUID, c.ChangeType}]
		for n, i := range columns {
			arrived, value := 0, ""
			for _, row := range it.Rows {
				if k := strings.Count(string(row[i]), replacement); k > 0 {
					arrived, value = arrived+k, string(row[i])
				}
			}
			if counts[n] != int64(arrived) && !bad[it] {
				bad[it] = true
				r.faults = append(r.faults, weir.ChangeFault{Change: c, Err: &weir.RowError{Table: p.Table.String(), Key: keyText(it),
					Column: p.table.columns[i].Name, Value: shorten(value), Err: errHalf, Hint: halfHint}})
			}
		}
		return nil
	}); err != nil {
		return err
	}
	var kept []weir.Item
	for n := range r.batch.Items {
		if !bad[&r.batch.Items[n]] {
			kept = append(kept, r.batch.Items[n])
		}
	}
	r.batch.Items = kept
	return nil
}
