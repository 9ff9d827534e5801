package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves size bytes of disk for an empty file, so that a full disk is detected
// before anything is transferred.
func allocate(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS): // not supported by the file system
			return f.Truncate(size)
		}
		return err
	}
}
