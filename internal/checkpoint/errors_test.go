package checkpoint

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/status"
)

// TestTheServerIsBlamedForWhatItSaid, and a connection for the rest, with the address.
func TestTheServerIsBlamedForWhatItSaid(t *testing.T) {
	said := metadata.Pairs(answeredKey, "1")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name    string
		err     error
		trailer metadata.MD
		ctx     context.Context
		want    string
	}{
		{"the server's own", grpcstatus.Error(codes.NotFound, "no m"), said, nil, "NotFound: asking: the server a:1 says: \"no m\""},
		{"the server is stopping", grpcstatus.Error(codes.Unavailable, "stopping"), said, nil, "Unavailable: asking: the server a:1 says: \"stopping\""},
		{"the server's own Internal", grpcstatus.Error(codes.Internal, "a bug"), said, nil, "Internal: asking: the server a:1 says: \"a bug\""},
		{"a broken connection", grpcstatus.Error(codes.Unavailable, "EOF"), nil, nil, "Unavailable: asking: connection to a:1 lost: EOF"},
		{"the end of a stream", io.EOF, nil, nil, "Unavailable: asking: connection to a:1 lost: the stream ended"},
		{"a reset by a proxy", grpcstatus.Error(codes.Internal, "stream terminated by RST_STREAM"), nil, nil, "Unavailable: asking: connection to a:1 lost: stream terminated by RST_STREAM"},
		{"a cancel by a proxy", grpcstatus.Error(codes.Canceled, "stream terminated by RST_STREAM"), nil, nil, "Unavailable: asking: connection to a:1 lost: stream terminated by RST_STREAM"},
		{"a cancel by the caller", grpcstatus.Error(codes.Canceled, "context canceled"), nil, over, "Cancelled: asking: context canceled"},
		{"the end of the client", grpcstatus.Error(codes.Canceled, "grpc: the client connection is closing"), nil, nil, "Cancelled: asking: the client is closed"},
		{"no connection", grpcstatus.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp a:1: connect: connection refused"`), nil, nil,
			"Unavailable: asking: no connection to a:1: dial tcp a:1: connect: connection refused"},
		{"no gRPC server", grpcstatus.Error(codes.Unavailable, `connection error: desc = "error reading server preface: a:1 is no gRPC server; check the port"`), nil, nil,
			"Unavailable: asking: a:1 is no gRPC server; check the port"},
		{"a message that is too large in memory", grpcstatus.Error(codes.Internal, "grpc: failed to unmarshal the received message: ResourceExhausted: too much"), nil, nil,
			"InvalidArgument: asking: what a:1 sent cannot be used: ResourceExhausted: too much"},
		{"another service", grpcstatus.Error(codes.Unimplemented, "unknown service"), nil, nil, "Unimplemented: asking: a:1 has no publications: it is not a Tryst server, or of another version"},
		{"a refusal by gRPC", grpcstatus.Error(codes.PermissionDenied, "no"), nil, nil, "PermissionDenied: asking: a:1: no"},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		p := &Puller{o: PullerOptions{Address: "a:1"}}
		if got := p.failed(ctx, "asking", c.err, c.trailer); got.Error() != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	long := grpcstatus.Error(codes.Internal, strings.Repeat("x", 1<<20))
	for _, trailer := range []metadata.MD{nil, said} {
		if got := new(Puller).failed(t.Context(), "asking", long, trailer); len(got.Message()) > 2*status.MaxMessage {
			t.Errorf("a text of 1 MiB became one of %d bytes", len(got.Message()))
		}
	}
	anonymous := new(Puller)
	if got := anonymous.failed(t.Context(), "asking", grpcstatus.Error(codes.NotFound, "no m"), said); got.Message() != "asking: the server says: \"no m\"" {
		t.Errorf("without an address: %q", got)
	}
	if !errors.Is(anonymous.failed(over, "asking", grpcstatus.Error(codes.Canceled, ""), nil), context.Canceled) || status.IsDerived(anonymous.failed(over, "asking", io.EOF, nil)) {
		t.Error("the caller's cancel is not context.Canceled")
	}
}

// TestWrongSettingDoesNotPass: a wrong port or a wrong setting of a connection ends a pull at once.
// The same words from a server, or an answer of a gateway, do not.
func TestWrongSettingDoesNotPass(t *testing.T) {
	p := &Puller{o: PullerOptions{Address: "a:1"}}
	handshake := func(s string) error {
		return grpcstatus.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: `+s+`"`)
	}
	for _, c := range []struct {
		err    error
		said   bool
		passes bool
	}{
		{handshake("a:1 does not trust the certificate of this process: tls.cert must be signed by an authority in the tls.ca of the server"), false, false},
		{handshake("a:1 is no gRPC server: check the port"), false, false},
		{handshake("EOF"), false, true},
		{grpcstatus.Error(codes.Unavailable, "the device is down: check the port of the switch"), true, true},
		{grpcstatus.Error(codes.Unavailable, `unexpected HTTP status code received from server: 502 (Bad Gateway); transport: received unexpected content-type "text/html"`), false, true},
		{grpcstatus.Error(codes.Internal, `unexpected HTTP status code received from server: 400 (Bad Request); transport: received unexpected content-type "text/html"`), false, false},
	} {
		var trailer metadata.MD
		if c.said {
			trailer = metadata.Pairs(answeredKey, "1")
		}
		err := wrap("pulling", p.failed(t.Context(), "asking", c.err, trailer))
		if got := mayPass(err); got != c.passes {
			t.Errorf("passes %v, want %v: %v", got, c.passes, err)
		}
	}
}
