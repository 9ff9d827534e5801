package ops

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestWrongPartsHaveTensorFlowsTexts of Unique and its kin, and of the ops of strings.
func TestWrongPartsHaveTensorFlowsTexts(t *testing.T) {
	b := newBench(t)
	matrix, list := in([]int64{1, 2}, int32(1), 2), text([]int64{1}, "a b")
	for _, c := range []struct {
		op     string
		inputs []graph.Value
		want   string
	}{
		{"Unique", []graph.Value{matrix}, "unique expects a 1D vector."},
		{"UniqueV2", []graph.Value{matrix, vec[int64]()}, "unique expects a 1D vector."},
		{"UniqueV2", []graph.Value{matrix, scalar[int64](0)}, "axis expects a 1D vector."},
		{"UniqueV2", []graph.Value{matrix, vec[int64](0, 1)}, "axis does not support input tensors larger than 1 elements"},
		{"UniqueV2", []graph.Value{matrix, vec[int64](2)}, "axis has to be between [0, 2)"},
		{"UniqueWithCountsV2", []graph.Value{matrix, vec[int64](-3)}, "axis has to be between [0, 2)"},
		{"UniqueV2", []graph.Value{scalar[int32](1), vec[int64](0)}, "axis has to be between [0, 0)"},
		{"StringSplit", []graph.Value{text(nil, "a"), text(nil, " ")}, "input must be a vector, got shape: []"},
		{"StringSplit", []graph.Value{list, list}, "delimiter must be a scalar, got shape: [1]"},
		{"StringSplitV2", []graph.Value{text(nil, "a"), text(nil, " ")}, "input must be a vector, got shape: []"},
		{"StringSplitV2", []graph.Value{list, list}, "sep must be a scalar, got shape: [1]"},
	} {
		if err := b.fails(c.op, nil, c.inputs...); status.CodeOf(err) != status.InvalidArgument || status.From(err).Message() != c.want {
			t.Errorf("%s: got %v, want %s", c.op, err, c.want)
		}
	}
}

// TestPartsWithoutElementsTakeNoTime: one extent is huge, and another zero.
func TestPartsWithoutElementsTakeNoTime(t *testing.T) {
	b := newBench(t)
	shape, err := tensor.NewShape(1<<40, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := tensor.Allocate(tensor.Heap{}, tensor.Float32, shape)
	if err != nil {
		t.Fatal(err)
	}
	outs := b.run("UniqueWithCountsV2", nil, graph.Value{Tensor: empty}, vec[int64](1))
	b.want(outs[2], "int32[1]: 3")
}

// TestPartsThatNoMemoryHoldsAreRefused: what they take would overflow.
func TestPartsThatNoMemoryHoldsAreRefused(t *testing.T) {
	b := newBench(t)
	b.pooled(1 << 20)
	for _, n := range []int64{1 << 40, 1 << 48, 1<<48 + 1, 1 << 62} {
		shape, err := tensor.NewShape(n, 0)
		if err != nil {
			t.Fatal(err)
		}
		empty, err := tensor.Allocate(tensor.Heap{}, tensor.Float32, shape)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.fails("UniqueV2", nil, graph.Value{Tensor: empty}, vec[int64](0)); status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%d: got %v", n, err)
		}
	}
}

// A short text may have many parts, each of which takes more than its bytes.
func TestTheNumberOfPartsOfAStringIsBounded(t *testing.T) {
	b := newBench(t)
	many := text([]int64{1}, strings.Repeat(",", maxStrings))
	err := b.fails("StringSplitV2", nil, many, text(nil, ","))
	if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "4194305 parts") {
		t.Errorf("got %v", err)
	}
	b.pooled(1 << 20)
	some := text([]int64{1}, strings.Repeat(",", 1<<16))
	if err := b.fails("StringSplit", attrs{"skip_empty": false}, some, text(nil, ",")); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}
