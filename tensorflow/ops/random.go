package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func randomOps() []entry {
	const seeds = `seed: int = 0; seed2: int = 0; stateful`
	const floats = `(shape: T) -> (output: dtype); T: {int32, int64}; dtype: {half, bfloat16, float, double}; ` + seeds
	const stateless = `(shape: T, seed: Tseed) -> (output: dtype); dtype: {half, bfloat16, float, double} = float; ` +
		`T: {int32, int64} = int32; Tseed: {int32, int64} = int64`
	const keyed = `(shape: Tshape, key: uint64, counter: uint64, alg: int32) -> (output: dtype); ` +
		`dtype: {half, bfloat16, float, double} = float; Tshape: index = int32`
	return []entry{
		{`RandomUniform` + floats, newRandom(uniform)},
		{`RandomStandardNormal` + floats, newRandom(normal)},
		{`TruncatedNormal` + floats, newRandom(truncated)},
		{`RandomUniformInt(shape: T, minval: Tout, maxval: Tout) -> (output: Tout); Tout: {int32, int64}; T: {int32, int64}; ` +
			seeds, newRandomInt},
		{`StatelessRandomUniform` + stateless, newStateless(uniform)},
		{`StatelessRandomNormal` + stateless, newStateless(normal)},
		{`StatelessTruncatedNormal` + stateless, newStateless(truncated)},
		{`StatelessRandomGetKeyCounter(seed: Tseed) -> (key: uint64, counter: uint64); Tseed: index = int64`, always(keyCounter)},
		{`StatelessRandomGetKeyCounterAlg(seed: Tseed) -> (key: uint64, counter: uint64, alg: int32); Tseed: index = int64`,
			always(keyCounter)},
		{`StatelessRandomGetAlg() -> (alg: int32); stateful`, always(func(c *graph.Context) error { return setAlgorithm(c, 0) })},
		{`StatelessRandomUniformV2` + keyed, newKeyed(uniform)},
		{`StatelessRandomNormalV2` + keyed, newKeyed(normal)},
		{`StatelessTruncatedNormalV2` + keyed, newKeyed(truncated)},
	}
}

// reserved is how many groups of four numbers TensorFlow sets aside for each element, whatever the
// distribution uses.
const reserved = 256

// fill writes the elements of a distribution. Elements i to i+k of the output, where k is the size of
// a group, come from a place in the sequence that depends on i alone, so they are computed in parallel.
type fill struct {
	f32 func(gen philox, out []float32)
	f64 func(gen philox, out []float64)
}

// distribution selects a fill.
type distribution int

const (
	uniform distribution = iota
	normal
	truncated
)

func (d distribution) fill() fill {
	switch d {
	case uniform:
		return fill{
			grouped(4, 1, func(g *philox, out []float32) {
				for i, x := range g.next() {
					out[i] = uniform32(x)
				}
			}),
			grouped(2, 1, func(g *philox, out []float64) {
				x := g.next()
				out[0], out[1] = uniform64(x[0], x[1]), uniform64(x[2], x[3])
			}),
		}
	case normal:
		return fill{
			grouped(4, 1, func(g *philox, out []float32) {
				x := g.next()
				out[0], out[1] = normal32(x[0], x[1])
				out[2], out[3] = normal32(x[2], x[3])
			}),
			grouped(2, 1, func(g *philox, out []float64) {
				x := g.next()
				out[0], out[1] = normal64(x[0], x[1], x[2], x[3])
			}),
		}
	}
	return fill{grouped(4, reserved, truncated32), grouped(2, reserved/2, truncated64)}
}

// grouped returns a function that fills a slice by groups of size elements, each from a place of its
// own that is skip groups of four numbers after that of the last one.
func grouped[T float](size, skip int, group func(g *philox, out []T)) func(gen philox, out []T) {
	return func(gen philox, out []T) {
		parallelCost((len(out)+size-1)/size, 16*size, func(from, to int) {
			var buf [4]T
			for i := from; i < to; i++ {
				g := gen
				g.skip(uint64(i) * uint64(skip))
				group(&g, buf[:size])
				copy(out[i*size:], buf[:size])
			}
		})
	}
}

