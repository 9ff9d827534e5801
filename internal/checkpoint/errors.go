package checkpoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
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

// answeredKey is the trailer that marks an error as the server's own. An error without it comes
// from gRPC or from a proxy (PROTOCOL.md section 4).
const answeredKey = "tryst-answered"

// answer returns err as a gRPC error with the same code, and marks it as the server's own with a
// trailer, which setTrailer sets. A refusal that may pass has status.TryAgain beside it.
func answer(err error, setTrailer func(metadata.MD)) error {
	if err == nil {
		return nil
	}
	e := status.From(err)
	trailer := metadata.Pairs(answeredKey, "1")
	if _, ok := e.Payload(status.TryAgain); ok {
		trailer.Set(status.TryAgain, "1")
	}
	setTrailer(trailer)
	return e.WithMessage(status.ForPeer(e.Message()))
}

// setTrailer sets the trailer of a unary call.
func setTrailer(ctx context.Context) func(metadata.MD) {
	return func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) } // fails only outside of a call
}

// wrongSettingKey is the payload of an error that does not pass before a user has corrected the
// port or a setting. It stays in this process.
const wrongSettingKey = "tryst-wrong-setting"

// changedKey is the payload of an error that another version of the publication has made: what has
// come of the first one cannot be used. It stays in this process.
const changedKey = "tryst-changed"

// changed marks an error with changedKey.
func changed(err *status.Error) *status.Error { return err.WithPayload(changedKey, nil) }

// damagedKey is the payload of an error about a tensor with a wrong digest: the tensor's name. It stays in
// this process.
const damagedKey = "tryst-damaged"

// damaged returns the error for a tensor that came with another digest than the manifest's.
func (e *TensorInfo) damaged(algorithm string, got []byte) *status.Error {
	return status.Errorf(status.DataLoss, "the content is damaged: its digest is %s, the manifest's %s",
		formatDigest(algorithm, got), formatDigest(algorithm, e.Digest)).WithPayload(damagedKey, []byte(e.Name))
}

// unreadable begins gRPC's text for a message that came whole, and that this process does not parse: it is
// none of its kind, or would take too much memory. The next one would be the same.
const unreadable = "grpc: failed to unmarshal the received message: "

// failed returns the error of a call to the server, with the request before the text. It quotes
// what the server said. An error that only says that there was no answer becomes Unavailable,
// whatever gRPC or a proxy made of it, unless ctx has ended.
func (p *Puller) failed(ctx context.Context, what string, err error, trailer metadata.MD) *status.Error {
	s := grpcstatus.Convert(err)
	code, text := status.Code(s.Code()), status.Truncate(transport.PlainText(s.Message()))
	if len(trailer.Get(answeredKey)) > 0 {
		said := p.server()
		if p.o.Address != "" {
			said = "the server " + said
		}
		e := status.Errorf(code, "%s: %w", what, &status.Said{Peer: said, Text: text})
		if len(trailer.Get(status.TryAgain)) > 0 {
			e = e.WithPayload(status.TryAgain, nil)
		}
		return e
	}
	if why, ok := strings.CutPrefix(text, unreadable); ok && code == status.Internal {
		return status.Errorf(status.InvalidArgument, "%s: what %s sent cannot be used: %s", what, p.server(), why)
	}
	switch code {
	case status.Unimplemented:
		return status.Errorf(code, "%s: %s has no publications: it is not a Tryst server, or of another version", what, p.server())
	case status.Unavailable, status.Cancelled, status.Unknown, status.Internal, status.Aborted:
		if strings.Contains(text, "the client connection is closing") { // by this process
			return status.Errorf(status.Cancelled, "%s: the client is closed", what)
		}
		if errors.Is(err, io.EOF) {
			text = "the stream ended"
		}
		how := "connection to " + p.server() + " lost"
		switch {
		case ctx.Err() != nil: // nothing else broke it
			return status.Errorf(status.CodeOf(ctx.Err()), "%s: %s", what, text)
		case strings.Contains(s.Message(), "connection error: desc"): // gRPC has made no connection
			how = "no connection to " + p.server()
		}
		e := status.Errorf(status.Unavailable, "%s: %s: %s", what, how, text)
		if strings.HasPrefix(text, p.server()) { // it says what answers there
			e = status.Errorf(status.Unavailable, "%s: %s", what, text)
		}
		if transport.WrongSetting(text) {
			e = e.WithPayload(wrongSettingKey, nil)
		}
		return e
	}
	return status.Errorf(code, "%s: %s: %s", what, p.server(), text)
}

// notOpened is failed for a call of Open or Watch. Its requests and messages are never too large for gRPC
// (maxOpenNames; a message has at most keysPerMessage, or one key). So ResourceExhausted that is not the server's own
// answer comes from gRPC at the server, or from a proxy, which has no room for the call now.
func (p *Puller) notOpened(ctx context.Context, what string, err error, trailer metadata.MD) *status.Error {
	e := p.failed(ctx, what, err, trailer)
	if e.Code() == status.ResourceExhausted && len(trailer.Get(answeredKey)) == 0 {
		e = e.WithPayload(status.TryAgain, nil).FromPeer() // not a lack of memory in this process (lastedTooLong)
	}
	return e
}
