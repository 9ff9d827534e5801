package ops

import (
	"maps"
	"math"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// fromBrain returns the value of a bfloat16.
func fromBrain(b tensor.BFloat16Bits) float32 { return math.Float32frombits(uint32(b) << 16) }

// toBrain rounds to the nearest bfloat16, and to the even one of two.
func toBrain(f float32) tensor.BFloat16Bits {
	bits := math.Float32bits(f)
	if f != f {
		return tensor.BFloat16Bits(bits>>16&0x8000 | 0x7fc0)
	}
	return tensor.BFloat16Bits((bits + 0x7fff + bits>>16&1) >> 16)
}

// fromHalf returns the value of a half.
func fromHalf(h tensor.Float16Bits) float32 {
	sign, exp, man := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
	}
	f := float32(man) / (1 << 24) // subnormal: man × 2⁻²⁴
	return math.Float32frombits(sign | math.Float32bits(f))
}

// toHalf rounds to the nearest half, and to the even one of two.
func toHalf(f float32) tensor.Float16Bits {
	bits := math.Float32bits(f)
	sign, abs := tensor.Float16Bits(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case abs > 0x7f800000: // not a number
		return sign | 0x7e00
	case abs >= 0x47800000-0x1000: // 65520 and above round to infinity
		return sign | 0x7c00
	case abs < 0x38800000: // below 2⁻¹⁴: the sum leaves the subnormal half, rounded, in the lowest bits
		sum := math.Float32frombits(abs) + 0.5
		return sign | tensor.Float16Bits(math.Float32bits(sum)-0x3f000000)
	}
	return sign | tensor.Float16Bits((abs+0xfff+abs>>13&1-(112<<23))>>13)
}

// isSmallFloat reports whether a type is one of the 16-bit floats.
func isSmallFloat(d tensor.DType) bool { return d == tensor.Float16 || d == tensor.BFloat16 }

// smallFloats returns a NewFunc that makes the kernels for the 16-bit floats from those for float:
// the inputs are converted to float, and the outputs back.
func smallFloats(f NewFunc) NewFunc {
	return func(n *graph.Node, s *State) (graph.Kernel, error) {
		small := tensor.Invalid
		for _, a := range n.OpDef.GetAttr() {
			if d := n.Type(a.GetName()); a.GetType() == "type" && isSmallFloat(d) {
				small = d
			}
		}
		if small == tensor.Invalid {
			return f(n, s)
		}
		wide := *n
		wide.Def = &tfpb.NodeDef{Name: n.Name, Op: n.Op, Attr: maps.Clone(n.Def.GetAttr())}
		for _, a := range n.OpDef.GetAttr() {
			if a.GetType() == "type" && n.Type(a.GetName()) == small {
				wide.Def.Attr[a.GetName()] = &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType(tensor.Float32)}}
			}
		}
		k, err := f(&wide, s)
		if err != nil {
			return nil, err
		}
		return &smallFloatKernel{wide: k, node: &wide}, nil
	}
}

type smallFloatKernel struct {
	wide graph.Kernel
	node *graph.Node
}

// Compute implements graph.Kernel.
func (k *smallFloatKernel) Compute(c *graph.Context) error {
	sub := *c
	sub.Node = k.node
	sub.Inputs = make([]graph.Value, len(c.Inputs))
	sub.Outputs = make([]graph.Value, len(c.Outputs))
	defer func() {
		for _, v := range append(sub.Inputs, sub.Outputs...) {
			v.Release()
		}
	}()
	for i, v := range c.Inputs {
		if v.Tensor == nil || !isSmallFloat(v.Tensor.DType()) {
			sub.Inputs[i] = v.Retain()
			continue
		}
		t, err := widen(c, v.Tensor)
		if err != nil {
			return err
		}
		sub.Inputs[i] = graph.Value{Tensor: t}
	}
	if err := k.wide.Compute(&sub); err != nil {
		return err
	}
	for i, v := range sub.Outputs {
		want := c.Node.OutTypes[i].Base()
		if v.Tensor == nil || !isSmallFloat(want) || v.Tensor.DType() != tensor.Float32 {
			c.Outputs[i] = v.Retain()
			continue
		}
		t, err := narrow(c, v.Tensor, want)
		if err != nil {
			return err
		}
		c.Set(i, t)
	}
	return nil
}

// widen returns a tensor of 16-bit floats as float.
func widen(c *graph.Context, t *tensor.Tensor) (*tensor.Tensor, error) {
	out, f, err := allocate[float32](c, t.Shape())
	if err != nil {
		return nil, err
	}
	if t.DType() == tensor.Float16 {
		err = mapTensor(f, t, fromHalf)
	} else {
		err = mapTensor(f, t, fromBrain)
	}
	if err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// narrow returns a tensor of float as 16-bit floats.
func narrow(c *graph.Context, t *tensor.Tensor, dtype tensor.DType) (*tensor.Tensor, error) {
	if dtype == tensor.Float16 {
		return narrowTo(c, t, toHalf)
	}
	return narrowTo(c, t, toBrain)
}

func narrowTo[R tensor.Element](c *graph.Context, t *tensor.Tensor, f func(float32) R) (*tensor.Tensor, error) {
	out, v, err := allocate[R](c, t.Shape())
	if err != nil {
		return nil, err
	}
	if err := mapTensor(v, t, f); err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// mapTensor sets out to f of each element of t, which has as many.
func mapTensor[T, R tensor.Element](out []R, t *tensor.Tensor, f func(T) R) error {
	in, err := tensor.Values[T](t)
	if err != nil {
		return err
	}
	parallel(len(out), func(from, to int) {
		for i := from; i < to; i++ {
			out[i] = f(in[i])
		}
	})
	return nil
}
