package dialecttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

var targetTests = []test{
	{"Create", testTargetCreate},
	{"Mirror", testTargetMirror},
	{"MirrorSmallBatches", testTargetMirrorSmall},
	{"Evolve", testTargetEvolve},
	{"Ignore", testTargetIgnore},
	{"Fail", testTargetFail},
	{"ColumnDropped", testTargetColumnDropped},
	{"SoftDelete", testTargetSoftDelete},
	{"History", testTargetHistory},
	{"HistoryOfSets", testTargetHistoryOfSets},
	{"SoftDeleteOfSets", testTargetSoftDeleteOfSets},
	{"SoftDeleteOfSetsUnique", testTargetSoftDeleteOfSetsUnique},
	{"UniqueExchange", testTargetUniqueExchange},
	{"UniqueElsewhere", testTargetUniqueElsewhere},
	{"UniqueReferenced", testTargetUniqueReferenced},
	{"ChildBeforeParent", testTargetChildBeforeParent},
	{"ParentBeforeChild", testTargetParentBeforeChild},
	{"OneBatch", testTargetOneBatch},
	{"SelfReference", testTargetSelfReference},
	{"Cycle", testTargetCycle},
	{"Sets", testTargetSets},
	{"SetsMove", testTargetSetsMove},
	{"SetsMoveOwnKey", testTargetSetsMoveOwnKey},
	{"Texts", testTargetTexts},
	{"HostileValuesAsKeys", testTargetHostileKeys},
	{"NamedExcluded", testTargetNamedExcluded},
	{"OwnNames", testTargetOwnNames},
	{"ModeChanged", testTargetModeChanged},
	{"KeyRenamed", testTargetKeyRenamed},
	{"ExtraColumns", testTargetExtraColumns},
	{"ExtraColumnsExchange", testTargetExtraColumnsExchange},
	{"NoKey", testTargetNoKey},
	{"View", testTargetView},
	{"Generated", testTargetGenerated},
	{"GeneratedReferences", testTargetGeneratedReferences},
	{"Concurrent", testTargetConcurrent},
}

// newLine makes a source with the captures of three, and a target.
func newLine(t *testing.T, e Engine, opts weir.TargetOptions, extra ...string) (*source, *target) {
	t.Helper()
	s := newSource(t, e, append(threeTables(e), extra...)...)
	s.apply(three(s)...)
	return s, newTarget(t, e, opts)
}

func testTargetCreate(t *testing.T, e Engine) {
	s := newSource(t, e,
		fmt.Sprintf("create table parents (id %s not null primary key)", e.Int),
		fmt.Sprintf("create table goods (a %[1]s not null, b %[2]s not null, code %[2]s not null unique, parent %[1]s references parents (id), n %[1]s check (n > 0), primary key (b, a))", e.Int, e.KeyText))
	s.apply(s.plain("goods"))
	s.exec("insert into parents values (1)", "insert into goods values (1, 'x', 'c1', 1, 1), (2, 'x', 'c2', null, 2)")
	tg := newTarget(t, e, weir.TargetOptions{})
	drain(t, s, tg, tg.Encoding(), 100)
	tg.wantRows("select a, b, code, parent, n from goods order by a", "1|x|c1|1|1", "2|x|c2|"+null+"|2")
	if n, err := tg.Rows(t.Context(), []*weir.Capture{s.capture("goods", "")}); err != nil || n != 2 {
		t.Errorf("Rows = %d, %v, want 2", n, err)
	}
	// The key is kept, and no other constraint.
	tg.exec("insert into goods values (3, 'x', 'c1', 99, -1)")
	if _, err := tg.sql.ExecContext(t.Context(), "insert into goods values (3, 'x', 'c9', 1, 1)"); err == nil {
		t.Error("the target's table took a key twice")
	}
	if _, err := tg.sql.ExecContext(t.Context(), "insert into goods (b, code) values ('x', 'c9')"); err == nil {
		t.Error("the target's table took a key of null")
	}
	// A table that does not exist has no rows.
	empty := newTarget(t, e, weir.TargetOptions{})
	if n, err := empty.Rows(t.Context(), []*weir.Capture{s.capture("goods", "")}); err != nil || n != 0 {
		t.Errorf("Rows of a table that is not there = %d, %v, want 0", n, err)
	}
	// A delete of a row that never came makes the table, and nothing more.
	s.exec("delete from goods")
	drain(t, s, empty, empty.Encoding(), 100)
	empty.wantRows("select count(*) from goods", "0")
}

func testTargetMirror(t *testing.T, e Engine)      { targetMirror(t, e, 1000) }
func testTargetMirrorSmall(t *testing.T, e Engine) { targetMirror(t, e, 1) }

