package dialecttest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weir-cdc/weir"
)

var isolateTests = []test{
	{"ThreeOf500", testIsolateThree},
	{"None", testIsolateNone},
	{"All", testIsolateAll},
	{"Orphans", testIsolateOrphans},
	{"Referenced", testIsolateReferenced},
	{"Unique", testIsolateUnique},
	{"Sets", testIsolateSets},
	{"Mixed", testIsolateMixed},
	{"Modes", testIsolateModes},
}

// isolate checks that Ship fails and that exactly the wanted items of the batch
// are at fault, that nothing is left behind, and that the rest can be shipped.
// want are "table item", constraint says whose fault it is.
func (tg *target) isolate(b *weir.Batch, constraint bool, want ...string) []weir.Fault {
	tg.t.Helper()
	var before []string
	tables := map[string]bool{}
	for _, t := range b.Tables {
		tables[t.Capture.Table.Name] = true
	}
	counts := func() (out []string) {
		for _, t := range b.Tables {
			if n, err := tg.Rows(tg.t.Context(), []*weir.Capture{t.Capture}); err != nil {
				tg.t.Fatal(err)
			} else {
				out = append(out, fmt.Sprint(t.Capture.Table.Name, n))
			}
		}
		return out
	}
	before = counts()
	if len(want) > 0 {
		as[*weir.RowError](tg.t, tg.tryShip(b))
	}
	faults, err := tg.Isolate(tg.t.Context(), b)
	if err != nil {
		tg.t.Fatal(err)
	}
	got := []string{}
	for _, f := range faults {
		got = append(got, fmt.Sprintf("%d %d", f.Table, f.Item))
		it := b.Tables[f.Table].Items[f.Item]
		switch {
		case f.Err == nil:
			tg.t.Errorf("fault %s has no error", got[len(got)-1])
		case f.Err.Constraint != constraint:
			tg.t.Errorf("fault %s is %+v, want Constraint = %t", got[len(got)-1], f.Err, constraint)
		case f.Err.Key != fieldsText(it.Key) || f.Err.Table == "":
			tg.t.Errorf("fault %s names key %q of table %q, want %q", got[len(got)-1], f.Err.Key, f.Err.Table, fieldsText(it.Key))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, append([]string{}, want...)) {
		tg.t.Fatalf("Isolate found the items %q, want %q", got, want)
	}
	if after := counts(); !slices.Equal(before, after) {
		tg.t.Errorf("Isolate left a trace: the tables had %v rows, now %v", before, after)
	}
	if rest := b.Without(faults); len(rest.Tables) > 0 {
		if err := tg.tryShip(rest); err != nil {
			tg.t.Errorf("without the faults Ship = %v", err)
		}
	}
	return faults
}

func checked(e Engine) string {
	return fmt.Sprintf("create table things (id %s not null primary key, n %s, v %s, constraint small check (n < 1000))", e.Int, e.Int, e.Text)
}

var checkedShape = shaped("things", "id int32", "n int32", "v text")

func testIsolateThree(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, checked(e))
	var items []weir.Item
	for i := range 500 {
		n := "1"
		if i == 0 || i == 250 || i == 499 {
			n = "1000"
		}
		items = append(items, upsert(fmt.Sprint(i), n, "x"))
	}
	tg.isolate(batch(checkedShape.of(items...)), false, "0 0", "0 250", "0 499")
	tg.wantRows("select count(*) from things", "497")
	tg.wantRows("select count(*) from things where n >= 1000", "0")
	// Upserts over rows that are there, and deletes, among them bad ones.
	items = nil
	for i := range 500 {
		switch {
		case i%5 == 1:
			items = append(items, remove(fmt.Sprint(i)))
		case i == 77 || i == 78 || i == 300:
			items = append(items, upsert(fmt.Sprint(i), "5000", "y"))
		default:
			items = append(items, upsert(fmt.Sprint(i), "2", "y"))
		}
	}
	tg.isolate(batch(checkedShape.of(items...)), false, "0 77", "0 78", "0 300")
	tg.wantRows("select id, v from things where id in (76, 77, 78, 79) order by id", "77|x", "78|x", "79|y")
	tg.wantRows("select count(*) from things", "400")
}

func testIsolateNone(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	tg.isolate(one("1", "a"), false)
	tg.wantRows(selectOne, "1|a")
	faults, err := tg.Isolate(t.Context(), &weir.Batch{})
	if err != nil || len(faults) != 0 {
		t.Errorf("Isolate of nothing = %v, %v, want none", faults, err)
	}
}

func testIsolateAll(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, checked(e))
	var items []weir.Item
	for i := range 9 {
		items = append(items, upsert(fmt.Sprint(i), "1000", "x"))
	}
	tg.isolate(batch(checkedShape.of(items...)), false, numbered("0 %d", 9)...)
	tg.wantRows("select count(*) from things", "0")
}

