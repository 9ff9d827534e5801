package verbs

import (
	"errors"
	"fmt"
)

// Error is why a call of this package failed.
type Error struct {
	// Op is what was tried, in the words of this package: "open", "create QP".
	Op string
	// Object is what with: a device, "mlx5_0 port 1", a queue pair number.
	Object string
	// Err is why. It unwraps to the system's error number where the kernel
	// or the library gave one, and to one of the sentinels below where it fits.
	Err error
	// Hint is what to do about it; empty when there is nothing to say.
	Hint string
}

func (e *Error) Error() string {
	s := e.Op
	if e.Object != "" {
		s += " " + e.Object
	}
	s += ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Sentinels for errors.Is. "Not available here" is an ordinary answer:
// Provider.Devices and Open return errors with ErrUnavailable when there is no
// library, no kernel support, no permission. errors.ErrUnsupported stands for an
// operation that this device or provider does not have.
var (
	ErrUnavailable = errors.New("RDMA is not available")
	ErrNotFound    = errors.New("no such device, port or GID")
	ErrClosed      = errors.New("closed")
	ErrBusy        = errors.New("still in use")
	ErrQueueFull   = errors.New("queue full")
	ErrDeviceGone  = errors.New("the device is gone")
	ErrMemlock     = errors.New("the limit of locked memory is too low")
	ErrInvalid     = errors.New("invalid argument")
)

// Errorf is an Error whose cause is a sentinel with words.
func Errorf(op, object string, sentinel error, format string, args ...any) *Error {
	return &Error{Op: op, Object: object, Err: &worded{sentinel, fmt.Sprintf(format, args...)}}
}

// worded is a sentinel told in words of its own.
type worded struct {
	sentinel error
	text     string
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.sentinel }
