package weir

import "testing"

// What is derived from a name is in databases: it must never change.
func TestDerived(t *testing.T) {
	table := Table{Schema: "public", Name: "captured"}
	if got := ConceptOf(table).String(); got != "953bca6f-449d-8833-a47d-01e7aca732c5" {
		t.Errorf("concept %s", got)
	}
	if got := CaptureIDOf(table, ""); got != 2113810561 {
		t.Errorf("capture %d", got)
	}
	if CaptureIDOf(table, "x") == 2113810561 {
		t.Error("a change type does not tell captures of one table apart")
	}
}
