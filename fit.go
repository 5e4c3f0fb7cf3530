package weir

import (
	"fmt"
	"slices"
	"strings"
)

// The tables of a target's ledger, beside the tables that it receives.
const (
	LedgerTable         = "weir_ledger"
	LedgerIdentityTable = "weir_ledger_identity"
)

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

// CheckNames refuses, with a [*ConfigError], a batch whose table or columns are
// named as what weir itself keeps at a target. table is the target's.
func (m Mode) CheckNames(table Table, columns []Column) error {
	for _, taken := range []string{LedgerTable, LedgerIdentityTable} {
		if strings.EqualFold(table.Name, taken) {
			return &ConfigError{Key: "target table " + table.String(), Err: fmt.Errorf("%s is a table of weir's own", taken),
				Hint: "rename the table at the source, or leave it out of the pull's captures"}
		}
	}
	for _, c := range columns {
		if hasName(m.OwnColumns(), c.Name) {
			return &ConfigError{Key: "target table " + table.String(), Err: fmt.Errorf("its column %q is named as one that weir itself writes in the mode %s", c.Name, m),
				Hint: "rename the column at the source, or set another mode on the target"}
		}
	}
	return nil
}

func hasName(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
