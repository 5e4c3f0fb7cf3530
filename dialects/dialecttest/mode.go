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

// testTargetModeChanged: a table that was made in another mode is refused, and
// not touched, where its rows would be taken for what they are not.
func testTargetModeChanged(t *testing.T, e Engine) {
	plain := shaped("kept", "id int32", "v text")
	kids := shaped("kids", "parent int32", "id int32", "v text").set("id")
	keyless := shaped("loose", "parent int32", "v text").set()
	first := map[string]*weir.Batch{
		"kept":  batch(plain.of(upsert("1", "a"))),
		"kids":  batch(kids.of(children("1", row("1", "1", "a")))),
		"loose": batch(keyless.of(children("1", row("1", "a")))),
	}
	for _, x := range []struct {
		table    string
		from, to weir.Mode
		refused  string // what the error names; empty where the mode may change
	}{
		{"kept", weir.History, weir.Mirror, "mode history"},
		{"kept", weir.History, weir.SoftDelete, "mode history"},
		{"kept", weir.SoftDelete, weir.Mirror, "mode soft delete"},
		{"kept", weir.SoftDelete, weir.History, "mode soft delete"},
		{"kept", weir.Mirror, weir.History, "unique index over (id)"},
		{"kept", weir.Mirror, weir.SoftDelete, ""},
		{"kids", weir.History, weir.Mirror, "mode history"},
		{"kids", weir.SoftDelete, weir.Mirror, "mode soft delete"},
		{"kids", weir.Mirror, weir.History, "unique index over (parent, id)"},
		{"kids", weir.Mirror, weir.SoftDelete, ""},
		{"loose", weir.History, weir.Mirror, "mode history"},
		{"loose", weir.Mirror, weir.History, ""},
	} {
		t.Run(x.table+" from "+string(x.from)+" to "+string(x.to), func(t *testing.T) {
			t.Parallel()
			tg := newTarget(t, e, weir.TargetOptions{Mode: x.from})
			tg.ship(first[x.table])
			before := tg.rows("select * from " + x.table)
			capture := first[x.table].Tables[0].Capture
			tg.Target = openTarget(t, e, tg.url, weir.TargetOptions{Mode: x.to})
			if n, err := tg.Rows(t.Context(), []*weir.Capture{capture}); err != nil || n != 1 {
				t.Errorf("Rows = %d, %v, want 1", n, err)
			}
			err := tg.tryShip(first[x.table])
			if x.refused == "" {
				if err != nil {
					t.Fatal(err)
				}
				tg.wantRows("select v from "+x.table+" where "+x.to.EndColumn()+" is null", "a")
				return
			}
			c := wantConfig(t, "the other mode", err)
			if !strings.Contains(c.Error(), x.table) || !strings.Contains(c.Err.Error(), x.refused) || !strings.Contains(c.Err.Error(), string(x.to)) {
				t.Errorf("the error is %v, want %s, %q and the target's mode in it", c, x.table, x.refused)
			}
			tg.wantRows("select * from "+x.table, before...)
		})
	}
}

// testTargetKeyRenamed: a key's column that the source renamed is named, and not
// added.
func testTargetKeyRenamed(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	tg.ship(batch(shaped("named", "id int32", "v text").of(upsert("1", "a"))))
	after := batch(shaped("named", "number int32", "v text").of(upsert("1", "b")))
	c := wantConfig(t, "a key column that was renamed", tg.tryShip(after))
	if !strings.Contains(c.Error(), "named") || !strings.Contains(c.Error(), `lacks the key column "number"`) || !strings.Contains(c.Hint, "RENAME COLUMN") {
		t.Errorf("the error is %v, want table, column and RENAME COLUMN in it", c)
	}
	tg.wantRows("select * from named", "1|a")
}

// testTargetSoftDeleteOfSetsUnique: children exchange a unique value, and what
// was deleted before stays.
func testTargetSoftDeleteOfSetsUnique(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{Mode: weir.SoftDelete},
		"create table kids (parent "+e.Int+" not null, id "+e.Int+" not null, v "+e.KeyText+" not null unique, primary key (parent, id))")
	sh := shaped("kids", "parent int32", "id int32", "v text").set("id")
	tg.ship(batch(sh.of(children("1", row("1", "1", "a"), row("1", "2", "b"), row("1", "3", "c")))))
	tg.ship(batch(sh.of(children("1", row("1", "1", "a"), row("1", "2", "b")))))
	tg.ship(batch(sh.of(children("1", row("1", "1", "b"), row("1", "2", "a")))))
	tg.wantRows("select id, v from kids where weir_deleted_on is null order by id", "1|b", "2|a")
	tg.wantRows("select id, v from kids where weir_deleted_on is not null order by id", "3|c")
}
