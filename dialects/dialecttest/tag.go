package dialecttest

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

var tagTests = []test{
	{"Plain", testTagPlain},
	{"PlainDeferred", testTagPlainDeferred},
	{"Levels", testTagLevels},
	{"MovedKeys", testTagMovedKeys},
	{"SwappedKeys", testTagSwappedKeys},
	{"Rollback", testTagRollback},
	{"Instance", testTagInstance},
	{"InstanceFixedConcept", testTagFixedConcept},
	{"Child", testTagChild},
	{"ChangedOn", testTagChangedOn},
	{"Coalesce", testTagCoalesce},
	{"LargeStatements", testTagLarge},
	{"Truncate", testTagTruncate},
	{"ByHand", testTagByHand},
}

// keyShape is a table "shapes" with a key, and values of the key as literals
// and as neutral text.
type keyShape struct {
	name    string
	columns string // with the key
	keys    []keyValue
}

// keyValue has its literals as VALUES has them, and in a condition that only
// the row of this key meets.
type keyValue struct{ literals, match, neutral string }

func keyOf(neutral string, literals ...string) keyValue {
	var match []string
	for i, l := range literals {
		match = append(match, fmt.Sprintf("k%d = %s", i, l))
	}
	return keyValue{strings.Join(literals, ", "), strings.Join(match, " and "), neutral}
}

