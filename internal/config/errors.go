package config

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tryst-rdma/tryst/status"
)

// maxQuoted is how many bytes of a value an error shows.
const maxQuoted = 200

// quote returns s quoted, its end cut off when it is long.
func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "..."
	}
	return strconv.Quote(s)
}

// subject names a setting in the words of the source that gives it.
func subject(source Source, key string) string {
	switch source.Kind {
	case FromFlag, FromEnv:
		return source.Name
	case FromFile, FromTFConfig, FromTensorFlow:
		return source.place() + ": " + key
	default:
		return key
	}
}

// valueError is what is wrong with one value.
func valueError(source Source, key, text string, why error) error {
	return status.Errorf(status.InvalidArgument, "%s %s: %w", subject(source, key), quote(text), why)
}

// unknown is a name that no setting has.
func unknown(kind, name, nearest string) *status.Error {
	return status.Errorf(status.InvalidArgument, "%s %s: there is no such setting; the nearest is %s", kind, name, nearest)
}

// nearest returns the known name with the fewest letters to change.
func nearest[V any](name string, known map[string]V) string {
	if len(name) > maxQuoted { // a longer one is like none of them
		name = name[:maxQuoted]
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
	row := make([]int, len(b)+1) // to b's prefixes from what has been seen of a
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
