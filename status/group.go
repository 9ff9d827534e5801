package status

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Group combines the errors of the parts of an operation into one error, as TensorFlow's
// StatusGroup does. It prefers root causes to derived errors. The zero Group is empty. It is
// not safe for concurrent use.
type Group struct{ roots, derived []*Error }

// Add adds the error of one part; nil is success.
func (g *Group) Add(err error) {
	switch {
	case err == nil:
	case IsDerived(err):
		g.derived = append(g.derived, From(err))
	default:
		g.roots = append(g.roots, From(err))
	}
}

// Err returns the summary; nil when no part failed. It does not depend on the order of the
// Adds. Errors with the same code and message count as one.
//
// If one error is not derived, it is the summary. If several are not derived, the message of
// the summary lists them, shortened by Truncate; its code, and what errors.Is and errors.As
// find, are those of the first one in the list, which is Cancelled only if all are. If all
// errors are derived, the summary is one of them, if possible not a Cancelled one.
//
// The summary has the payloads of all errors, including the derived ones. For a key in
// several errors, errors that are not derived come first, then the order of the list.
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
		if len(payloads) == len(roots[0].payloads) { // the other errors added no key
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

// inList orders errors: Cancelled last, then by text, then by payloads.
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

// comparePayloads orders payloads by key, then by value.
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

// merge adds the payloads of sorted errors, and replaces those with the same key.
func merge(payloads map[string][]byte, errs []*Error) {
	for _, e := range slices.Backward(errs) { // backward, so that the first error's payloads remain
		maps.Copy(payloads, e.payloads)
	}
}
