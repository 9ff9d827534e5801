package status_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/status"
)

// An importer that knows gRPC's status functions only sees code and text of our errors.
func TestGRPCSeesCodeAndText(t *testing.T) {
	for code := status.Cancelled; code <= status.Unauthenticated; code++ {
		err := status.New(code, "text").WithPayload("k", []byte("v"))
		for text, err := range map[string]error{
			"text":                     err,
			"outer: " + err.Error():    fmt.Errorf("outer: %w", err),
			err.Error() + "\n" + "EOF": errors.Join(err, io.EOF),
		} {
			s, ok := grpcstatus.FromError(err)
			if !ok || s.Code() != codes.Code(code) || s.Message() != text || grpcstatus.Code(err) != s.Code() {
				t.Errorf("%v: gRPC sees %v, %q, %v; want %q", err, s.Code(), s.Message(), ok, text)
			}
		}
	}
}

// An error of gRPC, from a call of the importer, keeps its code and text when it ends a step.
func TestErrorsOfGRPCKeepCodeAndText(t *testing.T) {
	err := grpcstatus.Error(codes.NotFound, "no such model")
	for text, err := range map[string]error{"no such model": err, "load: " + err.Error(): fmt.Errorf("load: %w", err)} {
		got := status.From(err)
		if got.Code() != status.NotFound || got.Message() != text || status.CodeOf(err) != status.NotFound || !errors.Is(got, err) {
			t.Errorf("%v is %v, want NotFound: %s", err, got, text)
		}
	}
	ours := status.New(status.DataLoss, "lost")
	if back := status.From(ours.GRPCStatus().Err()); back.Code() != ours.Code() || back.Message() != ours.Message() {
		t.Errorf("%v comes back as %v", ours, back)
	}
	if got := status.From(success{}); got.Code() != status.Unknown {
		t.Errorf("an error that claims success is %v, want Unknown", got)
	}
}

// success is an error whose status is OK.
type success struct{}

func (success) Error() string                  { return "odd" }
func (success) GRPCStatus() *grpcstatus.Status { return nil }
