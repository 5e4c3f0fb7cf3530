package sqlite

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
)

// batchOf makes a batch in neutral text of one table: the first column is the
// key. A row of nil fields only but the key is a delete.
func batchOf(table string, columns []weir.Column, rows ...[]any) weir.TableBatch {
	b := weir.TableBatch{Capture: &weir.Capture{ID: 1, Table: weir.Table{Schema: "public", Name: table}, Kind: weir.Plain, Key: columns[:1]}, Columns: columns, Encoding: weir.EncodingText}
	for _, r := range rows {
		it := weir.Item{Key: []weir.Field{weir.Field(fmt.Sprint(r[0]))}}
		if len(r) > 1 {
			var row weir.Row
			for _, v := range r {
				switch v := v.(type) {
				case nil:
					row = append(row, nil)
				case []byte:
					row = append(row, append(weir.Field{}, v...))
				default:
					row = append(row, append(weir.Field{}, fmt.Sprint(v)...))
				}
			}
			it.Rows = []weir.Row{row}
		}
		b.Items = append(b.Items, it)
	}
	return b
}

func (s *sink) ship(tables ...weir.TableBatch) error {
	return s.Ship(s.t.Context(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: &weir.Batch{Tables: tables}})
}

func (s *sink) mustShip(tables ...weir.TableBatch) {
	s.t.Helper()
	if err := s.ship(tables...); err != nil {
		s.t.Fatal(err)
	}
}

var intKey = weir.Column{Name: "id", Kind: weir.Int32, Native: "integer", NotNull: true}

func columns(names string) []weir.Column {
	out := []weir.Column{intKey}
	for _, n := range strings.Fields(names) {
		out = append(out, weir.Column{Name: n, Kind: weir.Text, Native: "text"})
	}
	return out
}

