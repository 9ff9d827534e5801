package grpctransport

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// BenchmarkRatio compares a receive through rendezvous and transport with two bare grpc-go
// calls of the same size over the same connection: one that copies the bytes once at the
// receiver, and one with generated code. The runs take turns, and the ratios are medians. With
// -benchtime=1x it compares once.
func BenchmarkRatio(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20, 16 << 20} {
		for _, inflight := range []int{1, 4} {
			b.Run(fmt.Sprintf("%dKiB/inflight=%d", size>>10, inflight), func(b *testing.B) {
				r := newBenchRig(b, size)
				for b.Loop() {
					r.compare(b, inflight)
				}
			})
		}
	}
}

const (
	benchPairs = 15
	benchRun   = 100 * time.Millisecond
)

type benchRig struct {
	ours, pass, generated func(ctx context.Context) error
	size                  int
}

// compare reports the rate of a receive in GB/s, its ratio to each baseline, and the ratio of a
// baseline to itself.
func (r *benchRig) compare(b *testing.B, inflight int) {
	run := func(f func(context.Context) error) float64 { return r.rate(b, f, inflight) }
	for _, f := range []func(context.Context) error{r.ours, r.pass, r.generated} {
		run(f)
	}
	var gbs, toPass, toGenerated, toItself []float64
	for range benchPairs {
		pass, ours, generated, again := run(r.pass), run(r.ours), run(r.generated), run(r.pass)
		gbs = append(gbs, ours*float64(r.size)/1e9)
		toPass = append(toPass, ours/((pass+again)/2))
		toGenerated = append(toGenerated, ours/generated)
		toItself = append(toItself, pass/again)
	}
	b.ReportMetric(median(gbs), "GB/s")
	b.ReportMetric(median(toPass), "of-passthrough")
	b.ReportMetric(median(toGenerated), "of-generated")
	b.ReportMetric(median(toItself), "A/A")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// rate returns the number of calls per second.
func (r *benchRig) rate(b *testing.B, f func(context.Context) error, inflight int) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var calls atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range inflight {
		wg.Go(func() {
			for time.Since(start) < benchRun {
				if err := f(ctx); err != nil {
					b.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(calls.Load()) / time.Since(start).Seconds()
}

const (
	passMethod      = "/bench.Bench/Pass"
	generatedMethod = "/bench.Bench/Generated"
)

func newBenchRig(b *testing.B, size int) *benchRig {
	b.Helper()
	pool := tensor.NewPool(tensor.PoolOptions{})
	shape, err := tensor.NewShape(int64(size / 4))
	if err != nil {
		b.Fatal(err)
	}
	x, err := tensor.Allocate(pool, tensor.Float32, shape)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(x.Release)
	var c testCluster
	sender := c.start(b, 0, nodeOptions{alloc: pool, serve: func(s *grpc.Server, n *node) {
		Register(s, ServiceOptions{Self: transport.Process{Name: n.task.String(), Incarnation: n.incarnation}, Worker: n.worker, Cache: n.kept})
		s.RegisterService(benchService(x), nil)
	}})
	receiver := c.start(b, 1, nodeOptions{alloc: pool})
	conn, err := receiver.conns.Conn(sender.task)
	if err != nil {
		b.Fatal(err)
	}
	key := sender.key(receiver, "x")
	from, to := sender.manager.Find(1), receiver.manager.Find(1)
	r := &benchRig{size: size}
	r.ours = func(ctx context.Context) error {
		if err := from.Send(key, rendezvous.Args{}, x, false); err != nil {
			return err
		}
		v, err := to.Recv(ctx, key, rendezvous.Args{})
		if err != nil {
			return err
		}
		v.Tensor.Release()
		return nil
	}
	r.pass = func(ctx context.Context) error {
		p := passed{pool: pool}
		if err := conn.Invoke(ctx, passMethod, &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key.String()}, &p, grpc.MaxCallRecvMsgSize(maxMessage)); err != nil {
			return err
		}
		p.buf.Release()
		return nil
	}
	r.generated = func(ctx context.Context) error {
		return conn.Invoke(ctx, generatedMethod, &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key.String()}, new(tfpb.RecvTensorResponse), grpc.MaxCallRecvMsgSize(maxMessage))
	}
	return r
}

// passed receives a message with one copy and without decoding it.
type passed struct {
	pool tensor.Allocator
	buf  *tensor.Buffer
}

func (p *passed) parse(data mem.BufferSlice) {
	p.buf, _ = p.pool.Allocate(data.Len())
	data.CopyTo(p.buf.Bytes())
}

func benchService(x *tensor.Tensor) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "bench.Bench", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Pass",
			Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				if err := dec(new(tfpb.RecvTensorRequest)); err != nil {
					return nil, err
				}
				return &response{buffers: mem.BufferSlice{mem.SliceBuffer(x.Bytes())}}, nil
			},
		}, {
			MethodName: "Generated",
			Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				if err := dec(new(tfpb.RecvTensorRequest)); err != nil {
					return nil, err
				}
				return &tfpb.RecvTensorResponse{SendStartMicros: 1, Tensor: &tfpb.TensorProto{
					Dtype:         tfpb.DataType_DT_FLOAT,
					TensorShape:   &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: x.Shape().Elements()}}},
					TensorContent: x.Bytes(),
				}}, nil
			},
		}},
	}
}

// BenchmarkRecvTensor measures a receive through rendezvous and transport.
func BenchmarkRecvTensor(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			r := newBenchRig(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.ours(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPassThrough measures a bare call of the same size.
func BenchmarkPassThrough(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			r := newBenchRig(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.pass(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRequests follows a small call: its headers, its request, its response.
func BenchmarkRequests(b *testing.B) {
	r := watchedRequests(b)
	in := begun(1, append(prefixOf(0, 200), make([]byte, 200)...))
	out := appendFrame(nil, frame{kind: frameHeaders, flags: flagEndStream})
	b.ReportAllocs()
	for stream := uint32(1); b.Loop(); stream += 2 {
		binary.BigEndian.PutUint32(in[5:], stream)
		binary.BigEndian.PutUint32(in[frameHeader+5:], stream)
		binary.BigEndian.PutUint32(out[5:], stream)
		if err := r.read(in); err != nil {
			b.Fatal(err)
		}
		r.wrote(out)
	}
}
