//go:build (linux || darwin) && !race

package tensor

import (
	"os"
	"syscall"
)

// offHeap is true where the operating system provides large blocks. It is false
// in builds with the race detector, which observes Go memory only.
const offHeap = true

// mapMemory returns size zero bytes; size is a multiple of the page size.
func mapMemory(size int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	adviseHugePages(b)
	return b, nil
}

// unmapMemory unmaps memory from mapMemory. Munmap can fail only when the process
// has so many mappings that it may not split one (munmap(2), ENOMEM). The memory
// then stays mapped; no caller could do better with the error.
func unmapMemory(b []byte) { _ = syscall.Munmap(b) }
