package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// allocate gives an empty file size bytes of disk, so that a full one shows
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
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS): // the file system cannot
			return f.Truncate(size)
		}
		return err
	}
}
