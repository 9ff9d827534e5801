package ops

import (
	"math"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestMeanOfIntegersIsSummedIn64Bits: neither the sum nor the count of the elements need fit their type.
func TestMeanOfIntegersIsSummedIn64Bits(t *testing.T) {
	b := newBench(t)
	for name, v := range map[string][2]graph.Value{
		"uint8":  {vec[uint8](200, 200), scalar[uint8](200)},
		"int8":   {vec[int8](-100, -100, -101), scalar[int8](-100)},
		"uint16": {vec[uint16](60000, 60002), scalar[uint16](60001)},
		"int16":  {vec[int16](30000, 30002), scalar[int16](30001)},
		"uint32": {vec[uint32](math.MaxUint32, math.MaxUint32), scalar[uint32](math.MaxUint32)},
		"int32":  {vec[int32](1<<30, 1<<30, 1<<30, 1<<30), scalar[int32](1 << 30)},
		"256":    {vec(make([]uint8, 256)...), scalar[uint8](0)},
		"empty":  {vec[int32](), scalar[int32](0)},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.want(b.run("Mean", nil, v[0], scalar[int32](0))[0], show(v[1]))
		})
	}
}

// TestSumOfIntegersWrapsAround as in TensorFlow.
func TestSumOfIntegersWrapsAround(t *testing.T) {
	b := newBench(t)
	b.want(b.run("Sum", attrs{"T": tensor.Uint8}, vec[uint8](200, 200), scalar[int32](0))[0], show(scalar[uint8](144)))
}
