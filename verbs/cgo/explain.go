//go:build linux && cgo

package libibverbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tryst-rdma/tryst/verbs"
)

// explain makes an error of this project of one that the library gave: a
// sentinel where an error number has one meaning at all calls, and what to do.
func explain(op, object string, err error) error {
	e := &verbs.Error{Op: op, Object: object, Err: err}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return e
	}
	sentinel := func(s error, hint string) {
		e.Err, e.Hint = fmt.Errorf("%w: %w", s, err), hint
	}
	switch errno {
	case syscall.ENODEV, syscall.EIO: // EIO: the kernel took the device away from its users.
		sentinel(verbs.ErrDeviceGone, "close everything on it, and open it again when it is back")
	case syscall.EBUSY:
		sentinel(verbs.ErrBusy, "")
	case syscall.EINVAL:
		sentinel(verbs.ErrInvalid, "")
	case syscall.EACCES, syscall.EPERM:
		sentinel(verbs.ErrUnavailable, "this user may not open the files in /dev/infiniband: give it the rights, or give the container the devices")
	case syscall.ENOSYS:
		sentinel(verbs.ErrUnavailable, "this kernel has no RDMA for user space: modprobe ib_uverbs, and the driver of the device")
	case syscall.EOPNOTSUPP:
		sentinel(errors.ErrUnsupported, "")
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		e.Hint = "the peer's address does not answer: look at routes and neighbours (ip route get, ip neigh)"
	case syscall.ENOMEM:
		e.Hint = "the device or the kernel has no room for it: see the device's limits, and what other processes hold (rdma resource)"
	}
	return e
}

// outOfMemory is explain for calls that pin so many bytes (0 for not known):
// ENOMEM is most often the limit of locked memory.
func outOfMemory(op, object string, bytes uint64, err error) error {
	if errors.Is(err, syscall.ENOMEM) {
		if m := readMemlock().err(op, object, bytes, err); m != nil {
			return m
		}
	}
	return explain(op, object, err)
}

// gone reports whether a call failed because the device is no more. Destroying
// what was on it has then happened already.
func gone(err error) bool { return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EIO) }
