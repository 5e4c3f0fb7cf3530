package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

// kinds are key types, two literals each of one value (where it has two forms)
// and one of another, and the key text of both.
var kinds = []struct{ typ, a, same, other, text, otherText string }{
	{"smallint", "-32768", "", "32767", "-32768", "32767"},
	{"integer", "-1", "", "1", "-1", "1"},
	{"bigint", "-9223372036854775808", "", "9223372036854775807", "-9223372036854775808", "9223372036854775807"},
	{"numeric", "1.0", "1.00", "1.5", "1", "1.5"},
	{"numeric", "'NaN'", "", "'-Infinity'", "NaN", "-Infinity"},
	{"numeric(20,4)", "-0.0", "0", "12345678901234.5678", "0", "12345678901234.5678"},
	{"real", "'-0'", "0", "'0.1'", "0", "0.1"},
	{"double precision", "'-0'", "0", "0.1", "0", "0.1"},
	{"double precision", "'NaN'", "", "1e300", "NaN", "1e+300"},
	{"text", "'a'", "", "'A'", "a", "A"},
	{`text collate "C"`, "' a '", "", "''", " a ", ""},
	{`text collate "en-x-icu"`, "'é'", "", "'e'", "é", "e"},
	{"varchar(10)", "'a '", "", "'a'", "a ", "a"},
	{"char(5)", "'a'", "'a  '", "'b'", "a", "b"},
	{"name", "'n'", "", `'"'`, "n", `"`},
	{"uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'{a0eebc999c0b4ef8bb6d6bb9bd380a11}'", "'00000000-0000-0000-0000-000000000000'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"},
	{"boolean", "true", "'yes'", "false", "true", "false"},
	{"date", "'2024-02-29'", "", "'infinity'", "2024-02-29", "infinity"},
	{"date", "'0044-03-15 BC'", "", "'11111-01-01'", "0044-03-15 BC", "11111-01-01"},
	{"time", "'23:59:59.999999'", "", "'24:00'", "23:59:59.999999", "24:00:00"},
	{"timestamp", "'2024-01-02 03:04:05.678901'", "", "'-infinity'", "2024-01-02 03:04:05.678901", "-infinity"},
	{"timestamptz", "'2024-07-01 00:30:00+02'", "'2024-06-30 22:30:00+00'", "'2024-01-01 00:00:00.000001+00'", "2024-06-30 22:30:00+00", "2024-01-01 00:00:00.000001+00"},
	{"bytea", `'\x00ff'`, `'\000\377'`, `'\x'`, "00ff", ""},
	{"inet", "'10.0.0.1'", "'10.0.0.1/32'", "'10.0.0.1/24'", "10.0.0.1/32", "10.0.0.1/24"},
	{"cidr", "'10.0.0.0/8'", "", "'::1'", "10.0.0.0/8", "::1/128"},
	{"macaddr", "'08:00:2b:01:02:03'", "'08002b010203'", "'08:00:2b:01:02:04'", "08:00:2b:01:02:03", "08:00:2b:01:02:04"},
	{"oid", "4294967295", "'-1'", "1", "4294967295", "1"},
	{"public.mood", "'it''s $weir$ %s'", "", "'glad'", "it's $weir$ %s", "glad"},
	{"public.short", "'x'", "", "'y'", "x", "y"},
}

// odd are settings of a session that change how values are shown.
var odd = []string{
	"set datestyle = 'German, DMY'", "set timezone = 'America/St_Johns'", "set bytea_output = 'escape'", "set extra_float_digits = -5",
	"set intervalstyle = 'iso_8601'", "set lc_numeric = 'C'", "set quote_all_identifiers = on", "set standard_conforming_strings = off", "set escape_string_warning = off",
	"set plan_cache_mode = force_generic_plan", "set enable_indexscan = off", "set search_path = ''",
}

