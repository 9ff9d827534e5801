package tensorproto_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// counts are the numbers of elements that TensorFlow's own tests of its tensor
// coding use: 0 to 99, and 1000 to 10000 in steps of 1000.
func counts() []int64 {
	var n []int64
	for i := range int64(100) {
		n = append(n, i)
	}
	for i := int64(1000); i <= 10000; i += 1000 {
		n = append(n, i)
	}
	return n
}

// checkAllForms encodes x in every way and decodes it in every way.
func checkAllForms(t *testing.T, a *tensortest.Allocator, x *tensor.Tensor) {
	t.Helper()
	message, err := tensorproto.ToProto(x)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := tensorproto.Append([]byte("before"), x)
	if err != nil {
		t.Fatal(err)
	}
	wire = bytes.TrimPrefix(wire, []byte("before"))

	// The generic parser reads what Append wrote, and it is the same message.
	parsed := new(pb.TensorProto)
	if err := proto.Unmarshal(wire, parsed); err != nil {
		t.Fatalf("%v: %v", x, err)
	}
	if len(parsed.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("%v: unknown fields", x)
	}
	if x.Shape().Rank() == 0 {
		message.TensorShape = nil // absent on the wire
	}
	if !proto.Equal(message, parsed) {
		t.Fatalf("%v: Append wrote\n%v\nwant\n%v", x, parsed, message)
	}

	for _, decode := range []func() (*tensor.Tensor, error){
		func() (*tensor.Tensor, error) { return tensorproto.FromProto(parsed, a) },
		func() (*tensor.Tensor, error) { return tensorproto.Unmarshal(wire, a) },
	} {
		y, err := decode()
		if err != nil {
			t.Fatalf("%v: %v", x, err)
		}
		tensortest.RequireEqual(t, x, y)
		y.Release()
	}

	h, ok := tensorproto.ParseHeader(wire, len(wire))
	if ok != x.DType().Plain() {
		t.Fatalf("%v: ParseHeader says %v", x, ok)
	}
	if !ok {
		return
	}
	header, err := tensorproto.AppendHeader(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(append(header, x.Bytes()...), wire) {
		t.Fatalf("%v: header and memory are not the message", x)
	}
	if h.DType != x.DType() || !h.Shape.Equal(x.Shape()) || h.Start != len(header) || h.Size != len(x.Bytes()) {
		t.Fatalf("%v: header %+v", x, h)
	}
}

// TestT1Simple: every type with each number of elements, in the shape {1, n},
// survives each way of coding. (is_dead and the response around the tensor are
// the transport's.)
func TestT1Simple(t *testing.T) {
	a := tensortest.NewAllocator(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, dtype := range tensortest.AllDTypes() {
		t.Run(dtype.String(), func(t *testing.T) {
			for _, n := range counts() {
				x := tensortest.Random(rng, dtype, tensortest.Shape(t, 1, n), a)
				checkAllForms(t, a, x)
				x.Release()
			}
		})
	}
}

func TestEveryRank(t *testing.T) {
	a := tensortest.NewAllocator(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for rank := range tensor.MaxDims + 1 {
		dims := make([]int64, rank)
		for i := range dims {
			dims[i] = 1
		}
		if rank > 2 {
			dims[1], dims[rank-1] = 300, 2
		}
		x := tensortest.Random(rng, tensor.Float32, tensortest.Shape(t, dims...), a)
		checkAllForms(t, a, x)
		x.Release()
	}
	for _, dims := range [][]int64{{0}, {0, 1 << 62, 4}, {5, 0, 3}} {
		x := tensortest.Random(rng, tensor.Int8, tensortest.Shape(t, dims...), a)
		checkAllForms(t, a, x)
		x.Release()
	}
}

// TestT2StringTensor: strings of differing sizes.
func TestT2StringTensor(t *testing.T) {
	a := tensortest.NewAllocator(t)
	for _, elems := range [][]string{
		{},
		{""},
		{"", "", ""},
		{"a", strings.Repeat("b", 127), strings.Repeat("c", 128), strings.Repeat("d", 70000), "", "\x00\xff"},
	} {
		checkAllForms(t, a, tensortest.Strings(t, elems...))
	}
}

// TestT3LargeTensor: beyond protobuf's 2 GiB a tensor is refused with
// TensorFlow's words, in every form.
func TestT3LargeTensor(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{Keep: -1}) // memory that nobody touches costs nothing
	x, err := tensor.Allocate(pool, tensor.Int8, tensortest.Shape(t, 1, 1<<31+1))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	forms := map[string]func() error{
		"ToProto":      func() error { _, err := tensorproto.ToProto(x); return err },
		"Append":       func() error { _, err := tensorproto.Append(nil, x); return err },
		"AppendHeader": func() error { _, err := tensorproto.AppendHeader(nil, x); return err },
	}
	for name, f := range forms {
		err := f()
		if status.CodeOf(err) != status.Internal ||
			!strings.Contains(err.Error(), "Cannot encode a Tensor that exceeds the 2GB protobuf limit. Exceeded bytes: 1 ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	fits, err := tensor.Allocate(pool, tensor.Int8, tensortest.Shape(t, 1, 1<<31))
	if err != nil {
		t.Fatal(err)
	}
	defer fits.Release()
	_, err = tensorproto.AppendHeader(nil, fits)
	if status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "2GB protobuf limit with its header: it has 2147483648 bytes") {
		t.Errorf("a tensor that only its header makes too large: %v", err)
	}
}

// TestGoldenBytes: the bytes that a TensorFlow worker writes for the same
// tensor.
func TestGoldenBytes(t *testing.T) {
	vector := func(dims ...int64) *tensor.Tensor {
		x, err := tensor.FromSlice(tensortest.Shape(t, dims...), []int16{1, -2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Release)
		return x
	}
	scalar, err := tensor.FromSlice(tensor.Shape{}, []uint8{7})
	if err != nil {
		t.Fatal(err)
	}
	defer scalar.Release()
	empty, err := tensor.FromSlice[float32](tensortest.Shape(t, 0, 300), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Release()
	for _, c := range []struct {
		x    *tensor.Tensor
		want string
	}{
		{scalar, "08 04  22 01 07"},
		{vector(2), "08 05  12 04 12 02 08 02  22 04 01 00 fe ff"},
		{vector(1, 2), "08 05  12 08 12 02 08 01 12 02 08 02  22 04 01 00 fe ff"},
		{empty, "08 01  12 09 12 02 08 00 12 03 08 ac 02  22 00"},
		{tensortest.Strings(t, "a", "", "bc"), "08 07  12 04 12 02 08 03  22 06 01 00 02 61 62 63"},
		{tensortest.Strings(t), "08 07  12 02 12 00"},
		{tensortest.Sequence(t, tensor.String), "08 07  12 00  22 01 00"},
	} {
		got, err := tensorproto.Append(nil, c.x)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Fields(c.want); fmt.Sprintf("% x", got) != strings.Join(want, " ") {
			t.Errorf("%v: got % x, want %s", c.x, got, c.want)
		}
	}
}

func TestAppendHeaderWantsPlainElements(t *testing.T) {
	if _, err := tensorproto.AppendHeader(nil, tensortest.Strings(t, "a")); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("strings: %v", err)
	}
}

// TestToProtoCopies: the message outlives the tensor.
func TestToProtoCopies(t *testing.T) {
	a := tensortest.NewAllocator(t)
	x := tensortest.Random(rand.New(rand.NewPCG(1, 1)), tensor.Int32, tensor.Vector(4), a)
	p, err := tensorproto.ToProto(x)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(x.Bytes())
	x.Release() // fills the memory with a pattern
	if !bytes.Equal(p.TensorContent, want) {
		t.Error("the message shares the tensor's memory")
	}
}

// TestAppendHeaderAllocates: a transport that brings its own bytes pays
// nothing.
func TestAppendHeaderAllocates(t *testing.T) {
	x := tensortest.Tensor(t, tensor.Float32, 2, 3, 4)
	b := make([]byte, 0, tensorproto.MaxHeader)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := tensorproto.AppendHeader(b, x); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestHeaderOfANegativeSize: a shape that no tensor has is not read as that of a scalar.
func TestHeaderOfANegativeSize(t *testing.T) {
	message := &pb.TensorProto{Dtype: pb.DataType_DT_INT32, TensorContent: make([]byte, 4),
		TensorShape: &pb.TensorShapeProto{Dim: []*pb.TensorShapeProto_Dim{{Size: -1}}}}
	wire, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := tensorproto.ParseHeader(wire, len(wire)); ok {
		t.Errorf("header %+v", h)
	}
	if x, err := tensorproto.Unmarshal(wire, tensor.Heap{}); err == nil {
		t.Errorf("tensor %v", x)
	}
}

// TestHeaderOfNumbersThatAreTooLong: a varint of more than 64 bits and one that is cut are no numbers, as
// dtype, as the length of the shape, or as the size of a dimension.
func TestHeaderOfNumbersThatAreTooLong(t *testing.T) {
	long, cut := append(bytes.Repeat([]byte{0xff}, 10), 1), []byte{0xff}
	for _, number := range [][]byte{long, cut} {
		for _, wire := range [][]byte{
			append([]byte{1 << 3}, number...),
			append([]byte{1 << 3, 3, 2<<3 | 2}, number...),
			append([]byte{1 << 3, 3, 2<<3 | 2, byte(3 + len(number)), 2<<3 | 2, byte(1 + len(number)), 1 << 3}, number...),
			append([]byte{1 << 3, 3, 4<<3 | 2}, number...),
		} {
			if h, ok := tensorproto.ParseHeader(wire, len(wire)); ok {
				t.Errorf("% x: header %+v", wire, h)
			}
			if x, err := tensorproto.Unmarshal(wire, tensor.Heap{}); err == nil {
				t.Errorf("% x: tensor %v", wire, x)
			}
		}
	}
}
