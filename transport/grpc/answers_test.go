package grpctransport

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// rawServer serves HTTP/2 on connections of a listener: answer gets each stream when its headers have come.
// It respects no setting of the client.
func rawServer(t *testing.T, answer func(f *http2.Framer, stream uint32)) (address string) {
	t.Helper()
	l := listen(t)
	ended := make(chan struct{})
	serve := func(conn net.Conn) {
		defer conn.Close()
		if _, err := conn.Read(make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		if f.WriteSettings() != nil {
			return
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.PingFrame:
				if !frame.IsAck() {
					_ = f.WritePing(true, frame.Data)
				}
			case *http2.HeadersFrame:
				answer(f, frame.StreamID)
			}
		}
	}
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	t.Cleanup(func() { <-ended })
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// trailersOf returns the block of the headers of a response without content, with fields beside gRPC's own.
func trailersOf(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	all := append([]string{":status", "200", "content-type", "application/grpc", "grpc-status", "5", "grpc-message", "x"}, fields...)
	for i := 0; i < len(all); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	return b.Bytes()
}

// TestLargeTrailersAreRefused by a client before they are parsed: details of an error of 11 MiB took 2.4 GB.
// One of a size that errors of gRPC have is read.
func TestLargeTrailersAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
		code   status.Code
	}{
		{"one of 14 KB", []string{"other", strings.Repeat("x", 14_000)}, status.NotFound},
		{"many", slices.Repeat([]string{"other", strings.Repeat("x", 300)}, 100), status.Internal},
		{"one of 11 MiB", []string{detailsKey, strings.Repeat("GgAa", 11<<20/4)}, status.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			block := trailersOf(c.fields...)
			address := rawServer(t, func(f *http2.Framer, stream uint32) {
				first := block[:min(len(block), 16<<10)]
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: true, EndHeaders: len(first) == len(block)})
				for rest := block[len(first):]; len(rest) > 0; {
					part := rest[:min(len(rest), 16<<10)]
					rest = rest[len(part):]
					if f.WriteContinuation(stream, len(rest) == 0, part) != nil {
						return
					}
				}
			})
			b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: address}})
			defer b.close()
			conn, err := b.conns.Conn(task(0))
			if err != nil {
				t.Fatal(err)
			}
			used := allocated(func() {
				_, err = trystgrpc.NewPublicationsClient(conn).List(t.Context(), &trystpb.ListRequest{})
			})
			if got := status.CodeOf(fromGRPC(err, nil)); got != c.code {
				t.Errorf("%.300v, want %v", err, c.code)
			}
			if used > 20<<20 {
				t.Errorf("%d bytes were allocated", used)
			}
		})
	}
}

// largeAnswer is a RecvTensorResponse with a tensor of so many bytes, which takes little memory.
type largeAnswer int

func (n largeAnswer) takeBuffers() mem.BufferSlice {
	const part = 1 << 20
	size := int(n)
	dim := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(size/4)) //nolint:gosec // small
	shape := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), dim)
	head := append([]byte{0x08, 1}, protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), shape)...)
	head = protowire.AppendVarint(protowire.AppendTag(head, 4, protowire.BytesType), uint64(size)) //nolint:gosec // small
	all := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), uint64(len(head)+size))
	slices := mem.BufferSlice{mem.SliceBuffer(append(all, head...))}
	block := make([]byte, part)
	for range size / part {
		slices = append(slices, mem.SliceBuffer(block))
	}
	return slices
}

