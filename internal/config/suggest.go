package config

import (
	"fmt"
	"slices"
	"strings"
)

// nearest says which of the known words was probably meant, or lists them.
func nearest(word string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	best, distance := "", len(word)/3+2
	for _, k := range known {
		if d := edits(strings.ToLower(word), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return best
	}
	if len(known) == 1 {
		return known[0]
	}
	sorted := slices.Sorted(slices.Values(known))
	return fmt.Sprintf("%s or %s", strings.Join(sorted[:len(sorted)-1], ", "), sorted[len(sorted)-1])
}

// edits is the Levenshtein distance, in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			diagonal := left
			if a[i] != b[j] {
				diagonal++
			}
			left = row[j+1]
			row[j+1] = min(diagonal, row[j]+1, left+1)
		}
	}
	return row[len(b)]
}
