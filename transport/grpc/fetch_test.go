package grpctransport

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// largest is an allocator that records the largest allocated size.
type largest struct {
	*tensortest.Allocator
	mu   sync.Mutex
	size int // guarded by mu
}

func (l *largest) Allocate(n int) (*tensor.Buffer, error) {
	b, err := l.Allocator.Allocate(n)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.size = max(l.size, n)
	}
	return b, err
}

// liar responds to every receive with a ticket, and to every fetch with a number of chunks of zeros.
type liar struct {
	tensorflowgrpc.UnimplementedWorkerServiceServer
	trystgrpc.UnimplementedPeersServer
	trystgrpc.UnimplementedChunksServer
	self   *node
	dtype  tensor.DType
	shape  tensor.Shape
	ticket *trystpb.Ticket
	chunks int
	place  func(i int) int // of chunk i, in chunks; nil for one after the other
}

func (l *liar) Hello(context.Context, *trystpb.HelloRequest) (*trystpb.HelloResponse, error) {
	return &trystpb.HelloResponse{Name: l.self.task.String(), Incarnation: l.self.incarnation}, nil
}

func (l *liar) RecvTensor(context.Context, *tfpb.RecvTensorRequest) (*tfpb.RecvTensorResponse, error) {
	options, err := anypb.New(&trystpb.RecvExtra{SenderIncarnation: l.self.incarnation, Ticket: l.ticket})
	return &tfpb.RecvTensorResponse{
		Tensor: &tfpb.TensorProto{
			Dtype: tensorproto.DTypeToProto(l.dtype), TensorShape: tensorproto.ShapeToProto(l.shape),
		},
		TransportOptions: options,
	}, err
}

func (l *liar) Fetch(_ *trystpb.FetchRequest, stream grpc.ServerStreamingServer[trystpb.Chunk]) error {
	for i := range l.chunks {
		at := i
		if l.place != nil {
			at = l.place(i)
		}
		if err := stream.Send(&trystpb.Chunk{Offset: uint64(at) * chunkSize, Data: make([]byte, chunkSize)}); err != nil {
			return err
		}
	}
	return nil
}

// TestFetchLyingTicket: a ticket for more content than is sent, or for other content, ends the
// receive with an error that names the peer and the sizes. The memory for a message is in proportion
// to the bytes received; the allocator may refuse the memory for the elements of a tensor.
func TestFetchLyingTicket(t *testing.T) {
	const limit = 64 << 20
	for _, c := range []struct {
		name   string
		dtype  tensor.DType
		dim    int64
		ticket *trystpb.Ticket
		chunks int
		limit  int64 // of the allocator; 0 for the Go heap's own
		most   int   // the largest allocation
		code   status.Code
		parts  []string
	}{
		{
			"plain above the limit", tensor.Uint8, 1 << 40, &trystpb.Ticket{Bytes: 1 << 40}, 1, limit, 0,
			status.ResourceExhausted, []string{"uint8", "[1099511627776]", "cannot allocate 1099511627776 bytes", "limit is 67108864"},
		},
		{
			"plain above the heap", tensor.Float32, 1 << 40, &trystpb.Ticket{Bytes: 4 << 40}, 1, 0, 0,
			status.ResourceExhausted, []string{"float", "[1099511627776]", "cannot allocate 4398046511104 bytes", fmt.Sprint(tensor.MaxHeap)},
		},
		{
			"plain of another size", tensor.Float32, 100, &trystpb.Ticket{Bytes: 1 << 40}, 1, limit, 0,
			status.InvalidArgument, []string{"float", "[100]", "is for 1099511627776 bytes; it has 400"},
		},
		{
			"plain with too many elements", tensor.Float32, math.MaxInt64, &trystpb.Ticket{Bytes: 1 << 40}, 1, limit, 0,
			status.InvalidArgument, []string{"float", "[9223372036854775807]"},
		},
		{
			"plain that ends early", tensor.Uint8, 4 << 20, &trystpb.Ticket{Bytes: 4 << 20}, 3, limit, 4 << 20,
			status.DataLoss, []string{"at byte 3145728 of 4194304"},
		},
		{
			"plain that goes on", tensor.Uint8, 2 << 20, &trystpb.Ticket{Bytes: 2 << 20}, 3, limit, 2 << 20,
			status.InvalidArgument, []string{"has 1048576 bytes from byte 2097152; expected at most 0"},
		},
		{
			"message above protobuf's limit", tensor.String, 2, &trystpb.Ticket{Bytes: 1 << 40, Proto: true}, 1, limit, 0,
			status.InvalidArgument, []string{"string", "[2]", "1099511627776", "2147483647"},
		},
		{
			"message that does not come", tensor.String, 2, &trystpb.Ticket{Bytes: maxMessage, Proto: true}, 0, limit, growth,
			status.DataLoss, []string{"at byte 0 of 2147483647"},
		},
		{
			"message that ends early", tensor.String, 2, &trystpb.Ticket{Bytes: maxMessage, Proto: true}, 9, limit, 2*9<<20 + growth,
			status.DataLoss, []string{"at byte 9437184 of 2147483647"},
		},
		{
			"message beyond the limit", tensor.String, 2, &trystpb.Ticket{Bytes: maxMessage, Proto: true}, 100, limit, limit,
			status.ResourceExhausted, []string{"limit is 67108864"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			alloc := &largest{Allocator: tensortest.NewAllocator(t)}
			alloc.SetLimit(c.limit)
			var cluster testCluster
			a := cluster.start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
				l := &liar{self: n, dtype: c.dtype, shape: tensortest.Shape(t, c.dim), ticket: c.ticket, chunks: c.chunks}
				tensorflowgrpc.RegisterWorkerServiceServer(s, l)
				trystgrpc.RegisterPeersServer(s, l)
				trystgrpc.RegisterChunksServer(s, l)
			}})
			b := cluster.start(t, 1, nodeOptions{alloc: alloc})
			o := <-b.begin(t.Context(), 1, a.key(b, "x"))
			if status.CodeOf(o.err) != c.code {
				t.Fatalf("%v, want %v", o.err, c.code)
			}
			for _, part := range append(c.parts, a.task.String()) {
				if n := strings.Count(o.err.Error(), part); n == 0 || part == a.task.String() && n > 1 {
					t.Errorf("%q is %d times in: %v", part, n, o.err)
				}
			}
			b.close()
			alloc.WaitAllReleased(waitLimit)
			if alloc.size > c.most {
				t.Errorf("%d bytes were allocated at once, want at most %d", alloc.size, c.most)
			}
		})
	}
}

