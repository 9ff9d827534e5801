// This file looks at addresses: nothing else tells where memory begins.

package tensor

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/tryst-rdma/tryst/status"
)

func testView[T Element](t *testing.T, dtype DType, values []T, little []byte) {
	t.Helper()
	t.Run(dtype.String(), func(t *testing.T) {
		if got := TypeOf[T](); got != dtype {
			t.Fatalf("TypeOf is %v", got)
		}
		x, err := FromSlice(Vector(len(values)), values)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		if x.DType() != dtype || !bytes.Equal(x.Bytes(), little) {
			t.Errorf("%v with bytes % x, want % x", x, x.Bytes(), little)
		}
		got, err := Values[T](x)
		if err != nil || !slices.Equal(got, values) {
			t.Errorf("got %v, %v; want %v", got, err, values)
		}
		if &got[0] != &values[0] {
			t.Error("the values were copied")
		}
		if _, err := FromSlice(Vector(len(values)+1), values); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("a shape with more elements than values: %v", err)
		}
	})
}

func TestValuesAndFromSlice(t *testing.T) {
	testView(t, Bool, []bool{true, false}, []byte{1, 0})
	testView(t, Int8, []int8{-1, 2}, []byte{0xff, 2})
	testView(t, Uint8, []uint8{255, 2}, []byte{0xff, 2})
	testView(t, Int16, []int16{-2, 0x102}, []byte{0xfe, 0xff, 2, 1})
	testView(t, Uint16, []uint16{0x102}, []byte{2, 1})
	testView(t, Int32, []int32{-2, 0x01020304}, []byte{0xfe, 0xff, 0xff, 0xff, 4, 3, 2, 1})
	testView(t, Uint32, []uint32{0x01020304}, []byte{4, 3, 2, 1})
	testView(t, Int64, []int64{0x0102030405060708}, []byte{8, 7, 6, 5, 4, 3, 2, 1})
	testView(t, Uint64, []uint64{0x0102030405060708}, []byte{8, 7, 6, 5, 4, 3, 2, 1})
	testView(t, Float32, []float32{1}, []byte{0, 0, 0x80, 0x3f})
	testView(t, Float64, []float64{1}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f})
	testView(t, Complex64, []complex64{1 + 2i}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40})
	testView(t, Complex128, []complex128{1i}, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f})
	testView(t, Float16, []Float16Bits{0x3c00}, []byte{0, 0x3c})
	testView(t, BFloat16, []BFloat16Bits{0x3f80}, []byte{0x80, 0x3f})
}

// TestValuesHeldBy: types that Go lacks are held by an integer of their size,
// and no other Go type is accepted.
func TestValuesHeldBy(t *testing.T) {
	for dtype := Invalid + 1; dtype.Valid(); dtype++ {
		if !dtype.Plain() {
			continue
		}
		x, err := Allocate(Heap{}, dtype, Vector(2))
		if err != nil {
			t.Fatal(err)
		}
		var held []string
		try := func(name string, n int, err error) {
			switch {
			case err == nil && n == 2:
				held = append(held, name)
			case status.CodeOf(err) != status.InvalidArgument:
				t.Errorf("%v as %s: %d values, %v", dtype, name, n, err)
			}
		}
		tryAll(x, try)
		want := map[DType]string{
			Float32: "float32", Float64: "float64", Int32: "int32", Uint8: "uint8", Int16: "int16", Int8: "int8",
			Complex64: "complex64", Int64: "int64", Bool: "bool", QInt8: "int8", QUint8: "uint8", QInt32: "int32",
			BFloat16: "tensor.BFloat16Bits", QInt16: "int16", QUint16: "uint16", Uint16: "uint16", Complex128: "complex128",
			Float16: "tensor.Float16Bits", Uint32: "uint32", Uint64: "uint64", Float8E5M2: "uint8", Float8E4M3FN: "uint8",
			Float8E4M3FNUZ: "uint8", Float8E4M3B11: "uint8", Float8E5M2FNUZ: "uint8", Int4: "int8", Uint4: "uint8",
			Int2: "int8", Uint2: "uint8", Float4E2M1FN: "uint8",
		}[dtype]
		if len(held) != 1 || held[0] != want {
			t.Errorf("%v is held by %v, want %s", dtype, held, want)
		}
		x.Release()
	}
}

