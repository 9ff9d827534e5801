package tensorproto

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Decoder turns messages into tensors. Its zero value is ready.
type Decoder struct {
	// Allocator gives the memory of plain elements; nil means tensor.Heap. Where it is a
	// tensor.Reserver its limit also counts the elements that are not plain memory, and
	// what parsing a message takes.
	Allocator tensor.Allocator
	// MaxExpand is how many bytes more than the message holds a tensor may
	// take; 0 means DefaultMaxExpand, a negative number that only the
	// allocator sets a limit. Elements that are not plain memory do not come
	// from the allocator: for them a negative number is DefaultMaxExpand.
	MaxExpand int64
}

// FromProto is Decoder.FromProto with the given allocator.
func FromProto(p *pb.TensorProto, a tensor.Allocator) (*tensor.Tensor, error) {
	return Decoder{Allocator: a}.FromProto(p)
}

// Unmarshal is Decoder.Unmarshal with the given allocator.
func Unmarshal(b []byte, a tensor.Allocator) (*tensor.Tensor, error) {
	return Decoder{Allocator: a}.Unmarshal(b)
}

// Unmarshal parses a serialised TensorProto. The tensor holds no part of b; its
// only reference is the caller's. Beyond what FromProto refuses, bytes that
// are no TensorProto are InvalidArgument.
func (d Decoder) Unmarshal(b []byte) (*tensor.Tensor, error) {
	if h, ok := ParseHeader(b, len(b)); ok {
		t, err := tensor.Allocate(d.allocator(), h.DType, h.Shape)
		if err != nil {
			return nil, refused(h.DType, h.Shape, err)
		}
		copy(t.Bytes(), b[h.Start:])
		return t, nil
	}
	p, reserved, err := d.parse(b)
	if err != nil {
		return nil, err
	}
	defer reserved.Release()
	return d.FromProto(p)
}

// Type returns the type and shape of a serialised TensorProto, whose elements may be
// elsewhere. It fails like Unmarshal.
func (d Decoder) Type(b []byte) (tensor.DType, tensor.Shape, error) {
	p, reserved, err := d.parse(b)
	if err != nil {
		return tensor.Invalid, tensor.Shape{}, err
	}
	defer reserved.Release()
	return typeOf(p)
}

// parse reads a message after it has reserved the memory for that. The caller releases
// the reservation when it needs the message no more.
func (d Decoder) parse(b []byte) (*pb.TensorProto, *tensor.Buffer, error) {
	if err := checkPacked(b, false); err != nil {
		return nil, nil, status.From(err).WithPrefix("Cannot parse tensor from proto")
	}
	reserved, err := tensor.Reserve(d.allocator(), parsedSize(b, maxNesting))
	if err != nil {
		return nil, nil, status.From(err).WithPrefix("Cannot parse tensor from proto")
	}
	p := new(pb.TensorProto)
	if err := proto.Unmarshal(b, p); err != nil {
		reserved.Release()
		return nil, nil, status.Errorf(status.InvalidArgument,
			"Cannot parse tensor from proto: the %d bytes are no TensorProto: %w", len(b), err)
	}
	return p, reserved, nil
}

// FromProto returns the tensor that p describes, by TensorFlow's rules:
//
//   - tensor_content, when it is not empty, holds all elements;
//   - else they stand in the list for the type. When there are fewer values
//     than elements the last one repeats (the others of a resource or variant
//     tensor are empty); without any, all are zero; surplus ones are ignored;
//   - a tensor without elements needs no more than a valid type and shape.
//
// The tensor holds no part of p; its only reference is the caller's. A message
// that contradicts itself is InvalidArgument, a tensor that takes more than
// the allocator or MaxExpand allows ResourceExhausted; the text says which
// type, shape and field. Nothing is allocated before the message has been
// found to hold what its shape says, apart from MaxExpand.
func (d Decoder) FromProto(p *pb.TensorProto) (*tensor.Tensor, error) {
	dtype, shape, err := typeOf(p)
	if err != nil {
		return nil, err
	}
	var t *tensor.Tensor
	if dtype.Plain() {
		t, err = d.plain(p, dtype, shape)
	} else {
		t, err = d.elements(p, dtype, shape)
	}
	if err != nil {
		return nil, refused(dtype, shape, err)
	}
	return t, nil
}

func typeOf(p *pb.TensorProto) (tensor.DType, tensor.Shape, error) {
	dtype, err := DTypeFromProto(p.GetDtype())
	if err != nil {
		return tensor.Invalid, tensor.Shape{}, status.From(err).WithPrefix("Cannot parse tensor from proto")
	}
	shape, err := ShapeFromProto(p.GetTensorShape())
	if err != nil {
		return tensor.Invalid, tensor.Shape{}, status.From(err).WithPrefix("Cannot parse tensor from proto: dtype " + dtype.String())
	}
	return dtype, shape, nil
}

func refused(dtype tensor.DType, shape tensor.Shape, err error) error {
	return status.From(err).WithPrefix("Cannot parse tensor from proto: dtype " + dtype.String() + ", shape " + shape.String())
}

func (d Decoder) allocator() tensor.Allocator {
	if d.Allocator == nil {
		return tensor.Heap{}
	}
	return d.Allocator
}

