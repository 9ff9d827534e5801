package grpctransport

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// wireBytes encodes r and frees what was lent, as gRPC does after writing.
func wireBytes(t testing.TB, r *transport.TensorResponse) []byte {
	t.Helper()
	resp, err := encodeResponse(r, charge{})
	if err != nil {
		t.Fatal(err)
	}
	buffers := resp.takeBuffers()
	defer buffers.Free()
	return buffers.Materialize()
}

// split cuts b into buffers at the given places, counted modulo its length.
func split(b []byte, at ...int) mem.BufferSlice {
	cuts := map[int]bool{}
	for _, a := range at {
		if len(b) > 0 {
			cuts[a%len(b)] = true
		}
	}
	var s mem.BufferSlice
	start := 0
	for i := range b {
		if cuts[i] {
			s = append(s, mem.SliceBuffer(b[start:i]))
			start = i
		}
	}
	return append(s, mem.SliceBuffer(b[start:]))
}

func float32s(t testing.TB, alloc tensor.Allocator, shape tensor.Shape, values ...float32) *tensor.Tensor {
	t.Helper()
	x, err := tensor.Allocate(alloc, tensor.Float32, shape)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := tensor.Values[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	copy(dst, values)
	return x
}

// TestEncodeGoldenBytes: responses have TensorFlow's bytes and field order.
func TestEncodeGoldenBytes(t *testing.T) {
	alloc := tensortest.NewAllocator(t)
	for _, c := range []struct {
		name string
		resp transport.TensorResponse
		want string
	}{
		{
			"vector",
			transport.TensorResponse{Tensor: float32s(t, alloc, tensortest.Shape(t, 1, 2), 1, 2), SendStartMicros: 300},
			"18 ac02" + "0a 16" + "08 01" + "12 08 12 02 08 01 12 02 08 02" + "22 08 0000803f 00000040",
		},
		{
			"scalar has no shape",
			transport.TensorResponse{Tensor: float32s(t, alloc, tensor.Shape{}, 1), SendStartMicros: 1},
			"18 01" + "0a 08" + "08 01" + "22 04 0000803f",
		},
		{
			"dead and empty: the dimension 0 is written",
			transport.TensorResponse{Tensor: float32s(t, alloc, tensortest.Shape(t, 0)), Dead: true, SendStartMicros: 1},
			"10 01" + "18 01" + "0a 0a" + "08 01" + "12 04 12 02 08 00" + "22 00",
		},
		{
			"require_ack",
			transport.TensorResponse{Tensor: float32s(t, alloc, tensor.Shape{}, 1), SendStartMicros: 0, RequireAck: true},
			"18 00" + "28 01" + "0a 08" + "08 01" + "22 04 0000803f",
		},
		{
			"transport_options",
			transport.TensorResponse{Tensor: float32s(t, alloc, tensor.Shape{}, 1), SendStartMicros: 1, Options: &anypb.Any{TypeUrl: "a/b", Value: []byte{9}}},
			"18 01" + "22 08 0a 03 612f62 12 01 09" + "0a 08" + "08 01" + "22 04 0000803f",
		},
		{
			"strings: lengths, then bytes",
			transport.TensorResponse{Tensor: tensortest.Strings(t, "ab", "", "c").Retain(), SendStartMicros: 1},
			"0a 10" + "08 07" + "12 04 12 02 08 03" + "22 06 02 00 01 616263" + "18 01",
		},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := wireBytes(t, &c.resp); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", c.name, got, want)
		}
	}
}

// TestEncodeLendsLargeTensors: content above 1024 bytes is the tensor's own memory, with a
// reference until it is freed. Smaller content is copied.
func TestEncodeLendsLargeTensors(t *testing.T) {
	for _, n := range []int64{0, 1, 1023, 1024, 1025, 1 << 20} {
		alloc := tensortest.NewAllocator(t)
		x := tensortest.Random(rand.New(rand.NewPCG(1, 1)), tensor.Uint8, tensortest.Shape(t, n), alloc)
		resp, err := encodeResponse(&transport.TensorResponse{Tensor: x}, charge{})
		if err != nil {
			t.Fatal(err)
		}
		lent := alloc.Outstanding() == 1
		if want := n > 1024; lent != want || len(resp.buffers) > 1 != want {
			t.Errorf("%d bytes: lent %v in %d buffers", n, lent, len(resp.buffers))
		}
		if lent && &resp.buffers[1].ReadOnlyData()[0] != &x.Bytes()[0] {
			t.Errorf("%d bytes were copied", n)
		}
		resp.drop()
		if alloc.Outstanding() != 0 {
			t.Errorf("%d bytes: not released when freed", n)
		}
	}
}

