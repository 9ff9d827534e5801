package ops

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// goldenTensor is a tensor in testdata/golden.json: numbers are texts.
type goldenTensor struct {
	DType  string
	Shape  []int64
	Values []any
}

// goldenCase is a node that TensorFlow has run.
type goldenCase struct {
	Op        string
	Attrs     map[string]map[string]json.RawMessage
	Inputs    []goldenTensor
	Outputs   []goldenTensor
	Variables int // that many inputs are variables, and the outputs are their values afterwards
}

func readGolden(t testing.TB) []goldenCase {
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []goldenCase }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 500 {
		t.Fatalf("only %d cases", len(file.Cases))
	}
	return file.Cases
}

func (g goldenTensor) value(t testing.TB) graph.Value {
	t.Helper()
	d, ok := tensor.ParseDType(g.DType)
	if !ok {
		t.Fatalf("no type %s", g.DType)
	}
	texts := make([]string, len(g.Values))
	for i, v := range g.Values {
		texts[i] = fmt.Sprint(v)
	}
	if d == tensor.String {
		for i, s := range texts { // a rune is a byte
			bytes := make([]byte, 0, len(s))
			for _, r := range s {
				bytes = append(bytes, byte(r))
			}
			texts[i] = string(bytes)
		}
		return text(g.Shape, texts...)
	}
	if d == tensor.Complex64 || d == tensor.Complex128 {
		return goldenComplex(t, g.Shape, d, texts)
	}
	wide := make([]float64, len(texts))
	ints := make([]int64, len(texts))
	for i, s := range texts {
		switch s {
		case "true":
			wide[i], ints[i] = 1, 1
		case "false":
		default:
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.ParseInt(s, 10, 64)
			if u, errU := strconv.ParseUint(s, 10, 64); err != nil && errU == nil {
				n = int64(u)
			}
			wide[i], ints[i] = f, n
		}
	}
	from := in(g.Shape, wide...)
	switch d {
	case tensor.Float64:
		return from
	case tensor.Int64, tensor.Uint64, tensor.Int32, tensor.Uint32:
		from = in(g.Shape, ints...)
	}
	to, err := tensor.Allocate(tensor.Heap{}, d, from.Tensor.Shape())
	if err != nil {
		t.Fatal(err)
	}
	cast, err := findCast(from.Tensor.DType(), d)
	if err != nil {
		t.Fatal(err)
	}
	if from.Tensor.DType() == d {
		return from
	}
	if err := cast(to, from.Tensor); err != nil {
		t.Fatal(err)
	}
	return graph.Value{Tensor: to}
}

func goldenComplex(t testing.TB, dims []int64, d tensor.DType, texts []string) graph.Value {
	values := make([]complex128, len(texts)/2)
	for i := range values {
		re, err := strconv.ParseFloat(texts[2*i], 64)
		if err != nil {
			t.Fatal(err)
		}
		im, err := strconv.ParseFloat(texts[2*i+1], 64)
		if err != nil {
			t.Fatal(err)
		}
		values[i] = complex(re, im)
	}
	if d == tensor.Complex128 {
		return in(dims, values...)
	}
	small := make([]complex64, len(values))
	for i, v := range values {
		small[i] = complex64(v)
	}
	return in(dims, small...)
}

func (g goldenCase) attrs(t testing.TB) attrs {
	a := attrs{}
	for name, kinds := range g.Attrs {
		for kind, v := range kinds {
			switch kind {
			case "type":
				d, ok := tensor.ParseDType(decode[string](t, v))
				if !ok {
					t.Fatalf("no type %s", v)
				}
				a[name] = d
			case "int":
				a[name] = decode[int64](t, v)
			case "float":
				a[name] = decode[float64](t, v)
			case "bool":
				a[name] = decode[bool](t, v)
			case "ints":
				a[name] = decode[[]int](t, v)
			case "strings":
				a[name] = decode[[]string](t, v)
			default:
				a[name] = decode[string](t, v)
			}
		}
	}
	if axis, ok := a["axis"]; ok && g.Op == "Squeeze" { // the name in Python
		a["squeeze_dims"] = axis
	}
	return a
}

