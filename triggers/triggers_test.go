package triggers_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/triggers"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func table(name string) weir.Table { return weir.ParseTable(name) }

func object(kind weir.ObjectKind, name, on, group string) weir.Object {
	o := weir.Object{Kind: kind, Name: name, Group: table(group), Table: table(on), Fingerprint: "1"}
	if on == "" {
		o.Table, o.Group = weir.Table{}, weir.Table{}
	}
	o.Create = []string{fmt.Sprintf("create %s %q", kind, name), fmt.Sprintf("enable %q;", name)}
	o.Drop = []string{fmt.Sprintf("drop %s %q", kind, name)}
	return o
}

// capture is a table with a partition, feeding two queues.
func capture(name string, warnings ...string) weir.Resolved {
	return weir.Resolved{
		Capture: &weir.Capture{Table: table(name)},
		Objects: []weir.Object{
			object(weir.QueueTable, "events", "", ""),
			object(weir.Registration, "id_"+name, name, name),
			object(weir.Function, "tag_"+name, name, name),
			object(weir.Trigger, "t", name, name),
			object(weir.Trigger, "t", name+"_p", name),
		},
		Warnings: warnings,
	}
}

// installed is what is there once the captures are applied.
func installed(captures ...weir.Resolved) []weir.Object {
	var out []weir.Object
	for _, c := range captures {
		for _, o := range c.Objects {
			if !slices.ContainsFunc(out, func(have weir.Object) bool {
				return have.Kind == o.Kind && have.Name == o.Name && have.Table == o.Table
			}) {
				o.Create = nil
				out = append(out, o)
			}
		}
	}
	return out
}

func without(objects []weir.Object, drop func(weir.Object) bool) []weir.Object {
	return slices.DeleteFunc(slices.Clone(objects), drop)
}

func script(p *triggers.Plan) string {
	var b strings.Builder
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "-- warning: %s\n", w)
	}
	return b.String() + p.SQL()
}

func TestCompare(t *testing.T) {
	a, b := capture("s.a"), capture("s.b", "b is odd")
	hostile := capture("s.\"e\nvil; --")
	both := installed(a, b)
	changed := installed(a)
	for i := range changed {
		if changed[i].Kind == weir.Function || changed[i].Table == table("s.a_p") {
			changed[i].Fingerprint = "2"
		}
	}
	full := installed(a, b)
	full[0].Drop = nil // the queue holds changes
	lost := without(both, func(o weir.Object) bool { return o.Kind == weir.Registration })
	for i := range lost {
		if lost[i].Kind == weir.Function {
			lost[i].Table, lost[i].Group = weir.Table{}, weir.Table{} // unknown without it
		}
	}
	for name, c := range map[string]struct {
		wanted    []weir.Resolved
		installed []weir.Object
	}{
		"new":          {[]weir.Resolved{b, a}, nil},
		"missing":      {[]weir.Resolved{a}, without(installed(a), func(o weir.Object) bool { return o.Table == table("s.a_p") })},
		"changed":      {[]weir.Resolved{a}, changed},
		"unwanted":     {nil, both},
		"kept_queue":   {nil, full},
		"renamed":      {[]weir.Resolved{b}, installed(a)},
		"hostile":      {[]weir.Resolved{hostile}, nil},
		"unregistered": {[]weir.Resolved{a, b}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			p := triggers.Compare(c.wanted, c.installed)
			golden(t, name+".sql", script(p))
			slices.Reverse(c.installed)
			slices.Reverse(c.wanted)
			if again := triggers.Compare(c.wanted, c.installed); script(again) != script(p) {
				t.Errorf("the plan depends on the order of what is given:\n%s", script(again))
			}
		})
	}
}

func TestCompare_NothingToDo(t *testing.T) {
	a, b := capture("s.a"), capture("s.b", "b is odd")
	p := triggers.Compare([]weir.Resolved{a, b}, installed(b, a))
	if !p.Empty() || p.SQL() != "" || p.Drift() != nil || p.Summary() != "" {
		t.Errorf("plan %q", p.SQL())
	}
	if !reflect.DeepEqual(p.Warnings, []string{"b is odd"}) {
		t.Errorf("warnings %q", p.Warnings)
	}
}

