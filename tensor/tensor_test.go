package tensor

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestNewTakesTheReference(t *testing.T) {
	freed := false
	b := NewBuffer(make([]byte, 20), func() { freed = true })
	// Refused: the reference stays the caller's.
	if _, err := New(Float32, Vector(6), b); status.CodeOf(err) != status.InvalidArgument ||
		!strings.Contains(err.Error(), "takes 24 bytes; the buffer has 20") {
		t.Fatalf("a buffer that is too small: %v", err)
	}
	if _, err := New(String, Vector(1), b); status.CodeOf(err) != status.InvalidArgument {
		t.Fatalf("strings over memory: %v", err)
	}
	if freed {
		t.Fatal("a refused buffer was released")
	}
	x := must[*Tensor](t)(New(Float32, Vector(4), b))
	if len(x.Bytes()) != 16 || cap(x.Bytes()) != 16 || x.Size() != 16 || x.Buffer() != b {
		t.Errorf("%d bytes, capacity %d, size %d", len(x.Bytes()), cap(x.Bytes()), x.Size())
	}
	if x.Retain() != x {
		t.Error("Retain returns another tensor")
	}
	x.Release()
	if freed {
		t.Error("freed with one reference left")
	}
	x.Release()
	if !freed {
		t.Error("not freed")
	}
	mustPanic(t, "Bytes of a released Buffer", func() { x.Bytes() })
	mustPanic(t, "Elements of a released Buffer", func() { x.Elements() })
	mustPanic(t, "Release of a released Buffer", func() { x.Release() })
}

func TestFromBytesWantsTheLength(t *testing.T) {
	for _, n := range []int{0, 7, 9} {
		if _, err := FromBytes(Int32, Vector(2), make([]byte, n)); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%d bytes for int32[2]: %v", n, err)
		}
	}
	x := must[*Tensor](t)(FromBytes(Int32, Vector(0), nil))
	if len(x.Bytes()) != 0 || x.String() != "int32[0]" {
		t.Errorf("%v with %d bytes", x, len(x.Bytes()))
	}
	x.Release()
}

func TestElements(t *testing.T) {
	x := must[*Tensor](t)(FromStrings(Vector(3), []string{"a", "", "bcd"}))
	if x.DType() != String || x.Size() != 4 || x.Bytes() != nil || len(x.Elements()) != 3 {
		t.Errorf("%v: size %d, bytes %v, elements %q", x, x.Size(), x.Bytes(), x.Elements())
	}
	c := must[*Tensor](t)(x.Clone(Heap{}))
	c.Elements()[0] = "z" // the copy is its owner's
	if x.Elements()[0] != "a" || Equal(x, c) {
		t.Error("Clone shares the elements")
	}
	x.Release()
	c.Release()

	empty := must[*Tensor](t)(FromStrings(Vector(0), nil))
	if empty.Size() != 0 || empty.Bytes() != nil {
		t.Errorf("no strings: size %d, bytes %v", empty.Size(), empty.Bytes())
	}
	empty.Release()

	for dtype, n := range map[DType]int{Float32: 1, Invalid: 1, String: 2, Resource: 0, String + 100: 1} {
		if _, err := FromElements(dtype, Vector(1), make([]string, n)); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%v[1] of %d elements: %v", dtype, n, err)
		}
	}
	for _, dtype := range []DType{Resource, Variant} {
		must[*Tensor](t)(FromElements(dtype, Vector(1), []string{"x"})).Release()
	}
}

// TestNamed: the header is new, the reference is the same.
func TestNamed(t *testing.T) {
	freed := 0
	x := must[*Tensor](t)(New(Int8, Vector(1), NewBuffer(make([]byte, 1), func() { freed++ })))
	y := x.Named("w")
	if x.Name() != "" || y.Name() != "w" || y.Buffer() != x.Buffer() || !y.Buffer().Unique() {
		t.Errorf("names %q and %q, unique %v", x.Name(), y.Name(), y.Buffer().Unique())
	}
	c := must[*Tensor](t)(y.Clone(Heap{}))
	if c.Name() != "w" || !Equal(c, x) {
		t.Errorf("the clone is called %q, equal %v", c.Name(), Equal(c, x))
	}
	c.Release()
	y.Release()
	if freed != 1 {
		t.Errorf("freed %d times", freed)
	}
	mustPanic(t, "released", func() { x.Bytes() })
}

func TestCloneIsACopy(t *testing.T) {
	x := must[*Tensor](t)(FromSlice(Vector(3), []int32{1, 2, 3}))
	defer x.Release()
	c := must[*Tensor](t)(x.Clone(Heap{}))
	defer c.Release()
	if !Equal(x, c) || c.String() != "int32[3]" {
		t.Errorf("clone %v differs", c)
	}
	c.Bytes()[0] = 9
	if Equal(x, c) {
		t.Error("Clone shares the memory")
	}
	p := NewPool(PoolOptions{Limit: 64})
	big := must[*Tensor](t)(FromSlice(Vector(100), make([]int32, 100)))
	defer big.Release()
	if _, err := big.Clone(p); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("a clone beyond the allocator's limit: %v", err)
	}
}

func TestEqual(t *testing.T) {
	tensors := []*Tensor{
		must[*Tensor](t)(FromSlice(Vector(2), []int32{1, 2})),
		must[*Tensor](t)(FromSlice(Vector(2), []int32{1, 3})),
		must[*Tensor](t)(FromSlice(Vector(2), []uint32{1, 2})),
		must[*Tensor](t)(FromSlice(Vector(0), []int32{})),
		must[*Tensor](t)(FromStrings(Vector(2), []string{"1", "2"})),
		must[*Tensor](t)(FromStrings(Vector(2), []string{"1", ""})),
		must[*Tensor](t)(FromElements(Variant, Vector(2), []string{"1", "2"})),
	}
	row, err := NewShape(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	tensors = append(tensors, must[*Tensor](t)(FromSlice(row, []int32{1, 2})))
	for i, a := range tensors {
		for j, b := range tensors {
			if Equal(a, b) != (i == j) {
				t.Errorf("Equal(%d %v, %d %v) = %v", i, a, j, b, Equal(a, b))
			}
		}
	}
	for _, x := range tensors {
		x.Release()
	}
}

func TestAllocateRefuses(t *testing.T) {
	for _, dtype := range []DType{Invalid, String, Resource, Variant, Float32 + 100, 77} {
		if _, err := Allocate(Heap{}, dtype, Vector(1)); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%v: %v", dtype, err)
		}
	}
	huge, err := NewShape(1 << 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Allocate(Heap{}, Uint8, huge); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("2^60 bytes: %v", err)
	}
	if _, err := Allocate(Heap{}, Float64, huge); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("2^63 bytes: %v", err)
	}
}
