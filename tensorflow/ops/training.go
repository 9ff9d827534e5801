package ops

import (
	"math"
	"strings"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// rule is an optimiser: which inputs its op has, and how it changes the elements.
type rule struct {
	name string
	// slots are the names of the variables after var; scalars those of the hyperparameters.
	slots   []string
	scalars []string
	// order is the order of the inputs after the variables: the index of a scalar, or one of the
	// marks below.
	order []int
	// attrs are attributes beside T and use_locking.
	attrs string
	f32   func(s *step[float32])
	f64   func(s *step[float64])
}

const (
	gradInput  = -1
	indexInput = -2
)

// step is one update of a run of elements.
type step[T float] struct {
	v, slot1, slot2 []T // the variable and its slots, changed in place
	h               []T // hyperparameters in the order of rule.scalars
	g               []T
	nesterov        bool
	updateSlots     bool
}

// trainingOps are the four forms of each rule: reference and resource, dense and sparse.
func trainingOps() []entry {
	var entries []entry
	for _, r := range append(denseRules(), sparseRules()...) {
		sparse := false
		var rest strings.Builder
		for _, in := range r.order {
			switch in {
			case gradInput:
				name := "grad"
				if r.name == "GradientDescent" {
					name = "delta"
				}
				rest.WriteString(", " + name + ": T")
			case indexInput:
				rest.WriteString(", indices: Tindices")
				sparse = true
			default:
				rest.WriteString(", " + r.scalars[in] + ": T")
			}
		}
		kind, index := "Apply", ""
		if sparse {
			kind, index = "SparseApply", " Tindices: {int32, int64};"
		}
		ref, resource := "(var: Ref(T)", "(var: resource"
		for _, s := range r.slots {
			ref += ", " + s + ": Ref(T)"
			resource += ", " + s + ": resource"
		}
		attrs := "; T: number;" + index + " use_locking: bool = false" + r.attrs
		if r.name != "KerasMomentum" { // the one that came after reference variables
			entries = append(entries, entry{kind + r.name + ref + rest.String() + ") -> (out: Ref(T))" + attrs, r.newKernel(sparse)})
		}
		entries = append(entries, entry{"Resource" + kind + r.name + resource + rest.String() + ")" + attrs + "; stateful", r.newKernel(sparse)})
	}
	return entries
}

func denseRules() []rule {
	const nesterov = "; use_nesterov: bool = false"
	const slots = "; update_slots: bool = true"
	return []rule{
		{"GradientDescent", nil, []string{"alpha"}, []int{0, gradInput}, "", descent[float32], descent[float64]},
		{"Momentum", []string{"accum"}, []string{"lr", "momentum"}, []int{0, gradInput, 1}, nesterov, momentum[float32], momentum[float64]},
		{"KerasMomentum", []string{"accum"}, []string{"lr", "momentum"}, []int{0, gradInput, 1}, nesterov,
			kerasMomentum[float32], kerasMomentum[float64]},
		{"Adagrad", []string{"accum"}, []string{"lr"}, []int{0, gradInput}, slots, adagrad[float32], adagrad[float64]},
		{"AdagradV2", []string{"accum"}, []string{"lr", "epsilon"}, []int{0, 1, gradInput}, slots,
			adagradV2[float32], adagradV2[float64]},
		{"Adam", []string{"m", "v"}, []string{"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"},
			[]int{0, 1, 2, 3, 4, 5, gradInput}, nesterov, adam32, adam[float64]},
		{"RMSProp", []string{"ms", "mom"}, []string{"lr", "rho", "momentum", "epsilon"}, []int{0, 1, 2, 3, gradInput}, "",
			rmsProp[float32], rmsProp[float64]},
	}
}

func sparseRules() []rule {
	const nesterov = "; use_nesterov: bool = false"
	const slots = "; update_slots: bool = true"
	return []rule{
		{"Momentum", []string{"accum"}, []string{"lr", "momentum"}, []int{0, gradInput, indexInput, 1}, nesterov,
			momentum[float32], momentum[float64]},
		{"Adagrad", []string{"accum"}, []string{"lr"}, []int{0, gradInput, indexInput}, slots, adagrad[float32], adagrad[float64]},
		{"AdagradV2", []string{"accum"}, []string{"lr", "epsilon"}, []int{0, 1, gradInput, indexInput}, slots,
			adagradV2[float32], adagradV2[float64]},
		{"RMSProp", []string{"ms", "mom"}, []string{"lr", "rho", "momentum", "epsilon"}, []int{0, 1, 2, 3, gradInput, indexInput}, "",
			rmsProp[float32], rmsProp[float64]},
	}
}

func (r rule) newKernel(sparse bool) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		switch n.Type("T") {
		case tensor.Float32:
			return newTraining(r, n, sparse, r.f32), nil
		case tensor.Float64:
			return newTraining(r, n, sparse, r.f64), nil
		}
		return nil, noType("T", n.Type("T"))
	}
}

