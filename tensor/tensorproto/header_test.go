package tensorproto_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestT4ParseHeaderOfAPart: a receiver that has only the start of the message
// finds the content, wherever the wire has cut it. (The decoder of the
// response, over slices, is the transport's.)
func TestT4ParseHeaderOfAPart(t *testing.T) {
	x := tensortest.Tensor(t, tensor.Complex64, 3, 200, 2)
	wire, err := tensorproto.Append(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	start := len(wire) - len(x.Bytes())
	for cut := range len(wire) + 1 {
		h, ok := tensorproto.ParseHeader(wire[:cut], len(wire))
		if ok != (cut >= start) {
			t.Fatalf("%d of %d bytes, content at %d: %v", cut, len(wire), start, ok)
		}
		if ok && (h.Start != start || h.Size != len(x.Bytes()) || h.DType != x.DType() || !h.Shape.Equal(x.Shape())) {
			t.Fatalf("%d bytes: %+v", cut, h)
		}
	}
}

func TestMaxHeaderIsEnough(t *testing.T) {
	// The longest dimensions: nothing but the first 0 makes them valid.
	dims := slices.Repeat([]int64{1<<63 - 1}, tensor.MaxDims)
	dims[0] = 0
	x, err := tensor.Allocate(tensor.Heap{}, tensor.Float32, tensortest.Shape(t, dims...))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	header, err := tensorproto.AppendHeader(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	if len(header)+20 > tensorproto.MaxHeader { // 20: longer lengths than here
		t.Errorf("a header of %d bytes; MaxHeader is %d", len(header), tensorproto.MaxHeader)
	}
}

// TestParseHeaderLeavesOtherForms: a message of another form, and a wrong one,
// is left to the generic parser.
func TestParseHeaderLeavesOtherForms(t *testing.T) {
	dtype := func(d tensor.DType) []byte { return varint(1, uint64(d)) }
	dim := func(n uint64) []byte { return message(2, varint(1, n)) }
	shape := func(dims ...[]byte) []byte { return message(2, slices.Concat(dims...)) }
	content := func(n int) []byte { return message(4, make([]byte, n)) }
	float := dtype(tensor.Float32)
	for _, c := range []struct {
		name  string
		parts [][]byte
		ok    bool
	}{
		{"usual", [][]byte{float, shape(dim(2)), content(8)}, true},
		{"scalar", [][]byte{float, content(4)}, true},
		{"scalar with an empty shape", [][]byte{float, shape(), content(4)}, true},
		{"size 0 left out", [][]byte{float, shape(message(2, nil)), content(0)}, true},
		{"nothing", nil, false},
		{"no content", [][]byte{float, shape(dim(0))}, false},
		{"no dtype", [][]byte{shape(dim(2)), content(8)}, false},
		{"shape first", [][]byte{shape(dim(2)), float, content(8)}, false},
		{"content before shape", [][]byte{float, content(8), shape(dim(2))}, false},
		{"field behind the content", [][]byte{float, shape(dim(2)), content(8), varint(3, 1)}, false},
		{"version number", [][]byte{float, varint(3, 1), shape(dim(2)), content(8)}, false},
		{"content too short", [][]byte{float, shape(dim(2)), content(7)}, false},
		{"content too long", [][]byte{float, shape(dim(2)), content(9)}, false},
		{"empty content", [][]byte{float, shape(dim(2)), content(0)}, false},
		{"content ends beyond the message", [][]byte{float, shape(dim(2)), content(8)[:9]}, false},
		{"strings", [][]byte{dtype(tensor.String), shape(dim(2)), content(2)}, false},
		{"reference", [][]byte{dtype(tensor.Float32 + 100), shape(dim(2)), content(8)}, false},
		{"dtype 2³²+1", [][]byte{varint(1, 1<<32+1), shape(dim(2)), content(8)}, false},
		{"negative size", [][]byte{float, shape(dim(1<<64 - 1)), content(8)}, false},
		{"too many elements", [][]byte{float, shape(dim(1<<40), dim(1<<40)), content(8)}, false},
		{"too many bytes", [][]byte{float, shape(dim(1<<62 - 1)), content(8)}, false},
		{"255 dimensions", [][]byte{float, shape(slices.Repeat([][]byte{dim(1)}, 255)...), content(4)}, false},
		{"unknown rank", [][]byte{float, shape(varint(3, 1)), content(4)}, false},
		{"name of a dimension", [][]byte{float, shape(message(2, varint(1, 2), message(2, []byte("x")))), content(8)}, false},
		{"two sizes in a dimension", [][]byte{float, shape(message(2, varint(1, 2), varint(1, 2))), content(8)}, false},
		{"shape cut off", [][]byte{float, {0x12, 0x7f, 0x12}}, false},
		{"wrong wire types", [][]byte{message(1, nil), varint(2, 1), varint(4, 1)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := slices.Concat(c.parts...)
			h, ok := tensorproto.ParseHeader(b, len(b))
			if ok != c.ok {
				t.Fatalf("got %v, %+v", ok, h)
			}
			// Whatever the short way reads, the long way reads the same.
			p := new(pb.TensorProto)
			if !ok || proto.Unmarshal(b, p) != nil {
				return
			}
			slow, err := tensorproto.FromProto(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Release()
			if h.DType != slow.DType() || !h.Shape.Equal(slow.Shape()) || h.Size != len(slow.Bytes()) {
				t.Errorf("header %+v, tensor %v", h, slow)
			}
		})
	}
}

func varint(field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), v)
}

func message(field protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), slices.Concat(parts...))
}
