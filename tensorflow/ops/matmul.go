package ops

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func matmulOps() []entry {
	const batch = `; adj_x: bool = false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false`
	return []entry{
		{`MatMul(a: T, b: T) -> (product: T); transpose_a: bool = false; transpose_b: bool = false; T: {bfloat16, half, float, ` +
			`double, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}; grad_a: bool = false; grad_b: bool = false`,
			newMatMul("T", "transpose_a", "transpose_b")},
		{`BatchMatMul(x: T, y: T) -> (output: T); T: {bfloat16, half, float, double, int32, int64, complex64, complex128}` + batch,
			newMatMul("T", "adj_x", "adj_y")},
		{`BatchMatMulV2(x: T, y: T) -> (output: T); T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, ` +
			`uint64, complex64, complex128}` + batch, newMatMul("T", "adj_x", "adj_y")},
		{`_FusedMatMul(a: T, b: T, args: num_args*T) -> (product: T); transpose_a: bool = false; transpose_b: bool = false; ` +
			`T: {bfloat16, half, float}; num_args: int >= 0; fused_ops: list(string) = []; epsilon: float = 0.0001; ` +
			`leakyrelu_alpha: float = 0.2`, smallFloats(newFusedMatMul)},
	}
}

// newMatMul makes the kernels of products of matrices. The attributes a and b say which is transposed.
func newMatMul(attr, a, b string) NewFunc {
	return smallFloats(func(n *graph.Node, _ *State) (graph.Kernel, error) {
		transA, transB := n.Bool(a), n.Bool(b)
		batch := a != "transpose_a"
		switch n.Type(attr) {
		case tensor.Float32:
			return &product[float32]{transA, transB, batch, multiply32}, nil
		case tensor.Float64:
			return &product[float64]{transA, transB, batch, multiply64}, nil
		case tensor.Int32:
			return &product[int32]{transA, transB, batch, multiplyPlain[int32]}, nil
		case tensor.Int64:
			return &product[int64]{transA, transB, batch, multiplyPlain[int64]}, nil
		}
		return nil, noType(attr, n.Type(attr))
	})
}

// matrix describes one operand of a product.
type matrix[T number] struct {
	data       []T
	rows, cols int // as stored
	trans      bool
}

// product is the kernel of a product of matrices, or of batches of them.
type product[T number] struct {
	transA, transB, batch bool
	// multiply sets the m·n elements of z to the product over k, all positive.
	multiply func(z []T, m, n, k int, a, b matrix[T])
}

// Compute implements graph.Kernel.
func (p *product[T]) Compute(c *graph.Context) error {
	a, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	b, err := inputOf[T](c, 1)
	if err != nil {
		return err
	}
	sa, sb := c.Input(0).Shape(), c.Input(1).Shape()
	if ra, rb := sa.Rank(), sb.Rank(); ra < 2 || rb < 2 || (!p.batch && (ra != 2 || rb != 2)) {
		return invalid("In[0] and In[1] must be matrices, but have the shapes %s and %s", sa, sb)
	}
	ma := matrix[T]{rows: int(sa.Dim(sa.Rank() - 2)), cols: int(sa.Dim(sa.Rank() - 1)), trans: p.transA}
	mb := matrix[T]{rows: int(sb.Dim(sb.Rank() - 2)), cols: int(sb.Dim(sb.Rank() - 1)), trans: p.transB}
	m, k := ma.size()
	kb, n := mb.size()
	if k != kb {
		return invalid("Matrix size-incompatible: In[0]: %s, In[1]: %s", sa, sb)
	}
	outer, err := newBroadcast(prefix(sa), prefix(sb))
	if err != nil {
		return err
	}
	shape, err := newShape(append(outer.shape.Dims(), int64(m), int64(n)))
	if err != nil {
		return err
	}
	z, err := setOutput[T](c, 0, shape)
	if err != nil || len(z) == 0 {
		return err
	}
	if k == 0 {
		clear(z)
		return nil
	}
	wa, wb := newWalker(prefix(sa), outer.shape), newWalker(prefix(sb), outer.shape)
	for i := range outer.shape.Elements() {
		ma.data, mb.data = a[int(wa.offset)*m*k:][:m*k], b[int(wb.offset)*k*n:][:k*n]
		p.multiply(z[int(i)*m*n:][:m*n], m, n, k, ma, mb)
		wa.next()
		wb.next()
	}
	return nil
}

