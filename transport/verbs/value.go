package verbstransport

import (
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// describe returns the meta-data of a value whose elements are plain memory.
func describe(t *tensor.Tensor) wire.Value {
	return wire.Value{
		DType: t.DType(), Size: uint64(t.Size()), //nolint:gosec // never negative
		Dims: wire.AppendDims(nil, t.Shape().Dims()...),
	}
}

// deadValue returns the meta-data of a dead value. It has no content, and its type is
// ignored (PROTOCOL.md section 3: float[0]).
func deadValue() wire.Value {
	return wire.Value{DType: tensor.Float32, Dead: true, Dims: wire.AppendDims(nil, 0)}
}

// describeProto returns the meta-data of a value that is sent as a serialised TensorProto
// of size bytes.
func describeProto(t *tensor.Tensor, size int) wire.Value {
	v := describe(t)
	v.Proto, v.Size = true, uint64(size) //nolint:gosec // never negative
	return v
}

// shapeOf returns the shape of a value.
func shapeOf(v *wire.Value) (tensor.Shape, error) {
	return tensor.NewShape(v.Dims.AppendTo(make([]int64, 0, v.Dims.Count()))...)
}

// fromMessage makes a value whose content came in a message. It copies content.
func fromMessage(v *wire.Value, content []byte, a tensor.Allocator) (rendezvous.Value, error) {
	shape, err := shapeOf(v)
	if err != nil {
		return rendezvous.Value{}, err
	}
	if v.Proto {
		t, err := tensorproto.Unmarshal(content, a)
		return rendezvous.Value{Tensor: t}, err
	}
	t, err := tensor.Allocate(a, v.DType, shape)
	if err != nil {
		return rendezvous.Value{}, err
	}
	copy(t.Bytes(), content)
	return rendezvous.Value{Tensor: t, Dead: v.Dead}, nil
}

// fromMemory makes a value whose content was written into buf. It takes over the reference
// to buf.
func fromMemory(v *wire.Value, buf *tensor.Buffer, a tensor.Allocator) (rendezvous.Value, error) {
	if v.Proto {
		defer buf.Release()
		t, err := tensorproto.Unmarshal(buf.Bytes()[:v.Size], a)
		return rendezvous.Value{Tensor: t}, err
	}
	shape, err := shapeOf(v)
	var t *tensor.Tensor
	if err == nil {
		t, err = tensor.New(v.DType, shape, buf)
	}
	if err != nil {
		buf.Release()
		return rendezvous.Value{}, status.From(err)
	}
	return rendezvous.Value{Tensor: t}, nil
}
