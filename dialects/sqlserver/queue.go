package sqlserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/weir-cdc/weir"
)

// Numbers of the routines' own errors.
const (
	errNotLive = 51001
	errNoQueue = 51006
)

// registered is a capture of the registry with what identifies its table.
type registered struct {
	weir.Capture
	tableID  int64
	keyTypes []string
}

func (s *Source) registered(ctx context.Context, q queryer) ([]registered, error) {
	queues := map[int32][]string{}
	var id int32
	var queue string
	if err := each(ctx, q, "SELECT CaptureID, Queue FROM "+s.own("GI_CaptureQueues")+" ORDER BY CaptureID, Queue", nil, []any{&id, &queue}, func() error {
		queues[id] = append(queues[id], queue)
		return nil
	}); err != nil {
		return nil, s.uninstalled(err)
	}
	var list []registered
	var c registered
	var kind, tagging, key, types, rowKey string
	var concept []byte
	var conceptColumn, oldKey sql.NullString
	err := each(ctx, q, `SELECT CaptureID, TableSchema, TableName, TableID, Kind, ChangeType, ConceptGUID, ConceptColumn, OldKeyColumn, KeyColumns, KeyTypes, IsSet, RowKey, Tagging
FROM `+s.own("GI_Captures")+" ORDER BY CaptureID", nil,
		[]any{&c.ID, &c.Table.Schema, &c.Table.Name, &c.tableID, &kind, &c.ChangeType, &concept, &conceptColumn, &oldKey, &key, &types, &c.Set, &rowKey, &tagging}, func() error {
			r := c
			r.Kind, r.Tagging, r.ConceptColumn, r.OldKeyColumn = weir.CaptureKind(kind), weir.Tagging(tagging), conceptColumn.String, oldKey.String
			if concept != nil {
				r.ConceptGUID = guidOf(concept)
			}
			var names []string
			for _, field := range []struct {
				text string
				into *[]string
			}{{key, &names}, {types, &r.keyTypes}, {rowKey, &r.RowKey}} {
				if err := json.Unmarshal([]byte(field.text), field.into); err != nil {
					return fmt.Errorf("capture %d: %w", r.ID, err)
				}
			}
			if len(r.RowKey) == 0 {
				r.RowKey = nil
			}
			r.Key = nil
			for i, name := range names {
				r.Key = append(r.Key, weir.Column{Name: name, Native: r.keyTypes[i]})
			}
			r.Queues = queues[r.ID]
			list = append(list, r)
			return nil
		})
	return list, s.uninstalled(err)
}

// uninstalled says what to do where weir's tables are missing.
func (s *Source) uninstalled(err error) error {
	if number(err) == errUnknownObject || err != nil && strings.Contains(err.Error(), "does not exist") {
		return &weir.ConfigError{Key: "source", Err: fmt.Errorf("weir's tables are missing: %w", err), Hint: "run weir init"}
	}
	return translate(err, weir.AtSource, "read captures", "")
}

// Captures implements [weir.Source].
func (s *Source) Captures(ctx context.Context) ([]*weir.Capture, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := s.registered(ctx, s)
	if err != nil {
		return nil, err
	}
	out := make([]*weir.Capture, len(list))
	for i := range list {
		out[i] = &list[i].Capture
	}
	return out, nil
}

