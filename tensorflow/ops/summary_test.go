package ops

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func TestSummariesRefuseWhatDoesNotFitWithTensorFlowsTexts(t *testing.T) {
	b := newBench(t)
	one := b.run("ScalarSummary", nil, text(nil, "a"), scalar[float32](1))[0]
	whole := one.Tensor.Elements()[0]
	refuseNodes(t, []badNode{
		{"ScalarSummary", "tags and values are not the same shape: [2] != [1]", []graph.Value{text([]int64{2}, "a", "b"), vec[float32](1)}},
		{"ScalarSummary", "tags and values are not the same shape: [1] != [2] (tag 'a')", []graph.Value{text([]int64{1}, "a"), vec[float32](1, 2)}},
		{"MergeSummary", "Duplicate tag a found in summary inputs ", []graph.Value{one, one}},
		{"MergeSummary", "Could not parse one of the summary inputs", []graph.Value{one, text(nil, "xyz")}},
		{"MergeSummary", "Could not parse one of the summary inputs", []graph.Value{text(nil, "\x0a\x02\x0a\x05")}},
	})
	for n := range len(whole) { // no beginning of a message is one, and none is a panic
		_, err := b.try(b.node("n", "MergeSummary", nil, text(nil, whole[:n])), text(nil, whole[:n]))
		if n > 0 && (err == nil || !strings.Contains(err.Error(), "Could not parse")) {
			t.Errorf("%q: got %v", whole[:n], err)
		}
	}
}
