package safetensors

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// Spec is what a header says of a tensor apart from its place.
type Spec struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	// Packed is the type and shape in the header if package tensor lacks the
	// type; DType and Shape are then those of the bytes.
	Packed Packed
}

// Info describes a tensor in a file.
type Info struct {
	Spec
	Offset int64 // of its first byte, from the beginning of the file
	Bytes  int64 // what its elements take
}

// Header is the checked table of contents of a file. It is immutable.
type Header struct {
	tensors  []Info
	byName   map[string]int // index in tensors
	metadata map[string]string
	size     int64
}

// Size returns the bytes of the whole file.
func (h *Header) Size() int64 { return h.size }

// Tensors returns all tensors in the order of their offsets; empty ones at one
// offset in the order of the header. The slice must not be changed.
func (h *Header) Tensors() []Info { return h.tensors }

// Lookup returns the tensor with the given name.
func (h *Header) Lookup(name string) (Info, bool) {
	i, ok := h.byName[name]
	if !ok {
		return Info{}, false
	}
	return h.tensors[i], true
}

// Metadata returns the file's free text by text. The map must not be changed.
func (h *Header) Metadata() map[string]string { return h.metadata }

// find is Lookup with an error that says what is missing.
func (h *Header) find(name string) (Info, error) {
	info, ok := h.Lookup(name)
	if !ok {
		return Info{}, status.Errorf(status.NotFound, "no tensor %s among the %d of the file", quote(name), len(h.tensors))
	}
	return info, nil
}

// ReadHeader reads and checks the header of a file of size bytes. The error is
// InvalidArgument when it is not valid, naming tensor and field, DataLoss when
// the file is shorter than the header says, and otherwise what r's error stands
// for.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	text, err := readHeaderText(r, size)
	if err != nil {
		return nil, prefixed("safetensors", err)
	}
	h := &Header{byName: make(map[string]int), size: size}
	if err := h.parse(text); err != nil {
		return nil, prefixed("safetensors header", err)
	}
	if err := h.place(lengthSize + int64(len(text))); err != nil {
		return nil, prefixed("safetensors header", err)
	}
	return h, nil
}

// readHeaderText returns the JSON text, which is no longer than the file.
func readHeaderText(r io.ReaderAt, size int64) ([]byte, error) {
	const least = lengthSize + int64(len("{}"))
	if size < least {
		return nil, status.Errorf(status.DataLoss, "the file has %d bytes; the shortest possible has %d", size, least)
	}
	var length [lengthSize]byte
	if err := fileio.ReadAt(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > MaxHeader:
		return nil, invalid("the first 8 bytes give a header of %d bytes; at most %d are possible: not a safetensors file, or damaged", n, MaxHeader)
	case int64(n) > size-lengthSize:
		return nil, status.Errorf(status.DataLoss, "the first 8 bytes give a header of %d bytes; the file has %d after them", n, size-lengthSize)
	}
	text := make([]byte, n)
	if err := fileio.ReadAt(r, text, lengthSize); err != nil {
		return nil, err
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, invalid("the header does not begin with '{': %s", quote(string(text[:min(len(text), 16)])))
	}
	if !utf8.Valid(text) {
		return nil, invalid("the header is not UTF-8 text")
	}
	return text, nil
}

// parse reads the JSON text. Offsets are still counted from where the data
// begins.
func (h *Header) parse(text []byte) error {
	s, hasMetadata := newScanner(text), false
	err := s.object(func(key string) error {
		if key == metadataKey {
			if hasMetadata {
				return invalid("%s stands twice", metadataKey)
			}
			hasMetadata = true
			if s.null() { // none, as for the reference implementation
				return nil
			}
			return h.parseMetadata(s)
		}
		if _, ok := h.byName[key]; ok {
			return invalid("tensor %s stands twice", quote(key))
		}
		info, err := parseTensor(s)
		if err != nil {
			return prefixed("tensor "+quote(key), err)
		}
		info.Name = key
		h.byName[key] = len(h.tensors)
		h.tensors = append(h.tensors, info)
		return nil
	})
	if err != nil {
		return err
	}
	return s.end()
}

