//go:build linux

package storm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/tryst-rdma/tryst/tensor"
)

// stamp says which version a block of a tensor is of. Every block of every tensor begins with it, so that a
// mix of two versions is seen wherever it is.
type stamp struct {
	Name   string `json:"n"` // of the publication
	Task   int    `json:"t"`
	Life   int    `json:"l"`
	Gen    int    `json:"g"` // counts the times that the life published the name anew: the epoch, as it is known before
	Number uint64 `json:"k"`
	Serial int    `json:"s"` // counts the calls of Update of the life
	Base   int    `json:"b"` // the serial from which the rest of each block is made; versions share it, so that they differ in little
}

// stampSize is the bytes of a stamp, which begins each block of a page.
const stampSize = 48

// names are the publications of versions. The tensors of weights keep their shapes, so that watchers may
// have memory for them; those of shapes change shapes, types and names.
const (
	weights = "weights"
	shapes  = "shapes"
)

func (s stamp) String() string {
	return fmt.Sprintf("%s of task %d life %d, publication %d, number %d (update %d, based on %d)", s.Name, s.Task, s.Life, s.Gen, s.Number, s.Serial, s.Base)
}

// bytes returns the stamp of a block of a tensor.
func (s stamp) bytes(of, block int) []byte {
	b := make([]byte, 0, stampSize)
	b = append(b, s.Name[:4]...)
	for _, n := range []int{s.Task, s.Life, s.Gen, s.Serial, s.Base, of, block} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n)) //nolint:gosec // small
	}
	b = binary.LittleEndian.AppendUint64(b, s.Number)
	return binary.LittleEndian.AppendUint64(b, mix(s.Number, uint64(s.Serial), uint64(of), uint64(block))) //nolint:gosec // only hashed
}

// readStamp returns the stamp of a block; false if there is none.
func readStamp(b []byte) (s stamp, ok bool) {
	if len(b) < stampSize {
		return stamp{}, false
	}
	for _, name := range []string{weights, shapes} {
		if string(b[:4]) == name[:4] {
			s.Name = name
		}
	}
	for i, p := range []*int{&s.Task, &s.Life, &s.Gen, &s.Serial, &s.Base} {
		*p = int(binary.LittleEndian.Uint32(b[4+4*i:]))
	}
	s.Number = binary.LittleEndian.Uint64(b[32:])
	return s, s.Name != ""
}

// tensorSpec describes a tensor of a version.
type tensorSpec struct {
	name  string
	dtype tensor.DType
	bytes int
}

// fixedSizes are the sizes of the tensors of weights in bytes: around the limits between the protocols.
var fixedSizes = []int{400 << 10, 0, 6, 100, eagerLimit + 8, unaryLimit + 8}

// specs returns the tensors of a version, the first of which has a stamp.
func (s stamp) specs() []tensorSpec {
	types := []tensor.DType{tensor.BFloat16, tensor.Uint8, tensor.Float32, tensor.Float8E4M3FN, tensor.Int64}
	var all []tensorSpec
	if s.Name == weights {
		for i, n := range fixedSizes {
			all = append(all, tensorSpec{modelTensor(i), types[i%2], n})
		}
		return all
	}
	drawn := mix(uint64(s.Task), uint64(s.Base), 3) //nolint:gosec // only hashed
	for i := range 1 + int(drawn%5) {               //nolint:gosec // small
		k := mix(drawn, uint64(i)) //nolint:gosec // only hashed
		all = append(all, tensorSpec{
			modelTensor(i + int(drawn>>8%2)), types[k%uint64(len(types))], //nolint:gosec // small
			8 * (stampSize + int(k>>8%(16<<10))), //nolint:gosec // small
		})
	}
	return all
}

// write writes the content of a tensor of a version.
func (s stamp) write(b []byte, of int) {
	base := basePage(mix(uint64(s.Task), uint64(s.Base), uint64(of), 4)) //nolint:gosec // only hashed
	for at := 0; at < len(b); at += page {
		copy(base, s.bytes(of, at/page))
		copy(b[at:], base)
	}
}

// tensors makes a version.
func (s stamp) tensors(a tensor.Allocator) ([]*tensor.Tensor, error) {
	var all []*tensor.Tensor
	for i, spec := range s.specs() {
		t, err := tensor.Allocate(a, spec.dtype, tensor.Vector(spec.bytes/spec.dtype.Size()))
		if err != nil {
			releaseAll(all)
			return nil, err
		}
		s.write(t.Bytes(), i)
		all = append(all, t.Named(spec.name))
	}
	return all, nil
}

func releaseAll(all []*tensor.Tensor) {
	for _, t := range all {
		t.Release()
	}
}

// readVersion returns the stamp of a version's first tensor, and what is not of this version; "" if nothing.
func readVersion(tensors map[string]*tensor.Tensor) (s stamp, torn string) {
	first, ok := tensors[modelTensor(0)]
	if !ok {
		first, ok = tensors[modelTensor(1)]
	}
	if !ok {
		return stamp{}, fmt.Sprintf("%d tensors, and not the first one", len(tensors))
	}
	if s, ok = readStamp(first.Bytes()); !ok {
		return stamp{}, "the first tensor has no stamp"
	}
	specs := s.specs()
	if len(specs) != len(tensors) {
		return s, fmt.Sprintf("%d tensors, %v has %d", len(tensors), s, len(specs))
	}
	for i, spec := range specs {
		t := tensors[spec.name]
		if t == nil || t.DType() != spec.dtype || t.Size() != int64(spec.bytes) {
			return s, fmt.Sprintf("tensor %s is %v, and not of %v", spec.name, t, s)
		}
		if text := s.differs(t.Bytes(), i); text != "" {
			return s, fmt.Sprintf("tensor %s: %s", spec.name, text)
		}
	}
	return s, ""
}

// differs describes the first block of a tensor that is not of the version; "" if all are.
func (s stamp) differs(b []byte, of int) string {
	want := make([]byte, page)
	base := basePage(mix(uint64(s.Task), uint64(s.Base), uint64(of), 4)) //nolint:gosec // only hashed
	for at := 0; at < len(b); at += page {
		copy(want, base)
		copy(want, s.bytes(of, at/page))
		end := min(at+page, len(b))
		if bytes.Equal(b[at:end], want[:end-at]) {
			continue
		}
		if other, ok := readStamp(b[at:end]); ok && other != s {
			return fmt.Sprintf("bytes %d to %d are %v; the first ones %v", at, end, other, s)
		}
		return fmt.Sprintf("bytes %d to %d are not those of %v", at, end, s)
	}
	return ""
}
