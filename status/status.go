// Package status is the error type that crosses the borders between rooms,
// processes and wires: a code, a message for people, and payloads for
// programs.
//
// An error is *derived* when it is only the consequence of another one: the
// step was aborted because something else failed first. Whoever reports
// errors to a person prefers one that is not derived. The mark travels as a
// payload, as TensorFlow's workers send it.
package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"unicode/utf8"
)

// Keys of the payloads that TensorFlow's workers exchange.
const (
	// PayloadDerived marks an error that is the consequence of another one.
	// Its value is empty.
	PayloadDerived = "type.googleapis.com/tensorflow.DerivedStatus"
	// PayloadPossiblyRestarted reports that the worker may have restarted and
	// lost what the caller refers to.
	PayloadPossiblyRestarted = "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted"
	// PayloadLost is set by the reader when the sender's payloads could not
	// be parsed.
	PayloadLost = "type.googleapis.com/tensorflow.distributed_runtime.GrpcPayloadsLost"
)

// MaxMessage is how many bytes of a message cross a wire: TensorFlow's
// workers cut there, since a longer text does not fit gRPC's trailers.
const MaxMessage = 3072

const truncated = " ... [truncated]"

// Error is a failure with its class. It is immutable: the With methods return
// copies. The zero Error is not valid; use New or Errorf.
type Error struct {
	code     Code
	message  string
	cause    error
	payloads map[string][]byte
}

// New returns an error with the given code and message. A code of OK is a
// mistake of the caller and becomes Unknown, so that an error never reads as
// success.
func New(code Code, message string) *Error {
	if code == OK {
		code = Unknown
	}
	return &Error{code: code, message: message}
}

// Errorf is New with a format. A %w verb keeps the wrapped error for
// errors.Is and errors.As.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := New(code, err.Error())
	e.cause = errors.Unwrap(err)
	return e
}

// Error returns "Code: message".
func (e *Error) Error() string { return e.code.String() + ": " + e.message }

// Code returns the class of the error.
func (e *Error) Code() Code { return e.code }

// Message returns the text without the code.
func (e *Error) Message() string { return e.message }

// Unwrap returns what Errorf's %w named, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Is makes a cancelled or timed-out operation match the standard library's
// context errors.
func (e *Error) Is(target error) bool {
	switch target {
	case context.Canceled:
		return e.code == Cancelled
	case context.DeadlineExceeded:
		return e.code == DeadlineExceeded
	}
	return false
}

// Timeout reports whether the error is a deadline that passed (net.Error's
// convention).
func (e *Error) Timeout() bool { return e.code == DeadlineExceeded }

// Payload returns the value stored under key; it belongs to the error.
func (e *Error) Payload(key string) ([]byte, bool) {
	v, ok := e.payloads[key]
	return v, ok
}

// Payloads returns a copy of all payloads; nil when there are none.
func (e *Error) Payloads() map[string][]byte { return maps.Clone(e.payloads) }

// WithPayload returns a copy of the error that carries value under key.
func (e *Error) WithPayload(key string, value []byte) *Error {
	c := *e
	c.payloads = maps.Clone(e.payloads)
	if c.payloads == nil {
		c.payloads = make(map[string][]byte, 1)
	}
	c.payloads[key] = value
	return &c
}

// WithPrefix returns a copy whose message begins with prefix and ": ".
func (e *Error) WithPrefix(prefix string) *Error {
	c := *e
	c.message = prefix + ": " + e.message
	return &c
}

// Derived returns a copy marked as the consequence of another error.
func (e *Error) Derived() *Error {
	if IsDerived(e) {
		return e
	}
	return e.WithPayload(PayloadDerived, nil)
}

// CodeOf returns the class of any error: OK for nil, the code of the first
// *Error in its chain, Cancelled or DeadlineExceeded for a context's errors,
// Unknown for the rest.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	return From(err).code
}

// From returns err as an *Error: itself when its chain holds one (an outer
// error's text is kept as the message), else a new one with the code that
// CodeOf returns. From(nil) is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok { //nolint:errorlint // a wrapped one has another text, below
		return e
	}
	if e, ok := errors.AsType[*Error](err); ok {
		c := *e
		c.message, c.cause = err.Error(), err
		return &c
	}
	code := Unknown
	switch {
	case errors.Is(err, context.Canceled):
		code = Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		code = DeadlineExceeded
	}
	return &Error{code: code, message: err.Error(), cause: err}
}

// IsDerived reports whether err is marked as the consequence of another one.
func IsDerived(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if ok {
		_, ok = e.payloads[PayloadDerived]
	}
	return ok
}

var numbers = regexp.MustCompile(`(QP|queue pair) 0x[0-9a-f]{6}\b`)

// WithoutQPNs is a text without the numbers of queue pairs, in verbs' form. An
// attacker who is not on the path has to guess these numbers. So they go only to the log,
// to the caller, and to the peer that they are for.
func WithoutQPNs(text string) string { return numbers.ReplaceAllString(text, "$1") }

// ForPeer is a message as it leaves for a peer: without the numbers of queue pairs, and
// no longer than what crosses a wire.
func ForPeer(message string) string { return Truncate(WithoutQPNs(message)) }

// Truncate cuts a message to what crosses a wire (MaxMessage bytes plus a
// mark), never within a character. A shorter message is returned as it is.
func Truncate(message string) string {
	if len(message) <= MaxMessage {
		return message
	}
	cut := MaxMessage
	for cut > 0 && cut > MaxMessage-utf8.UTFMax && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + truncated
}