// cut is where TruncatedNormal drops numbers.
const cut = 2

func truncated32(g *philox, out []float32) {
	s := newSingle(g)
	for n := 0; ; {
		a, b := normal32(s.next(), s.next())
		for _, f := range [2]float32{a, b} {
			if f < cut && f > -cut {
				out[n] = f
				if n++; n == len(out) {
					return
				}
			}
		}
	}
}

func truncated64(g *philox, out []float64) {
	s := newSingle(g)
	for n := 0; ; {
		a, b := normal64(s.next(), s.next(), s.next(), s.next())
		for _, f := range [2]float64{a, b} {
			if f < cut && f > -cut {
				out[n] = f
				if n++; n == len(out) {
					return
				}
			}
		}
	}
}

// fillOutput sets output 0 to random elements.
func (d distribution) fillOutput(c *graph.Context, dtype tensor.DType, shape tensor.Shape, gen func(n int) philox) error {
	if dtype == tensor.Float64 {
		out, err := setOutput[float64](c, 0, shape)
		if err != nil {
			return err
		}
		d.fill().f64(gen(len(out)), out)
		return nil
	}
	out, err := setOutput[float32](c, 0, shape)
	if err != nil {
		return err
	}
	d.fill().f32(gen(len(out)), out)
	return nil
}

// checkRandomType refuses the types whose values would not be TensorFlow's.
func checkRandomType(n *graph.Node) error {
	if t := n.Type("dtype"); t != tensor.Float32 && t != tensor.Float64 {
		return noType("dtype", t)
	}
	return nil
}

func newRandom(d distribution) NewFunc {
	return func(n *graph.Node, s *State) (graph.Kernel, error) {
		if err := checkRandomType(n); err != nil {
			return nil, err
		}
		dtype := n.Type("dtype")
		return s.generators.kernel(n, func(c *graph.Context, g *generator) error {
			shape, err := shapeOf(c, 0)
			if err != nil {
				return err
			}
			return d.fillOutput(c, dtype, shape, func(n int) philox { return g.reserve(n, reserved) })
		}), nil
	}
}

func newStateless(d distribution) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		if err := checkRandomType(n); err != nil {
			return nil, err
		}
		dtype := n.Type("dtype")
		return graph.KernelFunc(func(c *graph.Context) error {
			shape, err := shapeOf(c, 0)
			if err != nil {
				return err
			}
			seed, err := intsOf(c, 1)
			if err != nil {
				return err
			}
			if len(seed) != 2 || c.Input(1).Shape().Rank() != 1 {
				return invalid("seed must have shape [2], not %s", c.Input(1).Shape())
			}
			return d.fillOutput(c, dtype, shape, func(int) philox { return scrambled(seed[0], seed[1]) })
		}), nil
	}
}

// scrambled returns the generator of the stateless ops. They mix the seed, so that both halves count.
func scrambled(seed0, seed1 int64) philox {
	mixer := philox{
		counter: [4]uint32{uint32(seed0), uint32(seed0 >> 32), uint32(seed1), uint32(seed1 >> 32)},
		key:     [2]uint32{0x3ec8f720, 0x02461e29},
	}
	mix := mixer.next()
	return philox{counter: [4]uint32{2: mix[2], 3: mix[3]}, key: [2]uint32{mix[0], mix[1]}}
}

// philoxAlgorithm is TensorFlow's number of the generator, autoAlgorithm that of its choice.
const (
	philoxAlgorithm = 1
	autoAlgorithm   = 3
)

