package puller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-cdc/weir"
)

// world is a model of a source and a target in memory: one table with a unique
// column, its queue, the pulls and the ledger, by the rules of tagging and of
// the protocol. Every step checks the invariants that hold at every moment.
// Times are of the test's bubble.
type world struct {
	mu sync.Mutex

	// The source.
	rows     map[int]row
	versions map[int]int // of a key: its writes so far, deletes included
	inbox    []tag
	queue    map[place]*queued
	pulls    map[weir.GUID]*pullRow
	locked   map[int]bool // keys whose queue rows an open transaction holds

	// The target.
	id       weir.GUID
	ledger   map[weir.GUID]string
	target   map[int]row
	held     map[int]int        // the version of a key that the target has, deletes included
	underWay map[weir.GUID]bool // shipments that have entered the ledger and not ended

	// What only the test knows.
	lawless  bool // the ledger bars nobody
	released map[weir.GUID]bool
	applied  map[weir.GUID]int
	blamed   map[weir.GUID]map[int]string // rows that were said to be at fault, and how
	broken   []string
	claims   []weir.ClaimRequest
	shipped  []weir.Shipment
}

const (
	committed = "committed"
	revoked   = "revoked"
	rowBytes  = 100
	keyLimit  = 100
)

type row struct {
	version int
	unique  int
	bad     bool // the target cannot hold it
}

type tag struct {
	key  int
	kind string
	on   time.Time
}

type place struct {
	key  int
	kind string
}

type queued struct {
	on        time.Time
	pull      weir.GUID
	waits     weir.GUID
	capture   int32
	attempts  int
	notBefore time.Time
	dead      bool
	err       string
}

type pullRow struct {
	name, puller string
	ledger       weir.GUID
	state        weir.PullState
	until        time.Time
	keys         map[int]bool // claimed, and not postponed since
}

func newWorld() *world {
	return &world{
		rows: map[int]row{}, versions: map[int]int{}, queue: map[place]*queued{}, pulls: map[weir.GUID]*pullRow{}, locked: map[int]bool{},
		id: weir.GUID{1}, ledger: map[weir.GUID]string{}, target: map[int]row{}, held: map[int]int{}, underWay: map[weir.GUID]bool{},
		released: map[weir.GUID]bool{}, applied: map[weir.GUID]int{}, blamed: map[weir.GUID]map[int]string{},
	}
}

var testCapture = &weir.Capture{
	ID: 1, Table: weir.Table{Name: "t"}, Kind: weir.Plain, Key: []weir.Column{{Name: "id", Kind: weir.Int32}}, Queues: []string{weir.DefaultQueue},
}

func guidOf(key int) weir.GUID { return weir.GUID{15: byte(key)} }

// breaks notes an invariant that does not hold. w.mu is held.
func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// check asserts I1: what the target does not have is in the inbox or the queue.
func (w *world) check(after string) {
	for key, v := range w.versions {
		if w.held[key] == v {
			continue
		}
		_, in := w.queue[place{key, weir.InstanceInserted}]
		_, out := w.queue[place{key, weir.InstanceDeleted}]
		if !in && !out && !slices.ContainsFunc(w.inbox, func(t tag) bool { return t.key == key }) {
			w.breaks("I1: after %s: key %d is at version %d at the source, %d at the target, and nowhere between", after, key, v, w.held[key])
		}
	}
}

// put writes a row and tags it, in one transaction; del deletes one.
func (w *world) put(key int, r row, deferred bool) { w.write(key, &r, deferred) }
func (w *world) del(key int, deferred bool)        { w.write(key, nil, deferred) }

func (w *world) write(key int, r *row, deferred bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeLocked(key, r, deferred)
	w.check("a write")
}

