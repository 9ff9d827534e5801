package transport

import (
	"strconv"
	"strings"
)

// PlainText removes gRPC's wrapping from the text of a connection error, so that the text of
// the network error remains:
//
//	connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2222: connect: connection refused"
//	dial tcp 10.0.0.1:2222: connect: connection refused
//
// It keeps the text around the wrapping, and returns any other text unchanged.
func PlainText(s string) string {
	const wrapping = `connection error: desc = `
	before, rest, ok := strings.Cut(s, wrapping)
	if !ok {
		return s
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return s
	}
	inner, err := strconv.Unquote(quoted)
	if err != nil {
		return s
	}
	inner = strings.TrimPrefix(inner, "transport: ")
	inner = strings.TrimPrefix(inner, "Error while dialing: ")
	return before + inner + rest[len(quoted):]
}
