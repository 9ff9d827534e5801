package grpctransport

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// failing is a worker whose GetStatus fails.
type failing struct {
	transport.Worker
	err func() error
}

func (f failing) GetStatus(context.Context, *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	return nil, f.err()
}

// overProvider returns what a client sees of the error that a worker returns.
func overProvider(t *testing.T) func(err error) *status.Error {
	var c testCluster
	var next error
	server := c.start(t, 0, nodeOptions{wrap: func(w transport.Worker) transport.Worker {
		return failing{w, func() error { return next }}
	}})
	client := c.start(t, 1, nodeOptions{})
	w, err := client.conns.Worker(server.task)
	if err != nil {
		t.Fatal(err)
	}
	return func(err error) *status.Error {
		next = err
		_, got := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
		var s *status.Error
		if !errors.As(got, &s) {
			t.Fatalf("%T: %v", got, got)
		}
		return s
	}
}

// TestH9Payloads: code, message and payloads survive gRPC.
func TestH9Payloads(t *testing.T) {
	send := overProvider(t)
	for code := status.Cancelled; code <= status.Unauthenticated; code++ {
		for _, sent := range []*status.Error{
			status.New(code, "plain"),
			status.New(code, "with \"quotes\",\nlines, % and \u00e9, grpc-message=\"x\"").Derived(),
			status.New(code, "a payload of any bytes").WithPayload("a", []byte("\xff\x02\x03")).WithPayload("b", nil),
			status.New(code, ""),
		} {
			got := send(sent)
			if got.Code() != sent.Code() || got.Message() != sent.Message() {
				t.Errorf("sent %v, got %v", sent, got)
			}
			for key, value := range sent.Payloads() {
				if v, ok := got.Payload(key); !ok || string(v) != string(value) {
					t.Errorf("%v: payload %q is %q, %v", sent, key, v, ok)
				}
			}
			if n, want := len(got.Payloads()), len(sent.Payloads()); n != want {
				t.Errorf("%v: %d payloads, want %d", sent, n, want)
			}
		}
	}
	if e := send(errors.New("of another kind")); e.Code() != status.Unknown || e.Message() != "of another kind" {
		t.Error(e)
	}
}

// TestLongMessageIsCut: TensorFlow's limit of 3072 bytes, with its mark.
func TestLongMessageIsCut(t *testing.T) {
	send := overProvider(t)
	for _, payload := range []bool{false, true} {
		sent := status.New(status.Internal, strings.Repeat("x", 10_000))
		if payload {
			sent = sent.Derived()
		}
		got := send(sent)
		if want := strings.Repeat("x", 3072) + " ... [truncated]"; got.Message() != want || got.Code() != status.Internal {
			t.Errorf("got %d bytes, ending in %q", len(got.Message()), got.Message()[len(got.Message())-20:])
		}
	}
}

// TestErrorFitsTheHeadersOfTensorFlow: a client that takes 8 KiB of headers, as TensorFlow's,
// gets every error with its code and as much of its text as fits.
func TestErrorFitsTheHeadersOfTensorFlow(t *testing.T) {
	var c testCluster
	var next error
	server := c.start(t, 0, nodeOptions{wrap: func(w transport.Worker) transport.Worker {
		return failing{w, func() error { return next }}
	}})
	client := c.start(t, 1, nodeOptions{dial: DialOptions{Extra: []grpc.DialOption{grpc.WithMaxHeaderListSize(8 << 10)}}})
	w, err := client.conns.Worker(server.task)
	if err != nil {
		t.Fatal(err)
	}
	large := func(n int) []byte { return bytes.Repeat([]byte{0xff}, n) }
	for name, c := range map[string]struct {
		text     string
		payloads map[string][]byte
		lost     bool // some payloads do not fit
	}{
		"accents":                {strings.Repeat("\u00e9", 5000), nil, false},
		"control characters":     {strings.Repeat("\x01", 5000), nil, false},
		"accents, derived":       {strings.Repeat("\u00e9", 5000), map[string][]byte{status.PayloadDerived: nil}, false},
		"payloads":               {"x", map[string][]byte{"a": large(2000), "b": large(2000)}, false},
		"a payload that is long": {"x", map[string][]byte{"a": large(9000), status.PayloadDerived: nil}, true},
		"text and payload":       {strings.Repeat("\x01", 5000), map[string][]byte{"a": large(4000), status.PayloadDerived: nil}, true},
		"key that is no text":    {"x", map[string][]byte{"\xff": nil, status.PayloadDerived: nil}, true},
	} {
		sent := status.New(status.FailedPrecondition, c.text)
		for key, value := range c.payloads {
			sent = sent.WithPayload(key, value)
		}
		next = sent
		_, err := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
		got := status.From(err)
		text := strings.TrimSuffix(got.Message(), " ... [truncated]")
		if got.Code() != status.FailedPrecondition || !strings.HasPrefix(c.text, text) || len(text) < min(len(c.text), 1024) {
			t.Errorf("%s: got %v with %d bytes of text", name, got.Code(), len(got.Message()))
		}
		if _, lost := got.Payload(status.PayloadLost); lost != c.lost {
			t.Errorf("%s: payloads lost: %v, want %v", name, lost, c.lost)
		}
		if _, derived := c.payloads[status.PayloadDerived]; status.IsDerived(got) != derived {
			t.Errorf("%s: derived: %v, want %v", name, !derived, derived)
		}
	}
}

