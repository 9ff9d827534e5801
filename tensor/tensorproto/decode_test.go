package tensorproto_test

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

func shapeProto(dims ...int64) *pb.TensorShapeProto {
	p := &pb.TensorShapeProto{}
	for _, d := range dims {
		p.Dim = append(p.Dim, &pb.TensorShapeProto_Dim{Size: d})
	}
	return p
}

func slice[T tensor.Element](t *testing.T, dims []int64, values ...T) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(tensortest.Shape(t, dims...), values)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	return x
}

func bytesOf(t *testing.T, dtype tensor.DType, b ...byte) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromBytes(dtype, tensor.Vector(len(b)/dtype.Size()), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	return x
}

// TestTypedLists: each type's list, with fewer values than elements (the last
// one repeats), none (zeros) and more (ignored).
func TestTypedLists(t *testing.T) {
	a := tensortest.NewAllocator(t)
	four := []int64{4}
	for _, c := range []struct {
		name string
		list *pb.TensorProto
		want *tensor.Tensor
	}{
		{"float", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT, FloatVal: []float32{1, 2.5}}, slice[float32](t, four, 1, 2.5, 2.5, 2.5)},
		{"double", &pb.TensorProto{Dtype: pb.DataType_DT_DOUBLE, DoubleVal: []float64{1e300, 2}}, slice(t, four, 1e300, 2, 2, 2)},
		{"int32", &pb.TensorProto{Dtype: pb.DataType_DT_INT32, IntVal: []int32{math.MinInt32, -7}}, slice[int32](t, four, math.MinInt32, -7, -7, -7)},
		{"int16", &pb.TensorProto{Dtype: pb.DataType_DT_INT16, IntVal: []int32{-1, 0x12345}}, slice[int16](t, four, -1, 0x2345, 0x2345, 0x2345)},
		{"int8", &pb.TensorProto{Dtype: pb.DataType_DT_INT8, IntVal: []int32{-1, 0x1ff}}, slice[int8](t, four, -1, -1, -1, -1)},
		{"uint8", &pb.TensorProto{Dtype: pb.DataType_DT_UINT8, IntVal: []int32{255}}, slice[uint8](t, four, 255, 255, 255, 255)},
		{"uint16", &pb.TensorProto{Dtype: pb.DataType_DT_UINT16, IntVal: []int32{65535, -1}}, slice[uint16](t, four, 65535, 65535, 65535, 65535)},
		{"uint32", &pb.TensorProto{Dtype: pb.DataType_DT_UINT32, Uint32Val: []uint32{1 << 31}}, slice[uint32](t, four, 1<<31, 1<<31, 1<<31, 1<<31)},
		{"uint64", &pb.TensorProto{Dtype: pb.DataType_DT_UINT64, Uint64Val: []uint64{1 << 63, 1}}, slice[uint64](t, four, 1<<63, 1, 1, 1)},
		{"int64", &pb.TensorProto{Dtype: pb.DataType_DT_INT64, Int64Val: []int64{-1 << 63, 1}}, slice[int64](t, four, -1<<63, 1, 1, 1)},
		{"bool", &pb.TensorProto{Dtype: pb.DataType_DT_BOOL, BoolVal: []bool{false, true}}, slice(t, four, false, true, true, true)},
		{"complex64", &pb.TensorProto{Dtype: pb.DataType_DT_COMPLEX64, ScomplexVal: []float32{1, 2, 3, 4}}, slice[complex64](t, four, 1+2i, 3+4i, 3+4i, 3+4i)},
		{"complex64 with half a value", &pb.TensorProto{Dtype: pb.DataType_DT_COMPLEX64, ScomplexVal: []float32{1, 2, 3}}, slice[complex64](t, four, 1+2i, 1+2i, 1+2i, 1+2i)},
		{"complex64 with only half a value", &pb.TensorProto{Dtype: pb.DataType_DT_COMPLEX64, ScomplexVal: []float32{1}}, slice[complex64](t, four, 0, 0, 0, 0)},
		{"complex128", &pb.TensorProto{Dtype: pb.DataType_DT_COMPLEX128, DcomplexVal: []float64{1, 2}}, slice(t, four, 1+2i, 1+2i, 1+2i, 1+2i)},
		{"half", &pb.TensorProto{Dtype: pb.DataType_DT_HALF, HalfVal: []int32{0x3c00, 0xfbff}}, slice[tensor.Float16Bits](t, four, 0x3c00, 0xfbff, 0xfbff, 0xfbff)},
		{"bfloat16", &pb.TensorProto{Dtype: pb.DataType_DT_BFLOAT16, HalfVal: []int32{0x3f80}}, slice[tensor.BFloat16Bits](t, four, 0x3f80, 0x3f80, 0x3f80, 0x3f80)},
		{"qint8", &pb.TensorProto{Dtype: pb.DataType_DT_QINT8, IntVal: []int32{-2}}, bytesOf(t, tensor.QInt8, 254, 254, 254, 254)},
		{"quint8", &pb.TensorProto{Dtype: pb.DataType_DT_QUINT8, IntVal: []int32{200}}, bytesOf(t, tensor.QUint8, 200, 200, 200, 200)},
		{"qint16", &pb.TensorProto{Dtype: pb.DataType_DT_QINT16, IntVal: []int32{-2}}, bytesOf(t, tensor.QInt16, 254, 255, 254, 255, 254, 255, 254, 255)},
		{"quint16", &pb.TensorProto{Dtype: pb.DataType_DT_QUINT16, IntVal: []int32{258}}, bytesOf(t, tensor.QUint16, 2, 1, 2, 1, 2, 1, 2, 1)},
		{"qint32", &pb.TensorProto{Dtype: pb.DataType_DT_QINT32, IntVal: []int32{1}}, bytesOf(t, tensor.QInt32, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0)},
		{"int4", &pb.TensorProto{Dtype: pb.DataType_DT_INT4, IntVal: []int32{7, -8}}, bytesOf(t, tensor.Int4, 7, 0xf8, 0xf8, 0xf8)},
		{"uint4", &pb.TensorProto{Dtype: pb.DataType_DT_UINT4, IntVal: []int32{15}}, bytesOf(t, tensor.Uint4, 15, 15, 15, 15)},
		{"int2", &pb.TensorProto{Dtype: pb.DataType_DT_INT2, IntVal: []int32{-2}}, bytesOf(t, tensor.Int2, 0xfe, 0xfe, 0xfe, 0xfe)},
		{"uint2", &pb.TensorProto{Dtype: pb.DataType_DT_UINT2, IntVal: []int32{3}}, bytesOf(t, tensor.Uint2, 3, 3, 3, 3)},
		{"float8_e5m2", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT8_E5M2, Float8Val: []byte{1, 2}}, bytesOf(t, tensor.Float8E5M2, 1, 2, 2, 2)},
		{"float8_e4m3fn", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT8_E4M3FN, Float8Val: []byte{1, 2}}, bytesOf(t, tensor.Float8E4M3FN, 1, 2, 2, 2)},
		{"float8_e4m3fnuz", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT8_E4M3FNUZ, Float8Val: []byte{1, 2}}, bytesOf(t, tensor.Float8E4M3FNUZ, 1, 2, 2, 2)},
		{"float8_e4m3b11fnuz", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT8_E4M3B11FNUZ, Float8Val: []byte{1, 2}}, bytesOf(t, tensor.Float8E4M3B11, 1, 2, 2, 2)},
		{"float8_e5m2fnuz", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT8_E5M2FNUZ, Float8Val: []byte{1, 2}}, bytesOf(t, tensor.Float8E5M2FNUZ, 1, 2, 2, 2)},
		{"float4_e2m1fn", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT4_E2M1FN, Float8Val: []byte{1, 2}}, bytesOf(t, tensor.Float4E2M1FN, 1, 2, 2, 2)},
		{"string", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, StringVal: [][]byte{[]byte("a"), []byte("bc")}}, tensortest.Strings(t, "a", "bc", "bc", "bc")},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.list
			p.TensorShape = shapeProto(4)
			check := func(p *pb.TensorProto, want *tensor.Tensor) {
				t.Helper()
				// Over memory that is not zero.
				for range 2 {
					got, err := tensorproto.FromProto(p, a)
					if err != nil {
						t.Fatal(err)
					}
					tensortest.RequireEqual(t, want, got)
					got.Release()
				}
			}
			check(p, c.want)

			none := &pb.TensorProto{Dtype: p.Dtype, TensorShape: shapeProto(4)}
			if c.want.DType().Plain() {
				check(none, bytesOf(t, c.want.DType(), make([]byte, len(c.want.Bytes()))...))
			} else {
				check(none, tensortest.Strings(t, "", "", "", ""))
			}

			// More values than elements.
			all, ok := proto.Clone(p).(*pb.TensorProto)
			if !ok {
				t.Fatal("a clone of another type")
			}
			all.TensorShape = shapeProto(1)
			check(all, firstOf(t, c.want))
			all.TensorShape = shapeProto(0)
			check(all, emptyLike(t, c.want))
		})
	}
}

