//go:build linux

package shm

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// A mapping of the peer's memory can fail when it is read: its host could not read the page from
// swap, or the page's memory is broken. Such a fault breaks the queue pair, not the process.

// guard calls f, and returns an error if f reads memory that cannot be read.
func guard(f func()) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr // runtime.Error of a fault
		}:
			err = fmt.Errorf("the peer's memory cannot be read: %w", r)
		default:
			panic(r) //nolint:forbidigo // not a fault: a mistake of this program
		}
	}()
	f()
	return nil
}

// guardErr is guard for a function with an error.
func guardErr(f func() error) error {
	var failed error
	if err := guard(func() { failed = f() }); err != nil {
		return err
	}
	return failed
}

// guardedCopy copies src to dst, which have the same length.
func guardedCopy(dst, src []byte) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(interface {
				error
				Addr() uintptr
			})
			if !ok {
				panic(r) //nolint:forbidigo // not a fault: a mistake of this program
			}
			err = fmt.Errorf("the peer's memory cannot be read: %w", f)
		}
	}()
	copy(dst, src)
	return nil
}

// fence orders the memory accesses before it before those after it, also on arm64, where a load
// that is atomic may overtake plain loads before it. A read-modify-write is such a barrier.
type fence struct{ n atomic.Uint32 }

func (f *fence) order() { f.n.Add(1) }
