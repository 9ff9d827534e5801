package config

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tryst-rdma/tryst/status"
)

// maxQuoted is how many bytes of a value an error shows at most.
const maxQuoted = 200

// quote returns s in quotes, truncated to maxQuoted bytes.
func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "..."
	}
	return strconv.Quote(s)
}

// subject names a setting in the form of its source.
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

// valueError is the error of one value.
func valueError(source Source, key, text string, why error) error {
	return status.Errorf(status.InvalidArgument, "%s %s: %w", subject(source, key), quote(text), why)
}

// unknown is the error of a name that is not a setting.
func unknown(kind, name, nearest string) *status.Error {
	return status.Errorf(status.InvalidArgument, "%s %s: there is no such setting; the nearest is %s", kind, name, nearest)
}

// nearest returns the known name with the least edit distance.
func nearest[V any](name string, known map[string]V) string {
	if len(name) > maxQuoted { // bounds the time; a longer name resembles none
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
