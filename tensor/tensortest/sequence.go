package tensortest

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// Sequence returns a tensor with the given dimensions and defined elements, for
// golden files. Byte i of its memory is 37·i+11 modulo 256, without the bits that
// the type does not use. Element i of a String tensor is the first i² bytes of the
// same sequence. The tensor is released when the test ends.
func Sequence(t testing.TB, dtype tensor.DType, dims ...int64) *tensor.Tensor {
	t.Helper()
	shape := Shape(t, dims...)
	var x *tensor.Tensor
	if dtype.Plain() {
		x = must(tensor.Allocate(tensor.Heap{}, dtype, shape))
		count(x.Bytes())
		limit(dtype, x.Bytes())
	} else {
		elems := make([]string, shape.Elements())
		for i := range elems {
			b := make([]byte, i*i)
			count(b)
			elems[i] = string(b)
		}
		x = must(tensor.FromElements(dtype, shape, elems))
	}
	t.Cleanup(x.Release)
	return x
}

func count(b []byte) {
	for i := range b {
		b[i] = byte(37*i + 11)
	}
}
