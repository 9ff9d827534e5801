package ops

import (
	"math"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// rule is one form of an optimiser, dense or sparse: which inputs its op has, and how it changes the elements.
type rule struct {
	name string
	// slots are the variables after var. inputs are the others, in their order: hyperparameters, the
	// gradient (grad or delta), and indices, which makes the form sparse.
	slots, inputs string
	attrs         string // beside T and use_locking
	f32           func(s *step[float32])
	f64           func(s *step[float64])
	more          ruleOptions
}

// ruleOptions are what only some rules have.
type ruleOptions struct {
	small        []tensor.DType    // the 16-bit floats that it has kernels for
	resourceOnly bool              // it came after reference variables
	limits       map[string]string // of hyperparameters: what TensorFlow's error texts call the ones allowed
}

// smallFloatTypes are the 16-bit floats.
func smallFloatTypes() []tensor.DType { return []tensor.DType{tensor.Float16, tensor.BFloat16} }

// Attributes of several rules.
const (
	nesterovAttr = "; use_nesterov: bool = false"
	slotsAttr    = "; update_slots: bool = true"
)

// maxVariables is how many variables a rule has at most, with its slots.
const maxVariables = 4

// step is one update of a run of elements. Functions that do one compute in the order of TensorFlow's
// kernels, so that losses agree, and use round for the result of each operation.
type step[T float] struct {
	x           [maxVariables][]T // the variable and its slots, changed in place
	g           []T               // as long as each of x
	h           []T               // hyperparameters in their order in rule.inputs
	globalStep  int64
	round       rounding[T]
	sparse      bool // the elements are a row. TensorFlow computes some rows in another order than a whole variable,
	single      bool // and rows of one element in one more
	nesterov    bool
	updateSlots bool
	multiply    bool // multiply_linear_by_lr
	buffer      [maxVariables + 1][]T
}

// rounding rounds the result of an operation to a 16-bit float; nil to that of its type. Without it the compiler
// may fuse a product with the sum that it is added to on arm64 and with GOAMD64=v3: that rounds once where
// TensorFlow rounds twice.
type rounding[T float] func(T) T

func (r rounding[T]) of(x T) T {
	if r == nil {
		return T(x) //nolint:unconvert // it is what prevents the fusion
	}
	return r(x)
}

func sqrt[T float](x T) T { return T(math.Sqrt(float64(x))) }

func abs[T float](x T) T { return T(math.Abs(float64(x))) }

// sign returns 1, −1, or x itself if it is neither positive nor negative.
func sign[T float](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

func (r rounding[T]) sqrt(x T) T { return r.of(sqrt(x)) }

// rsqrt returns 1/√x. TensorFlow rounds it once in its vectors of eight 16-bit floats, and twice in shorter rows.
func (s *step[T]) rsqrt(x T) T {
	if len(s.g) < 8 {
		return s.round.of(1 / s.round.sqrt(x))
	}
	return s.round.of(1 / sqrt(x))
}

// trainingOps are the forms of each rule: reference and resource, dense and sparse.
func trainingOps() []entry {
	var entries []entry
	for _, r := range slices.Concat(momentumRules(), adagradRules(), adamRules(), rmsPropRules(), ftrlRules(), adadeltaRules(), proximalRules(), signRules()) {
		var rest strings.Builder
		for name := range strings.FieldsSeq(r.inputs) {
			switch name {
			case "indices":
				rest.WriteString(", indices: Tindices")
			case "global_step":
				rest.WriteString(", global_step: int64")
			default:
				rest.WriteString(", " + name + ": T")
			}
		}
		kind, index := "Apply", ""
		if r.sparse() {
			kind, index = "SparseApply", " Tindices: {int32, int64};"
		}
		ref, resource := "(var: Ref(T)", "(var: resource"
		for s := range strings.FieldsSeq(r.slots) {
			ref += ", " + s + ": Ref(T)"
			resource += ", " + s + ": resource"
		}
		attrs := "; T: number;" + index + " use_locking: bool = false" + r.attrs
		if !r.more.resourceOnly {
			entries = append(entries, entry{kind + r.name + ref + rest.String() + ") -> (out: Ref(T))" + attrs, r.newKernel})
		}
		entries = append(entries, entry{"Resource" + kind + r.name + resource + rest.String() + ")" + attrs + "; stateful", r.newKernel})
	}
	return entries
}

func (r rule) sparse() bool { return strings.Contains(r.inputs, "indices") }

func (r rule) newKernel(n *graph.Node, _ *State) (graph.Kernel, error) {
	d := n.Type("T")
	switch {
	case d == tensor.Float32:
		return newTraining(r, n, inPlace(r.f32)), nil
	case d == tensor.Float64:
		return newTraining(r, n, inPlace(r.f64)), nil
	case !slices.Contains(r.more.small, d):
		return nil, noType("T", d)
	case d == tensor.Float16:
		return newTraining(r, n, inFloats(r.f32, fromHalf, toHalf)), nil
	}
	return newTraining(r, n, inFloats(r.f32, fromBrain, toBrain)), nil
}

// arithmetic computes with elements of the type E as with numbers of the type T.
type arithmetic[E tensor.Element, T float] struct {
	widen func(E) T
	round rounding[T]
	// apply changes the elements x by those of g. s has everything else.
	apply func(s *step[T], x [maxVariables][]E, g []E)
}

func inPlace[T float](f func(s *step[T])) arithmetic[T, T] {
	return arithmetic[T, T]{
		widen: func(x T) T { return x },
		apply: func(s *step[T], x [maxVariables][]T, g []T) {
			s.x, s.g = x, g
			f(s)
		},
	}
}

// smallBlock is how many 16-bit floats are computed at a time.
const smallBlock = 256

func inFloats[E tensor.Element](f func(s *step[float32]), widen func(E) float32, narrow func(float32) E) arithmetic[E, float32] {
	return arithmetic[E, float32]{
		widen: widen,
		round: func(x float32) float32 { return widen(narrow(x)) },
		apply: func(s *step[float32], x [maxVariables][]E, g []E) {
			load := func(i int, from []E) []float32 {
				if s.buffer[i] == nil {
					s.buffer[i] = make([]float32, smallBlock)
				}
				to := s.buffer[i][:len(from)]
				for j, e := range from {
					to[j] = widen(e)
				}
				return to
			}
			for from := 0; from < len(g); from += smallBlock {
				to := min(from+smallBlock, len(g))
				for i, v := range x {
					if v != nil {
						s.x[i] = load(i, v[from:to])
					}
				}
				s.g = load(maxVariables, g[from:to])
				f(s)
				for i, v := range x {
					if v == nil {
						continue
					}
					for j, n := range s.x[i] {
						v[from+j] = narrow(n)
					}
				}
			}
		},
	}
}

// training is the kernel of a rule.
type training[E tensor.Element, T float] struct {
	arithmetic[E, T]
	rule
	proto   step[T]  // with the attributes
	vars    []int    // the inputs that are variables
	names   []string // their names
	scalars []int    // the inputs with the hyperparameters
	grad    int
	global  int // the input with the step's number; −1 if there is none
	index   int // −1 for a dense update
}

func newTraining[E tensor.Element, T float](r rule, n *graph.Node, a arithmetic[E, T]) *training[E, T] {
	k := &training[E, T]{arithmetic: a, rule: r, index: -1, global: -1, names: append([]string{"var"}, strings.Fields(r.slots)...)}
	k.proto = step[T]{
		round: a.round, sparse: r.sparse(), nesterov: n.Bool("use_nesterov"), multiply: n.Bool("multiply_linear_by_lr"),
		updateSlots: n.Attr("update_slots") == nil || n.Bool("update_slots"),
	}
	for i := range k.names {
		k.vars = append(k.vars, i)
	}
	at := len(k.vars)
	for name := range strings.FieldsSeq(r.inputs) {
		switch name {
		case "grad", "delta":
			k.grad = at
		case "indices":
			k.index = at
		case "global_step":
			k.global = at
		default:
			k.scalars = append(k.scalars, at)
		}
		at++
	}
	return k
}

// Compute implements graph.Kernel.
func (k *training[E, T]) Compute(c *graph.Context) error {
	s := k.proto
	var err error
	if s.h, err = k.hyperparameters(c); err != nil {
		return err
	}
	if k.global >= 0 {
		if err := checkScalar(c, k.global, ""); err != nil {
			return err
		}
		if s.globalStep, err = scalarOf[int64](c, k.global); err != nil {
			return err
		}
	}
	g, err := inputOf[E](c, k.grad)
	if err != nil {
		return err
	}
	var index []int64
	if k.index >= 0 {
		if index, err = intsOf(c, k.index); err != nil {
			return err
		}
	}
	check := func(old []*tensor.Tensor) error { return k.check(c, old, index) }
	err = writeVariables(c, k.vars, check, func(t []*tensor.Tensor) error { return k.write(s, t, g, index) })
	if err == nil {
		updateOutput(c)
	}
	return err
}

// hyperparameters returns them in their order.
func (k *training[E, T]) hyperparameters(c *graph.Context) ([]T, error) {
	h := make([]T, len(k.scalars))
	for i, in := range k.scalars {
		limit := k.more.limits[argName(c, in)]
		if err := checkScalar(c, in, limit); err != nil {
			return nil, err
		}
		v, err := scalarOf[E](c, in)
		if err != nil {
			return nil, err
		}
		h[i] = k.widen(v)
		if !within(float64(h[i]), limit, k.proto.multiply) {
			return nil, notAScalar(c, in, limit)
		}
	}
	return h, nil
}

// The limits of hyperparameters, in the words of TensorFlow's error texts.
const (
	positive       = "positive scalar"
	nonNegative    = "non-negative scalar"
	nonPositive    = "non-positive scalar"
	positiveOrZero = "positive scalar (or zero if multiply_linear_by_lr is set)"
)

func within(x float64, limit string, multiply bool) bool {
	switch limit {
	case positive:
		return x > 0
	case positiveOrZero:
		return x > 0 || multiply && x == 0
	case nonNegative:
		return x >= 0
	case nonPositive:
		return x <= 0
	}
	return true
}

func checkScalar(c *graph.Context, i int, limit string) error {
	if t := c.Input(i); t != nil && t.Shape().Rank() != 0 {
		return notAScalar(c, i, limit)
	}
	return nil
}

// notAScalar is TensorFlow's error of a hyperparameter.
func notAScalar(c *graph.Context, i int, limit string) error {
	name := argName(c, i)
	switch name {
	case "l1", "l2":
		name += " regularization strength"
	case "l2_shrinkage":
		name = "l2 shrinkage regularization strength"
	}
	if limit == "" {
		limit = "scalar"
	}
	return invalid("%s is not a %s: %s", name, limit, c.Input(i).Shape())
}

// check compares the shapes, with TensorFlow's texts.
func (k *training[E, T]) check(c *graph.Context, old []*tensor.Tensor, index []int64) error {
	shape := old[0].Shape()
	for i, t := range old {
		if t.DType() != tensor.TypeOf[E]() {
			return invalid("%s is of the type %s, and T = %s", k.names[i], t.DType(), tensor.TypeOf[E]())
		}
		if !t.Shape().Equal(shape) {
			name := k.names[i]
			if k.name == "AdagradDA" {
				name = "accum"
			}
			return invalid("var and %s do not have the same shape%s %s", name, shape, t.Shape())
		}
	}
	grad := c.Input(k.grad).Shape()
	if k.index < 0 {
		if !grad.Equal(shape) {
			return invalid("var and %s do not have the same shape%s %s", argName(c, k.grad), shape, grad)
		}
		return nil
	}
	switch {
	case shape.Rank() == 0:
		return invalid("var must be at least 1 dimensional")
	case c.Input(k.index).Shape().Rank() != 1:
		return invalid("indices must be one-dimensional")
	case grad.Rank() > shape.Rank():
		return invalid("grad has the shape %s, and more dimensions than var, whose shape is %s", grad, shape)
	}
	for i := 1; i < shape.Rank(); i++ {
		if i >= grad.Rank() || grad.Dim(i) != shape.Dim(i) {
			return invalid("var and grad must match in dimension %d", i)
		}
	}
	if grad.Rank() == 0 || grad.Dim(0) != int64(len(index)) {
		return invalid("grad must be the same size as indices in the first dimension.")
	}
	for i, row := range index {
		if row >= 0 && row < shape.Dim(0) {
			continue
		}
		if k.name == "KerasMomentum" {
			return invalid("indices[%d] = %d is not in [0, %d)", i, row, shape.Dim(0))
		}
		return invalid("Index %d at offset %d in indices is out of range", row, i)
	}
	return nil
}

// write applies the rule to all elements, or to the rows that index names, one after another: a row
// may occur twice.
func (k *training[E, T]) write(s step[T], t []*tensor.Tensor, g []E, index []int64) error {
	var all [maxVariables][]E
	for i := range t {
		var err error
		if all[i], err = tensor.Values[E](t[i]); err != nil {
			return err
		}
	}
	part := func(from, to int) (x [maxVariables][]E) {
		for i := range t {
			x[i] = all[i][from:to]
		}
		return x
	}
	if k.index < 0 {
		parallelCost(len(g), 4, func(from, to int) {
			own := s
			k.apply(&own, part(from, to), g[from:to])
		})
		return nil
	}
	if len(index) == 0 {
		return nil
	}
	width := len(g) / len(index)
	s.single = width == 1
	for i, row := range index {
		k.apply(&s, part(int(row)*width, int(row+1)*width), g[i*width:(i+1)*width])
	}
	return nil
}
