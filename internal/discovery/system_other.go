//go:build !linux

package discovery

import (
	"errors"
	"runtime"

	"github.com/tryst-rdma/tryst/verbs"
)

// Network is not known here.
func Network() uint64 { return 0 }

// User is not known here.
func User() uint64 { return 0 }

// Directory is not known here.
func Directory(string) uint64 { return 0 }

// Watch is not possible here. The error is errors.ErrUnsupported.
func Watch(func()) (stop func(), err error) { return nil, errors.ErrUnsupported }

// Host says that there is nothing to find: RDMA devices are found on Linux only.
// The error is verbs.ErrUnavailable and errors.ErrUnsupported.
func Host() (System, error) {
	return System{}, &verbs.Error{
		Op:   "discover RDMA devices",
		Err:  errors.Join(verbs.ErrUnavailable, errors.ErrUnsupported),
		Hint: "they are found on Linux only, and this is " + runtime.GOOS,
	}
}