// size returns the rows and columns after the transposition.
func (m matrix[T]) size() (rows, cols int) {
	if m.trans {
		return m.cols, m.rows
	}
	return m.rows, m.cols
}

// prefix returns a shape without its last two dimensions.
func prefix(s tensor.Shape) tensor.Shape {
	p, err := newShape(s.Dims()[:s.Rank()-2])
	if err != nil { // a product that overflows, hidden by a zero in the last dimensions
		return tensor.Shape{}
	}
	return p
}

func transpose(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

func multiply32(z []float32, m, n, k int, a, b matrix[float32]) {
	clear(z)
	gonum.Implementation{}.Sgemm(transpose(a.trans), transpose(b.trans), m, n, k, 1, a.data, a.cols, b.data, b.cols, 0, z, n)
}

func multiply64(z []float64, m, n, k int, a, b matrix[float64]) {
	clear(z)
	gonum.Implementation{}.Dgemm(transpose(a.trans), transpose(b.trans), m, n, k, 1, a.data, a.cols, b.data, b.cols, 0, z, n)
}

// multiplyPlain is for integers.
func multiplyPlain[T number](z []T, m, n, k int, a, b matrix[T]) {
	at := func(x matrix[T], i, j int) T {
		if x.trans {
			i, j = j, i
		}
		return x.data[i*x.cols+j]
	}
	for i := range m {
		for j := range n {
			sum := T(0)
			for l := range k {
				sum += at(a, i, l) * at(b, l, j)
			}
			z[i*n+j] = sum
		}
	}
}

// newFusedMatMul makes the kernel of what Grappler makes of MatMul, BiasAdd and an activation.
func newFusedMatMul(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("T"); d != tensor.Float32 {
		return nil, noType("T", d)
	}
	fused := n.Attr("fused_ops").GetList().GetS()
	var activation func(float32) float32
	for i, op := range fused {
		switch name := string(op); {
		case name == "BiasAdd" && i == 0:
		case i == 1 && name == "LeakyRelu":
			alpha := n.Float("leakyrelu_alpha")
			activation = func(x float32) float32 { return max(x, alpha*x) }
		case i == 1:
			k, ok := floatUnary[float32](name).(*unaryKernel[float32, float32])
			if !ok {
				return nil, refused("fused_ops = %q", name)
			}
			activation = k.f
		default:
			return nil, refused("fused_ops = %q", name)
		}
	}
	if len(fused) == 0 {
		return nil, refused("fused_ops = []")
	}
	k := &product[float32]{transA: n.Bool("transpose_a"), transB: n.Bool("transpose_b"), multiply: multiply32}
	return graph.KernelFunc(func(c *graph.Context) error {
		if len(c.Inputs) != 3 {
			return invalid("_FusedMatMul with BiasAdd has one argument beside the matrices, not %d", len(c.Inputs)-2)
		}
		if err := k.Compute(c); err != nil {
			return err
		}
		return addBias(c, c.Outputs[0].Tensor, activation)
	}), nil
}

// addBias adds input 2 to each row of z, a matrix, and applies the activation.
func addBias(c *graph.Context, t *tensor.Tensor, activation func(float32) float32) error {
	bias, err := inputOf[float32](c, 2)
	if err != nil {
		return err
	}
	z, err := tensor.Values[float32](t)
	if err != nil {
		return err
	}
	if c.Input(2).Shape().Rank() != 1 || int64(len(bias)) != t.Shape().Dim(1) {
		return invalid("the bias must have an element for each of %d columns, but has the shape %s", t.Shape().Dim(1), c.Input(2).Shape())
	}
	for i := 0; i < len(z); i += len(bias) {
		row := z[i : i+len(bias)]
		for j := range row {
			row[j] += bias[j]
			if activation != nil {
				row[j] = activation(row[j])
			}
		}
	}
	return nil
}