func targetMirror(t *testing.T, e Engine, size int) {
	s, tg := newLine(t, e, weir.TargetOptions{})
	a, b := weir.NewGUID(), weir.NewGUID()
	for _, enc := range encodings(e, e, tg.Target) {
		for _, step := range [][]string{
			{"insert into orders values (1, 'a'), (2, 'b'), (-3, null), (4, '')",
				fmt.Sprintf("insert into things values ('%s', null, 'p', 'n'), ('%s', null, null, 'm')", a, b), fmt.Sprintf("insert into events values (1, '%[1]s', 'x'), (2, '%[1]s', 'y'), (3, '%[2]s', 'z')", a, b)},
			{"update orders set note = 'new' where id = 1", "update orders set id = 20 where id = 2", "delete from orders where id = 4"},
			{fmt.Sprintf("update events set thing = '%s' where id = 2", b), "update things set pk = 'q'"},
			{fmt.Sprintf("delete from things where guid = '%s'", a), fmt.Sprintf("delete from events where thing = '%s'", a), "insert into orders values (4, 'back'), (2, 'other')"},
			{},
			{"delete from orders", "delete from things", "delete from events"},
		} {
			s.exec(step...)
			drain(t, s, tg, enc, size)
			for _, query := range []string{"select * from orders order by id", "select * from things order by guid", "select id, thing, name from events order by id"} {
				tg.wantRows(query, s.rows(query)...)
			}
		}
	}
	s.wantEmpty("after the drains")
}

// twoColumns are what a table has before and after it grows.
func twoColumns() (before, after shape) {
	before = shaped("grow", "id int32", "a text")
	after = shaped("grow", "id int32", "a text", "b int64")
	return before, after
}

func testTargetEvolve(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	before, after := twoColumns()
	tg.ship(batch(before.of(upsert("1", "x"), upsert("2", "y"))))
	tg.ship(batch(after.of(upsert("2", "y", "7"), upsert("3", "z", "8"))))
	tg.wantRows("select id, a, b from grow order by id", "1|x|"+null, "2|y|7", "3|z|8")
	// A batch that was read before goes through after.
	tg.ship(batch(before.of(upsert("3", "late"))))
	tg.wantRows("select id, a, b from grow order by id", "1|x|"+null, "2|y|7", "3|late|8")
	// Another process evolves beside this one.
	other := openTarget(t, e, tg.url, weir.TargetOptions{})
	more := shaped("grow", "id int32", "a text", "b int64", "c text")
	if err := other.Ship(t.Context(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: batch(more.of(upsert("1", "x", "1", "c")))}); err != nil {
		t.Fatal(err)
	}
	tg.ship(batch(more.of(upsert("2", "y", "2", "d"))))
	tg.wantRows("select id, c from grow order by id", "1|c", "2|d", "3|"+null)
}

func testTargetIgnore(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{NewColumns: weir.Ignore})
	before, after := twoColumns()
	tg.ship(batch(before.of(upsert("1", "x"))))
	tg.ship(batch(after.of(upsert("1", "new", "7"), upsert("2", "y", "8"))))
	tg.wantRows("select * from grow order by id", "1|new", "2|y")
	// A column that somebody adds by hand is filled from then on.
	tg.execf(e.AddColumn, "grow", "b "+e.BigInt)
	other := openTarget(t, e, tg.url, weir.TargetOptions{NewColumns: weir.Ignore})
	if err := other.Ship(t.Context(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: batch(after.of(upsert("2", "y", "9")))}); err != nil {
		t.Fatal(err)
	}
	tg.wantRows("select * from grow order by id", "1|new|"+null, "2|y|9")
}

func testTargetFail(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{NewColumns: weir.Fail})
	before, after := twoColumns()
	tg.ship(batch(before.of(upsert("1", "x"))))
	err := tg.tryShip(batch(after.of(upsert("1", "new", "7"))))
	if c := wantConfig(t, "a new column", err); !strings.Contains(c.Error(), "grow") || !strings.Contains(c.Error(), `b`) {
		t.Errorf("the error is %v, want table and column in it", c)
	}
	tg.wantRows("select * from grow", "1|x")
	tg.ship(batch(before.of(upsert("2", "y"))))
	tg.wantRows("select * from grow order by id", "1|x", "2|y")
}

func testTargetColumnDropped(t *testing.T, e Engine) {
	s, tg := newLine(t, e, weir.TargetOptions{})
	s.exec("insert into orders values (1, 'a'), (2, 'b')")
	drain(t, s, tg, tg.Encoding(), 100)
	s.exec("alter table orders drop column note")
	s.execf(e.AddColumn, "orders", "other "+e.Int)
	s.exec("update orders set other = 5 where id = 1", "insert into orders values (3, 6)", "delete from orders where id = 2")
	drain(t, s, tg, tg.Encoding(), 100)
	tg.wantRows("select id, note, other from orders order by id", "1|a|5", "3|"+null+"|6")
}

