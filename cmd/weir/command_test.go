package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/config"
	"github.com/weir-cdc/weir/internal/testdb"
	"github.com/weir-cdc/weir/puller"
)

// asCommand makes the test binary the command itself, for what needs a process.
const asCommand = "WEIR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(testdb.Run(m))
}

// result is what one call of the command gave.
type result struct {
	code        int
	out, errors string
}

// weirIn runs the command with its configuration in dir.
func weirIn(t *testing.T, dir, stdin string, args ...string) result {
	t.Helper()
	return weirWith(t.Context(), map[string]string{"WEIR_CONFIG": filepath.Join(dir, "weir.yaml")}, stdin, args...)
}

func weirWith(ctx context.Context, env map[string]string, stdin string, args ...string) result {
	var out, errs bytes.Buffer
	code := run(ctx, args, func(name string) (string, bool) { v, ok := env[name]; return v, ok }, strings.NewReader(stdin), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// config writes weir.yaml into a directory of the test.
func configIn(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRun_WrongUse(t *testing.T) {
	for _, c := range []struct {
		args   string
		errors string
	}{
		{"", "weir: a command is missing\nTry: weir --help\n"},
		{"triggers", "weir: a command is missing\nTry: weir triggers --help\n"},
		{"statsu", "weir: unknown command \"statsu\" for \"weir\"\nTry: weir status\n"},
		{"triggers chek", "weir: unknown command \"chek\" for \"weir triggers\"\nTry: weir triggers check\n"},
		{"nothing-like-it", "weir: unknown command \"nothing-like-it\" for \"weir\"\nTry: weir --help\n"},
		{"status --jsno", "weir: unknown flag: --jsno\nTry: weir status --help\n"},
		{"status x", "weir: unexpected argument \"x\"\nTry: weir status [flags]\n"},
		{"pull", "weir: NAME is missing\nTry: weir pull NAME [flags]\n"},
		{"queue release x", "weir: \"x\" is no PullGUID\nTry: weir status lists the pulls that live\n"},
		{"status --log-format xml", "weir: log format \"xml\" is not known\nTry: text or json\n"},
		{"status --log-level loud", "weir: log level \"loud\" is not known\nTry: debug, info, warn or error\n"},
		{"backfill --chunk 0", "weir: --chunk 0 is too small\nTry: 1 or more\n"},
		{"backfill --chunk x", "weir: invalid argument \"x\" for \"--chunk\" flag: strconv.ParseInt: parsing \"x\": invalid syntax\nTry: weir backfill --help\n"},
		{"init --yes", "weir: --yes is for --down\nTry: weir init --down --yes\n"},
		{"triggers render", "weir: --dir is missing\nTry: weir triggers render --dir migrations\n"},
		{"queue postpone --all", "weir: --for is missing, or not above 0\nTry: --for 1h\n"},
		{"queue retry", "weir: which changes is not said\nTry: weir queue retry --state dead, or --all\n"},
		{"queue retry --all --state dead", "weir: --all and a choice of changes contradict each other\nTry: one of the two\n"},
		{"queue list --limit -1", "weir: --limit -1 is below 0\nTry: a number, or 0 for all\n"},
		{"status --config none.yaml", "weir: none.yaml: there is no such file\nTry: --config FILE or WEIR_CONFIG; weir config schema says what the file holds\n"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := weirWith(t.Context(), nil, "", strings.Fields(c.args)...)
			if r.code != exitUsage || r.out != "" || !strings.HasSuffix(r.errors, c.errors) {
				t.Errorf("code %d, output %q, errors\n%swant\n%s", r.code, r.out, r.errors, c.errors)
			}
		})
	}
}

func TestRun_WrongConfiguration(t *testing.T) {
	const source = "source: {url: sqlite:a.db}\ncaptures: [{table: t}]\npulls:\n"
	for name, c := range map[string]struct{ text, errors string }{
		"Scheme":   {"source:\n  url: oracle://u:hunter2@h/d\n", "weir: CONFIG:2: source.url: scheme \"oracle\" is not supported\nTry: postgres://user@host/database, sqlserver://user@host?database=NAME or sqlite:FILE\n"},
		"NoScheme": {"source:\n  url: hunter2@h/d\n", "weir: CONFIG:2: source.url: it has no scheme\nTry: postgres://user@host/database, sqlserver://user@host?database=NAME or sqlite:FILE\n"},
		"TwoFaults": {source + "- {name: a, target: {url: 'mysql://u:hunter2@h'}}\n- {name: b, queue: b, target: {url: 'kafka://u:hunter2@h'}}\n",
			"weir: CONFIG:4: pulls[0].target.url: scheme \"mysql\" is not supported\nweir: CONFIG:5: pulls[1].target.url: scheme \"kafka\" is not supported\nTry: postgres://user@host/database, sqlserver://user@host?database=NAME or sqlite:FILE\n"},
		"Keys":     {"sorce: {}\n", "weir: CONFIG:1: sorce: unknown key\nTry: source\nweir: CONFIG:1: source: it is missing\nTry: give it a value\n"},
		"Schedule": {source + "- name: a\n  schedule: 61 * * * *\n  target: {url: sqlite:b}\n", "weir: CONFIG:5: pulls[0].schedule: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := configIn(t, c.text)
			for _, args := range [][]string{{"config", "check"}, {"status"}, {"init"}, {"run"}, {"triggers", "apply"}} {
				r := weirIn(t, dir, "", args...)
				want := strings.ReplaceAll(c.errors, "CONFIG", filepath.Join(dir, "weir.yaml"))
				if r.code != exitUsage || r.out != "" || !strings.HasPrefix(r.errors, want) {
					t.Errorf("%v: code %d, output %q, errors\n%swant\n%s", args, r.code, r.out, r.errors, want)
				}
				if strings.Contains(r.errors, "hunter2") {
					t.Errorf("%v shows the password", args)
				}
			}
		})
	}
}

func TestRun_Help(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"help"}, {"triggers", "-h"}, {"queue", "list", "--help"}, {"help", "run"}, {"completion", "--help"}} {
		r := weirWith(t.Context(), nil, "", args...)
		if r.code != exitDone || !strings.Contains(r.out, "Examples:") || r.errors != "" {
			t.Errorf("%v: code %d, output %q, errors %q", args, r.code, r.out, r.errors)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := weirWith(t.Context(), nil, "", "completion", shell); r.code != exitDone || len(r.out) < 1000 {
			t.Errorf("completion %s: code %d, %d bytes", shell, r.code, len(r.out))
		}
	}
}

