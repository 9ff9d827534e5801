package bundle

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Slice is a part of a tensor: an extent for each dimension. Nil is the whole tensor.
type Slice []Extent

// Extent is a part of a dimension. All of it is {0, Full}.
type Extent struct{ Start, Length int64 }

// Full is the length of an extent that is a whole dimension.
const Full = -1

// ParseSpec parses an element of shape_and_slices that is not empty, such as "4 2 0,3:-": the shape of the
// whole, and the part. It returns the shape of the part, too. Codes and texts are TensorFlow's.
func ParseSpec(spec string) (whole tensor.Shape, s Slice, part tensor.Shape, err error) {
	if len(spec) > maxSpec {
		return whole, nil, part, invalid("a shape_and_slice specification of %d bytes; at most %d are possible", len(spec), maxSpec)
	}
	fields := strings.Split(spec, " ")
	if len(fields) < 2 {
		return whole, nil, part, invalid("Need least two elements in shape_and_slice specification: %s", spec)
	}
	last := fields[len(fields)-1]
	s = Slice{}
	for item := range strings.SplitSeq(last, ":") {
		if item == "" {
			continue
		}
		e, err := parseExtent(item, last)
		if err != nil {
			return whole, nil, part, err
		}
		s = append(s, e)
	}
	dims := make([]int64, len(fields)-1)
	for i := range dims {
		if dims[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return whole, nil, part, invalid("Non numerical dimension in shape_and_slice: %s", spec)
		}
	}
	if whole, err = tensor.NewShape(dims...); err != nil {
		return whole, nil, part, invalid("shape_and_slice %s: %v", spec, err)
	}
	part, err = s.Shape(whole)
	return whole, s, part, err
}

func parseExtent(item, all string) (e Extent, err error) {
	if item == "-" {
		return Extent{0, Full}, nil
	}
	start, length, ok := strings.Cut(item, ",")
	if ok {
		e.Start, err = strconv.ParseInt(start, 10, 64)
	}
	if ok && err == nil {
		e.Length, err = strconv.ParseInt(length, 10, 64)
	}
	switch {
	case !ok || err != nil:
		return e, invalid("Expected a pair of numbers or '-' but got '%s': string = %s", item, all)
	case e.Start < 0 || e.Length <= 0:
		return e, invalid("Expected non-negative start and positive length but got start = %d, length = %d: string = %s", e.Start, e.Length, all)
	}
	return e, nil
}

// Shape returns the shape of the part of a tensor.
func (s Slice) Shape(whole tensor.Shape) (tensor.Shape, error) {
	if s == nil {
		return whole, nil
	}
	if len(s) != whole.Rank() {
		return tensor.Shape{}, status.Errorf(status.Internal, "Mismatching ranks: shape = %s, slice = %s", whole, s)
	}
	dims := whole.Dims()
	for i, e := range s {
		switch {
		case e.Length == Full:
		case e.Start < 0 || e.Length < 0 || e.Start > dims[i] || e.Length > dims[i]-e.Start:
			return tensor.Shape{}, status.Errorf(status.Internal, "Extent in dimension %d out of bounds: shape = %s, slice = %s", i, whole, s)
		default:
			dims[i] = e.Length
		}
	}
	return tensor.NewShape(dims...)
}

// String returns the part as shape_and_slices has it.
func (s Slice) String() string {
	var b strings.Builder
	for i, e := range s {
		if i > 0 {
			b.WriteByte(':')
		}
		if e.Length == Full {
			b.WriteByte('-')
		} else {
			b.WriteString(strconv.FormatInt(e.Start, 10) + "," + strconv.FormatInt(e.Length, 10))
		}
	}
	return b.String()
}

// within returns the extents of the part with lengths in place of Full. The slice fits the shape.
func (s Slice) within(whole tensor.Shape) Slice {
	r := make(Slice, whole.Rank())
	for i := range r {
		r[i] = Extent{0, whole.Dim(i)}
		if s != nil && s[i].Length != Full {
			r[i] = s[i]
		}
	}
	return r
}

// meet returns what two parts have in common; ok is false if that is nothing. Both are results of within.
func (s Slice) meet(o Slice) (r Slice, ok bool) {
	r = make(Slice, len(s))
	for i, e := range s {
		start := max(e.Start, o[i].Start)
		r[i] = Extent{start, min(e.Start+e.Length, o[i].Start+o[i].Length) - start}
		if r[i].Length <= 0 {
			return nil, false
		}
	}
	return r, true
}

// overlaps reports whether two parts have an element in common. Both are results of within.
func (s Slice) overlaps(o Slice) bool {
	for i, e := range s {
		if min(e.Start+e.Length, o[i].Start+o[i].Length) <= max(e.Start, o[i].Start) {
			return false
		}
	}
	return true
}

// elements is how many elements a result of within has.
func (s Slice) elements() int64 {
	n := int64(1)
	for _, e := range s {
		n *= e.Length
	}
	return n
}

func (s Slice) proto() *tfpb.TensorSliceProto {
	p := &tfpb.TensorSliceProto{}
	for _, e := range s {
		x := &tfpb.TensorSliceProto_Extent{}
		if e.Length != Full {
			x.Start, x.HasLength = e.Start, &tfpb.TensorSliceProto_Extent_Length{Length: e.Length}
		}
		p.Extent = append(p.Extent, x)
	}
	return p
}

// sliceOf returns the part that a message has.
func sliceOf(p *tfpb.TensorSliceProto) Slice {
	s := make(Slice, len(p.GetExtent()))
	for i, e := range p.GetExtent() {
		s[i] = Extent{0, Full}
		if e.GetHasLength() != nil && e.GetLength() != Full {
			s[i] = Extent{e.GetStart(), e.GetLength()}
		}
	}
	return s
}

// key returns the key of the part of a tensor: 0, the name, the number of dimensions, start and length of
// each, in TensorFlow's ordered code, whose bytes sort as what they encode.
func (s Slice) key(name string) string {
	b := []byte{0}
	for _, c := range []byte(name) {
		switch b = append(b, c); c {
		case 0:
			b = append(b, 0xff)
		case 0xff:
			b = append(b, 0)
		}
	}
	b = append(b, 0, 1)
	b = appendNumber(b, uint64(len(s)))
	for _, e := range s {
		b = appendSigned(appendSigned(b, e.Start), e.Length)
	}
	return string(b)
}

// appendNumber appends how many bytes v has, and these bytes, the highest first.
func appendNumber(b []byte, v uint64) []byte {
	n := (bits.Len64(v) + 7) / 8
	b = append(b, byte(n)) //nolint:gosec // at most 8
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i))) //nolint:gosec // one byte
	}
	return b
}

// appendSigned appends v in two's complement in the fewest groups of 7 bits. As many bits as there are bytes
// begin the number: ones, the reverse of the sign, and a bit that ends them follows from the sign.
func appendSigned(b []byte, v int64) []byte {
	magnitude, sign := uint64(v), byte(0) //nolint:gosec // the bits
	if v < 0 {
		magnitude, sign = ^magnitude, 0xff
	}
	n := bits.Len64(magnitude)/7 + 1 // 1 to 10 bytes
	code := append([]byte{sign, sign}, binary.BigEndian.AppendUint64(nil, uint64(v))...)
	code = code[len(code)-n:]
	// n ones at the front, xor the sign that is there.
	ones := ^uint16(0) << (16 - n)
	code[0] ^= byte(ones >> 8) //nolint:gosec // one byte
	if n > 8 {
		code[1] ^= byte(ones & 0xff)
	}
	return append(b, code...)
}