func testTargetSoftDelete(t *testing.T, e Engine) {
	s, tg := newLine(t, e, weir.TargetOptions{Mode: weir.SoftDelete})
	c := []*weir.Capture{s.capture("orders", "")}
	const query = "select id, note from orders where weir_deleted_on is null order by id"
	const gone = "select id, note from orders where weir_deleted_on is not null order by id"
	before := tg.rows("select " + e.Now)[0]
	for _, enc := range encodings(e, e, tg.Target) {
		s.exec("insert into orders values (1, 'a'), (2, 'b'), (3, 'c')")
		drain(t, s, tg, enc, 100)
		tg.wantRows(query, "1|a", "2|b", "3|c")
		tg.wantRows(gone)
		s.exec("delete from orders where id in (1, 2)", "update orders set note = 'x' where id = 3")
		drain(t, s, tg, enc, 100)
		tg.wantRows(query, "3|x")
		tg.wantRows(gone, "1|a", "2|b")
		if n, err := tg.Rows(t.Context(), c); err != nil || n != 1 {
			t.Errorf("Rows = %d, %v, want the 1 that is not deleted", n, err)
		}
		tg.wantRows("select count(*) from orders where weir_deleted_on > "+e.Now, "0")
		stamps := tg.rows("select weir_deleted_on from orders where id = 1")
		s.exec("insert into orders values (2, 'back')", "insert into orders values (1, 'x')", "delete from orders where id = 1")
		drain(t, s, tg, enc, 100)
		tg.wantRows(query, "2|back", "3|x")
		tg.wantRows(gone, "1|a")
		if again := tg.rows("select weir_deleted_on from orders where id = 1"); !slices.Equal(stamps, again) {
			t.Errorf("a row deleted twice was marked with %s and then %s, want the first", stamps, again)
		}
		s.exec("delete from orders")
		drain(t, s, tg, enc, 100)
		tg.wantRows(query)
		tg.wantRows(gone, "1|a", "2|back", "3|x")
		tg.exec("delete from orders")
	}
	if before == "" {
		t.Errorf("%s is empty", e.Now)
	}
}

// wantVersions checks a history's times, and returns the versions of a table's
// key column, oldest first.
func (tg *target) wantVersions(table, key string) {
	tg.t.Helper()
	tg.wantRows(fmt.Sprintf("select count(*) from %s where weir_valid_from is null or weir_valid_to is not null and not weir_valid_from < weir_valid_to", table), "0")
	tg.wantRows(fmt.Sprintf("select count(*) from %[1]s a join %[1]s b on a.%[2]s = b.%[2]s and a.weir_valid_from < b.weir_valid_from where a.weir_valid_to is null or a.weir_valid_to > b.weir_valid_from", table, key), "0")
	tg.wantRows(fmt.Sprintf("select count(*) from %s where weir_valid_from > %s or weir_valid_to > %[2]s", table, tg.e.Now), "0")
}

func testTargetHistory(t *testing.T, e Engine) {
	s, tg := newLine(t, e, weir.TargetOptions{Mode: weir.History})
	c := []*weir.Capture{s.capture("orders", "")}
	for _, enc := range encodings(e, e, tg.Target) {
		s.exec("insert into orders values (1, 'a'), (2, 'b')")
		drain(t, s, tg, enc, 100)
		s.exec("update orders set note = 'a2' where id = 1")
		drain(t, s, tg, enc, 100)
		s.exec("update orders set note = 'a3' where id = 1", "delete from orders where id = 2")
		drain(t, s, tg, enc, 100)
		if n, err := tg.Rows(t.Context(), c); err != nil || n != 1 {
			t.Errorf("Rows = %d, %v, want the 1 that is current", n, err)
		}
		s.exec("insert into orders values (2, 'b2')")
		drain(t, s, tg, enc, 100)
		s.exec("delete from orders where id = 1", "update orders set id = 20 where id = 2")
		drain(t, s, tg, enc, 100)
		// A delete of what is not there makes no version.
		s.exec("insert into orders values (1, 'x')", "delete from orders where id = 1")
		drain(t, s, tg, enc, 100)
		tg.wantVersions("orders", "id")
		tg.wantRows("select id, note from orders order by id, weir_valid_from", "1|a", "1|a2", "1|a3", "2|b", "2|b2", "20|b2")
		tg.wantRows("select id, note from orders where weir_valid_to is null order by id", "20|b2")
		// A version ends when the next begins, and not when a deleted one does.
		tg.wantRows("select a.note from orders a join orders b on a.id = b.id and a.weir_valid_to = b.weir_valid_from order by a.note", "a", "a2")
		s.exec("delete from orders")
		drain(t, s, tg, enc, 100)
		tg.exec("delete from orders")
	}
	// Many versions within one tick of a clock.
	sh := shaped("quick", "id int32", "v text")
	for i := range 30 {
		tg.ship(batch(sh.of(upsert("1", fmt.Sprint(i)))))
	}
	tg.wantVersions("quick", "id")
	tg.wantRows("select v from quick order by weir_valid_from", numbered("%d", 30)...)
}

