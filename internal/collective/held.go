package collective

import (
	"cmp"
	"slices"
)

// held has the entries of a table by the caller that made them (transport.Caller.Share; empty for this
// process), the oldest first. A full table forgets entries of the caller that holds most, so that nobody
// pushes out what others hold. The zero value is ready for use.
type held[K comparable] struct {
	keys map[string][]K
}

func (h *held[K]) add(from string, key K) {
	if h.keys == nil {
		h.keys = make(map[string][]K)
	}
	h.keys[from] = append(h.keys[from], key)
}

func (h *held[K]) remove(from string, key K) {
	keys := h.keys[from]
	i := slices.Index(keys, key)
	switch {
	case i < 0:
	case len(keys) == 1:
		delete(h.keys, from)
	default:
		h.keys[from] = slices.Delete(keys, i, i+1)
	}
}

// removeFunc removes the entries for which f is true.
func (h *held[K]) removeFunc(f func(K) bool) {
	for caller, keys := range h.keys {
		if h.keys[caller] = slices.DeleteFunc(keys, f); len(h.keys[caller]) == 0 {
			delete(h.keys, caller)
		}
	}
}

// count returns how many entries a caller holds.
func (h *held[K]) count(from string) int { return len(h.keys[from]) }

// oldest returns the entry that makes room for one of a caller. choose picks one of those of a caller;
// it returns a negative index if none may go. The callers that hold most come first, and none that
// holds less than the one that needs the room. holds is count, or another measure.
func (h *held[K]) oldest(from string, holds func(string) int, choose func([]K) int) (key K, ok bool) {
	callers := make([]string, 0, len(h.keys))
	for caller := range h.keys {
		if holds(caller) >= holds(from) {
			callers = append(callers, caller)
		}
	}
	slices.SortFunc(callers, func(a, b string) int { return cmp.Or(cmp.Compare(holds(b), holds(a)), cmp.Compare(a, b)) })
	for _, caller := range callers {
		if i := choose(h.keys[caller]); i >= 0 {
			return h.keys[caller][i], true
		}
	}
	return key, false
}