func (w *world) writeLocked(key int, r *row, deferred bool) {
	w.versions[key]++
	kind := weir.InstanceDeleted
	if r != nil {
		r.version, kind = w.versions[key], weir.InstanceInserted
		w.rows[key] = *r
	} else {
		delete(w.rows, key)
	}
	if deferred {
		w.inbox = append(w.inbox, tag{key, kind, time.Now()})
		return
	}
	w.tag(key, kind)
}

// tag follows section 4 of the design.
func (w *world) tag(key int, kind string) {
	other := weir.InstanceDeleted
	if kind == weir.InstanceDeleted {
		other = weir.InstanceInserted
	}
	waits := func(q *queued) weir.GUID {
		if q == nil {
			return weir.GUID{}
		}
		return cmp.Or(q.pull, q.waits)
	}
	gone, old := w.queue[place{key, other}], w.queue[place{key, kind}]
	delete(w.queue, place{key, other})
	on := time.Now()
	if old != nil && !on.After(old.on) {
		on = old.on.Add(1)
	}
	w.queue[place{key, kind}] = &queued{on: on, waits: cmp.Or(waits(gone), waits(old)), capture: testCapture.ID}
}

// tagBoth is other code that inserts rows of both types.
func (w *world) tagBoth(key int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range []string{weir.InstanceInserted, weir.InstanceDeleted} {
		if w.queue[place{key, kind}] == nil {
			w.queue[place{key, kind}] = &queued{on: time.Now()}
		}
	}
}

func (w *world) fold(limit int) int {
	n := 0
	var kept []tag
	for _, t := range w.inbox {
		if n == limit || w.locked[t.key] {
			kept = append(kept, t)
			continue
		}
		n++
		kind := weir.InstanceDeleted
		if _, there := w.rows[t.key]; there {
			kind = weir.InstanceInserted
		}
		w.tag(t.key, kind)
	}
	w.inbox = kept
	w.check("fold")
	return n
}

func (w *world) live(pull weir.GUID) bool {
	p := w.pulls[pull]
	return p != nil && p.state == weir.StateClaimed
}

func (w *world) claimable(at place, q *queued, from time.Time) bool {
	if !q.pull.IsZero() || w.live(q.waits) || q.dead || q.notBefore.After(time.Now()) || w.locked[at.key] || q.on.Before(from) {
		return false
	}
	other := weir.InstanceDeleted
	if at.kind == weir.InstanceDeleted {
		other = weir.InstanceInserted
	}
	s := w.queue[place{at.key, other}]
	switch {
	case s == nil:
		return true
	case !s.pull.IsZero():
		return !w.live(s.pull)
	}
	first := s.on.Before(q.on) || s.on.Equal(q.on) && other < at.kind
	return !first || s.dead || s.notBefore.After(time.Now())
}

func (w *world) claim(req weir.ClaimRequest) (*weir.Pull, error) {
	w.claims = append(w.claims, req)
	var places []place
	for at, q := range w.queue {
		if w.claimable(at, q, req.From) {
			places = append(places, at)
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(w.queue[a].on.Compare(w.queue[b].on), cmp.Compare(a.key, b.key), cmp.Compare(a.kind, b.kind))
	})
	places = places[:min(len(places), req.Limit)]
	if len(places) == 0 {
		return nil, weir.ErrQueueEmpty
	}
	if w.pulls[req.PullGUID] != nil {
		w.breaks("a PullGUID is claimed twice")
	}
	p := &pullRow{name: req.Name, puller: req.Puller, ledger: req.Ledger, state: weir.StateClaimed, until: time.Now().Add(req.Lease), keys: map[int]bool{}}
	out := &weir.Pull{PullGUID: req.PullGUID, Name: req.Name, Queue: req.Queue, LeaseUntil: p.until}
	for _, at := range places {
		for guid, other := range w.pulls {
			if other.state == weir.StateClaimed && other.keys[at.key] {
				w.breaks("I4: key %d is claimed while pull %s has it", at.key, guid)
			}
		}
		q := w.queue[at]
		q.pull, q.waits = req.PullGUID, weir.GUID{}
		p.keys[at.key] = true
		out.Changes = append(out.Changes, weir.Change{
			InstanceGUID: guidOf(at.key), ChangeType: at.kind, ChangedOn: q.on, CaptureID: q.capture, Attempts: q.attempts,
			OldPrimaryKey: strconv.Itoa(at.key), HasOldPrimaryKey: true,
		})
	}
	w.pulls[req.PullGUID] = p
	return out, nil
}

