//go:build linux && cgo

package libibverbs

// HasHeader reports whether this build found infiniband/verbs.h.
func HasHeader() bool { return len(headerFacts()) > 0 }
