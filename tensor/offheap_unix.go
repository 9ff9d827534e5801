//go:build (linux || darwin) && !race

package tensor

import (
	"os"
	"syscall"
)

// offHeap says that large blocks come from the operating system. Not in builds
// with the race detector, which sees Go memory only.
const offHeap = true

// mapMemory returns size zero bytes, a multiple of the page size.
func mapMemory(size int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	adviseHugePages(b)
	return b, nil
}

// unmapMemory gives memory from mapMemory back. That can fail only when the
// process has so many mappings that it may not split one; then the memory
// stays, as there is nobody to tell who could do better.
func unmapMemory(b []byte) { _ = syscall.Munmap(b) }
