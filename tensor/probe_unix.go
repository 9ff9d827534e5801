//go:build linux || darwin

package tensor

import (
	"os"
	"syscall"
)

// probe asks the operating system for what the runtime is going to ask it for,
// and gives it back: no page of it is touched.
func probe(size int) error {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return os.NewSyscallError("munmap", syscall.Munmap(b))
}
