package weir

import "fmt"

// Owner is the place of the capture, of n, that reads a change: the one that
// tagged it; else one of its change type and concept; else one of its change type
// whose rows have concepts of their own; of several the first. It is -1 where
// there is none. sameType compares change types as the source does.
func Owner(ch Change, n int, capture func(i int) *Capture, sameType func(a, b string) bool) int {
	found, best := -1, 0
	for i := 0; i < n && best < byNumber; i++ {
		if owns := capture(i).owns(ch, sameType); owns > best {
			found, best = i, owns
		}
	}
	return found
}

// How surely a change is a capture's.
const (
	byType = 1 + iota
	byConcept
	byNumber
)

func (c *Capture) owns(ch Change, sameType func(a, b string) bool) int {
	own := ch.ChangeType == InstanceInserted || ch.ChangeType == InstanceDeleted
	switch {
	case ch.CaptureID == c.ID:
		return byNumber
	case own != (c.Kind != Child), !own && !sameType(c.ChangeType, ch.ChangeType):
		return 0
	case c.ConceptGUID.IsZero():
		return byType
	case c.ConceptGUID == ch.ConceptGUID:
		return byConcept
	}
	return 0
}

// NoCapture is the fault of a change that no capture owns. Which table it comes
// from is not known.
func NoCapture(ch Change) ChangeFault {
	key := ch.OldPrimaryKey
	if !ch.HasOldPrimaryKey {
		key = ch.InstanceGUID.String()
	}
	return ChangeFault{Change: ch, Err: &RowError{
		Key: key, Err: fmt.Errorf("no capture is installed for instance %s, concept %s, type %q", ch.InstanceGUID, ch.ConceptGUID, ch.ChangeType),
		Hint: "capture its table (weir triggers apply), or give the concept's GUID that a capture has",
	}}
}
