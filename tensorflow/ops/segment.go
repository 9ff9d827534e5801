package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// segmentOps sum and divide rows, as embeddings need it.
func segmentOps() []entry {
	const sparse = `; Tidx: index = int32; Tsegmentids: index = int32; sparse_gradient: bool = false`
	return []entry{
		{`UnsortedSegmentSum(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> (output: T); T: number; ` +
			`Tindices: {int16, int32, int64}; Tnumsegments: index = int32`, newUnsortedSum},
		{`SegmentSum(data: T, segment_ids: Tindices) -> (output: T); T: number; Tindices: index`, newSegmentSum},
		{`SparseSegmentSum(data: T, indices: Tidx, segment_ids: Tsegmentids) -> (output: T); T: real` + sparse,
			byFloat("T", sparseSegment[float32]("Sum"), sparseSegment[float64]("Sum"))},
		{`SparseSegmentMean(data: T, indices: Tidx, segment_ids: Tsegmentids) -> (output: T); T: float_type` + sparse,
			byFloat("T", sparseSegment[float32]("Mean"), sparseSegment[float64]("Mean"))},
		{`SparseSegmentSqrtN(data: T, indices: Tidx, segment_ids: Tsegmentids) -> (output: T); T: float_type` + sparse,
			byFloat("T", sparseSegment[float32]("SqrtN"), sparseSegment[float64]("SqrtN"))},
		{`DynamicStitch(indices: N*int32, data: N*T) -> (merged: T); N: int >= 1; T: type`, moving("T", dynamicStitch)},
		{`ParallelDynamicStitch(indices: N*int32, data: N*T) -> (merged: T); N: int >= 1; T: type`, moving("T", dynamicStitch)},
		{`DynamicPartition(data: T, partitions: int32) -> (outputs: num_partitions*T); num_partitions: int >= 1; T: type`,
			moving("T", dynamicPartition)},
	}
}

// segments sets output 0 to zeros of n rows, and adds row i of the data to row id[i].
func segments(c *graph.Context, f rowFunc, ids []int64, n int64, inner []int64) error {
	data := c.Input(0)
	shape, err := newShape(append([]int64{n}, inner...))
	if err != nil {
		return err
	}
	t, err := c.Allocate(data.DType(), shape)
	if err != nil {
		return err
	}
	clear(t.Bytes())
	c.Set(0, t)
	width := product64(inner)
	if width == 0 || len(ids) == 0 {
		return nil
	}
	add, err := f(t, data, false)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if id >= n {
			return invalid("segment_ids[%s] = %d is out of range [0, %d)", place(c.Input(1).Shape(), int64(i)), id, n)
		}
		if id >= 0 {
			add(id*width, int64(i)*width, width)
		}
	}
	return nil
}

func newUnsortedSum(n *graph.Node, _ *State) (graph.Kernel, error) {
	f, err := findRowFunc("Add", n.Type("T"))
	if err != nil {
		return nil, err
	}
	if d := n.Type("Tindices"); d == tensor.Int16 {
		return nil, noType("Tindices", d)
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		ids, err := intsOf(c, 1)
		if err != nil {
			return err
		}
		count, err := intOf(c, 2)
		if err != nil {
			return err
		}
		ds, is := c.Input(0).Shape(), c.Input(1).Shape()
		fits := is.Rank() <= ds.Rank() && count >= 0
		for i := 0; fits && i < is.Rank(); i++ {
			fits = is.Dim(i) == ds.Dim(i)
		}
		if !fits {
			return invalid("data.shape = %s does not start with segment_ids.shape = %s, or num_segments = %d is negative", ds, is, count)
		}
		return segments(c, f, ids, count, ds.Dims()[is.Rank():])
	}), nil
}

func newSegmentSum(n *graph.Node, _ *State) (graph.Kernel, error) {
	f, err := findRowFunc("Add", n.Type("T"))
	if err != nil {
		return nil, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		ids, count, err := sortedIDs(c, 1)
		if err != nil {
			return err
		}
		ds := c.Input(0).Shape()
		if ds.Rank() == 0 || int64(len(ids)) != ds.Dim(0) {
			return invalid("segment_ids should be the same size as dimension 0 of input.")
		}
		return segments(c, f, ids, count, ds.Dims()[1:])
	}), nil
}

// sortedIDs returns the segments in input i, which must not decrease, and how many there are.
func sortedIDs(c *graph.Context, i int) (ids []int64, count int64, err error) {
	if ids, err = intsOf(c, i); err != nil {
		return nil, 0, err
	}
	if c.Input(i).Shape().Rank() != 1 {
		return nil, 0, invalid("segment_ids should be a vector, not %s", c.Input(i).Shape())
	}
	for j, id := range ids {
		if id < count-1 || id < 0 || id == math.MaxInt64 {
			return nil, 0, invalid("segment ids are not increasing, or negative: element %d is %d", j, id)
		}
		count = id + 1
	}
	return ids, count, nil
}

