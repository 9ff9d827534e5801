// Package status has the error type of all packages, processes and transports: a code, a
// message for people, and payloads for programs.
//
// An error is *derived* if it is only the consequence of another one, for instance when a
// step was aborted because something else failed first. Reports to people prefer errors that
// are not derived. The mark is a payload, as between TensorFlow's workers.
package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Keys of the payloads that TensorFlow's workers exchange.
const (
	// PayloadDerived marks an error that is the consequence of another one.
	// Its value is empty.
	PayloadDerived = "type.googleapis.com/tensorflow.DerivedStatus"
	// PayloadPossiblyRestarted means that the worker may have restarted and lost the state
	// that the caller refers to.
	PayloadPossiblyRestarted = "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted"
	// PayloadLost is set by the receiver of an error whose payloads cannot be parsed.
	PayloadLost = "type.googleapis.com/tensorflow.distributed_runtime.GrpcPayloadsLost"
)

// TryAgain is the key of the payload, without a value, of a refusal that may pass: others take what the call needs, and
// give it back when they end. Over gRPC it is a trailer (PROTOCOL.md section 4).
const TryAgain = "tryst-try-again"

const truncated = " ... [truncated]"

// Error is an error with a code. It is immutable: the With methods return copies. The zero
// Error is not valid; use New or Errorf.
type Error struct {
	code     Code
	message  string
	cause    error
	payloads map[string][]byte
	foreign  bool // a peer's: FromPeer
}

// New returns an error with the given code and message. It replaces the code OK by Unknown, so
// that an error is never taken for success.
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

// Passing returns a ResourceExhausted that may pass, marked with TryAgain. Use it where others hold what is missing, and
// not where a request is larger than its limit.
func Passing(format string, args ...any) *Error {
	return Errorf(ResourceExhausted, format, args...).WithPayload(TryAgain, nil)
}

// PassingIf is Passing if passes, and Errorf with ResourceExhausted otherwise.
func PassingIf(passes bool, format string, args ...any) *Error {
	if passes {
		return Passing(format, args...)
	}
	return Errorf(ResourceExhausted, format, args...)
}

// Error returns "Code: message".
func (e *Error) Error() string { return e.code.String() + ": " + e.message }

// Code returns the class of the error.
func (e *Error) Code() Code { return e.code }

// Message returns the text without the code.
func (e *Error) Message() string { return e.message }

// Unwrap returns the error that Errorf wrapped with %w, or nil.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus returns the error as gRPC's status functions see it: code and message, without the
// payloads. It makes an *Error the error of a call when a service of the importer returns it.
func (e *Error) GRPCStatus() *grpcstatus.Status {
	return grpcstatus.New(codes.Code(e.code), e.message)
}

// Is makes a cancelled or timed-out operation match the standard library's
// context errors, unless a peer's context has ended: the caller's own may live.
// An Aborted matches its kind, whichever process it comes from.
func (e *Error) Is(target error) bool {
	switch target {
	case context.Canceled:
		return e.code == Cancelled && !e.foreign
	case context.DeadlineExceeded:
		return e.code == DeadlineExceeded && !e.foreign
	}
	kind := e.kind()
	return kind != nil && kind == target
}

// Timeout reports whether the code is DeadlineExceeded (net.Error's convention).
func (e *Error) Timeout() bool { return e.code == DeadlineExceeded }

// Payload returns the value stored under key; it belongs to the error.
func (e *Error) Payload(key string) ([]byte, bool) {
	v, ok := e.payloads[key]
	return v, ok
}

// Payloads returns a copy of all payloads; nil when there are none.
func (e *Error) Payloads() map[string][]byte { return maps.Clone(e.payloads) }

// WithPayload returns a copy of the error with value under key.
func (e *Error) WithPayload(key string, value []byte) *Error {
	c := *e
	c.payloads = maps.Clone(e.payloads)
	if c.payloads == nil {
		c.payloads = make(map[string][]byte, 1)
	}
	c.payloads[key] = value
	return &c
}