// training is the kernel of a rule.
type training[T float] struct {
	apply    func(s *step[T])
	proto    step[T] // with the attributes
	vars     []int   // the inputs that are variables
	scalars  []int   // the inputs with the hyperparameters
	grad     int
	index    int // −1 for a dense update
	slotName []string
}

func newTraining[T float](r rule, n *graph.Node, sparse bool, apply func(s *step[T])) *training[T] {
	k := &training[T]{apply: apply, index: -1, scalars: make([]int, len(r.scalars)), slotName: append([]string{"var"}, r.slots...)}
	k.proto.nesterov = n.Bool("use_nesterov")
	k.proto.updateSlots = n.Attr("update_slots") == nil || n.Bool("update_slots")
	for i := range k.slotName {
		k.vars = append(k.vars, i)
	}
	for i, in := range r.order {
		switch at := len(k.vars) + i; in {
		case gradInput:
			k.grad = at
		case indexInput:
			k.index = at
		default:
			k.scalars[in] = at
		}
	}
	return k
}

// Compute implements graph.Kernel.
func (k *training[T]) Compute(c *graph.Context) error {
	s := k.proto
	s.h = make([]T, len(k.scalars))
	for i, in := range k.scalars {
		h, err := scalarOf[T](c, in)
		if err != nil {
			return err
		}
		s.h[i] = h
	}
	var err error
	if s.g, err = inputOf[T](c, k.grad); err != nil {
		return err
	}
	var index []int64
	if k.index >= 0 {
		if index, err = intsOf(c, k.index); err != nil {
			return err
		}
	}
	check := func(old []*tensor.Tensor) error { return k.check(c, old, index) }
	err = writeVariables(c, k.vars, check, func(t []*tensor.Tensor) error { return k.write(s, t, index) })
	if err == nil {
		updateOutput(c)
	}
	return err
}

// check compares the shapes, with TensorFlow's texts.
func (k *training[T]) check(c *graph.Context, old []*tensor.Tensor, index []int64) error {
	shape := old[0].Shape()
	for i, t := range old {
		if t.DType() != tensor.TypeOf[T]() {
			return invalid("%s is of the type %s, and T = %s", k.slotName[i], t.DType(), tensor.TypeOf[T]())
		}
		if !t.Shape().Equal(shape) {
			return invalid("var and %s do not have the same shape%s %s", k.slotName[i], shape, t.Shape())
		}
	}
	grad := c.Input(k.grad).Shape()
	if k.index < 0 {
		if !grad.Equal(shape) {
			return invalid("var and grad do not have the same shape%s %s", shape, grad)
		}
		return nil
	}
	if shape.Rank() == 0 || grad.Rank() != shape.Rank() || c.Input(k.index).Shape().Rank() != 1 || grad.Dim(0) != int64(len(index)) {
		return invalid("var %s, grad %s and indices %s do not fit: grad must have a row of var for each index",
			shape, grad, c.Input(k.index).Shape())
	}
	for i := 1; i < shape.Rank(); i++ {
		if grad.Dim(i) != shape.Dim(i) {
			return invalid("var and grad must match in dimension %d", i)
		}
	}
	for i, row := range index {
		if row < 0 || row >= shape.Dim(0) {
			return invalid("Index %d at offset %d in indices is out of range [0, %d)", row, i, shape.Dim(0))
		}
	}
	return nil
}

// write applies the rule to all elements, or to the rows that index names, one after another: a row
// may occur twice.
func (k *training[T]) write(s step[T], t []*tensor.Tensor, index []int64) error {
	full := s
	for i, dst := range []*[]T{&full.v, &full.slot1, &full.slot2} {
		if i >= len(t) {
			break
		}
		var err error
		if *dst, err = tensor.Values[T](t[i]); err != nil {
			return err
		}
	}
	if k.index < 0 {
		parallelCost(len(full.v), 4, func(from, to int) {
			part := full.part(from, to)
			part.g = full.g[from:to]
			k.apply(&part)
		})
		return nil
	}
	if len(index) == 0 {
		return nil
	}
	width := len(s.g) / len(index)
	for i, row := range index {
		part := full.part(int(row)*width, int(row+1)*width)
		part.g = full.g[i*width : (i+1)*width]
		k.apply(&part)
	}
	return nil
}