// sparseSegment sums rows of the data that input 1 names.
func sparseSegment[T float](op string) graph.KernelFunc {
	return func(c *graph.Context) error {
		x, err := inputOf[T](c, 0)
		if err != nil {
			return err
		}
		index, err := intsOf(c, 1)
		if err != nil {
			return err
		}
		ids, count, err := sortedIDs(c, 2)
		if err != nil {
			return err
		}
		ds := c.Input(0).Shape()
		if ds.Rank() == 0 || len(ids) != len(index) {
			return invalid("segment_ids and indices should have same size, and data at least one dimension: %s, %d, %d", ds, len(index), len(ids))
		}
		if len(c.Inputs) > 3 { // a number of segments
			n, err := intOf(c, 3)
			switch {
			case err != nil:
				return err
			case n < 0:
				return invalid("segment ids must be >= 0")
			case count > n:
				return invalid("segment ids must be < num_segments")
			}
			count = n
		}
		shape, err := newShape(append([]int64{count}, ds.Dims()[1:]...))
		if err != nil {
			return err
		}
		out, err := setOutput[T](c, 0, shape)
		if err != nil {
			return err
		}
		clear(out)
		width := int(product64(ds.Dims()[1:]))
		for i, row := range index {
			if row < 0 || row >= ds.Dim(0) {
				return invalid("indices[%d] == %d out of range [0, %d)", i, row, ds.Dim(0))
			}
			dst, src := out[int(ids[i])*width:][:width], x[int(row)*width:][:width]
			for j, v := range src {
				dst[j] += v
			}
		}
		if op != "Sum" {
			scaleSegments(out, ids, width, op == "SqrtN")
		}
		return nil
	}
}

// scaleSegments divides each sum by the number of its rows, or by the root of it.
func scaleSegments[T float](out []T, ids []int64, width int, root bool) {
	for i := 0; i < len(ids); {
		j := i
		for j < len(ids) && ids[j] == ids[i] {
			j++
		}
		by := T(j - i)
		if root {
			by = sqrt(by)
		}
		row := out[int(ids[i])*width:][:width]
		for k := range row {
			row[k] /= by
		}
		i = j
	}
}

// dynamicStitch puts row j of data i into row indices[i][j] of the output; later ones win.
func dynamicStitch(c *graph.Context) error {
	n := len(c.Inputs) / 2
	rows := int64(0)
	var inner []int64
	index := make([][]int64, n)
	for i := range n {
		var err error
		if index[i], err = intsOf(c, i); err != nil {
			return err
		}
		is, ds := c.Input(i).Shape(), c.Input(n+i).Shape()
		fits := is.Rank() <= ds.Rank()
		for j := 0; fits && j < is.Rank(); j++ {
			fits = is.Dim(j) == ds.Dim(j)
		}
		if !fits {
			return invalid("data[%d].shape = %s does not start with indices[%d].shape = %s", i, ds, i, is)
		}
		rest := ds.Dims()[is.Rank():]
		if i == 0 {
			inner = rest
		}
		a, errA := newShape(inner)
		b, errB := newShape(rest)
		if errA != nil || errB != nil || !a.Equal(b) {
			return invalid("Need data[0].shape[%d:] = data[%d].shape[%d:], got %v and %v", c.Input(0).Shape().Rank(), i, is.Rank(), inner, rest)
		}
		for j, v := range index[i] {
			if v < 0 {
				return invalid("indices[%d][%d] = %d is negative", i, j, v)
			}
			rows = max(rows, v+1)
		}
	}
	shape, err := newShape(append([]int64{rows}, inner...))
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, c.Input(n).DType(), shape)
	if err != nil {
		return err
	}
	m.clear()
	width := product64(inner)
	for i, list := range index {
		for j, v := range list {
			m.copy(v*width, c.Input(n+i), int64(j)*width, width)
		}
	}
	return m.done(nil)
}

// dynamicPartition sends each row of the data to the output that its partition names.
func dynamicPartition(c *graph.Context) error {
	parts, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	data := c.Input(0)
	ds, ps := data.Shape(), c.Input(1).Shape()
	fits := ps.Rank() <= ds.Rank()
	for i := 0; fits && i < ps.Rank(); i++ {
		fits = ps.Dim(i) == ds.Dim(i)
	}
	if !fits {
		return invalid("data.shape must start with partitions.shape, got data.shape = %s, partitions.shape = %s", ds, ps)
	}
	counts := make([]int64, len(c.Outputs))
	for i, p := range parts {
		if p < 0 || p >= int64(len(counts)) {
			return invalid("partitions[%s] = %d is not in [0, %d)", place(ps, int64(i)), p, len(counts))
		}
		counts[p]++
	}
	inner := ds.Dims()[ps.Rank():]
	width := product64(inner)
	movers := make([]*mover, len(counts))
	for i, n := range counts {
		shape, err := newShape(append([]int64{n}, inner...))
		if err != nil {
			return err
		}
		if movers[i], err = newMover(c, i, data.DType(), shape); err != nil {
			return err
		}
	}
	at := make([]int64, len(counts))
	for i, p := range parts {
		movers[p].copy(at[p]*width, data, int64(i)*width, width)
		at[p]++
	}
	for _, m := range movers {
		if err := m.done(nil); err != nil {
			return err
		}
	}
	return nil
}
