package sqlserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-cdc/weir"
)

// splitKeys fills in the items' key texts, and takes out those that have none.
func (g *group) splitKeys() []weir.ChangeFault {
	var faults []weir.ChangeFault
	kept := g.items[:0]
	for _, it := range g.items {
		texts, err := keyTexts(g.plan, it.Change)
		if err != nil {
			faults = append(faults, badKey(g.plan, it.Change, err))
			continue
		}
		kept = append(kept, it)
		g.texts = append(g.texts, texts)
	}
	g.items = kept
	return faults
}

func badKey(p *plan, c weir.Change, err error) weir.ChangeFault {
	return weir.ChangeFault{Change: c, Err: &weir.RowError{Table: p.Table.String(), Key: c.OldPrimaryKey, Err: err,
		Hint: "OldPrimaryKey is the key's text; of several columns a JSON array of texts; weir queue list shows it"}}
}

func keyTexts(p *plan, c weir.Change) ([]string, error) {
	if p.Kind != weir.Plain {
		return []string{c.InstanceGUID.String()}, nil
	}
	if !c.HasOldPrimaryKey {
		return nil, errors.New("the change has no OldPrimaryKey, so its row cannot be found")
	}
	if len(p.keyCols) == 1 {
		return []string{c.OldPrimaryKey}, nil
	}
	var texts []string
	if err := json.Unmarshal([]byte(c.OldPrimaryKey), &texts); err != nil {
		return nil, fmt.Errorf("decode the key: %w", err)
	}
	if len(texts) != len(p.keyCols) {
		return nil, fmt.Errorf("the key has %d values, %d are needed", len(texts), len(p.keyCols))
	}
	return texts, nil
}

// keyRow is a row of GI_Keys.
type keyRow struct {
	Place                          int32
	K1, K2, K3, K4, K5, K6, K7, K8 *string
}

func (k *keyRow) set(i int, text *string) {
	*[...]**string{&k.K1, &k.K2, &k.K3, &k.K4, &k.K5, &k.K6, &k.K7, &k.K8}[i] = text
}

// given makes a table of the keys of some items: the key's values are made once,
// so that the table's index is sought by them.
func (r *tableReader) given(places []int) (text string, keys []keyRow) {
	for _, i := range places {
		k := keyRow{Place: int32(i)}
		for j := range r.g.texts[i] {
			text := r.s.listed(r.g.texts[i][j])
			k.set(j, &text)
		}
		keys = append(keys, k)
	}
	var values []string
	for i, c := range r.g.plan.keyCols {
		name := fmt.Sprintf("K%d", i+1)
		values = append(values, c.fromKeyText("k."+name)+" AS "+name)
	}
	return "DROP TABLE IF EXISTS #GI_Read;\nSELECT k.Place, " + strings.Join(values, ", ") + " INTO #GI_Read FROM @keys k;\n", keys
}