// read gives each key as it is. The version travels in Change.OldPrimaryKey, so
// that deletes have one at the target too.
func (w *world) read(pull *weir.Pull, maxBytes int64) *weir.ReadResult {
	out := &weir.ReadResult{Batch: &weir.Batch{}}
	t := weir.TableBatch{Capture: testCapture, Encoding: weir.EncodingText}
	for i, c := range pull.Changes {
		key := int(c.InstanceGUID[15])
		if key >= keyLimit { // a key that no capture knows
			w.blame(pull.PullGUID, key, "value")
			out.Faults = append(out.Faults, weir.ChangeFault{Change: c, Err: &weir.RowError{Table: "?", Key: strconv.Itoa(key), Err: fmt.Errorf("no capture knows it")}})
			continue
		}
		if i > 0 && out.Batch.Bytes+rowBytes > maxBytes {
			out.Rest = append(out.Rest, c)
			continue
		}
		out.Batch.Bytes += rowBytes
		item := weir.Item{Change: c, Key: []weir.Field{[]byte(strconv.Itoa(key))}}
		item.Change.OldPrimaryKey = fmt.Sprintf("%d@%d", key, w.versions[key])
		if r, there := w.rows[key]; there {
			item.Rows = []weir.Row{{[]byte(strconv.Itoa(key)), []byte(strconv.Itoa(r.unique)), []byte(strconv.FormatBool(r.bad))}}
		}
		t.Items = append(t.Items, item)
	}
	if len(t.Items) > 0 {
		out.Batch.Tables = []weir.TableBatch{t}
	}
	return out
}

func (w *world) settle(pull weir.GUID) (weir.SettleResult, error) {
	p := w.pulls[pull]
	if p == nil {
		return weir.SettleResult{Done: true}, nil
	}
	if p.state == weir.StateReleased {
		w.breaks("pull %s is settled after it was released", pull)
		return weir.SettleResult{}, fmt.Errorf("pull %s was released", pull)
	}
	if w.ledger[pull] != committed {
		w.breaks("I1: pull %s is settled, and the ledger says %q", pull, w.ledger[pull])
	}
	p.state = weir.StateSettled
	n := w.leave(pull, func(at place, _ *queued) { delete(w.queue, at) })
	w.check("settle")
	return weir.SettleResult{Settled: n, Done: w.pulls[pull] == nil}, nil
}

func (w *world) release(pull weir.GUID) error {
	if w.ledger[pull] == committed {
		w.breaks("I5: pull %s is released, and the ledger says committed", pull)
	}
	p := w.pulls[pull]
	if p == nil {
		return nil
	}
	w.released[pull] = true
	if p.state == weir.StateSettled {
		w.breaks("pull %s is released after it was settled", pull)
		return fmt.Errorf("pull %s is settled", pull)
	}
	p.state = weir.StateReleased
	w.leave(pull, func(_ place, q *queued) { q.pull = weir.GUID{} })
	w.check("release")
	return nil
}

// leave does something to the pull's rows that are not locked; the pull goes with
// the last of them.
func (w *world) leave(pull weir.GUID, do func(place, *queued)) (n int) {
	left := false
	for at, q := range w.queue {
		switch {
		case q.pull != pull:
		case w.locked[at.key]:
			left = true
		default:
			do(at, q)
			n++
		}
	}
	if !left {
		delete(w.pulls, pull)
	}
	return n
}

