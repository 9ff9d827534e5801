package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// networkOps are the ops of a small dense model.
func networkOps() []entry {
	const format = `; data_format: {"NHWC", "NCHW"} = "NHWC"`
	return []entry{
		{`BiasAdd(value: T, bias: T) -> (output: T); T: number` + format, newBiasAdd},
		{`BiasAddV1(value: T, bias: T) -> (output: T); T: number`, newBiasAdd},
		{`BiasAddGrad(out_backprop: T) -> (output: T); T: number` + format, newBiasAddGrad},
		{`Softmax(logits: T) -> (softmax: T); T: float_type`, byFloat("T", softmax[float32](false), softmax[float64](false))},
		{`LogSoftmax(logits: T) -> (logsoftmax: T); T: float_type`, byFloat("T", softmax[float32](true), softmax[float64](true))},
		{`SparseSoftmaxCrossEntropyWithLogits(features: T, labels: Tlabels) -> (loss: T, backprop: T); T: float_type; ` +
			`Tlabels: index = int64`, byFloat("T", sparseCrossEntropy[float32], sparseCrossEntropy[float64])},
		{`SoftmaxCrossEntropyWithLogits(features: T, labels: T) -> (loss: T, backprop: T); T: float_type`,
			byFloat("T", crossEntropy[float32], crossEntropy[float64])},
		{`InTopK(predictions: float, targets: T) -> (precision: bool); k: int; T: index = int32`, always(inTopK)},
		{`InTopKV2(predictions: float, targets: T, k: T) -> (precision: bool); T: index = int32`, always(inTopK)},
	}
}

// byFloat returns the NewFunc of a kernel for float and double.
func byFloat(attr string, f32, f64 graph.KernelFunc) NewFunc {
	return smallFloats(func(n *graph.Node, _ *State) (graph.Kernel, error) {
		switch d := n.Type(attr); d {
		case tensor.Float32:
			return f32, nil
		case tensor.Float64:
			return f64, nil
		default:
			return nil, noType(attr, d)
		}
	})
}

// channel returns the dimension of the channels: the last one, or by data_format the one after the
// batch.
func channel(n *graph.Node, rank int) int {
	if n.Text("data_format") == "NCHW" && rank > 1 {
		return 1
	}
	return rank - 1
}

func newBiasAdd(n *graph.Node, _ *State) (graph.Kernel, error) {
	add, err := findBinary("Add", n.Type("T"))
	if err != nil {
		return nil, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		value, bias := c.Input(0).Shape(), c.Input(1).Shape()
		if value.Rank() < 2 {
			return invalid("Input tensor must be at least 2D: %s", value)
		}
		dim := channel(c.Node, value.Rank())
		if bias.Rank() != 1 || bias.Dim(0) != value.Dim(dim) {
			return invalid("Must provide as many biases as the last dimension of the input tensor: %s vs. %s", bias, value)
		}
		dims := make([]int64, value.Rank()-dim)
		for i := range dims {
			dims[i] = 1
		}
		dims[0] = bias.Dim(0)
		shape, err := newShape(dims)
		if err != nil {
			return err
		}
		b, err := reshaped(c.Input(1), shape)
		if err != nil {
			return err
		}
		defer b.Release()
		sub := *c
		sub.Inputs = []graph.Value{c.Inputs[0], {Tensor: b}}
		return add.Compute(&sub)
	}), nil
}

func newBiasAddGrad(n *graph.Node, s *State) (graph.Kernel, error) {
	sum, err := newReduce("Sum")(n, s)
	if err != nil {
		return nil, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		rank := c.Input(0).Shape().Rank()
		if rank < 2 {
			return invalid("Input tensor must be at least 2D: %s", c.Input(0).Shape())
		}
		var axes []int64
		for i := range rank {
			if i != channel(c.Node, rank) {
				axes = append(axes, int64(i))
			}
		}
		t, err := tensor.FromSlice(tensor.Vector(len(axes)), axes)
		if err != nil {
			return err
		}
		defer t.Release()
		sub := *c
		sub.Inputs = []graph.Value{c.Inputs[0], {Tensor: t}}
		return sum.Compute(&sub)
	}), nil
}

// rowsOf returns the width of the rows of input 0, its last dimension.
func rowsOf(c *graph.Context) (int, error) {
	s := c.Input(0).Shape()
	if s.Rank() < 1 {
		return 0, invalid("%s must have >= 1 dimension, but has the shape %s", argName(c, 0), s)
	}
	return int(s.Dim(s.Rank() - 1)), nil
}

// logSum returns the largest element of a row, and the logarithm of the sum of e to the differences
// from it.
func logSum[T float](row []T) (largest T, log float64) {
	largest = row[0]
	for _, v := range row {
		largest = max(largest, v)
	}
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v - largest))
	}
	return largest, math.Log(sum)
}