// hostileTexts are texts that a key or a name may well be.
var hostileTexts = []string{
	"a", "A", "", " lead", "it's", `a"b`, `"`, "'", "''", "a,b", "[a]", "[]", `["a","b"]`, "{a}", "(a)", `a\b`, `\`, `\\`, `\n`, `\x41`,
	"line\nbreak", "tab\there", "\u0001", "%s", "100%", "$1", "$$", "$weir$", "?", "@p1", ":name", "{{.Key}}", "null", "NULL", "-- x", "/* x", ";",
	"ü", "u\u0308", "ß", "İ", "日本語", "🙂", "👩‍👩‍👧‍👦", "\u200b", "\ufeff", "\U0010ffff", strings.Repeat("long ", 60) + ".",
}

func keyShapes(e Engine) []keyShape {
	var texts, pairs []keyValue
	for i, s := range hostileTexts {
		texts = append(texts, keyOf(s, e.Literal(s)))
		pairs = append(pairs, keyOf(fmt.Sprintf("%d|%s", i%3, s), fmt.Sprint(i%3), e.Literal(s)))
	}
	// Keys that run together if their parts are merely joined.
	for _, p := range [][2]string{{"a", "b,c"}, {"a,b", "c"}, {"", "abc"}, {"abc", ""}, {`"`, `,"`}, {`",`, `"`}, {`\`, `'`}, {`'`, `\`}} {
		pairs = append(pairs, keyOf("7|"+p[0]+"|"+p[1], "7", e.Literal(p[0]+"|"+p[1])))
	}
	var integers, guids, both []keyValue
	for _, n := range []string{"0", "1", "-1", "255", "256", "-256", "2147483647", "-2147483648"} {
		integers = append(integers, keyOf(n, n))
	}
	for _, g := range []string{"00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff", "0f0e0d0c-0b0a-0908-0706-050403020100"} {
		guids = append(guids, keyOf(g, "'"+g+"'"))
	}
	for _, p := range [][2]string{{"a", "b,c"}, {"a,b", "c"}, {"", "abc"}, {"abc", ""}, {"", ""}, {`"`, `","`}, {`","`, `"`}, {`\`, `'`}, {`'`, `\`}, {"ü", "日"}} {
		both = append(both, keyOf(p[0]+"|"+p[1], e.Literal(p[0]), e.Literal(p[1])))
	}
	key := func(types ...string) string {
		var columns, names []string
		for i, typ := range types {
			names = append(names, fmt.Sprintf("k%d", i))
			columns = append(columns, fmt.Sprintf("k%d %s not null", i, typ))
		}
		return fmt.Sprintf("%s, v %s, primary key (%s)", strings.Join(columns, ", "), e.Int, strings.Join(names, ", "))
	}
	return []keyShape{
		{"integer", key(e.Int), integers},
		{"text", key(e.KeyText), texts},
		{"guid", key(e.GUID), guids},
		{"integer and text", key(e.Int, e.KeyText), pairs},
		{"text and text", key(e.KeyText, e.KeyText), both},
	}
}

func testTagPlain(t *testing.T, e Engine)         { tagPlain(t, e, weir.AtOnce) }
func testTagPlainDeferred(t *testing.T, e Engine) { tagPlain(t, e, weir.Deferred) }

func tagPlain(t *testing.T, e Engine, tagging weir.Tagging) {
	for _, shape := range keyShapes(e) {
		t.Run(shape.name, func(t *testing.T) {
			s := newSource(t, e, fmt.Sprintf("create table shapes (%s)", shape.columns))
			spec := s.plain("shapes")
			spec.Tagging = tagging
			s.apply(spec)
			lines := func(typ, value string) (out []string) {
				for _, k := range shape.keys {
					line := fmt.Sprintf("%s shapes(%s)", typ, k.neutral)
					if value != "" {
						line += fmt.Sprintf(": %s|%s", k.neutral, value)
					}
					out = append(out, line)
				}
				return out
			}
			var values []string
			for _, k := range shape.keys {
				values = append(values, fmt.Sprintf("(%s, 1)", k.literals))
			}
			insert := "insert into shapes values " + strings.Join(values, ", ")
			s.exec(insert)
			s.wantTake("insert", lines(weir.InstanceInserted, "1")...)
			s.exec("update shapes set v = 2")
			s.wantTake("update", lines(weir.InstanceInserted, "2")...)
			s.exec("update shapes set v = 3", "delete from shapes")
			s.wantTake("update and delete", lines(weir.InstanceDeleted, "")...)
			s.exec(insert, "delete from shapes")
			s.wantTake("insert and delete", lines(weir.InstanceDeleted, "")...)
			s.exec(insert)
			s.exec("delete from shapes", insert)
			s.wantTake("delete and insert again", lines(weir.InstanceInserted, "1")...)
			s.exec("update shapes set v = 4 where v = 0", "delete from shapes where v = 0", "insert into shapes select * from shapes where v = 0")
			s.wantEmpty("statements without rows")
		})
	}
}

func testTagLevels(t *testing.T, e Engine) {
	if len(e.InboxLevels) == 0 {
		t.Skipf("not covered: %s has no isolation level that its tagging must avoid", e.Name)
	}
	for _, level := range e.InboxLevels {
		t.Run(level.String(), func(t *testing.T) {
			s := newSource(t, e, threeTables(e)...)
			s.apply(three(s)...)
			g, h := weir.NewGUID(), weir.NewGUID()
			s.exec("insert into orders values (1, 'a'), (2, 'b'), (3, 'c')")
			s.take()
			tx := s.begin(level)
			exec(t, tx, "insert into orders values (4, 'd')", "update orders set note = 'x' where id = 1", "delete from orders where id = 2",
				"update orders set id = 30 where id = 3",
				fmt.Sprintf("insert into things values ('%s', '%s', 'p', 'n')", g, h), fmt.Sprintf("insert into events values (1, '%s', 'e')", g))
			s.wantEmpty("before the commit")
			commit(t, tx)
			if st := s.status(); st.Inbox == 0 || s.queueStatus(weir.DefaultQueue).Depth != 0 {
				t.Errorf("after the commit the inbox holds %d tags and the queue %d changes, want all in the inbox", st.Inbox, s.queueStatus(weir.DefaultQueue).Depth)
			}
			s.wantTake("after the fold",
				"Instance Inserted orders(4): 4|d", "Instance Inserted orders(1): 1|x", "Instance Deleted orders(2)",
				"Instance Deleted orders(3)", "Instance Inserted orders(30): 30|c",
				fmt.Sprintf("Instance Inserted things(%s): %s|%s|p|n", g, g, h), fmt.Sprintf("Thing Event Changed events(%s): 1|%s|e", g, g))

			// The user's transaction meets queue rows that a puller has claimed or
			// deleted since its snapshot was taken, and does not fail.
			s.exec("update orders set note = 'y'")
			tx = s.begin(level)
			if err := tx.QueryRow("select count(*) from orders").Scan(new(int)); err != nil {
				t.Fatal(err)
			}
			p := s.claim(2)
			q := s.claim(1)
			s.settle(q.PullGUID)
			exec(t, tx, "update orders set note = 'z'", "delete from orders where id = 4")
			commit(t, tx)
			s.settle(p.PullGUID)
			s.wantTake("beside a puller", "Instance Inserted orders(1): 1|z", "Instance Inserted orders(30): 30|z", "Instance Deleted orders(4)")
		})
	}
}

func testTagMovedKeys(t *testing.T, e Engine) {
	for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
		t.Run(string(tagging), func(t *testing.T) {
			s := newSource(t, e, threeTables(e)...)
			spec := s.plain("orders")
			spec.Tagging = tagging
			s.apply(spec)
			s.exec("insert into orders values (1, 'a'), (2, 'b'), (3, 'c')")
			s.take()
			s.exec("update orders set id = id + 100 where id > 1")
			s.wantTake("two keys move", "Instance Deleted orders(2)", "Instance Deleted orders(3)",
				"Instance Inserted orders(102): 102|b", "Instance Inserted orders(103): 103|c")
			s.exec("update orders set id = 2 where id = 102", "update orders set id = 102 where id = 2")
			s.wantTake("a key moves and comes back", "Instance Deleted orders(2)", "Instance Inserted orders(102): 102|b")
			s.exec("update orders set id = 7, note = 'z' where id = 1", "delete from orders where id = 7", "insert into orders values (1, 'new')")
			s.wantTake("a key moves, goes, and its old value is used again", "Instance Inserted orders(1): 1|new", "Instance Deleted orders(7)")
			s.exec("update orders set id = -id, note = 'n'")
			s.wantTake("signs change", "Instance Deleted orders(1)", "Instance Deleted orders(102)", "Instance Deleted orders(103)",
				"Instance Inserted orders(-1): -1|n", "Instance Inserted orders(-102): -102|n", "Instance Inserted orders(-103): -103|n")
		})
	}
}

func testTagSwappedKeys(t *testing.T, e Engine) {
	if e.KeysFixed {
		t.Skipf("not covered: %s cannot exchange keys in one statement", e.Name)
	}
	const n = 400
	for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
		t.Run(string(tagging), func(t *testing.T) {
			s := newSource(t, e, fmt.Sprintf("create table seats (id %s not null, guest %s, primary key (id) %s)", e.Int, e.Text, e.KeySwaps))
			spec := s.plain("seats")
			spec.Tagging = tagging
			s.apply(spec)
			var values []string
			for i := range n {
				values = append(values, fmt.Sprintf("(%d, 'g%d')", i, i))
			}
			s.exec("insert into seats values " + strings.Join(values, ", "))
			s.take()

			s.exec("update seats set id = 1 - id where id in (0, 1)")
			s.wantTake("two keys are exchanged", "Instance Inserted seats(0): 0|g1", "Instance Inserted seats(1): 1|g0")
			s.exec("update seats set id = 1 - id where id in (0, 1)")
			s.take()

			s.exec("update seats set id = id + 1")
			want := []string{"Instance Deleted seats(0)"}
			for i := range n {
				want = append(want, fmt.Sprintf("Instance Inserted seats(%d): %d|g%d", i+1, i+1, i))
			}
			s.wantTake("all keys shift by one", want...)

			s.execf("update seats set id = %d - id", n+1)
			want = nil
			for i := range n {
				want = append(want, fmt.Sprintf("Instance Inserted seats(%d): %d|g%d", n-i, n-i, i))
			}
			s.wantTake("all keys are turned round", want...)

			s.execf("update seats set id = case id when 1 then 2 when 2 then 3 when 3 then 1 end where id < 4")
			s.wantTake("three go round", fmt.Sprintf("Instance Inserted seats(2): 2|g%d", n-1), fmt.Sprintf("Instance Inserted seats(3): 3|g%d", n-2), fmt.Sprintf("Instance Inserted seats(1): 1|g%d", n-3))
		})
	}
}

func testTagRollback(t *testing.T, e Engine) {
	for _, level := range append([]sql.IsolationLevel{sql.LevelDefault}, e.InboxLevels...) {
		t.Run(level.String(), func(t *testing.T) {
			s := newSource(t, e, threeTables(e)...)
			s.apply(three(s)...)
			g := weir.NewGUID()
			s.exec("insert into orders values (1, 'a'), (2, 'b')")
			s.take()
			tx := s.begin(level)
			exec(t, tx, "insert into orders values (3, 'c')", "update orders set note = 'x' where id = 1", "delete from orders where id = 2", "update orders set id = 9 where id = 1",
				fmt.Sprintf("insert into things values ('%[1]s', '%[1]s', 'p', 'n')", g), fmt.Sprintf("insert into events values (1, '%s', 'e')", g))
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			s.wantEmpty("after a rollback")

			tx = s.begin(level)
			exec(t, tx, "update orders set note = 'kept' where id = 1", fmt.Sprintf(e.Savepoint, "half"),
				"insert into orders values (4, 'd')", "delete from orders where id = 2", "update orders set note = 'lost' where id = 1",
				fmt.Sprintf("insert into events values (1, '%s', 'e')", g),
				fmt.Sprintf(e.RollbackToSavepoint, "half"), "insert into orders values (5, 'e')")
			commit(t, tx)
			s.wantTake("after a rollback to a savepoint", "Instance Inserted orders(1): 1|kept", "Instance Inserted orders(5): 5|e")

			// A statement that fails leaves nothing, where the transaction goes on.
			if _, err := s.sql.ExecContext(t.Context(), "insert into orders values (6, 'f'), (1, 'again')"); err == nil {
				t.Error("a duplicate key was inserted")
			}
			s.wantEmpty("after a statement that failed")
		})
	}
}

func testTagInstance(t *testing.T, e Engine) {
	for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
		t.Run(string(tagging), func(t *testing.T) {
			s := newSource(t, e, threeTables(e)...)
			s.apply(weir.CaptureSpec{Table: s.table("things"), InstanceGUID: "guid", ConceptGUID: "concept", OldPrimaryKey: "pk", Tagging: tagging})
			g, h, moved, c, d := weir.NewGUID(), weir.NewGUID(), weir.NewGUID(), weir.NewGUID(), weir.NewGUID()
			s.execf("insert into things values ('%s', '%s', 'it''s [7],\"x\"', 'n'), ('%s', null, null, null)", g, c, h)
			s.fold()
			r := s.row(g, weir.InstanceInserted)
			if r.ConceptGUID != c || r.OldPrimaryKey != `it's [7],"x"` {
				t.Errorf("the change of %s has concept %s and old key %q, want %s and what the column holds", g, r.ConceptGUID, r.OldPrimaryKey, c)
			}
			if r := s.row(h, weir.InstanceInserted); !r.ConceptGUID.IsZero() || r.OldPrimaryKey != "" {
				t.Errorf("the change of a row of nulls has concept %s and old key %q, want none", r.ConceptGUID, r.OldPrimaryKey)
			}
			s.wantTake("insert", fmt.Sprintf("Instance Inserted things(%s): %s|%s|it's [7],\"x\"|n", g, g, c), fmt.Sprintf("Instance Inserted things(%s): %s|%s|%s|%s", h, h, null, null, null))
			s.execf("update things set concept = '%s', pk = '8' where guid = '%s'", d, g)
			s.fold()
			if r := s.row(g, weir.InstanceInserted); r.ConceptGUID != d || r.OldPrimaryKey != "8" {
				t.Errorf("after an update the change has concept %s and old key %q, want %s and 8", r.ConceptGUID, r.OldPrimaryKey, d)
			}
			s.execf("update things set guid = '%s' where guid = '%s'", moved, g)
			s.wantTake("the GUID moves", fmt.Sprintf("Instance Deleted things(%s)", g), fmt.Sprintf("Instance Inserted things(%s): %s|%s|8|n", moved, moved, d))
			s.exec("delete from things")
			s.fold()
			if r := s.row(moved, weir.InstanceDeleted); r.ConceptGUID != d || r.OldPrimaryKey != "8" {
				t.Errorf("after a delete the change has concept %s and old key %q, want %s and 8", r.ConceptGUID, r.OldPrimaryKey, d)
			}
			s.wantTake("delete", fmt.Sprintf("Instance Deleted things(%s)", moved), fmt.Sprintf("Instance Deleted things(%s)", h))
		})
	}
}

