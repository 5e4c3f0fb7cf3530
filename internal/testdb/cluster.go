package testdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTimeout bounds initdb, the start and the stop of a server each.
const startTimeout = 2 * time.Minute

// settings of every cluster. A crash of the machine may lose it, a crash of the
// server does not: commits are synchronous as ever, only the disk is not
// waited for.
var settings = []string{
	"fsync=off",
	"full_page_writes=off",
	"synchronous_commit=on",
	"listen_addresses=127.0.0.1",
	"max_connections=200",
	"max_prepared_transactions=10",
	"wal_level=logical",
}

// A Cluster is a PostgreSQL server with data of its own, started from local
// binaries. It ends with the test binary, however that ends.
type Cluster struct {
	Port int // on 127.0.0.1, the same after a restart

	t        testing.TB // nil for the shared one
	bin      string     // directory of the server's programs
	dir      string     // holds data, log and socket
	settings []string

	server   *exec.Cmd
	exited   chan struct{} // closed once the server has ended
	watchdog *exec.Cmd
	leash    io.Closer // the watchdog acts when it is closed
}

// NewCluster starts a server for this test alone, with the settings given as
// "name=value", and removes it at the end of the test. It takes a second or
// two: use it for what [Postgres] cannot do, such as a server that stops. The
// test is skipped when there are no local binaries.
func NewCluster(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	bin, missing := serverBin()
	if missing != "" {
		skip(t, "postgres", missing+"; WEIR_TEST_POSTGRES_URL does not help: the test stops the server")
	}
	ran(t, "postgres", "server started from "+bin)
	c, err := startCluster(bin, settings)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	c.t = t
	t.Cleanup(func() {
		if err := c.remove(); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	return c
}

// URL returns the URL of the database postgres, as superuser.
func (c *Cluster) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.Port)
}

// Database makes an empty database and returns its URL.
func (c *Cluster) Database() string {
	c.t.Helper()
	name := "weir_test_" + randomHex()
	Exec(c.t, c.URL(), "create database "+name)
	return withDatabase(c.URL(), name)
}

// Stop ends the server: at once, as a crash would, or after it has ended every
// session and written a checkpoint. It returns once the server is gone. It does
// nothing when the server is stopped. Call it from the test's goroutine.
func (c *Cluster) Stop(immediate bool) {
	c.t.Helper()
	sig := syscall.SIGINT // PostgreSQL: fast shutdown
	if immediate {
		sig = syscall.SIGQUIT
	}
	if err := c.stop(sig); err != nil {
		c.t.Fatalf("testdb: %v", err)
	}
}

// Start starts a server that [Cluster.Stop] ended, and returns once it accepts
// connections. Call it from the test's goroutine.
func (c *Cluster) Start() {
	c.t.Helper()
	if err := c.start(); err != nil {
		c.t.Fatalf("testdb: %v", err)
	}
}

// startCluster makes a cluster and starts its server.
func startCluster(bin string, extra []string) (c *Cluster, err error) {
	dir, err := os.MkdirTemp("", "weir-postgres-")
	if err != nil {
		return nil, fmt.Errorf("make cluster: %w", err)
	}
	c = &Cluster{bin: bin, dir: dir, settings: append(settings[:len(settings):len(settings)], extra...)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove())
			c = nil
		}
	}()
	if cred := credential(); cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return c, fmt.Errorf("make cluster: %w", err)
		}
	}
	if err := c.startWatchdog(); err != nil {
		return c, err
	}
	if err := c.initdb("C.UTF-8"); err != nil {
		// Not every system has that locale.
		if plainErr := c.initdb("C"); plainErr != nil {
			return c, errors.Join(err, plainErr)
		}
	}
	// Another process may take the port between the look and the start.
	for range 3 {
		if c.Port, err = freePort(); err != nil {
			return c, err
		}
		if err = c.start(); err == nil {
			return c, nil
		}
	}
	return c, err
}

func (c *Cluster) initdb(locale string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := c.command(ctx, filepath.Join(c.bin, "initdb"), "--pgdata", c.data(), "--username", "postgres",
		"--auth", "trust", "--encoding", "UTF8", "--locale", locale, "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb --locale %s: %w\n%s", locale, err, out)
	}
	return nil
}

// startWatchdog starts a shell that outlives this process by as long as it
// takes to stop the server and to remove its files. It works where a signal at
// the parent's death does not exist, and it cleans up after a kill.
func (c *Cluster) startWatchdog() error {
	const script = `
		cat >/dev/null
		if read -r pid <"$1/data/postmaster.pid"; then
			kill -QUIT "$pid"
			tries=100
			while kill -0 "$pid" && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
		fi
		rm -rf "$1"`
	c.watchdog = c.command(context.Background(), "/bin/sh", "-c", script, "sh", c.dir)
	leash, err := c.watchdog.StdinPipe()
	if err != nil {
		return fmt.Errorf("start watchdog: %w", err)
	}
	c.leash = leash
	if err := c.watchdog.Start(); err != nil {
		c.watchdog = nil
		return fmt.Errorf("start watchdog: %w", err)
	}
	return nil
}

func (c *Cluster) start() error {
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	defer log.Close() // the server has its own handle
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.Port), "-k", c.dir}
	for _, setting := range c.settings {
		args = append(args, "-c", setting)
	}
	cmd := c.command(context.Background(), filepath.Join(c.bin, "postgres"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd.SysProcAttr)

	started, exited := make(chan error), make(chan struct{})
	go func() {
		// The signal at the parent's death comes when this thread ends, so
		// the thread is kept for as long as the server runs.
		runtime.LockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	c.server, c.exited = cmd, exited
	if err := c.waitReady(); err != nil {
		return errors.Join(err, c.stop(syscall.SIGQUIT))
	}
	return nil
}

// waitReady returns once the server accepts connections.
func (c *Cluster) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-c.exited:
			log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			return fmt.Errorf("start postgres: it ended at once\n%s", log)
		case <-ctx.Done():
			return fmt.Errorf("start postgres: no connection within %v: %w", startTimeout, err)
		case <-tick.C:
		}
	}
}

func (c *Cluster) stop(sig syscall.Signal) error {
	if c.server == nil {
		return nil
	}
	server := c.server
	c.server = nil
	if err := server.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop postgres: %w", err)
	}
	select {
	case <-c.exited:
		return nil
	case <-time.After(startTimeout):
	}
	_ = server.Process.Kill()
	<-c.exited
	log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
	return fmt.Errorf("stop postgres: still there %v after %v\n%s", startTimeout, sig, log)
}

// remove stops the server, if it runs, and removes the cluster's files.
func (c *Cluster) remove() error {
	err := c.stop(syscall.SIGQUIT)
	if c.watchdog == nil {
		return errors.Join(err, os.RemoveAll(c.dir))
	}
	_ = c.leash.Close() // the watchdog removes the files
	if waitErr := c.watchdog.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("remove cluster %s: %w", c.dir, waitErr))
	}
	return err
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// command returns a command that runs as the cluster's owner and keeps none of
// this process's files, terminal signals or PostgreSQL settings.
func (c *Cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.dir // the owner may not be allowed into the current one
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential()}
	return cmd
}

// credential returns whom to run the server as: PostgreSQL refuses root, so
// postgres or else nobody. It is nil when this process is not root's.
func credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil // initdb says that it cannot be run as root
}

// freePort returns a port of 127.0.0.1 that nobody listens on. It lies below
// the ports that systems give to outgoing connections, so that one of those
// does not take it while a server or proxy is down.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
