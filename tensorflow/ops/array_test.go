package ops

import (
	"math"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestRangeOfIntegersIsExact: the size is not computed in floats, which lack the low bits of an int64.
func TestRangeOfIntegersIsExact(t *testing.T) {
	const far = int64(1) << 60
	b := newBench(t)
	for name, v := range map[string][4]graph.Value{
		"far up":        {scalar(far), scalar(far + 3), scalar[int64](1), vec(far, far+1, far+2)},
		"far down":      {scalar(-far), scalar(-far - 3), scalar[int64](-2), vec(-far, -far-2)},
		"whole int64":   {scalar[int64](math.MinInt64), scalar[int64](math.MaxInt64), scalar(far * 4), vec[int64](math.MinInt64, -far*4, 0, far*4)},
		"smallest step": {scalar[int64](0), scalar[int64](math.MinInt64), scalar[int64](math.MinInt64), vec[int64](0)},
		"whole int32":   {scalar[int32](math.MinInt32), scalar[int32](math.MaxInt32), scalar[int32](math.MaxInt32), vec[int32](math.MinInt32, -1, math.MaxInt32-1)},
		"empty":         {scalar[int32](3), scalar[int32](3), scalar[int32](-1), vec[int32]()},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.want(b.run("Range", nil, v[0], v[1], v[2])[0], show(v[3]))
		})
	}
}

// TestRangeOfFloatsHasTheSizeOfItsType: in float32 (0.3−0)/0.1 is 3, in float64 it is more.
func TestRangeOfFloatsHasTheSizeOfItsType(t *testing.T) {
	b := newBench(t)
	step := float32(0.1)
	b.want(b.run("Range", nil, scalar[float32](0), scalar[float32](0.3), scalar(step))[0], show(vec(0, step, step+step)))
	b.want(b.run("Range", nil, scalar[float32](0), scalar[float32](-0.3), scalar(-step))[0], show(vec(0, -step, -step-step)))
	b.want(b.run("Range", nil, scalar[float64](1), scalar[float64](2), scalar(0.6))[0], show(vec(1, 1.6)))
}

// TestRangeRefusesWhatHasNoSize: steps of 0 or NaN, and more elements than can be counted.
func TestRangeRefusesWhatHasNoSize(t *testing.T) {
	b := newBench(t)
	for want, v := range map[string][3]graph.Value{
		"Requires delta != 0: NaN":           {scalar(1.0), scalar(2.0), scalar(math.NaN())},
		"Requires delta != 0: 0":             {scalar[int64](1), scalar[int64](2), scalar[int64](0)},
		"Requires ((limit - start) / delta)": {scalar[int64](math.MinInt64), scalar[int64](math.MaxInt64), scalar[int64](1)},
		"/ delta) <= 9223372036854775807":    {scalar(0.0), scalar(math.Inf(1)), scalar(1.0)},
	} {
		err := b.fails("Range", nil, v[0], v[1], v[2])
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
