package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/triggers"
)

const measurements = `create table public.m (k integer primary key, v text) partition by range (k);
	create table public.m1 partition of public.m for values from (0) to (100);
	create table public.m2 partition of public.m for values from (100) to (200)`

// TestPartitionAttached: a partition attached later is found missing; apply
// captures it, and says that the rows it came with are not tagged.
func TestPartitionAttached(t *testing.T) {
	w := newWorld(t, measurements)
	ctx := context.Background()
	spec := plain("public", "m")
	w.apply(spec)
	for _, how := range []string{
		"create table public.late (v text, k integer not null); insert into public.late values ('came along', 250); alter table public.m attach partition public.late for values from (200) to (300)",
		"create table public.fresh partition of public.m for values from (300) to (400)",
		"create table public.deep partition of public.m for values from (400) to (500) partition by range (k); create table public.leaf partition of public.deep for values from (400) to (450)",
	} {
		w.exec(how)
	}
	w.exec("insert into public.m values (350, 'by the root')")
	w.wantTook("by the root, before apply", "I 350")
	w.exec("insert into public.fresh values (351, 'by name')")
	w.wantTook("not seen before apply")

	p := w.plan(spec)
	var missing []string
	for _, s := range p.Steps {
		if s.Action != triggers.Create || s.Object.Kind != weir.Trigger {
			t.Errorf("%s of %s %s", s.Action, s.Object.Kind, s.Object.Name)
		}
		if name := s.Object.Table.Name; !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if want := []string{"deep", "fresh", "late", "leaf"}; !slices.Equal(missing, want) || len(p.Steps) != 16 {
		t.Errorf("%d triggers are missing on %v, want 16 on %v", len(p.Steps), missing, want)
	}
	warned := slices.ContainsFunc(p.Warnings, func(s string) bool {
		return strings.Contains(s, "public.late") && strings.Contains(s, "weir backfill public.m")
	})
	if !warned {
		t.Errorf("no warning about the rows of public.late: %q", p.Warnings)
	}
	if err := triggers.Check(ctx, w.src, []weir.CaptureSpec{spec}); err == nil || !strings.Contains(err.Error(), "public.late") {
		t.Errorf("check: %v, want public.late's triggers missing", err)
	}
	w.apply(spec)
	if warnings := w.plan(spec).Warnings; len(warnings) != 0 {
		t.Errorf("still warned after apply: %q", warnings)
	}
	w.exec("update public.late set v = 'x'; insert into public.leaf values (401, 'y'); delete from public.fresh where k = 351; insert into public.deep values (402, 'z')")
	w.wantTook("by name, after apply", "I 250", "I 401", "D 351", "I 402")
}

// TestPartitionDetached: the rows of a detached partition are not gone because
// they left with it: reading stops until a person looks, and apply takes off
// the triggers that are left.
func TestPartitionDetached(t *testing.T) {
	w := newWorld(t, measurements)
	ctx := context.Background()
	spec := plain("public", "m")
	w.apply(spec)
	w.exec("insert into public.m values (1, 'a'), (101, 'b')")
	w.exec("alter table public.m detach partition public.m2")
	w.fold()
	pull := w.claim(10)
	_, err := w.src.Read(ctx, pull, weir.ReadRequest{Encoding: weir.EncodingText})
	drift(t, err, "m2 no longer belongs to it")
	if err := w.src.Release(ctx, pull.PullGUID); err != nil {
		t.Fatal(err)
	}
	w.exec("insert into public.m2 values (102, 'still captured')")

	p := w.plan(spec)
	if len(p.Steps) != 4 {
		t.Errorf("plan:\n%s\nwant the four triggers of m2 dropped", p.SQL())
	}
	for _, s := range p.Steps {
		if s.Action != triggers.Drop || s.Object.Table.Name != "m2" || s.Group.Name != "m" {
			t.Errorf("%s of %s on %s in the group of %s", s.Action, s.Object.Name, s.Object.Table, s.Group)
		}
	}
	if want := []string{"public.m2 no longer belongs to public.m: the rows that left with it are not deleted at the target; delete them there"}; !slices.Equal(p.Warnings, want) {
		t.Errorf("warnings %q, want %q", p.Warnings, want)
	}
	w.apply(spec)
	if n := one[int64](w, "select count(*) from pg_trigger where tgrelid = 'public.m2'::regclass"); n != 0 {
		t.Errorf("%d triggers left on m2", n)
	}
	w.exec("insert into public.m2 values (103, 'no more')")
	rows, err := w.read()
	if want := []string{"101: gone", "102: gone", "1: 1,a"}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("read %q, %v, want %q", rows, err, want)
	}

	// It comes back with all that it has.
	w.exec("alter table public.m attach partition public.m2 for values from (100) to (200)")
	w.apply(spec)
	w.exec("update public.m2 set v = 'back' where k = 101")
	rows, err = w.read()
	if want := []string{"101: 101,back"}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("read %q, %v, want %q", rows, err, want)
	}
}