func firstOf(t *testing.T, x *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	if x.DType().Plain() {
		return bytesOf(t, x.DType(), x.Bytes()[:x.DType().Size()]...)
	}
	return tensortest.Strings(t, x.Elements()[0])
}

func emptyLike(t *testing.T, x *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	return tensortest.Tensor(t, x.DType(), 0)
}

// TestHandlesDoNotRepeat: missing resources and variants are empty ones.
func TestHandlesDoNotRepeat(t *testing.T) {
	for _, p := range []*pb.TensorProto{
		{Dtype: pb.DataType_DT_RESOURCE, ResourceHandleVal: []*pb.ResourceHandleProto{{Device: "d", HashCode: 7}}},
		{Dtype: pb.DataType_DT_VARIANT, VariantVal: []*pb.VariantTensorDataProto{{TypeName: "t", Tensors: []*pb.TensorProto{{Dtype: pb.DataType_DT_FLOAT, FloatVal: []float32{1}}}}}},
	} {
		p.TensorShape = shapeProto(3)
		x, err := tensorproto.FromProto(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := x.Elements()
		if len(e) != 3 || e[0] == "" || e[1] != "" || e[2] != "" {
			t.Errorf("%v: %q", x, e)
		}
		back, err := tensorproto.ToProto(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := tensorproto.FromProto(back, nil)
		if err != nil {
			t.Fatal(err)
		}
		tensortest.RequireEqual(t, x, y)
		x.Release()
		y.Release()

		p.TensorShape = shapeProto()
		x, err = tensorproto.FromProto(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(x.Elements()) != 1 || x.Elements()[0] != e[0] {
			t.Errorf("%v: %q", x, x.Elements())
		}
		x.Release()
	}
}

// TestContentWins: with a content the lists are not looked at, as long as
// there is one.
func TestContentWins(t *testing.T) {
	p := &pb.TensorProto{Dtype: pb.DataType_DT_UINT8, TensorShape: shapeProto(2), TensorContent: []byte{1, 2}, IntVal: []int32{9}}
	x, err := tensorproto.FromProto(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	tensortest.RequireEqual(t, slice[uint8](t, []int64{2}, 1, 2), x)
	p.TensorContent[0] = 7 // the tensor has a copy
	if x.Bytes()[0] != 1 {
		t.Error("the tensor shares the message's memory")
	}
}

// TestNoElements: without elements only type and shape count.
func TestNoElements(t *testing.T) {
	for _, dtype := range tensortest.AllDTypes() {
		x, err := tensorproto.FromProto(&pb.TensorProto{
			Dtype: tensorproto.DTypeToProto(dtype), TensorShape: shapeProto(3, 0), TensorContent: []byte("whatever"),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if x.DType() != dtype || x.Shape().Elements() != 0 {
			t.Errorf("%v", x)
		}
		x.Release()
	}
}

func TestRefused(t *testing.T) {
	a := tensortest.NewAllocator(t)
	a.SetLimit(1 << 20)
	float := func(p *pb.TensorProto) *pb.TensorProto {
		p.Dtype = pb.DataType_DT_FLOAT
		return p
	}
	str := func(n int64, content string) *pb.TensorProto {
		return &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorShape: shapeProto(n), TensorContent: []byte(content)}
	}
	ones := make([]int64, 255)
	for i := range ones {
		ones[i] = 1
	}
	for _, c := range []struct {
		name string
		p    *pb.TensorProto
		code status.Code
		want string
	}{
		{"nothing", nil, status.InvalidArgument, "dtype is not set"},
		{"no dtype", &pb.TensorProto{}, status.InvalidArgument, "dtype is not set"},
		{"reference", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT_REF}, status.InvalidArgument, "float_ref is a reference"},
		{"unknown dtype", &pb.TensorProto{Dtype: 77}, status.InvalidArgument, "dtype 77 is not known"},
		{"negative dtype", &pb.TensorProto{Dtype: -1}, status.InvalidArgument, "dtype -1 is not known"},
		{"unknown rank", float(&pb.TensorProto{TensorShape: &pb.TensorShapeProto{UnknownRank: true}}), status.InvalidArgument, "rank is unknown"},
		{"unknown size", float(&pb.TensorProto{TensorShape: shapeProto(2, -1)}), status.InvalidArgument, "dimension 1 is negative (-1)"},
		{"255 dimensions", float(&pb.TensorProto{TensorShape: shapeProto(ones...)}), status.InvalidArgument, "255 dimensions"},
		{"too many elements", float(&pb.TensorProto{TensorShape: shapeProto(1<<40, 1<<40)}), status.InvalidArgument, "2^63-1"},
		{"too many bytes", float(&pb.TensorProto{TensorShape: shapeProto(1 << 62)}), status.InvalidArgument, "takes more than"},
		{"short content", float(&pb.TensorProto{TensorShape: shapeProto(2, 3), TensorContent: make([]byte, 23)}), status.InvalidArgument, "dtype float, shape [2,3]: tensor_content has 23 bytes; 24 are needed"},
		{"long content", float(&pb.TensorProto{TensorContent: make([]byte, 5)}), status.InvalidArgument, "shape []: tensor_content has 5 bytes; 4 are needed"},
		{"a huge shape and a content", float(&pb.TensorProto{TensorShape: shapeProto(1 << 50), TensorContent: make([]byte, 8)}), status.InvalidArgument, "tensor_content has 8 bytes"},
		{"a huge shape and one value", float(&pb.TensorProto{TensorShape: shapeProto(1 << 40), FloatVal: []float32{1}}), status.ResourceExhausted, "1 values for 1099511627776 elements; filling in the rest takes more than the limit of 67108864 bytes"},
		{"a huge shape and no value", float(&pb.TensorProto{TensorShape: shapeProto(1 << 40)}), status.ResourceExhausted, "0 values"},
		{"beyond the allocator's limit", float(&pb.TensorProto{TensorShape: shapeProto(1 << 20)}), status.ResourceExhausted, "limit is 1048576"},
		{"a huge shape and one string", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorShape: shapeProto(1 << 40), StringVal: [][]byte{nil}}, status.ResourceExhausted, "1 values"},
		{"a huge shape and no variant", &pb.TensorProto{Dtype: pb.DataType_DT_VARIANT, TensorShape: shapeProto(math.MaxInt64)}, status.ResourceExhausted, "0 values"},
		{"a huge shape of strings and a content", str(1<<40, "\x00"), status.InvalidArgument, "too few for the lengths of 1099511627776 elements"},
		{"strings cut off", str(2, "\x01\x01a"), status.InvalidArgument, "the elements have 2 bytes; 1 follow"},
		{"bytes behind the strings", str(2, "\x01\x01abc"), status.InvalidArgument, "the elements have 2 bytes; 3 follow"},
		{"lengths cut off", str(2, "\x01\x81"), status.InvalidArgument, "length of element 1 is no varint"},
		{"a length that is too long", str(1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), status.InvalidArgument, "length of element 0 is no varint"},
		{"a huge string", str(1, "\xff\xff\xff\xff\x0fabc"), status.InvalidArgument, "element 0 has 4294967295 bytes"},
		{"lengths that overflow", str(2, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), status.InvalidArgument, "element 0 has 9223372036854775808 bytes"},
		{"no resource", &pb.TensorProto{Dtype: pb.DataType_DT_RESOURCE, TensorContent: []byte("\x02\x0a\x7f")}, status.InvalidArgument, "tensor_content: element 0: "},
		{"no variant", &pb.TensorProto{Dtype: pb.DataType_DT_VARIANT, TensorContent: []byte("\x02\x0a\x7f")}, status.InvalidArgument, "tensor_content: element 0: "},
		{"a resource that cannot be written", &pb.TensorProto{Dtype: pb.DataType_DT_RESOURCE, ResourceHandleVal: []*pb.ResourceHandleProto{{Name: "\xff"}}}, status.InvalidArgument, "value 0: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := tensorproto.FromProto(c.p, a)
			if err == nil {
				x.Release()
			}
			if status.CodeOf(err) != c.code {
				t.Fatalf("got %v, %v; want %v", x, err, c.code)
			}
			for _, part := range []string{"Cannot parse tensor from proto: ", c.want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestMaxExpand(t *testing.T) {
	p := &pb.TensorProto{Dtype: pb.DataType_DT_INT32, TensorShape: shapeProto(100), IntVal: []int32{1, 2}}
	for _, c := range []struct {
		limit int64
		ok    bool
	}{{98*4 - 1, false}, {98 * 4, true}, {0, true}, {-1, true}} {
		x, err := tensorproto.Decoder{MaxExpand: c.limit}.FromProto(p)
		if (err == nil) != c.ok {
			t.Errorf("limit %d: %v", c.limit, err)
		}
		if err == nil {
			x.Release()
		}
	}
	p.TensorShape = shapeProto(tensorproto.DefaultMaxExpand/4 + 2)
	x, err := tensorproto.FromProto(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	x.Release()
	p.TensorShape = shapeProto(tensorproto.DefaultMaxExpand/4 + 3)
	if _, err := tensorproto.FromProto(p, nil); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("beyond the default: %v", err)
	}
	x, err = tensorproto.Decoder{MaxExpand: -1}.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	x.Release()
}

// TestMaxExpandOfElementsThatAreNotPlainMemory: no allocator refuses them, so without a
// limit of the caller's they have the default one.
func TestMaxExpandOfElementsThatAreNotPlainMemory(t *testing.T) {
	for _, dtype := range []pb.DataType{pb.DataType_DT_STRING, pb.DataType_DT_RESOURCE, pb.DataType_DT_VARIANT} {
		for _, n := range []int64{tensorproto.DefaultMaxExpand/16 + 1, 1 << 40, 1 << 60} {
			p := &pb.TensorProto{Dtype: dtype, TensorShape: shapeProto(n)}
			if _, err := (tensorproto.Decoder{MaxExpand: -1}).FromProto(p); status.CodeOf(err) != status.ResourceExhausted {
				t.Errorf("%v, %d elements: %v", dtype, n, err)
			}
		}
		p := &pb.TensorProto{Dtype: dtype, TensorShape: shapeProto(1000)}
		x, err := tensorproto.Decoder{MaxExpand: -1}.FromProto(p)
		if err != nil {
			t.Fatalf("%v: %v", dtype, err)
		}
		x.Release()
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	a := tensortest.NewAllocator(t)
	a.SetLimit(100)
	for _, c := range []struct {
		bytes string
		code  status.Code
		want  string
	}{
		{"\x08", status.InvalidArgument, "the 1 bytes are no TensorProto"},
		{"", status.InvalidArgument, "dtype is not set"},
		{"\x08\x01\x22\x03abc", status.InvalidArgument, "dtype float, shape []: tensor_content has 3 bytes; 4 are needed"},
		{"\x08\x04\x12\x04\x12\x02\x08\x65\x22\x65" + strings.Repeat("x", 101), status.ResourceExhausted, "dtype uint8, shape [101]: cannot allocate 101 bytes"},
	} {
		_, err := tensorproto.Unmarshal([]byte(c.bytes), a)
		if status.CodeOf(err) != c.code || !strings.Contains(err.Error(), "Cannot parse tensor from proto: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %v with %q", c.bytes, err, c.code, c.want)
		}
	}
}

func TestShapeProto(t *testing.T) {
	for _, dims := range [][]int64{nil, {0}, {2, 3}, ones(254)} {
		s := tensortest.Shape(t, dims...)
		got, err := tensorproto.ShapeFromProto(tensorproto.ShapeToProto(s))
		if err != nil || !got.Equal(s) {
			t.Errorf("%v: got %v, %v", s, got, err)
		}
	}
	if s, err := tensorproto.ShapeFromProto(nil); err != nil || s.Rank() != 0 {
		t.Errorf("no message: %v, %v", s, err)
	}
	if s, err := tensorproto.ShapeFromProto(&pb.TensorShapeProto{Dim: []*pb.TensorShapeProto_Dim{{Size: 3, Name: "x"}, nil}}); err != nil || s.String() != "[3,0]" {
		t.Errorf("named dimension: %v, %v", s, err)
	}
}

func ones(n int) []int64 {
	dims := make([]int64, n)
	for i := range dims {
		dims[i] = 1
	}
	return dims
}

// TestDTypeProto: the numbers of package tensor are those of the messages, and
// none is missing.
func TestDTypeProto(t *testing.T) {
	known := 0
	for number, name := range pb.DataType_name {
		d, err := tensorproto.DTypeFromProto(pb.DataType(number))
		ref := strings.HasSuffix(name, "_REF")
		if (err == nil) == (ref || number == 0) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
		if err == nil {
			known++
			// DT_FLOAT8_E4M3B11FNUZ is "float8_e4m3b11fnuz", and so on.
			if want := strings.ToLower(strings.TrimPrefix(name, "DT_")); d.String() != want {
				t.Errorf("%s is called %v", name, d)
			}
			if tensorproto.DTypeToProto(d) != pb.DataType(number) {
				t.Errorf("%s: %v back", name, tensorproto.DTypeToProto(d))
			}
		}
	}
	if known != len(tensortest.AllDTypes()) {
		t.Errorf("%d types in the messages, %d in package tensor", known, len(tensortest.AllDTypes()))
	}
}

// FuzzFromProto: bytes that are a tensor survive being written and read
// again, and the short way of reading says what the long one says.
func FuzzFromProto(f *testing.F) {
	for _, x := range []*tensor.Tensor{
		tensortest.Tensor(f, tensor.Float32, 2, 3),
		tensortest.Tensor(f, tensor.Bool),
		tensortest.Tensor(f, tensor.Int8, 0, 5),
		tensortest.Tensor(f, tensor.String, 4),
		tensortest.Tensor(f, tensor.Resource, 2),
		tensortest.Tensor(f, tensor.Variant, 2),
	} {
		b, err := tensorproto.Append(nil, x)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, p := range []*pb.TensorProto{
		{Dtype: pb.DataType_DT_FLOAT, TensorShape: shapeProto(1 << 40), FloatVal: []float32{1}},
		{Dtype: pb.DataType_DT_COMPLEX64, TensorShape: shapeProto(3), ScomplexVal: []float32{1, 2, 3}},
		{Dtype: pb.DataType_DT_HALF, TensorShape: shapeProto(3), HalfVal: []int32{1, 2, 3, 4}},
		{Dtype: pb.DataType_DT_STRING, TensorShape: shapeProto(3), StringVal: [][]byte{[]byte("a")}},
		{Dtype: pb.DataType_DT_RESOURCE, TensorShape: shapeProto(2), ResourceHandleVal: []*pb.ResourceHandleProto{{Name: "n"}}},
		{Dtype: pb.DataType_DT_VARIANT, TensorShape: shapeProto(2), VariantVal: []*pb.VariantTensorDataProto{{Tensors: []*pb.TensorProto{{}}}}},
		{Dtype: pb.DataType_DT_FLOAT8_E5M2, TensorShape: shapeProto(2), Float8Val: []byte{1}},
		{Dtype: pb.DataType_DT_INT4, TensorShape: &pb.TensorShapeProto{UnknownRank: true}},
	} {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Small, so that a fuzzer's large shapes do not take its time.
		decoder := tensorproto.Decoder{Allocator: tensortest.NewAllocator(t), MaxExpand: 1 << 16}
		x, err := decoder.Unmarshal(b)
		p := new(pb.TensorProto)
		if perr := proto.Unmarshal(b, p); perr != nil {
			if err == nil {
				t.Fatalf("%v from bytes that are no message: %v", x, perr)
			}
			return
		}
		slow, slowErr := decoder.FromProto(p)
		if (err == nil) != (slowErr == nil) {
			t.Fatalf("Unmarshal: %v; FromProto: %v", err, slowErr)
		}
		if err != nil {
			return
		}
		tensortest.RequireEqual(t, slow, x)
		again, err := tensorproto.ToProto(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := decoder.FromProto(again)
		if err != nil {
			t.Fatalf("%v: %v", x, err)
		}
		tensortest.RequireEqual(t, x, y)
		wire, err := tensorproto.Append(nil, x)
		if err != nil {
			t.Fatal(err)
		}
		z, err := decoder.Unmarshal(wire)
		if err != nil {
			t.Fatalf("%v: %v", x, err)
		}
		tensortest.RequireEqual(t, x, z)
		for _, v := range []*tensor.Tensor{x, slow, y, z} {
			v.Release()
		}
	})
}
