package ops

import (
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
)

// partialShape is a shape of which some extents, or all, are not known.
type partialShape struct {
	dims []int64 // −1 for one that is not known
	any  bool    // not even the rank is known
}

func partialOf(p *tfpb.TensorShapeProto) partialShape {
	s := partialShape{any: p.GetUnknownRank()}
	for _, d := range p.GetDim() {
		s.dims = append(s.dims, d.GetSize())
	}
	return s
}

// known reports whether all extents are known.
func (s partialShape) known() bool {
	for _, d := range s.dims {
		if d < 0 {
			return false
		}
	}
	return !s.any
}

// fits reports whether a tensor of shape t has the shape s.
func (s partialShape) fits(t tensor.Shape) bool { return s.compatible(partialShape{dims: t.Dims()}) }

// compatible reports whether a tensor can have both shapes.
func (s partialShape) compatible(t partialShape) bool {
	if s.any || t.any {
		return true
	}
	if len(s.dims) != len(t.dims) {
		return false
	}
	for i, d := range s.dims {
		if d >= 0 && t.dims[i] >= 0 && d != t.dims[i] {
			return false
		}
	}
	return true
}

// merged returns the shape that both say.
func (s partialShape) merged(t partialShape) (partialShape, error) {
	switch {
	case t.any:
		return s, nil
	case s.any:
		return t, nil
	case len(s.dims) != len(t.dims):
		return s, invalid("PartialTensorShape: Incompatible ranks during merge: %d vs. %d", len(s.dims), len(t.dims))
	case !s.compatible(t):
		return s, invalid("PartialTensorShape: Incompatible shapes during merge: %s vs. %s", s, t)
	}
	both := make([]int64, len(s.dims))
	for i, d := range s.dims {
		both[i] = max(d, t.dims[i])
	}
	return partialShape{dims: both}, nil
}

// batch returns the shape of n such tensors in one.
func (s partialShape) batch(n int64) partialShape {
	return partialShape{dims: append([]int64{n}, s.dims...), any: s.any}
}

// String returns the shape as TensorFlow's texts have it: "[?,2]".
func (s partialShape) String() string {
	if s.any {
		return "<unknown>"
	}
	texts := make([]string, len(s.dims))
	for i, d := range s.dims {
		if texts[i] = "?"; d >= 0 {
			texts[i] = strconv.FormatInt(d, 10)
		}
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// shapesText returns a list of shapes as TensorFlow's texts have it.
func shapesText(shapes []partialShape) string {
	texts := make([]string, len(shapes))
	for i, s := range shapes {
		texts[i] = s.String()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// typesText returns a list of types as TensorFlow's texts have it.
func typesText(types []tensor.DType) string {
	texts := make([]string, len(types))
	for i, d := range types {
		if texts[i] = d.Base().String(); d.IsRef() {
			texts[i] += "_ref"
		}
	}
	return strings.Join(texts, ", ")
}
