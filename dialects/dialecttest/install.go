package dialecttest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/triggers"
)

var installTests = []test{
	{"Apply", testApply},
	{"Init", testInit},
	{"Queues", testQueues},
	{"Drift", testDrift},
	{"KeyChanged", testKeyChanged},
	{"SameEverywhere", testSameEverywhere},
}

// three are the specs of captures of each kind, over the tables of threeTables.
func three(s *source) []weir.CaptureSpec {
	return []weir.CaptureSpec{
		s.plain("orders"),
		{Table: s.table("things"), InstanceGUID: "guid", ConceptGUID: "concept", OldPrimaryKey: "pk", Tagging: weir.Deferred},
		{Table: s.table("events"), InstanceGUID: "thing", ChangeType: "Thing Event Changed"},
	}
}

func threeTables(e Engine) []string {
	return []string{
		fmt.Sprintf("create table orders (id %s not null primary key, note %s)", e.Int, e.Text),
		fmt.Sprintf("create table things (guid %[1]s not null unique, concept %[1]s, pk %[2]s, name %[2]s)", e.GUID, e.KeyText),
		fmt.Sprintf("create table events (id %s not null primary key, thing %s, name %s)", e.Int, e.GUID, e.Text),
	}
}

// same compares what is installed with what is wanted.
func (s *source) same(specs ...weir.CaptureSpec) {
	s.t.Helper()
	resolved, err := s.Resolve(s.t.Context(), specs)
	if err != nil {
		s.t.Fatal(err)
	}
	line := func(o weir.Object) string {
		table := o.Table.String()
		if o.Kind == weir.QueueTable {
			table = ""
		}
		return fmt.Sprintf("%s %q on %q: %s", o.Kind, o.Name, table, o.Fingerprint)
	}
	want := []string{}
	for _, r := range resolved {
		for _, o := range r.Objects {
			if o.Fingerprint == "" {
				s.t.Errorf("%s %q has no fingerprint", o.Kind, o.Name)
			}
			want = append(want, line(o))
		}
	}
	installed, err := s.Installed(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	got := []string{}
	for _, o := range installed {
		got = append(got, line(o))
	}
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		s.t.Errorf("installed:\n%s\nwanted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func testApply(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	resolved, err := s.Resolve(t.Context(), three(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resolved {
		warned := strings.Contains(strings.Join(r.Warnings, "\n"), "is null belong to no instance")
		if warned != (r.Capture.Table.Name == "events") {
			t.Errorf("%s: whether rows without a parent are captured is said: %t", r.Capture.Table, warned)
		}
	}
	specs := three(s)
	s.apply(specs...)
	s.same(specs...)
	if err := triggers.Check(t.Context(), s, specs); err != nil {
		t.Errorf("Check after Apply = %v, want nil", err)
	}

	orders, things, events := s.capture("orders", ""), s.capture("things", ""), s.capture("events", "Thing Event Changed")
	switch {
	case orders.Kind != weir.Plain, orders.Set, orders.ConceptGUID.IsZero(), len(orders.Key) != 1, orders.Key[0].Name != "id", orders.Tagging != weir.AtOnce:
		t.Errorf("orders was captured as %+v", orders)
	case things.Kind != weir.Instance, things.Set, things.ConceptColumn != "concept", things.OldKeyColumn != "pk", things.Tagging != weir.Deferred:
		t.Errorf("things was captured as %+v", things)
	case events.Kind != weir.Child, !events.Set, events.Key[0].Name != "thing", !slices.Equal(events.RowKey, []string{"id"}), events.Tagging != weir.Deferred:
		t.Errorf("events was captured as %+v", events)
	case !slices.Equal(orders.Queues, []string{weir.DefaultQueue}):
		t.Errorf("orders feeds %q, want the default queue", orders.Queues)
	}

	// Every statement may be run again.
	resolved, err = s.Resolve(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resolved {
		for _, o := range r.Objects {
			if err := s.Apply(t.Context(), o.Group, o.Create); err != nil {
				t.Fatalf("apply %s %s again: %v", o.Kind, o.Name, err)
			}
		}
	}
	s.same(specs...)
	s.exec("insert into orders values (1, 'a')")
	s.wantTake("an insert after Apply", "Instance Inserted orders(1): 1|a")

	// One capture fewer.
	s.apply(specs[0])
	s.same(specs[0])

	plan, err := triggers.PlanDrop(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := triggers.Apply(t.Context(), s, plan, nil); err != nil {
		t.Fatal(err)
	}
	s.same()
	s.exec("insert into orders values (2, 'b')", "delete from orders where id = 1")
	s.wantEmpty("after Drop")
}

func testInit(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	first, err := s.Init(t.Context())
	if err != nil || first == 0 {
		t.Fatalf("Init again = %d, %v, want a version", first, err)
	}
	s.apply(s.plain("orders"))
	s.exec("insert into orders values (1, 'a')")
	if again, err := s.Init(t.Context()); err != nil || again != first {
		t.Fatalf("Init over captures = %d, %v, want %d", again, err, first)
	}
	s.same(s.plain("orders"))
	s.wantTake("what was queued before Init", "Instance Inserted orders(1): 1|a")
	wantConfig(t, "Down over captures", s.Down(t.Context()))
	s.apply()
	if err := s.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Captures(t.Context())
	wantConfig(t, "Captures after Down", err)
	s.exec("insert into orders values (2, 'b')")
	s.wantRows("select id from orders order by id", "1", "2")
	if _, err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantEmpty("after Down and Init")
}

func testQueues(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	spec := s.plain("orders")
	spec.Queues = []string{weir.DefaultQueue, "lake"}
	s.apply(spec)
	s.same(spec)
	s.exec("insert into orders values (1, 'a')")
	for _, q := range []string{weir.DefaultQueue, "lake"} {
		if got := s.list(weir.QueueSelector{Queue: q}); len(got) != 1 || got[0].OldPrimaryKey != "1" {
			t.Errorf("queue %s holds %+v, want the change of 1", q, got)
		}
	}

	// A queue that still holds changes is kept.
	s.apply(s.plain("orders"))
	if got := s.list(weir.QueueSelector{Queue: "lake"}); len(got) != 1 {
		t.Errorf("queue lake holds %+v after it was taken off the capture, want the change that it had", got)
	}
	req := s.request(10)
	req.Queue = "lake"
	p := s.claimBy(req)
	s.wantSettle("the last change of lake", p.PullGUID, weir.SettleResult{Settled: 1, Done: true})
	s.apply(s.plain("orders"))
	s.same(s.plain("orders"))
	for _, q := range s.status().Queues {
		if q.Queue == "lake" {
			t.Error("queue lake is still there, empty and unwanted")
		}
	}
	s.apply(spec)
	s.same(spec)
}

// wantDrift fails unless Check finds drift, the plan says that writes may be
// missing, and Apply removes it.
func (s *source) wantDrift(what string, specs ...weir.CaptureSpec) {
	s.t.Helper()
	err := triggers.Check(s.t.Context(), s, specs)
	var d *weir.DriftError
	if !errors.As(err, &d) || d.Object == "" || d.Hint == "" {
		s.t.Errorf("%s: Check = %v, want a *weir.DriftError with object and hint", what, err)
	}
	p, _, err := triggers.PlanFor(s.t.Context(), s, specs)
	if err != nil {
		s.t.Fatal(err)
	}
	// Where the registration alone was lost, the triggers went on.
	if !strings.HasPrefix(what, string(weir.Registration)) && !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "run weir backfill ") }) {
		s.t.Errorf("%s: the plan warns %q, want a backfill advised", what, p.Warnings)
	}
	s.apply(specs...)
	s.same(specs...)
}

