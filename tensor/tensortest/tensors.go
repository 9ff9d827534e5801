package tensortest

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// AllDTypes returns every type that a tensor can have, in numeric order.
func AllDTypes() []tensor.DType {
	var all []tensor.DType
	for d := tensor.Invalid + 1; d.Valid(); d++ {
		all = append(all, d)
	}
	return all
}

// PlainDTypes returns the types whose elements are plain memory.
func PlainDTypes() []tensor.DType {
	var plain []tensor.DType
	for _, d := range AllDTypes() {
		if d.Plain() {
			plain = append(plain, d)
		}
	}
	return plain
}

// Shape returns the shape with the given dimensions, or fails the test.
func Shape(t testing.TB, dims ...int64) tensor.Shape {
	t.Helper()
	s, err := tensor.NewShape(dims...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Tensor returns a tensor of the given dimensions on the heap, with random
// elements. The same type and dimensions have the same elements. The tensor is
// released when the test ends.
func Tensor(t testing.TB, dtype tensor.DType, dims ...int64) *tensor.Tensor {
	t.Helper()
	shape := Shape(t, dims...)
	h := fnv.New64a()
	h.Write([]byte(dtype.String() + shape.String()))
	x := Random(rand.New(rand.NewPCG(h.Sum64(), 0)), dtype, shape, tensor.Heap{})
	t.Cleanup(x.Release)
	return x
}

// Strings returns a vector of strings, released when the test ends.
func Strings(t testing.TB, elems ...string) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromStrings(tensor.Vector(len(elems)), elems)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	return x
}

// Random returns a tensor with random elements in memory from alloc; the caller
// owns the reference. Every bit pattern that the type allows may occur, including
// NaNs. Strings may be empty and have any byte. Random panics when dtype is not
// valid or alloc fails.
func Random(rng *rand.Rand, dtype tensor.DType, shape tensor.Shape, alloc tensor.Allocator) *tensor.Tensor {
	if dtype.Valid() && !dtype.Plain() {
		elems := make([]string, shape.Elements())
		for i := range elems {
			elems[i] = randomElement(rng, dtype)
		}
		return must(tensor.FromElements(dtype, shape, elems))
	}
	x := must(tensor.Allocate(alloc, dtype, shape))
	data := x.Bytes()
	fill(rng, data)
	limit(dtype, data)
	return x
}

func must(x *tensor.Tensor, err error) *tensor.Tensor {
	if err != nil {
		panic("tensortest: " + err.Error()) //nolint:forbidigo // a test's own mistake, and it ends there
	}
	return x
}

func fill(rng *rand.Rand, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, rng.Uint64())
	}
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// limit clears or extends the bits that a type does not use, so that all bytes are
// valid elements.
func limit(dtype tensor.DType, b []byte) {
	for i, v := range b {
		switch dtype {
		case tensor.Bool:
			b[i] = v & 1
		case tensor.Int4:
			b[i] = byte(int8(v) >> 4)
		case tensor.Int2:
			b[i] = byte(int8(v) >> 6)
		case tensor.Uint4, tensor.Float4E2M1FN:
			b[i] = v >> 4
		case tensor.Uint2:
			b[i] = v >> 6
		default:
			return
		}
	}
}

// randomElement returns a string or, for Resource and Variant, a serialised
// message with field 1, a string in both messages (device, type name).
func randomElement(rng *rand.Rand, dtype tensor.DType) string {
	if dtype == tensor.String {
		b := make([]byte, rng.IntN(20))
		fill(rng, b)
		return string(b)
	}
	name := strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(100))
	if name == "" {
		return "" // proto3 leaves out an empty field
	}
	return string([]byte{0x0a, byte(len(name))}) + name
}
