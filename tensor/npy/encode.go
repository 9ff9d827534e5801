package npy

import (
	"bufio"
	"encoding/binary"
	"io"
	"slices"
	"strconv"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// Direct reports whether the elements have the same bytes in the same order in the file as in a
// tensor: little-endian, row-major, and no characters.
func (f *File) Direct() bool {
	return f.element.kind == 0 && f.element.number == 0 && f.rowMajor()
}

// Encode writes the elements of t as the file has them: in its byte order, its order of elements,
// and its size of strings. What Read returned becomes the bytes that Read has read. The header is
// not written. Encode is InvalidArgument for a tensor of another type or shape, and for a string
// that the file's elements cannot hold. t is only read, and not kept.
func (f *File) Encode(w io.Writer, t *tensor.Tensor) error {
	if err := f.encode(w, t); err != nil {
		return fileio.Wrap("npy", err)
	}
	return nil
}

func (f *File) encode(w io.Writer, t *tensor.Tensor) error {
	if t.DType() != f.info.DType || !t.Shape().Equal(f.info.Shape) {
		return invalid("the tensor is %v; the header says %v%v", t, f.info.DType, f.info.Shape)
	}
	if f.Direct() {
		return fileio.Write(w, t.Bytes())
	}
	b := bufio.NewWriterSize(w, chunkBytes)
	places := newOrder(f.info.Shape, !f.rowMajor())
	for range f.info.Shape.Elements() {
		place := places.next()
		var err error
		if f.element.kind == 0 {
			err = f.encodePlain(b, t.Bytes()[place*f.element.size:][:f.element.size])
		} else if err = f.encodeCharacters(b, t.Elements()[place]); err != nil {
			err = fileio.Wrap("element "+strconv.FormatInt(place, 10), err)
		}
		if err != nil {
			return err
		}
	}
	return b.Flush()
}

// encodePlain writes one element, whose numbers are reversed in a big-endian file.
func (f *File) encodePlain(b *bufio.Writer, element []byte) error {
	var reversed [16]byte // the largest element
	n := copy(reversed[:], element)
	if number := f.element.number; number > 0 {
		for i := 0; i < n; i += number {
			slices.Reverse(reversed[i : i+number])
		}
	}
	_, err := b.Write(reversed[:n])
	return err
}

// encodeCharacters writes one string and the zeros that pad it.
func (f *File) encodeCharacters(b *bufio.Writer, s string) error {
	size := f.element.size
	if f.element.kind == 'S' {
		if int64(len(s)) > size {
			return invalid("a string of %d bytes; the file's elements have %d", len(s), size)
		}
		if _, err := b.WriteString(s); err != nil {
			return err
		}
		return pad(b, size-int64(len(s)))
	}
	for _, r := range s {
		var c [4]byte
		if size -= 4; size < 0 {
			return invalid("a string of more than %d characters, which the file's elements have", f.element.size/4)
		}
		if f.element.number > 0 {
			binary.BigEndian.PutUint32(c[:], uint32(r))
		} else {
			binary.LittleEndian.PutUint32(c[:], uint32(r))
		}
		if _, err := b.Write(c[:]); err != nil {
			return err
		}
	}
	return pad(b, size)
}

// pad writes n zeros.
func pad(b *bufio.Writer, n int64) error {
	var zeros [512]byte
	for n > 0 {
		m, err := b.Write(zeros[:min(n, int64(len(zeros)))])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}
