package triggers

import (
	"fmt"
	"strings"

	"github.com/weir-cdc/weir"
)

// missed warns of writes that no trigger saw, and of what is to do about them:
// apply makes the triggers right, and cannot know what was written before.
func (p *Plan) missed(wanted []weir.Resolved, installed []weir.Object) {
	have := map[identity]weir.Object{}
	triggered := map[weir.Table]bool{}
	for _, o := range installed {
		have[identify(o)] = o
		triggered[o.Table] = triggered[o.Table] || o.Kind == weir.Trigger
	}
	member := map[[2]weir.Table]bool{} // group and table
	for _, r := range wanted {
		root := r.Capture.Table
		known, anew := false, false
		for _, o := range r.Objects {
			member[[2]weir.Table{o.Group, o.Table}] = true
			if o.Kind == weir.Registration {
				var old weir.Object
				old, known = have[identify(o)]
				anew = known && old.Fingerprint != o.Fingerprint
			}
		}
		if !known {
			continue // a capture that begins
		}
		if anew {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s is registered anew: where the table was made again, or its key, concept or queues changed, run weir backfill %s after apply; rows that the table no longer has stay at the target until they are deleted there", root, root))
		}
		var why []string
		for _, o := range r.Objects {
			old, found := have[identify(o)]
			switch {
			case o.Kind == weir.Function && (!found || old.Fingerprint != o.Fingerprint) && !anew:
				why = append(why, describe(o)+" was not as this version of weir makes it")
			case o.Kind != weir.Trigger:
			case found && old.Disabled:
				why = append(why, describe(o)+" was disabled")
			case found && old.Fingerprint != o.Fingerprint:
				why = append(why, describe(o)+" was changed")
			case !found && (triggered[o.Table] || o.Table == root && !anew):
				why = append(why, describe(o)+" was missing")
			}
		}
		if n := len(why); n > 3 {
			why = append(why[:3:3], fmt.Sprintf("%d more were not right", n-3))
		}
		if len(why) > 0 {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s: what was written to %s meanwhile was not captured; run weir backfill --restart %s after apply. Rows that were deleted meanwhile stay at the target until they are deleted there",
				strings.Join(why, ", "), root, root))
		}
	}
	for _, o := range installed {
		if o.Kind == weir.Trigger && member[[2]weir.Table{o.Group, o.Group}] && !member[[2]weir.Table{o.Group, o.Table}] {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s no longer belongs to %s: the rows that left with it are not deleted at the target; delete them there", o.Table, o.Group))
		}
	}
}