// TestResponsesAreReservedUntilTheyAreParsed: what does not fit ends its receive, and takes no memory. What fits comes,
// and nothing stays reserved.
func TestResponsesAreReservedUntilTheyAreParsed(t *testing.T) {
	const limit = 64 << 20
	var size atomic.Int64
	a := answering(t, method(tensorflowWorker, "RecvTensor", func(context.Context, *tfpb.RecvTensorRequest) (any, error) {
		return largeAnswer(size.Load()), nil
	}))
	pool := tensor.NewPool(tensor.PoolOptions{Limit: limit, Keep: -1})
	b := new(testCluster).start(t, 1, nodeOptions{
		addresses: map[int]string{0: a.address}, alloc: pool,
		responses: pool,
	})
	receive := func(step int64, bytes int64) error {
		size.Store(bytes)
		v, err := b.manager.Find(step).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
		if err == nil {
			if v.Tensor.Size() != bytes {
				t.Errorf("%d bytes came", v.Tensor.Size())
			}
			v.Tensor.Release()
		}
		return err
	}
	if err := receive(1, 16<<20); err != nil {
		t.Error(err)
	}
	used := allocated(func() {
		err := receive(2, 256<<20)
		if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "larger than what this process has left") {
			t.Errorf("256 MiB: %v", err)
		}
	})
	if used > limit+limit/2 {
		t.Errorf("%d bytes were allocated", used)
	}
	if err := receive(3, 40<<20); status.CodeOf(err) != status.ResourceExhausted { // twice, while it is parsed
		t.Errorf("40 MiB: %v", err)
	}
	size.Store(4 << 20)
	var all sync.WaitGroup
	for step := range int64(20) {
		all.Go(func() {
			v, err := b.manager.Find(10+step).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
			if err == nil {
				v.Tensor.Release()
			} else if status.CodeOf(err) != status.ResourceExhausted {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := receive(4, 16<<20); err != nil {
		t.Error(err)
	}
	b.close()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
}

// TestChunksAreReservedOneByOne: a large tensor of a Tryst peer needs its size once.
func TestChunksAreReservedOneByOne(t *testing.T) {
	var c testCluster
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 40 << 20, Keep: -1})
	a := c.start(t, 0, nodeOptions{unaryLimit: 1 << 20})
	b := c.start(t, 1, nodeOptions{alloc: pool, responses: pool})
	x := value(t, tensor.Heap{}, 8<<20)
	defer x.Release()
	key := a.key(b, "x")
	a.send(1, key, x)
	v := b.recv(1, key)
	if !bytes.Equal(v.Tensor.Bytes(), x.Bytes()) {
		t.Error("other values came")
	}
	v.Tensor.Release()
	b.close()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
}

// TestResponsesWithoutABoundOfTheirOwnAreSmall: a response to a call that carries no content ends the call beyond 4 MiB,
// a chunk beyond 1 MiB, however much memory there is.
func TestResponsesWithoutABoundOfTheirOwnAreSmall(t *testing.T) {
	large := rawAnswer(append(protowire.AppendVarint([]byte{0x7a}, 8<<20), make([]byte, 8<<20)...))
	a := new(testCluster).start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
		s.RegisterService(&grpc.ServiceDesc{ServiceName: tensorflowWorker, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
			method(tensorflowWorker, "GetStatus", func(context.Context, *tfpb.GetStatusRequest) (any, error) { return large, nil }),
			method(tensorflowWorker, "RunGraph", func(context.Context, *tfpb.RunGraphRequest) (any, error) { return large, nil }),
			method(tensorflowWorker, "RecvTensor", func(context.Context, *tfpb.RecvTensorRequest) (any, error) {
				extra, err := anypb.New(&trystpb.RecvExtra{SenderIncarnation: n.incarnation, Ticket: &trystpb.Ticket{Bytes: 8 << 20}})
				return &tfpb.RecvTensorResponse{TransportOptions: extra, Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_UINT8,
					TensorShape: &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: 8 << 20}}}}}, err
			}),
		}}, n)
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "tryst.Peers", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
			method("tryst.Peers", "Hello", func(context.Context, *trystpb.HelloRequest) (any, error) {
				return &trystpb.HelloResponse{Name: n.task.String(), Incarnation: n.incarnation}, nil
			}),
			method("tryst.Peers", "Cancel", func(context.Context, *trystpb.CancelRequest) (any, error) { return &trystpb.CancelResponse{}, nil }),
		}}, n)
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "tryst.Chunks", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
			StreamName: "Fetch", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
				content := protowire.AppendVarint([]byte{0x12}, 2<<20) // data
				return stream.SendMsg(rawAnswer(append(content, make([]byte, 2<<20)...)))
			},
		}}}, n)
	}})
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address}})
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, err error) {
		t.Helper()
		if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "larger than what this call takes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = w.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
	want("GetStatus", err)
	if _, err = w.RunGraph(t.Context(), &tfpb.RunGraphRequest{}); err != nil {
		t.Errorf("a response with tensors may be large: %v", err)
	}
	_, err = b.manager.Find(1).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
	want("Fetch", err)
}