// without returns a copy without the value under key.
func (e *Error) without(key string) *Error {
	c := *e
	c.payloads = maps.Clone(e.payloads)
	delete(c.payloads, key)
	return &c
}

// FromPeer returns a copy that is marked as the answer of a peer. It does not match the errors of
// contexts. The mark stays in this process.
func (e *Error) FromPeer() *Error {
	c := *e
	c.foreign = true
	return &c
}

// IsFromPeer reports whether err is the answer of a peer.
func IsFromPeer(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.foreign
}

// WithPrefix returns a copy whose message begins with prefix and ": ".
func (e *Error) WithPrefix(prefix string) *Error {
	c := *e
	c.message = prefix + ": " + e.message
	return &c
}

// WithMessage returns a copy with another text.
func (e *Error) WithMessage(message string) *Error {
	c := *e
	c.message = message
	return &c
}

// WithSuffix returns a copy whose message ends with suffix.
func (e *Error) WithSuffix(suffix string) *Error {
	c := *e
	c.message = e.message + suffix
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
// *Error in its chain, that of an error of gRPC, Cancelled or DeadlineExceeded for
// a context's errors, Unknown for the rest.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	return From(err).code
}

// From returns err as an *Error. If the chain of err has an *Error, the result has its code
// and payloads, and the text of err. Otherwise it is a new error with the code CodeOf(err).
// From(nil) is nil.
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
	switch g, ok := errors.AsType[grpcError](err); {
	case ok:
		if c := g.GRPCStatus().Code(); c != codes.OK { // an error is never success
			code = Code(c)
		}
		if direct, ok := err.(grpcError); ok { //nolint:errorlint // a wrapped one has another text
			return &Error{code: code, message: direct.GRPCStatus().Message(), cause: err}
		}
	case errors.Is(err, context.Canceled):
		code = Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		code = DeadlineExceeded
	}
	return &Error{code: code, message: err.Error(), cause: err}
}

// grpcError is an error of gRPC, or of a package that converts its errors to those of gRPC.
type grpcError interface {
	error
	GRPCStatus() *grpcstatus.Status
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

// WithoutQPNs removes the queue pair numbers, as package verbs writes them, from a text. An
// attacker who cannot see the packets has to guess these numbers. So they are only in logs,
// in local errors, and in messages to the peer of the queue pair.
func WithoutQPNs(text string) string { return numbers.ReplaceAllString(text, "$1") }

// ForPeer returns a message as it is sent to a peer: without queue pair numbers, and shortened
// by Truncate. The time that it takes does not grow with the message.
func ForPeer(message string) string {
	// A text without its numbers keeps at least a quarter of its length. So Truncate always
	// cuts within this part.
	return Truncate(WithoutQPNs(message[:min(len(message), 8*MaxMessage)]))
}

// Truncate shortens a message to MaxMessage bytes plus a mark, at a character boundary. It
// cuts earlier if the message would take more than 6 KiB as a header of gRPC. It returns a
// message within the limits unchanged.
func Truncate(message string) string {
	encoded, at := 0, 0 // at is the end of the last character that the message begins with
	for i, r := range message {
		if i > MaxMessage || encoded > maxEncoded {
			return message[:at] + truncated
		}
		at = i
		encoded += encodedLen(r)
	}
	if len(message) > MaxMessage || encoded > maxEncoded {
		return message[:at] + truncated
	}
	return message
}

// EncodedLen returns the bytes that a message takes in gRPC's header grpc-message.
func EncodedLen(message string) int {
	n := 0
	for _, r := range message {
		n += encodedLen(r)
	}
	return n
}

// encodedLen is EncodedLen of one character. gRPC sends U+FFFD for a byte that is none, as
// range returns it.
func encodedLen(r rune) int {
	if r < ' ' || r > '~' || r == '%' {
		return len("%XX") * utf8.RuneLen(r)
	}
	return 1
}
