package weir

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The tables of a target's ledger, beside the tables that it receives.
const (
	LedgerTable         = "weir_ledger"
	LedgerIdentityTable = "weir_ledger_identity"
)

// IsLedger reports the name, in any case, of a table of a target's ledger.
func IsLedger(table string) bool {
	return strings.EqualFold(table, LedgerTable) || strings.EqualFold(table, LedgerIdentityTable)
}

// OwnColumns are the columns that weir adds to a target's table in this mode.
func (m Mode) OwnColumns() []string {
	switch m {
	case SoftDelete:
		return []string{DeletedOnColumn}
	case History:
		return []string{ValidFromColumn, ValidToColumn}
	case Mirror:
	}
	return nil
}

// EndColumn is the column that is null while a row is the source's; empty in
// Mirror, which keeps no other.
func (m Mode) EndColumn() string {
	switch m {
	case SoftDelete:
		return DeletedOnColumn
	case History:
		return ValidToColumn
	case Mirror:
	}
	return ""
}

// CheckNames refuses, with a [*ConfigError], a batch whose table or columns are
// named as what weir itself keeps at a target. table is the target's.
func (m Mode) CheckNames(table Table, columns []Column) error {
	if IsLedger(table.Name) {
		return &ConfigError{Key: "target table " + table.String(), Err: fmt.Errorf("%s is a table of weir's own", table.Name),
			Hint: "rename the table at the source, or leave it out of the pull's captures"}
	}
	for _, c := range columns {
		if hasName(m.OwnColumns(), c.Name) {
			return &ConfigError{Key: "target table " + table.String(), Err: fmt.Errorf("its column %q is named as one that weir itself writes in the mode %s", c.Name, m),
				Hint: "rename the column at the source, or set another mode on the target"}
		}
	}
	return nil
}

// CheckTable refuses, with a [*ConfigError], a target's table that lacks a column
// of the key, or that was made in another mode, whose rows this one would take
// for what they are not. has tells the table's columns, before weir adds any. A
// column that the source has, too, tells nothing.
func (m Mode) CheckTable(table Table, has func(column string) bool, b *TableBatch) error {
	refuse := func(why, hint string) error {
		return &ConfigError{Key: "target table " + table.String(), Err: errors.New(why), Hint: hint}
	}
	for _, k := range b.Capture.Key {
		if !has(k.Name) {
			return refuse(fmt.Sprintf("it lacks the key column %q", k.Name),
				fmt.Sprintf("if the source renamed the column, rename it here too (ALTER TABLE ... RENAME COLUMN ... TO %s, or sp_rename); else add it, with a unique index over the key", k.Name))
		}
	}
	var source []string
	for _, c := range b.Columns {
		source = append(source, c.Name)
	}
	for _, other := range []Mode{SoftDelete, History} {
		for _, c := range other.OwnColumns() {
			if other == m || !has(c) || hasName(source, c) {
				continue
			}
			why := fmt.Sprintf("it was made in the mode %s, as its column %s tells, and the target's mode is %s", other, c, m)
			if other == SoftDelete && m == Mirror {
				return refuse(why, fmt.Sprintf("set mode: soft delete on the target; or delete the rows that %s marks and drop that column", c))
			}
			return refuse(why, fmt.Sprintf("set mode: %s on the target; or rename the table, so that weir makes another, and run weir backfill --restart %s", other, b.Capture.Table))
		}
	}
	return nil
}

// CheckUnique refuses, with a [*ConfigError], a unique index that admits one
// version of a row only, where the target keeps every one. columns are the
// index's, whole columns under no condition.
func (m Mode) CheckUnique(table Table, columns []string, c *Capture) error {
	key := slices.Clone(c.RowKey)
	if !c.Set {
		key = nil
	}
	for _, k := range c.Key {
		key = append(key, k.Name)
	}
	if m != History || slices.ContainsFunc(columns, func(n string) bool { return !hasName(key, n) }) {
		return nil
	}
	return &ConfigError{Key: "target table " + table.String(), Err: fmt.Errorf("its unique index over (%s) has room for one version of each row, as the modes mirror and soft delete keep, and the target's mode is history", strings.Join(columns, ", ")),
		Hint: fmt.Sprintf("set the mode that the table was made in; or rename the table, so that weir makes another, and run weir backfill --restart %s", c.Table)}
}

func hasName(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