func TestCompare_Missed(t *testing.T) {
	a := capture("s.a")
	edit := func(change func(*weir.Object)) []weir.Object {
		have := installed(a)
		for i := range have {
			change(&have[i])
		}
		return have
	}
	const meanwhile = ": what was written to s.a meanwhile was not captured; run weir backfill --restart s.a after apply. Rows that were deleted meanwhile stay at the target until they are deleted there"
	const anew = "s.a is registered anew: where the table was made again, or its key, concept or queues changed, run weir backfill s.a after apply; rows that the table no longer has stay at the target until they are deleted there"
	for name, c := range map[string]struct {
		installed []weir.Object
		want      []string
	}{
		"begins": {nil, nil},
		"alike":  {installed(a), nil},
		"a trigger was disabled": {edit(func(o *weir.Object) {
			if o.Kind == weir.Trigger && o.Table == table("s.a_p") {
				o.Fingerprint, o.Disabled = "2", true
			}
		}), []string{"trigger t on s.a_p was disabled" + meanwhile}},
		"the trigger was dropped": {without(installed(a), func(o weir.Object) bool { return o.Kind == weir.Trigger && o.Table == table("s.a") }),
			[]string{"trigger t on s.a was missing" + meanwhile}},
		"a function was edited": {edit(func(o *weir.Object) {
			if o.Kind == weir.Function {
				o.Fingerprint = "2"
			}
		}), []string{"function tag_s.a was not as this version of weir makes it" + meanwhile}},
		// The function follows the registration.
		"the key changed": {edit(func(o *weir.Object) {
			if o.Kind == weir.Function || o.Kind == weir.Registration {
				o.Fingerprint = "2"
			}
		}), []string{anew}},
		"the table was made again": {without(edit(func(o *weir.Object) {
			if o.Kind == weir.Registration {
				o.Fingerprint = "2"
			}
		}), func(o weir.Object) bool { return o.Kind == weir.Trigger }), []string{anew}},
		// The dialect tells of it.
		"a partition came": {without(installed(a), func(o weir.Object) bool { return o.Table == table("s.a_p") }), nil},
		"a partition left": {append(installed(a), object(weir.Trigger, "t", "s.left", "s.a")),
			[]string{"s.left no longer belongs to s.a: the rows that left with it are not deleted at the target; delete them there"}},
		"a capture is not wanted": {append(installed(a), object(weir.Trigger, "t", "s.b", "s.b")), nil},
	} {
		if p := triggers.Compare([]weir.Resolved{a}, c.installed); !slices.Equal(p.Warnings, c.want) {
			t.Errorf("%s: warnings %q, want %q", name, p.Warnings, c.want)
		}
	}
}

func TestCompareDrop(t *testing.T) {
	have := installed(capture("s.a"), capture("s.b"))
	p, err := triggers.CompareDrop(have, []weir.Table{table("s.b")})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Steps {
		if s.Group != table("s.b") || s.Action != triggers.Drop {
			t.Errorf("step %+v", s)
		}
	}
	if p.Summary() != "4 to drop" {
		t.Error(p.Summary())
	}
	if p, err = triggers.CompareDrop(have, []weir.Table{table("b")}); err != nil || p.Summary() != "4 to drop" {
		t.Errorf("without a schema: %v, %v", p, err)
	}
	_, err = triggers.CompareDrop(have, []weir.Table{table("s.c")})
	if want := "s.c: no capture of it is installed. Try: s.a, s.b"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if p, err = triggers.CompareDrop(have, nil); err != nil || p.Summary() != "9 to drop" {
		t.Errorf("all: %v, %v", p.Summary(), err)
	}
}

// engine keeps what is installed in memory.
type engine struct {
	resolved  []weir.Resolved
	objects   []weir.Object
	applied   []weir.Table
	refuse    weir.Table
	unhealthy error
}

func (e *engine) Resolve(context.Context, []weir.CaptureSpec) ([]weir.Resolved, error) {
	return e.resolved, e.unhealthy
}
func (e *engine) Installed(context.Context) ([]weir.Object, error) { return e.objects, nil }
func (e *engine) Apply(_ context.Context, group weir.Table, _ []string) error {
	if group == e.refuse {
		return &weir.UnavailableError{Side: weir.AtSource, Op: "apply", Err: errors.New("lock not available")}
	}
	e.applied = append(e.applied, group)
	return nil
}

