package ops

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// badNode is a node that TensorFlow refuses, with its text.
type badNode struct {
	op, text string
	inputs   []graph.Value
}

func refuseNodes(t *testing.T, nodes []badNode) {
	t.Helper()
	b := newBench(t)
	for _, n := range nodes {
		_, err := b.try(b.node("n", n.op, nil, n.inputs...), n.inputs...)
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), n.text) {
			t.Errorf("%s: got %v, want %s", n.op, err, n.text)
		}
	}
}

func TestSegmentsAndSparseProductsRefuseWhatDoesNotFitWithTensorFlowsTexts(t *testing.T) {
	g, two, four := twoColumns(2), vec[int32](0, 1), scalar[int32](4)
	at, v, s, b := in([]int64{2, 2}, int64(0), 0, 1, 2), vec[float32](1, 2), vec[int64](2, 3), twoColumns(3)
	refuseNodes(t, []badNode{
		{"SparseSegmentMeanGrad", "Index 5 out of range [0, 4).", []graph.Value{g, vec[int32](0, 5), two, four}},
		{"SparseSegmentMeanGrad", "Invalid number of segments", []graph.Value{g, two, vec[int32](0, 2), four}},
		{"SparseSegmentMeanGrad", "Segment id -1 out of range [0, 2).", []graph.Value{g, two, vec[int32](-1, 1), four}},
		{"SparseSegmentMeanGrad", "segment_ids and indices should have same size.", []graph.Value{g, vec[int32](0), two, four}},
		{"SparseSegmentMeanGrad", "Expected a non-negative size, got -1", []graph.Value{g, two, two, scalar[int32](-1)}},
		{"SparseSegmentMeanWithNumSegments", "segment ids must be < num_segments", []graph.Value{g, two, vec[int32](0, 4), scalar[int32](2)}},
		{"SparseSegmentMeanWithNumSegments", "segment ids must be >= 0", []graph.Value{g, two, two, scalar[int32](-2)}},
		{"SparseTensorDenseMatMul", "k (5) from index[1,1] out of bounds (>=3)", []graph.Value{in([]int64{2, 2}, int64(0), 0, 1, 5), v, s, b}},
		{"SparseTensorDenseMatMul", "m (7) from index[1,0] out of bounds (>=2)", []graph.Value{in([]int64{2, 2}, int64(0), 0, 7, 1), v, s, b}},
		{"SparseTensorDenseMatMul", "Tensor 'a_shape' must have 2 elements", []graph.Value{at, v, vec[int64](2), b}},
		{"SparseTensorDenseMatMul", "inner dimension does not match: 3 vs. 2.", []graph.Value{at, v, s, g}},
		{"SparseTensorDenseMatMul", "Tensor 'b' is not a matrix", []graph.Value{at, v, s, v}},
		{"SparseTensorDenseMatMul", "does not match number of entries in a_values", []graph.Value{at, vec[float32](1), s, b}},
		{"SparseTensorDenseMatMul", "must not have negative dimensions", []graph.Value{at, v, vec[int64](-2, 3), b}},
	})
}

func TestSegmentsOfAHugeNumberAreRefused(t *testing.T) {
	b := newBench(t)
	b.step.Allocator = tensor.NewPool(tensor.PoolOptions{Limit: 1 << 20})
	g, two, huge := twoColumns(2), vec[int32](0, 1), scalar[int32](1<<31-1)
	for _, op := range []string{"SparseSegmentSumGrad", "SparseSegmentSumWithNumSegments"} {
		if err := b.fails(op, nil, g, two, two, huge); status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%s: got %v", op, err)
		}
	}
}
