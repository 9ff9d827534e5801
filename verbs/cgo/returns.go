package libibverbs

import (
	"errors"
	"syscall"
)

// How functions of libibverbs say that they failed: there are four ways, and
// the manual page of each function says which is its own. These are the only
// places that know them. errno is what cgo found in errno after the call, nil
// for 0.

// errNoReason is a failure whose reason the library did not give.
var errNoReason = errors.New("libibverbs gives no reason")

// pointerOrErrno is "a pointer, or NULL and errno": ibv_get_device_list,
// ibv_open_device, ibv_alloc_pd, ibv_reg_mr, ibv_create_cq, ibv_create_qp,
// ibv_create_comp_channel. The library leaves errno set after some successes, so
// it means something only when the pointer is nil.
func pointerOrErrno(isNil bool, errno error) error {
	switch {
	case !isNil:
		return nil
	case errno == nil:
		return errNoReason
	}
	return errno
}

// zeroOrErrno is "0, or the value of errno": ibv_post_send, ibv_modify_qp,
// ibv_query_port, ibv_dealloc_pd, ibv_destroy_qp and the like, which need not
// set errno itself. Drivers say it in two more ways, both understood: a negative
// error number, and -1 with errno.
func zeroOrErrno(rc int, errno error) error {
	switch {
	case rc == 0:
		return nil
	case rc > 0:
		return syscall.Errno(rc)
	case rc == -1 && errno != nil:
		return errno
	}
	return syscall.Errno(-rc)
}

// zeroOrMinusOne is "0, or -1 and errno": ibv_get_cq_event,
// ibv_get_async_event, ibv_query_gid, ibv_close_device. ibv_query_gid does not
// always set errno.
func zeroOrMinusOne(rc int, errno error) error {
	switch {
	case rc == 0:
		return nil
	case errno == nil:
		return errNoReason
	}
	return errno
}

// countOrNegative is "a count, or a negative number": ibv_poll_cq, which gives
// no reason (its drivers return -1 or an error number of their choice), and
// ibv_query_gid_table, which gives a negative error number.
func countOrNegative(rc int64) (int, error) {
	switch {
	case rc >= 0:
		return int(rc), nil
	case rc == -1:
		return 0, errNoReason
	}
	return 0, syscall.Errno(-rc)
}