func testTargetHistoryOfSets(t *testing.T, e Engine) {
	for _, rowKey := range [][]string{{"id"}, nil} {
		t.Run(fmt.Sprint("row key ", rowKey), func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{Mode: weir.History})
			sh := shaped("kids", "parent int32", "id int32", "v text").set(rowKey...)
			tg.ship(batch(sh.of(children("1", row("1", "1", "a"), row("1", "2", "b")), children("2", row("2", "3", "c")))))
			tg.ship(batch(sh.of(children("1", row("1", "2", "b"), row("1", "4", "d")))))
			tg.wantRows("select parent, id, v from kids where weir_valid_to is null order by id", "1|2|b", "2|3|c", "1|4|d")
			tg.ship(batch(sh.of(children("1"), children("2", row("2", "3", "c3")))))
			tg.wantRows("select parent, id, v from kids where weir_valid_to is null order by id", "2|3|c3")
			tg.wantRows("select count(*) from kids where weir_valid_to is not null and not weir_valid_from < weir_valid_to", "0")
			tg.wantRows("select count(*) from kids where id = 1", "1")
			if n := tg.rows("select count(*) from kids where id = 3")[0]; n != "2" {
				t.Errorf("a child that changed once has %s versions, want 2", n)
			}
		})
	}
}

func testTargetSoftDeleteOfSets(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{Mode: weir.SoftDelete})
	sh := shaped("kids", "parent int32", "id int32", "v text").set("id")
	tg.ship(batch(sh.of(children("1", row("1", "1", "a"), row("1", "2", "b")), children("2", row("2", "3", "c")))))
	tg.ship(batch(sh.of(children("1", row("1", "2", "B"), row("1", "4", "d")), children("2"))))
	tg.wantRows("select parent, id, v from kids where weir_deleted_on is null order by id", "1|2|B", "1|4|d")
	tg.wantRows("select parent, id, v from kids where weir_deleted_on is not null order by id", "1|1|a", "2|3|c")
	tg.ship(batch(sh.of(children("1", row("1", "1", "again")))))
	tg.wantRows("select parent, id, v from kids where weir_deleted_on is null order by id", "1|1|again")
	// Without a key of the rows a deleted one cannot be told from a changed one.
	none := shaped("nokids", "parent int32", "v text").set()
	wantConfig(t, "soft delete of a set without a row key", tg.tryShip(batch(none.of(children("1", row("1", "a"))))))
}

func uniqueTable(e Engine, null string) string {
	return fmt.Sprintf("create table users (id %s not null primary key, mail %s %s unique, v %s)", e.Int, e.KeyText, null, e.Int)
}

func testTargetUniqueExchange(t *testing.T, e Engine) {
	for _, nullable := range []string{"null", "not null"} {
		t.Run(nullable, func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{}, uniqueTable(e, nullable))
			sh := shaped("users", "id int32", "mail text", "v int32")
			const query = "select id, mail, v from users order by id"
			tg.ship(batch(sh.of(upsert("1", "a", "0"), upsert("2", "b", "0"), upsert("3", "c", "0"), upsert("4", "d", "0"))))
			tg.ship(batch(sh.of(upsert("1", "b", "1"), upsert("2", "a", "1"))))
			tg.wantRows(query, "1|b|1", "2|a|1", "3|c|0", "4|d|0")
			tg.ship(batch(sh.of(upsert("3", "a", "2"), upsert("1", "c", "2"), upsert("2", "b", "2"))))
			tg.wantRows(query, "1|c|2", "2|b|2", "3|a|2", "4|d|0")
			tg.ship(batch(sh.of(upsert("5", "d", "3"), remove("4"))))
			tg.wantRows(query, "1|c|2", "2|b|2", "3|a|2", "5|d|3")
			// A chain, its free end last.
			tg.ship(batch(sh.of(upsert("1", "b", "4"), upsert("2", "a", "4"), upsert("3", "z", "4"))))
			tg.wantRows(query, "1|b|4", "2|a|4", "3|z|4", "5|d|3")
			// A value that a row outside the batch still holds.
			err := tg.tryShip(batch(sh.of(upsert("6", "d", "5"), upsert("7", "free", "5"))))
			if r := as[*weir.RowError](t, err); !r.Constraint {
				t.Errorf("a unique value that another row holds is the error %+v, want it to be a constraint's", r)
			}
			tg.wantRows(query, "1|b|4", "2|a|4", "3|z|4", "5|d|3")
			tg.ship(batch(sh.of(upsert("6", "d", "5"), upsert("5", "e", "5"))))
			tg.wantRows(query, "1|b|4", "2|a|4", "3|z|4", "5|e|5", "6|d|5")
		})
	}
}