// TestInheritanceChildLeaves is the same for an inheritance child.
func TestInheritanceChildLeaves(t *testing.T) {
	w := newWorld(t, "create table public.p (k integer primary key, v text)", "create table public.c (primary key (k)) inherits (public.p)")
	spec := plain("public", "p")
	w.apply(spec)
	w.exec("insert into public.c values (1, 'a')")
	w.exec("alter table public.c no inherit public.p")
	_, err := w.read()
	drift(t, err, "c no longer belongs to it")
	w.apply(spec)
	w.exec("update public.c set v = 'b'")
	w.wantTook("after it left")
	w.exec("create table public.d (x text, primary key (k)) inherits (public.p)")
	missing := 0
	for _, s := range w.plan(spec).Steps {
		if s.Object.Kind == weir.Trigger && s.Object.Table.Name == "d" && s.Action == triggers.Create {
			missing++
		}
	}
	if missing != 4 {
		t.Errorf("%d triggers are missing on d, want 4", missing)
	}
	w.apply(spec)
	w.exec("insert into public.d values (2, 'b', 'x')")
	w.wantTook("of the new child", "I 2")
}

// TestForeignChild: triggers with transition tables make every statement that
// reaches a foreign table fail, so such a family is refused.
func TestForeignChild(t *testing.T) {
	w := newWorld(t, "create table public.p (k integer primary key, v text)",
		"create foreign data wrapper nowhere", "create server far foreign data wrapper nowhere",
		"create foreign table public.away () inherits (public.p) server far")
	_, err := w.src.Resolve(context.Background(), []weir.CaptureSpec{plain("public", "p")})
	var c *weir.ConfigError
	if !errors.As(err, &c) || !strings.Contains(err.Error(), "public.away") {
		t.Errorf("%v, want a *weir.ConfigError about public.away", err)
	}
}

// TestInheritanceChildComes: a child that was attached after the capture may
// hold keys that its parent holds too; statements on both do not fail, and each
// key is tagged once.
func TestInheritanceChildComes(t *testing.T) {
	w := newWorld(t, "create table public.p (k integer primary key, v text)", "create table public.c (k integer primary key, v text)",
		"create table public.g (id uuid primary key, v text)",
		"insert into public.p select g, '' from generate_series(1, 5) g", "insert into public.c select g, '' from generate_series(2, 6) g",
		"insert into public.g values ('6f9619ff-8b86-4d01-b42d-00c04fc964ff', '')")
	guids := weir.CaptureSpec{Table: weir.Table{Schema: "public", Name: "g"}, InstanceGUID: "id"}
	w.apply(plain("public", "p"), guids)
	w.exec("alter table public.c alter column k set not null; alter table public.c inherit public.p")
	w.exec("create table public.g2 (primary key (id)) inherits (public.g)")
	w.exec("insert into public.g2 values ('6f9619ff-8b86-4d01-b42d-00c04fc964ff', '')")
	w.exec("update public.p set v = 'x' where k = 3")
	w.wantTook("one key in both", "I 3")
	w.exec("update public.p set v = 'y'")
	w.wantTook("all of them", "I 1", "I 2", "I 3", "I 4", "I 5", "I 6")
	w.exec("update public.p set k = 10 where k = 3")
	w.wantTook("both move", "D 3", "I 10")
	w.exec("delete from public.p where k in (2, 6, 10)")
	w.wantTook("both go", "D 10", "D 2", "D 6")
	w.exec("update public.g set v = 'x'")
	w.wantTook("an instance in both", "I 6f9619ff-8b86-4d01-b42d-00c04fc964ff")
	w.exec("delete from public.g")
	w.wantTook("an instance of both goes", "D 6f9619ff-8b86-4d01-b42d-00c04fc964ff")
	w.exec("update only public.p set v = 'z' where k = 1")
	w.wantTook("the parent alone", "I 1")
}

// TestPartitionEmptied: the guide's way to drop a partition whose rows are to go
// at the target as well.
func TestPartitionEmptied(t *testing.T) {
	w := newWorld(t, measurements)
	w.apply(plain("public", "m"))
	w.exec("insert into public.m values (1, 'a'), (101, 'b'), (102, 'c')")
	w.wantTook("inserts", "I 1", "I 101", "I 102")
	w.exec("truncate public.m2; drop table public.m2")
	w.wantTook("truncated and dropped", "D 101", "D 102")
}

// TestTriggerDisabled: what was written while a trigger was disabled is named by
// the plan, and shipped by the backfill that it advises.
func TestTriggerDisabled(t *testing.T) {
	w := newWorld(t, "create table public.t (id integer primary key, v text)")
	spec := plain("public", "t")
	w.apply(spec)
	id := w.plan(spec) // nothing to do, no warning
	if !id.Empty() || len(id.Warnings) != 0 {
		t.Fatalf("plan %q, warnings %q", id.SQL(), id.Warnings)
	}
	name := one[string](w, "select tgname from pg_trigger where tgrelid = 'public.t'::regclass and tgname like '%insert'")
	w.exec("alter table public.t disable trigger " + name + "; insert into public.t values (1, 'missed')")
	w.wantTook("not seen")
	p := w.plan(spec)
	if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "weir backfill --restart public.t") || !strings.Contains(p.Warnings[0], name) {
		t.Errorf("warnings %q, want what was missed", p.Warnings)
	}
	w.apply(spec)
	if warnings := w.plan(spec).Warnings; len(warnings) != 0 {
		t.Errorf("still warned after apply: %q", warnings)
	}
}
