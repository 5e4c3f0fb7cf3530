package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/internal/testdb"
)

// buffer is a log that may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// eventually waits for a state that no event tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within 30 s", what)
		case <-tick.C:
		}
	}
}

// start calls weir run; stop ends it as SIGTERM does, and returns its exit code.
func (l *line) start() (log *buffer, stop func() int) {
	ctx, cancel := context.WithCancel(l.t.Context())
	log = &buffer{}
	code := make(chan int, 1)
	env := map[string]string{"WEIR_CONFIG": filepath.Join(l.dir, "weir.yaml")}
	go func() {
		code <- run(ctx, []string{"run"}, func(name string) (string, bool) { v, ok := env[name]; return v, ok }, strings.NewReader(""), log, log)
	}()
	return log, func() int { cancel(); return <-code }
}

func TestRunCommand(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, engine(t), engine(t)).applied()
			log, stop := l.start()
			exec1(t, l.source, "update orders set v = 'new'", "insert into items (id, v) values (11, 'y')")
			eventually(t, "the changes are pulled", func() bool {
				st := l.status()
				return st.Inbox == 0 && st.Queues[0].Depth == 0 && strings.Contains(log.String(), "run done")
			})
			if code := stop(); code != exitDone {
				t.Errorf("exit code %d\n%s", code, log)
			}
			if text := log.String(); !strings.HasSuffix(text, "INF stopped\n") || !strings.Contains(text, "stopping after the batches in hand") {
				t.Errorf("log:\n%s", text)
			}
			l.equal("orders")
		})
	}
}

// Both sides may be down when weir run starts; it goes on when they are there.
func TestRunCommand_BothOffline(t *testing.T) {
	source, target := testdb.NewProxy(t, testdb.Postgres(t)), testdb.NewProxy(t, testdb.Postgres(t))
	l := newLine(t, source.URL(), target.URL()).applied()
	exec1(t, l.source, "update orders set v = 'new'", "update items set v = 'new'")
	for _, p := range []*testdb.Proxy{source, target} {
		p.Refuse()
		p.Cut()
	}
	log, stop := l.start()
	eventually(t, "the outage is logged", func() bool { return strings.Contains(log.String(), "run met an outage") })
	source.Heal()
	target.Heal()
	eventually(t, "the changes are pulled", func() bool { return l.status().Queues[0].Depth == 0 && strings.Contains(log.String(), "run done") })
	if code := stop(); code != exitDone {
		t.Errorf("exit code %d\n%s", code, log)
	}
	l.equal("orders", "items")
}

// A target that is away from the start on, or goes away, does not let the inbox
// grow: its tags become the queue's one change a row.
func TestRunCommand_FoldsWithoutTarget(t *testing.T) {
	for name, away := range map[string]func(l *line, target *testdb.Proxy) (*buffer, func() int){
		"FromTheStart": func(l *line, target *testdb.Proxy) (*buffer, func() int) {
			target.Refuse()
			return l.start()
		},
		"Later": func(l *line, target *testdb.Proxy) (*buffer, func() int) {
			log, stop := l.start()
			eventually(l.t, "the first change is pulled", func() bool { return strings.Contains(log.String(), "run done") })
			target.Refuse()
			target.Cut()
			return log, stop
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := testdb.NewProxy(t, testdb.Postgres(t))
			l := newLine(t, testdb.Postgres(t), target.URL()).applied()
			exec1(t, l.source, "update items set v = 'first'")
			log, stop := away(l, target)
			for i := range 3 {
				exec1(t, l.source, fmt.Sprintf("update items set v = 'w%d'", i), fmt.Sprintf("update items set v = 'v%d'", i))
				eventually(t, "the inbox is folded", func() bool { return l.status().Inbox == 0 })
				if st := l.status(); st.Queues[0].Depth != 1 {
					t.Errorf("%d changes in the queue, want 1: the target is away", st.Queues[0].Depth)
				}
			}
			target.Heal()
			eventually(t, "the change is pulled", func() bool { return l.status().Queues[0].Depth == 0 })
			if code := stop(); code != exitDone {
				t.Errorf("exit code %d\n%s", code, log)
			}
			l.equal("items")
		})
	}
}

// process starts the command as a process of its own.
func (l *line) process(args ...string) (log *buffer, cmd *exec.Cmd) {
	l.t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "WEIR_CONFIG="+filepath.Join(l.dir, "weir.yaml"))
	log = &buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return log, cmd
}