// testTargetUniqueElsewhere: the key alone decides which row is replaced.
func testTargetUniqueElsewhere(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, uniqueTable(e, "null"), "insert into users values (1, 'a', 10), (9, null, 90)")
	sh := shaped("users", "id int32", "mail text", "v int32")
	err := tg.tryShip(batch(sh.of(upsert("2", "a", "0"))))
	if r := as[*weir.RowError](t, err); !r.Constraint || r.Table == "" {
		t.Errorf("Ship of another row's unique value = %+v, want a constraint's RowError", r)
	}
	tg.wantRows("select id, mail, v from users order by id", "1|a|10", "9|"+null+"|90")
	tg.ship(batch(sh.of(upsert("2", null, "0"), upsert("9", "n", "91"))))
	tg.wantRows("select id, mail, v from users order by id", "1|a|10", "2|"+null+"|0", "9|n|91")
}

// testTargetUniqueReferenced exchanges unique values of rows that others refer to.
func testTargetUniqueReferenced(t *testing.T, e Engine) {
	for _, action := range []string{"", "on delete cascade"} {
		t.Run("refers "+action, func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{}, uniqueTable(e, "null"),
				fmt.Sprintf("create table pets (id %s not null primary key, owner %s not null references users (id) %s)", e.Int, e.Int, action))
			users, pets := shaped("users", "id int32", "mail text", "v int32"), shaped("pets", "id int32", "owner int32")
			tg.ship(batch(pets.of(upsert("1", "1"), upsert("2", "2")), users.of(upsert("1", "a", "0"), upsert("2", "b", "0"))))
			tg.ship(batch(users.of(upsert("1", "b", "1"), upsert("2", "a", "1"))))
			tg.wantRows("select id, mail, v from users order by id", "1|b|1", "2|a|1")
			tg.wantRows("select id, owner from pets order by id", "1|1", "2|2")
		})
	}
}

func family(e Engine) []string {
	return []string{
		fmt.Sprintf("create table parents (id %s not null primary key, v %s)", e.Int, e.Text),
		fmt.Sprintf("create table kids (id %s not null primary key, parent %s references parents (id), v %s)", e.Int, e.Int, e.Text),
	}
}

func familyShapes() (parents, kids shape) {
	return shaped("parents", "id int32", "v text"), shaped("kids", "id int32", "parent int32", "v text")
}

func (tg *target) wantConstraint(what string, b *weir.Batch) {
	tg.t.Helper()
	err := tg.tryShip(b)
	var r *weir.RowError
	if !errors.As(err, &r) || !r.Constraint {
		tg.t.Errorf("%s: Ship = %v, want a constraint's *weir.RowError", what, err)
	}
}

func testTargetChildBeforeParent(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, family(e)...)
	parents, kids := familyShapes()
	child := batch(kids.of(upsert("1", "7", "a")))
	tg.wantConstraint("a child before its parent", child)
	tg.wantRows("select * from kids")
	tg.ship(batch(parents.of(upsert("7", "p"))))
	tg.ship(child)
	tg.wantRows("select * from kids", "1|7|a")
}

func testTargetParentBeforeChild(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, family(e)...)
	parents, kids := familyShapes()
	tg.ship(batch(kids.of(upsert("1", "7", "a"), upsert("2", null, "b")), parents.of(upsert("7", "p"))))
	gone := batch(parents.of(remove("7")))
	tg.wantConstraint("a parent deleted before its child", gone)
	tg.wantRows("select id from parents", "7")
	tg.ship(batch(kids.of(upsert("1", null, "a"))))
	tg.ship(gone)
	tg.wantRows("select id from parents")
	tg.wantRows("select id, parent from kids order by id", "1|"+null, "2|"+null)
}

// testTargetOneBatch has parents and children in one batch, in either order.
func testTargetOneBatch(t *testing.T, e Engine) {
	for _, first := range []string{"parents", "kids"} {
		t.Run(first, func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{}, family(e)...)
			parents, kids := familyShapes()
			both := func(p, k []weir.Item) *weir.Batch {
				if first == "parents" {
					return batch(parents.of(p...), kids.of(k...))
				}
				return batch(kids.of(k...), parents.of(p...))
			}
			tg.ship(both([]weir.Item{upsert("1", "p"), upsert("2", "q")}, []weir.Item{upsert("1", "1", "a"), upsert("2", "2", "b")}))
			tg.wantRows("select id, parent from kids order by id", "1|1", "2|2")
			// A child changes its parent, and the old one goes.
			tg.ship(both([]weir.Item{remove("1"), upsert("3", "r")}, []weir.Item{upsert("1", "3", "a")}))
			tg.wantRows("select id, parent from kids order by id", "1|3", "2|2")
			tg.wantRows("select id from parents order by id", "2", "3")
			tg.ship(both([]weir.Item{remove("2"), remove("3")}, []weir.Item{remove("1"), remove("2")}))
			tg.wantRows("select id from parents")
			tg.wantRows("select id from kids")
		})
	}
}

