package grpctransport

import (
	"bytes"
	"compress/gzip"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/logtest"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// rawCodec sends and receives bytes.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil //nolint:errcheck // the tests pass nothing else
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize() //nolint:errcheck // the tests pass nothing else
	return nil
}
func (rawCodec) Name() string { return "proto" }

var _ encoding.CodecV2 = rawCodec{}

// emptyNodes is a graph of n empty nodes, of two bytes each, as a RegisterGraphRequest.
func emptyNodes(n int) []byte {
	nodes := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil), n)
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nodes)
}

// dialRaw dials a node with bytes as messages.
func dialRaw(t *testing.T, n *node) *grpc.ClientConn {
	conn, err := grpc.NewClient(n.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// allocated returns what f allocates, in bytes.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc) //nolint:gosec // far below its range
}

// graphs is a worker that counts graphs.
type graphs struct {
	transport.Worker
	nodes *int
}

func (g graphs) RegisterGraph(_ context.Context, req *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error) {
	*g.nodes += len(req.GetGraphDef().GetNode())
	return &tfpb.RegisterGraphResponse{}, nil
}

// guardedNode starts a server that takes graphs of 64 MiB, with the log that it writes.
func guardedNode(t *testing.T, requestBytes int64) (n *node, nodes *int, stats *RequestStats, log *logtest.Log) {
	nodes, stats, log = new(int), new(RequestStats), new(logtest.Log)
	n = new(testCluster).start(t, 0, nodeOptions{
		tuning: ServerTuning{MaxGraph: 64 << 20, RequestBytes: requestBytes, Requests: stats, Logger: slog.New(slog.NewTextHandler(log, nil))},
		wrap:   func(w transport.Worker) transport.Worker { return graphs{w, nodes} },
	})
	return n, nodes, stats, log
}

// TestMessagesThatGrowAreRefused before they are parsed: a graph of 16 MiB of empty nodes would take 1.5 GB.
// It is refused for its size when nothing else is under way, and for the share of its address before that.
func TestMessagesThatGrowAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		requestBytes int64
		nodes        int
		compressed   bool
		reason       string
	}{
		"plain":             {4 << 30, 8 << 20, false, "size"},
		"compressed":        {4 << 30, 8 << 20, true, "size"},
		"plain, share":      {40 << 20, 200_000, false, "bytes"},
		"compressed, share": {20 << 20, 8 << 20, true, "bytes"},
	} {
		n, nodes, stats, log := guardedNode(t, tc.requestBytes)
		conn := dialRaw(t, n)
		var opts []grpc.CallOption
		if tc.compressed {
			opts = append(opts, grpc.UseCompressor("gzip"))
		}
		req := emptyNodes(tc.nodes)
		used := allocated(func() {
			var resp []byte
			err := conn.Invoke(t.Context(), tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName, req, &resp, opts...)
			if status.CodeOf(fromGRPC(err, nil)) != status.ResourceExhausted || *nodes != 0 {
				t.Errorf("%s: %v, and %d nodes came", name, err, *nodes)
			}
		})
		if used > 150<<20 {
			t.Errorf("%s: %d bytes were allocated", name, used)
		}
		if stats.Refused()[tc.reason] != 1 || strings.Count(log.String(), "refusing a request") != 1 {
			t.Errorf("%s: %v, log %s", name, stats.Refused(), log)
		}
		var resp []byte
		if err := conn.Invoke(t.Context(), tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName, emptyNodes(10), &resp, opts...); err != nil || *nodes != 10 {
			t.Errorf("%s: after it %v, %d nodes", name, err, *nodes)
		}
	}
}

// TestWhatIsNoMessageIsInternal: as at every gRPC server.
func TestWhatIsNoMessageIsInternal(t *testing.T) {
	n, _, _, _ := guardedNode(t, 4<<30)
	var resp []byte
	err := dialRaw(t, n).Invoke(t.Context(), tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName, []byte("\xff\xff\xff\xff garbage"), &resp)
	if status.CodeOf(fromGRPC(err, nil)) != status.Internal {
		t.Error(err)
	}
}