func TestApply(t *testing.T) {
	ctx := context.Background()
	e := &engine{resolved: []weir.Resolved{capture("s.a"), capture("s.b"), capture("s.c")}, refuse: table("s.b")}
	p, resolved, err := triggers.PlanFor(ctx, e, nil)
	if err != nil || len(resolved) != 3 {
		t.Fatal(resolved, err)
	}
	var told []weir.Table
	err = triggers.Apply(ctx, e, p, func(group weir.Table, _ []triggers.Step) { told = append(told, group) })
	done := []weir.Table{{}, table("s.a")}
	var a *triggers.ApplyError
	if !errors.As(err, &a) || !reflect.DeepEqual(a.Applied, done) || a.Failed != table("s.b") || !reflect.DeepEqual(a.Left, []weir.Table{table("s.c")}) {
		t.Fatalf("error %#v", err)
	}
	var u *weir.UnavailableError
	if !errors.As(err, &u) {
		t.Errorf("%v is no outage", err)
	}
	if !reflect.DeepEqual(told, done) || !reflect.DeepEqual(e.applied, done) {
		t.Errorf("told %v, applied %v", told, e.applied)
	}
	if want := "apply to s.b (2 applied, 1 left): apply: source is unavailable: lock not available"; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
	e.refuse, e.applied = table("none"), nil
	if err := triggers.Apply(ctx, e, p, nil); err != nil || len(e.applied) != 4 {
		t.Errorf("applied %v, %v", e.applied, err)
	}
}

func TestCheck(t *testing.T) {
	ctx := context.Background()
	a := capture("s.a")
	e := &engine{resolved: []weir.Resolved{a}, objects: installed(a)}
	if err := triggers.Check(ctx, e, nil); err != nil {
		t.Fatal(err)
	}
	e.objects = without(e.objects, func(o weir.Object) bool { return o.Table == table("s.a_p") })
	for i := range e.objects {
		if e.objects[i].Kind != weir.QueueTable {
			e.objects[i].Fingerprint = "2"
			e.objects[i].Disabled = e.objects[i].Kind == weir.Trigger
		}
	}
	e.objects = append(e.objects, object(weir.Trigger, "t", "s.z", "s.z"))
	err := triggers.Check(ctx, e, nil)
	var d *weir.DriftError
	if !errors.As(err, &d) {
		t.Fatalf("error %T", err)
	}
	const hint = ". Try: weir triggers plan shows the difference and what it means for the target, weir triggers apply removes it"
	want := strings.Join([]string{
		"registration of s.a: the table, its key or its configuration is not what was captured" + hint,
		"function tag_s.a: its body, its settings, its owner or its rights were changed" + hint,
		"trigger t on s.a: it is disabled" + hint,
		"trigger t on s.a_p: it is missing: it was dropped, or s.a_p became part of s.a after the capture" + hint,
		"trigger t on s.z: it is installed, and the configuration does not want it" + hint,
	}, "\n")
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	e.unhealthy = &weir.ConfigError{Key: "captures: s.a", Hint: "x"}
	if err := triggers.Check(ctx, e, nil); !errors.Is(err, e.unhealthy) {
		t.Errorf("error %v", err)
	}
}

func TestRender(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"000007_users.up.sql", "000007_users.down.sql", "README.md", "000009_notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, b := capture("s.a"), capture(`My Schema."Ünï.""x"`)
	p := triggers.Compare([]weir.Resolved{a, b}, nil)
	written, err := triggers.Render(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"000008_weir_queues.up.sql", "000008_weir_queues.down.sql",
		"000009_weir_my_schema_ünï__x.up.sql", "000009_weir_my_schema_ünï__x.down.sql",
		"000010_weir_s_a.up.sql", "000010_weir_s_a.down.sql",
	}
	if !reflect.DeepEqual(written, want) {
		t.Fatalf("wrote %q, want %q", written, want)
	}
	for _, name := range []string{"000008_weir_queues.up.sql", "000008_weir_queues.down.sql", "000010_weir_s_a.up.sql", "000010_weir_s_a.down.sql"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "render_"+name, string(text))
	}
	if written, err = triggers.Render(dir, p); err != nil || written != nil {
		t.Errorf("wrote %q again, %v", written, err)
	}

	// What was replaced is not undone.
	have := installed(a, b)
	for i := range have {
		if have[i].Kind == weir.Registration {
			have[i].Fingerprint = "2"
		}
	}
	have = without(have, func(o weir.Object) bool { return o.Kind == weir.QueueTable || o.Table == table("s.a_p") })
	if written, err = triggers.Render(dir, triggers.Compare([]weir.Resolved{a}, have)); err != nil {
		t.Fatal(err)
	}
	for _, name := range written {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "render_"+strings.ReplaceAll(name, "ünï", "uni"), string(text))
	}
	made := filepath.Join(dir, "none", "below")
	if written, err := triggers.Render(made, p); err != nil || len(written) != 6 {
		t.Errorf("%q, error %v", written, err)
	}
	if _, err := os.Stat(filepath.Join(made, "000001_weir_queues.up.sql")); err != nil {
		t.Error(err)
	}
	if _, err := triggers.Render(filepath.Join(dir, "README.md"), p); err == nil || !strings.HasSuffix(err.Error(), "README.md: not a directory. Try: a directory that you may write to; it is made where it is not there") {
		t.Errorf("error %v", err)
	}
}
