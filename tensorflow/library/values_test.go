//go:build interop

package library

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// echo is a function that gives a value back as TensorFlow has it. Reshape shares the memory.
func echo(t testing.TB, d tensor.DType) *program {
	s, st := session(t)
	p := echoes(t, s, d).must(st)
	t.Cleanup(p.close)
	return p
}

func echoes(t testing.TB, s *Set, d tensor.DType) *builder {
	return newBuilder(t, s).recv("x", d).recv("shape", tensor.Int64).
		add("same", "Reshape", "x shape", "T", d, "Tshape", tensor.Int64).send("out", "same")
}

func (p *program) echo(t testing.TB, x *tensor.Tensor, dims ...int64) *tensor.Tensor {
	t.Helper()
	shape, err := tensor.FromSlice(tensor.Vector(len(dims)), dims)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x, "shape": shape})
	if err != nil {
		t.Fatal(err)
	}
	return out["out"]
}

// TestEveryType: values of each type pass into TensorFlow and back, none, one and many.
func TestEveryType(t *testing.T) {
	for d := tensor.Float32; d.Valid(); d++ {
		if !d.Plain() {
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			s, st := session(t)
			p := echoes(t, s, d).must(st)
			defer p.close()
			for _, n := range []int64{0, 1, 7, 5000} {
				x, err := tensor.Make[uint8](tensor.Heap{}, n*int64(d.Size()))
				if err != nil {
					t.Fatal(err)
				}
				for i := range x.Bytes() {
					x.Bytes()[i] = byte(i) & 1
				}
				x, err = tensor.New(d, tensor.Vector(int(n)), x.Buffer())
				if err != nil {
					t.Fatal(err)
				}
				shape, err := tensor.FromSlice(tensor.Vector(2), []int64{n, 1})
				if err != nil {
					t.Fatal(err)
				}
				out, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x, "shape": shape})
				if err != nil && strings.Contains(err.Error(), "invalid DataType") {
					t.Logf("TensorFlow %s has no type %v", s.Version(), d)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				got := out["out"]
				if got.DType() != d || !bytes.Equal(got.Bytes(), x.Bytes()) || got.Shape().String() != fmt.Sprintf("[%d,1]", n) {
					t.Errorf("%v came back as %v with other bytes", x, got)
				}
				got.Release()
			}
		})
	}
}

// TestStrings: empty, short, long and binary ones, and the limit where a TF_TString goes to the heap.
func TestStrings(t *testing.T) {
	p := echo(t, tensor.String)
	elems := []string{"", "a", "\x00\xff\x00", strings.Repeat("x", 22), strings.Repeat("y", 23), strings.Repeat("z\x00", 1<<20)}
	x, err := tensor.FromStrings(tensor.Vector(len(elems)), elems)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got := p.echo(t, x, int64(len(elems)))
		if !tensor.Equal(got, x) {
			t.Error("strings came back changed")
		}
		got.Release()
	}
	none, err := tensor.FromStrings(tensor.Vector(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.echo(t, none, 0, 5).Release()
	if n := lent(t); n != 0 {
		t.Errorf("the library still has %d arrays of strings", n)
	}
}

// TestLending: memory of a pool that is not on the Go heap is not copied, and goes back to the pool
// when TensorFlow has given it back and not before. Memory of the Go heap is copied.
func TestLending(t *testing.T) {
	p := echo(t, tensor.Float32)
	pool := tensor.NewPool(tensor.PoolOptions{})
	const n = 1 << 20
	x, err := tensor.Make[float32](pool, n)
	if err != nil {
		t.Fatal(err)
	}
	if !x.Buffer().OffHeap() {
		t.Log("in this build the pool's memory is on the Go heap, and is copied")
		x.Release()
		return
	}
	out := p.echo(t, x, n)
	x.Release()
	// The result shares the memory, as Reshape's does, so TensorFlow still has it.
	if lent(t) != 1 || pool.Stats().Buffers != 1 {
		t.Errorf("%d blocks are lent, %d buffers of the pool are in use", lent(t), pool.Stats().Buffers)
	}
	again := p.echo(t, out, n)
	out.Release()
	if pool.Stats().Buffers != 1 {
		t.Error("a value that came from TensorFlow was copied on its way back")
	}
	again.Release()
	if lent(t) != 0 || pool.Stats().Buffers != 0 {
		t.Errorf("at the end %d blocks are lent, %d buffers of the pool are in use", lent(t), pool.Stats().Buffers)
	}

	heap, err := tensor.FromSlice(tensor.Vector(n), make([]float32, n))
	if err != nil {
		t.Fatal(err)
	}
	got := p.echo(t, heap, n)
	if lent(t) != 0 {
		t.Error("memory of the Go heap was lent")
	}
	if !heap.Buffer().Unique() {
		t.Error("the kernel has kept a tensor that it copied")
	}
	got.Release()
}

// TestLentMemoryOfAVariable: an assignment may keep the memory that it got. It is given back when the
// variable gets another value or the session ends.
func TestLentMemoryOfAVariable(t *testing.T) {
	s := tensorFlow(t)
	st, err := s.NewState()
	if err != nil {
		t.Fatal(err)
	}
	p := newBuilder(t, s).add("v", "VarHandleOp", "", "dtype", tensor.Float32, "shape", []int64{1 << 20}, "shared_name", "v").
		recv("x", tensor.Float32).add("a", "AssignVariableOp", "v x", "dtype", tensor.Float32).must(st)
	pool := tensor.NewPool(tensor.PoolOptions{})
	x, err := tensor.Make[float32](pool, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x}); err != nil {
		t.Fatal(err)
	}
	x.Release()
	p.close()
	st.Close()
	if n := pool.Stats().Buffers; n != 0 {
		t.Errorf("%d buffers are in use after the end of the session", n)
	}
}

// TestLimitCountsResults: a result in TensorFlow's memory counts against the limit of the step's
// allocator.
func TestLimitCountsResults(t *testing.T) {
	s, st := session(t)
	p := newBuilder(t, s).recv("x", tensor.Float32).add("two", "AddV2", "x x", "T", tensor.Float32).send("out", "two").must(st)
	defer p.close()
	p.allocator = tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20})
	x, err := tensor.FromSlice(tensor.Vector(1<<20), make([]float32, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.run(t.Context(), map[string]*tensor.Tensor{"x": x}); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("%v", err)
	}
}

// lent is how many blocks of memory the library has.
func lent(t testing.TB) int { return as[local](t, tensorFlow(t).engine).l.Lent() }