func TestRun_Version(t *testing.T) {
	if r := weirWith(t.Context(), nil, "", "version"); r.code != exitDone || !strings.HasPrefix(r.out, "weir ") {
		t.Errorf("code %d, output %q", r.code, r.out)
	}
	if r := weirWith(t.Context(), nil, "", "--version"); r.code != exitDone || !strings.HasPrefix(r.out, "weir ") || r.errors != "" {
		t.Errorf("--version: code %d, output %q, errors %q", r.code, r.out, r.errors)
	}
	if r := weirWith(t.Context(), nil, "", "version", "--json"); !strings.Contains(r.out, `"version": `) {
		t.Errorf("output %q", r.out)
	}
}

// Every command has an example, and the examples are right as far as the
// command line goes.
func TestExamples(t *testing.T) {
	a := &app{}
	root := a.root()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		lines := 0
		for line := range strings.Lines(c.Example) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "#") {
				continue
			}
			lines++
			line, _, _ = strings.Cut(line, " > ")
			words := strings.Fields(line)
			if words[0] != "weir" {
				t.Errorf("%s: example %q is of another program", c.CommandPath(), line)
				continue
			}
			// A new root, since flags keep what was parsed.
			found, rest, err := (&app{}).root().Find(words[1:])
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err != nil {
				t.Errorf("example %q: %v", line, err)
				continue
			}
			if found.HasSubCommands() {
				t.Errorf("example %q names no command", line)
			}
			if !c.HasSubCommands() && found.CommandPath() != c.CommandPath() {
				t.Errorf("example %q is not of %s", line, c.CommandPath())
			}
		}
		if lines == 0 {
			t.Errorf("%s has no example", c.CommandPath())
		}
	}
	walk(root)
}