// plain decodes elements that are plain memory.
func (d Decoder) plain(p *pb.TensorProto, dtype tensor.DType, shape tensor.Shape) (*tensor.Tensor, error) {
	size, err := tensor.ByteSize(dtype, shape)
	if err != nil {
		return nil, err
	}
	content := p.GetTensorContent()
	switch {
	case size == 0:
		return tensor.Allocate(d.allocator(), dtype, shape)
	case len(content) > 0 && len(content) != size:
		return nil, status.Errorf(status.InvalidArgument,
			"tensor_content has %d bytes; %d are needed", len(content), size)
	case len(content) == 0:
		if err := d.checkExpand(shape.Elements(), listLen(p, dtype), int64(dtype.Size())); err != nil {
			return nil, err
		}
	}
	t, err := tensor.Allocate(d.allocator(), dtype, shape)
	if err != nil {
		return nil, err
	}
	if len(content) > 0 {
		copy(t.Bytes(), content)
	} else if err := fillFromList(t, p); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// checkExpand refuses n elements of the given size when the message has so few
// values that filling the rest takes more than MaxExpand.
func (d Decoder) checkExpand(n int64, values int, size int64) error {
	limit := d.MaxExpand
	if limit == 0 {
		limit = DefaultMaxExpand
	}
	if missing := n - int64(values); limit > 0 && missing > limit/size {
		return status.Errorf(status.ResourceExhausted,
			"the message has %d values for %d elements; filling in the rest takes more than the limit of %d bytes",
			values, n, limit)
	}
	return nil
}

// elements decodes elements that are not plain memory. Their memory is reserved before it
// is made.
func (d Decoder) elements(p *pb.TensorProto, dtype tensor.DType, shape tensor.Shape) (*tensor.Tensor, error) {
	n := shape.Elements()
	var size int64 // of the elements, without their headers
	content := p.GetTensorContent()
	switch {
	case n == 0:
	case len(content) > 0:
		lengths, err := checkContent(content, n)
		if err != nil {
			return nil, err
		}
		size = int64(len(content) - lengths)
	default:
		if d.MaxExpand < 0 {
			d.MaxExpand = DefaultMaxExpand // a slice for which there is no memory ends the process
		}
		if err := d.checkExpand(n, listLen(p, dtype), tensor.ElementOverhead); err != nil {
			return nil, err
		}
		size = listSize(p, dtype)
	}
	reserved, err := tensor.Reserve(d.allocator(), size+tensor.ElementOverhead*n)
	if err != nil {
		return nil, err
	}
	elems := make([]string, n)
	if len(content) > 0 {
		err = splitContent(elems, content, int(size), dtype)
	} else {
		err = elementsFromList(elems, p, dtype)
	}
	var t *tensor.Tensor
	if err == nil {
		t, err = tensor.FromReserved(dtype, shape, elems, reserved)
	}
	if err != nil {
		reserved.Release()
		return nil, err
	}
	return t, nil
}

// checkContent checks a tensor_content of n lengths and then n elements, and returns how
// many bytes the lengths take.
func checkContent(content []byte, n int64) (int, error) {
	if n > int64(len(content)) { // a length takes a byte at least
		return 0, status.Errorf(status.InvalidArgument,
			"tensor_content has %d bytes, too few for the lengths of %d elements", len(content), n)
	}
	lengths := content
	var total uint64
	for i := range n {
		v, m := protowire.ConsumeVarint(lengths)
		if m < 0 {
			return 0, status.Errorf(status.InvalidArgument,
				"tensor_content: the length of element %d is no varint", i)
		}
		lengths = lengths[m:]
		if v > uint64(len(content)) {
			return 0, status.Errorf(status.InvalidArgument,
				"tensor_content: element %d has %d bytes, more than there are", i, v)
		}
		total += v // n and v are at most len(content), so no overflow in any memory that exists
	}
	if total != uint64(len(lengths)) {
		return 0, status.Errorf(status.InvalidArgument,
			"tensor_content: the elements have %d bytes; %d follow their lengths", total, len(lengths))
	}
	return len(content) - len(lengths), nil
}

// splitContent cuts a checked tensor_content, whose elements have size bytes, into elems.
func splitContent(elems []string, content []byte, size int, dtype tensor.DType) error {
	rest := string(content[len(content)-size:]) // one copy for all elements
	for i := range elems {
		v, m := protowire.ConsumeVarint(content)
		content = content[m:]
		elems[i], rest = rest[:v], rest[v:]
		if err := checkElement(elems[i], dtype); err != nil {
			return status.Errorf(status.InvalidArgument, "tensor_content: element %d: %w", i, err)
		}
	}
	return nil
}

// checkElement refuses an element that is not the message it should be.
func checkElement(e string, dtype tensor.DType) error {
	switch dtype {
	case tensor.Resource:
		return proto.Unmarshal([]byte(e), new(pb.ResourceHandleProto))
	case tensor.Variant:
		if err := checkPacked([]byte(e), true); err != nil {
			return err
		}
		return proto.Unmarshal([]byte(e), new(pb.VariantTensorDataProto))
	}
	return nil
}
