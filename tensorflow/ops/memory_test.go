package ops

import (
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestWorkOfKernelsIsCounted: what a kernel needs beside its outputs is counted before it is made, and so are
// outputs of strings.
func TestWorkOfKernelsIsCounted(t *testing.T) {
	const n = 1 << 17
	column, err := tensor.NewShape(n, 1)
	if err != nil {
		t.Fatal(err)
	}
	small, err := tensor.Allocate(tensor.Heap{}, tensor.Int8, column)
	if err != nil {
		t.Fatal(err)
	}
	int8s := graph.Value{Tensor: small}
	ints := vec(make([]int32, n)...)
	zero := vec[int32](0)
	axis, err := tensor.FromSlice(tensor.Shape{}, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	first, err := tensor.FromSlice(tensor.Shape{}, []int32{0})
	if err != nil {
		t.Fatal(err)
	}
	firstAxis, err := tensor.FromSlice(tensor.Vector(1), []int64{0})
	if err != nil {
		t.Fatal(err)
	}
	text, err := tensor.FromStrings(tensor.Vector(1), []string{"a string"})
	if err != nil {
		t.Fatal(err)
	}
	texts := graph.Value{Tensor: text}
	for name, c := range map[string]struct {
		op     string
		attrs  attrs
		inputs []graph.Value
	}{
		"the place of the largest": {"ArgMax", attrs{"output_type": tensor.Int32}, []graph.Value{int8s, {Tensor: axis}}},
		"different elements":       {"Unique", nil, []graph.Value{ints}},
		"different rows":           {"UniqueV2", nil, []graph.Value{{Tensor: small}, {Tensor: firstAxis}}},
		"strings":                  {"GatherV2", nil, []graph.Value{texts, ints, {Tensor: first}}},
		"indices":                  {"GatherV2", nil, []graph.Value{zero, ints, {Tensor: first}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for _, test := range []struct {
				limit int64
				want  status.Code
			}{{n * 6, status.ResourceExhausted}, {64 << 20, status.OK}} {
				b.step.Allocator = tensor.NewPool(tensor.PoolOptions{Limit: test.limit})
				outs, err := b.try(b.node("node", c.op, c.attrs, c.inputs...), c.inputs...)
				if status.CodeOf(err) != test.want {
					t.Errorf("with %d bytes: %v, want %v", test.limit, err, test.want)
				}
				for _, v := range outs {
					v.Release()
				}
			}
		})
	}
}
