// Package weir holds the words of weir: what a change, a pull, a capture and a
// batch are, and the two interfaces, [Source] and [Target], between which a
// change travels.
//
//	user's write -> trigger -> InstanceChanges -> claim -> read current rows -> ship -> settle
//	                (source, same transaction)   (source)  (source)            (target) (source)
//
// A change carries the key of a row, never its data. The puller reads the row
// as it is when the change is shipped, so what arrives is the latest version,
// a burst of writes to one row ships once, and a backfill is only tagging.
//
// The package imports no driver. Package dialects opens sources and targets,
// package triggers installs captures, package puller drains a queue and
// package scheduler does so on a schedule.
package weir
