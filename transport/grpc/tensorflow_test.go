package grpctransport

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
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

// TestTensorFlowGoldenBytes: our answers are the bytes that a real TensorFlow
// has sent for the same tensors, and its bytes give these tensors. The file says
// how it was made.
func TestTensorFlowGoldenBytes(t *testing.T) {
	text, err := os.ReadFile("testdata/tensorflow.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cases++
		name, digits, _ := strings.Cut(strings.TrimSpace(line), ": ")
		want, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		x, dead := goldenTensor(t, name)
		if got := wireBytes(t, &transport.TensorResponse{Tensor: x.Retain(), Dead: dead}); !bytes.Equal(got, want) {
			t.Errorf("%s:\nTryst      %x\nTensorFlow %x", name, got, want)
		}
		r := received{alloc: tensortest.NewAllocator(t)}
		r.parse(split(want, 1, 9, len(want)/2))
		if r.err != nil {
			t.Fatalf("%s: %v", name, r.err)
		}
		tensortest.RequireEqual(t, x, r.Tensor)
		if r.Dead != dead {
			t.Errorf("%s: dead is %v", name, r.Dead)
		}
		r.release()
	}
	if want := len(tensortest.PlainDTypes()); cases < want {
		t.Errorf("%d cases, and there are %d types", cases, want)
	}
}

// goldenTensor returns the tensor that a line names: "dead", or a type and its
// dimensions.
func goldenTensor(t *testing.T, name string) (x *tensor.Tensor, dead bool) {
	t.Helper()
	if name == "dead" {
		return tensortest.Sequence(t, tensor.Float32, 0), true
	}
	words := strings.Fields(name)
	dtype, ok := tensor.ParseDType(words[0])
	if !ok {
		t.Fatalf("no type %q", words[0])
	}
	var dims []int64
	for _, word := range words[1:] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		dims = append(dims, n)
	}
	return tensortest.Sequence(t, dtype, dims...), false
}
