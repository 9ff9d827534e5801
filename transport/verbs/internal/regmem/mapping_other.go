//go:build !linux

package regmem

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapMemory returns size zero bytes, a multiple of pageMultiple. Hardware devices are
// supported on Linux only.
func mapMemory(size int, want mapping) ([]byte, mapping, error) {
	if want == goHeap {
		b, err := heapMemory(size)
		return b, goHeap, err
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	return b, want, os.NewSyscallError("mmap", err)
}

// copyInto has nothing to prepare.
func copyInto([]byte, mapping) {}

// unmapMemory returns memory to the system.
func unmapMemory(b []byte, kind mapping) {
	if kind != goHeap {
		_ = unix.Munmap(b)
	}
}

// discardPages gives pages of lazyPages back to the system as soon as it needs them.
func discardPages(b []byte) { _ = unix.Madvise(b, unix.MADV_FREE) }
