package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves disk for a range of a file. It returns false if the file system cannot do that.
func allocate(f *os.File, p piece) (bool, error) {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, p.off, p.n)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return false, nil
		}
		return err == nil, err
	}
}