func decode[T any](t testing.TB, b json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// run runs the case and returns its outputs.
func (g goldenCase) run(t *testing.T) []graph.Value {
	b := newBench(t)
	var inputs []graph.Value
	for i, in := range g.Inputs {
		v := in.value(t)
		if i < g.Variables {
			h := b.runNamed(fmt.Sprint("v", i), "VarHandleOp", attrs{"dtype": v.Tensor.DType(), "shape": v.Tensor.Shape()})[0]
			b.run("AssignVariableOp", nil, h, v)
			v = h
		}
		inputs = append(inputs, v)
	}
	a := g.attrs(t)
	if g.Variables > 0 {
		a["dtype"] = inputs[g.Variables].Tensor.DType()
		if len(inputs) > g.Variables+1 && g.Op[:len("ResourceS")] == "ResourceS" {
			a["dtype"] = inputs[g.Variables+1].Tensor.DType()
		}
	}
	outs, err := b.try(b.node("n", g.Op, a, inputs...), inputs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range inputs[:g.Variables] {
		outs = append(outs, b.run("ReadVariableOp", attrs{"dtype": g.Outputs[len(outs)].value(t).Tensor.DType()}, v)[0])
	}
	return outs
}

// powerOfFtrl is the key of Ftrl with another power than the root: a difference of two powers, each right in its last
// bits, has fewer bits that are right.
const powerOfFtrl = "Ftrl with a power"

// key is what says how exact the values of the case must be.
func (g goldenCase) key() string {
	if strings.Contains(g.Op, "Ftrl") {
		if power := g.Inputs[len(g.Inputs)-1].Values[0]; power != "-0.5" && power != "0.0" {
			return powerOfFtrl
		}
	}
	return g.Op
}

// looser has the ops whose last bits depend on the order of a sum, or on the approximation of a
// function. Elements of all others are equal bit by bit.
var looser = map[string]bool{
	// TensorFlow's reciprocal root of floats is an approximation of the processor with one step of Newton. That of
	// 16-bit floats is rounded once in vectors, and twice in what remains of them.
	"ResourceApplyAdagrad": true, "ResourceApplyAdadelta": true, "ResourceApplyProximalAdagrad": true,
	"RandomStandardNormal double": true, "TruncatedNormal double": true,
	"StatelessRandomNormal double": true, "StatelessTruncatedNormal double": true,
	"BatchMatMulV2": true, "BiasAddGrad": true, "Cos": true, "Elu": true, "Erf": true, "Exp": true, "Expm1": true,
	"Log": true, "Log1p": true, "LogSoftmax": true, "MatMul": true, "Mean": true, "Pow": true, "Prod": true,
	"RandomStandardNormal": true,
	"Rsqrt":                true, "RsqrtGrad": true, "Selu": true, "Sigmoid": true, "SigmoidGrad": true, "Sin": true, "Softmax": true,
	"SoftmaxCrossEntropyWithLogits": true, "Softplus": true, "SoftplusGrad": true, "Softsign": true,
	"SparseSoftmaxCrossEntropyWithLogits": true,
	"Sum":                                 true, "Tanh": true, "TanhGrad": true,
}

// TestANodeGoesOnWithItsNumbers has what TensorFlow gives when it runs one node with 7 and then with 15
// elements: each run sets aside 256 groups of numbers for each element.
func TestANodeGoesOnWithItsNumbers(t *testing.T) {
	b := newBench(t)
	n := b.node("n", "RandomUniform", attrs{"seed": 87654321, "seed2": 42, "dtype": tensor.Float32}, vec[int32](7))
	k, err := b.state.NewKernel(n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.compute(k, n, vec[int32](7)); err != nil {
		t.Fatal(err)
	}
	outs, err := b.compute(k, n, vec[int32](3))
	if err != nil {
		t.Fatal(err)
	}
	b.want(outs[0], "float[3]: 0.5001906 0.17634559 0.69462466")
}

// TestKernelsComputeWhatTensorFlowComputes runs what integration/tensorflow/op_golden.py has run.
func TestKernelsComputeWhatTensorFlowComputes(t *testing.T) {
	for i, g := range readGolden(t) {
		t.Run(fmt.Sprint(g.Op, "/", i), func(t *testing.T) {
			outs := g.run(t)
			if len(outs) != len(g.Outputs) {
				t.Fatalf("%d outputs, want %d", len(outs), len(g.Outputs))
			}
			for j, want := range g.Outputs {
				compareGolden(t, g.key(), outs[j], want.value(t))
			}
		})
	}
}

// TestReferenceFormsComputeWhatResourceFormsDo runs the cases of optimisers and scatter on reference variables.
func TestReferenceFormsComputeWhatResourceFormsDo(t *testing.T) {
	set, ran := New(), 0
	for i, g := range readGolden(t) {
		op, ok := strings.CutPrefix(g.Op, "Resource")
		if !ok || set.OpDef(op) == nil {
			continue
		}
		ran++
		t.Run(fmt.Sprint(op, "/", i), func(t *testing.T) {
			b := newBench(t)
			var inputs []graph.Value
			for j, in := range g.Inputs {
				v := in.value(t)
				if j < g.Variables {
					v = b.variable(fmt.Sprint("v", j), v)
				}
				inputs = append(inputs, v)
			}
			if _, err := b.try(b.node("n", op, g.attrs(t), inputs...), inputs...); err != nil {
				t.Fatal(err)
			}
			for j, want := range g.Outputs {
				compareGolden(t, g.key(), b.read(inputs[j]), want.value(t))
			}
		})
	}
	if ran < 100 {
		t.Errorf("only %d cases", ran)
	}
}

func compareGolden(t *testing.T, op string, got, want graph.Value) {
	t.Helper()
	if got.Tensor == nil || got.Tensor.DType() != want.Tensor.DType() || !got.Tensor.Shape().Equal(want.Tensor.Shape()) {
		t.Fatalf("got  %s\nwant %s", show(got), show(want))
	}
	if tensor.Equal(got.Tensor, want.Tensor) {
		return
	}
	worst := distance(t, got.Tensor, want.Tensor)
	if worst == 0 || (op == powerOfFtrl && worst <= 20) || ((looser[op] || looser[op+" double"] && got.Tensor.DType() == tensor.Float64) && worst <= 2) {
		return
	}
	t.Errorf("the worst element is off by %g of what is allowed\ngot  %s\nwant %s", worst, show(got), show(want))
}

// distance returns how far elements are from each other, as a part of what is allowed for their type:
// 4 units of the last place, or as much of an eighth of the largest element: terms of a sum may cancel.
func distance(t *testing.T, got, want *tensor.Tensor) float64 {
	d := got.DType()
	allowed := map[tensor.DType]float64{
		tensor.Float32: 4 * 0x1p-23, tensor.Float64: 4 * 0x1p-52, tensor.Float16: 0x1p-10, tensor.BFloat16: 0x1p-7,
	}[d]
	if allowed == 0 {
		return math.Inf(1)
	}
	a, b := wideValues(t, got), wideValues(t, want)
	worst, scale := 0.0, 0.0
	for _, v := range b {
		if !math.IsInf(v, 0) && v == v {
			scale = max(scale, math.Abs(v)/8)
		}
	}
	for i := range a {
		if a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]) {
			continue
		}
		worst = max(worst, math.Abs(a[i]-b[i])/(allowed*max(math.Abs(b[i]), scale)))
		if a[i]-b[i] != a[i]-b[i] {
			return math.Inf(1)
		}
	}
	return worst
}

func wideValues(t *testing.T, x *tensor.Tensor) []float64 {
	t.Helper()
	if x.DType() != tensor.Float64 {
		cast, err := findCast(x.DType(), tensor.Float64)
		if err != nil {
			t.Fatal(err)
		}
		wide, err := tensor.Allocate(tensor.Heap{}, tensor.Float64, x.Shape())
		if err != nil {
			t.Fatal(err)
		}
		if err := cast(wide, x); err != nil {
			t.Fatal(err)
		}
		x = wide
	}
	v, err := tensor.Values[float64](x)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
