package udp

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrTooBig is wrapped by the error of Send when a segment is longer than the path MTU.
var ErrTooBig = errors.New("longer than the path MTU")

// Error is the error of opening a socket or sending a message.
type Error struct {
	// Op is "listen", "open a sender" or "send".
	Op string
	// Addr is the local address of a socket, or the destination of a message.
	Addr netip.AddrPort
	// Err is the reason; it wraps the system's error number.
	Err error
	// Hint is what to do about it; may be empty.
	Hint string
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s on %v: %v", e.Op, e.Addr, e.Err)
	if e.Op == opSend {
		s = fmt.Sprintf("send to %v: %v", e.Addr, e.Err)
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

const (
	opListen = "listen"
	opOpen   = "open a sender"
	opSend   = "send"
)

// tooBigError reports a segment that exceeds the path MTU. mtu is 0 if it is unknown.
type tooBigError struct {
	segment, mtu int
	err          error // of the system
}

func (t *tooBigError) Error() string {
	if t.mtu == 0 {
		return fmt.Sprintf("a datagram of %d bytes is longer than the path MTU: %v", t.segment, t.err)
	}
	return fmt.Sprintf("a datagram of %d bytes does not fit into the path MTU of %d: %v", t.segment, t.mtu, t.err)
}

func (t *tooBigError) Unwrap() []error { return []error{ErrTooBig, t.err} }
