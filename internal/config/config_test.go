package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
)

var update = flag.Bool("update", false, "write the golden files anew")

func env(pairs ...string) Lookup {
	return func(name string) (string, bool) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func parse(t *testing.T, text string, pairs ...string) *Config {
	t.Helper()
	c, err := Parse("weir.yaml", []byte(text), env(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const full = `# the whole of it
source:
  url: postgres://weir:${PASSWORD}@orders-db/shop
  schema: cdc
captures:
  - table: public.orders
    tagging: deferred
    truncate: refuse
  - {table: dbo.Instances, instance_guid: InstanceGUID, concept_guid: ConceptGUID, old_primary_key: PrimaryKey}
  - table: dbo.Events
    instance_guid: InstanceGUID
    change_type: Instance Event Changed
pulls:
  - name: warehouse
    schedule: "*/5 * * * *"
    time_zone: Europe/Berlin
    target: {url: "postgres://dw/w", schema: sales, mode: soft delete, new_columns: fail}
    captures: [public.orders]
    concepts: ["{0A000000-0000-0000-0000-000000000001}"]
    change_types: [Instance Inserted, Instance Deleted]
    batch: ${BATCH}
    lease: 90s
    max_deletes: 10%
    max_attempts: 3
  - name: events
    queue: events
    target:
      url: sqlite:copy.db
    max_deletes: 1000
log: {format: json}
`

func TestParse(t *testing.T) {
	c := parse(t, full, "PASSWORD", `p'w:x`, "BATCH", "12")
	if got := c.Source.URL.Reveal(); got != `postgres://weir:p'w:x@orders-db/shop` {
		t.Errorf("source url %q", got)
	}
	p := c.Pulls[0]
	guid, _ := weir.ParseGUID("0a000000-0000-0000-0000-000000000001")
	if p.Batch != 12 || time.Duration(p.Lease) != 90*time.Second || p.MaxDeletes != (MaxDeletes{Percent: 10}) || p.MaxAttempts != 3 || p.Concepts[0] != guid {
		t.Errorf("pull %+v", p)
	}
	if want := (weir.TargetOptions{Schema: "sales", Mode: weir.SoftDelete, NewColumns: weir.Fail}); p.Target.Options() != want {
		t.Errorf("options %+v", p.Target.Options())
	}
	if c.Log != (Log{Format: "json", Level: "info"}) {
		t.Errorf("log %+v", c.Log)
	}
	want := []weir.CaptureSpec{
		{Table: weir.Table{Schema: "public", Name: "orders"}, Tagging: weir.Deferred, RefuseTruncate: true, Queues: []string{"default", "events"}},
		{Table: weir.Table{Schema: "dbo", Name: "Instances"}, InstanceGUID: "InstanceGUID", ConceptGUID: "ConceptGUID", OldPrimaryKey: "PrimaryKey", Queues: []string{"events"}},
		{Table: weir.Table{Schema: "dbo", Name: "Events"}, InstanceGUID: "InstanceGUID", ChangeType: "Instance Event Changed", Queues: []string{"events"}},
	}
	if got := c.Specs(); !reflect.DeepEqual(got, want) {
		t.Errorf("specs\n%+v, want\n%+v", got, want)
	}
	if got := c.Queues(); !reflect.DeepEqual(got, []string{"default", "events"}) {
		t.Errorf("queues %v", got)
	}
}

func TestParse_Defaults(t *testing.T) {
	c := parse(t, `
source: {url: sqlite:a.db}
captures: [{table: t}]
pulls: [{name: p, target: {url: sqlite:b.db}}]
`)
	want := Pull{
		Name: "p", Schedule: "@every 5s", Queue: "default", Batch: 5000, Lease: Duration(5 * time.Minute), MaxAttempts: 10,
		Target: Target{URL: c.Pulls[0].Target.URL, Mode: weir.Mirror, NewColumns: weir.Evolve},
	}
	if !reflect.DeepEqual(c.Pulls[0], want) {
		t.Errorf("got %+v, want %+v", c.Pulls[0], want)
	}
	if c.Captures[0].Truncate != "tag" || c.Captures[0].Tagging != "" || c.Log != (Log{"text", "info"}) {
		t.Errorf("got %+v %+v", c.Captures[0], c.Log)
	}
}

// A capture that no pull wants feeds the default queue, and that is said.
func TestSpecs_NoPullWantsIt(t *testing.T) {
	c := parse(t, `
source: {url: sqlite:a.db}
captures: [{table: t}, {table: u}]
pulls: [{name: p, queue: q, captures: [t], change_types: [Instance Inserted, Other], target: {url: sqlite:b.db}}]
`)
	if got := c.Specs()[1].Queues; !reflect.DeepEqual(got, []string{"default"}) {
		t.Errorf("queues %v", got)
	}
	if got := strings.Join(c.Warnings(), "\n"); got != `no pull takes the changes of u: they stay in queue "default"
pull "p" takes only one of "Instance Inserted" and "Instance Deleted": the other's changes do not reach its target
pull "p" takes change type "Other", which no capture tags (known: Instance Inserted, Instance Deleted)` {
		t.Error(got)
	}
}

func TestParse_Faults(t *testing.T) {
	const head = "source: {url: sqlite:a.db}\n"
	const two = head + "captures: [{table: s.t}, {table: s.u}]\n"
	for name, c := range map[string]struct{ text, want string }{
		"Empty":         {"", "weir.yaml:1: source: it is missing. Try: give it a value"},
		"Null":          {"~", "weir.yaml:1: source: it is missing. Try: give it a value"},
		"List":          {"[]", "weir.yaml:1: it is a list, not a mapping. Try: keys under it: captures, log, pulls or source"},
		"NotYAML":       {"source:\n  url: 'a\n", "weir.yaml:2: it is not YAML: found unexpected end of stream. Try: check the indentation and the quotes near that line"},
		"Two":           {head + "---\nx: 1\n", "weir.yaml:2: the file holds a second document. Try: one document: remove the --- line"},
		"NoURL":         {"source:\n  schema: x\n", "weir.yaml:2: source.url: it is missing. Try: url: postgres://user@host/db"},
		"EmptyURL":      {"source:\n  url: ''\n", "weir.yaml:2: source.url: it is empty. Try: postgres://user@host/db, sqlserver://user@host?database=db or sqlite:FILE"},
		"Text":          {"source: sqlite:a.db\n", "weir.yaml:1: source: it is a text, not a mapping. Try: keys under it: schema or url"},
		"Unknown":       {head + "capturs: []\n", "weir.yaml:2: capturs: unknown key. Try: captures"},
		"UnknownFar":    {head + "zzzzzzzz: []\n", "weir.yaml:2: zzzzzzzz: unknown key. Try: captures, log, pulls or source"},
		"UnknownDeep":   {"source:\n  url: sqlite:a\n  scheme: x\n", "weir.yaml:3: source.scheme: unknown key. Try: schema"},
		"Twice":         {head + "captures: []\ncaptures: []\n", "weir.yaml:3: captures: the key is on line 2 already. Try: remove one of the two"},
		"Merge":         {"source: &a {url: sqlite:a}\n<<: *a\n", "weir.yaml:2: merged and composed keys are not read. Try: write each key out"},
		"NoValue":       {head + "captures:\n", "weir.yaml:2: captures: it has no value. Try: give it a value, or remove the key"},
		"NotList":       {head + "captures: x\n", "weir.yaml:2: captures: it is a text, not a list. Try: a list: [a, b], or a line with - for each"},
		"Number":        {head + "captures:\n- table: 12\n", `weir.yaml:3: captures[0].table: it is a number, not a text. Try: quote it: "12"`},
		"Bool":          {head + "captures:\n- table: true\n", `weir.yaml:3: captures[0].table: it is true or false, not a text. Try: quote it: "true"`},
		"Enum":          {head + "captures:\n- table: t\n  tagging: defered\n", `weir.yaml:4: captures[0].tagging: "defered" is not known. Try: deferred`},
		"Variable":      {"source:\n  url: ${NOPE}\n", "weir.yaml:2: source.url: the environment variable NOPE is not set. Try: export NOPE=..., or write $${NOPE} for the text itself"},
		"VariableOpen":  {"source:\n  url: ${NOPE\n", "weir.yaml:2: source.url: ${ is never closed. Try: ${NAME} takes an environment variable; $${ is a plain ${"},
		"VariableName":  {"source:\n  url: ${A:-b}\n", "weir.yaml:2: source.url: ${A:-b} is no name of an environment variable. Try: ${NAME}: letters, digits and _; $${ is a plain ${"},
		"SQLiteSchema":  {"source: {url: sqlite:a.db, schema: x}\n", "weir.yaml:1: source.schema: SQLite has no schemas. Try: remove the key"},
		"SameCapture":   {head + "captures:\n- table: a.b\n- table: '\"a\".b'\n", `weir.yaml:4: captures[1].table: "a".b is captured by captures[0] already. Try: remove one of the two, or give it a change_type of its own`},
		"SamePublic":    {"source: {url: 'postgres:///x'}\ncaptures:\n- table: t\n- table: public.t\n", `weir.yaml:4: captures[1].table: public.t is captured by captures[0] already. Try: remove one of the two, or give it a change_type of its own`},
		"ChildAlone":    {head + "captures:\n- table: t\n  change_type: X\n", "weir.yaml:4: captures[0].change_type: a child table needs instance_guid. Try: name the column with the parent's GUID by instance_guid, or leave change_type out"},
		"OldKeyAlone":   {head + "captures:\n- table: t\n  old_primary_key: X\n", "weir.yaml:4: captures[0].old_primary_key: only an instance table has an old primary key. Try: leave it out: a plain table's key goes to the queue by itself"},
		"ChildReserved": {head + "captures:\n- {table: t, instance_guid: g, change_type: Instance Deleted}\n", `weir.yaml:3: captures[0].change_type: "Instance Deleted" is what instances tag themselves. Try: a name of your own, such as Instance Event Changed`},
		"LongType": {head + "captures:\n- {table: t, instance_guid: g, change_type: " + strings.Repeat("é", 41) + "}\n",
			`weir.yaml:3: captures[0].change_type: "` + strings.Repeat("é", 41) + `" is too long. Try: at most 40 characters`},
		"Lease":      {two + "pulls:\n- {name: p, lease: 5, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].lease: it is a number, not a text. Try: quote it: "5"`},
		"LeaseUnit":  {two + "pulls:\n- {name: p, lease: 5 min, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].lease: "5 min" is no duration. Try: a number with a unit: 90s, 5m, 1h30m`},
		"LeaseShort": {two + "pulls:\n- {name: p, lease: 1s, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].lease: 1s is too short. Try: 5s or more`},
		"Batch":      {two + "pulls:\n- {name: p, batch: 0, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].batch: 0 is too small. Try: 1 or more`},
		"BatchText":  {two + "pulls:\n- {name: p, batch: many, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].batch: it is a text, not a whole number. Try: a whole number`},
		"MaxDeletes": {two + "pulls:\n- {name: p, max_deletes: 110%, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].max_deletes: "110%" is no limit of deletes. Try: a number of rows above 0 (1000) or a percentage of the target's rows (10%)`},
		"Zone":       {two + "pulls:\n- {name: p, time_zone: Mars, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].time_zone: "Mars" is no time zone. Try: a name of the time zone database: UTC, Europe/Berlin`},
		"Queue":      {two + "pulls:\n- {name: p, queue: A-b, target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].queue: "A-b" is not allowed. Try: a text that matches ^[a-z0-9_]{1,30}$`},
		"Concept":    {two + "pulls:\n- name: p\n  target: {url: sqlite:b}\n  concepts:\n  - x\n", `weir.yaml:7: pulls[0].concepts[0]: parse GUID "x": want 8-4-4-4-12 hexadecimal digits`},
		"NoCapture":  {two + "pulls:\n- {name: p, captures: [s.tt], target: {url: sqlite:b}}\n", `weir.yaml:4: pulls[0].captures[0]: there is no capture of s.tt. Try: s.t`},
		"PullTwice": {two + "pulls:\n- {name: p, captures: [s.t], target: {url: sqlite:b}}\n- name: p\n  captures: [s.u]\n  target: {url: sqlite:c}\n",
			`weir.yaml:5: pulls[1].name: "p" is the name of pulls[0] already. Try: another name`},
		"SharedQueue": {two + "pulls:\n- {name: p, target: {url: sqlite:b}}\n- name: Big DW\n  target: {url: sqlite:c}\n",
			`weir.yaml:5: pulls[1].queue: it shares queue "default" and s.t, s.u with pull "p", so each change would reach only one of the two. Try: queue: big_dw`},
		"SharedTarget": {two + "pulls:\n- {name: p, target: {url: sqlite:b}}\n- name: q\n  queue: q\n  target: {url: sqlite:b}\n",
			`weir.yaml:7: pulls[1].target: it writes s.t, s.u to the target of pull "p", so an older version of a row could overwrite a newer one. Try: another target.schema, or other captures`},
		"SameName": {head + "captures: [{table: a.t}, {table: b.t}]\npulls: [{name: p, target: {url: 'postgres:///x'}}]\n",
			`weir.yaml:3: pulls[0].captures: a.t and b.t would both be written to table t of the target. Try: name one of the two by captures, and pull the other to another target.schema by a pull with a queue of its own`},
		"SameNameFolded": {head + "captures: [{table: T}, {table: t}]\npulls: [{name: p, target: {url: sqlite:b}}]\n",
			`weir.yaml:3: pulls[0].captures: T and t would both be written to table t of the target. Try: name one of the two by captures, and pull the other to another target.schema by a pull with a queue of its own`},
		"Ledger": {head + "captures: [{table: a.Weir_Ledger}, {table: a.t}]\npulls: [{name: p, target: {url: 'postgres:///x'}}]\n",
			`weir.yaml:3: pulls[0].captures: a.Weir_Ledger would be written to table Weir_Ledger of the target, which is weir's own. Try: rename the table at the source, or name the others by captures`},
		"Itself": {head + "captures: [{table: t}]\npulls: [{name: p, target: {url: sqlite:a.db}}]\n",
			"weir.yaml:3: pulls[0].target: the target's table t is the captured table itself. Try: another database or schema"},
		"ItselfSchema": {"source: {url: 'postgres:///x'}\ncaptures: [{table: public.t}]\npulls: [{name: p, target: {url: 'postgres:///x'}}]\n",
			"weir.yaml:3: pulls[0].target: the target's table public.t is the captured table itself. Try: another database or schema"},
		"All": {"source: {urll: x}\ncaptures: [{tabel: x}]\npulls: 3\n", `weir.yaml:1: source.urll: unknown key. Try: url
weir.yaml:1: source.url: it is missing. Try: url: postgres://user@host/db
weir.yaml:2: captures[0].tabel: unknown key. Try: table
weir.yaml:2: captures[0].table: it is missing. Try: table: public.orders
weir.yaml:3: pulls: it is a number, not a list. Try: a list: [a, b], or a line with - for each`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("weir.yaml", []byte(c.text), env())
			if err == nil || err.Error() != c.want {
				t.Fatalf("got  %v\nwant %v", err, c.want)
			}
			var fault *weir.ConfigError
			if !errors.As(err, &fault) {
				t.Errorf("it is a %T", err)
			}
		})
	}
}

// Pulls that share a queue and captures get along when no change is for both.
func TestParse_Disjoint(t *testing.T) {
	for name, filters := range map[string][2]string{
		"Captures":    {"captures: [t]", "captures: [u]"},
		"ChangeTypes": {"change_types: [Instance Inserted, Instance Deleted]", "change_types: [Instance Event Changed]"},
		"Concepts":    {"concepts: [00000000-0000-0000-0000-000000000001]", "concepts: [00000000-0000-0000-0000-000000000002]"},
		"Queues":      {"queue: a", "queue: b"},
	} {
		t.Run(name, func(t *testing.T) {
			parse(t, "source: {url: sqlite:a.db}\ncaptures: [{table: t}, {table: u}]\npulls:\n"+
				"- {name: p, target: {url: sqlite:b}, "+filters[0]+"}\n- {name: q, target: {url: sqlite:c}, "+filters[1]+"}\n")
		})
	}
}

func TestExpand(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"}, {"$", "$"}, {"a$b", "a$b"}, {"$$", "$"}, {"$${A}", "${A}"}, {"${A}", "1"}, {"x${A}y${B}z", "x1y${A}z"}, {"$$${A}", "$1"}, {"${E}", ""},
	} {
		if got, _, err := expand(c.in, env("A", "1", "B", "${A}", "E", "")); err != nil || got != c.want {
			t.Errorf("expand(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// What a variable holds is a value, whatever it looks like.
func TestExpand_NoInjection(t *testing.T) {
	c := parse(t, "source: {url: '${X}'}\ncaptures: [{table: '${X}'}]\n", "X", "a\nschema: evil\npulls: [&x {}]")
	if c.Source.Schema != "" || c.Captures[0].Table != "a\nschema: evil\npulls: [&x {}]" {
		t.Errorf("got %+v", c)
	}
}

// A secret that came into the wrong key is not printed.
func TestParse_FaultHidesVariable(t *testing.T) {
	_, err := Parse("weir.yaml", []byte("source: {url: sqlite:a.db}\ncaptures: [{table: t, tagging: '${S}'}]\n"), env("S", "hunter2"))
	if got := err.Error(); strings.Contains(got, "hunter2") || !strings.Contains(got, `"${S}" is not known`) {
		t.Error(got)
	}
}

func TestLoad_NoFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.yaml")
	_, err := Load(file, env())
	want := file + ": there is no such file. Try: --config FILE or WEIR_CONFIG; weir config schema says what the file holds"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSchema_Golden(t *testing.T) {
	got, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	const file = "../../docs/weir.schema.json"
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what the types say; go test ./internal/config -update writes it", file)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("a: &a [*a]\n? {x: y}\n: z\n")
	f.Add("source: &s {url: *s}\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Parse("f", []byte(text), env("BATCH", "1", "PASSWORD", "x"))
		var fault *weir.ConfigError
		if err != nil && !errors.As(err, &fault) {
			t.Errorf("error of type %T: %v", err, err)
		}
	})
}