func testIsolateOrphans(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, family(e)...)
	parents, kids := familyShapes()
	tg.ship(batch(parents.of(upsert("1", "there"))))
	var items []weir.Item
	for i := range 50 {
		parent := []string{"1", "2", null}[i%3]
		if i == 10 || i == 40 {
			parent = "99"
		}
		items = append(items, upsert(fmt.Sprint(i), parent, "x"))
	}
	tg.isolate(batch(kids.of(items...), parents.of(upsert("2", "beside"))), true, "0 10", "0 40")
	tg.wantRows("select count(*) from kids", "48")
	tg.wantRows("select id from parents order by id", "1", "2")
}

func testIsolateReferenced(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, family(e)...)
	parents, kids := familyShapes()
	tg.ship(batch(parents.of(upsert("1", "a"), upsert("2", "b"), upsert("3", "c")), kids.of(upsert("1", "1", "x"), upsert("2", "2", "x"))))
	tg.isolate(batch(parents.of(remove("1"), remove("2"), remove("3")), kids.of(remove("2"))), true, "0 0")
	tg.wantRows("select id from parents", "1")
	tg.wantRows("select id from kids", "1")
}

func testIsolateUnique(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, uniqueTable(e, "null"))
	sh := shaped("users", "id int32", "mail text", "v int32")
	tg.ship(batch(sh.of(upsert("1", "a", "0"), upsert("2", "b", "0"), upsert("3", "c", "0"))))
	// 1 and 2 exchange theirs, 4 wants what 3 keeps.
	tg.isolate(batch(sh.of(upsert("1", "b", "1"), upsert("4", "c", "1"), upsert("2", "a", "1"), upsert("5", "e", "1"))), true, "0 1")
	tg.wantRows("select id, mail from users order by id", "1|b", "2|a", "3|c", "5|e")
}

func testIsolateSets(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, fmt.Sprintf("create table kids (parent %[1]s not null, id %[1]s not null, n %[1]s check (n < 1000), primary key (parent, id))", e.Int))
	sh := shaped("kids", "parent int32", "id int32", "n int32").set("id")
	tg.ship(batch(sh.of(children("2", row("2", "1", "7")))))
	tg.isolate(batch(sh.of(
		children("1", row("1", "1", "1"), row("1", "2", "2")),
		children("2", row("2", "1", "1"), row("2", "2", "1000")),
		children("3", row("3", "1", "1")),
	)), false, "0 1")
	// A set that is at fault stays as it was.
	tg.wantRows("select parent, id, n from kids order by parent, id", "1|1|1", "1|2|2", "2|1|7", "3|1|1")
}

// testIsolateMixed has faults of the rows' own in several tables, beside rows
// that refer to them.
func testIsolateMixed(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, append(family(e), checked(e))...)
	parents, kids := familyShapes()
	b := batch(
		kids.of(upsert("1", "1", "x"), upsert("2", "9", "orphan"), upsert("3", null, "x")),
		checkedShape.of(upsert("1", "1", "x"), upsert("2", "1000", "bad")),
		parents.of(upsert("1", "p")),
	)
	as[*weir.RowError](t, tg.tryShip(b))
	faults, err := tg.Isolate(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range faults {
		got[fmt.Sprintf("%d %d", f.Table, f.Item)] = f.Err.Constraint
	}
	if len(got) != 2 || len(faults) != 2 || !got["0 1"] || got["1 1"] {
		t.Errorf("Isolate found %v, want the orphan as a constraint's and the bad value as the row's own", got)
	}
	tg.ship(b.Without(faults))
	tg.wantRows("select id from kids order by id", "1", "3")
	tg.wantRows("select id from things", "1")
}

func testIsolateModes(t *testing.T, e Engine) {
	for _, mode := range []weir.Mode{weir.SoftDelete, weir.History} {
		t.Run(string(mode), func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{Mode: mode})
			sh := shaped("things", "id int32", "n int32", "v text")
			tg.ship(batch(sh.of(upsert("1", "1", "a"), upsert("2", "2", "b"))))
			b := batch(sh.of(upsert("1", "3", "c"), upsert("3", "no number", "bad"), remove("2")))
			as[*weir.RowError](t, tg.tryShip(b))
			faults := tg.isolate(b, false, "0 1")
			if f := faults[0].Err; f.Column != "n" || f.Value != "no number" {
				t.Errorf("the fault is %+v, want column n and its value", f)
			}
			current := map[weir.Mode]string{weir.SoftDelete: weir.DeletedOnColumn, weir.History: weir.ValidToColumn}[mode]
			tg.wantRows("select id, n, v from things where "+current+" is null order by id", "1|3|c")
			tg.wantRows("select id, n, v from things where "+current+" is not null and id = 2", "2|2|b")
		})
	}
}
