package grpctransport

import (
	"context"
	"errors"
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
	// detailsKey is gRPC's trailer for error details. TensorFlow puts a
	// GrpcPayloadContainer there, bare; gRPC's own libraries expect a
	// google.rpc.Status.
	detailsKey = "grpc-status-details-bin"

	// answeredKey is the trailer of an error that this package's server returns.
	// An error of a Tryst peer without it (and without details) comes from gRPC or
	// from a proxy: the peer has not answered (PROTOCOL.md section 4).
	answeredKey = "tryst-answered"

	// streamRemoved is what TensorFlow's gRPC says, with the code Unknown,
	// when a connection breaks in the middle.
	streamRemoved = "Stream removed"
)

// toGRPC returns err as gRPC sends it: code, cut message, and the payloads in
// TensorFlow's form in the trailer of the call that ctx belongs to.
func toGRPC(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	e := status.From(err)
	if open := new(transport.UndecidedError); errors.As(err, &open) {
		return grpcstatus.Error(codes.Code(e.Code()), status.ForPeer(e.Message())) // without the trailer: nothing was answered
	}
	trailer := metadata.Pairs(answeredKey, "1")
	if payloads := e.Payloads(); len(payloads) > 0 {
		b, err := proto.Marshal(&tfpb.GrpcPayloadContainer{Payloads: payloads})
		if err == nil { // fails only for a key that is no UTF-8
			trailer.Set(detailsKey, string(b))
		}
	}
	_ = grpc.SetTrailer(ctx, trailer) // fails only outside of a call or after its end
	return grpcstatus.Error(codes.Code(e.Code()), status.ForPeer(e.Message()))
}

// fromGRPC returns the error of a call as the peer meant it. trailer is what
// grpc.Trailer caught.
func fromGRPC(err error, trailer metadata.MD) error {
	if err == nil {
		return nil
	}
	s := grpcstatus.Convert(err)
	code, message := status.Code(s.Code()), transport.PlainText(s.Message())
	if s.Code() == codes.Internal {
		if c, m, ok := unmismatched(message); ok {
			code, message = c, m
		}
	}
	if code == status.Unknown && message == streamRemoved {
		code = status.Unavailable
	}
	e := status.New(code, message)
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

// answered reports whether an error with this trailer is the peer's own word.
// TensorFlow's worker has no trailer that says so, but marks the Cancelled of a
// step that ended as derived, and what gRPC says by itself has no payloads.
func answered(trailer metadata.MD) bool {
	return len(trailer.Get(answeredKey)) > 0 || len(trailer.Get(detailsKey)) > 0
}

// unmismatched undoes what grpc-go makes of a GrpcPayloadContainer. It takes
// the details for a google.rpc.Status, finds no code in it, and replaces the
// peer's code and message by
//
//	grpc-status-details-bin mismatch: grpc-status=CODE, grpc-message="TEXT", grpc-status-details-bin=...
//
// which is the only place where they are left.
func unmismatched(s string) (code status.Code, message string, ok bool) {
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
