package dialecttest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

var keyTests = []test{
	{"Deterministic", testKeyDeterministic},
	{"NoCollisions", testKeyNoCollisions},
	{"Order", testKeyOrder},
	{"HostileNames", testHostileNames},
	{"HostileInstanceNames", testHostileInstanceNames},
}

// guids maps the keys of a capture's changes to their GUIDs.
func (s *source) guids(c *weir.Capture) map[string]weir.GUID {
	s.t.Helper()
	s.fold()
	out := map[string]weir.GUID{}
	for _, r := range s.list(weir.QueueSelector{CaptureID: c.ID}) {
		out[r.OldPrimaryKey] = r.InstanceGUID
	}
	return out
}

func testKeyDeterministic(t *testing.T, e Engine) {
	for _, shape := range keyShapes(e) {
		var before map[string]weir.GUID
		for i, tagging := range []weir.Tagging{weir.AtOnce, weir.Deferred} {
			s := newSource(t, e, fmt.Sprintf("create table shapes (%s)", shape.columns))
			spec := s.plain("shapes")
			spec.Tagging = tagging
			s.apply(spec)
			var values []string
			for _, k := range shape.keys {
				values = append(values, fmt.Sprintf("(%s, 1)", k.literals))
			}
			s.exec("insert into shapes values " + strings.Join(values, ", "))
			now := s.guids(s.capture("shapes", ""))
			if len(now) != len(shape.keys) {
				t.Errorf("%s: %d keys have %d key texts", shape.name, len(shape.keys), len(now))
			}
			distinct := map[weir.GUID]string{}
			for k, g := range now {
				if other, ok := distinct[g]; ok {
					t.Errorf("%s: %q and %q have one GUID", shape.name, k, other)
				}
				distinct[g] = k
				if i > 0 && before[k] != g {
					t.Errorf("%s: key %q is %s in one database and %s in another", shape.name, k, before[k], g)
				}
			}
			before = now
		}
	}
}

func testKeyNoCollisions(t *testing.T, e Engine) {
	s := newSource(t, e)
	shapes := []string{
		fmt.Sprintf("(k %s not null primary key)", e.Int),
		fmt.Sprintf("(k %s not null primary key)", e.BigInt),
		fmt.Sprintf("(k %s not null primary key)", e.KeyText),
		fmt.Sprintf("(k %s not null, l %s not null, primary key (k, l))", e.Int, e.Int),
	}
	var specs []weir.CaptureSpec
	concept := weir.NewGUID()
	for i, shape := range shapes {
		for _, suffix := range []string{"", "2", "_", "x"} {
			name := fmt.Sprintf("t%d%s", i, suffix)
			s.execf("create table %s %s", name, shape)
			spec := s.plain(name)
			if suffix == "x" {
				spec.ConceptGUID = concept.String() // several tables may share a concept
			}
			specs = append(specs, spec)
		}
	}
	s.apply(specs...)
	for _, spec := range specs {
		var values []string
		for i := range 50 {
			if spec.Table.Name[1] == '3' {
				values = append(values, fmt.Sprintf("(%d, %d)", i/10, i%10))
			} else {
				values = append(values, fmt.Sprintf("(%d)", i))
			}
		}
		s.execf("insert into %s values %s", spec.Table.Name, strings.Join(values, ", "))
	}
	s.fold()
	seen := map[weir.GUID]bool{}
	rows := s.list(weir.QueueSelector{})
	for _, r := range rows {
		seen[r.InstanceGUID] = true
	}
	if want := 50 * len(specs); len(rows) != want || len(seen) != want {
		t.Errorf("%d tables that share 50 keys have %d changes of %d instances, want %d", len(specs), len(rows), len(seen), want)
	}
}

func testKeyOrder(t *testing.T, e Engine) {
	s := newSource(t, e, fmt.Sprintf("create table n (id %s not null primary key)", e.BigInt))
	s.apply(s.plain("n"))
	keys := []string{"-9223372036854775808", "-9223372036854775807", "-4294967297", "-4294967296", "-2147483649", "-65537", "-256", "-255", "-2", "-1",
		"0", "1", "2", "127", "128", "255", "256", "65535", "65536", "2147483647", "2147483648", "4294967295", "4294967296", "9223372036854775806", "9223372036854775807"}
	s.exec("insert into n values (" + strings.Join(keys, "), (") + ")")
	guids := s.guids(s.capture("n", ""))
	got := slices.SortedFunc(func(yield func(string) bool) {
		for k := range guids {
			if !yield(k) {
				return
			}
		}
	}, func(a, b string) int {
		ga, gb := guids[a], guids[b]
		return bytes.Compare(ga[:], gb[:])
	})
	if !slices.Equal(got, keys) {
		t.Errorf("in the order of their GUIDs the keys are\n%s, want\n%s", got, keys)
	}
	var want []string
	for _, k := range keys {
		want = append(want, fmt.Sprintf("Instance Inserted n(%s): %s", k, k))
	}
	s.wantTake("extreme keys", want...)
}

