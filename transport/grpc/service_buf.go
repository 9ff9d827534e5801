package grpctransport

import (
	"context"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// Field numbers of RecvBufResponse (TensorFlow's worker.proto) and of google.protobuf.Any.
const (
	fieldBufOptions = 4
	fieldAnyURL     = 1
	fieldAnyValue   = 2
)

// recvBuf implements RecvBuf. Large content goes to gRPC as it is, without the copy that generated
// code makes.
func (s *service) recvBuf(ctx context.Context, req *tfpb.RecvBufRequest) (any, error) {
	resp, err := s.Worker.RecvBuf(ctx, req)
	if err != nil {
		return nil, err
	}
	options := resp.GetTransportOptions()
	if len(options.GetValue()) <= copyLimit {
		return resp, nil
	}
	return encodeBuf(resp, options)
}

// encodeBuf encodes a response whose options have the content: all other fields, then the options
// with the content at the end. The content is never written again.
func encodeBuf(resp *tfpb.RecvBufResponse, options *anypb.Any) (any, error) {
	head, err := proto.Marshal(&tfpb.RecvBufResponse{
		BufPtr: resp.GetBufPtr(), NumBytes: resp.GetNumBytes(), IsDead: resp.GetIsDead(),
		SendStartMicros: resp.GetSendStartMicros(), RequireAck: resp.GetRequireAck(),
	})
	if err != nil {
		return nil, status.Errorf(status.Internal, "cannot encode the response to RecvBuf: %w", err)
	}
	var kind []byte
	kind = protowire.AppendTag(kind, fieldAnyURL, protowire.BytesType)
	kind = protowire.AppendString(kind, options.GetTypeUrl())
	kind = protowire.AppendTag(kind, fieldAnyValue, protowire.BytesType)
	kind = protowire.AppendVarint(kind, uint64(len(options.GetValue())))
	head = protowire.AppendTag(head, fieldBufOptions, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(kind)+len(options.GetValue())))
	return &response{buffers: mem.BufferSlice{mem.SliceBuffer(append(head, kind...)), mem.SliceBuffer(options.GetValue())}}, nil
}
