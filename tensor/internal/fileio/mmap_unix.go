//go:build linux || darwin || freebsd

package fileio

import (
	"os"
	"syscall"
)

// mmap maps the first n bytes of f, private and writable: whoever holds the
// only reference to a tensor may write to it, and here that copies the page.
// Without MAP_NORESERVE the kernel would count the whole file as memory that
// may be needed and refuse files larger than that.
func mmap(f *os.File, n int) ([]byte, error) {
	data, err := syscall.Mmap(int(f.Fd()), 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return data, nil
}

func munmap(data []byte) error { return syscall.Munmap(data) }