// call runs a routine, which has a transaction of its own: an answer that did
// not come leaves its outcome unknown.
func (s *Source) call(ctx context.Context, op string, pull weir.GUID, f func(context.Context, *sql.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := s.Conn(ctx)
	if err != nil {
		return translate(err, weir.AtSource, op, "")
	}
	defer conn.Close()
	if err := conn.PingContext(ctx); err != nil { // a connection that is gone already is no unknown outcome
		discard(conn)
		return translate(err, weir.AtSource, op, "")
	}
	err = f(ctx, conn)
	if err != nil && s.spoilt() {
		defer discard(conn)
	}
	switch {
	case err == nil:
		return nil
	case number(err) == errNotLive:
		return fmt.Errorf("%s pull %s: %w", op, pull, weir.ErrLeaseLost)
	case number(err) == errNoQueue:
		return &weir.ConfigError{Key: "queue", Err: fmt.Errorf("%s: %w", op, err), Hint: "weir triggers apply makes the queues that the configuration names"}
	case number(err) == errNoSuchProcedure:
		return &weir.ConfigError{Key: "source", Err: fmt.Errorf("%s: %w", op, err), Hint: "run weir init"}
	case answered(err):
		return translate(err, weir.AtSource, op, "")
	}
	discard(conn)
	sorted := translate(err, weir.AtSource, op, "")
	if u, ok := sorted.(*weir.UnavailableError); ok && !pull.IsZero() {
		return &weir.OutcomeUnknownError{Side: weir.AtSource, Op: op, Pull: pull, Err: u.Err}
	}
	return sorted
}

// Fold implements [weir.Source].
func (s *Source) Fold(ctx context.Context, limit int) (int, error) {
	var folded int64
	err := s.call(ctx, "fold", weir.GUID{}, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.own("GI_Fold"), sql.Named("Limit", limit), sql.Named("Folded", sql.Out{Dest: &folded}))
		return err
	})
	return int(folded), err
}

// wanted is a row of GI_Wanted.
type wanted struct {
	CaptureID   *int32
	ConceptGUID *mssql.UniqueIdentifier
	ChangeType  *string
}

// Claim implements [weir.Source].
func (s *Source) Claim(ctx context.Context, req weir.ClaimRequest) (*weir.Pull, error) {
	pull := &weir.Pull{PullGUID: req.PullGUID, Name: req.Name, Queue: req.Queue}
	only := []wanted{}
	for _, id := range req.Captures {
		only = append(only, wanted{CaptureID: &id})
	}
	for _, g := range req.Concepts {
		u := mssql.UniqueIdentifier(g)
		only = append(only, wanted{ConceptGUID: &u})
	}
	for _, t := range req.ChangeTypes {
		t = s.listed(t)
		only = append(only, wanted{ChangeType: &t})
	}
	err := s.call(ctx, "claim", req.PullGUID, func(ctx context.Context, c *sql.Conn) error {
		args := []any{
			sql.Named("Queue", mssql.VarChar(req.Queue)), sql.Named("PullGUID", mssql.UniqueIdentifier(req.PullGUID)), sql.Named("Name", req.Name), sql.Named("Puller", req.Puller),
			sql.Named("Ledger", mssql.UniqueIdentifier(req.Ledger)), sql.Named("Limit", req.Limit), sql.Named("LeaseMS", req.Lease.Milliseconds()),
		}
		if !req.From.IsZero() {
			args = append(args, sql.Named("From", mssql.VarChar(req.From.UTC().Format("2006-01-02 15:04:05.9999999"))))
		}
		text := "EXEC " + s.own("GI_BeginPull")
		for i, a := range args {
			name := a.(sql.NamedArg).Name
			if i > 0 {
				text += ","
			}
			text += " @" + name + " = @" + name
		}
		args = append(args, sql.Named("Wanted", mssql.TVP{TypeName: s.schema + ".GI_Wanted", Value: only}))
		text += ", @Wanted = @Wanted"
		var ch weir.Change
		var instance, concept []byte
		var oldKey sql.NullString
		var capture, attempts sql.NullInt32
		return each(ctx, c, text, args, []any{&instance, &ch.ChangeType, &ch.ChangedOn, &concept, &oldKey, &capture, &attempts, &pull.LeaseUntil}, func() error {
			one := ch
			one.InstanceGUID = guidOf(instance)
			if concept != nil {
				one.ConceptGUID = guidOf(concept)
			}
			one.OldPrimaryKey, one.HasOldPrimaryKey = oldKey.String, oldKey.Valid
			one.CaptureID, one.Attempts = capture.Int32, int(attempts.Int32)
			one.ChangedOn = one.ChangedOn.UTC()
			pull.Changes = append(pull.Changes, one)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if len(pull.Changes) == 0 {
		return nil, weir.ErrQueueEmpty
	}
	pull.LeaseUntil = pull.LeaseUntil.UTC()
	slices.SortFunc(pull.Changes, func(a, b weir.Change) int {
		if d := a.ChangedOn.Compare(b.ChangedOn); d != 0 {
			return d
		}
		return slices.Compare(a.InstanceGUID[:], b.InstanceGUID[:])
	})
	return pull, nil
}

// Settle implements [weir.Source].
func (s *Source) Settle(ctx context.Context, pull weir.GUID) (weir.SettleResult, error) {
	var settled int64
	var done bool
	err := s.call(ctx, "settle", pull, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.own("GI_CompletePull"), sql.Named("PullGUID", mssql.UniqueIdentifier(pull)),
			sql.Named("Settled", sql.Out{Dest: &settled}), sql.Named("Done", sql.Out{Dest: &done}))
		return err
	})
	return weir.SettleResult{Settled: int(settled), Done: done}, err
}

// Release implements [weir.Source].
func (s *Source) Release(ctx context.Context, pull weir.GUID) error {
	return s.call(ctx, "release", pull, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.own("GI_ReleasePull"), sql.Named("PullGUID", mssql.UniqueIdentifier(pull)))
		return err
	})
}