func testTagFixedConcept(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	concept, plain, g := weir.NewGUID(), weir.NewGUID(), weir.NewGUID()
	orders := s.plain("orders")
	orders.ConceptGUID = plain.String()
	s.apply(weir.CaptureSpec{Table: s.table("things"), InstanceGUID: "guid", ConceptGUID: concept.String()}, orders)
	s.execf("insert into things values ('%s', null, 'p', 'n')", g)
	s.exec("insert into orders values (1, 'a')")
	s.fold()
	if r := s.row(g, weir.InstanceInserted); r.ConceptGUID != concept || r.OldPrimaryKey != "" {
		t.Errorf("the instance's change has concept %s and old key %q, want %s and none", r.ConceptGUID, r.OldPrimaryKey, concept)
	}
	rows := s.list(weir.QueueSelector{CaptureID: s.capture("orders", "").ID})
	if len(rows) != 1 || rows[0].ConceptGUID != plain {
		t.Errorf("the plain table's change is %+v, want the concept %s", rows, plain)
	}
}

func testTagChild(t *testing.T, e Engine) {
	for _, tagging := range []weir.Tagging{"", weir.AtOnce} {
		t.Run("tagging "+string(tagging), func(t *testing.T) {
			s := newSource(t, e, threeTables(e)...)
			s.apply(weir.CaptureSpec{Table: s.table("events"), InstanceGUID: "thing", ChangeType: "Thing Event Changed", Tagging: tagging})
			a, b, c := weir.NewGUID(), weir.NewGUID(), weir.NewGUID()
			line := func(g weir.GUID, rows ...string) string {
				text := fmt.Sprintf("Thing Event Changed events(%s)", g)
				if len(rows) > 0 {
					text += ": " + strings.Join(rows, "; ")
				}
				return text
			}
			s.execf("insert into events values (1, '%[1]s', 'x'), (2, '%[1]s', 'y'), (3, '%[2]s', 'z'), (4, null, 'none')", a, b)
			if st := s.status(); tagging == "" && (st.Inbox == 0 || s.queueStatus(weir.DefaultQueue).Depth > 0) {
				t.Errorf("the inbox holds %d tags and the queue %d changes, want all in the inbox", st.Inbox, s.queueStatus(weir.DefaultQueue).Depth)
			}
			s.wantTake("insert", line(a, fmt.Sprintf("1|%s|x", a), fmt.Sprintf("2|%s|y", a)), line(b, fmt.Sprintf("3|%s|z", b)))
			s.exec("update events set name = 'Y' where id = 2")
			s.wantTake("update", line(a, fmt.Sprintf("1|%s|x", a), fmt.Sprintf("2|%s|Y", a)))
			s.execf("update events set thing = '%s' where id = 2", b)
			s.wantTake("a child moves", line(a, fmt.Sprintf("1|%s|x", a)), line(b, fmt.Sprintf("2|%s|Y", b), fmt.Sprintf("3|%s|z", b)))
			s.execf("update events set thing = case when thing = '%[1]s' then cast('%[2]s' as %[3]s) else cast('%[1]s' as %[3]s) end where thing is not null", a, b, e.GUID)
			s.wantTake("all children change places", line(b, fmt.Sprintf("1|%s|x", b)), line(a, fmt.Sprintf("2|%s|Y", a), fmt.Sprintf("3|%s|z", a)))
			s.execf("update events set thing = '%s' where id = 4", c)
			s.wantTake("a child finds a parent", line(c, fmt.Sprintf("4|%s|none", c)))
			s.exec("update events set thing = null where id = 4")
			s.wantTake("a child leaves its parent", line(c))
			s.exec("delete from events where id in (1, 4)")
			s.wantTake("the last child goes", line(b))
			s.exec("update events set id = id + 10")
			s.wantTake("children get other keys", line(a, fmt.Sprintf("12|%s|Y", a), fmt.Sprintf("13|%s|z", a)))
		})
	}
}