// keyCounter gives the key and counter that a seed makes, for the second form of the stateless ops.
func keyCounter(c *graph.Context) error {
	seed, err := intsOf(c, 0)
	if err != nil {
		return err
	}
	if len(seed) != 2 || c.Input(0).Shape().Rank() != 1 {
		return invalid("seed must have shape [2], not %s", c.Input(0).Shape())
	}
	gen := scrambled(seed[0], seed[1])
	key, err := setOutput[uint64](c, 0, tensor.Vector(1))
	if err != nil {
		return err
	}
	counter, err := setOutput[uint64](c, 1, tensor.Vector(2))
	if err != nil {
		return err
	}
	key[0] = uint64(gen.key[0]) | uint64(gen.key[1])<<32
	counter[0] = uint64(gen.counter[0]) | uint64(gen.counter[1])<<32
	counter[1] = uint64(gen.counter[2]) | uint64(gen.counter[3])<<32
	if len(c.Outputs) > 2 {
		return setAlgorithm(c, 2)
	}
	return nil
}

func setAlgorithm(c *graph.Context, i int) error {
	return setInts(c, i, tensor.Int32, tensor.Shape{}, []int64{philoxAlgorithm})
}

func newKeyed(d distribution) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		if err := checkRandomType(n); err != nil {
			return nil, err
		}
		dtype := n.Type("dtype")
		return graph.KernelFunc(func(c *graph.Context) error {
			shape, err := shapeOf(c, 0)
			if err != nil {
				return err
			}
			key, err := inputOf[uint64](c, 1)
			if err != nil {
				return err
			}
			counter, err := inputOf[uint64](c, 2)
			if err != nil {
				return err
			}
			algorithm, err := intOf(c, 3)
			if err != nil {
				return err
			}
			if algorithm != philoxAlgorithm && algorithm != autoAlgorithm {
				return invalid("alg must be %d (Philox) or %d (automatic): the kernel set go has no generator %d",
					philoxAlgorithm, autoAlgorithm, algorithm)
			}
			if len(key) != 1 || len(counter) < 2 {
				return invalid("key must have shape [1] and counter at least [2], not %s and %s", c.Input(1).Shape(), c.Input(2).Shape())
			}
			gen := newPhilox(key[0], counter[1])
			gen.counter[0], gen.counter[1] = uint32(counter[0]), uint32(counter[0]>>32)
			return d.fillOutput(c, dtype, shape, func(int) philox { return gen })
		}), nil
	}
}

func newRandomInt(n *graph.Node, s *State) (graph.Kernel, error) {
	dtype := n.Type("Tout")
	return s.generators.kernel(n, func(c *graph.Context, g *generator) error {
		shape, err := shapeOf(c, 0)
		if err != nil {
			return err
		}
		lo, err := intOf(c, 1)
		if err != nil {
			return err
		}
		hi, err := intOf(c, 2)
		if err != nil {
			return err
		}
		if shape.Elements() > 0 && lo >= hi {
			return invalid("Need minval < maxval, got %d >= %d", lo, hi)
		}
		if dtype == tensor.Int64 {
			return fillInt64(c, shape, g, lo, uint64(hi)-uint64(lo))
		}
		return fillInt32(c, shape, g, int32(lo), uint32(hi)-uint32(lo))
	}), nil
}

func fillInt32(c *graph.Context, shape tensor.Shape, g *generator, lo int32, span uint32) error {
	out, err := setOutput[int32](c, 0, shape)
	if err != nil {
		return err
	}
	gen := g.reserve(len(out), reserved)
	for i := 0; i < len(out); i += 4 {
		for j, x := range gen.next() {
			if i+j < len(out) {
				out[i+j] = int32(uint32(lo) + x%span)
			}
		}
	}
	return nil
}

func fillInt64(c *graph.Context, shape tensor.Shape, g *generator, lo int64, span uint64) error {
	out, err := setOutput[int64](c, 0, shape)
	if err != nil {
		return err
	}
	gen := g.reserve(len(out), reserved)
	for i := 0; i < len(out); i += 2 {
		x := gen.next()
		for j := range min(2, len(out)-i) {
			out[i+j] = int64(uint64(lo) + (uint64(x[2*j])|uint64(x[2*j+1])<<32)%span)
		}
	}
	return nil
}