// TestCompressedRequestsAreBounded: what a small request becomes ends at the limit of its method.
func TestCompressedRequestsAreBounded(t *testing.T) {
	n, _, _, _ := guardedNode(t, 4<<30)
	conn := dialRaw(t, n)
	zeros := make([]byte, 80<<20)
	for method, want := range map[string]string{
		tensorflowgrpc.WorkerService_GetStatus_FullMethodName:     "4194304",
		tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName: "67108864",
		trystgrpc.Publications_List_FullMethodName:                "",
	} {
		if want == "" {
			continue // not served here
		}
		used := allocated(func() {
			var resp []byte
			err := conn.Invoke(t.Context(), method, zeros, &resp, grpc.UseCompressor("gzip"))
			if status.CodeOf(fromGRPC(err, nil)) != status.ResourceExhausted || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", method, err)
			}
		})
		if used > 100<<20 {
			t.Errorf("%s: %d bytes were allocated", method, used)
		}
	}
}

// TestInflate: the size that the end of a gzip stream names may be a lie, and is charged while it is used.
func TestInflate(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, 1<<20))
	_ = z.Close()
	lie := bytes.Clone(b.Bytes())
	copy(lie[len(lie)-4:], []byte{0, 0, 0, 0x40})
	for name, tc := range map[string]struct {
		in    []byte
		limit int64
		want  status.Code
	}{
		"right": {b.Bytes(), 2 << 20, status.OK}, "at the limit": {b.Bytes(), 1 << 20, status.OK}, "beyond": {b.Bytes(), 1<<20 - 1, status.ResourceExhausted},
		"a lie": {lie, 2 << 20, status.InvalidArgument}, "short": {b.Bytes()[:b.Len()-9], 2 << 20, status.InvalidArgument}, "none": {[]byte{0x1f, 0x8b}, 10, status.InvalidArgument},
	} {
		var by sum
		out, charged, err := inflate(tc.in, tc.limit, &by)
		if status.CodeOf(err) != tc.want || err == nil && len(out) != 1<<20 || err != nil && charged != 0 || by.now != charged {
			t.Errorf("%s: %d bytes, charged %d of %d: %v", name, len(out), charged, by.now, err)
		}
		if by.most > 2*tc.limit+2 {
			t.Errorf("%s: %d bytes were charged at once", name, by.most)
		}
	}
}

// TestInflateIsChargedAsItGrows: it ends where its memory does.
func TestInflateIsChargedAsItGrows(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, 1<<20))
	_ = z.Close()
	copy(b.Bytes()[b.Len()-4:], []byte{0, 16, 0, 0}) // it says 4 KiB
	by := sum{limit: 300 << 10}
	if _, _, err := inflate(b.Bytes(), 2<<20, &by); status.CodeOf(err) != status.ResourceExhausted || by.now != 0 || by.most < 64<<10 {
		t.Errorf("%v, %d bytes are left of %d", err, by.now, by.most)
	}
}

// sum is a taker, of limit bytes if that is not 0.
type sum struct{ now, most, limit int64 }

func (s *sum) take(n int64) error {
	if s.limit != 0 && s.now+n > s.limit {
		return status.New(status.ResourceExhausted, "no more")
	}
	s.now += n
	s.most = max(s.most, s.now)
	return nil
}