func testTagChangedOn(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.apply(s.plain("orders"))
	s.exec("insert into orders values (1, 'a')")
	last := s.list(weir.QueueSelector{})[0]
	for range 30 {
		s.exec("update orders set note = 'b'")
		next := s.list(weir.QueueSelector{})[0]
		if !next.ChangedOn.After(last.ChangedOn) {
			t.Fatalf("ChangedOn went from %v to %v, want strictly later", last.ChangedOn, next.ChangedOn)
		}
		last = next
	}
	// By the other way into the queue, too.
	tx := s.begin(sql.LevelDefault)
	exec(t, tx, "update orders set note = 'c'", "update orders set note = 'd'", "delete from orders", "insert into orders values (1, 'e')")
	commit(t, tx)
	if next := s.list(weir.QueueSelector{})[0]; !next.ChangedOn.After(last.ChangedOn) {
		t.Errorf("ChangedOn went from %v to %v in one transaction, want strictly later", last.ChangedOn, next.ChangedOn)
	}
}

func testTagCoalesce(t *testing.T, e Engine) {
	for _, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
		t.Run(string(tagging), func(t *testing.T) {
			s := newSource(t, e, threeTables(e)...)
			spec := s.plain("orders")
			spec.Tagging = tagging
			s.apply(spec)
			for i := range 10 {
				s.execf("insert into orders values (%d, 'a')", i)
			}
			for i := range 100 {
				s.execf("update orders set note = 'n%d'", i)
				if tagging == weir.Deferred && i%20 == 19 {
					s.fold()
				}
			}
			st := s.status()
			if tagging == weir.AtOnce && st.Inbox != 0 {
				t.Errorf("the inbox holds %d tags, want none", st.Inbox)
			}
			if q := s.queueStatus(weir.DefaultQueue); q.Depth != 10 || q.Ready != 10 {
				t.Errorf("after 1000 updates of 10 rows the queue is %+v, want 10 ready", q)
			}
			p := s.claim(1000)
			if len(p.Changes) != 10 {
				t.Errorf("Claim = %d changes, want 10", len(p.Changes))
			}
			// In flight and tagged anew, a row is still one change.
			s.exec("update orders set note = 'last'")
			s.fold()
			if q := s.queueStatus(weir.DefaultQueue); q.Depth != 10 || q.Waiting != 10 {
				t.Errorf("after all were tagged anew the queue is %+v, want 10 waiting", q)
			}
		})
	}
}

