package library

import (
	"encoding/binary"
	"io"
	"math"
	"net"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// message is a request to the kernel process or its answer. On the socket it is
//
//	4 bytes   length of the header, little-endian
//	header    the fields below, in order; numbers are varints, texts have a length before them
//	content   the memory of each plain tensor among the values, in order
type message struct {
	id      uint64 // of the call, and of its answer
	op      operation
	context uint64
	name    string
	data    []byte
	outputs uint64 // how many values the answer of opRun has
	code    uint64 // of an answer; 0 is OK
	text    string
	values  []graph.Value
}

// operation is what a message asks for.
type operation uint64

const (
	opHello operation = iota + 1 // answer: name is the version, data the OpList
	opKernels
	opNewContext // answer: context
	opDeleteContext
	opAddFunction
	opRemoveFunction
	opStartStep
	opEndStep
	opRun
	opCancel // context is the id of the run
	opDrop   // context is the number of the object
	opAnswer
)

// The kinds of values.
const (
	valueTensor = iota + 1
	valueElements
	valueObject
)

// remote is an object in the other process, as a value of a message.
type remote uint64

func (remote) Retain()  {}
func (remote) Release() {}

// write writes a message. Its values are read until write returns.
func (m *message) write(w io.Writer) error {
	b := make([]byte, 4, 128)
	for _, n := range []uint64{m.id, uint64(m.op), m.context, m.outputs, m.code} {
		b = binary.AppendUvarint(b, n)
	}
	b = appendText(appendText(appendText(b, m.name), string(m.data)), m.text)
	b = binary.AppendUvarint(b, uint64(len(m.values)))
	buffers := net.Buffers{nil}
	for _, v := range m.values {
		switch {
		case v.Tensor != nil && v.Tensor.DType().Plain():
			b = appendShape(append(b, valueTensor), v.Tensor)
			buffers = append(buffers, v.Tensor.Bytes())
		case v.Tensor != nil:
			b = appendShape(append(b, valueElements), v.Tensor)
			for _, e := range v.Tensor.Elements() {
				b = appendText(b, e)
			}
		default:
			n, _ := v.Opaque.(remote)
			b = binary.AppendUvarint(append(b, valueObject), uint64(n))
		}
	}
	if len(b)-4 > maxHeader {
		return status.Errorf(status.ResourceExhausted, "%d bytes of strings or functions for the kernel process; the limit is %d", len(b), maxHeader)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	buffers[0] = b
	_, err := buffers.WriteTo(w)
	return err
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendShape(b []byte, t *tensor.Tensor) []byte {
	b = binary.AppendUvarint(b, uint64(t.DType()))
	dims := t.Shape().Dims()
	b = binary.AppendUvarint(b, uint64(len(dims)))
	for _, d := range dims {
		b = binary.AppendUvarint(b, uint64(d))
	}
	return b
}

// header reads the fields of a message.
type header struct {
	b   []byte
	bad bool
}

func (h *header) number() uint64 {
	v, n := binary.Uvarint(h.b)
	if n <= 0 {
		h.bad, h.b = true, nil
		return 0
	}
	h.b = h.b[n:]
	return v
}

func (h *header) text() string {
	n := h.number()
	if n > uint64(len(h.b)) {
		h.bad, h.b = true, nil
		return ""
	}
	s := string(h.b[:n])
	h.b = h.b[n:]
	return s
}

// shape reads what appendShape has written.
func (h *header) shape() (tensor.DType, tensor.Shape) {
	d := h.number()
	dims := make([]int64, min(h.number(), tensor.MaxDims+1))
	for i := range dims {
		dims[i] = int64(h.number())
	}
	s, err := tensor.NewShape(dims...)
	if err != nil || d > math.MaxInt32 || !tensor.DType(d).Valid() {
		h.bad = true
	}
	return tensor.DType(d), s
}

// readMessage reads a message. allocator returns where the tensors of a message go, once its id is
// known. When a tensor cannot be allocated the message has the error in place of its values.
func readMessage(r io.Reader, allocator func(id uint64) tensor.Allocator) (*message, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxHeader {
		return nil, status.Errorf(status.Internal, "a message with a header of %d bytes", n)
	}
	h := &header{b: make([]byte, n)}
	if _, err := io.ReadFull(r, h.b); err != nil {
		return nil, err
	}
	m := &message{id: h.number(), op: operation(h.number()), context: h.number(), outputs: h.number(), code: h.number()}
	m.name, m.data, m.text = h.text(), []byte(h.text()), h.text()
	a := allocator(m.id)
	values := h.number()
	if values > uint64(len(h.b)) {
		h.bad = true
	}
	for i := uint64(0); i < values && !h.bad; i++ {
		v, err := h.value(r, a)
		if h.bad {
			break
		}
		if err != nil {
			if status.CodeOf(err) != status.ResourceExhausted {
				return nil, err
			}
			m.code, m.text = uint64(status.ResourceExhausted), status.From(err).Message()
		}
		m.values = append(m.values, v)
	}
	if h.bad {
		release(m.values)
		return nil, status.New(status.Internal, "a message that cannot be read")
	}
	return m, nil
}

// value reads a value, and the content that belongs to it.
func (h *header) value(r io.Reader, a tensor.Allocator) (graph.Value, error) {
	switch h.number() {
	case valueObject:
		return graph.Value{Opaque: remote(h.number())}, nil
	case valueElements:
		_, shape := h.shape()
		if h.bad || shape.Elements() > int64(len(h.b)) {
			h.bad = true
			return graph.Value{}, nil
		}
		elems := make([]string, shape.Elements())
		for i := range elems {
			elems[i] = h.text()
		}
		t, err := tensor.FromStrings(shape, elems)
		return graph.Value{Tensor: t}, err
	case valueTensor:
		dtype, shape := h.shape()
		if h.bad {
			return graph.Value{}, nil
		}
		t, err := tensor.Allocate(a, dtype, shape)
		if err != nil {
			n, sizeErr := tensor.ByteSize(dtype, shape)
			if sizeErr != nil {
				return graph.Value{}, sizeErr
			}
			if _, skipErr := io.CopyN(io.Discard, r, int64(n)); skipErr != nil {
				return graph.Value{}, skipErr
			}
			return graph.Value{}, err
		}
		if _, err := io.ReadFull(r, t.Bytes()); err != nil {
			t.Release()
			return graph.Value{}, err
		}
		return graph.Value{Tensor: t}, nil
	}
	h.bad = true
	return graph.Value{}, nil
}

func release(values []graph.Value) {
	for _, v := range values {
		v.Release()
	}
}
