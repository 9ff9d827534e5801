package verbs

import (
	"errors"
	"fmt"
)

// Error is the error type of this package and its providers.
type Error struct {
	// Op is the failed operation: "open", "create QP".
	Op string
	// Object is what it acted on: a device, "mlx5_0 port 1", a queue pair number.
	Object string
	// Err is the cause. It wraps the errno where the kernel or the library
	// returned one, and one of the sentinels below where one applies.
	Err error
	// Hint tells the user what to do about it; empty for none.
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

// Sentinels for errors.Is. An operation that the device or the provider does not have
// fails with errors.ErrUnsupported.
var (
	// ErrUnavailable: this host has no library, no kernel support or no
	// permission. Provider.Devices and Open return it.
	ErrUnavailable = errors.New("RDMA is not available")
	ErrNotFound    = errors.New("no such device, port or GID")
	ErrClosed      = errors.New("closed")
	ErrBusy        = errors.New("still in use")
	ErrQueueFull   = errors.New("queue full")
	ErrDeviceGone  = errors.New("the device is gone")
	ErrMemlock     = errors.New("the limit of locked memory is too low")
	ErrInvalid     = errors.New("invalid argument")
)

// Errorf returns an Error whose cause prints as the formatted text and wraps sentinel.
func Errorf(op, object string, sentinel error, format string, args ...any) *Error {
	return &Error{Op: op, Object: object, Err: &detailed{sentinel, fmt.Sprintf(format, args...)}}
}

// detailed wraps a sentinel and prints as text alone.
type detailed struct {
	sentinel error
	text     string
}

func (d *detailed) Error() string { return d.text }
func (d *detailed) Unwrap() error { return d.sentinel }