func testTagLarge(t *testing.T, e Engine) {
	const n = 2500
	s := newSource(t, e, fmt.Sprintf("create table big (id %s not null primary key, v %s)", e.Int, e.Int),
		fmt.Sprintf("create table numbers (n %s not null primary key)", e.Int))
	var values []string
	for i := range 50 {
		values = append(values, fmt.Sprintf("(%d)", i))
	}
	s.exec("insert into numbers values " + strings.Join(values, ", "))
	s.apply(s.plain("big"))
	s.exec("insert into big select a.n * 50 + b.n, 0 from numbers a cross join numbers b")
	keys := func(typ string, from int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%s %d", typ, from+i))
		}
		return out
	}
	s.wantTags("a large insert", keys(weir.InstanceInserted, 0)...)
	s.exec("update big set v = 1")
	s.wantTags("a large update", keys(weir.InstanceInserted, 0)...)
	s.execf("update big set id = id + %d", 2*n)
	s.wantTags("a large move of keys", append(keys(weir.InstanceDeleted, 0), keys(weir.InstanceInserted, 2*n)...)...)
	s.exec("delete from big")
	s.wantTags("a large delete", append(keys(weir.InstanceDeleted, 0), keys(weir.InstanceDeleted, 2*n)...)...)
	if got := s.take(); len(got) != 2*n {
		t.Errorf("the queue brought %d items, want %d", len(got), 2*n)
	}
}

