//go:build unix

package checkpoint

import (
	"errors"
	"os"
	"syscall"

	"github.com/tryst-rdma/tryst/status"
)

// noFollow refuses a .part that is a symbolic link: in a directory that others
// write to it could lead anywhere.
const noFollow = syscall.O_NOFOLLOW

// lock locks an open file against other processes that lock it, until it is
// closed.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return status.New(status.FailedPrecondition, "another process is writing it")
	}
	return err
}
