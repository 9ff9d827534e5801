package checkpoint

import (
	"errors"
	"io/fs"
	"strconv"
	"syscall"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// quote returns s in quotes for a message, shortened to maxQuoted bytes.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:maxQuoted]) + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// wrap returns err with the code of codeOf and with the operation before its text.
func wrap(what string, err error) *status.Error {
	if _, ok := errors.AsType[*status.Error](err); ok {
		return status.From(err).WithPrefix(what)
	}
	return status.Errorf(codeOf(err), "%s: %w", what, err)
}

// codeOf is status.CodeOf, extended to errors of the operating system.
func codeOf(err error) status.Code {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.NotFound
	case errors.Is(err, fs.ErrExist):
		return status.AlreadyExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return status.PermissionDenied
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return status.ResourceExhausted
	}
	return status.CodeOf(err)
}

// bare removes the operation and the path from an error of package os, for messages that name
// the file themselves.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// toGRPC returns err as a gRPC error with the same code.
func toGRPC(err error) error {
	if err == nil {
		return nil
	}
	e := status.From(err)
	return grpcstatus.Error(codes.Code(e.Code()), status.ForPeer(e.Message()))
}

// fromGRPC is the inverse of toGRPC. It adds the request before the text.
func fromGRPC(what string, err error) *status.Error {
	s := grpcstatus.Convert(err)
	if s.Code() == codes.Unimplemented {
		return status.Errorf(status.Unimplemented, "%s: the server has no publications: it is not a Tryst server, or of another version", what)
	}
	return status.Errorf(status.Code(s.Code()), "%s: %s", what, transport.PlainText(s.Message()))
}