func testTagTruncate(t *testing.T, e Engine) {
	if !e.Truncate {
		t.Skipf("not covered: TRUNCATE of %s fires nothing, or does not exist", e.Name)
	}
	s := newSource(t, e, threeTables(e)...)
	specs := three(s)
	s.apply(specs...)
	g := weir.NewGUID()
	s.exec("insert into orders values (1, 'a'), (-2, 'b')")
	s.execf("insert into things values ('%[1]s', '%[1]s', 'p', 'n')", g)
	s.execf("insert into events values (1, '%s', 'e')", g)
	s.take()
	s.exec("truncate table orders", "truncate table things", "truncate table events")
	s.wantTake("truncate", "Instance Deleted orders(1)", "Instance Deleted orders(-2)", fmt.Sprintf("Instance Deleted things(%s)", g), fmt.Sprintf("Thing Event Changed events(%s)", g))
	s.exec("truncate table orders")
	s.wantEmpty("truncate of an empty table")

	specs[0].RefuseTruncate = true
	s.apply(specs...)
	s.exec("insert into orders values (3, 'c')")
	if _, err := s.sql.ExecContext(t.Context(), "truncate table orders"); err == nil || !strings.Contains(err.Error(), "weir") || !strings.Contains(err.Error(), "orders") {
		t.Errorf("TRUNCATE that is refused = %v, want an error that names weir and the table", err)
	}
	s.wantTake("a refused truncate", "Instance Inserted orders(3): 3|c")
}