func tryAll(x *Tensor, try func(string, int, error)) {
	tryOne[bool](x, try)
	tryOne[int8](x, try)
	tryOne[int16](x, try)
	tryOne[int32](x, try)
	tryOne[int64](x, try)
	tryOne[uint8](x, try)
	tryOne[uint16](x, try)
	tryOne[uint32](x, try)
	tryOne[uint64](x, try)
	tryOne[float32](x, try)
	tryOne[float64](x, try)
	tryOne[complex64](x, try)
	tryOne[complex128](x, try)
	tryOne[Float16Bits](x, try)
	tryOne[BFloat16Bits](x, try)
}

func tryOne[T Element](x *Tensor, try func(string, int, error)) {
	v, err := Values[T](x)
	var zero T
	try(fmt.Sprintf("%T", zero), len(v), err)
}

func TestValuesOfStrings(t *testing.T) {
	x, err := FromStrings(Vector(1), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if _, err := Values[uint8](x); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("strings as bytes: %v", err)
	}
}

func TestValuesOfNothing(t *testing.T) {
	x, err := FromSlice[float32](Vector(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if v, err := Values[float32](x); err != nil || len(v) != 0 {
		t.Errorf("got %v, %v", v, err)
	}
}

// TestValuesRefusesOddBools: a bool that is neither 0 nor 1 has no meaning in
// Go, and a peer can send it.
func TestValuesRefusesOddBools(t *testing.T) {
	for _, odd := range []byte{2, 0x80, 0xff} {
		x, err := FromBytes(Bool, Vector(3), []byte{0, 1, odd})
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("InvalidArgument: element 2 of the bool tensor is %d, neither 0 nor 1", odd)
		if v, err := Values[bool](x); err == nil || err.Error() != want {
			t.Errorf("got %v, %v; want %q", v, err, want)
		}
		x.Release()
	}
}

func TestValuesOfUnalignedMemory(t *testing.T) {
	b := alignedBytes(17)
	x, err := FromBytes(Float32, Vector(4), b[1:])
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if _, err := Values[float32](x); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("unaligned memory: %v", err)
	}
	c, err := x.Clone(Heap{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if _, err := Values[float32](c); err != nil {
		t.Errorf("a clone: %v", err)
	}
}

// aligned reports whether b begins where the memory of an Allocator does.
func aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Alignment == 0
}

// TestAlignedBytes also holds the runtime to what pageAligned takes for
// granted: that it aligns blocks from that size on by itself.
func TestAlignedBytes(t *testing.T) {
	// 17 to 129 lie in blocks of the runtime that are not aligned by themselves.
	sizes := []int{0, 1, 17, 33, 49, 81, 97, 113, 129, 63, 64, 65, 1000, 4096, 32 << 10, pageAligned - 1, pageAligned, pageAligned + 1, 100_000, 1 << 20, 1<<20 + 1}
	var keep [][]byte // so that the blocks lie at different addresses
	for range 50 {
		for _, n := range sizes {
			b := alignedBytes(n)
			keep = append(keep, b)
			if len(b) != n || cap(b) != n {
				t.Fatalf("%d bytes: length %d, capacity %d", n, len(b), cap(b))
			}
			if n > 0 && !aligned(b) {
				t.Fatalf("%d bytes begin at %p", n, &b[0])
			}
		}
		if len(keep) > 200 {
			keep = nil
		}
	}
}

func TestNaNsKeepTheirBits(t *testing.T) {
	quiet := math.Float32frombits(0x7fc12345)
	x, err := FromSlice(Shape{}, []float32{quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	y, err := x.Clone(Heap{})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Release()
	if !Equal(x, y) {
		t.Error("a NaN differs from its copy")
	}
}