func testTargetSelfReference(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, fmt.Sprintf("create table staff (id %[1]s not null primary key, boss %[1]s references staff (id), v %[1]s)", e.Int))
	sh := shaped("staff", "id int32", "boss int32", "v int32")
	const query = "select id, boss, v from staff order by id"
	tg.ship(batch(sh.of(upsert("3", "2", "0"), upsert("2", "1", "0"), upsert("1", null, "0"), upsert("4", "4", "0"))))
	tg.wantRows(query, "1|"+null+"|0", "2|1|0", "3|2|0", "4|4|0")
	// The tree is turned over.
	tg.ship(batch(sh.of(upsert("1", "2", "1"), upsert("2", "3", "1"), upsert("3", null, "1"))))
	tg.wantRows(query, "1|2|1", "2|3|1", "3|"+null+"|1", "4|4|0")
	tg.wantConstraint("somebody's boss goes", batch(sh.of(remove("3"))))
	tg.ship(batch(sh.of(remove("3"), remove("2"), remove("1"), remove("4"))))
	tg.wantRows(query)
	tg.wantConstraint("nobody's boss", batch(sh.of(upsert("5", "6", "0"))))
}

// testTargetCycle has two tables that refer to each other.
func testTargetCycle(t *testing.T, e Engine) {
	tables := func(deferrable string) []string {
		return []string{
			fmt.Sprintf("create table teams (id %[1]s not null primary key, captain %[1]s)", e.Int),
			fmt.Sprintf("create table players (id %[1]s not null primary key, team %[1]s not null references teams (id) %[2]s)", e.Int, deferrable),
			fmt.Sprintf("alter table teams add constraint captains foreign key (captain) references players (id) %s", deferrable),
		}
	}
	if !e.AlterKey {
		t.Skipf("not covered: %s cannot add a foreign key to a table", e.Name)
	}
	teams, players := shaped("teams", "id int32", "captain int32"), shaped("players", "id int32", "team int32")
	if !e.NoDeferrable {
		tg := newTarget(t, e, weir.TargetOptions{}, tables("deferrable initially immediate")...)
		tg.ship(batch(teams.of(upsert("1", "1"), upsert("2", "2")), players.of(upsert("1", "1"), upsert("2", "2"))))
		tg.wantRows("select id, captain from teams order by id", "1|1", "2|2")
		tg.ship(batch(teams.of(remove("1")), players.of(remove("1"))))
		tg.wantRows("select id from teams", "2")
		tg.wantConstraint("a captain who is not there", batch(teams.of(upsert("2", "9"))))
	}
	// Checked at once, one direction goes in one batch whatever the order of the
	// tables; of the other what has to wait is named, and arrives.
	for i, first := range []weir.TableBatch{teams.of(upsert("1", null), upsert("3", "3")), players.of(upsert("3", "1"))} {
		tg := newTarget(t, e, weir.TargetOptions{}, tables("")...)
		second := []weir.TableBatch{players.of(upsert("3", "1")), teams.of(upsert("1", null), upsert("3", "3"))}[i]
		b := batch(first, second)
		for rounds := 0; ; rounds++ {
			err := tg.tryShip(b)
			if err == nil {
				break
			}
			as[*weir.RowError](t, err)
			faults, err := tg.Isolate(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if len(faults) == 0 || rounds > 2 {
				t.Fatalf("round %d: Ship fails, and Isolate finds %d faults", rounds, len(faults))
			}
			tg.ship(b.Without(faults))
		}
		tg.wantRows("select id, captain from teams order by id", "1|"+null, "3|3")
		tg.wantRows("select id, team from players order by id", "3|1")
	}
}

func testTargetSets(t *testing.T, e Engine) {
	for _, rowKey := range [][]string{{"id"}, nil} {
		t.Run(fmt.Sprint("row key ", rowKey), func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{})
			sh := shaped("kids", "parent int32", "id int32", "v text").set(rowKey...)
			const query = "select parent, id, v from kids order by parent, id"
			tg.ship(batch(sh.of(children("1", row("1", "1", "a"), row("1", "2", "b")), children("2", row("2", "3", "c")), children("3"))))
			tg.wantRows(query, "1|1|a", "1|2|b", "2|3|c")
			tg.ship(batch(sh.of(children("1", row("1", "2", "B"), row("1", "4", "d")))))
			tg.wantRows(query, "1|2|B", "1|4|d", "2|3|c")
			tg.ship(batch(sh.of(children("1"), children("3", row("3", "9", null)))))
			tg.wantRows(query, "2|3|c", "3|9|"+null)
			if n, err := tg.Rows(t.Context(), []*weir.Capture{sh.capture}); err != nil || n != 2 {
				t.Errorf("Rows = %d, %v, want 2", n, err)
			}
		})
	}
	// Rows that are alike are kept as many as they are.
	tg := newTarget(t, e, weir.TargetOptions{})
	sh := shaped("alike", "parent int32", "v text").set()
	tg.ship(batch(sh.of(children("1", row("1", "x"), row("1", "x"), row("1", null)))))
	tg.ship(batch(sh.of(children("1", row("1", "x"), row("1", "x"), row("1", "y")))))
	tg.wantRows("select parent, v from alike order by v", "1|x", "1|x", "1|y")
}

