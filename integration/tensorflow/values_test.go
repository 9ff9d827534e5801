//go:build interop

package tensorflow_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// value is a tensor that a test sends.
type value struct {
	name string
	make func(t testing.TB, a tensor.Allocator) *tensor.Tensor
}

func random(name string, dtype tensor.DType, dims ...int64) value {
	return value{name, func(t testing.TB, a tensor.Allocator) *tensor.Tensor {
		return tensortest.Random(rand.New(rand.NewPCG(uint64(dtype), 1)), dtype, tensortest.Shape(t, dims...), a)
	}}
}

func text(name string, dims []int64, elems ...string) value {
	return elements(name, tensor.String, dims, elems...)
}

func elements(name string, dtype tensor.DType, dims []int64, elems ...string) value {
	return value{name, func(t testing.TB, _ tensor.Allocator) *tensor.Tensor {
		x, err := tensor.FromElements(dtype, tensortest.Shape(t, dims...), elems)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}}
}

// slice returns a vector, or a scalar for one value. It is in heap memory and needs no release.
func slice[T tensor.Element](t testing.TB, values ...T) *tensor.Tensor {
	t.Helper()
	shape := tensor.Vector(len(values))
	if len(values) == 1 {
		shape = tensor.Shape{}
	}
	x, err := tensor.FromSlice(shape, values)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// smallValues returns values of every type, and of shapes and sizes that are encoded differently:
// TensorFlow and Tryst copy content of up to 1024 bytes behind the header, and send longer content
// by reference.
func smallValues(t testing.TB) []value {
	t.Helper()
	var vs []value
	for _, d := range plainTypes(t) {
		vs = append(vs, random(d.String(), d, 3, 5))
	}
	return append(vs,
		random("scalar", tensor.Float32),
		random("scalar bool", tensor.Bool),
		random("empty", tensor.Float32, 0),
		random("empty in the middle", tensor.Int64, 4, 0, 7),
		random("5-D", tensor.Float64, 2, 3, 4, 5, 6),
		random("20-D", tensor.Uint8, 1, 2, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2),
		random("1023 bytes", tensor.Uint8, 1023),
		random("1024 bytes", tensor.Uint8, 1024),
		random("1025 bytes", tensor.Uint8, 1025),
		random("1 MiB", tensor.Float32, 1<<18),
		text("string scalar", nil, "rendezvous"),
		text("strings", []int64{2, 3}, "a", "", "\x00\xff", "déjà vu", strings.Repeat("long ", 100), "z"),
		text("no strings", []int64{0}),
		text("empty string", nil, ""),
		text("large string", []int64{2}, strings.Repeat("0123456789abcdef", 1<<18), "after 4 MiB"),
	)
}

// largeValues returns values around the limits, except protobuf's.
func largeValues() []value {
	return []value{
		random("33 MiB", tensor.Float16, 33, 1<<19),
		random("64 MiB", tensor.Float32, 16, 1<<20),
	}
}