func TestNeutralValues(t *testing.T) {
	s := newSink(t, weir.TargetOptions{})
	for i, x := range []struct {
		kind  weir.Kind
		value any
		want  string // storage class and literal; empty where it is refused
	}{
		{weir.Bool, "true", "integer 1"}, {weir.Bool, "false", "integer 0"},
		{weir.Int16, "-32768", "integer -32768"}, {weir.Int32, "2147483647", "integer 2147483647"},
		{weir.Int64, "9223372036854775807", "integer 9223372036854775807"}, {weir.Int64, "-9223372036854775808", "integer -9223372036854775808"},
		{weir.Float32, "0.1", "real 0.1"}, {weir.Float64, "1e+300", "real 1.0e+300"}, {weir.Float64, "5e-324", ""}, {weir.Float64, "Infinity", "real Inf"},
		{weir.Float64, "-Infinity", "real -Inf"}, {weir.Float64, "NaN", "refused"}, {weir.Float64, "1", "real 1.0"}, {weir.Float64, "-0", "refused"},
		{weir.Decimal, "1.10", "text '1.10'"}, {weir.Decimal, "123456789012345678901234567890.123456789", "text '123456789012345678901234567890.123456789'"},
		{weir.Decimal, "NaN", "text 'NaN'"}, {weir.Decimal, "5", "text '5'"},
		{weir.Text, "", "text ''"}, {weir.Text, "1.10", "text '1.10'"}, {weir.Text, "a ", "text 'a '"}, {weir.Text, "Grüße 🚀", "text 'Grüße 🚀'"},
		{weir.Text, nil, "null NULL"}, {weir.Bytes, []byte{}, "blob X''"}, {weir.Bytes, []byte{0, 255}, "blob X'00FF'"},
		{weir.UUID, "6f9619ff-8b86-d011-b42d-00c04fc964ff", "text '6f9619ff-8b86-d011-b42d-00c04fc964ff'"},
		{weir.Date, "0044-03-15 BC", "text '0044-03-15 BC'"}, {weir.Date, "9999-12-31", "text '9999-12-31'"}, {weir.Date, "infinity", "text 'infinity'"},
		{weir.Time, "24:00:00", "text '24:00:00'"}, {weir.TimeTZ, "15:04:05.123456+05:30", "text '15:04:05.123456+05:30'"},
		{weir.Timestamp, "294276-12-31 23:59:59.999999", "text '294276-12-31 23:59:59.999999'"}, {weir.TimestampTZ, "2024-02-29 01:02:03.1+00", "text '2024-02-29 01:02:03.1+00'"},
		{weir.JSON, "1.10", "text '1.10'"}, {weir.JSON, `{"a": 1}`, `text '{"a": 1}'`}, {weir.XML, "<a/>", "text '<a/>'"},
		{weir.Other, "{1,2}", "text '{1,2}'"}, {weir.Other, "1.10", "text '1.10'"}, {weir.Any, "42", "text '42'"},
	} {
		t.Run(fmt.Sprint(x.kind, " ", x.value), func(t *testing.T) {
			table := fmt.Sprintf("t%d", i)
			err := s.ship(batchOf(table, []weir.Column{intKey, {Name: "v", Kind: x.kind, Native: "x"}}, []any{1, x.value}))
			if x.want == "refused" {
				var r *weir.RowError
				if !errors.As(err, &r) || r.Key != "1" || r.Column != "v" || r.Value != fmt.Sprint(x.value) || r.Constraint {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := s.strings("select typeof(v) || ' ' || quote(v) from " + table)
			if x.want != "" {
				if strings.Contains(x.want, "Inf") {
					got[0] = strings.ReplaceAll(got[0], "9.0e+999", "Inf")
				}
				want(t, got, x.want)
			}
			// Read as a source, it gives the same text again.
			var v any
			if err := s.db.QueryRow("select +v from " + table).Scan(&v); err != nil {
				t.Fatal(err)
			}
			var declared string
			if err := s.db.QueryRow("select type from pragma_table_xinfo(?) where name = 'v'", table).Scan(&declared); err != nil {
				t.Fatal(err)
			}
			if v == nil {
				return
			}
			f, ok := neutral(columnOf("v", declared, false).Kind, v)
			wantText := fmt.Sprint(x.value)
			if b, isBytes := x.value.([]byte); isBytes {
				wantText = string(b)
			}
			if !ok || string(f) != wantText {
				t.Errorf("declared %s, read back %q %t", declared, f, ok)
			}
		})
	}
	// A text with a NUL character.
	s.mustShip(batchOf("nul", columns("v"), []any{1, "a\x00b"}))
	want(t, s.strings("select hex(v) from nul"), "610062")
}

func TestExistingColumns(t *testing.T) {
	for _, x := range []struct {
		declared string
		kind     weir.Kind
		value    string
		want     string
	}{
		{"numeric", weir.Text, "1.10", "refused"}, {"numeric", weir.Text, "007", "refused"}, {"numeric", weir.Text, " 7", "refused"}, {"numeric", weir.Text, "7", "integer 7"},
		{"numeric", weir.Text, "abc", "text 'abc'"}, {"numeric", weir.Decimal, "1.10", "refused"}, {"numeric", weir.Decimal, "1.5", "real 1.5"}, {"numeric", weir.Decimal, "5.0", "refused"},
		{"numeric", weir.Decimal, "12345678901234567.5", "refused"}, {"integer", weir.Text, "1e3", "refused"}, {"integer", weir.Text, "+1", "refused"}, {"integer", weir.Float64, "1", "integer 1"},
		{"real", weir.Int64, "9007199254740993", "refused"}, {"real", weir.Int64, "42", "real 42.0"}, {"real", weir.Decimal, "0.1", "real 0.1"},
		{"text", weir.Int64, "42", "text '42'"}, {"text", weir.Bool, "true", "text 'true'"}, {"text", weir.Float64, "1e+300", "text '1e+300'"}, {"blob", weir.Text, "1.10", "text '1.10'"},
		{"", weir.Decimal, "1.10", "text '1.10'"}, {"date", weir.Date, "2024-01-01", "text '2024-01-01'"}, {"integer", weir.Float64, "-0", "refused"},
	} {
		t.Run(x.declared+" "+string(x.kind)+" "+x.value, func(t *testing.T) {
			s := newSink(t, weir.TargetOptions{}, "create table t (id integer primary key, v "+x.declared+")")
			err := s.ship(batchOf("t", []weir.Column{intKey, {Name: "v", Kind: x.kind}}, []any{1, x.value}))
			if x.want == "refused" {
				var r *weir.RowError
				if !errors.As(err, &r) || r.Table != "t" || r.Key != "1" || r.Column != "v" || r.Value != x.value {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want(t, s.strings("select typeof(v) || ' ' || quote(v) from t"), x.want)
		})
	}
	for declared, value := range map[string]string{"int": "abc", "real": "abc", "blob": "abc"} {
		s := newSink(t, weir.TargetOptions{}, "create table t (id integer primary key, v "+declared+") strict")
		var r *weir.RowError
		if err := s.ship(batchOf("t", columns("v"), []any{1, value})); !errors.As(err, &r) || r.Column != "v" || r.Constraint {
			t.Errorf("%s: %v", declared, err)
		}
	}
}

func TestStorageClasses(t *testing.T) {
	declared := []string{"", "integer", "int", "bigint unsigned", "text", "varchar(3)", "blob", "real", "double precision", "numeric", "decimal(10, 2)", "boolean", "date", "datetime", "timestamp",
		"uuid", "json", "string", "any", `"check"`, `"we""ird type"`, "time with time zone"}
	values := []any{nil, int64(0), int64(1), int64(math.MaxInt64), int64(math.MinInt64), 1.5, 0.1, math.Inf(1), 5e-324, 1e300, math.Copysign(0, -1), 9007199254740993.0,
		"", "a", "1.10", "0x1F", "Grüße 🚀", "a\x00b", "\xff\xfe", "2024-01-01", "2024-01-01T00:00:00Z", []byte{}, []byte{0, 1, 255}, []byte("1.10")}
	var cols, names []string
	for i, d := range declared {
		cols, names = append(cols, fmt.Sprintf("c%d %s", i, d)), append(names, fmt.Sprintf("c%d", i))
	}
	f := newFixture(t, "create table t (id integer primary key, "+strings.Join(cols, ", ")+", g as (id + 1) virtual, h text as ('x' || id) stored)",
		"create table s (id integer primary key, i int, r real, t text, b blob, a any) strict")
	f.plain("t", "s")
	for i, v := range values {
		marks := strings.Repeat(", ?", len(declared))
		args := []any{i}
		for range declared {
			args = append(args, v)
		}
		f.exec("insert into t (id, "+strings.Join(names, ", ")+") values (?"+marks+")", args...)
		f.exec("insert into s (id, a) values (?, ?)", i, v)
	}
	f.exec("insert into s values (100, 1, 1, 'x', x'01', '1.10')")
	s := newSink(t, weir.TargetOptions{})
	f.drain(s)
	names = append([]string{"id"}, append(names, "g", "h")...)
	want(t, dump(t, s.db, "t", names...), dump(t, f.app, "t", names...)...)
	want(t, dump(t, s.db, "s", "id", "i", "r", "t", "b", "a"), dump(t, f.app, "s", "id", "i", "r", "t", "b", "a")...)
	for _, db := range []struct{ q string }{{"select hex(c4) from t where id >= 12 order by id"}} {
		want(t, s.strings(db.q), f.strings(db.q)...)
	}
}

func TestNeutralTextOfASource(t *testing.T) {
	f := newFixture(t, "create table t (id integer primary key, b boolean, d decimal(10,2), ts datetime, day date, u uuid, x blob, n, j json, r real)")
	f.plain("t")
	f.exec("insert into t values (1, 1, 1.50, '2024-01-02T03:04:05.5', '2024-01-02', '6F9619FF-8B86-D011-B42D-00C04FC964FF', x'00', 'any', '{}', 1)")
	for i, bad := range []string{"b = 2", "b = 'yes'", "d = 'abc'", "ts = 1700000000", "ts = '2024-01-02T03:04:05Z'", "day = '01/02/2024'", "u = 'x'", "x = 'text'", "j = x'00'", "r = 'abc'", "r = x'00'"} {
		f.exec("insert into t (id) values (?)", i+10)
		f.exec("update t set "+bad+" where id = ?", i+10)
	}
	r := f.read(f.claim(100), weir.EncodingText)
	if len(r.Faults) != 11 {
		t.Errorf("%d faults", len(r.Faults))
	}
	for _, x := range r.Faults {
		if x.Err.Table != "t" || x.Err.Key == "" || x.Err.Column == "" || x.Err.Value == "" || x.Change.OldPrimaryKey != x.Err.Key {
			t.Errorf("%+v", x.Err)
		}
	}
	b := r.Batch.Tables[0]
	if len(b.Items) != 1 {
		t.Fatalf("%d items", len(b.Items))
	}
	var got []string
	for i, c := range b.Columns {
		got = append(got, fmt.Sprintf("%s %q", c.Kind, b.Items[0].Rows[0][i]))
	}
	want(t, got, `int64 "1"`, `bool "true"`, `decimal "1.5"`, `timestamp "2024-01-02 03:04:05.5"`, `date "2024-01-02"`, `uuid "6f9619ff-8b86-d011-b42d-00c04fc964ff"`,
		`bytes "\x00"`, `any "any"`, `json "{}"`, `float64 "1"`)
}

func TestReadIsBounded(t *testing.T) {
	f := newFixture(t, "create table a (id integer primary key, v)", "create table b (id integer primary key, v)")
	f.plain("a", "b")
	f.exec("insert into a values (1, zeroblob(1000)), (2, zeroblob(1000)), (3, zeroblob(1000))")
	f.exec("insert into b values (1, zeroblob(1000))")
	r, err := f.source.Read(f.ctx, f.claim(10), weir.ReadRequest{Encoding: Encoding, MaxBytes: 2100})
	if err != nil {
		t.Fatal(err)
	}
	up, del := r.Batch.Counts()
	if up+len(r.Rest) != 4 || up < 1 || up > 3 || del != 0 {
		t.Errorf("%d rows, %d rest", up, len(r.Rest))
	}
}

func TestLedger(t *testing.T) {
	s := newSink(t, weir.TargetOptions{})
	ctx := t.Context()
	id, err := s.Ledger(ctx)
	if err != nil || id.IsZero() {
		t.Fatal(id, err)
	}
	other, err := OpenTarget(ctx, "sqlite:"+s.path, weir.TargetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if again, err := other.Ledger(ctx); again != id || err != nil {
		t.Error(again, err)
	}
	batch := func(v string) *weir.Batch {
		return &weir.Batch{Tables: []weir.TableBatch{batchOf("t", columns("v"), []any{1, v})}}
	}
	p, q := weir.NewGUID(), weir.NewGUID()
	for range 2 {
		if err := s.Ship(ctx, weir.Shipment{PullGUID: p, Batch: batch("one")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Ship(ctx, weir.Shipment{PullGUID: p, Batch: batch("late")}); err != nil { // done already
		t.Fatal(err)
	}
	want(t, s.strings("select v from t"), "one")
	if c, err := other.Revoke(ctx, p); !c || err != nil {
		t.Error(c, err)
	}
	for range 2 {
		if c, err := other.Revoke(ctx, q); c || err != nil {
			t.Error(c, err)
		}
	}
	if err := s.Ship(ctx, weir.Shipment{PullGUID: q, Batch: batch("never")}); !errors.Is(err, weir.ErrRevoked) {
		t.Error(err)
	}
	if err := s.Ship(ctx, weir.Shipment{PullGUID: weir.NewGUID(), Batch: batch("two"), Forget: []weir.GUID{p, q}}); err != nil {
		t.Fatal(err)
	}
	want(t, s.strings("select v from t"), "two")
	want(t, s.strings("select state from weir_ledger order by 1"), "committed", "revoked")
	// A row's fault leaves no trace, and the pull may be shipped again.
	x := weir.NewGUID()
	bad := &weir.Batch{Tables: []weir.TableBatch{batchOf("fresh", []weir.Column{intKey, {Name: "v", Kind: weir.Float64}}, []any{1, "NaN"})}}
	var r *weir.RowError
	if err := s.Ship(ctx, weir.Shipment{PullGUID: x, Batch: bad}); !errors.As(err, &r) {
		t.Error(err)
	}
	want(t, s.strings("select name from sqlite_schema where name = 'fresh'"))
	if err := s.Ship(ctx, weir.Shipment{PullGUID: x, Batch: batch("three")}); err != nil {
		t.Error(err)
	}
	// Taken away, and brought back.
	var u *weir.UnavailableError
	if err := os.Rename(s.path, s.path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ledger(ctx); !errors.As(err, &u) {
		t.Error(err)
	}
	if err := s.Ship(ctx, weir.Shipment{PullGUID: weir.NewGUID(), Batch: batch("lost")}); !errors.As(err, &u) || u.Side != weir.AtTarget {
		t.Error(err)
	}
	if _, err := os.Stat(s.path); err == nil {
		t.Error("a new target was made in place of the one that is away")
	}
	if err := os.Rename(s.path+".away", s.path); err != nil {
		t.Fatal(err)
	}
	if err := s.Ship(ctx, weir.Shipment{PullGUID: weir.NewGUID(), Batch: batch("four")}); err != nil {
		t.Error(err)
	}
	want(t, s.strings("select v from t"), "four")
	// Replaced by another file.
	if err := os.Rename(s.path, s.path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var c *weir.ConfigError
	if err := s.Ship(ctx, weir.Shipment{PullGUID: weir.NewGUID(), Batch: batch("astray")}); !errors.As(err, &c) {
		t.Error(err)
	}
}

func TestUniqueValuesChangePlaces(t *testing.T) {
	for name, ddl := range map[string]string{
		"nullable": "create table t (id integer primary key, u text unique, keep text default 'mine')",
		"not null": "create table t (id integer primary key, u text not null unique, keep text default 'mine')",
		"strict":   "create table t (id integer primary key, u int not null unique, keep text default 'mine') strict",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, weir.TargetOptions{}, ddl, "create table c (id integer primary key, t references t on delete cascade)")
			cols := []weir.Column{intKey, {Name: "u", Kind: weir.Int32}}
			s.mustShip(batchOf("t", cols, []any{1, 10}, []any{2, 20}, []any{3, 30}))
			if _, err := s.db.Exec("insert into c values (1, 1), (2, 2); update t set keep = 'kept' || id"); err != nil {
				t.Fatal(err)
			}
			s.mustShip(batchOf("t", cols, []any{1, 20}, []any{2, 30}, []any{3, 10})) // round
			s.mustShip(batchOf("t", cols, []any{3}, []any{2, 10}, []any{4, 30}))     // from the deleted, and on
			want(t, s.strings("select id || ' ' || u || ' ' || keep from t order by id"), "1 20 kept1", "2 10 kept2", "4 30 mine")
			want(t, s.strings("select id from c order by id"), "1", "2") // no child was lost
			err := s.ship(batchOf("t", cols, []any{5, 20}))
			var r *weir.RowError
			if !errors.As(err, &r) || !r.Constraint {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestForeignKeys(t *testing.T) {
	s := newSink(t, weir.TargetOptions{}, "create table p (id integer primary key)", "create table c (id integer primary key, p integer not null references p)",
		"create table tree (id integer primary key, up integer references tree)")
	cols := []weir.Column{intKey, {Name: "p", Kind: weir.Int32}}
	up := []weir.Column{intKey, {Name: "up", Kind: weir.Int32}}
	// Children stand first in the batch.
	s.mustShip(batchOf("c", cols, []any{1, 1}), batchOf("p", []weir.Column{intKey, {Name: "x", Kind: weir.Text}}, []any{1, nil}), batchOf("tree", up, []any{1, 2}, []any{2, 1}))
	s.mustShip(batchOf("p", []weir.Column{intKey}, []any{1}), batchOf("c", cols, []any{1}), batchOf("tree", up, []any{1}, []any{2}))
	want(t, s.strings("select count(*) from p union all select count(*) from c union all select count(*) from tree"), "0", "0", "0")
	err := s.ship(batchOf("c", cols, []any{1, 1}))
	var r *weir.RowError
	if !errors.As(err, &r) || !r.Constraint || isUnique(err) {
		t.Errorf("%v", err)
	}
}

func TestModes(t *testing.T) {
	rows := func(f *fixture) {
		f.exec("insert into t values (1, 'a'), (2, 'b')")
	}
	t.Run("SoftDelete", func(t *testing.T) {
		f := newFixture(t, "create table t (id integer primary key, v)")
		f.plain("t")
		s := newSink(t, weir.TargetOptions{Mode: weir.SoftDelete})
		rows(f)
		f.drain(s)
		f.exec("delete from t where id = 1")
		f.drain(s)
		want(t, s.strings("select id || ' ' || v || ' ' || (weir_deleted_on is null) from t order by id"), "1 a 0", "2 b 1")
		if form := forms[weir.TimestampTZ]; !form.MatchString(s.strings("select weir_deleted_on from t where id = 1")[0]) {
			t.Error(s.strings("select weir_deleted_on from t"))
		}
		if n, err := s.Rows(t.Context(), []*weir.Capture{{Table: weir.Table{Name: "t"}}, {Table: weir.Table{Name: "no"}}}); n != 1 || err != nil {
			t.Error(n, err)
		}
		f.exec("insert into t values (1, 'again')")
		f.drain(s)
		want(t, s.strings("select id || ' ' || v || ' ' || (weir_deleted_on is null) from t order by id"), "1 again 1", "2 b 1")
	})
	t.Run("History", func(t *testing.T) {
		f := newFixture(t, "create table t (id integer primary key, v)")
		f.plain("t")
		s := newSink(t, weir.TargetOptions{Mode: weir.History})
		rows(f)
		f.drain(s)
		s.db.Exec("update t set weir_valid_from = '2999-01-01 00:00:00.000000+00' where id = 1") // the clock went back
		f.exec("update t set v = 'aa' where id = 1")
		f.drain(s)
		f.exec("delete from t where id = 1")
		f.drain(s)
		want(t, s.strings("select v || ' ' || weir_valid_from || ' ' || weir_valid_to from t where id = 1 order by weir_valid_from"),
			"a 2999-01-01 00:00:00.000000+00 2999-01-01 00:00:00.000001+00", "aa 2999-01-01 00:00:00.000001+00 2999-01-01 00:00:00.000002+00")
		want(t, s.strings("select v from t where weir_valid_to is null"), "b")
		if n, err := s.Rows(t.Context(), []*weir.Capture{{Table: weir.Table{Name: "t"}}}); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
	for _, mode := range []weir.Mode{weir.Mirror, weir.SoftDelete, weir.History} {
		t.Run("Set "+string(mode), func(t *testing.T) {
			f := newFixture(t, "create table t (id integer primary key, g text, v)")
			f.capture(weir.CaptureSpec{Table: weir.Table{Name: "t"}, InstanceGUID: "g", ChangeType: "Kids"})
			s := newSink(t, weir.TargetOptions{Mode: mode})
			g := weir.NewGUID().String()
			f.exec("insert into t values (1, ?1, 'a'), (2, ?1, 'b')", g)
			f.drain(s)
			f.exec("delete from t where id = 1")
			f.exec("insert into t values (3, ?1, 'c')", g)
			f.drain(s)
			where := map[weir.Mode]string{weir.Mirror: "", weir.SoftDelete: " where weir_deleted_on is null", weir.History: " where weir_valid_to is null"}[mode]
			want(t, s.strings("select v from t"+where+" order by v"), "b", "c")
			want(t, s.strings("select count(distinct v) from t"), map[weir.Mode]string{weir.Mirror: "2", weir.SoftDelete: "3", weir.History: "3"}[mode])
		})
	}
}

func TestNewColumns(t *testing.T) {
	two := batchOf("t", columns("a b"), []any{1, "x", "y"})
	for policy, wanted := range map[weir.NewColumns]string{weir.Evolve: "1 x y", weir.Ignore: "no such column: b", weir.Fail: "has a column"} {
		s := newSink(t, weir.TargetOptions{NewColumns: policy}, "create table t (id integer primary key, a text, extra text default 'e')")
		err := s.ship(two)
		var c *weir.ConfigError
		if policy == weir.Fail {
			if !errors.As(err, &c) || !strings.Contains(err.Error(), wanted) {
				t.Errorf("%v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := s.db.QueryRow("select id || ' ' || a || ' ' || b from t").Scan(&got); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, wanted) {
			t.Errorf("%s: %s", policy, got)
		}
		s.mustShip(batchOf("t", columns("a"), []any{1, "z"})) // the source dropped b
		want(t, s.strings("select a || extra from t"), "ze")
	}
}

func TestDecimalKeysOfAnotherEngine(t *testing.T) {
	s := newSink(t, weir.TargetOptions{})
	cols := []weir.Column{{Name: "id", Kind: weir.Decimal, Native: "numeric"}, {Name: "v", Kind: weir.Text}}
	with := func(key, text, v string) weir.TableBatch {
		b := batchOf("t", cols, []any{text, v})
		b.Items[0].Key[0] = weir.Field(key)
		return b
	}
	s.mustShip(with("1.1", "1.10", "a"))
	s.mustShip(with("1.1", "1.100", "b"))
	want(t, s.strings("select id || v from t"), "1.100b")
	s.mustShip(batchOf("t", cols, []any{"1.1"}))
	want(t, s.strings("select count(*) from t"), "0")
}

func TestIsolate(t *testing.T) {
	ddl := []string{"create table p (id integer primary key, u text unique, n numeric, k text check (k <> 'bad'))",
		"create table c (id integer primary key, p integer not null references p, q integer references p on delete restrict)",
		"create trigger no before insert on p when new.k = 'trigger' begin select raise(abort, 'not this'); end"}
	pc := []weir.Column{intKey, {Name: "u", Kind: weir.Text}, {Name: "n", Kind: weir.Text}, {Name: "k", Kind: weir.Text}}
	cc := []weir.Column{intKey, {Name: "p", Kind: weir.Int32}, {Name: "q", Kind: weir.Int32}}
	for name, x := range map[string]struct {
		before, batch []weir.TableBatch
		want          []string // table.item constraint column
	}{
		"values": {nil, []weir.TableBatch{batchOf("p", pc, []any{1, "a", "1.10", nil}, []any{2, "b", "1", nil}, []any{3, "c", "007", nil})}, []string{"0.0 false n", "0.2 false n"}},
		"check and trigger": {nil, []weir.TableBatch{batchOf("p", pc, []any{1, "a", "1", "bad"}, []any{2, "b", "1", "good"}, []any{3, "c", "1", "trigger"}, []any{4, "d", "1", "good"})},
			[]string{"0.0 false ", "0.2 false "}},
		"swap beside a value that is taken": {[]weir.TableBatch{batchOf("p", pc, []any{1, "a", nil, nil}, []any{2, "b", nil, nil}, []any{9, "z", nil, nil})},
			[]weir.TableBatch{batchOf("p", pc, []any{1, "b", nil, nil}, []any{2, "a", nil, nil}, []any{3, "z", nil, nil})}, []string{"0.2 true "}},
		"chain": {[]weir.TableBatch{batchOf("p", pc, []any{1, "a", nil, nil}, []any{2, "b", nil, nil}, []any{9, "z", nil, nil})},
			[]weir.TableBatch{batchOf("p", pc, []any{1, "z", nil, nil}, []any{2, "a", nil, nil}, []any{3, "b", nil, nil}, []any{4, "new", nil, nil})}, []string{"0.0 true ", "0.1 true ", "0.2 true "}},
		"one value twice": {nil, []weir.TableBatch{batchOf("p", pc, []any{1, "a", nil, nil}, []any{2, "a", nil, nil})}, []string{"0.1 true "}},
		"orphan of a row that is out": {nil, []weir.TableBatch{batchOf("c", cc, []any{1, 1, nil}, []any{2, 2, nil}, []any{3, 7, nil}), batchOf("p", pc, []any{1, "a", nil, "bad"}, []any{2, "b", nil, nil})},
			[]string{"0.0 true ", "0.2 true ", "1.0 false "}},
		"parent that is referred to": {[]weir.TableBatch{batchOf("p", pc, []any{1, "a", nil, nil}, []any{2, "b", nil, nil}, []any{3, "c", nil, nil}), batchOf("c", cc, []any{1, 1, 2}, []any{3, 3, nil})},
			[]weir.TableBatch{batchOf("p", pc, []any{1}, []any{2}, []any{3}), batchOf("c", cc, []any{3})}, []string{"0.0 true ", "0.1 true "}},
		"not null": {[]weir.TableBatch{batchOf("p", pc, []any{1, "a", nil, nil})}, []weir.TableBatch{batchOf("c", cc, []any{1, nil, nil}, []any{2, 1, nil})}, []string{"0.0 false p"}},
		"nothing":  {nil, []weir.TableBatch{batchOf("p", pc, []any{1, "a", nil, nil})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, weir.TargetOptions{}, ddl...)
			if x.before != nil {
				s.mustShip(x.before...)
			}
			before := append(dump(t, s.db, "p", "id", "u"), dump(t, s.db, "c", "id", "p", "q")...)
			b := &weir.Batch{Tables: x.batch}
			faults, err := s.Isolate(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range faults {
				got = append(got, fmt.Sprintf("%d.%d %t %s", f.Table, f.Item, f.Err.Constraint, f.Err.Column))
				if f.Err.Key != string(x.batch[f.Table].Items[f.Item].Key[0]) || f.Err.Table == "" || f.Err.Err == nil {
					t.Errorf("%+v", f.Err)
				}
			}
			want(t, got, x.want...)
			want(t, append(dump(t, s.db, "p", "id", "u"), dump(t, s.db, "c", "id", "p", "q")...), before...)
			if err := s.Ship(t.Context(), weir.Shipment{PullGUID: weir.NewGUID(), Batch: b.Without(faults)}); err != nil {
				t.Errorf("without the faults: %v", err)
			}
		})
	}
}
