package grpctransport

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/status"
)

// endedWorker answers RecvTensor as TensorFlow does in a step that was
// cancelled.
type endedWorker struct {
	tensorflowgrpc.UnimplementedWorkerServiceServer
}

func (endedWorker) RecvTensor(ctx context.Context, _ *tfpb.RecvTensorRequest) (*tfpb.RecvTensorResponse, error) {
	details, err := proto.Marshal(&tfpb.GrpcPayloadContainer{Payloads: map[string][]byte{status.PayloadDerived: {}}})
	if err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs(detailsKey, string(details))); err != nil {
		return nil, err
	}
	return nil, grpcstatus.Error(codes.Canceled, "RecvFromRemoteAsync is cancelled.\n\t [[{{node x}}]]")
}

// TestTensorFlowCancelledIsNoBreak: TensorFlow's own Cancelled is an answer,
// although it does not have the trailer that ours has.
func TestTensorFlowCancelledIsNoBreak(t *testing.T) {
	var c testCluster
	tf := c.start(t, 0, nodeOptions{serve: func(s *grpc.Server, _ *node) {
		tensorflowgrpc.RegisterWorkerServiceServer(s, endedWorker{})
	}})
	b := c.start(t, 1, nodeOptions{})
	err := (<-b.begin(t.Context(), 1, tf.key(b, "x"))).err
	if e := status.From(err); e.Code() != status.Cancelled || e.Message() != "RecvFromRemoteAsync is cancelled.\n\t [[{{node x}}]]" || !status.IsDerived(e) {
		t.Errorf("got %v with %q", err, e.Payloads())
	}
}
