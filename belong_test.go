package weir

import "testing"

func TestCapture_Owns(t *testing.T) {
	concept, other := NewGUID(), NewGUID()
	plain := &Capture{ID: 1, Kind: Plain, ConceptGUID: concept}
	byRow := &Capture{ID: 2, Kind: Instance, ConceptColumn: "concept"}
	child := &Capture{ID: 3, Kind: Child, ChangeType: "Event", ConceptGUID: concept}
	for _, x := range []struct {
		what                string
		change              Change
		plain, byRow, child int
	}{
		{"tagged by a capture", Change{CaptureID: 1, ChangeType: "Event", ConceptGUID: other}, 3, 0, 0},
		{"tagged by hand", Change{ChangeType: InstanceDeleted, ConceptGUID: concept}, 2, 1, 0},
		{"another concept", Change{ChangeType: InstanceInserted, ConceptGUID: other}, 0, 1, 0},
		{"no concept", Change{ChangeType: InstanceInserted}, 0, 1, 0},
		{"a child's", Change{ChangeType: "Event", ConceptGUID: concept}, 0, 0, 2},
		{"another type", Change{ChangeType: "event", ConceptGUID: concept}, 0, 0, 0},
		{"a capture that is gone", Change{CaptureID: 9, ChangeType: InstanceInserted, ConceptGUID: concept}, 2, 1, 0},
	} {
		if a, b, c := plain.Owns(x.change), byRow.Owns(x.change), child.Owns(x.change); a != x.plain || b != x.byRow || c != x.child {
			t.Errorf("%s: %d %d %d, want %d %d %d", x.what, a, b, c, x.plain, x.byRow, x.child)
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
