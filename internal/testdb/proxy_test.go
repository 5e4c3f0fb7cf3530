package testdb

import (
	"context"
	"errors"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestProxy_Outage(t *testing.T) {
	p := NewProxy(t, Postgres(t))
	conn := connect(t, p.URL())

	p.Refuse()
	if _, err := conn.Exec(t.Context(), "select 1"); err != nil {
		t.Errorf("an open connection ended: %v", err)
	}
	if _, err := pgx.Connect(t.Context(), p.URL()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect while refused: %v", err)
	}
	p.Cut()
	if _, err := conn.Exec(t.Context(), "select 1"); err == nil {
		t.Error("a cut connection works")
	}
	p.Heal()
	if n := query[int](t, p.URL(), "select 1"); n != 1 {
		t.Error("no service after Heal")
	}
}

func TestProxy_BlackHole(t *testing.T) {
	p := NewProxy(t, Postgres(t))
	old := connect(t, p.URL())
	p.BlackHole()

	answer := make(chan error, 1)
	go func() {
		_, err := old.Exec(t.Context(), "select 1")
		answer <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, p.URL()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connect into a black hole: %v", err)
	}
	select {
	case err := <-answer:
		t.Errorf("an old connection got an answer: %v", err)
	default:
	}
	p.Heal()
	if err := <-answer; err != nil {
		t.Errorf("what was sent into the hole did not arrive after Heal: %v", err)
	}
}

func TestProxy_Delay(t *testing.T) {
	p := NewProxy(t, Postgres(t))
	conn := connect(t, p.URL())
	const delay = 20 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	if _, err := conn.Exec(t.Context(), "select 1"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*delay { // there and back
		t.Errorf("took %v, want at least %v", took, 2*delay)
	}
}

func TestProxy_Trap(t *testing.T) {
	direct := Postgres(t)
	p := NewProxy(t, direct)
	Exec(t, direct, "create table t (a text)")
	rows := func() int { t.Helper(); return query[int](t, direct, "select count(*)::int from t") }

	// begin opens a transaction that has written a row whose words alone must
	// not spring a trap.
	begin := func(t *testing.T) pgx.Tx {
		t.Helper()
		Exec(t, direct, "truncate t")
		tx, err := connect(t, p.URL()).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "insert into t values ('commit')"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "create temp table u (a text) on commit drop"); err != nil {
			t.Fatal(err)
		}
		return tx
	}

	t.Run("DropMessage", func(t *testing.T) {
		trap := p.Trap(Commit, DropMessage)
		if err := begin(t).Commit(t.Context()); err == nil {
			t.Error("commit succeeded")
		}
		<-trap.Sprung()
		// The server rolls back once it notices, and a lock waits for that.
		Exec(t, direct, "begin; lock t; commit")
		if n := rows(); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
	t.Run("DropAnswer", func(t *testing.T) {
		trap := p.Trap(Commit, DropAnswer)
		if err := begin(t).Commit(t.Context()); err == nil {
			t.Error("commit succeeded")
		}
		<-trap.Sprung()
		if n := rows(); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
	t.Run("HoldMessage", func(t *testing.T) {
		trap := p.Trap(Commit, HoldMessage)
		tx := begin(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-trap.Sprung()
			cancel()
		}()
		if err := tx.Commit(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("commit: %v", err)
		}
		if n := rows(); n != 0 {
			t.Errorf("%d rows before the message arrived, want none", n)
		}
		trap.Release()
		eventually(t, "the late commit is done", func() bool { return rows() == 1 })
	})
	t.Run("HoldAnswer", func(t *testing.T) {
		trap := p.Trap(Commit, HoldAnswer)
		tx := begin(t)
		committed := make(chan error, 1)
		go func() { committed <- tx.Commit(t.Context()) }()
		<-trap.Sprung()
		if n := rows(); n != 1 {
			t.Errorf("%d rows while the answer is held, want 1", n)
		}
		select {
		case err := <-committed:
			t.Errorf("the client has an answer: %v", err)
		default:
		}
		trap.Release()
		if err := <-committed; err != nil {
			t.Errorf("commit: %v", err)
		}
	})
	t.Run("Prepared", func(t *testing.T) {
		conn := connect(t, p.URL())
		const insert = "insert into t values ($1)"
		if _, err := conn.Exec(t.Context(), insert, "a"); err != nil { // prepares it
			t.Fatal(err)
		}
		trap := p.Trap(regexp.MustCompile(`^insert`), DropMessage)
		if _, err := conn.Exec(t.Context(), insert, "b"); err == nil {
			t.Error("insert succeeded")
		}
		<-trap.Sprung()
	})
	t.Run("TakenAway", func(t *testing.T) {
		trap := p.Trap(Commit, DropMessage)
		p.Heal()
		if err := begin(t).Commit(t.Context()); err != nil {
			t.Errorf("commit: %v", err)
		}
		select {
		case <-trap.Sprung():
			t.Error("the trap has sprung")
		default:
		}
	})
}
