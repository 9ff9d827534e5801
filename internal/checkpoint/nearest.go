package checkpoint

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// nearest describes, for an error about an unknown name, the most similar known names: those
// with the longest common prefixes and suffixes. It looks at the first maxCompared bytes of them.
func nearest(name string, known iter.Seq[string]) string {
	type candidate struct {
		name  string
		alike int
	}
	var best []candidate
	left := maxCompared
	for k := range known {
		if left -= len(k); left < 0 {
			break
		}
		best = append(best, candidate{k, alike(name, k)})
		slices.SortStableFunc(best, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.alike, a.alike), cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
		})
		best = best[:min(len(best), suggestions)]
	}
	if len(best) == 0 {
		return "there are none"
	}
	names := make([]string, len(best))
	for i, c := range best {
		names[i] = quote(c.name)
	}
	return "the nearest are " + strings.Join(names, ", ")
}

// alike returns the length of the common prefix and suffix of two names.
func alike(a, b string) int {
	n := min(len(a), len(b))
	front := 0
	for front < n && a[front] == b[front] {
		front++
	}
	back := 0
	for back < n-front && a[len(a)-1-back] == b[len(b)-1-back] {
		back++
	}
	return front + back
}