// rawWorker is a WorkerService that writes its own trailer, as one in another
// language would.
type rawWorker struct {
	tensorflowgrpc.UnimplementedWorkerServiceServer
	getStatus func(context.Context) error
}

func (w rawWorker) GetStatus(ctx context.Context, _ *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	return nil, w.getStatus(ctx)
}

// TestH9FromTensorFlow: error details of TensorFlow's gRPC are parsed, although grpc-go expects
// another message there. Invalid details are marked as lost.
func TestH9FromTensorFlow(t *testing.T) {
	const derived = "0a2f" + "0a2b" + "747970652e676f6f676c65617069732e636f6d2f74656e736f72666c6f772e44657269766564537461747573" + "1200"
	var details string
	var c testCluster
	server := c.start(t, 0, nodeOptions{serve: func(s *grpc.Server, _ *node) {
		tensorflowgrpc.RegisterWorkerServiceServer(s, rawWorker{getStatus: func(ctx context.Context) error {
			if err := grpc.SetTrailer(ctx, metadata.Pairs(detailsKey, details)); err != nil {
				return err
			}
			return grpcstatus.Error(codes.Aborted, "the step \"1\" ended")
		}})
	}})
	client := c.start(t, 1, nodeOptions{})
	w, err := client.conns.Worker(server.task)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(strings.Replace(derived, "0a2f0a2b", "0a300a2c", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, details, payload string
	}{
		{"derived", string(raw), status.PayloadDerived},
		{"garbage", "string that is no GrpcPayloadContainer", status.PayloadLost},
	} {
		details = c.details
		_, err := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
		e := status.From(err)
		if e.Code() != status.Aborted || e.Message() != "the step \"1\" ended" {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, ok := e.Payload(c.payload); !ok || len(e.Payloads()) != 1 {
			t.Errorf("%s: payloads %q", c.name, e.Payloads())
		}
	}
}

// TestStreamRemoved: the error of TensorFlow's gRPC for a broken connection is Unavailable.
func TestStreamRemoved(t *testing.T) {
	err := fromGRPC(grpcstatus.Error(codes.Unknown, "Stream removed"), nil)
	if status.CodeOf(err) != status.Unavailable {
		t.Error(err)
	}
	err = fromGRPC(grpcstatus.Error(codes.Unknown, "Stream removed by hand"), nil)
	if status.CodeOf(err) != status.Unknown {
		t.Error(err)
	}
}

// TestMismatchParsesOnlyItsOwnText: an Internal error of the peer is not changed.
func TestMismatchParsesOnlyItsOwnText(t *testing.T) {
	for _, text := range []string{
		"", "grpc-status-details-bin mismatch", "grpc-status-details-bin mismatch: grpc-status=Aborted",
		"grpc-status-details-bin mismatch: grpc-status=Aborted, grpc-message=x",
	} {
		err := fromGRPC(grpcstatus.Error(codes.Internal, text), nil)
		if e := status.From(err); e.Code() != status.Internal || e.Message() != text {
			t.Errorf("%q became %v", text, err)
		}
	}
}

// TestErrorsOfCallsAreShort: gRPC takes 16 MiB of a peer. What the peer itself said is quoted with its
// name.
func TestErrorsOfCallsAreShort(t *testing.T) {
	long := grpcstatus.Error(codes.NotFound, strings.Repeat("x", 1<<20))
	said := metadata.Pairs(answeredKey, "1")
	for _, err := range []error{CallError("p", long, nil), CallError("p", long, said), fromGRPC(long, nil), fromGRPC(long, said)} {
		if n := len(err.Error()); n > 2*status.MaxMessage || status.CodeOf(err) != status.NotFound {
			t.Errorf("%d bytes of a text of 1 MiB, code %v", n, status.CodeOf(err))
		}
	}
	short := grpcstatus.Error(codes.NotFound, "no\nx")
	for want, err := range map[string]error{`NotFound: p says: "no\nx"`: CallError("p", short, said), "NotFound: p: no\nx": CallError("p", short, nil)} {
		if err.Error() != want {
			t.Errorf("%s, want %s", err, want)
		}
	}
}