func (w *world) postpone(pull weir.GUID, what []weir.Postponement) error {
	if !w.live(pull) {
		return fmt.Errorf("postpone: %w", weir.ErrLeaseLost)
	}
	for _, p := range what {
		if w.locked[int(p.InstanceGUID[15])] {
			return &weir.UnavailableError{Side: weir.AtSource, Op: "postpone", Err: fmt.Errorf("lock not had in time")}
		}
	}
	for _, p := range what {
		key := int(p.InstanceGUID[15])
		delete(w.pulls[pull].keys, key)
		why := w.blamed[pull][key]
		if p.Error != "" && why == "" {
			w.breaks("I8: an attempt of key %d is counted, and it was not at fault: %s", key, p.Error)
		}
		if p.Dead && why != "value" {
			w.breaks("I7: key %d is a dead letter, and %q is at fault", key, why)
		}
		q := w.queue[place{key, p.ChangeType}]
		if q == nil || q.pull != pull {
			continue
		}
		q.pull, q.err = weir.GUID{}, p.Error
		if p.Error != "" {
			q.attempts++
		}
		q.dead, q.notBefore = p.Dead, time.Time{}
		if p.Delay > 0 {
			q.notBefore = time.Now().Add(p.Delay)
			if p.Align {
				if t := time.Now().Truncate(p.Delay); t.Before(time.Now()) {
					q.notBefore = t.Add(p.Delay)
				} else {
					q.notBefore = t
				}
			}
		}
	}
	w.check("postpone")
	return nil
}

func (w *world) extend(pull weir.GUID, lease time.Duration) error {
	if !w.live(pull) {
		return fmt.Errorf("extend: %w", weir.ErrLeaseLost)
	}
	w.pulls[pull].until = time.Now().Add(lease)
	return nil
}

func (w *world) expired(name string, ledger weir.GUID) ([]weir.Expired, error) {
	var out []weir.Expired
	for guid, p := range w.pulls {
		if p.name != name || p.state == weir.StateClaimed && !p.until.Before(time.Now()) {
			continue
		}
		if p.ledger != ledger {
			return nil, &weir.ConfigError{Key: "target", Err: fmt.Errorf("pull %s went into another ledger", guid), Hint: "the target that it was"}
		}
		out = append(out, weir.Expired{PullGUID: guid, Puller: p.puller, Rows: len(p.keys), State: p.state})
	}
	return out, nil
}

// enter is the first step of a shipment's transaction.
func (w *world) enter(pull weir.GUID) (done bool, err error) {
	switch {
	case w.underWay[pull]:
		return false, &weir.UnavailableError{Side: weir.AtTarget, Op: "ship", Err: fmt.Errorf("another shipment of it is under way")}
	case w.lawless:
		return false, nil
	case w.ledger[pull] == committed:
		return true, nil
	case w.ledger[pull] == revoked:
		return false, weir.ErrRevoked
	}
	return false, nil
}

func (w *world) ship(s weir.Shipment) error {
	if done, err := w.enter(s.PullGUID); done || err != nil {
		return err
	}
	rows, faults := w.try(s.Batch)
	if len(faults) > 0 {
		return faults[0].Err
	}
	if w.released[s.PullGUID] {
		w.breaks("I4: pull %s is committed after it was released", s.PullGUID)
	}
	if w.applied[s.PullGUID]++; w.applied[s.PullGUID] > 1 {
		w.breaks("I5: pull %s has its effect twice", s.PullGUID)
	}
	for _, t := range s.Batch.Tables {
		for _, item := range t.Items {
			key, version := versionOf(item)
			if version < w.held[key] {
				w.breaks("I3: key %d goes back from version %d to %d", key, w.held[key], version)
			}
			w.held[key] = version
		}
	}
	w.target = rows
	w.ledger[s.PullGUID] = committed
	for _, guid := range s.Forget {
		if w.pulls[guid] != nil {
			w.breaks("pull %s is forgotten while the source names it", guid)
		}
		delete(w.ledger, guid)
	}
	w.shipped = append(w.shipped, s)
	w.check("ship")
	return nil
}