func softmax[T float](log bool) graph.KernelFunc {
	return func(c *graph.Context) error {
		x, err := inputOf[T](c, 0)
		if err != nil {
			return err
		}
		width, err := rowsOf(c)
		if err != nil {
			return err
		}
		out, err := reuseOutput[T](c, 0, c.Input(0).Shape(), 0)
		if err != nil || len(out) == 0 {
			return err
		}
		parallelCost(len(x)/width, 16*width, func(from, to int) {
			for r := from; r < to; r++ {
				row := x[r*width : (r+1)*width]
				largest, sum := logSum(row)
				for i, v := range row {
					d := float64(v-largest) - sum
					if !log {
						d = math.Exp(d)
					}
					out[r*width+i] = T(d)
				}
			}
		})
		return nil
	}
}

// crossEntropyOutputs allocates both outputs for logits of a shape, which is a matrix.
func crossEntropyOutputs[T float](c *graph.Context, shape tensor.Shape) (loss, grad []T, width int, err error) {
	if loss, err = setOutput[T](c, 0, tensor.Vector(int(shape.Dim(0)))); err != nil {
		return nil, nil, 0, err
	}
	grad, err = setOutput[T](c, 1, shape)
	return loss, grad, int(shape.Dim(1)), err
}

func sparseCrossEntropy[T float](c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	labels, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	shape := c.Input(0).Shape()
	if shape.Rank() != 2 {
		return invalid("logits must be 2-D, but got shape %s", shape)
	}
	if shape.Dim(1) == 0 && shape.Dim(0) > 0 {
		return invalid("Must have at least one class, but got logits shape %s", shape)
	}
	loss, grad, width, err := crossEntropyOutputs[T](c, shape)
	if err != nil {
		return err
	}
	if s := c.Input(1).Shape(); s.Rank() != 1 || len(labels) != len(loss) {
		return invalid("logits and labels must have the same first dimension, got logits shape %s and labels shape %s", c.Input(0).Shape(), s)
	}
	for i, label := range labels {
		if label < 0 || label >= int64(width) {
			return invalid("Received a label value of %d which is outside the valid range of [0, %d).  Label values: %s",
				label, width, summary(c.Input(1), maxSummary))
		}
		row, g := x[i*width:(i+1)*width], grad[i*width:(i+1)*width]
		largest, sum := logSum(row)
		for j, v := range row {
			g[j] = T(math.Exp(float64(v-largest) - sum))
		}
		loss[i] = T(sum - float64(row[label]-largest))
		g[label]--
	}
	return nil
}

func crossEntropy[T float](c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	labels, err := inputOf[T](c, 1)
	if err != nil {
		return err
	}
	b, err := newBroadcast(c.Input(0).Shape(), c.Input(1).Shape())
	if err != nil {
		return invalid("logits and labels must be broadcastable: logits_size=%s labels_size=%s", c.Input(0).Shape(), c.Input(1).Shape())
	}
	if b.shape.Rank() != 2 {
		return invalid("logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional")
	}
	loss, grad, width, err := crossEntropyOutputs[T](c, b.shape)
	if err != nil {
		return err
	}
	if len(grad) == 0 {
		clear(loss) // no classes
		return nil
	}
	logits, targets := rowsLike(x, c.Input(0).Shape(), b.shape), rowsLike(labels, c.Input(1).Shape(), b.shape)
	for i := range loss {
		row, l, g := logits(i), targets(i), grad[i*width:(i+1)*width]
		largest, sum := logSum(row)
		total := 0.0
		for j, v := range row {
			d := float64(v-largest) - sum
			total -= float64(l[j]) * d
			g[j] = T(math.Exp(d)) - l[j]
		}
		loss[i] = T(total)
	}
	return nil
}

// rowsLike returns the rows of a tensor that is broadcast to a matrix. A row is valid until the next
// call.
func rowsLike[T float](x []T, shape, matrix tensor.Shape) func(i int) []T {
	width, step := int(dimFrom(shape, -1)), 0
	if dimFrom(shape, -2) > 1 {
		step = width
	}
	if int64(width) == matrix.Dim(1) {
		return func(i int) []T { return x[i*step : i*step+width] }
	}
	row := make([]T, matrix.Dim(1)) // repeats one element
	return func(i int) []T {
		for j := range row {
			row[j] = x[i*step]
		}
		return row
	}
}

// inTopK reports for each row whether the prediction for its target is among the k largest.
func inTopK(c *graph.Context) error {
	x, err := inputOf[float32](c, 0)
	if err != nil {
		return err
	}
	targets, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	k := c.Node.Int("k")
	if len(c.Inputs) > 2 {
		if k, err = intOf(c, 2); err != nil {
			return err
		}
	}
	s := c.Input(0).Shape()
	if s.Rank() != 2 || c.Input(1).Shape().Rank() != 1 || s.Dim(0) != int64(len(targets)) {
		return invalid("predictions must be a matrix with a row for each target: %s, %s", s, c.Input(1).Shape())
	}
	out, err := setOutput[bool](c, 0, c.Input(1).Shape())
	if err != nil {
		return err
	}
	width := int(s.Dim(1))
	for i, target := range targets {
		if target < 0 || target >= int64(width) {
			continue
		}
		row := x[i*width : (i+1)*width]
		better, finite := int64(0), row[target]-row[target] == 0 // false for infinity and what is not a number
		for _, v := range row {
			finite = finite && v-v == 0 // as above
			if v > row[target] {
				better++
			}
		}
		out[i] = finite && better < k
	}
	return nil
}
