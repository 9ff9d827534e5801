package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Sort puts specs in the order of the reference implementation: large elements
// first, then by name. In this order every tensor of a written file begins at
// a multiple of its element's size, which mapped tensors need.
func Sort(specs []Spec) {
	slices.SortFunc(specs, func(a, b Spec) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(a.Name, b.Name))
	})
}

// layout returns the first bytes of a file with the given tensors in the given
// order, up to where the data begins, and the header that a reader of them
// gets.
func layout(specs []Spec, metadata map[string]string) ([]byte, *Header, error) {
	h := &Header{
		tensors:  make([]Info, 0, len(specs)),
		byName:   make(map[string]int, len(specs)),
		metadata: maps.Clone(metadata),
	}
	var e encoder
	e.buf.Write(make([]byte, lengthSize))
	e.buf.WriteByte('{')
	if len(metadata) > 0 {
		if err := e.metadata(metadata); err != nil {
			return nil, nil, err
		}
	}
	covered := int64(0)
	for i, spec := range specs {
		n, err := checkSpec(spec)
		if err != nil {
			return nil, nil, prefixed("tensor "+quote(spec.Name), err)
		}
		if _, ok := h.byName[spec.Name]; ok {
			return nil, nil, status.Errorf(status.AlreadyExists, "tensor %s stands twice", quote(spec.Name))
		}
		if covered > math.MaxInt64-lengthSize-MaxHeader-n {
			return nil, nil, invalid("tensor %s: with it the file has more than 2^63-1 bytes", quote(spec.Name))
		}
		if i > 0 || len(metadata) > 0 {
			e.buf.WriteByte(',')
		}
		e.tensor(spec, covered, covered+n)
		h.byName[spec.Name] = i
		h.tensors = append(h.tensors, Info{spec, covered, n})
		covered += n
	}
	e.buf.WriteByte('}')
	for e.buf.Len()%headerAlignment != 0 {
		e.buf.WriteByte(' ')
	}
	text := e.buf.Bytes()
	n := len(text) - lengthSize
	if n > MaxHeader || e.full {
		return nil, nil, invalid("the header of %d tensors takes more than %d bytes", len(specs), MaxHeader)
	}
	binary.LittleEndian.PutUint64(text, uint64(n))
	h.size = int64(len(text)) + covered
	for i := range h.tensors {
		h.tensors[i].Offset += int64(len(text))
	}
	return text, h, nil
}

// checkSpec returns the bytes of a tensor's elements.
func checkSpec(spec Spec) (int64, error) {
	switch {
	case !utf8.ValidString(spec.Name):
		return 0, invalid("the name is not UTF-8 text")
	case spec.Name == metadataKey:
		return 0, invalid("the format keeps this name for other use")
	case spec.Packed.Type == "" && !Supported(spec.DType):
		return 0, invalid("the format has no elements of type %v", spec.DType)
	}
	if spec.Packed.Type != "" {
		d, shape, err := spec.Packed.Tensor()
		if err != nil {
			return 0, err
		}
		if spec.DType != d || !spec.Shape.Equal(shape) {
			return 0, invalid("the bytes of %v are %v%v, not %v%v", spec.Packed, d, shape, spec.DType, spec.Shape)
		}
	}
	n, err := tensor.ByteSize(spec.DType, spec.Shape)
	return int64(n), err
}

// encoder writes the header's JSON in the reference implementation's form:
// no white space, keys in a fixed order, nothing escaped without need.
type encoder struct {
	buf  bytes.Buffer
	full bool // a text was left out, since the header is too large with it
}

func (e *encoder) metadata(metadata map[string]string) error {
	e.string(metadataKey)
	sep := byte('{')
	e.buf.WriteByte(':')
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
			return invalid("%s: key %s or its value is not UTF-8 text", metadataKey, quote(key))
		}
		e.buf.WriteByte(sep)
		e.string(key)
		e.buf.WriteByte(':')
		e.string(metadata[key])
		sep = ','
	}
	e.buf.WriteByte('}')
	return nil
}

func (e *encoder) tensor(spec Spec, begin, end int64) {
	shape := spec.Shape
	if spec.Packed.Type != "" {
		shape = spec.Packed.Shape
	}
	e.string(spec.Name)
	e.buf.WriteString(`:{"dtype":"`)
	e.buf.WriteString(dtypes[spec.rank()].name)
	e.buf.WriteString(`","shape":`)
	e.buf.WriteString(shape.String()) // "[2,3]", as in JSON
	e.buf.WriteString(`,"data_offsets":[`)
	e.buf.WriteString(strconv.FormatInt(begin, 10))
	e.buf.WriteByte(',')
	e.buf.WriteString(strconv.FormatInt(end, 10))
	e.buf.WriteString(`]}`)
}

func (e *encoder) string(s string) {
	if e.full = e.full || e.buf.Len()+len(s) > lengthSize+MaxHeader; e.full {
		return
	}
	enc := json.NewEncoder(&e.buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)               // a string into memory: cannot fail
	e.buf.Truncate(e.buf.Len() - 1) // Encode ends with a newline
}