// TestLegitimateGraphs of 100,000 nodes, plain and compressed, and large feeds are served.
func TestLegitimateGraphs(t *testing.T) {
	n, nodes, _, _ := guardedNode(t, 512<<20)
	req := &tfpb.RegisterGraphRequest{GraphDef: new(tfpb.GraphDef)}
	for range 100_000 {
		req.GraphDef.Node = append(req.GraphDef.Node, &tfpb.NodeDef{
			Name: "model/layer/dense/MatMul", Op: "MatMul", Device: "/job:worker/replica:0/task:0/device:CPU:0", Input: []string{"model/layer/x", "model/layer/kernel"},
			Attr: map[string]*tfpb.AttrValue{"T": {Value: &tfpb.AttrValue_Type{Type: tfpb.DataType_DT_FLOAT}}, "transpose_a": {Value: &tfpb.AttrValue_B{}}},
		})
	}
	graph, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	constant, err := proto.Marshal(&tfpb.RegisterGraphRequest{GraphDef: &tfpb.GraphDef{Node: []*tfpb.NodeDef{{Attr: map[string]*tfpb.AttrValue{
		"value": {Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{TensorContent: make([]byte, 60<<20)}}},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	conn := dialRaw(t, n)
	for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}} {
		for _, b := range [][]byte{graph, constant} {
			var resp []byte
			if err := conn.Invoke(t.Context(), tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName, b, &resp, opts...); err != nil {
				t.Error(err)
			}
		}
	}
	if *nodes != 2*100_001 {
		t.Errorf("%d nodes came", *nodes)
	}
}

// TestResponsesThatGrowAreRefused at a client before they are parsed: a manifest of 8 MiB would take 0.9 GB.
func TestResponsesThatGrowAreRefused(t *testing.T) {
	answer := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nil), 4<<20)
	answer[0], answer[1] = 0x0a, 0 // also a List
	for i := range len(answer) / 4 {
		copy(answer[2*i:], []byte{0x0a, 0})
	}
	a := new(testCluster).start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "tryst.Publications", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
			method("tryst.Publications", "List", func(context.Context, *trystpb.ListRequest) (any, error) { return rawAnswer(answer), nil }),
			method("tryst.Publications", "Describe", func(context.Context, *trystpb.DescribeRequest) (any, error) { return rawAnswer(answer), nil }),
		}}, n)
	}})
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address}})
	conn, err := b.conns.Conn(a.task)
	if err != nil {
		t.Fatal(err)
	}
	c := trystgrpc.NewPublicationsClient(conn)
	used := allocated(func() {
		_, err := c.List(t.Context(), &trystpb.ListRequest{}, grpc.MaxCallRecvMsgSize(16<<20))
		if err == nil || !strings.Contains(err.Error(), "ListResponse of 8388608 bytes takes more than") {
			t.Errorf("List: %v", err)
		}
		_, err = c.Describe(t.Context(), &trystpb.DescribeRequest{}, grpc.MaxCallRecvMsgSize(16<<20))
		if err == nil || !strings.Contains(err.Error(), "DescribeResponse of 8388608 bytes takes more than") {
			t.Errorf("Describe: %v", err)
		}
	})
	if used > 100<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}

// rawAnswer is a response that is bytes already.
type rawAnswer []byte

func (a rawAnswer) takeBuffers() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(a)} }

// TestCallsWithoutARequestCount: each takes a goroutine and more. Those beyond the limit end at once.
func TestCallsWithoutARequestCount(t *testing.T) {
	n, _, stats, log := guardedNode(t, 4<<20)
	raw := newRawClient(t, n.address)
	const calls = 400 // of 16 KiB, and more for their headers
	for i := range uint32(calls) {
		raw.headers(2*i + 1)
	}
	raw.flush()
	go func() { // the client reads of the calls that end
		for {
			if _, err := raw.ReadFrame(); err != nil {
				return
			}
		}
	}()
	await(t, "calls are refused, and one address has its share", func() bool { return stats.Refused()["bytes"] > 0 && stats.Bytes() <= 3<<20 })
	await(t, "the log says so", func() bool { return strings.Contains(log.String(), "takes no more calls") }) // after it is counted
	if strings.Count(log.String(), "takes no more calls") != 1 {
		t.Errorf("log: %s", log)
	}
	raw.must(raw.Close())
	await(t, "the calls end with their connection", func() bool { return stats.Bytes() == 0 })
	conn := dialRaw(t, n)
	var resp []byte
	if err := conn.Invoke(t.Context(), tensorflowgrpc.WorkerService_GetStatus_FullMethodName, []byte{}, &resp, grpc.WaitForReady(true)); err != nil {
		t.Errorf("after them: %v", err)
	}
}

// TestHeadersOfARequestAreBounded, since a byte may stand for a long one.
func TestHeadersOfARequestAreBounded(t *testing.T) {
	n, _, _, _ := guardedNode(t, 0)
	conn := dialRaw(t, n)
	for size, want := range map[int]bool{6 << 10: true, 9 << 10: false} {
		var resp []byte
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("a", size))
		if err := conn.Invoke(ctx, tensorflowgrpc.WorkerService_GetStatus_FullMethodName, []byte{}, &resp); want != (err == nil) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
