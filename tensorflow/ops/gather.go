package ops

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func gatherOps() []entry {
	return []entry{
		{`Gather(params: Tparams, indices: Tindices) -> (output: Tparams); validate_indices: bool = true; Tparams: type; Tindices: index`,
			moving("Tparams", func(c *graph.Context) error { return gather(c, c.Input(0), 0, 0) })},
		{`GatherV2(params: Tparams, indices: Tindices, axis: Taxis) -> (output: Tparams); batch_dims: int = 0; Tparams: type; ` +
			`Tindices: {int16, int32, int64}; Taxis: index`, newGatherV2},
		{`ResourceGather(resource: resource, indices: Tindices) -> (output: dtype); batch_dims: int = 0; validate_indices: bool = true; ` +
			`dtype: type; Tindices: index; stateful`, moving("dtype", resourceGather)},
		{`GatherNd(params: Tparams, indices: Tindices) -> (output: Tparams); Tparams: type; Tindices: {int16, int32, int64}; ` +
			`bad_indices_policy: string = ""`, newGatherNd},
		{`ResourceGatherNd(resource: resource, indices: Tindices) -> (output: dtype); dtype: type; Tindices: index; stateful`,
			moving("dtype", resourceGatherNd)},
	}
}

func newGatherV2(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("Tindices"); d == tensor.Int16 {
		return nil, noType("Tindices", d)
	}
	return moving("Tparams", func(c *graph.Context) error {
		axis, err := axisOf(c, 2, c.Input(0).Shape().Rank())
		if err != nil {
			return err
		}
		batch := c.Node.Int("batch_dims")
		if batch < 0 {
			batch += int64(c.Input(1).Shape().Rank())
		}
		return gather(c, c.Input(0), axis, batch)
	})(n, nil)
}

func resourceGather(c *graph.Context) error {
	t, err := snapshotAt(c, 0, c.Node.Type("dtype"))
	if err != nil {
		return err
	}
	defer t.Release()
	batch := c.Node.Int("batch_dims")
	return gather(c, t, int(min(max(batch, 0), tensor.MaxDims)), batch)
}

// gather sets output 0 to the parts of params that input 1 names in a dimension. The first batch
// dimensions of both belong together.
func gather(c *graph.Context, params *tensor.Tensor, axis int, batch int64) error {
	index, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	ps, is := params.Shape(), c.Input(1).Shape()
	if ps.Rank() == 0 || axis >= ps.Rank() {
		return invalid("params must be at least %d dimensional, but has the shape %s", axis+1, ps)
	}
	if batch < 0 || batch > int64(is.Rank()) || batch > int64(axis) {
		return invalid("batch_dims (%d) must be at most the rank of indices %s and the axis %d", batch, is, axis)
	}
	b := int(batch)
	pd, id := ps.Dims(), is.Dims()
	for i := range b {
		if pd[i] != id[i] {
			return invalid("params.shape[%d]: %d should be equal to indices.shape[%d]: %d", i, pd[i], i, id[i])
		}
	}
	shape, err := newShape(append(append(append([]int64{}, pd[:axis]...), id[b:]...), pd[axis+1:]...))
	if err != nil {
		return err
	}
	for i, v := range index {
		if v < 0 || v >= pd[axis] {
			return invalid("indices[%s] = %d is not in [0, %d)", place(is, int64(i)), v, pd[axis])
		}
	}
	m, err := newMover(c, 0, params.DType(), shape)
	if err != nil || shape.Elements() == 0 {
		return m.done(err)
	}
	batches, outer, inner := product64(pd[:b]), product64(pd[b:axis]), product64(pd[axis+1:])
	each := int64(len(index)) / batches
	at := int64(0)
	for i := range batches * outer {
		rows := index[i/outer*each:][:each]
		for _, v := range rows {
			m.copy(at, params, (i*pd[axis]+v)*inner, inner)
			at += inner
		}
	}
	return m.done(nil)
}

// place returns the coordinates of element i of a shape, as "1,0".
func place(s tensor.Shape, i int64) string {
	texts := make([]string, s.Rank())
	for d := s.Rank() - 1; d >= 0; d-- {
		texts[d] = strconv.FormatInt(i%s.Dim(d), 10)
		i /= s.Dim(d)
	}
	return strings.Join(texts, ",")
}

// parts are those of a tensor that a tensor of coordinates names: each row of its last dimension
// is one.
type parts struct {
	offsets []int64 // of the first element of each part
	width   int64   // elements of a part
	outer   []int64 // the dimensions of the coordinates without the last
	inner   []int64 // the dimensions of a part
}

// newSlices reads the coordinates in input i for a tensor of the given shape.
func newSlices(c *graph.Context, i int, shape tensor.Shape) (*parts, error) {
	index, err := intsOf(c, i)
	if err != nil {
		return nil, err
	}
	is := c.Input(i).Shape()
	if is.Rank() < 1 {
		return nil, invalid("indices must be at least a vector, but has the shape %s", is)
	}
	depth := int(is.Dim(is.Rank() - 1))
	if depth > shape.Rank() {
		return nil, invalid("index innermost dimension length must be <= params rank; saw: %d vs. %d", depth, shape.Rank())
	}
	s := &parts{outer: is.Dims()[:is.Rank()-1], inner: shape.Dims()[depth:]}
	s.width = product64(s.inner)
	count, err := newShape(s.outer)
	if err != nil {
		return nil, err
	}
	if depth == 0 && count.Elements() > maxEmpty {
		return nil, invalid("indices name %d parts by no coordinates: the kernel set go takes at most %d", count.Elements(), maxEmpty)
	}
	strides := stridesOf(shape)
	if err := c.Scratch(8 * count.Elements()); err != nil {
		return nil, err
	}
	s.offsets = make([]int64, count.Elements())
	for j := range s.offsets {
		for d, v := range index[j*depth:][:depth] {
			if v < 0 || v >= shape.Dim(d) {
				return nil, invalid("indices[%s] = %v does not index into shape %s", place(count, int64(j)), index[j*depth:][:depth], shape)
			}
			s.offsets[j] += v * strides[d]
		}
	}
	return s, nil
}

func newGatherNd(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("Tindices"); d == tensor.Int16 {
		return nil, noType("Tindices", d)
	}
	if policy := n.Text("bad_indices_policy"); policy != "" && policy != "DEFAULT" && policy != "ERROR" {
		return nil, refused("bad_indices_policy = %q", policy)
	}
	return moving("Tparams", func(c *graph.Context) error { return gatherNd(c, c.Input(0)) })(n, nil)
}

func resourceGatherNd(c *graph.Context) error {
	t, err := snapshotAt(c, 0, c.Node.Type("dtype"))
	if err != nil {
		return err
	}
	defer t.Release()
	return gatherNd(c, t)
}

func gatherNd(c *graph.Context, params *tensor.Tensor) error {
	s, err := newSlices(c, 1, params.Shape())
	if err != nil {
		return err
	}
	shape, err := newShape(append(append([]int64{}, s.outer...), s.inner...))
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, params.DType(), shape)
	if err != nil || s.width == 0 {
		return m.done(err)
	}
	for i, off := range s.offsets {
		m.copy(int64(i)*s.width, params, off, s.width)
	}
	return m.done(nil)
}
