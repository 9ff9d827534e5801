package tensor_test

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// wrapped passes the calls on to a pool, as the allocator of a program may.
type wrapped struct{ pool *tensor.Pool }

func (w wrapped) Allocate(n int) (*tensor.Buffer, error) { return w.pool.Allocate(n) }

func (w wrapped) AllocateBuffer(b *tensor.Buffer, n int) error { return w.pool.AllocateBuffer(b, n) }

// TestAnyAllocatorFillsTheHeader: a tensor of an allocator that is not a Pool, but fills
// headers as one, costs no more allocations.
func TestAnyAllocatorFillsTheHeader(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{})
	shape := tensor.Vector(8)
	count := func(a tensor.Allocator) float64 {
		return testing.AllocsPerRun(100, func() {
			x, err := tensor.Allocate(a, tensor.Uint8, shape)
			if err != nil {
				t.Fatal(err)
			}
			x.Release()
		})
	}
	count(pool) // the first block
	if own, other := count(pool), count(wrapped{pool}); other > own || own > 1 {
		t.Errorf("a tensor takes %v allocations from a pool and %v from an allocator over it, want 1 of both", own, other)
	}
}

// TestRetainUnique: only the holder of the only reference gets a second one.
func TestRetainUnique(t *testing.T) {
	b := tensor.NewBuffer(make([]byte, 8), nil)
	if !b.RetainUnique() {
		t.Fatal("the only reference is not unique")
	}
	if b.RetainUnique() {
		t.Error("a third reference")
	}
	b.Release()
	if !b.Unique() {
		t.Error("the second reference stays")
	}
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("RetainUnique of a released Buffer does not panic")
		}
	}()
	b.RetainUnique()
}

// TestInitOfABufferInUse: a header is filled once.
func TestInitOfABufferInUse(t *testing.T) {
	var b tensor.Buffer
	b.Init(make([]byte, 8), nil)
	defer b.Release()
	defer func() {
		if recover() == nil {
			t.Error("Init of a Buffer in use does not panic")
		}
	}()
	b.Init(nil, nil)
}

// TestSliceOfABuffer: a slice has references of its own, holds one of its buffer, and knows where
// it lies.
func TestSliceOfABuffer(t *testing.T) {
	released := false
	b := tensor.NewBuffer([]byte("0123456789"), func() { released = true })
	s, err := b.Slice(2, 6)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := s.Slice(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if root, off := inner.Root(); root != b || off != 3 || string(inner.Bytes()) != "34" || cap(inner.Bytes()) != 2 {
		t.Errorf("%q at %d", inner.Bytes(), off)
	}
	if root, off := b.Root(); root != b || off != 0 {
		t.Error("a buffer is a slice of another one")
	}
	if !inner.Unique() || s.Unique() || b.Unique() {
		t.Error("references are not counted for each slice")
	}
	for _, r := range [][2]int{{-1, 1}, {0, 11}, {11, 0}, {10, 1}, {0, -1}} {
		if _, err := b.Slice(r[0], r[1]); err == nil {
			t.Errorf("Slice(%d, %d) of 10 bytes", r[0], r[1])
		}
	}
	s.Release()
	b.Release()
	if released {
		t.Error("released while a slice lives")
	}
	inner.Release()
	if !released {
		t.Error("not released with the last slice")
	}
}

// TestMakeAllocatesByGoType: the type and the extents are those of the call.
func TestMakeAllocatesByGoType(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 1 << 10})
	matrix, err := tensor.Make[tensor.Float16Bits](pool, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer matrix.Release()
	scalar, err := tensor.Make[int64](pool)
	if err != nil {
		t.Fatal(err)
	}
	defer scalar.Release()
	if matrix.String() != "half[2,3]" || scalar.String() != "int64[]" || pool.Stats().Buffers != 2 {
		t.Errorf("%v and %v, %d buffers of the allocator", matrix, scalar, pool.Stats().Buffers)
	}
	if _, err := tensor.Make[byte](pool, 2, -1); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("a negative extent: %v", err)
	}
	if _, err := tensor.Make[byte](pool, 2<<10); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("beyond the limit: %v", err)
	}
}

// TestIndexIsAPartOfTheMemory: blocks of a cache have references of their own, hold the memory of
// all, and overlap no other.
func TestIndexIsAPartOfTheMemory(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{})
	cache, err := tensor.Make[uint16](pool, 3, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	all, err := tensor.Values[uint16](cache)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		block, err := cache.Index(i)
		if err != nil {
			t.Fatal(err)
		}
		if block.String() != "uint16[2,2]" || !block.Buffer().Unique() || &block.Bytes()[0] != &cache.Bytes()[8*i] {
			t.Errorf("block %d is %v", i, block)
		}
		values, err := tensor.Values[uint16](block)
		if err != nil {
			t.Fatal(err)
		}
		for j := range values {
			values[j] = uint16(i + 1)
		}
		defer block.Release()
	}
	if want := []uint16{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}; !slices.Equal(all, want) {
		t.Errorf("content %v, want %v", all, want)
	}
	scalar, err := tensor.Make[byte](pool)
	if err != nil {
		t.Fatal(err)
	}
	defer scalar.Release()
	words, err := tensor.FromStrings(tensor.Vector(1), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		t *tensor.Tensor
		i int64
	}{{cache, 3}, {cache, -1}, {scalar, 0}, {words, 0}} {
		if _, err := c.t.Index(c.i); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("Index(%d) of a %v: %v", c.i, c.t, err)
		}
	}
	cache.Release()
	if pool.Stats().Buffers == 0 {
		t.Error("the memory is free while blocks of it are held")
	}
}
