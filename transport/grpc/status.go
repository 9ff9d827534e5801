package grpctransport

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

const (
	// detailsKey is gRPC's trailer for error details. TensorFlow writes a bare
	// GrpcPayloadContainer there; gRPC's own libraries expect a google.rpc.Status.
	detailsKey = "grpc-status-details-bin"

	// answeredKey is the trailer that marks an error as the peer's own. An error of a
	// Tryst peer without it, and without details, comes from gRPC or from a proxy: the
	// peer has not answered (PROTOCOL.md section 4).
	answeredKey = "tryst-answered"

	// streamRemoved is the text of TensorFlow's gRPC, with the code Unknown, when a
	// connection breaks during a call.
	streamRemoved = "Stream removed"
)

// toGRPC returns err as a gRPC error with its code and shortened message (status.Error.GRPCStatus). It sets the
// trailers of ctx's call: answeredKey, status.TryAgain, and the other payloads in TensorFlow's form.
func toGRPC(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	e := status.From(err)
	if undecided := new(transport.UndecidedError); errors.As(err, &undecided) {
		return e.WithMessage(status.ForPeer(e.Message())) // without the trailer: this is no answer
	}
	trailer, message := metadata.Pairs(answeredKey, "1"), status.ForPeer(e.Message())
	payloads := e.Payloads()
	if _, ok := payloads[status.TryAgain]; ok {
		delete(payloads, status.TryAgain)
		trailer.Set(status.TryAgain, "1")
	}
	if len(payloads) > 0 {
		trailer.Set(detailsKey, marshalPayloads(payloads, maxHeaders-otherHeaders-status.EncodedLen(message)))
	}
	_ = grpc.SetTrailer(ctx, trailer) // fails only outside of a call or after its end
	return e.WithMessage(message)
}

// marshalPayloads returns the payloads in TensorFlow's form. If they would take more than
// limit bytes of a header, the largest ones are left out, and PayloadLost says so.
func marshalPayloads(payloads map[string][]byte, limit int) string {
	sent := &tfpb.GrpcPayloadContainer{Payloads: payloads}
	if fitsHeader(sent, limit) {
		b, _ := proto.Marshal(sent) // fitsHeader has found that it does not fail
		return string(b)
	}
	keys := slices.SortedFunc(maps.Keys(payloads), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a)+len(payloads[a]), len(b)+len(payloads[b])), cmp.Compare(a, b))
	})
	sent.Payloads = map[string][]byte{status.PayloadLost: nil}
	for _, key := range keys {
		sent.Payloads[key] = payloads[key]
		if !fitsHeader(sent, limit) {
			delete(sent.Payloads, key)
		}
	}
	b, _ := proto.Marshal(sent)
	return string(b)
}

// fitsHeader reports whether a header can carry the payloads, in base64. It cannot carry a
// key that is not UTF-8.
func fitsHeader(c *tfpb.GrpcPayloadContainer, limit int) bool {
	b, err := proto.Marshal(c)
	return err == nil && base64.RawStdEncoding.EncodedLen(len(b)) <= limit
}

// CallError returns the error of a call of any service to a peer, which is named by its task or address.
// Its text names the peer, is shortened, and is quoted if it is what the peer itself said.
func CallError(peer string, err error, trailer metadata.MD) *status.Error {
	s := grpcstatus.Convert(err)
	code, text := status.Code(s.Code()), status.Truncate(transport.PlainText(s.Message()))
	if answered(trailer) {
		return status.Errorf(code, "%w", &status.Said{Peer: peer, Text: text})
	}
	return status.New(code, text).WithPrefix(peer)
}

// fromGRPC returns the error of a call as a status error with the peer's code, text and
// payloads. trailer is the trailer of the call.
func fromGRPC(err error, trailer metadata.MD) error {
	if err == nil {
		return nil
	}
	s := grpcstatus.Convert(err)
	code, message := status.Code(s.Code()), transport.PlainText(s.Message())
	if s.Code() == codes.Internal {
		if c, m, ok := parseMismatch(message); ok {
			code, message = c, m
		}
	}
	if code == status.Unknown && message == streamRemoved {
		code = status.Unavailable
	}
	e := status.New(code, status.Truncate(message))
	if len(trailer.Get(status.TryAgain)) > 0 {
		e = e.WithPayload(status.TryAgain, nil)
	}
	for _, details := range trailer.Get(detailsKey) {
		var c tfpb.GrpcPayloadContainer
		if proto.Unmarshal([]byte(details), &c) != nil {
			return e.WithPayload(status.PayloadLost, nil)
		}
		for key, value := range c.GetPayloads() {
			e = e.WithPayload(key, value)
		}
	}
	return e
}

// answered reports whether an error with this trailer is the peer's own. TensorFlow does not
// send answeredKey. It sends payloads with some errors, for instance to mark the Cancelled of
// an ended step as derived; errors of gRPC itself have no payloads.
func answered(trailer metadata.MD) bool {
	return len(trailer.Get(answeredKey)) > 0 || len(trailer.Get(detailsKey)) > 0
}

// connecting are the beginnings of grpc-go's error for a call that was not sent, since no connection
// was made: while dialing, in the TLS handshake, before the first frame. The texts are not part of
// gRPC's API: TestNotConnected provokes each. An error that begins otherwise may have been sent.
var connecting = [...]string{
	`connection error: desc = "transport: Error while dialing: `,
	`connection error: desc = "transport: authentication handshake failed: `,
	`connection error: desc = "transport: failed to write client preface: `,
	`connection error: desc = "error reading server preface: `,
}

// notConnected reports whether err is grpc-go's error for a call that was not sent.
func notConnected(err error) bool {
	s := grpcstatus.Convert(err)
	return s.Code() == codes.Unavailable && slices.ContainsFunc(connecting[:], func(text string) bool {
		return strings.HasPrefix(s.Message(), text)
	})
}

// parseMismatch recovers the peer's code and message from an error with TensorFlow's details.
// grpc-go parses the GrpcPayloadContainer as a google.rpc.Status, finds no code in it, and
// replaces code and message by Internal and
//
//	grpc-status-details-bin mismatch: grpc-status=CODE, grpc-message="TEXT", grpc-status-details-bin=...
func parseMismatch(s string) (code status.Code, message string, ok bool) {
	s, ok = strings.CutPrefix(s, detailsKey+" mismatch: grpc-status=")
	if !ok {
		return 0, "", false
	}
	name, s, ok := strings.Cut(s, ", grpc-message=")
	if !ok {
		return 0, "", false
	}
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return 0, "", false
	}
	if message, err = strconv.Unquote(quoted); err != nil {
		return 0, "", false
	}
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return status.Code(c), message, true
		}
	}
	return status.Unknown, message, true
}