// postponement is a row of GI_Postponements.
type postponement struct {
	InstanceGUID mssql.UniqueIdentifier
	ChangeType   string
	DelayMS      int64
	Align, Dead  bool
	Error        *string
}

// Postpone implements [weir.Source].
func (s *Source) Postpone(ctx context.Context, pull weir.GUID, what []weir.Postponement) error {
	rows := []postponement{}
	for _, p := range what {
		r := postponement{InstanceGUID: mssql.UniqueIdentifier(p.InstanceGUID), ChangeType: s.listed(p.ChangeType), Align: p.Align, Dead: p.Dead}
		if p.Delay > 0 {
			r.DelayMS = max(p.Delay.Milliseconds(), 1)
		}
		if p.Error != "" {
			text := s.listed(strings.ToValidUTF8(strings.ReplaceAll(p.Error, "\x00", `\0`), "?"))
			r.Error = &text
		}
		rows = append(rows, r)
	}
	return s.call(ctx, "postpone", pull, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, "EXEC "+s.own("GI_PostponePull")+" @PullGUID = @PullGUID, @What = @What",
			sql.Named("PullGUID", mssql.UniqueIdentifier(pull)), sql.Named("What", mssql.TVP{TypeName: s.schema + ".GI_Postponements", Value: rows}))
		return err
	})
}

// Extend implements [weir.Source].
func (s *Source) Extend(ctx context.Context, pull weir.GUID, lease time.Duration) error {
	return s.call(ctx, "extend", pull, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.own("GI_ExtendPull"), sql.Named("PullGUID", mssql.UniqueIdentifier(pull)), sql.Named("LeaseMS", lease.Milliseconds()))
		return err
	})
}

// Expired implements [weir.Source].
func (s *Source) Expired(ctx context.Context, name string, ledger weir.GUID) ([]weir.Expired, error) {
	var out []weir.Expired
	err := s.call(ctx, "find expired pulls", weir.GUID{}, func(ctx context.Context, c *sql.Conn) error {
		var guid, into []byte
		var e weir.Expired
		var state string
		return each(ctx, c, "EXEC "+s.own("GI_ExpiredPulls")+" @Name = @Name", []any{sql.Named("Name", name)}, []any{&guid, &e.Puller, &into, &state, &e.Rows}, func() error {
			e.PullGUID, e.State = guidOf(guid), weir.PullState(state)
			if e.State == weir.StateClaimed && guidOf(into) != ledger {
				return &weir.ConfigError{Key: "pulls: " + name,
					Err:  fmt.Errorf("pull %s was claimed for the ledger %s, but the target's ledger is %s", e.PullGUID, guidOf(into), ledger),
					Hint: "point the pull at the target that it had, let it finish, and then change it; or, if that target is gone, weir queue release --force " + e.PullGUID.String()}
			}
			out = append(out, e)
			return nil
		})
	})
	return out, err
}