// TestChunkOutOfPlaceIsRefused: a chunk after a gap, or a repeated one, is refused.
func TestChunkOutOfPlaceIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		place func(i int) int
		want  string
	}{
		"a gap":             {func(i int) int { return 2 * i }, "has 1048576 bytes from byte 2097152; expected at most 2097152 from byte 1048576"},
		"again":             {func(int) int { return 0 }, "from byte 0; expected at most 2097152 from byte 1048576"},
		"not the beginning": {func(i int) int { return i + 1 }, "from byte 1048576; expected at most 3145728 from byte 0"},
		"the other way":     {func(i int) int { return 2 - i }, "from byte 2097152; expected at most 3145728 from byte 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var cluster testCluster
			a := cluster.start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
				l := &liar{self: n, dtype: tensor.Uint8, shape: tensor.Vector(3 << 20), ticket: &trystpb.Ticket{Bytes: 3 << 20}, chunks: 3, place: c.place}
				tensorflowgrpc.RegisterWorkerServiceServer(s, l)
				trystgrpc.RegisterPeersServer(s, l)
				trystgrpc.RegisterChunksServer(s, l)
			}})
			b := cluster.start(t, 1, nodeOptions{})
			o := <-b.begin(t.Context(), 1, a.key(b, "x"))
			if o.err == nil {
				o.v.Tensor.Release()
			}
			if status.CodeOf(o.err) != status.InvalidArgument || !strings.Contains(o.err.Error(), c.want) {
				t.Errorf("%v, want %v with %q", o.err, status.InvalidArgument, c.want)
			}
		})
	}
}

// TestFetchGrows: the buffer of a message grows with the bytes received, and keeps them.
func TestFetchGrows(t *testing.T) {
	const size = 20<<20 + 5
	alloc := &largest{Allocator: tensortest.NewAllocator(t)}
	var p transport.Partial
	f := download{content: content{size, true}, partial: &p, alloc: alloc}
	for came := 0; came < size; {
		n := min(700_000, size-came)
		if err := f.reserve(n); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			p.Buffer.Bytes()[came+i] = byte((came + i) / 1000)
		}
		came += n
		p.Bytes = int64(came)
		if got := p.Buffer.Len(); got < came || got > 2*came+growth || got > size {
			t.Fatalf("%d bytes for %d that have come of %d", got, came, size)
		}
	}
	for i, got := range p.Buffer.Bytes() {
		if got != byte(i/1000) {
			t.Fatalf("byte %d is %d", i, got)
		}
	}
	if p.Buffer.Len() != size {
		t.Errorf("%d bytes at the end", p.Buffer.Len())
	}
	p.Drop()
}