func testDrift(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	specs := three(s)
	s.apply(specs...)
	installed, err := s.Installed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[weir.ObjectKind]bool{}
	for _, o := range installed {
		if o.Kind != weir.Trigger {
			continue
		}
		s.exec(o.Drop...)
		s.wantDrift(fmt.Sprintf("%s %s was dropped", o.Kind, o.Name), specs...)
	}
	for _, o := range installed {
		for i, way := range e.Tamper(o) {
			kinds[o.Kind] = true
			s.exec(way...)
			s.wantDrift(fmt.Sprintf("%s %s was changed by hand (%d)", o.Kind, o.Name, i), specs...)
		}
	}
	if !kinds[weir.Trigger] {
		t.Error("Tamper changed no trigger")
	}
	// Healed triggers capture.
	s.exec("insert into orders values (1, 'a')", "update orders set id = 2", "delete from orders")
	s.wantTake("after healing", "Instance Deleted orders(1)", "Instance Deleted orders(2)")

	// A trigger too many.
	spec := s.plain("orders")
	s.apply(spec)
	s.apply(specs...)
	if err := triggers.Check(t.Context(), s, []weir.CaptureSpec{spec}); err == nil {
		t.Error("Check with captures too many = nil, want a *weir.DriftError")
	}
}

func testKeyChanged(t *testing.T, e Engine) {
	if !e.AlterKey {
		t.Skipf("not covered: %s cannot alter a key", e.Name)
	}
	s := newSource(t, e, fmt.Sprintf("create table lines (id %[1]s not null, line %[1]s not null, constraint lines_key primary key (id))", e.Int))
	s.apply(s.plain("lines"))
	s.exec("insert into lines values (1, 1)")
	s.take()
	s.exec("alter table lines drop constraint lines_key", "alter table lines add constraint lines_key primary key (id, line)")
	s.exec("insert into lines values (1, 2)")
	if p, err := s.Claim(t.Context(), s.request(10)); err == nil {
		_, err := s.Read(t.Context(), p, weir.ReadRequest{Encoding: weir.EncodingText})
		as[*weir.DriftError](t, err)
		s.release(p.PullGUID)
	} else {
		t.Errorf("Claim = %v", err)
	}
	s.wantDrift("the key changed", s.plain("lines"))
	s.exec("update lines set line = line + 10 where line = 2")
	got := s.tags()
	if len(got) < 2 {
		t.Errorf("after the new key was applied the queue holds %q, want both keys of the update", got)
	}
}

