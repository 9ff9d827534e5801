package ops

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// elements16 is how many floats 16 MiB have.
const elements16 = 4 << 20

func (b *bench) zeros(n int64) graph.Value {
	t, err := tensor.Make[float32](tensor.Heap{}, n)
	if err != nil {
		b.t.Fatal(err)
	}
	return graph.Value{Tensor: t}
}

// benchmarkNode runs one node over and over, without an executor.
func benchmarkNode(tb *testing.B, b *bench, op string, bytes int64, inputs ...graph.Value) {
	b.step.Allocator = tensor.NewPool(tensor.PoolOptions{})
	n := b.node("n", op, nil, inputs...)
	k, err := b.state.NewKernel(n)
	if err != nil {
		tb.Fatal(err)
	}
	tb.SetBytes(bytes)
	tb.ReportAllocs()
	for tb.Loop() {
		outs, err := b.compute(k, n, inputs...)
		if err != nil {
			tb.Fatal(err)
		}
		for _, v := range outs {
			v.Release()
		}
	}
}

func BenchmarkAddV2(tb *testing.B) {
	for name, n := range map[string]int64{"4B": 1, "16MiB": elements16} {
		tb.Run(name, func(tb *testing.B) {
			b := newBench(tb)
			benchmarkNode(tb, b, "AddV2", 4*n, b.zeros(n), b.zeros(n))
		})
	}
}

func BenchmarkApplyAdam(tb *testing.B) {
	b := newBench(tb)
	v, m, s := b.variable("w", b.zeros(elements16)), b.variable("m", b.zeros(elements16)), b.variable("v", b.zeros(elements16))
	benchmarkNode(tb, b, "ApplyAdam", 4*elements16, v, m, s, scalar[float32](0.9), scalar[float32](0.999), scalar[float32](0.1),
		scalar[float32](0.9), scalar[float32](0.999), scalar[float32](1e-8), b.zeros(elements16))
}

func BenchmarkAssign(tb *testing.B) {
	b := newBench(tb)
	benchmarkNode(tb, b, "Assign", 4*elements16, b.variable("w", b.zeros(elements16)), b.zeros(elements16))
}

func BenchmarkMatMul(tb *testing.B) {
	b := newBench(tb)
	x := b.run("Reshape", nil, b.zeros(512*512), vec[int32](512, 512))[0]
	benchmarkNode(tb, b, "MatMul", 2*512*512*512, x, x)
}