// try applies a batch to a copy of the target, deletes first, and returns it with
// the items that cannot be there.
func (w *world) try(b *weir.Batch) (map[int]row, []weir.Fault) {
	var faults []weir.Fault
	out := map[[2]int]bool{}
	fault := func(i, j int, constraint bool, why string) {
		out[[2]int{i, j}] = true
		_, version := versionOf(b.Tables[i].Items[j])
		faults = append(faults, weir.Fault{Table: i, Item: j, Err: &weir.RowError{
			Table: "t", Key: string(b.Tables[i].Items[j].Key[0]), Column: "c", Constraint: constraint, Err: fmt.Errorf("%s, version %d", why, version),
		}})
	}
	for i, t := range b.Tables {
		for j, item := range t.Items {
			if len(item.Rows) > 0 && string(item.Rows[0][2]) == "true" {
				fault(i, j, false, "it does not fit")
			}
		}
	}
	for {
		rows := maps.Clone(w.target)
		at := map[int][2]int{}
		for i, t := range b.Tables {
			for j, item := range t.Items {
				if out[[2]int{i, j}] {
					continue
				}
				key, version := versionOf(item)
				delete(rows, key)
				if len(item.Rows) > 0 {
					u, _ := strconv.Atoi(string(item.Rows[0][1]))
					rows[key], at[key] = row{version: version, unique: u}, [2]int{i, j}
				}
			}
		}
		n := len(faults)
		users := map[int]int{}
		for _, key := range slices.Sorted(maps.Keys(rows)) {
			u := rows[key].unique
			first, used := users[u]
			users[u] = key
			if !used {
				continue
			}
			if place, ok := at[key]; ok && !out[place] {
				fault(place[0], place[1], true, "its value is in use")
			}
			if place, ok := at[first]; ok && !out[place] {
				fault(place[0], place[1], true, "its value is in use")
			}
		}
		if len(faults) == n {
			return rows, faults
		}
	}
}

func versionOf(item weir.Item) (key, version int) {
	k, v, _ := strings.Cut(item.Change.OldPrimaryKey, "@")
	key, _ = strconv.Atoi(k)
	version, _ = strconv.Atoi(v)
	return key, version
}

func (w *world) blame(pull weir.GUID, key int, why string) {
	if w.blamed[pull] == nil {
		w.blamed[pull] = map[int]string{}
	}
	w.blamed[pull][key] = why
}

func (w *world) isolate(b *weir.Batch) []weir.Fault {
	_, faults := w.try(b)
	for _, f := range faults {
		key, _ := versionOf(b.Tables[f.Table].Items[f.Item])
		why := "value"
		if f.Err.Constraint {
			why = "constraint"
		}
		for guid, p := range w.pulls {
			if p.keys[key] {
				w.blame(guid, key, why)
			}
		}
	}
	return faults
}

func (w *world) revoke(pull weir.GUID) (bool, error) {
	if w.underWay[pull] {
		return false, &weir.UnavailableError{Side: weir.AtTarget, Op: "revoke", Err: fmt.Errorf("its shipment is under way")}
	}
	if w.ledger[pull] == "" {
		w.ledger[pull] = revoked
	}
	return w.ledger[pull] == committed, nil
}

// left describes what is not at rest: queued, in flight, or different.
func (w *world) left() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, q := range w.queue {
		out = append(out, fmt.Sprintf("queue: key %d %s: %+v", at.key, at.kind, *q))
	}
	for guid, p := range w.pulls {
		out = append(out, fmt.Sprintf("pull %s: %+v", guid, *p))
	}
	if len(w.inbox) > 0 {
		out = append(out, fmt.Sprintf("inbox: %v", w.inbox))
	}
	if !maps.Equal(w.rows, w.target) {
		out = append(out, fmt.Sprintf("source %v, target %v", w.rows, w.target))
	}
	slices.Sort(out)
	return out
}
