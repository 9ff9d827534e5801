package ops

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func TestScansRefuseWhatDoesNotFitWithTensorFlowsTexts(t *testing.T) {
	x := twoColumns(2)
	refuseNodes(t, []badNode{
		{"Cumsum", "ScanOp: Expected scan axis in the range [-2, 2), but got 3", []graph.Value{x, scalar[int32](3)}},
		{"Cumsum", "ScanOp: axis must be a scalar, not [2]", []graph.Value{x, vec[int32](1, 1)}},
		{"TopKV2", "input must have at least k columns. Had 2, needed 5", []graph.Value{x, scalar[int32](5)}},
		{"TopKV2", "Need k >= 0, got -5", []graph.Value{x, scalar[int32](-5)}},
		{"TopKV2", "input must be >= 1-D, got shape []", []graph.Value{scalar[float32](1), scalar[int32](0)}},
		{"TopKV2", "k must be scalar, got shape [2]", []graph.Value{x, vec[int32](1, 2)}},
	})
}
