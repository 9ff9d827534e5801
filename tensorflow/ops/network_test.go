package ops

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestCrossEntropyRefusesShapes with TensorFlow's texts. The shapes that it broadcasts are among the
// golden values.
func TestCrossEntropyRefusesShapes(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct {
		logits, labels []int64
		n              [2]int // elements of both
		text           string
	}{
		{[]int64{3, 4}, []int64{2, 4}, [2]int{12, 8}, "logits and labels must be broadcastable: logits_size=[3,4] labels_size=[2,4]"},
		{[]int64{2, 1, 2}, []int64{2, 1, 2}, [2]int{4, 4}, "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"},
		{[]int64{4}, []int64{4}, [2]int{4, 4}, "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"},
	} {
		x, y := in(tc.logits, make([]float32, tc.n[0])...), in(tc.labels, make([]float32, tc.n[1])...)
		err := b.fails("SoftmaxCrossEntropyWithLogits", attrs{"T": tensor.Float32}, x, y)
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v and %v: %v", tc.logits, tc.labels, err)
		}
	}
}
