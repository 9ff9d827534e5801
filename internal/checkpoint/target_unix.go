//go:build unix

package checkpoint

import (
	"errors"
	"os"
	"syscall"

	"github.com/tryst-rdma/tryst/status"
)

// noFollow refuses a .part that is a symbolic link. In a directory that others may write to, it
// could lead to any file.
const noFollow = syscall.O_NOFOLLOW

// lock locks an open file until it is closed. Other processes that use lock are excluded.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return status.New(status.FailedPrecondition, "another process is writing it")
	}
	return err
}