// flag > environment > file > default.
func TestSetting_Precedence(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("source: {url: sqlite:a.db}\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	plain, loud := write("plain.yaml", ""), write("loud.yaml", "log: {format: json, level: error}\n")
	for _, c := range []struct {
		name, flag, variable, file string
		config                     string
		want                       string
	}{
		{"default", "", "", "", plain, "text"},
		{"file", "", "", "json", loud, "json"},
		{"environment before file", "", "text", "json", loud, "text"},
		{"flag before environment", "json", "text", "", plain, "json"},
		{"flag before file", "text", "", "json", loud, "text"},
	} {
		t.Run("log-format/"+c.name, func(t *testing.T) {
			a, cmd := appWith(map[string]string{"WEIR_LOG_FORMAT": c.variable}, "--config", c.config, "--log-format", c.flag)
			if _, err := a.load(cmd); err != nil {
				t.Fatal(err)
			}
			got := "text"
			if _, ok := a.log.Handler().(*slog.JSONHandler); ok {
				got = "json"
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		name, flag, variable, config string
		want                         slog.Level
	}{
		{"default", "", "", plain, slog.LevelInfo},
		{"file", "", "", loud, slog.LevelError},
		{"environment before file", "", "warn", loud, slog.LevelWarn},
		{"flag before environment", "debug", "warn", loud, slog.LevelDebug},
	} {
		t.Run("log-level/"+c.name, func(t *testing.T) {
			a, cmd := appWith(map[string]string{"WEIR_LOG_LEVEL": c.variable}, "--config", c.config, "--log-level", c.flag)
			if _, err := a.load(cmd); err != nil {
				t.Fatal(err)
			}
			if !a.log.Enabled(t.Context(), c.want) || a.log.Enabled(t.Context(), c.want-1) {
				t.Errorf("level is not %s", c.want)
			}
		})
	}
	t.Run("config", func(t *testing.T) {
		t.Chdir(dir)
		write("weir.yaml", "captures: [{table: default}]\n")
		write("env.yaml", "captures: [{table: env}]\n")
		write("flag.yaml", "captures: [{table: flag}]\n")
		for _, c := range []struct{ flag, variable, want string }{
			{"", "", "default"}, {"", "env.yaml", "env"}, {"flag.yaml", "env.yaml", "flag"}, {"flag.yaml", "", "flag"},
		} {
			a, cmd := appWith(map[string]string{"WEIR_CONFIG": c.variable}, "--config", c.flag)
			conf, err := a.load(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if got := conf.Captures[0].Table; got != c.want {
				t.Errorf("flag %q, variable %q: got %s, want %s", c.flag, c.variable, got, c.want)
			}
		}
	})
}

// appWith parses flags as weir status does; those with an empty value are left
// out.
func appWith(env map[string]string, flags ...string) (*app, *cobra.Command) {
	a := &app{env: func(name string) (string, bool) { v, ok := env[name]; return v, ok && v != "" }, stderr: &bytes.Buffer{}}
	cmd, _, err := a.root().Find([]string{"status"})
	if err != nil {
		panic(err)
	}
	var args []string
	for i := 0; i < len(flags); i += 2 {
		if flags[i+1] != "" {
			args = append(args, flags[i], flags[i+1])
		}
	}
	if err := cmd.ParseFlags(args); err != nil {
		panic(err)
	}
	return a, cmd
}

func TestReport(t *testing.T) {
	drift := &weir.DriftError{Object: "trigger x", Err: errors.New("it is missing"), Hint: "apply"}
	wrong := &weir.ConfigError{File: "f", Line: 3, Key: "k", Err: errors.New("bad"), Hint: "good"}
	for name, c := range map[string]struct {
		err  error
		code int
		want string
	}{
		"None":     {nil, exitDone, ""},
		"Plain":    {errors.New("it broke"), exitFailed, "weir: it broke\n"},
		"Locked":   {&weir.UnavailableError{Side: weir.AtSource, Op: "claim", Err: errors.New("lock timeout"), Hint: "run it again"}, exitFailed, "weir: claim: source is unavailable: lock timeout\nTry: run it again\n"},
		"Outage":   {&weir.UnavailableError{Side: weir.AtTarget, Op: "ship", Err: errors.New("refused")}, exitFailed, "weir: ship: target is unavailable: refused\n"},
		"Config":   {wrong, exitUsage, "weir: f:3: k: bad\nTry: good\n"},
		"Wrapped":  {fmt.Errorf("open: %w", wrong), exitUsage, "weir: open: f:3: k: bad\nTry: good\n"},
		"OnlyHint": {&weir.ConfigError{Key: "source.schema", Hint: "a name"}, exitUsage, "weir: source.schema\nTry: a name\n"},
		"Drift":    {drift, exitDiffers, "weir: trigger x: it is missing\nTry: apply\n"},
		"Drifts":   {errors.Join(drift, drift), exitDiffers, "weir: trigger x: it is missing\nweir: trigger x: it is missing\nTry: apply\n"},
		"Usage":    {usagef("a b", "no"), exitUsage, "weir: no\nTry: a b\n"},
		"Lines":    {errors.New("a\nb\x1b[31m"), exitFailed, "weir: a\n  b\\x1b[31m\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &app{stderr: &out}
			if code := a.report(c.err); code != c.code || out.String() != c.want {
				t.Errorf("code %d, output\n%swant %d\n%s", code, out.String(), c.code, c.want)
			}
		})
	}
}

func TestHuman(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 420 * time.Millisecond: "420ms", 1500 * time.Millisecond: "2s", 59600 * time.Millisecond: "1m",
		5*time.Minute + 3*time.Second: "5m 3s", 2*time.Hour + 5*time.Second: "2h", 26*time.Hour + time.Minute: "1d 2h", -3 * time.Second: "-3s", 400 * time.Nanosecond: "0s",
	} {
		if got := human(d); got != want {
			t.Errorf("human(%v) = %s, want %s", int64(d), got, want)
		}
	}
}

func TestProgress(t *testing.T) {
	at := func(n int64) weir.BackfillProgress { return weir.BackfillProgress{Tagged: n, Estimate: 4000} }
	var out bytes.Buffer
	p := &progress{w: &out, terminal: true}
	p.at("s.t", at(1), 0)
	p.at("s.t", at(2), 0) // too early
	p.said = p.said.Add(-showEvery)
	p.at("s.t", at(2000), 100)
	p.end()
	p.end()
	want := "\rs.t: 1 row, 0/s, about 4000 in all\x1b[K\rs.t: 2000 rows, 100/s, about 4000 in all, 20s left\x1b[K\r\x1b[K"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}

	out.Reset()
	p = &progress{w: &out, log: slog.New(slog.NewTextHandler(&out, nil)), said: time.Now()}
	p.at("s.t", at(1000), 100)
	if out.Len() > 0 {
		t.Errorf("it says too early: %s", out.String())
	}
	p.said = p.said.Add(-logEvery)
	p.at("s.t", at(2000), 100)
	p.end()
	if !strings.Contains(out.String(), "msg=backfill table=s.t rows=2000 rows_per_second=100 estimate=4000 left=20s") {
		t.Errorf("got %q", out.String())
	}
}

// An error of a dialect gets the line of the capture that it names.
func TestLocate(t *testing.T) {
	c, err := config.Parse("f", []byte("source: {url: sqlite:a}\ncaptures:\n- table: s.a\n- table: b\npulls: [{name: p, target: {url: sqlite:b}}]\n"), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	at := func(key string) error { return &weir.ConfigError{Key: key, Err: errors.New("x")} }
	for key, want := range map[string]string{
		"captures: s.a": "f:3: s.a: x", "captures: public.b": "f:4: public.b: x", "captures: s.c": "captures: s.c: x", "source.schema": "f:1: source.schema: x", "target": "f:5: pulls[0].target: x",
		"source cdc": "f:1: source cdc: x", "target s.t": "f:5: pulls[0].target s.t: x", "source.schema s": "f:1: source.schema s: x", "queue": "queue: x",
	} {
		if got := locate(c, 0, at(key)).Error(); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	if got := locate(c, -1, errors.Join(at("captures: s.a"), errors.New("y"))).Error(); got != "f:3: s.a: x\ny" {
		t.Errorf("joined: %s", got)
	}
	if locate(c, 0, nil) != nil {
		t.Error("nil is not nil")
	}
}

// TestRun_LogsItsErrorAsJSON: where the log is JSON, so is all of standard error.
func TestRun_LogsItsErrorAsJSON(t *testing.T) {
	dir := configIn(t, "source: {url: sqlite:a.db}\ncaptures: [{table: default}]\npulls: [{name: p, target: {url: sqlite:b.db}}, {name: p, target: {url: sqlite:b.db}}]\n")
	env := map[string]string{"WEIR_CONFIG": filepath.Join(dir, "weir.yaml"), "WEIR_LOG_FORMAT": "json"}
	for args, want := range map[string][]string{
		"pull":         {`NAME is missing`, `weir pull NAME [flags]`},
		"statsu":       {`unknown command "statsu" for "weir"`, "weir status"},
		"config check": {`weir.yaml:3: pulls[1].name: "p" is the name of pulls[0] already`, "another name"},
	} {
		r := weirWith(t.Context(), env, "", strings.Fields(args)...)
		var line struct{ Level, Msg, Error, Hint, Time string }
		first, _, _ := strings.Cut(r.errors, "\n")
		if err := json.Unmarshal([]byte(first), &line); err != nil {
			t.Errorf("weir %s: %v: %s", args, err, r.errors)
		}
		if line.Level != "ERROR" || line.Msg != "failed" || !strings.HasSuffix(line.Error, want[0]) || line.Hint != want[1] || line.Time == "" || r.code != exitUsage {
			t.Errorf("weir %s: %d, %+v, want %q", args, r.code, line, want)
		}
		for rest := range strings.Lines(r.errors) {
			if !json.Valid([]byte(rest)) {
				t.Errorf("weir %s: %q is no JSON", args, rest)
			}
		}
	}
	if r := weirWith(t.Context(), env, "", "pull", "--log-format", "xml"); r.errors != "weir: NAME is missing\nTry: weir pull NAME [flags]\nweir: log format \"xml\" is not known\nTry: text or json\n" {
		t.Errorf("two faults: %s", r.errors)
	}
}

// TestLog_Seconds: a duration has its unit in a JSON log.
func TestLog_Seconds(t *testing.T) {
	var errs bytes.Buffer
	a := &app{env: func(string) (string, bool) { return "", false }, stderr: &errs}
	root := a.root()
	if err := root.ParseFlags([]string{"--log-format", "json"}); err != nil {
		t.Fatal(err)
	}
	if err := a.setUpLog(root, nil); err != nil {
		t.Fatal(err)
	}
	a.log.LogAttrs(t.Context(), slog.LevelInfo, "done", puller.Result{Upserted: 1, Duration: 1500 * time.Millisecond}.Attrs()...)
	var line map[string]any
	if err := json.Unmarshal(errs.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["duration_seconds"] != 1.5 || line["rows"] != 1.0 || line["duration"] != nil {
		t.Errorf("%s", errs.String())
	}
}
