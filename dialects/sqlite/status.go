package sqlite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-cdc/weir"
)

// stateSQL classifies a row q of a queue; ?1 is the time.
const stateSQL = `case
	when q.pull_guid is not null then 'in flight'
	when q.not_before = 9223372036854775807 then 'dead'
	when q.not_before > ?1 then 'postponed'
	when exists (select 1 from weir_pulls w where w.pull_guid = q.waits_for_pull_guid and w.state = 'claimed') then 'waiting'
	else 'ready' end`

// Status counts the queues' changes and lists the live pulls, in one snapshot.
func (s *Source) Status(ctx context.Context) (*weir.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out := &weir.Status{}
	err := s.db.read(ctx, "status", func(ctx context.Context, c *session) error {
		t, err := clock(ctx, c)
		if err != nil {
			return err
		}
		out.Now = timeOf(t)
		if err := c.QueryRowContext(ctx, "select count(*) from weir_inbox").Scan(&out.Inbox); err != nil {
			return err
		}
		queues, err := readQueues(ctx, c)
		if err != nil {
			return err
		}
		for _, q := range queues {
			st, err := queueStatus(ctx, c, q, t)
			if err != nil {
				return err
			}
			out.Queues = append(out.Queues, *st)
		}
		var pull, ledger string
		var claimed, until int64
		var p weir.LivePull
		return c.each(ctx, "select pull_guid, name, queue, puller, ledger, state, claimed_on, lease_until, rows from weir_pulls order by claimed_on, pull_guid", nil,
			[]any{&pull, &p.Name, &p.Queue, &p.Puller, &ledger, &p.State, &claimed, &until, &p.Rows}, func() error {
				p.PullGUID, _ = weir.ParseGUID(pull) // zero for what weir did not write
				p.Ledger, _ = weir.ParseGUID(ledger)
				p.ClaimedOn, p.LeaseUntil = timeOf(claimed), timeOf(until)
				out.Pulls = append(out.Pulls, p)
				return nil
			})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func queueStatus(ctx context.Context, c *session, queue string, t int64) (*weir.QueueStatus, error) {
	st := &weir.QueueStatus{Queue: queue}
	var g weir.QueueGroup
	var concept, state string
	var oldest, n int64
	last := ""
	err := c.each(ctx, fmt.Sprintf(`select coalesce(max(c.table_name), ''), coalesce(q.concept_guid, ''), q.change_type, %s as state, min(q.changed_on), count(*)
		from %s q left join weir_captures c on c.capture_id = q.capture_id
		group by q.capture_id, q.concept_guid, q.change_type, state order by 1, 2, 3`, stateSQL, ident(queueTable(queue))), []any{t},
		[]any{&g.Table, &concept, &g.ChangeType, &state, &oldest, &n}, func() error {
			if me := g.Table + "\x00" + concept + "\x00" + g.ChangeType; me != last || len(st.Groups) == 0 {
				last = me
				k := g
				k.ConceptGUID, _ = weir.ParseGUID(concept) // zero where there is none
				k.Depth, k.OldestAge = 0, 0
				st.Groups = append(st.Groups, k)
			}
			group := &st.Groups[len(st.Groups)-1]
			age := time.Duration(max(0, t-oldest)) * time.Microsecond
			group.Depth += n
			group.OldestAge = max(group.OldestAge, age)
			st.Depth += n
			if weir.ChangeState(state) != weir.Dead {
				st.OldestAge = max(st.OldestAge, age)
			}
			switch weir.ChangeState(state) {
			case weir.Ready:
				st.Ready += n
			case weir.InFlight:
				st.InFlight += n
			case weir.Waiting:
				st.Waiting += n
			case weir.Postponed:
				st.Postponed += n
			case weir.Dead:
				st.Dead += n
			}
			return nil
		})
	return st, err
}

// selection is the condition of a selector over q; ?1 is the time.
func selection(sel weir.QueueSelector, t int64) (string, []any) {
	where := []string{"true"}
	args := []any{t}
	add := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if !sel.Pull.IsZero() {
		add("q.pull_guid = ?%d", sel.Pull.String())
	}
	if sel.CaptureID != 0 {
		add("q.capture_id = ?%d", sel.CaptureID)
	}
	if !sel.InstanceGUID.IsZero() {
		add("q.instance_guid = ?%d", sel.InstanceGUID.String())
	}
	if sel.ChangeType != "" {
		add("q.change_type = ?%d", sel.ChangeType)
	}
	if sel.State != "" {
		add("("+stateSQL+") = ?%d", string(sel.State))
	}
	return strings.Join(where, " and "), args
}

func limitOf(sel weir.QueueSelector) string {
	if sel.Limit > 0 {
		return fmt.Sprintf(" limit %d", sel.Limit)
	}
	return ""
}

func queueName(sel weir.QueueSelector) string {
	if sel.Queue == "" {
		return weir.DefaultQueue
	}
	return sel.Queue
}

// List returns changes of a queue, the oldest first.
func (s *Source) List(ctx context.Context, sel weir.QueueSelector) ([]weir.QueueRow, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var out []weir.QueueRow
	err := s.db.read(ctx, "list the queue", func(ctx context.Context, c *session) error {
		table, err := queueOf(ctx, c, queueName(sel))
		if err != nil {
			return err
		}
		t, err := clock(ctx, c)
		if err != nil {
			return err
		}
		where, args := selection(sel, t)
		args = append(args, queueName(sel))
		r := weir.QueueRow{Queue: queueName(sel)}
		var instance, concept, pull string
		var on, notBefore int64
		return c.each(ctx, fmt.Sprintf(`select coalesce(c.table_name, ''), q.instance_guid, q.change_type, q.changed_on, coalesce(q.concept_guid, ''), coalesce(q.old_primary_key, ''),
				coalesce(q.pull_guid, ''), %s, coalesce(q.attempts, 0), coalesce(q.not_before, 0), coalesce(f.last_error, '')
			from %s q
			left join weir_captures c on c.capture_id = q.capture_id
			left join weir_failures f on f.queue = ?%d and f.instance_guid = q.instance_guid and f.change_type = q.change_type
			where %s order by q.changed_on, q.instance_guid, q.change_type%s`, stateSQL, table, len(args), where, limitOf(sel)), args,
			[]any{&r.Table, &instance, &r.ChangeType, &on, &concept, &r.OldPrimaryKey, &pull, &r.State, &r.Attempts, &notBefore, &r.LastError}, func() error {
				k := r
				k.InstanceGUID, _ = weir.ParseGUID(instance) // zero for what weir did not write
				k.ConceptGUID, _ = weir.ParseGUID(concept)
				k.PullGUID, _ = weir.ParseGUID(pull)
				k.ChangedOn = timeOf(on)
				if notBefore != 0 && notBefore != forever {
					k.NotBefore = timeOf(notBefore)
				}
				out = append(out, k)
				return nil
			})
	})
	return out, err
}

// Retry makes postponed and dead changes claimable at once, with their attempts
// forgotten, and returns how many.
func (s *Source) Retry(ctx context.Context, sel weir.QueueSelector) (int, error) {
	return s.reset(ctx, sel, "q.not_before is not null", func(int64) any { return nil }, "attempts = null")
}

// Delay keeps changes that no pull holds from being claimed for a time, and
// returns how many.
func (s *Source) Delay(ctx context.Context, sel weir.QueueSelector, d time.Duration) (int, error) {
	return s.reset(ctx, sel, "true", func(t int64) any { return after(t, d) }, "attempts = attempts")
}

func (s *Source) reset(ctx context.Context, sel weir.QueueSelector, which string, until func(int64) any, set string) (int, error) {
	if !sel.Pull.IsZero() {
		return 0, &weir.ConfigError{Key: "queue", Err: fmt.Errorf("changes in flight belong to their pull"), Hint: "weir queue release " + sel.Pull.String()}
	}
	var n int64
	err := s.call(ctx, "change the queue", weir.GUID{}, func(ctx context.Context, c *session) error {
		table, err := queueOf(ctx, c, queueName(sel))
		if err != nil {
			return err
		}
		t, err := clock(ctx, c)
		if err != nil {
			return err
		}
		where, args := selection(sel, t)
		args = append(args, until(t))
		res, err := c.ExecContext(ctx, fmt.Sprintf(`update %s set not_before = ?%d, %s where (instance_guid, change_type) in (
				select q.instance_guid, q.change_type from %s q where q.pull_guid is null and %s and %s order by q.changed_on%s)`,
			table, len(args), set, table, which, where, limitOf(sel)), args...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return int(n), err
}
