package sources

import (
	"maps"
	"slices"

	"github.com/tryst-rdma/tryst/status"
)

// unknown is the error of a name that is not a setting.
func unknown(kind, name, nearest string) *status.Error {
	return status.Errorf(status.InvalidArgument, "%s %s: there is no such setting; the nearest is %s", kind, name, nearest)
}

// nearest returns the known name with the least edit distance.
func nearest[V any](name string, known map[string]V) string {
	if len(name) > maxName { // bounds the time; a longer name resembles none
		name = name[:maxName]
	}
	best, least := "", 0
	for _, candidate := range slices.Sorted(maps.Keys(known)) {
		if d := distance(name, candidate); best == "" || d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances of the prefixes of b from the current prefix of a
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
