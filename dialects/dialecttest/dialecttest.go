// Package dialecttest states what every dialect must do. A dialect is done when
// [Exercise] passes with its [Engine].
package dialecttest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/weir-cdc/weir"
	"github.com/weir-cdc/weir/triggers"
)

// Source is what a dialect gives the command: the pull protocol, and what
// setting up and looking after a queue takes.
type Source interface {
	weir.Source
	triggers.Engine
	Init(ctx context.Context) (uint, error)
	Down(ctx context.Context) error
	Backfill(ctx context.Context, captureID int32, limit int, restart bool) (weir.BackfillProgress, error)
	Status(ctx context.Context) (*weir.Status, error)
	List(ctx context.Context, sel weir.QueueSelector) ([]weir.QueueRow, error)
	Retry(ctx context.Context, sel weir.QueueSelector) (int, error)
	Delay(ctx context.Context, sel weir.QueueSelector, d time.Duration) (int, error)
}

// Engine tells the suite how to use a dialect, what its SQL calls things, and
// what its engine cannot do. All functions are required unless they say
// otherwise.
type Engine struct {
	Name string

	// NewDatabase makes an empty database that goes with the test, and returns
	// its URL. It skips the test where the engine is missing.
	NewDatabase func(t testing.TB) string
	// OpenSource and OpenTarget are the dialect's, with its default schemas.
	OpenSource func(ctx context.Context, url string) (Source, error)
	OpenTarget func(ctx context.Context, url string, opts weir.TargetOptions) (weir.Target, error)
	// Connect opens sessions of a user, who has nothing to do with weir.
	Connect func(url string) (*sql.DB, error)
	// Breakable returns another URL of the database, and a function that makes
	// the database unreachable by it for good.
	Breakable func(t testing.TB, url string) (breakable string, cut func())

	// Schema is where a user's unqualified names are, at sources and targets.
	Schema string
	// Int, BigInt, Text, KeyText, GUID and Bytes are types of columns. KeyText
	// can be a key.
	Int, BigInt, Text, KeyText, GUID, Bytes string
	// Literal writes a text's literal.
	Literal func(s string) string
	// AddColumn is "alter table %s add column %s", as the engine spells it.
	AddColumn string
	// Savepoint and RollbackToSavepoint are statements for a savepoint of any
	// name.
	Savepoint, RollbackToSavepoint string
	// Tag is a statement that tags an instance by hand, in the documented way.
	Tag func(instance, concept weir.GUID, changeType, oldKey string) string
	// InsertQueued is a statement that writes a row of the default queue as a
	// puller or trigger of the user's own would, by the six columns.
	InsertQueued func(instance, concept weir.GUID, changeType, oldKey string) string
	// Now is an expression of the time, comparable to the times that a target
	// writes.
	Now string
	// AsText is an expression of a column's value as text that tells all values
	// apart, its blanks included. column is quoted.
	AsText func(column string) string
	// RenameTable is a statement with two verbs: a table's name and its new one.
	RenameTable string
	// Tamper returns ways to change an installed object by hand, each a list of
	// statements. An object that cannot be changed has none.
	Tamper func(o weir.Object) [][]string
	// Unkeyable are statements that make a table "badkey", one a list, whose key
	// cannot be captured.
	Unkeyable [][]string

	// InboxLevels are the isolation levels at which tagging goes by the inbox.
	InboxLevels []sql.IsolationLevel
	// SingleWriter: a user's open transaction keeps everybody from writing.
	SingleWriter bool
	// FoldedNames: names that differ by case alone are one name.
	FoldedNames bool
	// KeySwaps is what stands behind "primary key" so that one statement may
	// exchange keys; KeysFixed says that none may.
	KeySwaps  string
	KeysFixed bool
	// AlterKey: ALTER TABLE can add and drop keys.
	AlterKey bool
	// OneNull: a unique key takes one null at most, and an index that leaves
	// nulls out any number.
	OneNull bool
	// NoDeferrable: no constraint can be deferred to the commit.
	NoDeferrable bool
	// Before, if any, skips a test, part/name, that the server at hand cannot pass
	// though the engine can.
	Before func(t *testing.T, test string)
	// Named reports a name that the server's catalog knows; nil: every one.
	Named func(name string) bool
	// Truncate: the engine has TRUNCATE, and it tags.
	Truncate bool
}

type test struct {
	name string
	run  func(t *testing.T, e Engine)
}

// Exercise runs the suite.
func Exercise(t *testing.T, e Engine) {
	for _, part := range []struct {
		name  string
		tests []test
	}{
		{"Install", installTests},
		{"Refuse", refuseTests},
		{"Tag", tagTests},
		{"Key", keyTests},
		{"Fold", foldTests},
		{"Claim", claimTests},
		{"Finish", finishTests},
		{"Ledger", ledgerTests},
		{"Read", readTests},
		{"Backfill", backfillTests},
		{"Target", targetTests},
		{"Isolate", isolateTests},
		{"Outage", outageTests},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range part.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					if e.Before != nil {
						e.Before(t, part.name+"/"+test.name)
					}
					test.run(t, e)
				})
			}
		})
	}
}