// The first SIGTERM lets the batch in hand arrive; the second does not wait.
func TestRunCommand_Signals(t *testing.T) {
	for _, c := range []struct {
		name    string
		signals int
	}{{"First", 1}, {"Second", 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			target := testdb.NewProxy(t, testdb.Postgres(t))
			l := newLine(t, testdb.Postgres(t), target.URL()).applied()
			l.weir(exitDone, "pull", "copy") // makes the ledger
			trap := target.Trap(regexp.MustCompile("set constraints all immediate"), testdb.HoldMessage)
			exec1(t, l.source, "update orders set v = 'held'")
			log, cmd := l.process("run")
			<-trap.Sprung()
			term := func(sign string) {
				t.Helper()
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				if sign != "" {
					eventually(t, sign, func() bool { return strings.Contains(log.String(), sign) })
				}
			}
			term("stopping after the batches in hand")
			if c.signals == 2 {
				term("")
				err := cmd.Wait()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
					t.Errorf("it ended with %v\n%s", err, log)
				}
				trap.Release()
				return
			}
			trap.Release()
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v\n%s", err, log)
			}
			l.equal("orders")
			if st := l.status(); st.Queues[0].Depth != 0 || len(st.Pulls) != 0 {
				t.Errorf("status: %+v", st)
			}
		})
	}
}

func TestRunCommand_NoPulls(t *testing.T) {
	dir := configIn(t, "source: {url: sqlite:a.db}\n")
	r := weirIn(t, dir, "", "run")
	if want := "weir: " + filepath.Join(dir, "weir.yaml") + ":1: pulls: there is none to run\nTry: a name and a target under pulls\n"; r.code != exitUsage || r.errors != want {
		t.Errorf("code %d, errors\n%swant\n%s", r.code, r.errors, want)
	}
}

// A pull whose puller is gone is finished by the word of the ledger.
func TestQueueRelease(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, engine(t), engine(t)).applied()
			exec1(t, l.source, "update orders set v = 'c'")
			ctx := t.Context()
			c := l.load()
			s, err := openSource(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			target, err := openTarget(ctx, c, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			ledger, err := target.Ledger(ctx)
			if err != nil {
				t.Fatal(err)
			}
			claim := func() *weir.Pull {
				t.Helper()
				p, err := s.Claim(ctx, weir.ClaimRequest{PullGUID: weir.NewGUID(), Name: "copy", Queue: "default", Puller: "gone", Ledger: ledger, Limit: 10, Lease: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			pull := claim()
			if text := l.weir(exitDone, "status").out; !strings.Contains(text, pull.PullGUID.String()+"  copy  default  gone    claimed  3     ") {
				t.Errorf("status:\n%s", text)
			}
			if r := l.weir(exitDone, "queue", "release", pull.PullGUID.String()); r.out != "pull "+pull.PullGUID.String()+" is revoked, and its changes are back in the queue\n" {
				t.Errorf("release: %s", r.out)
			}

			pull = claim()
			if r := l.weir(exitDone, "queue", "release", "--force", pull.PullGUID.String()); r.out != "pull "+pull.PullGUID.String()+" is released without its ledger's word\n" {
				t.Errorf("release --force: %s", r.out)
			}

			pull = claim()
			read, err := s.Read(ctx, pull, weir.ReadRequest{Encoding: target.Encoding(), MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if err := target.Ship(ctx, weir.Shipment{PullGUID: pull.PullGUID, Batch: read.Batch}); err != nil {
				t.Fatal(err)
			}
			if r := l.weir(exitDone, "queue", "release", strings.ToUpper(pull.PullGUID.String())); r.out != "pull "+pull.PullGUID.String()+" is settled: it had committed at the target\n" {
				t.Errorf("release: %s", r.out)
			}
			if st := l.status(); st.Queues[0].Depth != 0 || len(st.Pulls) != 0 {
				t.Errorf("status: %+v", st)
			}
		})
	}
}

// What an outage leaves undone fails, and says so without blaming the
// configuration.
func TestPull_Outage(t *testing.T) {
	target := testdb.NewProxy(t, testdb.Postgres(t))
	l := newLine(t, testdb.Postgres(t), target.URL()).applied()
	exec1(t, l.source, "update orders set v = 'c'")
	target.Refuse()
	target.Cut()
	r := l.weir(exitFailed, "pull", "copy")
	if !strings.HasPrefix(r.errors, "weir: ") || !strings.Contains(r.errors, "target is unavailable") {
		t.Errorf("errors: %s", r.errors)
	}
	if st := l.status(); st.Queues[0].Ready != 3 || len(st.Pulls) != 0 {
		t.Errorf("status: %+v", st)
	}
	target.Heal()
	var got struct{ Upserted int }
	if err := json.Unmarshal([]byte(l.weir(exitDone, "pull", "copy", "--json").out), &got); err != nil || got.Upserted != 3 {
		t.Errorf("pulled %+v, %v", got, err)
	}
	if r := l.weir(exitUsage, "pull", "cop"); !strings.HasSuffix(r.errors, ":3: pulls: there is no pull \"cop\"\nTry: copy\n") {
		t.Errorf("errors: %s", r.errors)
	}
}

// A pull that is told to stop says that it did not come to the end.
func TestPull_Stopped(t *testing.T) {
	l := newLine(t, testdb.Postgres(t), testdb.Postgres(t)).applied()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := weirWith(ctx, map[string]string{"WEIR_CONFIG": filepath.Join(l.dir, "weir.yaml")}, "", "pull", "copy")
	if r.code != exitFailed || r.errors != "weir: stopped before the queue was empty\n" {
		t.Errorf("code %d, errors %s", r.code, r.errors)
	}
}
