//go:build linux || darwin || freebsd

package fileio

import (
	"os"
	"syscall"
)

// mmap maps the first n bytes of f, private and writable: the holder of the only
// reference to a tensor may write to it, which copies the page. MAP_NORESERVE
// keeps the kernel from reserving memory for the whole file, which would fail for
// files larger than the memory.
func mmap(f *os.File, n int) ([]byte, error) {
	data, err := syscall.Mmap(int(f.Fd()), 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return data, nil
}

func munmap(data []byte) error { return syscall.Munmap(data) }