func testSameEverywhere(t *testing.T, e Engine) {
	var all [2][]*weir.Capture
	for i := range all {
		s := newSource(t, e, threeTables(e)...)
		specs := three(s)
		if i == 1 {
			slices.Reverse(specs)
		}
		s.apply(specs...)
		captures, err := s.Captures(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids := map[int32]bool{}
		for j, c := range captures {
			if c.ID <= 0 || ids[c.ID] || j > 0 && captures[j-1].ID > c.ID {
				t.Errorf("Captures are not in the order of positive, unique IDs: %d", c.ID)
			}
			ids[c.ID] = true
		}
		all[i] = captures
	}
	if len(all[0]) != 3 || !reflect.DeepEqual(all[0], all[1]) {
		t.Errorf("two databases have the captures\n%+v\n%+v", all[0], all[1])
	}
}

var refuseTests = []test{
	{"Table", testRefuseTable},
	{"Columns", testRefuseColumns},
	{"Keys", testRefuseKeys},
}

func (s *source) wantRefused(what string, spec weir.CaptureSpec) *weir.ConfigError {
	s.t.Helper()
	resolved, err := s.Resolve(s.t.Context(), []weir.CaptureSpec{spec})
	if err == nil {
		s.t.Errorf("%s: Resolve = %d captures, want a *weir.ConfigError", what, len(resolved))
		return &weir.ConfigError{}
	}
	return wantConfig(s.t, what, err)
}

func testRefuseTable(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.execf("create table nokey (a %s, b %s)", e.Int, e.Text)
	s.exec("create view looks as select id from orders")
	s.wantRefused("a table without a key", s.plain("nokey"))
	s.wantRefused("a view", s.plain("looks"))
	s.wantRefused("no table", s.plain("zzz"))
	s.wantRefused("no name", s.plain(""))
	if !e.FoldedNames {
		if c := s.wantRefused("another case", s.plain("Orders")); !strings.Contains(c.Hint, "orders") {
			t.Errorf("the hint for Orders is %q, want orders in it", c.Hint)
		}
	}
	if c := s.wantRefused("a letter too few", s.plain("order")); !strings.Contains(c.Hint, "orders") {
		t.Errorf("the hint for order is %q, want orders in it", c.Hint)
	}
	// All faults are told, not the first alone.
	_, err := s.Resolve(t.Context(), []weir.CaptureSpec{s.plain("zzz"), s.plain("orders"), s.plain("nokey")})
	if err == nil || !strings.Contains(err.Error(), "zzz") || !strings.Contains(err.Error(), "nokey") {
		t.Errorf("Resolve of two bad tables = %v, want both named", err)
	}
	s.same()
}

func testRefuseColumns(t *testing.T, e Engine) {
	s := newSource(t, e, threeTables(e)...)
	s.execf("create table loose (id %s not null primary key, guid %s, n %s)", e.Int, e.GUID, e.Int)
	things, events := s.table("things"), s.table("events")
	for what, spec := range map[string]weir.CaptureSpec{
		"an unknown instance column":                {Table: things, InstanceGUID: "nope"},
		"an unknown concept column":                 {Table: things, InstanceGUID: "guid", ConceptGUID: "nope"},
		"an unknown old key column":                 {Table: things, InstanceGUID: "guid", OldPrimaryKey: "nope"},
		"an instance column that may be null":       {Table: s.table("loose"), InstanceGUID: "guid"},
		"a change type without a parent":            {Table: things, ChangeType: "Thing Changed"},
		"an old key column of a plain table":        {Table: s.table("orders"), OldPrimaryKey: "note"},
		"a change type of 41 characters":            {Table: events, InstanceGUID: "thing", ChangeType: strings.Repeat("x", 41)},
		"a change type that rows of their own have": {Table: events, InstanceGUID: "thing", ChangeType: weir.InstanceDeleted},
	} {
		s.wantRefused(what, spec)
	}
	// 40 characters are enough, whatever they are.
	longest := strings.Repeat("é", 39) + "'"
	s.apply(weir.CaptureSpec{Table: events, InstanceGUID: "thing", ChangeType: longest})
	g := weir.NewGUID()
	s.execf("insert into events values (1, '%s', 'a')", g)
	s.wantTake("a change type of 40 characters", fmt.Sprintf("%s events(%s): 1|%s|a", longest, g, g))
}

func testRefuseKeys(t *testing.T, e Engine) {
	if len(e.Unkeyable) == 0 {
		t.Skipf("not covered: %s has no type that cannot be a key", e.Name)
	}
	for _, setup := range e.Unkeyable {
		s := newSource(t, e, setup...)
		s.wantRefused(setup[len(setup)-1], s.plain("badkey"))
	}
}