// part returns the step of some of the elements of the variable.
func (s *step[T]) part(from, to int) step[T] {
	p := *s
	for _, v := range []*[]T{&p.v, &p.slot1, &p.slot2} {
		if *v != nil {
			*v = (*v)[from:to]
		}
	}
	return p
}

func sqrt[T float](x T) T { return T(math.Sqrt(float64(x))) }

// round returns x, the result of an operation, rounded to its type. Without it the compiler may fuse a product
// with the sum that it is added to on arm64 and with GOAMD64=v3: that rounds once where TensorFlow rounds twice.
func round[T float](x T) T {
	return T(x) //nolint:unconvert // it is what prevents the fusion
}

// The functions below compute in the order of TensorFlow's training_ops.cc, so that losses agree.

func descent[T float](s *step[T]) {
	alpha, v := s.h[0], s.v
	g := s.g[:len(v)]
	for i := range v {
		v[i] -= round(g[i] * alpha)
	}
}

func momentum[T float](s *step[T]) {
	lr, momentum, v := s.h[0], s.h[1], s.v
	g, accum := s.g[:len(v)], s.slot1[:len(v)]
	for i := range v {
		accum[i] = round(accum[i]*momentum) + g[i]
		if s.nesterov {
			v[i] -= round(g[i]*lr) + round(accum[i]*momentum*lr)
		} else {
			v[i] -= round(accum[i] * lr)
		}
	}
}

func kerasMomentum[T float](s *step[T]) {
	lr, momentum, v := s.h[0], s.h[1], s.v
	g, accum := s.g[:len(v)], s.slot1[:len(v)]
	for i := range v {
		accum[i] = round(accum[i]*momentum) - round(g[i]*lr)
		if s.nesterov {
			v[i] += round(accum[i]*momentum) - round(g[i]*lr)
		} else {
			v[i] += accum[i]
		}
	}
}

func adagrad[T float](s *step[T]) {
	lr, v := s.h[0], s.v
	g, accum := s.g[:len(v)], s.slot1[:len(v)]
	for i := range v {
		if s.updateSlots {
			accum[i] += round(g[i] * g[i])
		}
		v[i] -= round(g[i] * lr * (1 / sqrt(accum[i])))
	}
}

func adagradV2[T float](s *step[T]) {
	lr, epsilon, v := s.h[0], s.h[1], s.v
	g, accum := s.g[:len(v)], s.slot1[:len(v)]
	for i := range v {
		if s.updateSlots {
			accum[i] += round(g[i] * g[i])
		}
		v[i] -= g[i] * lr / (sqrt(accum[i]) + epsilon)
	}
}

// adamAlpha returns the learning rate of a step of Adam.
func adamAlpha[T float](h []T) T { return h[2] * sqrt(1-h[1]) / (1 - h[0]) }

func adam[T float](s *step[T]) {
	beta1, beta2, epsilon, alpha := s.h[3], s.h[4], s.h[5], adamAlpha(s.h)
	x := s.v
	g, m, v := s.g[:len(x)], s.slot1[:len(x)], s.slot2[:len(x)]
	c1, c2 := 1-beta1, 1-beta2
	if s.nesterov {
		for i := range x {
			m[i] += round((g[i] - m[i]) * c1)
			v[i] += round((round(g[i]*g[i]) - v[i]) * c2)
			x[i] -= (round(g[i]*c1) + round(beta1*m[i])) * alpha / (sqrt(v[i]) + epsilon)
		}
		return
	}
	for i := range x {
		m[i] += round((g[i] - m[i]) * c1)
		v[i] += round((round(g[i]*g[i]) - v[i]) * c2)
		x[i] -= m[i] * alpha / (sqrt(v[i]) + epsilon)
	}
}

// adam32 is adam with vector instructions, where there are some. It computes the same bits.
func adam32(s *step[float32]) {
	if s.nesterov {
		adam(s)
		return
	}
	done := adamVector(s.v, s.slot1, s.slot2, s.g, adamAlpha(s.h), 1-s.h[3], 1-s.h[4], s.h[5])
	rest := s.part(done, len(s.v))
	rest.g = s.g[done:]
	adam(&rest)
}

func rmsProp[T float](s *step[T]) {
	lr, rho, momentum, epsilon := s.h[0], s.h[1], s.h[2], s.h[3]
	x := s.v
	g, ms, mom := s.g[:len(x)], s.slot1[:len(x)], s.slot2[:len(x)]
	for i := range x {
		ms[i] += round((round(g[i]*g[i]) - ms[i]) * (1 - rho))
		mom[i] = round(mom[i]*momentum) + g[i]*lr/sqrt(ms[i]+epsilon)
		x[i] -= mom[i]
	}
}
