package dialecttest

import (
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

// testTargetOwnNames: what is named as weir's own at a target is refused, and
// weir's own is left as it is.
func testTargetOwnNames(t *testing.T, e Engine) {
	for _, mode := range []weir.Mode{weir.Mirror, weir.SoftDelete, weir.History} {
		for _, table := range []string{"weir_ledger", "weir_ledger_identity"} {
			tg := newTarget(t, e, weir.TargetOptions{Mode: mode})
			c := wantConfig(t, table, tg.tryShip(batch(shaped(table, "id int32", "v text").of(upsert("1", "a")))))
			if !strings.Contains(c.Error(), table) || !strings.Contains(c.Hint, "rename") {
				t.Errorf("a table %s in the mode %s is the error %v, want the table in it, and to rename it", table, mode, c)
			}
			tg.wantRows("select count(*) from weir_ledger", "0")
		}
	}
	for column, refused := range map[string]weir.Mode{"weir_deleted_on": weir.SoftDelete, "weir_valid_from": weir.History, "weir_valid_to": weir.History} {
		for _, mode := range []weir.Mode{weir.Mirror, weir.SoftDelete, weir.History} {
			tg := newTarget(t, e, weir.TargetOptions{Mode: mode})
			sh := shaped("named", "id int32", column+" text")
			err := tg.tryShip(batch(sh.of(upsert("1", "a"))))
			if mode != refused {
				if err != nil {
					t.Errorf("a column %s in the mode %s: %v", column, mode, err)
					continue
				}
				tg.wantRows("select "+column+" from named", "a")
				continue
			}
			if c := wantConfig(t, column, err); !strings.Contains(c.Error(), "named") || !strings.Contains(c.Error(), column) || !strings.Contains(c.Hint, "mode") {
				t.Errorf("a column %s in the mode %s is the error %v, want table, column and another mode in it", column, mode, c)
			}
		}
	}
}
