//go:build linux || darwin

package tensor

import (
	"os"
	"syscall"
)

// probe maps and unmaps size bytes, to find out whether the operating system
// would give them to the runtime. It touches no page.
func probe(size int) error {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return os.NewSyscallError("munmap", syscall.Munmap(b))
}
