package dialects_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/dialects"
	"github.com/weir-cdc/weir/puller"
)

// verify returns what differs, as "table key how".
func (l *line) verify(t *testing.T) []string {
	t.Helper()
	source, ok := l.source.(puller.VerifySource)
	target, can := l.target.(puller.Verifiable)
	if !ok || !can {
		return nil
	}
	captures, err := l.source.Captures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range captures {
		v, err := puller.Verify(t.Context(), source, target, c, weir.DefaultQueue, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(v.LeftOut) > 0 {
			t.Errorf("%s: not compared: %v", v.Table, v.LeftOut)
		}
		for _, d := range v.Differing {
			found = append(found, c.Table.Name+" "+strings.Join(d.Key, ",")+" "+d.How)
		}
		for _, d := range v.Unsettled {
			found = append(found, c.Table.Name+" "+strings.Join(d.Key, ",")+" unsettled")
		}
	}
	slices.Sort(found)
	return found
}

// TestVerify_Modes: a target is compared by its current rows, and a set by the
// key that its rows share, with composite and hostile keys.
func TestVerify_Modes(t *testing.T) {
	for _, from := range []string{"postgres", "sqlite"} {
		for _, to := range []string{"postgres", "sqlite"} {
			for _, mode := range []weir.Mode{weir.Mirror, weir.SoftDelete, weir.History} {
				t.Run(fmt.Sprintf("%s to %s %s", from, to, mode), func(t *testing.T) {
					t.Parallel()
					source, target := newDatabase(t, from, "public"), newDatabase(t, to, "copy")
					l := openLine(t, source, target)
					tg, err := dialects.OpenTarget(t.Context(), target.url, weir.TargetOptions{Schema: target.schema, Mode: mode})
					if err != nil {
						t.Fatal(err)
					}
					if err := l.target.Close(); err != nil { // the one without a mode
						t.Fatal(err)
					}
					l.target = tg
					if l.puller, err = puller.New(l.source, l.target, puller.Config{Name: "line"}, slog.New(slog.DiscardHandler)); err != nil {
						t.Fatal(err)
					}
					source.exec(t,
						`create table pairs (a text not null, b integer not null, v numeric(10,2), primary key (a, b))`,
						`create table members (id integer not null primary key, g uuid, v text)`)
					if _, err := l.source.Init(t.Context()); err != nil {
						t.Fatal(err)
					}
					l.capture(t, weir.CaptureSpec{Table: weir.Table{Schema: source.schema, Name: "pairs"}},
						weir.CaptureSpec{Table: weir.Table{Schema: source.schema, Name: "members"}, InstanceGUID: "g", ConceptGUID: "6f9a5a5e-8d0f-4b86-9d2e-0f4c4f5d3b11", ChangeType: "Members Changed"})
					const one, two = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
					source.exec(t,
						`insert into pairs values ('it''s', 1, 1.10), (''',''', 2, null), ('''', 3, 100), ('ü"\', 4, 0)`,
						`insert into members values (1, '`+one+`', 'a'), (2, '`+one+`', 'a'), (3, '`+two+`', null), (4, null, 'of no set')`)
					l.drain(t)
					source.exec(t, `delete from pairs where b = 3`, `update pairs set v = 7 where b = 1`, `delete from members where id = 3`, `update members set v = 'b' where id = 2`)
					l.drain(t)
					if found := l.verify(t); len(found) > 0 {
						t.Errorf("after a pull these differ: %q", found)
					}
					target.exec(t, "update "+target.name("pairs")+" set v = 7.01 where b = 1", "update "+target.name("pairs")+" set a = 'moved' where b = 2",
						"update "+target.name("members")+" set v = 'c' where id = 2")
					want := []string{"members " + one + " changed", "pairs ',',2 missing", "pairs it's,1 changed", "pairs moved,2 extra"}
					if found := l.verify(t); !slices.Equal(found, want) {
						t.Errorf("found %q, want %q", found, want)
					}
					// What waits to be pulled is under way: changed, deleted and new.
					source.exec(t, `update pairs set v = 8 where b = 1`, `delete from pairs where b = 4`, `insert into pairs values ('new', 5, 1)`, `update members set v = 'd' where id = 2`)
					want = []string{"members " + one + " unsettled", "pairs ',',2 missing", "pairs it's,1 unsettled", "pairs moved,2 extra", "pairs new,5 unsettled", `pairs ü"\,4 unsettled`}
					if found := l.verify(t); !slices.Equal(found, want) {
						t.Errorf("while changes wait found %q, want %q", found, want)
					}
				})
			}
		}
	}
}