// testTargetSetsMove moves children between parents, and ships the parents'
// sets in every order.
func testTargetSetsMove(t *testing.T, e Engine) {
	setsMove(t, e, false)
}

// testTargetSetsMoveOwnKey does so at a table of the user's, where a child is
// there once.
func testTargetSetsMoveOwnKey(t *testing.T, e Engine) {
	setsMove(t, e, true)
}

func setsMove(t *testing.T, e Engine, own bool) {
	sh := shaped("kids", "parent int32", "id int32", "v text").set("id")
	const query = "select parent, id, v from kids order by id"
	before := []weir.Item{children("1", row("1", "1", "a"), row("1", "2", "b")), children("2", row("2", "3", "c")), children("3")}
	// 1 and 2 go round: one child goes to 2, one to 3, one from 2 to 1.
	after := []weir.Item{children("1", row("1", "3", "C")), children("2", row("2", "1", "A")), children("3", row("3", "2", "B"))}
	want := []string{"2|1|A", "3|2|B", "1|3|C"}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, together := range []bool{true, false} {
			var statements []string
			if own {
				statements = []string{fmt.Sprintf("create table kids (parent %[1]s not null, id %[1]s not null primary key, v %[2]s)", e.Int, e.Text)}
			}
			tg := newTarget(t, e, weir.TargetOptions{}, statements...)
			tg.ship(batch(sh.of(before...)))
			var items []weir.Item
			for _, i := range order {
				items = append(items, after[i])
			}
			if together {
				tg.ship(batch(sh.of(items...)))
				tg.wantRows(query, want...)
				continue
			}
			// One at a time, and what a constraint refuses again later: where each
			// waits for another they come together, as the puller brings them.
			for len(items) > 0 {
				var left []weir.Item
				for _, it := range items {
					err := tg.tryShip(batch(sh.of(it)))
					var r *weir.RowError
					switch {
					case err == nil:
					case own && errors.As(err, &r) && r.Constraint:
						left = append(left, it)
					default:
						t.Fatalf("order %v: %v", order, err)
					}
				}
				if len(left) == len(items) {
					tg.ship(batch(sh.of(left...)))
					left = nil
				}
				items = left
			}
			tg.wantRows(query, want...)
		}
	}
}

func testTargetTexts(t *testing.T, e Engine) {
	s, tg := newLine(t, e, weir.TargetOptions{})
	for _, enc := range encodings(e, e, tg.Target) {
		var values []string
		for i, text := range hostileTexts {
			values = append(values, fmt.Sprintf("(%d, %s)", i, e.Literal(text)))
		}
		for i, text := range []string{" ", "  ", "a ", "a  ", "\t", "\n", "\r\n", "a\n", strings.Repeat("x", 100_000), strings.Repeat("🙂", 3000)} {
			values = append(values, fmt.Sprintf("(%d, %s)", 1000+i, e.Literal(text)))
		}
		values = append(values, "(2000, null)", "(2001, '')")
		s.exec("insert into orders values " + strings.Join(values, ", "))
		drain(t, s, tg, enc, 1000)
		query := "select id, " + e.AsText("note") + " from orders order by id"
		tg.wantRows(query, s.rows(query)...)
		tg.wantRows("select id from orders where note is null", "2000")
		tg.wantRows("select count(*) from orders", fmt.Sprint(len(values)))
		s.exec("delete from orders")
		drain(t, s, tg, enc, 1000)
		tg.wantRows("select count(*) from orders", "0")
	}
}

// testTargetNamedExcluded: a table may have the name by which ON CONFLICT calls
// the row that was to be inserted.
func testTargetNamedExcluded(t *testing.T, e Engine) {
	for _, mode := range []weir.Mode{weir.Mirror, weir.SoftDelete} {
		s := newSource(t, e, fmt.Sprintf("create table excluded (id %s not null primary key, note %s)", e.Int, e.KeyText))
		s.apply(s.plain("excluded"))
		tg := newTarget(t, e, weir.TargetOptions{Mode: mode})
		s.exec("insert into excluded values (1, 'a'), (2, 'b')")
		drain(t, s, tg, tg.Encoding(), 100)
		s.exec("update excluded set note = 'c' where id = 2")
		drain(t, s, tg, tg.Encoding(), 100)
		tg.wantRows("select id, note from excluded order by id", "1|a", "2|c")
	}
}