// compressed is an answer to RecvTensor that gRPC compresses.
func compressed(t *testing.T, size *atomic.Int64) grpc.MethodDesc {
	return method(tensorflowWorker, "RecvTensor", func(ctx context.Context, _ *tfpb.RecvTensorRequest) (any, error) {
		if err := grpc.SetSendCompressor(ctx, gzip.Name); err != nil {
			t.Error(err)
		}
		return largeAnswer(size.Load()), nil
	})
}

// TestCompressedResponsesAreBounded: what 64 KiB become is reserved as it grows, and ends at the limit. What fits comes.
func TestCompressedResponsesAreBounded(t *testing.T) {
	const limit = 64 << 20
	var size atomic.Int64
	a := answering(t, compressed(t, &size), method(tensorflowWorker, "GetStatus", func(ctx context.Context, _ *tfpb.GetStatusRequest) (any, error) {
		if err := grpc.SetSendCompressor(ctx, gzip.Name); err != nil {
			t.Error(err)
		}
		return largeAnswer(16 << 20), nil
	}))
	pool := tensor.NewPool(tensor.PoolOptions{Limit: limit, Keep: -1})
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address}, alloc: pool, responses: pool})
	receive := func(step int64, bytes int64) error {
		size.Store(bytes)
		v, err := b.manager.Find(step).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
		if err == nil {
			v.Tensor.Release()
		}
		return err
	}
	if err := receive(1, 8<<20); err != nil {
		t.Error(err)
	}
	if err := receive(2, 128<<20); status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "larger than what this process has left") {
		t.Errorf("128 MiB: %v", err)
	}
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{}); status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "larger than max (4194304) after decompression") {
		t.Errorf("16 MiB in answer to GetStatus: %v", err)
	}
	b.close()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
}

// unaccepted is a compression that a program has registered, and that no call of this package accepts.
type unaccepted struct{ encoding.Compressor }

// used is set when a response was decompressed by it.
var used atomic.Bool

func (unaccepted) Name() string { return "unaccepted" }
func (unaccepted) Decompress(r io.Reader) (io.Reader, error) {
	used.Store(true)
	return r, nil
}

func init() { encoding.RegisterCompressor(unaccepted{}) } //nolint:forbidigo // a client can name a compressor of the registry only

// TestOtherCompressionsAreRefused, which a program may have registered: they have no bound.
func TestOtherCompressionsAreRefused(t *testing.T) {
	address := rawServer(t, func(f *http2.Framer, stream uint32) {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for _, h := range [][2]string{{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-encoding", "unaccepted"}} {
			_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true})
		_ = f.WriteData(stream, false, []byte{1, 0, 0, 0, 2, 8, 1})
		b.Reset()
		_ = e.WriteField(hpack.HeaderField{Name: "grpc-status", Value: "0"})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true})
	})
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: address}})
	conn, err := b.conns.Conn(task(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trystgrpc.NewPublicationsClient(conn).List(t.Context(), &trystpb.ListRequest{}); err == nil || used.Load() {
		t.Errorf("%v; decompressed: %v", err, used.Load())
	}
}

// TestPartsOfAResponseThatAreCopiedAreReserved: what is not the content of a tensor is copied and parsed.
func TestPartsOfAResponseThatAreCopiedAreReserved(t *testing.T) {
	const size = 16 << 20
	for _, c := range []struct {
		name string
		head []byte
		room int64 // for what comes, and for some copies
	}{
		{"options", append(protowire.AppendVarint([]byte{0x22}, size+5), 0x12), 5 * size / 2}, // the value of an Any
		{"tensor twice", []byte{0x0a, 0, 0x0a}, 5 * size / 2},
		{"unknown", []byte{0x7a}, 3 * size / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := rawAnswer(append(protowire.AppendVarint(c.head, size), make([]byte, size)...))
			a := answering(t, method(tensorflowWorker, "RecvTensor", func(context.Context, *tfpb.RecvTensorRequest) (any, error) {
				return answer, nil
			}))
			pool := tensor.NewPool(tensor.PoolOptions{Limit: c.room, Keep: -1})
			b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address}, alloc: pool, responses: pool})
			var err error
			if used := allocated(func() { _, err = b.manager.Find(1).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{}) }); used > 4*size {
				t.Errorf("%d bytes were allocated", used)
			}
			if status.CodeOf(err) != status.ResourceExhausted {
				t.Errorf("%.200v", err)
			}
			b.close()
			if n := pool.Stats().InUse; n != 0 {
				t.Errorf("%d bytes are reserved", n)
			}
		})
	}
}