var t1Counts = func() (counts []int64) {
	for n := range int64(100) {
		counts = append(counts, n)
	}
	for n := int64(1000); n <= 10000; n += 1000 {
		counts = append(counts, n)
	}
	return counts
}()

// TestT1Simple: for all types and many sizes the generated parser reads from the
// bytes what was sent.
func TestT1Simple(t *testing.T) {
	alloc := tensortest.NewAllocator(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range tensortest.AllDTypes() {
		for _, n := range t1Counts {
			x := tensortest.Random(rng, dtype, tensortest.Shape(t, 1, n), alloc)
			b := wireBytes(t, &transport.TensorResponse{Tensor: x.Retain(), Dead: n == 0, SendStartMicros: 7})
			var m tfpb.RecvTensorResponse
			if err := proto.Unmarshal(b, &m); err != nil {
				t.Fatalf("%v: %v", x, err)
			}
			if m.GetIsDead() != (n == 0) || m.GetSendStartMicros() != 7 || m.GetRequireAck() {
				t.Errorf("%v: fields of the header: %v", x, &m)
			}
			got, err := tensorproto.FromProto(m.GetTensor(), alloc)
			if err != nil {
				t.Fatalf("%v: %v", x, err)
			}
			tensortest.RequireEqual(t, x, got)
			got.Release()
			x.Release()
		}
	}
}

// TestT2StringTensor: arrays of strings of differing sizes.
func TestT2StringTensor(t *testing.T) {
	for _, n := range []int{0, 1, 3, 100} {
		elems := make([]string, n)
		for i := range elems {
			elems[i] = strings.Repeat(string(rune('a'+i%26)), i*i)
		}
		x := tensortest.Strings(t, elems...)
		r := received{alloc: tensortest.NewAllocator(t)}
		r.parse(split(wireBytes(t, &transport.TensorResponse{Tensor: x.Retain()}), 1, 5, 1000))
		if r.err != nil {
			t.Fatal(r.err)
		}
		tensortest.RequireEqual(t, x, r.Tensor)
		r.release()
	}
}

// TestT3LargeTensor: a tensor too large for a protobuf message is Internal, with TensorFlow's
// text, and is released.
func TestT3LargeTensor(t *testing.T) {
	// Mapped memory, of which no page is ever touched.
	memory, err := syscall.Mmap(-1, 0, 1<<31+1, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	released := false
	x, err := tensor.New(tensor.Int8, tensortest.Shape(t, 1, 1<<31+1), tensor.NewBuffer(memory, func() {
		released = true
		if err := syscall.Munmap(memory); err != nil {
			t.Error(err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = encodeResponseFor(&transport.TensorResponse{Tensor: x},
		&tfpb.RecvTensorRequest{StepId: 3, RequestId: 5, RendezvousKey: "k"}, charge{})
	if status.CodeOf(err) != status.Internal {
		t.Errorf("got %v", err)
	}
	for _, part := range []string{
		"Failed to encode tensor to byte buffer: Cannot encode a Tensor that exceeds the 2GB protobuf limit. Exceeded bytes: 1 ",
		"(request_id: 5 step_id: 3 rendezvous_key: k)",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %v", part, err)
		}
	}
	if !released {
		t.Error("the tensor was not released")
	}
}

// TestT4TensorResponse: the decoder can be reused, parses messages that are split anywhere, and
// allocates from the given allocator.
func TestT4TensorResponse(t *testing.T) {
	sent, got := tensortest.NewAllocator(t), tensortest.NewAllocator(t)
	rng := rand.New(rand.NewPCG(4, 4))
	r := received{alloc: got}
	for _, dtype := range tensortest.AllDTypes() {
		for _, n := range t1Counts {
			x := tensortest.Random(rng, dtype, tensortest.Shape(t, 1, n), sent)
			b := wireBytes(t, &transport.TensorResponse{Tensor: x.Retain(), Dead: n == 0, SendStartMicros: 123456, RequireAck: n == 1})
			for range 2 {
				r.parse(split(b, rng.Int(), rng.Int(), rng.IntN(8)))
				if r.err != nil {
					t.Fatalf("%v: %v", x, r.err)
				}
				if n > 0 {
					tensortest.RequireEqual(t, x, r.Tensor)
				}
				if r.Dead != (n == 0) || r.SendStartMicros != 123456 || r.RequireAck != (n == 1) {
					t.Errorf("%v: fields of the header: %+v", x, r.TensorResponse)
				}
				if dtype.Plain() && n > 0 && got.Outstanding() != 1 {
					t.Errorf("%v: %d buffers from the allocator", x, got.Outstanding())
				}
			}
			x.Release()
		}
	}
	r.release()
}

// TestH8ProtoAnySlicing: messages of protobuf pass the codec, however their
// bytes are split.
func TestH8ProtoAnySlicing(t *testing.T) {
	c := newCodec()
	want := &tfpb.RunGraphRequest{GraphHandle: "g", StepId: 1 << 56, RecvKey: []string{"a", strings.Repeat("b", 5000)}}
	encoded, err := c.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	b := encoded.Materialize()
	encoded.Free()
	rng := rand.New(rand.NewPCG(8, 8))
	for range 100 {
		got := new(tfpb.RunGraphRequest)
		if err := c.Unmarshal(split(b, rng.Int(), rng.Int(), rng.Int()), got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Fatal(d)
		}
	}
	if c.Name() != "proto" {
		t.Errorf("the content type would be grpc+%s", c.Name())
	}
}

// TestDecodeUnusual: unusual forms are parsed like the generated code does.
func TestDecodeUnusual(t *testing.T) {
	field := func(n protowire.Number, b ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	dtype := []byte{8, 1}
	shape := field(2, field(2, 8, 2)...)
	content := field(4, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40)
	usual := field(1, slicesConcat(dtype, shape, content)...)
	for name, b := range map[string][]byte{
		"tensor first":           append(bytes.Clone(usual), 0x18, 5),
		"unknown fields":         slicesConcat([]byte{0xf8, 1, 5}, usual, field(99, 1, 2, 3)),
		"content before shape":   field(1, slicesConcat(dtype, content, shape)...),
		"shape before dtype":     field(1, slicesConcat(shape, dtype, content)...),
		"tensor in two parts":    slicesConcat(field(1, slicesConcat(dtype, shape)...), field(1, content...)),
		"typed list":             field(1, slicesConcat(dtype, shape, field(5, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40))...),
		"one value that repeats": field(1, slicesConcat(dtype, shape, field(5, 0, 0, 0x80, 0x3f))...),
		"no value":               field(1, slicesConcat(dtype, shape)...),
	} {
		checkDecode(t, name, b, 1, 3, 7)
	}
}

func slicesConcat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// checkDecode compares the decoder with the generated parser.
func checkDecode(t *testing.T, name string, b []byte, cuts ...int) {
	t.Helper()
	alloc := tensortest.NewAllocator(t)
	alloc.SetLimit(1 << 20)
	r, want := received{alloc: alloc}, received{alloc: alloc}
	r.parse(split(b, cuts...))
	defer r.release()
	if err := want.parseAny(split(b)); err != nil {
		want.release()
		want.err = err
	}
	defer want.release()
	if status.CodeOf(r.err) != status.CodeOf(want.err) {
		t.Fatalf("%s: got error %v, want %v", name, r.err, want.err)
	}
	if r.err != nil {
		return
	}
	if r.ticket() != nil {
		if d := cmp.Diff(want.extra, r.extra, protocmp.Transform()); d != "" || r.dtype != want.dtype || !r.shape.Equal(want.shape) {
			t.Fatalf("%s: the tickets differ: %v%v, want %v%v; %s", name, r.dtype, r.shape, want.dtype, want.shape, d)
		}
		return
	}
	tensortest.RequireEqual(t, want.Tensor, r.Tensor)
	got, wanted := r.TensorResponse, want.TensorResponse
	got.Tensor, wanted.Tensor = nil, nil
	if d := cmp.Diff(wanted, got, protocmp.Transform()); d != "" {
		t.Fatalf("%s: %s", name, d)
	}
}

// TestDecodeLyingLength: a message whose length is larger than its content is refused before
// memory is allocated.
func TestDecodeLyingLength(t *testing.T) {
	const huge = 1 << 30
	head := func(inner, content uint64) []byte {
		b := protowire.AppendVarint([]byte{0x0a}, inner)
		b = append(b, 8, 4, 0x12, 8, 0x12, 6, 8)
		b = append(protowire.AppendVarint(b, huge), 0x22)
		return protowire.AppendVarint(b, content)
	}
	for name, b := range map[string][]byte{
		"tensor longer than the message": append(head(huge+100, huge), make([]byte, 100)...),
		"content longer than the tensor": append(head(120, huge), make([]byte, 120)...),
		"shape longer than the content":  append(head(uint64(len(head(0, 100)))-2+100, 100), make([]byte, 100)...),
		"no content for the shape":       {0x0a, 12, 8, 4, 0x12, 8, 0x12, 6, 8, 0x80, 0x80, 0x80, 0x80, 4},
	} {
		alloc := tensortest.NewAllocator(t)
		alloc.SetLimit(1 << 20)
		r := received{alloc: alloc}
		r.parse(split(b, 3))
		if c := status.CodeOf(r.err); c != status.InvalidArgument && c != status.ResourceExhausted || r.Tensor != nil {
			t.Errorf("%s: %v", name, r.err)
		}
		if !strings.Contains(fmt.Sprint(r.err), "Cannot parse tensor from") {
			t.Errorf("%s: %v", name, r.err)
		}
	}
}

// FuzzDecode: any bytes, split anywhere, are parsed like the generated code does.
func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.String, tensor.Bool, tensor.Resource} {
		x := tensortest.Random(rng, dtype, tensortest.Shape(f, 2, 3), tensor.Heap{})
		f.Add(wireBytes(f, &transport.TensorResponse{Tensor: x, Dead: true, SendStartMicros: 5, RequireAck: true}), 3, 9)
	}
	x := tensortest.Random(rng, tensor.Uint8, tensortest.Shape(f, 2000), tensor.Heap{})
	options, err := anypb.New(&trystpb.RecvExtra{SenderIncarnation: 1, Ticket: &trystpb.Ticket{Bytes: 2000}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wireBytes(f, &transport.TensorResponse{Tensor: x, Options: options}), 1, 1000)
	f.Add([]byte{0x0a, 2, 8, 1}, 0, 1)
	f.Add([]byte{0x0a, 0}, 0, 0)
	f.Add([]byte{}, 0, 0)
	f.Fuzz(func(t *testing.T, b []byte, cut, cut2 int) {
		checkDecode(t, "fuzz", b, cut&0xffff, cut2&0xffff)
	})
}

// FuzzChunk: a chunk writes only its data, and only at its offset.
func FuzzChunk(f *testing.F) {
	c := chunk{offset: 300, data: []byte("abc")}
	f.Add(c.takeBuffers().Materialize(), uint64(300), 2)
	f.Add(c.takeBuffers().Materialize(), uint64(299), 2) // not where it belongs
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f}, uint64(0), 1)
	f.Fuzz(func(t *testing.T, b []byte, offset uint64, cut int) {
		const missing = 64
		offset %= 512
		buf := make([]byte, offset+missing)
		p := transport.Partial{Buffer: tensor.NewBuffer(buf, nil), Bytes: int64(offset)}
		a := arrivedChunk{download: &download{content: content{size: len(buf)}, partial: &p, alloc: tensor.Heap{}}}
		a.parse(split(b, cut&0xffff))
		var m trystpb.Chunk
		err := proto.Unmarshal(b, &m)
		ok := err == nil && m.GetOffset() == offset && len(m.GetData()) > 0 && len(m.GetData()) <= missing
		want := make([]byte, len(buf))
		if ok {
			copy(want[offset:], m.GetData())
		}
		if !bytes.Equal(buf, want) {
			t.Errorf("%v was written as %x", &m, buf)
		}
		if ok && (a.err != nil || a.n != len(m.GetData())) {
			t.Errorf("%v was read as %d bytes, error %v", &m, a.n, a.err)
		}
		if !ok && a.err == nil {
			t.Errorf("%x was taken", b)
		}
	})
}

// TestOnlyGraphsMayBeLarge: a server parses large messages of RegisterGraph and RunGraph, and no
// others.
func TestOnlyGraphsMayBeLarge(t *testing.T) {
	c := serverCodec{newCodec(), 8 << 20}
	large := strings.Repeat("x", maxRequest)
	for _, m := range []proto.Message{
		&tfpb.RegisterGraphRequest{SessionHandle: large},
		&tfpb.RunGraphRequest{SessionHandle: large},
		&tfpb.MarkRecvFinishedRequest{Requester: large},
		&tfpb.RecvTensorRequest{RendezvousKey: large},
	} {
		data, err := c.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		_, register := m.(*tfpb.RegisterGraphRequest)
		_, run := m.(*tfpb.RunGraphRequest)
		err = c.Unmarshal(data, m.ProtoReflect().New().Interface())
		if fits := register || run; fits != (err == nil) {
			t.Errorf("%T of %d bytes: %v", m, data.Len(), err)
		}
		data.Free()
	}
}