func testTargetHostileKeys(t *testing.T, e Engine) {
	for _, shape := range keyShapes(e) {
		s := newSource(t, e, fmt.Sprintf("create table shapes (%s)", shape.columns))
		s.apply(s.plain("shapes"))
		tg := newTarget(t, e, weir.TargetOptions{})
		for _, enc := range encodings(e, e, tg.Target) {
			var values []string
			for _, k := range shape.keys {
				values = append(values, fmt.Sprintf("(%s, 1)", k.literals))
			}
			s.exec("insert into shapes values " + strings.Join(values, ", "))
			drain(t, s, tg, enc, 7)
			order := " order by k0"
			if strings.Contains(shape.columns, "k1") {
				order += ", k1"
			}
			tg.wantRows("select * from shapes"+order, s.rows("select * from shapes"+order)...)
			s.exec("update shapes set v = 2")
			drain(t, s, tg, enc, 7)
			tg.wantRows("select v, count(*) from shapes group by v", fmt.Sprintf("2|%d", len(shape.keys)))
			for i, k := range shape.keys {
				if i%2 == 0 {
					s.exec("delete from shapes where " + k.match)
				}
			}
			drain(t, s, tg, enc, 7)
			tg.wantRows("select * from shapes"+order, s.rows("select * from shapes"+order)...)
			s.exec("delete from shapes")
			drain(t, s, tg, enc, 7)
			tg.wantRows("select count(*) from shapes", "0")
		}
	}
}

// testTargetExtraColumns keeps what only the target has.
func testTargetExtraColumns(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, fmt.Sprintf("create table users (id %s not null primary key, mine %s default 'd', mail %s unique)", e.Int, e.Text, e.KeyText))
	sh := shaped("users", "id int32", "mail text")
	const query = "select id, mail, mine from users order by id"
	tg.ship(batch(sh.of(upsert("1", "a"), upsert("2", "b"))))
	tg.wantRows(query, "1|a|d", "2|b|d")
	tg.exec("update users set mine = 'kept' where id = 1")
	tg.ship(batch(sh.of(upsert("1", "c"))))
	tg.wantRows(query, "1|c|kept", "2|b|d")
}

// testTargetExtraColumnsExchange keeps it where rows exchange a unique value.
func testTargetExtraColumnsExchange(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, fmt.Sprintf("create table users (id %s not null primary key, mine %s default 'd', mail %s unique)", e.Int, e.Text, e.KeyText))
	sh := shaped("users", "id int32", "mail text")
	tg.ship(batch(sh.of(upsert("1", "a"), upsert("2", "b"))))
	tg.exec("update users set mine = 'kept' where id = 1")
	tg.ship(batch(sh.of(upsert("1", "b"), upsert("2", "a"))))
	tg.wantRows("select id, mail, mine from users order by id", "1|b|kept", "2|a|d")
}

func testTargetNoKey(t *testing.T, e Engine) {
	for what, table := range map[string]string{
		"no unique index over the key": "create table one (id " + e.Int + " not null, v " + e.Text + ")",
		"no key column":                "create table one (v " + e.Text + ")",
		"another key":                  "create table one (id " + e.Int + " not null, v " + e.KeyText + " not null, primary key (id, v))",
	} {
		tg := newTarget(t, e, weir.TargetOptions{NewColumns: weir.Ignore}, table)
		c := wantConfig(t, what, tg.tryShip(one("1", "a")))
		if !strings.Contains(c.Error(), "one") {
			t.Errorf("%s: the error is %v, want the table in it", what, c)
		}
		tg.wantRows("select * from one")
	}
}

func testTargetView(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{}, "create view one as select 1 as id, 'a' as v")
	wantConfig(t, "a view in the table's place", tg.tryShip(one("1", "a")))
}

// testTargetConcurrent ships to one table from several processes at once.
func testTargetConcurrent(t *testing.T, e Engine) {
	tg := newTarget(t, e, weir.TargetOptions{})
	sh := shaped("busy", "id int32", "v text")
	const processes, rounds = 4, 10
	done := make(chan error, processes)
	for p := range processes {
		to := openTarget(t, e, tg.url, weir.TargetOptions{})
		go func() {
			for r := range rounds {
				// Rows of its own, and some that all write in different orders.
				items := []weir.Item{upsert(fmt.Sprint(1000*(p+1)+r), "own")}
				for i := range 10 {
					items = append(items, upsert(fmt.Sprint((i*(2*p+1)+r)%10), fmt.Sprint(p)))
				}
				seen := map[string]bool{}
				items = slices.DeleteFunc(items, func(it weir.Item) bool {
					k := string(it.Key[0])
					again := seen[k]
					seen[k] = true
					return again
				})
				pull := weir.NewGUID()
				for {
					err := to.Ship(t.Context(), weir.Shipment{PullGUID: pull, Batch: batch(sh.of(items...))})
					if errors.As(err, new(*weir.UnavailableError)) {
						continue // a deadlock's victim tries again
					}
					if err != nil {
						done <- err
						return
					}
					break
				}
			}
			done <- nil
		}()
	}
	for range processes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	tg.wantRows("select count(*) from busy where v = 'own'", fmt.Sprint(processes*rounds))
}
