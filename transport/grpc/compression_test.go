package grpctransport

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TestCompressedCalls: a client that compresses its messages with gzip, as TensorFlow does with
// RPCOptions.compression_algorithm, is served. The package itself links gzip.
func TestCompressedCalls(t *testing.T) {
	var c testCluster
	server := c.start(t, 0, nodeOptions{})
	conn, err := grpc.NewClient(server.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var resp tfpb.GetStatusResponse
	if err := conn.Invoke(t.Context(), "/tensorflow.WorkerService/GetStatus", &tfpb.GetStatusRequest{}, &resp, grpc.UseCompressor("gzip")); err != nil {
		t.Error(err)
	}
}

// described is a service of publications with one manifest, which is encoded already.
type described struct {
	trystgrpc.UnimplementedPublicationsServer
	manifest *trystpb.DescribeResponse
}

func (d described) Describe(context.Context, *trystpb.DescribeRequest) (*trystpb.DescribeResponse, error) {
	return d.manifest, nil
}

func (d described) Open(_ *trystpb.OpenRequest, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	return stream.Send(&trystpb.OpenResponse{StepId: 1, Keys: []*trystpb.TensorKey{{Key: strings.Repeat("k", 4<<10)}}})
}

// TestServicesForAllCompressNothing: a client that compresses its small request would have the server compress a
// large manifest for each call.
func TestServicesForAllCompressNothing(t *testing.T) {
	manifest := &trystpb.DescribeResponse{DigestAlgorithm: strings.Repeat("x", 4<<10)}
	n := new(testCluster).start(t, 0, nodeOptions{serve: func(s *grpc.Server, _ *node) {
		trystgrpc.RegisterPublicationsServer(LimitCalls(s), described{manifest: manifest})
	}})
	received := new(byteCount)
	conn, err := grpc.NewClient(n.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(received))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := trystgrpc.NewPublicationsClient(conn)
	resp, err := c.Describe(t.Context(), &trystpb.DescribeRequest{}, grpc.UseCompressor("gzip"))
	if err != nil || len(resp.GetDigestAlgorithm()) != 4<<10 {
		t.Fatal(err)
	}
	stream, err := c.Open(t.Context(), &trystpb.OpenRequest{}, grpc.UseCompressor("gzip"))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := received.n.Load(); n < 8<<10 {
		t.Errorf("two responses of 4 KiB are %d bytes on the wire", n)
	}
}

// byteCount counts the bytes of the messages that a client receives, as they come.
type byteCount struct{ n atomic.Int64 }

func (w *byteCount) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		w.n.Add(int64(in.CompressedLength))
	}
}
func (*byteCount) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*byteCount) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*byteCount) HandleConn(context.Context, stats.ConnStats)                       {}

// TestResponseThatIsEncodedIsLent: any number of calls for one manifest, which their client does not read, neither
// encode nor copy it.
func TestResponseThatIsEncodedIsLent(t *testing.T) {
	b, err := proto.Marshal(&trystpb.DescribeResponse{DigestAlgorithm: strings.Repeat("x", 4<<20)})
	if err != nil {
		t.Fatal(err)
	}
	manifest := new(trystpb.DescribeResponse)
	manifest.ProtoReflect().SetUnknown(b)
	n := new(testCluster).start(t, 0, nodeOptions{serve: func(s *grpc.Server, _ *node) {
		trystgrpc.RegisterPublicationsServer(LimitCalls(s), described{manifest: manifest})
	}})
	const calls = 12
	answers := new(atomic.Int64)
	used := allocated(func() {
		c := stall(t, n.address)
		for range calls {
			c.call(&grpc.StreamDesc{}, trystgrpc.Publications_Describe_FullMethodName, &trystpb.DescribeRequest{})
		}
		for _, stream := range c.streams {
			if _, err := stream.Header(); err != nil { // it comes with the first bytes of the message
				t.Fatal(err)
			}
			answers.Add(1)
		}
	})
	if answers.Load() != calls || used > calls<<20 {
		t.Errorf("%d answers of %d bytes took %d bytes", answers.Load(), len(b), used)
	}
	// What is lent is what comes.
	resp, err := trystgrpc.NewPublicationsClient(dialPlainly(t, n.address)).Describe(t.Context(), &trystpb.DescribeRequest{}, grpc.MaxCallRecvMsgSize(8<<20))
	if err != nil || len(resp.GetDigestAlgorithm()) != 4<<20 {
		t.Errorf("%d bytes came: %v", len(resp.GetDigestAlgorithm()), err)
	}
}
