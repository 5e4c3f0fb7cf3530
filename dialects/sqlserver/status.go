package sqlserver

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
)

// state is where a change q stands; w is the live pull that it waits for.
const state = `CASE WHEN q.PullGUID IS NOT NULL THEN 'in flight' WHEN q.NotBefore >= '9999-12-31' THEN 'dead'
    WHEN q.NotBefore > SYSUTCDATETIME() THEN 'postponed' WHEN w.PullGUID IS NOT NULL THEN 'waiting' ELSE 'ready' END`

// joins find a change's table and the pull that it waits for.
func (s *Source) joins() string {
	return fmt.Sprintf(`LEFT JOIN %s c ON c.CaptureID = q.CaptureID LEFT JOIN %s w ON w.PullGUID = q.WaitsForPullGUID AND w.State = 'claimed'`, s.own("GI_Captures"), s.own("GI_Pulls"))
}

// Status counts the queues' changes and lists the live pulls. Rows that users
// hold are counted as they stand at the moment: it waits for none.
func (s *Source) Status(ctx context.Context) (*weir.Status, error) {
	out := &weir.Status{Queues: []weir.QueueStatus{}, Pulls: []weir.LivePull{}}
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	err := s.looking(ctx, "status", func(q queryer) error {
		if err := q.QueryRowContext(ctx, "SELECT SYSUTCDATETIME(), (SELECT COUNT_BIG(*) FROM "+s.own("GI_Inbox")+")").Scan(&out.Now, &out.Inbox); err != nil {
			return err
		}
		out.Now = out.Now.UTC()
		names, err := s.queues(ctx, q)
		if err != nil {
			return err
		}
		for _, name := range names {
			qs := weir.QueueStatus{Queue: name, Groups: []weir.QueueGroup{}}
			var g weir.QueueGroup
			var concept []byte
			var where string
			var n, age int64
			if err := each(ctx, q, fmt.Sprintf(`SELECT d.TableName, d.ConceptGUID, d.ChangeType, d.State, COUNT_BIG(*), COALESCE(MAX(d.Age), 0)
FROM (SELECT COALESCE(c.TableSchema + N'.' + c.TableName, N'') AS TableName, q.ConceptGUID, q.ChangeType, %s AS State, DATEDIFF_BIG(microsecond, q.ChangedOn, SYSUTCDATETIME()) AS Age
      FROM %s q %s) d
GROUP BY d.TableName, d.ConceptGUID, d.ChangeType, d.State ORDER BY d.TableName, d.ChangeType, d.State`, state, s.own(queueTable(name)), s.joins()), nil,
				[]any{&g.Table, &concept, &g.ChangeType, &where, &n, &age}, func() error {
					one := weir.QueueGroup{Table: g.Table, ChangeType: g.ChangeType, Depth: n, OldestAge: max(time.Duration(age)*time.Microsecond, 0)}
					if concept != nil {
						one.ConceptGUID = guidOf(concept)
					}
					qs.Add(one, weir.ChangeState(where))
					return nil
				}); err != nil {
				return err
			}
			out.Queues = append(out.Queues, qs)
		}
		var p weir.LivePull
		var guid, ledger []byte
		var state string
		return each(ctx, q, "SELECT PullGUID, Name, Queue, Puller, Ledger, State, ClaimedOn, LeaseUntil, [Rows] FROM "+s.own("GI_Pulls")+" ORDER BY ClaimedOn, PullGUID", nil,
			[]any{&guid, &p.Name, &p.Queue, &p.Puller, &ledger, &state, &p.ClaimedOn, &p.LeaseUntil, &p.Rows}, func() error {
				one := p
				one.PullGUID, one.Ledger, one.State = guidOf(guid), guidOf(ledger), weir.PullState(state)
				one.ClaimedOn, one.LeaseUntil = one.ClaimedOn.UTC(), one.LeaseUntil.UTC()
				out.Pulls = append(out.Pulls, one)
				return nil
			})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// looking runs queries for people: in one snapshot where the database allows
// it, else without waiting, the uncommitted included. Nothing is decided by
// them.
func (s *Source) looking(ctx context.Context, op string, f func(queryer) error) error {
	conn, err := s.Conn(ctx)
	if err != nil {
		return translate(err, weir.AtSource, op, "")
	}
	defer conn.Close()
	var snapshots int
	if err := conn.QueryRowContext(ctx, "SELECT CONVERT(int, d.snapshot_isolation_state) FROM sys.databases d WHERE d.database_id = DB_ID()").Scan(&snapshots); err != nil {
		return translate(err, weir.AtSource, op, "")
	}
	level := "READ UNCOMMITTED"
	if snapshots == 1 {
		level = "SNAPSHOT"
	}
	if _, err := conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL "+level); err != nil {
		return translate(err, weir.AtSource, op, "")
	}
	t, end, err := begin(ctx, conn)
	if err != nil {
		discard(conn)
		return translate(err, weir.AtSource, op, "")
	}
	defer end()
	err = f(t)
	t.rollback()
	if _, lerr := conn.ExecContext(context.WithoutCancel(ctx), "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); lerr != nil {
		discard(conn)
	}
	return translate(err, weir.AtSource, op, "")
}

// selection is the WHERE of a selector over q, with its parameters.
func selection(sel weir.QueueSelector) (string, []any) {
	where := []string{"1 = 1"}
	var args []any
	add := func(column, name string, v any) {
		where = append(where, "q."+column+" = @"+name)
		args = append(args, sql.Named(name, v))
	}
	if !sel.Pull.IsZero() {
		add("PullGUID", "pull", mssql.UniqueIdentifier(sel.Pull))
	}
	if sel.CaptureID != 0 {
		add("CaptureID", "capture", sel.CaptureID)
	}
	if !sel.InstanceGUID.IsZero() {
		add("InstanceGUID", "instance", mssql.UniqueIdentifier(sel.InstanceGUID))
	}
	if sel.ChangeType != "" {
		add("ChangeType", "type", mssql.VarChar(sel.ChangeType))
	}
	return strings.Join(where, " AND "), args
}

func queueOf(sel weir.QueueSelector) string {
	if sel.Queue == "" {
		return weir.DefaultQueue
	}
	return sel.Queue
}

// known makes sure that a queue exists: its name becomes a table's.
func (s *Source) known(ctx context.Context, queue string) error {
	names, err := s.queues(ctx, s)
	if err != nil {
		return s.uninstalled(err)
	}
	for _, n := range names {
		if n == queue {
			return nil
		}
	}
	return &weir.ConfigError{Key: "queue", Err: fmt.Errorf("there is no queue %q", queue), Hint: strings.Join(names, ", ")}
}

// List returns changes of a queue, the oldest first.
func (s *Source) List(ctx context.Context, sel weir.QueueSelector) ([]weir.QueueRow, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	queue := queueOf(sel)
	if err := s.known(ctx, queue); err != nil {
		return nil, err
	}
	where, args := selection(sel)
	top := ""
	if sel.Limit > 0 {
		top = fmt.Sprintf("TOP (%d) ", sel.Limit)
	}
	of := ""
	if sel.State != "" {
		of = "WHERE l.State = @state"
		args = append(args, sql.Named("state", mssql.VarChar(sel.State)))
	}
	args = append(args, sql.Named("queue", mssql.VarChar(queue)))
	text := fmt.Sprintf(`SELECT %sl.* FROM (
    SELECT COALESCE(c.TableSchema + N'.' + c.TableName, N'') AS TableName, q.InstanceGUID, q.ChangeType, q.ChangedOn, q.ConceptGUID, COALESCE(q.OldPrimaryKey, '') AS OldPrimaryKey,
           q.PullGUID, %s AS State, COALESCE(q.Attempts, 0) AS Attempts, CASE WHEN q.NotBefore < '9999-12-31' THEN q.NotBefore END AS NotBefore, COALESCE(f.LastError, N'') AS LastError
    FROM %s q %s
    LEFT JOIN %s f ON f.Queue = @queue AND f.InstanceGUID = q.InstanceGUID AND f.ChangeType = q.ChangeType
    WHERE %s) l
%s ORDER BY l.ChangedOn, l.InstanceGUID, l.ChangeType`, top, state, s.own(queueTable(queue)), s.joins(), s.own("GI_Failures"), where, of)
	out := []weir.QueueRow{}
	var instance, concept, pull []byte
	var at string
	var notBefore sql.NullTime
	r := weir.QueueRow{Queue: queue}
	err := s.looking(ctx, "list queue", func(q queryer) error {
		return each(ctx, q, text, args, []any{&r.Table, &instance, &r.ChangeType, &r.ChangedOn, &concept, &r.OldPrimaryKey, &pull, &at, &r.Attempts, &notBefore, &r.LastError}, func() error {
			row := r
			row.InstanceGUID, row.State, row.ChangedOn = guidOf(instance), weir.ChangeState(at), r.ChangedOn.UTC()
			if concept != nil {
				row.ConceptGUID = guidOf(concept)
			}
			if pull != nil {
				row.PullGUID = guidOf(pull)
			}
			if notBefore.Valid {
				row.NotBefore = notBefore.Time.UTC()
			}
			out = append(out, row)
			return nil
		})
	})
	return out, err
}

// Retry makes postponed and dead changes claimable at once, with their attempts
// forgotten, and returns how many. Changes in flight are left alone.
func (s *Source) Retry(ctx context.Context, sel weir.QueueSelector) (int, error) {
	return s.reset(ctx, sel, "NULL", "NULL", " AND q.NotBefore IS NOT NULL")
}

// Delay keeps changes that no pull holds from being claimed for a time, and
// returns how many.
func (s *Source) Delay(ctx context.Context, sel weir.QueueSelector, d time.Duration) (int, error) {
	ms := d.Milliseconds()
	return s.reset(ctx, sel, fmt.Sprintf("DATEADD(millisecond, %d, DATEADD(day, %d, SYSUTCDATETIME()))", ms%86400000, ms/86400000), "q.Attempts", "")
}

func (s *Source) reset(ctx context.Context, sel weir.QueueSelector, notBefore, attempts, only string) (int, error) {
	if !sel.Pull.IsZero() {
		return 0, &weir.ConfigError{Key: "queue", Err: fmt.Errorf("changes in flight belong to their pull"), Hint: "weir queue release " + sel.Pull.String()}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	queue := queueOf(sel)
	if err := s.known(ctx, queue); err != nil {
		return 0, err
	}
	where, args := selection(sel)
	if sel.State != "" {
		where += " AND @state = CASE WHEN q.NotBefore >= '9999-12-31' THEN 'dead' WHEN q.NotBefore > SYSUTCDATETIME() THEN 'postponed' ELSE 'ready' END"
		args = append(args, sql.Named("state", mssql.VarChar(sel.State)))
	}
	var n int64
	err := s.tx(ctx, "queue", weir.GUID{}, func(t *session) error {
		r, err := t.ExecContext(ctx, fmt.Sprintf("UPDATE q SET NotBefore = %s, Attempts = %s FROM %s q WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE q.PullGUID IS NULL AND %s%s",
			notBefore, attempts, s.own(queueTable(queue)), where, only), args...)
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	return int(n), err
}
