package dialecttest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-cdc/weir"
)

// model is a source with the constraints that its target has too: people have a
// unique code and perhaps a boss among them, and pets have an owner and a unique
// tag.
type model struct {
	rand   *rand.Rand
	people map[int]person
	pets   map[int]pet
	dirty  map[string]bool // "person 7", "pet 3": changed and not at the target
}

type person struct{ code, boss, version int } // code and boss 0: null

type pet struct{ owner, tag, version int }

func modelTables(e Engine, unique bool) []string {
	key := ""
	if unique && !e.OneNull {
		key = "unique"
	}
	tables := []string{
		fmt.Sprintf("create table people (id %[1]s not null primary key, code %[1]s %[2]s, boss %[1]s references people (id), version %[1]s)", e.Int, key),
		fmt.Sprintf("create table pets (id %[1]s not null primary key, owner %[1]s not null references people (id), tag %[1]s %[2]s, version %[1]s)", e.Int, key),
	}
	if unique && e.OneNull {
		tables = append(tables, "create unique index people_code on people (code) where code is not null", "create unique index pets_tag on pets (tag) where tag is not null")
	}
	return tables
}

// step changes the model by one user's write that its constraints allow.
func (m *model) step() {
	const ids = 8
	id := 1 + m.rand.IntN(ids)
	touch := func(kind string, id int) { m.dirty[fmt.Sprintf("%s %d", kind, id)] = true }
	somebody := func() int {
		keys := slices.Sorted(maps.Keys(m.people))
		if len(keys) == 0 {
			return 0
		}
		return keys[m.rand.IntN(len(keys))]
	}
	freeCode := func() int {
		code := 1 + m.rand.IntN(ids)
		for _, p := range m.people {
			if p.code == code {
				return 0
			}
		}
		return code
	}
	freeTag := func() int {
		tag := 1 + m.rand.IntN(ids)
		for _, p := range m.pets {
			if p.tag == tag {
				return 0
			}
		}
		return tag
	}
	switch m.rand.IntN(7) {
	case 0, 1: // a person comes, or changes
		p, there := m.people[id]
		p.version++
		if !there || m.rand.IntN(2) == 0 {
			p.code = freeCode()
		}
		p.boss = 0
		if m.rand.IntN(2) == 0 {
			p.boss = somebody()
		}
		m.people[id] = p
		touch("person", id)
	case 2: // two exchange their codes
		a, b := somebody(), somebody()
		if a == b {
			return
		}
		pa, pb := m.people[a], m.people[b]
		pa.code, pb.code = pb.code, pa.code
		pa.version++
		pb.version++
		m.people[a], m.people[b] = pa, pb
		touch("person", a)
		touch("person", b)
	case 3: // a person goes whom nobody refers to
		for _, p := range m.people {
			if p.boss == id {
				return
			}
		}
		for _, p := range m.pets {
			if p.owner == id {
				return
			}
		}
		delete(m.people, id)
		touch("person", id)
	case 4, 5: // a pet comes, changes or moves
		owner := somebody()
		if owner == 0 {
			return
		}
		m.pets[id] = pet{owner: owner, tag: freeTag(), version: m.pets[id].version + 1}
		touch("pet", id)
	case 6:
		delete(m.pets, id)
		touch("pet", id)
	}
}

// batch is what the source says now of some of the dirty rows, its tables and
// items in any order.
func (m *model) batch(names []string) (*weir.Batch, [][]string) {
	people := shaped("people", "id int32", "code int32", "boss int32", "version int32")
	pets := shaped("pets", "id int32", "owner int32", "tag int32", "version int32")
	orNull := func(n int) string {
		if n == 0 {
			return null
		}
		return fmt.Sprint(n)
	}
	names = slices.Clone(names)
	m.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var items [2][]weir.Item
	var from [2][]string
	for _, name := range names {
		var kind string
		var id int
		if _, err := fmt.Sscan(name, &kind, &id); err != nil {
			panic(err) // the test's own names
		}
		i, item := 0, remove(fmt.Sprint(id))
		if kind == "person" {
			if p, ok := m.people[id]; ok {
				item = upsert(fmt.Sprint(id), orNull(p.code), orNull(p.boss), fmt.Sprint(p.version))
			}
		} else {
			i = 1
			if p, ok := m.pets[id]; ok {
				item = upsert(fmt.Sprint(id), fmt.Sprint(p.owner), orNull(p.tag), fmt.Sprint(p.version))
			}
		}
		items[i], from[i] = append(items[i], item), append(from[i], name)
	}
	shapes := []shape{people, pets}
	order := []int{0, 1}
	if m.rand.IntN(2) == 0 {
		order = []int{1, 0}
	}
	var tables []weir.TableBatch
	var where [][]string
	for _, i := range order {
		if len(items[i]) > 0 {
			tables, where = append(tables, shapes[i].of(items[i]...)), append(where, from[i])
		}
	}
	return batch(tables...), where
}

