package tensorproto

import (
	"google.golang.org/protobuf/proto"

	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// listLen returns how many elements the list for the type holds. A complex
// number takes two values, of which a last single one is ignored.
func listLen(p *pb.TensorProto, dtype tensor.DType) int {
	switch dtype {
	case tensor.Float32:
		return len(p.GetFloatVal())
	case tensor.Float64:
		return len(p.GetDoubleVal())
	case tensor.Int32, tensor.Int16, tensor.Int8, tensor.Uint16, tensor.Uint8,
		tensor.QInt32, tensor.QInt16, tensor.QInt8, tensor.QUint16, tensor.QUint8,
		tensor.Int4, tensor.Uint4, tensor.Int2, tensor.Uint2:
		return len(p.GetIntVal())
	case tensor.String:
		return len(p.GetStringVal())
	case tensor.Complex64:
		return len(p.GetScomplexVal()) / 2
	case tensor.Int64:
		return len(p.GetInt64Val())
	case tensor.Bool:
		return len(p.GetBoolVal())
	case tensor.Complex128:
		return len(p.GetDcomplexVal()) / 2
	case tensor.Float16, tensor.BFloat16:
		return len(p.GetHalfVal())
	case tensor.Resource:
		return len(p.GetResourceHandleVal())
	case tensor.Variant:
		return len(p.GetVariantVal())
	case tensor.Uint32:
		return len(p.GetUint32Val())
	case tensor.Uint64:
		return len(p.GetUint64Val())
	}
	return len(p.GetFloat8Val()) // the floats of eight bits and less
}

// fillFromList writes t's elements from the list for its type. As in
// TensorFlow a value that does not fit into the element loses its upper bits.
func fillFromList(t *tensor.Tensor, p *pb.TensorProto) error {
	n := listLen(p, t.DType())
	switch t.DType() {
	case tensor.Float32:
		return fill(t, n, func(i int) float32 { return p.FloatVal[i] })
	case tensor.Float64:
		return fill(t, n, func(i int) float64 { return p.DoubleVal[i] })
	case tensor.Int32, tensor.QInt32:
		return fill(t, n, func(i int) int32 { return p.IntVal[i] })
	case tensor.Int16, tensor.QInt16:
		return fill(t, n, func(i int) int16 { return int16(p.IntVal[i]) })
	case tensor.Uint16, tensor.QUint16:
		return fill(t, n, func(i int) uint16 { return uint16(p.IntVal[i]) })
	case tensor.Int8, tensor.QInt8, tensor.Uint8, tensor.QUint8,
		tensor.Int4, tensor.Uint4, tensor.Int2, tensor.Uint2:
		fillSlice(t.Bytes(), n, func(i int) byte { return byte(p.IntVal[i]) })
		return nil
	case tensor.Complex64:
		return fill(t, n, func(i int) complex64 { return complex(p.ScomplexVal[2*i], p.ScomplexVal[2*i+1]) })
	case tensor.Complex128:
		return fill(t, n, func(i int) complex128 { return complex(p.DcomplexVal[2*i], p.DcomplexVal[2*i+1]) })
	case tensor.Int64:
		return fill(t, n, func(i int) int64 { return p.Int64Val[i] })
	case tensor.Uint32:
		return fill(t, n, func(i int) uint32 { return p.Uint32Val[i] })
	case tensor.Uint64:
		return fill(t, n, func(i int) uint64 { return p.Uint64Val[i] })
	case tensor.Float16:
		return fill(t, n, func(i int) tensor.Float16Bits { return tensor.Float16Bits(p.HalfVal[i]) })
	case tensor.BFloat16:
		return fill(t, n, func(i int) tensor.BFloat16Bits { return tensor.BFloat16Bits(p.HalfVal[i]) })
	case tensor.Bool:
		fillSlice(t.Bytes(), n, func(i int) byte {
			if p.BoolVal[i] {
				return 1
			}
			return 0
		})
		return nil
	}
	fillSlice(t.Bytes(), n, func(i int) byte { return p.Float8Val[i] })
	return nil
}

// fill writes the n values of a list into t's elements.
func fill[T tensor.Element](t *tensor.Tensor, n int, value func(int) T) error {
	elems, err := tensor.Values[T](t)
	if err != nil {
		return err
	}
	fillSlice(elems, n, value)
	return nil
}

// fillSlice writes n values into elems: the surplus is ignored, the last one
// repeats, and without any all elements are zero.
func fillSlice[T any](elems []T, n int, value func(int) T) {
	n = min(n, len(elems))
	for i := range n {
		elems[i] = value(i)
	}
	if n == 0 {
		clear(elems)
		return
	}
	repeat(elems, n)
}

// repeat fills elems from index n on with the element before it.
func repeat[T any](elems []T, n int) {
	last := elems[n-1]
	for i := n; i < len(elems); i++ {
		elems[i] = last
	}
}

// elementsFromList is fillFromList for elements that are not plain memory.
// Only strings repeat.
func elementsFromList(elems []string, p *pb.TensorProto, dtype tensor.DType) error {
	n := min(listLen(p, dtype), len(elems))
	for i := range n {
		var b []byte
		var err error
		switch dtype {
		case tensor.Resource:
			b, err = deterministic.Marshal(p.ResourceHandleVal[i])
		case tensor.Variant:
			b, err = deterministic.Marshal(p.VariantVal[i])
		default:
			b = p.StringVal[i]
		}
		if err != nil {
			return status.Errorf(status.InvalidArgument, "value %d: %w", i, err)
		}
		elems[i] = string(b)
	}
	if dtype == tensor.String && n > 0 {
		repeat(elems, n)
	}
	return nil
}

// listSize returns the bytes of the elements that the list holds, without their headers. A
// string that repeats is held once.
func listSize(p *pb.TensorProto, dtype tensor.DType) (n int64) {
	switch dtype {
	case tensor.Resource:
		for _, v := range p.GetResourceHandleVal() {
			n += int64(deterministic.Size(v))
		}
	case tensor.Variant:
		for _, v := range p.GetVariantVal() {
			n += int64(deterministic.Size(v))
		}
	default:
		for _, v := range p.GetStringVal() {
			n += int64(len(v))
		}
	}
	return n
}

// deterministic gives equal messages equal bytes, so that tensors of them
// compare equal.
var deterministic = proto.MarshalOptions{Deterministic: true}
