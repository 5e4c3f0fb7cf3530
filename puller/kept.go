package puller

import (
	"sync"

	"github.com/weir-cdc/weir"
)

// kept are the changes that a run kept back and did not ship later.
type kept struct {
	mu   sync.Mutex
	dead map[keptKey]bool // false: postponed
}

type keptKey struct {
	instance weir.GUID
	class    string // the types of a row's own are one
}

func keptKeyOf(instance weir.GUID, changeType string) keptKey {
	if changeType == weir.InstanceInserted || changeType == weir.InstanceDeleted {
		changeType = ""
	}
	return keptKey{instance, changeType}
}

func (k *kept) add(out []weir.Postponement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range out {
		if o.Dead || o.Error != "" {
			k.dead[keptKeyOf(o.InstanceGUID, o.ChangeType)] = o.Dead
		}
	}
}

func (k *kept) shipped(b *weir.Batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.dead) == 0 {
		return
	}
	for i := range b.Tables {
		for j := range b.Tables[i].Items {
			c := &b.Tables[i].Items[j].Change
			delete(k.dead, keptKeyOf(c.InstanceGUID, c.ChangeType))
		}
	}
}

func (k *kept) counts() (postponed, dead int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.dead {
		if d {
			dead++
		}
	}
	return len(k.dead) - dead, dead
}
