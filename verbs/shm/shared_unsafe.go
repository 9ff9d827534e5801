//go:build linux

// Two processes exchange numbers through mapped memory: the counters of a ring are atomic
// variables in a mapping, which package sync/atomic reaches only by a pointer.

package shm

import (
	"sync/atomic"
	"unsafe"
)

// word returns the 8 bytes at off of a mapping as an atomic variable. off must be a multiple of
// 8 within mem. A mapping begins at a page, so the variable is aligned. A read-only mapping may
// only be loaded from.
func word(mem []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off : off+8 : off+8][0]))
}
