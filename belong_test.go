package weir

import (
	"strings"
	"testing"
)

func TestOwner(t *testing.T) {
	concept, other := NewGUID(), NewGUID()
	captures := []*Capture{
		{ID: 2, Kind: Instance, ConceptColumn: "concept"},
		{ID: 1, Kind: Plain, ConceptGUID: concept},
		{ID: 3, Kind: Child, ChangeType: "Event", ConceptGUID: concept},
		{ID: 4, Kind: Plain, ConceptGUID: concept},
	}
	const byRow, plain, child, second, none = 0, 1, 2, 3, -1
	exact := func(a, b string) bool { return a == b }
	for _, x := range []struct {
		what     string
		change   Change
		sameType func(a, b string) bool
		want     int
	}{
		{"tagged by a capture", Change{CaptureID: 1, ChangeType: "Event", ConceptGUID: other}, exact, plain},
		{"tagged by the second of a concept", Change{CaptureID: 4, ChangeType: InstanceInserted, ConceptGUID: concept}, exact, second},
		{"tagged by hand", Change{ChangeType: InstanceDeleted, ConceptGUID: concept}, exact, plain},
		{"another concept", Change{ChangeType: InstanceInserted, ConceptGUID: other}, exact, byRow},
		{"no concept", Change{ChangeType: InstanceInserted}, exact, byRow},
		{"a child's", Change{ChangeType: "Event", ConceptGUID: concept}, exact, child},
		{"another type", Change{ChangeType: "event", ConceptGUID: concept}, exact, none},
		{"in any case", Change{ChangeType: "event", ConceptGUID: concept}, strings.EqualFold, child},
		{"a child's of another concept", Change{ChangeType: "Event", ConceptGUID: other}, exact, none},
		{"a capture that is gone", Change{CaptureID: 9, ChangeType: InstanceInserted, ConceptGUID: concept}, exact, plain},
	} {
		if got := Owner(x.change, len(captures), func(i int) *Capture { return captures[i] }, x.sameType); got != x.want {
			t.Errorf("%s: %d, want %d", x.what, got, x.want)
		}
	}
}

func TestNoCapture(t *testing.T) {
	g := GUID{1}
	const says = `: no capture is installed for instance 01000000-0000-0000-0000-000000000000, concept 00000000-0000-0000-0000-000000000000, type "Note" (capture its table (weir triggers apply), or give the concept's GUID that a capture has)`
	for _, x := range []struct {
		change Change
		want   string
	}{
		{Change{InstanceGUID: g, ChangeType: "Note", OldPrimaryKey: "7", HasOldPrimaryKey: true}, "row 7" + says},
		{Change{InstanceGUID: g, ChangeType: "Note"}, "row 01000000-0000-0000-0000-000000000000" + says},
	} {
		if got := NoCapture(x.change).Err.Error(); got != x.want {
			t.Errorf("%s\nwant %s", got, x.want)
		}
	}
}
