package dialecttest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/puller"
)

// Value is one value on its way from one engine to another: a line of a table
// for [ExerciseValues].
type Value struct {
	// Type is the source column's, as its DDL takes it.
	Type string
	// Into is the type of the column at the target, made by hand; empty means
	// that the target makes it.
	Into string
	// Literal is the value, as an expression of the source's.
	Literal string
	// Neutral is its text in [weir.EncodingText], or <null>. It is not looked at
	// in another encoding.
	Neutral string
	// Want is [Engine.AsText] of what arrives, or <null>.
	Want string
	// Same: Want is what AsText is at the source.
	Same bool
	// Refused: the value does not arrive. The row is at fault, by table, key,
	// column and value, and its neighbours are not.
	Refused bool
}

// ExerciseValues brings each value from one engine to the other in the given
// encoding. Of from and to it uses Name, NewDatabase, OpenSource, OpenTarget,
// Connect, Schema and AsText. setup are statements that the types need: for the
// source, and for a target of the same engine.
func ExerciseValues(t *testing.T, from, to Engine, enc weir.Encoding, setup []string, values []Value) {
	s := newSource(t, from, setup...)
	var atTarget []string
	if from.Name == to.Name {
		atTarget = setup
	}
	tg := newTarget(t, to, weir.TargetOptions{}, atTarget...)
	type column struct{ typ, into string }
	byType := map[column][]Value{}
	var types []column
	for _, v := range values {
		c := column{v.Type, v.Into}
		if byType[c] == nil {
			types = append(types, c)
		}
		byType[c] = append(byType[c], v)
	}
	var specs []weir.CaptureSpec
	for i, c := range types {
		const table = "create table v%d (id integer not null primary key, v %s)"
		s.execf(table, i, c.typ)
		if c.into != "" {
			tg.execf(table, i, c.into)
		}
		specs = append(specs, s.plain(fmt.Sprintf("v%d", i)))
	}
	s.apply(specs...)
	for i, c := range types {
		for j, v := range byType[c] {
			if _, err := s.sql.ExecContext(t.Context(), fmt.Sprintf("insert into v%d values (%d, %s)", i, j, v.Literal)); err != nil {
				t.Fatalf("%s %.100s: %v", v.Type, v.Literal, err)
			}
		}
	}
	s.fold()
	for i, c := range types {
		name := c.typ
		if name == "" {
			name = "no type"
		}
		if c.into != "" {
			name += " into " + c.into
		}
		t.Run(name, func(t *testing.T) {
			bring(t, s, tg, fmt.Sprintf("v%d", i), enc, byType[c])
		})
	}
}

// bring brings one table over, and compares.
func bring(t *testing.T, s *source, tg *target, table string, enc weir.Encoding, values []Value) {
	req := s.request(10_000)
	req.Captures = []int32{s.capture(table, "").ID}
	p := s.claimBy(req)
	r, err := s.Read(t.Context(), p, weir.ReadRequest{Encoding: enc})
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string]*weir.RowError{}
	for _, f := range r.Faults {
		faults[f.Change.OldPrimaryKey] = f.Err
	}
	for i := range r.Batch.Tables {
		b := r.Batch.Tables[i]
		if b.Encoding != enc {
			t.Fatalf("Read gave the encoding %s, want %s", b.Encoding, enc)
		}
		for _, it := range b.Items {
			v := values[atoi(t, string(it.Key[0]))]
			if got := fieldsText(it.Rows[0][1:]); enc == weir.EncodingText && got != v.Neutral {
				t.Errorf("%s %.100s: the neutral text is %q, want %q", v.Type, v.Literal, got, v.Neutral)
			}
		}
	}
	ship := func(b *weir.Batch) error {
		return tg.Ship(t.Context(), weir.Shipment{PullGUID: p.PullGUID, Batch: b})
	}
	if err := ship(r.Batch); err != nil {
		as[*weir.RowError](t, err)
		found, err := tg.Isolate(t.Context(), r.Batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			faults[f.Err.Key] = f.Err
		}
		if err := ship(r.Batch.Without(found)); err != nil {
			t.Fatalf("without the faults Ship = %v", err)
		}
	}

	verified(t, s, tg, table, faults)

	sent, came := map[string]string{}, map[string]string{}
	for d, rows := range map[*database]map[string]string{s.database: sent, tg.database: came} {
		if d == tg.database && len(faults) == len(values) {
			continue
		}
		for _, line := range d.rows(fmt.Sprintf("select id, %s from %s", d.e.AsText("v"), table)) {
			id, text, _ := strings.Cut(line, "|")
			rows[id] = text
		}
	}
	for i, v := range values {
		id := fmt.Sprint(i)
		fault, got, want := faults[id], came[id], v.Want
		if v.Same {
			want = sent[id]
		}
		_, arrived := came[id]
		switch {
		case v.Refused && fault == nil:
			t.Errorf("%s %.100s: arrived as %q, want it refused", v.Type, v.Literal, got)
		case v.Refused && (arrived || fault.Column != "v" || fault.Value == "" && v.Literal != "''" || fault.Table == "" || fault.Constraint || fault.Err == nil):
			t.Errorf("%s %.100s: the fault is %+v (%v), and the row arrived: %t; want it refused by table, key, column and value", v.Type, v.Literal, fault, errors.Unwrap(fault), arrived)
		case v.Refused:
		case fault != nil:
			t.Errorf("%s %.100s: refused by %v, want %q", v.Type, v.Literal, fault, want)
		case got != want:
			t.Errorf("%s %.100s: arrived as %q, want %q", v.Type+" "+v.Into, v.Literal, got, want)
		}
	}
}

// verified compares both sides by digests: what was refused is missing, and
// nothing else differs.
func verified(t *testing.T, s *source, tg *target, table string, faults map[string]*weir.RowError) {
	from, ok := s.Source.(puller.VerifySource)
	to, can := tg.Target.(puller.Verifiable)
	if !ok || !can {
		return
	}
	v, err := puller.Verify(t.Context(), from, to, s.capture(table, ""), weir.DefaultQueue, 0)
	if err != nil {
		t.Errorf("Verify: %v", err)
		return
	}
	got, want := map[string]string{}, map[string]string{}
	for _, d := range slices.Concat(v.Differing, v.Unsettled) { // nothing is settled here
		got[d.Key[0]] = d.How
	}
	for id := range faults {
		want[id] = puller.Missing
	}
	if !maps.Equal(got, want) || len(got) != len(v.Differing)+len(v.Unsettled) || v.SourceRows != v.TargetRows+int64(len(faults)) {
		t.Errorf("Verify found %v (%d and %d rows), want %v; left out: %v", got, v.SourceRows, v.TargetRows, want, v.LeftOut)
	}
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
