package libibverbs

import "github.com/tryst-rdma/tryst/verbs"

// Name is what Provider.Name returns, and what --provider calls it.
const Name = "libibverbs"

// DefaultLibrary is the name by which the dynamic loader finds the library: the
// one that every distribution has had since 2006.
const DefaultLibrary = "libibverbs.so.1"

// Options say where things are. The zero value is what a program wants.
type Options struct {
	// Library is the library's file, or its name in the loader's path.
	// Default DefaultLibrary.
	Library string
}

// The fields of errors that stand for the provider as a whole.
const opOpenLibrary = "open"

// unavailable is an error that no device can mend.
func unavailable(object, hint, format string, args ...any) error {
	e := verbs.Errorf(opOpenLibrary, object, verbs.ErrUnavailable, format, args...)
	e.Hint = hint
	return e
}
