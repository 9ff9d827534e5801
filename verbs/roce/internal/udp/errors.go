package udp

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrTooBig is in the tree of the error of Send when a segment is longer than the
// path takes.
var ErrTooBig = errors.New("longer than the path MTU")

// Error is why a socket could not be made, or why a message was not sent.
type Error struct {
	// Op is "listen", "open a sender" or "send".
	Op string
	// Addr is the local address of a socket, or where the message should go.
	Addr netip.AddrPort
	// Err is why; it unwraps to the system's error number.
	Err error
	// Hint is what to do about it; empty when there is nothing to say.
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

// tooBig says that a segment does not fit into the path MTU; 0 when nobody knows
// that.
type tooBig struct {
	segment, mtu int
	err          error // of the system
}

func (t *tooBig) Error() string {
	if t.mtu == 0 {
		return fmt.Sprintf("a datagram of %d bytes is longer than the path MTU takes: %v", t.segment, t.err)
	}
	return fmt.Sprintf("a datagram of %d bytes does not fit into the path MTU of %d: %v", t.segment, t.mtu, t.err)
}

func (t *tooBig) Unwrap() []error { return []error{ErrTooBig, t.err} }