// TestKeys: key text and GUID follow the value alone. Each kind is written in a
// plain session and in one with odd settings, alone and in a composite key, and
// read back.
func TestKeys(t *testing.T) {
	w := newWorld(t, "create type public.mood as enum ('it''s $weir$ %s', 'glad'); create domain public.short as varchar(3)")
	strange := w.session(w.url)
	for _, sql := range odd {
		w.on(strange, sql)
	}
	// With standard_conforming_strings off a backslash is an escape.
	escaped := func(sql string) string { return strings.ReplaceAll(sql, `\`, `\\`) }
	var specs []weir.CaptureSpec
	for i, k := range kinds {
		w.exec(fmt.Sprintf("create table public.k%d (k %s primary key, v text); create table public.c%d (a integer, k %s, v text, primary key (k, a))", i, k.typ, i, k.typ))
		specs = append(specs, plain("public", fmt.Sprintf("k%d", i)), plain("public", fmt.Sprintf("c%d", i)))
	}
	w.apply(specs...)
	for i, k := range kinds {
		t.Run(k.typ+" "+k.text, func(t *testing.T) {
			w := &world{TB: t, url: w.url, src: w.src, user: w.user}
			same := k.same
			if same == "" {
				same = k.a
			}
			goneText := k.otherText
			if k.typ == "char(5)" {
				goneText = fmt.Sprintf("%-5s", goneText) // as the row had it
			}
			single, pair := fmt.Sprintf("public.k%d", i), fmt.Sprintf("public.c%d", i)
			w.exec(fmt.Sprintf("insert into %s values (%s, 'v'), (%s, 'w')", single, k.a, k.other))
			first := ask[string](w, "select instance_guid::text from weir.instance_changes order by 1")
			w.wantTook("inserted", "I "+k.text, "I "+k.otherText)
			for _, sql := range []string{"update %s set v = 'x', k = %s where v = 'v'; update %s set v = 'y' where v = 'w'", "delete from %s where k = %s; delete from %s where v = 'y'", "insert into %s values (%s, 'z'); insert into %s values (%s, 'o')"} {
				args := []any{single, same, single}
				if strings.Contains(sql, "insert") {
					args = append(args, k.other)
				}
				w.on(strange, escaped(fmt.Sprintf(sql, args...)))
			}
			w.on(strange, "begin isolation level serializable")
			w.on(strange, escaped(fmt.Sprintf("update %s set v = 'i'", single)))
			w.on(strange, "commit")
			w.fold()
			if again := ask[string](w, "select instance_guid::text from weir.instance_changes order by 1"); !slices.Equal(first, again) {
				t.Errorf("GUIDs %v, then %v", first, again)
			}
			if n := one[int64](w, "select count(distinct instance_guid) from weir.instance_changes"); n != 2 {
				t.Errorf("%d GUIDs, want 2", n)
			}
			read, err := w.read()
			if want := 2; err != nil || len(read) != want || strings.Contains(strings.Join(read, ""), "gone") {
				t.Errorf("read %q, %v, want two rows that are there", read, err)
			}
			w.on(strange, escaped(fmt.Sprintf("delete from %s where k = %s", single, k.other)))
			if read, err = w.read(); err != nil || len(read) != 1 || read[0] != goneText+": gone" {
				t.Errorf("read %q, %v, want %s gone", read, err, goneText)
			}

			w.exec(fmt.Sprintf("insert into %s values (1, %s, 'v')", pair, k.a))
			w.on(strange, escaped(fmt.Sprintf("update %s set v = 'w', k = %s; insert into %s values (2, %s, 'v')", pair, same, pair, k.other)))
			if read, err = w.read(); err != nil || len(read) != 2 || strings.Contains(strings.Join(read, ""), "gone") {
				t.Errorf("read %q of a composite key, %v, want two rows", read, err)
			}

			// A backfill comes to the same instances.
			id := one[int32](w, "select capture_id from weir.captures where table_name = $1", fmt.Sprintf("k%d", i))
			if _, err := w.src.Backfill(context.Background(), id, 100, true); err != nil {
				t.Fatal(err)
			}
			w.fold()
			if got := ask[string](w, "select instance_guid::text from weir.instance_changes"); len(got) != 1 || !slices.Contains(first, got[0]) {
				t.Errorf("backfill tagged %v, want one of %v", got, first)
			}
			w.took()
		})
	}
}

// TestKeysRefused: keys whose equal values have several texts. (The conformance
// suite has more of them.)
func TestKeysRefused(t *testing.T) {
	w := newWorld(t, "create collation public.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)", "create type public.pair as (a integer, b text)")
	types := []string{"text collate public.nocase", "varchar(5) collate public.nocase", "public.pair", "interval", "integer[]", "timetz", "money", "int4range"}
	if one[int64](w, "select count(*) from pg_available_extensions where name = 'citext'") == 1 {
		w.exec("create extension citext schema public")
		types = append(types, "public.citext")
	}
	for i, typ := range types {
		name := fmt.Sprintf("t%d", i)
		w.exec(fmt.Sprintf("create table public.%s (k %s primary key)", name, typ))
		_, err := w.src.Resolve(context.Background(), []weir.CaptureSpec{plain("public", name)})
		var c *weir.ConfigError
		if !errors.As(err, &c) || !strings.Contains(err.Error(), `key column "k"`) {
			t.Errorf("%s: %v, want a *weir.ConfigError about the key column", typ, err)
		}
	}
}