// bring ships some of the dirty rows as the puller does: what a constraint
// refuses stays dirty.
func (m *model) bring(t *testing.T, tg *target, names []string) {
	t.Helper()
	b, where := m.batch(names)
	left := map[string]bool{}
	err := tg.tryShip(b)
	if err != nil {
		var r *weir.RowError
		if !errors.As(err, &r) || !r.Constraint {
			t.Fatalf("Ship of %v = %v, want it done or refused by a constraint", names, err)
		}
		faults, err := tg.Isolate(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if len(faults) == 0 {
			t.Fatalf("Ship of %v failed with %v, but Isolate found no fault", names, r)
		}
		for _, f := range faults {
			if !f.Err.Constraint {
				t.Fatalf("the fault %v is not a constraint's", f.Err)
			}
			left[where[f.Table][f.Item]] = true
		}
		if err := tg.tryShip(b.Without(faults)); err != nil {
			t.Fatalf("Ship of %v without the faults %v = %v", names, slices.Sorted(maps.Keys(left)), err)
		}
	}
	for _, name := range names {
		if !left[name] {
			delete(m.dirty, name)
		}
	}
}

// testTargetGenerated lets a source change at random, brings random parts of it
// to a target with constraints, and expects the target to become equal once the
// source rests.
func testTargetGenerated(t *testing.T, e Engine) { generated(t, e, true, 10) }

// testTargetGeneratedReferences does so where the target's constraints are
// foreign keys alone.
func testTargetGeneratedReferences(t *testing.T, e Engine) { generated(t, e, false, 5) }

func generated(t *testing.T, e Engine, unique bool, seeds uint64) {
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			tg := newTarget(t, e, weir.TargetOptions{}, modelTables(e, unique)...)
			m := &model{rand: rand.New(rand.NewPCG(seed, 1)), people: map[int]person{}, pets: map[int]pet{}, dirty: map[string]bool{}}
			for range 12 {
				for range 1 + m.rand.IntN(8) {
					m.step()
				}
				names := slices.Sorted(maps.Keys(m.dirty))
				m.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				if len(names) > 0 {
					m.bring(t, tg, names[:1+m.rand.IntN(len(names))])
				}
			}
			for rounds := 0; len(m.dirty) > 0; rounds++ {
				if rounds > 10 {
					t.Fatalf("these do not arrive although nothing changes any more: %v\npeople %v\npets %v\ntarget %q %q", slices.Sorted(maps.Keys(m.dirty)), m.people, m.pets,
						tg.rows("select id, code, boss from people order by id"), tg.rows("select id, owner, tag from pets order by id"))
				}
				m.bring(t, tg, slices.Sorted(maps.Keys(m.dirty)))
			}
			var people, pets []string
			for _, id := range slices.Sorted(maps.Keys(m.people)) {
				p := m.people[id]
				people = append(people, fmt.Sprintf("%d|%d|%d|%d", id, p.code, p.boss, p.version))
			}
			for _, id := range slices.Sorted(maps.Keys(m.pets)) {
				p := m.pets[id]
				pets = append(pets, fmt.Sprintf("%d|%d|%d|%d", id, p.owner, p.tag, p.version))
			}
			tg.wantRows("select id, coalesce(code, 0), coalesce(boss, 0), version from people order by id", people...)
			tg.wantRows("select id, owner, coalesce(tag, 0), version from pets order by id", pets...)
		})
	}
}
