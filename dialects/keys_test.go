package dialects_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/puller"
)

// TestKeys_FromPostgres: a deleted row's key finds the row at the target
// whatever the target wrote for it, in tables that the target made and in ones
// that somebody made with the key as text.
func TestKeys_FromPostgres(t *testing.T) {
	type key struct{ typ, one, two string }
	keys := []key{
		{"char(5)", "'ab'", "'c'"},
		{"varchar(9)", "'ab '", "'ab'"},
		{"inet", "'10.1.2.3'", "'10.1.2.0/24'"},
		{"cidr", "'10.0.0.0/8'", "'10.1.2.3'"},
		{"numeric(10,2)", "1.1", "100"},
		{"numeric", "1.10", "100.000"},
		{"real", "'0.1'", "2.5"},
		{"double precision", "0.1", "1e300"},
		{"boolean", "true", "false"},
		{"bytea", `'\x00ff'`, `'\x'`},
		{"uuid", "'0F0E0D0C-0b0a-0908-0706-050403020100'", "'00000000-0000-0000-0000-000000000000'"},
		{"date", "'2024-02-29'", "'infinity'"},
		{"time", "'01:02:03.5'", "'24:00:00'"},
		{"timestamp", "'2024-02-29 01:02:03.5'", "'0044-03-15 12:00:00 BC'"},
		{"timestamptz", "'2024-02-29 01:02:03.5+05:30'", "'-infinity'"},
		{"macaddr8", "'08:00:2b:01:02:03:04:05'", "'08:00:2b:01:02:03:04:06'"},
		{"mood", "'sad'", "'glad'"},
		{"name", "'x'", "'y'"},
	}
	for _, to := range []string{"postgres", "sqlite", "postgres by hand"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			engine, hand := to, false
			if to == "postgres by hand" {
				engine, hand = "postgres", true
			}
			source, target := newDatabase(t, "postgres", "public"), newDatabase(t, engine, "copy")
			source.exec(t, "create type mood as enum ('sad', 'glad')")
			if hand {
				target.exec(t, "create schema copy")
			}
			var specs []weir.CaptureSpec
			keys := keys
			if hand {
				// A text does not say which zeros of it count for nothing.
				keys = slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return k.typ == "numeric" })
			}
			for i, k := range keys {
				source.exec(t, fmt.Sprintf("create table k%d (k %s primary key, v integer)", i, k.typ))
				if hand {
					target.exec(t, fmt.Sprintf("create table copy.k%d (k text primary key, v integer)", i))
				}
				specs = append(specs, weir.CaptureSpec{Table: weir.Table{Schema: "public", Name: fmt.Sprintf("k%d", i)}})
			}
			l := newLine(t, source, target, puller.Config{}, specs...)
			count := func(name string) (n int) {
				t.Helper()
				if err := target.db.QueryRowContext(t.Context(), "select count(*) from "+target.name(name)+" where v = 2").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			drain := func() {
				t.Helper()
				if r, err := l.puller.Drain(t.Context()); err != nil || r.Postponed > 0 || r.Dead > 0 {
					t.Errorf("%+v %v", r, err)
				}
			}
			for i, k := range keys {
				source.exec(t, fmt.Sprintf("insert into k%d values (%s, 1), (%s, 1)", i, k.one, k.two))
			}
			if !hand {
				// A change is known by its key, whatever the key's type.
				waiting := l.verify(t)
				if settled := slices.DeleteFunc(slices.Clone(waiting), func(s string) bool { return strings.HasSuffix(s, " unsettled") }); len(settled) > 0 || len(waiting) != 2*len(keys) {
					t.Errorf("while %d changes wait verify finds %d keys, of which these differ: %q", 2*len(keys), len(waiting), settled)
				}
			}
			drain()
			if found := l.verify; !hand && len(found(t)) > 0 {
				t.Errorf("after the pull these differ: %q", found(t))
			}
			for i := range keys {
				source.exec(t, fmt.Sprintf("update k%d set v = 2", i))
			}
			drain()
			for i, k := range keys {
				if n := count(fmt.Sprintf("k%d", i)); n != 2 {
					t.Errorf("%s: %d rows after an update, want 2", k.typ, n)
				}
				source.exec(t, fmt.Sprintf("delete from k%d where k = %s", i, k.one))
			}
			drain()
			for i, k := range keys {
				if n := count(fmt.Sprintf("k%d", i)); n != 1 {
					t.Errorf("%s: %d rows after one was deleted, want 1", k.typ, n)
				}
				source.exec(t, fmt.Sprintf("delete from k%d", i))
			}
			drain()
			for i, k := range keys {
				if n := count(fmt.Sprintf("k%d", i)); n != 0 {
					t.Errorf("%s: %d rows after all were deleted, want none", k.typ, n)
				}
			}
		})
	}
}