// answersTest feeds answers with frames.
type answersTest struct {
	*answers
	t    *testing.T
	pool *tensor.Pool
	conn *answerConn
}

func newAnswersTest(t *testing.T, limit int64) answersTest {
	pool := tensor.NewPool(tensor.PoolOptions{Limit: limit})
	a := newAnswers(pool)
	c := a.connect()
	c.out.skip = 0
	return answersTest{a, t, pool, c}
}

func frameOf(kind, flags byte, stream uint32, payload []byte) []byte {
	return append(appendFrame(nil, frame{kind: kind, flags: flags, stream: stream, length: len(payload)}), payload...)
}

// call begins a call with a stream.
func (a answersTest) call(stream uint32) {
	a.begin()
	a.conn.wrote(frameOf(frameHeaders, 0, stream, nil))
}

// message brings a message of n bytes, of which the last missing ones do not come.
func (a answersTest) message(stream uint32, n, missing int) {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(n)) //nolint:gosec // small
	for b = append(b, make([]byte, n-missing)...); len(b) > 0; {
		part := b[:min(len(b), frameSize)]
		b = b[len(part):]
		a.conn.read(frameOf(frameData, 0, stream, part))
	}
}

// used checks what is reserved.
func (a answersTest) used(want int64) {
	a.t.Helper()
	if n := a.pool.Stats().InUse; n < want || n > want+want/4+answerStep || want == 0 && n != 0 {
		a.t.Errorf("%d bytes are reserved, want about %d", n, want)
	}
}

// TestMessagesAreReservedUntilTheyAreParsed, whatever other calls of the connection do: some have no stream yet.
func TestMessagesAreReservedUntilTheyAreParsed(t *testing.T) {
	a := newAnswersTest(t, 0)
	for range 3 {
		a.begin()
	}
	a.call(1)
	a.message(1, 1<<20, 0)
	a.conn.read(frameOf(frameHeaders, flagEndStream, 1, nil))
	a.used(1 << 20)
	a.parsed(1 << 20)
	a.used(0)
	a.end()
	// A stream of messages that are not read yet.
	a.call(3)
	for range 3 {
		a.message(3, 1<<20, 0)
	}
	a.used(3 << 20)
	a.parsed(1 << 20)
	a.used(2 << 20)
	a.conn.wrote(frameOf(frameReset, 0, 3, make([]byte, 4)))
	a.used(2 << 20) // its call has not returned
	for range 4 {
		a.end()
	}
	a.used(0)
}

// TestLandedResponsesStayReserved until their calls return, the largest ones longest: which is whose is not known.
func TestLandedResponsesStayReserved(t *testing.T) {
	a := newAnswersTest(t, 0)
	for _, stream := range []uint32{1, 3, 5} {
		a.call(stream)
	}
	a.message(1, 1<<20, 0)
	a.message(3, 256<<10, 0)
	a.message(5, 512<<10, 1)
	a.used(1<<20 + 768<<10)
	a.conn.read(frameOf(frameHeaders, flagEndStream, 1, nil))
	a.conn.read(frameOf(frameData, flagEndStream, 3, nil))
	a.used(1<<20 + 768<<10)
	a.end()
	a.used(1<<20 + 512<<10)
	a.end()
	a.used(512 << 10)
	a.message(3, 1<<20, 0) // the stream has ended
	a.used(512 << 10)
	a.conn.close() // and half a message with it
	a.used(0)
	a.end()
	a.used(0)
}

// TestUnreadMessagesAreReserved: those that come faster than they are read, however small they are and in whatever
// frames they come.
func TestUnreadMessagesAreReserved(t *testing.T) {
	a := newAnswersTest(t, 1<<20)
	a.call(1)
	for range 40 {
		a.conn.read(frameOf(frameData, 0, 1, make([]byte, frameSize/messagePrefix*messagePrefix)))
	}
	if len(a.conn.ending) == 0 {
		t.Error("131,040 empty messages take nothing")
	}
	a.conn.ending = nil
	a.call(3)
	a.conn.read(frameOf(frameData, 0, 3, []byte{0, 0, 1, 0, 0}))
	for range 20_000 {
		a.conn.read(frameOf(frameData, 0, 3, []byte{0}))
	}
	if len(a.conn.ending) == 0 {
		t.Error("20,000 frames take nothing")
	}
	a.end()
	a.end()
	a.used(0)
}
