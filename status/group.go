package status

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Group makes one error of the errors of several parts of an operation, as
// TensorFlow's StatusGroup does. It reports the causes and leaves out what
// followed from them. The zero Group is empty. It must not be used from several
// goroutines at once.
type Group struct{ roots, derived []*Error }

// Add notes what one part ended with; nil is success.
func (g *Group) Add(err error) {
	switch {
	case err == nil:
	case IsDerived(err):
		g.derived = append(g.derived, From(err))
	default:
		g.roots = append(g.roots, From(err))
	}
}

// Err returns the summary, nil when no part failed. The order of the Adds does
// not matter, and errors of the same code and message count as one.
//
// One error that is not derived is the summary. Several are listed in its
// message, cut as Truncate does; its code, and what errors.Is and errors.As
// find in it, are those of the first one listed, which is Cancelled only when
// all are. Derived errors are left out as long as there is another; when there
// is none the summary is one of them, again not a Cancelled one if it can be.
//
// The payloads are those of all errors together, the derived ones included.
// Where two have the same key, the one that is not derived counts, or else the
// one that would be listed first.
func (g *Group) Err() *Error {
	roots, derived := slices.SortedFunc(slices.Values(g.roots), inList), slices.SortedFunc(slices.Values(g.derived), inList)
	payloads := make(map[string][]byte)
	merge(payloads, derived)
	if len(roots) == 0 {
		roots = derived[:min(1, len(derived))]
	} else {
		delete(payloads, PayloadDerived)
		merge(payloads, roots)
	}
	roots = slices.CompactFunc(roots, func(a, b *Error) bool { return a.Error() == b.Error() })

	switch len(roots) {
	case 0:
		return nil
	case 1:
		if len(payloads) == len(roots[0].payloads) { // its own, then, which come first
			return roots[0]
		}
		e := *roots[0]
		e.payloads = payloads
		return &e
	}
	var list strings.Builder
	fmt.Fprintf(&list, "%d root error(s) found.", len(roots))
	for i, e := range roots {
		if list.Len() > MaxMessage {
			break
		}
		fmt.Fprintf(&list, "\n  (%d) %v", i, e)
	}
	return &Error{code: roots[0].code, message: Truncate(list.String()), cause: roots[0], payloads: payloads}
}

// inList orders errors: Cancelled last, then by their texts, then by payloads.
func inList(a, b *Error) int {
	if c := cmp.Compare(cancelled(a), cancelled(b)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Error(), b.Error()); c != 0 {
		return c
	}
	return comparePayloads(a.payloads, b.payloads)
}

func cancelled(e *Error) int {
	if e.code == Cancelled {
		return 1
	}
	return 0
}

// comparePayloads orders payloads by their keys and then by their values.
func comparePayloads(a, b map[string][]byte) int {
	keys := slices.Sorted(maps.Keys(a))
	if c := slices.Compare(keys, slices.Sorted(maps.Keys(b))); c != 0 {
		return c
	}
	for _, k := range keys {
		if c := bytes.Compare(a[k], b[k]); c != 0 {
			return c
		}
	}
	return 0
}

// merge puts the payloads of sorted errors over those that are there.
func merge(payloads map[string][]byte, errs []*Error) {
	for _, e := range slices.Backward(errs) { // the first error's payloads win
		maps.Copy(payloads, e.payloads)
	}
}
