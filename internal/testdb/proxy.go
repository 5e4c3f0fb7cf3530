package testdb

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Commit matches a statement that ends a transaction with its changes kept, by
// the word that all engines have for it.
var Commit = regexp.MustCompile(`(?im)(^|;)\s*commit\b`)

// An Action is what a [Trap] does with a client's message, or the answer to it.
type Action int

const (
	// DropMessage cuts the connection; the server never gets the message.
	DropMessage Action = iota
	// DropAnswer cuts the connection once the server has answered; the
	// client never gets the answer.
	DropAnswer
	// HoldMessage keeps the message from the server until [Trap.Release],
	// whatever becomes of the client meanwhile: a commit that comes late.
	HoldMessage
	// HoldAnswer keeps the answer from the client until [Trap.Release]: a
	// client that must time out.
	HoldAnswer
)

// A Proxy stands between a client and a PostgreSQL or SQL Server server and
// breaks their connection on demand. It listens on 127.0.0.1. Its methods may be
// called from any goroutine.
type Proxy struct {
	t       testing.TB
	url     *url.URL    // of the database, through the proxy
	server  string      // the server's host:port
	newWire func() wire // what the two of them speak
	record  string      // directory for statements, or ""

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	closed   bool
	gate     chan struct{} // closed while bytes may pass
	delay    time.Duration
	trap     *Trap // the one that is set, nil once it has sprung
	links    map[*link]bool
	running  sync.WaitGroup
}

// A wire is what a proxy must know of a protocol, for one connection.
type wire interface {
	// request reads one message of the client, whole, and gives the text of
	// the statement that the message has executed, or "".
	request(r *bufio.Reader) (msg []byte, statement string, err error)
	// answered tells whether what the server has sent since a request is the
	// whole answer to it.
	answered(answer []byte) bool
}

// NewProxy starts a proxy before the server of a database URL, which must name
// host and port. It ends with the test.
func NewProxy(t testing.TB, databaseURL string) *Proxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil || u.Hostname() == "" || u.Port() == "" {
		t.Fatalf("testdb: the proxy needs a URL with host and port")
	}
	port, err := freePort()
	if err != nil {
		t.Fatalf("testdb: start proxy: %v", err)
	}
	p := &Proxy{t: t, server: u.Host, gate: make(chan struct{}), links: map[*link]bool{}}
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	query := u.Query()
	// The proxy reads the messages: no TLS.
	if u.Scheme == "sqlserver" {
		p.newWire = func() wire { return tdsWire{} }
		query.Set("encrypt", "disable")
	} else {
		p.newWire = func() wire { return &postgresWire{prepared: map[string]string{}} }
		query.Set("sslmode", "disable")
	}
	u.RawQuery = query.Encode()
	p.url = u
	p.Heal()
	t.Cleanup(p.close)
	return p
}

// URL returns the URL of the database through the proxy, without TLS.
func (p *Proxy) URL() string { return p.url.String() }

// Cut resets every connection. New ones are served as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse refuses new connections, as a machine without the server does, until
// [Proxy.Heal]. Those open live on: see [Proxy.Cut].
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// BlackHole lets nothing pass, on old connections and new ones, until
// [Proxy.Heal]. What was sent meanwhile then arrives.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.gate) {
		p.gate = make(chan struct{})
	}
}

// Delay makes each message and each piece of an answer take d longer. Zero
// ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends [Proxy.Refuse], [Proxy.BlackHole] and [Proxy.Delay] and takes away
// a trap that has not sprung.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.trap = 0, nil
	if !isClosed(p.gate) {
		close(p.gate)
	}
	if p.listener == nil && !p.closed {
		l, err := net.Listen("tcp", p.url.Host)
		if err != nil {
			p.t.Errorf("testdb: proxy: %v", err)
			return
		}
		p.listener = l
		p.running.Go(func() { p.accept(l) })
	}
}

// A Trap acts once, on the first statement that matches.
type Trap struct {
	statement *regexp.Regexp
	action    Action
	sprung    chan struct{}
	released  chan struct{}
	release   sync.Once
}

