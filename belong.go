package weir

import "fmt"

// Owns says how surely a change is the capture's: 3 by the capture's number, 2
// by the change type and the concept, 1 by the change type of a capture whose
// rows have concepts of their own, 0 not at all. The surest, and among those the
// first, reads the change.
func (c *Capture) Owns(ch Change) int {
	own := ch.ChangeType == InstanceInserted || ch.ChangeType == InstanceDeleted
	switch {
	case ch.CaptureID == c.ID:
		return 3
	case own != (c.Kind != Child), !own && c.ChangeType != ch.ChangeType:
		return 0
	case c.ConceptGUID.IsZero():
		return 1
	case c.ConceptGUID == ch.ConceptGUID:
		return 2
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