func testTagByHand(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	specs := three(s)
	specs[1].Queues = []string{"lake"}
	specs[1].ConceptGUID = weir.NewGUID().String()
	s.apply(specs...)
	concept, _ := weir.ParseGUID(specs[1].ConceptGUID)
	g, h, unknown := weir.NewGUID(), weir.NewGUID(), weir.NewGUID()
	s.exec(e.Tag(g, concept, weir.InstanceInserted, "k"), e.Tag(h, unknown, "Something Else", `it's "k"`))
	s.fold()
	lake := s.list(weir.QueueSelector{Queue: "lake"})
	if len(lake) != 1 || lake[0].InstanceGUID != g || lake[0].ConceptGUID != concept || lake[0].OldPrimaryKey != "k" || lake[0].State != weir.Ready {
		t.Errorf("queue lake holds %+v, want the tag of its capture's concept", lake)
	}
	r := s.row(h, "Something Else")
	if r.ConceptGUID != unknown || r.OldPrimaryKey != `it's "k"` || r.State != weir.Ready || r.Table != "" {
		t.Errorf("a tag that no capture wants is %+v in the default queue", r)
	}
	if got := s.list(weir.QueueSelector{}); len(got) != 1 {
		t.Errorf("the default queue holds %+v, want one change", got)
	}

	// Each own type cancels the other; another type cancels none.
	s.exec(e.Tag(h, unknown, weir.InstanceInserted, "1"))
	s.fold()
	s.exec(e.Tag(h, unknown, weir.InstanceDeleted, "2"))
	s.fold()
	var types []string
	for _, r := range s.list(weir.QueueSelector{InstanceGUID: h}) {
		types = append(types, r.ChangeType+" "+r.OldPrimaryKey)
	}
	slices.Sort(types)
	if want := []string{"Instance Deleted 2", `Something Else it's "k"`}; !slices.Equal(types, want) {
		t.Errorf("the instance has the changes %q, want %q", types, want)
	}

	// Rolled back, a tag leaves no trace.
	tx := s.begin(sql.LevelDefault)
	exec(t, tx, e.Tag(g, unknown, "Something Else", "k"))
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.fold()
	if got := s.list(weir.QueueSelector{InstanceGUID: g}); len(got) != 0 {
		t.Errorf("a tag that was rolled back left %+v", got)
	}
	for what, tag := range map[string]string{
		"a change type of 41 characters": e.Tag(g, unknown, strings.Repeat("x", 41), ""),
		"no change type":                 e.Tag(g, unknown, "", ""),
	} {
		if _, err := s.sql.ExecContext(t.Context(), tag); err == nil || !strings.Contains(err.Error(), "weir") {
			t.Errorf("a tag with %s = %v, want an error that names weir", what, err)
		}
	}
}