// Trap waits for a statement of any client, as text, with parameters or prepared
// before, and acts on its execution. It replaces a trap that has not sprung.
//
// On SQL Server a procedure that is called by name counts as "exec name", and
// the transactions of database/sql as "begin transaction", "commit transaction"
// and "rollback transaction".
func (p *Proxy) Trap(statement *regexp.Regexp, action Action) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = &Trap{statement: statement, action: action, sprung: make(chan struct{}), released: make(chan struct{})}
	return p.trap
}

// Sprung is closed once the trap has acted. With [DropAnswer] and [HoldAnswer]
// the server has executed the statement by then.
func (tr *Trap) Sprung() <-chan struct{} { return tr.sprung }

// Release lets go what the trap holds or will hold.
func (tr *Trap) Release() { tr.release.Do(func() { close(tr.released) }) }

func (p *Proxy) close() {
	p.Refuse()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // refused from now on
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve carries one connection until either side ends it.
func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client, done: make(chan struct{}), wire: p.newWire()}
	defer l.close()
	p.mu.Lock()
	closed := p.closed
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	if closed || !p.pass(l) {
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil || !l.attach(server) {
		return
	}
	p.running.Go(func() {
		defer l.close()
		p.answers(l)
	})
	p.requests(l)
}

// pass waits until bytes may pass. It is false once the connection has ended.
func (p *Proxy) pass(l *link) bool {
	p.mu.Lock()
	gate, delay := p.gate, p.delay
	p.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-l.done:
			return false
		}
	}
	return l.wait(gate)
}

// requests carries messages from the client to the server.
func (p *Proxy) requests(l *link) {
	r := bufio.NewReader(l.client)
	for {
		msg, statement, err := l.wire.request(r)
		if err != nil {
			return
		}
		if p.record != "" && statement != "" {
			p.write(statement)
		}
		if tr := p.spring(statement); tr != nil {
			switch tr.action {
			case DropMessage:
				l.cut()
				close(tr.sprung)
				return
			case HoldMessage:
				close(tr.sprung)
				if !l.wait(tr.released) {
					return
				}
			case DropAnswer, HoldAnswer:
				l.trap.Store(tr)
			}
		}
		if !p.pass(l) {
			return
		}
		if _, err := l.server.Write(msg); err != nil {
			return
		}
	}
}

// answers carries bytes from the server to the client.
func (p *Proxy) answers(l *link) {
	buf := make([]byte, 32<<10)
	var held []byte // the answer so far that a trap keeps
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		out := buf[:n]
		if tr := l.trap.Load(); tr != nil {
			held = append(held, out...)
			if !l.wire.answered(held) {
				continue
			}
			if tr.action == DropAnswer {
				l.cut()
				close(tr.sprung)
				return
			}
			close(tr.sprung)
			if !l.wait(tr.released) {
				return
			}
			out, held = held, nil
			l.trap.Store(nil)
		}
		if !p.pass(l) {
			return
		}
		if _, err := l.client.Write(out); err != nil {
			return
		}
	}
}

// write puts a statement into a file, by its hash: one for each text.
func (p *Proxy) write(statement string) {
	name := filepath.Join(p.record, fmt.Sprintf("%x.sql", sha256.Sum256([]byte(statement))))
	if err := os.WriteFile(name, []byte(statement), 0o644); err != nil {
		p.t.Errorf("testdb: record statement: %v", err)
	}
}

// spring returns the trap that a statement springs, if any.
func (p *Proxy) spring(statement string) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	tr := p.trap
	if statement == "" || tr == nil || !tr.statement.MatchString(statement) {
		return nil
	}
	p.trap = nil
	return tr
}

// A link is one client's connection and the server's that belongs to it.
type link struct {
	client net.Conn
	wire   wire
	done   chan struct{}        // closed when the connection has ended
	trap   atomic.Pointer[Trap] // the one that keeps the server's answer

	mu     sync.Mutex
	server net.Conn
}

func (l *link) attach(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClosed(l.done) {
		_ = server.Close()
		return false
	}
	l.server = server
	return true
}

// cut ends the connection with a reset of both sides.
func (l *link) cut() { l.end(true) }

// close ends the connection in the ordinary way.
func (l *link) close() { l.end(false) }

func (l *link) end(reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClosed(l.done) {
		return
	}
	close(l.done)
	for _, conn := range []net.Conn{l.client, l.server} {
		if conn == nil {
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// wait waits for ch to be closed. It is false when the connection ends first.
func (l *link) wait(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-l.done:
		return false
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