func (h *Header) parseMetadata(s scanner) error {
	h.metadata = make(map[string]string)
	err := s.object(func(key string) error {
		if _, ok := h.metadata[key]; ok {
			return invalid("key %s stands twice", quote(key))
		}
		value, err := s.string()
		if err != nil {
			return prefixed("key "+quote(key), err)
		}
		h.metadata[key] = value
		return nil
	})
	if err != nil {
		return prefixed(metadataKey, err)
	}
	return nil
}

// parseTensor reads one tensor's object. The Info's name is left empty.
func parseTensor(s scanner) (Info, error) {
	var (
		info                          Info
		name                          string
		shape                         tensor.Shape
		begin, end                    int64
		hasType, hasShape, hasOffsets bool
	)
	err := s.object(func(field string) (err error) {
		var seen *bool
		switch field {
		case "dtype":
			seen = &hasType
			name, err = s.string()
		case "shape":
			seen = &hasShape
			shape, err = parseShape(s)
		case "data_offsets":
			seen = &hasOffsets
			begin, end, err = parseOffsets(s)
		default:
			return s.skip()
		}
		if err != nil {
			return prefixed(field, err)
		}
		if *seen {
			return invalid("%s stands twice", field)
		}
		*seen = true
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	for _, field := range []struct {
		name string
		has  bool
	}{{"dtype", hasType}, {"shape", hasShape}, {"data_offsets", hasOffsets}} {
		if !field.has {
			return Info{}, invalid("%s is missing", field.name)
		}
	}
	if err := info.parseDType(name, shape); err != nil {
		return Info{}, err
	}
	n, err := tensor.ByteSize(info.DType, info.Shape)
	if err != nil {
		return Info{}, err
	}
	if end-begin != int64(n) {
		return Info{}, invalid("data_offsets: [%d,%d] hold %d bytes; %s takes %d", begin, end, end-begin, info.typeText(), n)
	}
	info.Offset, info.Bytes = begin, end-begin
	return info, nil
}

func parseShape(s scanner) (tensor.Shape, error) {
	var dims []int64
	err := s.array(func(i int) error {
		if i == tensor.MaxDims {
			return invalid("more than %d dimensions", tensor.MaxDims)
		}
		d, err := s.size()
		if err != nil {
			return prefixed("dimension "+strconv.Itoa(i), err)
		}
		dims = append(dims, d)
		return nil
	})
	if err != nil {
		return tensor.Shape{}, err
	}
	return tensor.NewShape(dims...)
}

func parseOffsets(s scanner) (begin, end int64, err error) {
	var offsets [2]int64
	n := 0
	err = s.array(func(i int) (err error) {
		if i == len(offsets) {
			return invalid("more than two offsets")
		}
		n = i + 1
		offsets[i], err = s.size()
		return err
	})
	begin, end = offsets[0], offsets[1]
	switch {
	case err != nil:
		return 0, 0, err
	case n < len(offsets):
		return 0, 0, invalid("%d offsets where two belong", n)
	case begin > end:
		return 0, 0, invalid("begin %d is behind end %d", begin, end)
	}
	return begin, end, nil
}

// place sorts the tensors by offset, checks that they cover what follows
// dataStart exactly, and makes their offsets count from the file's beginning.
func (h *Header) place(dataStart int64) error {
	slices.SortStableFunc(h.tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	covered := int64(0)
	for i := range h.tensors {
		t := &h.tensors[i]
		if t.Offset != covered {
			fault := "a hole"
			if t.Offset < covered {
				fault = "an overlap"
			}
			return invalid("tensor %s: data_offsets: begins at %d; the tensors before it end at %d: %s", quote(t.Name), t.Offset, covered, fault)
		}
		covered += t.Bytes // offset + bytes was read as an int64
		h.byName[t.Name] = i
	}
	switch have := h.size - dataStart; {
	case covered > have:
		return status.Errorf(status.DataLoss, "the tensors take %d bytes; the file has %d after the header", covered, have)
	case covered < have:
		return invalid("the tensors take %d bytes; the file has %d after the header, which belong to none", covered, have)
	}
	for i := range h.tensors {
		h.tensors[i].Offset += dataStart
	}
	return nil
}
