package tensor_test

import (
	"testing"

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