// hostileNames are names that an engine takes between double quotes.
var hostileNames = []string{
	"it's", `a"b`, `"`, "[x]", "x]", "$1", "$weir$", "100%s", "two words", " lead", "select", "table", "MixedCase", "mixedcase2", "näme_表", "emoji 🙂", "semi;colon--", "/* x */",
	`back\slash`, "{{.Schema}}", "do.ted", "tab\tand\nline", "?", ":n", "@p1", "`tick`",
	strings.Repeat("x", 63), strings.Repeat("x", 62) + "y", strings.Repeat("表", 21), "new_rows", "old_rows", "guid", "key", "place",
}

// names are the hostile names that the engine's server knows.
func (e Engine) names() []string {
	if e.Named == nil {
		return hostileNames
	}
	return slices.DeleteFunc(slices.Clone(hostileNames), func(n string) bool { return !e.Named(n) })
}

func testHostileNames(t *testing.T, e Engine) {
	names := e.names()
	s := newSource(t, e)
	tg := newTarget(t, e, weir.TargetOptions{})
	var specs []weir.CaptureSpec
	for _, n := range names {
		s.execf("create table %[1]s (%[1]s %[2]s not null, %[3]s %[4]s, primary key (%[1]s))", ident(n), e.Int, ident("v"+cutRunes(n, 1)+"%"), e.Text)
		s.execf("insert into %s values (-1, 'before')", ident(n))
		specs = append(specs, s.plain(n))
	}
	s.apply(specs...)
	s.same(specs...)
	for _, n := range names {
		c := s.capture(n, "")
		if p, err := s.Backfill(t.Context(), c.ID, 10, false); err != nil || !p.Done || p.Tagged != 1 {
			t.Errorf("Backfill of %q = %+v, %v, want one row and done", n, p, err)
		}
		s.execf("insert into %s values (1, 'a'), (2, 'b'), (3, 'c')", ident(n))
		s.execf("delete from %s where %s = 2", ident(n), ident(n))
		s.execf("update %[1]s set %[2]s = 30 where %[2]s = 3", ident(n), ident(n))
	}
	for _, enc := range encodings(e, e, tg.Target) {
		drain(t, s, tg, enc, 1000)
		for _, n := range names {
			query := fmt.Sprintf("select * from %[1]s order by %[1]s.%[1]s", ident(n))
			tg.wantRows(query, s.rows(query)...)
		}
		for _, n := range names {
			s.execf("update %s set %s = 'd' where %s = 30", ident(n), ident("v"+cutRunes(n, 1)+"%"), ident(n))
			s.execf("delete from %s where %s = 1", ident(n), ident(n))
		}
	}
	drain(t, s, tg, weir.EncodingText, 1000)
	for _, n := range names {
		tg.wantRows("select * from "+ident(n)+" order by 1", "-1|before", "30|d")
	}
	s.apply()
	s.same()
}

func testHostileInstanceNames(t *testing.T, e Engine) {
	names := e.names()
	s := newSource(t, e)
	var specs []weir.CaptureSpec
	for i, n := range names {
		if len(n) > 60 {
			continue
		}
		s.execf("create table %s (%s %s not null unique, %s %s, %s %s)", ident(n), ident(n), e.GUID, ident(n+"c"), e.GUID, ident(n+"k"), e.KeyText)
		s.execf("create table %s (id %s not null primary key, %s %s)", ident(n+"e"), e.Int, ident(n), e.GUID)
		tagging := weir.AtOnce
		if i%2 == 0 {
			tagging = weir.Deferred
		}
		specs = append(specs, weir.CaptureSpec{Table: s.table(n), InstanceGUID: n, ConceptGUID: n + "c", OldPrimaryKey: n + "k", Tagging: tagging},
			weir.CaptureSpec{Table: s.table(n + "e"), InstanceGUID: n, ChangeType: cutRunes(n, 30) + fmt.Sprint(i), Tagging: tagging})
	}
	s.apply(specs...)
	s.same(specs...)
	var want []string
	for i := 0; i < len(specs); i += 2 {
		n, child := specs[i].Table.Name, specs[i+1]
		g, c := weir.NewGUID(), weir.NewGUID()
		s.execf("insert into %s values ('%s', '%s', %s)", ident(n), g, c, e.Literal(n))
		s.execf("insert into %s values (1, '%s')", ident(child.Table.Name), g)
		want = append(want, fmt.Sprintf("Instance Inserted %s(%s): %s|%s|%s", n, g, g, c, n), fmt.Sprintf("%s %s(%s): 1|%s", child.ChangeType, child.Table.Name, g, g))
	}
	s.wantTake("hostile names", want...)
}

func cutRunes(s string, n int) string {
	r := []rune(s)
	return string(r[:min(n, len(r))])
}
