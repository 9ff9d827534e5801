package npy

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// Info describes the array in a file.
type Info struct {
	DType        tensor.DType // of the tensor that is read
	Shape        tensor.Shape
	Descr        string // NumPy's name of the type in the file, as "<f4"
	FortranOrder bool   // the elements are column-major in the file
	Offset       int64  // of the first element's first byte
	Bytes        int64  // what the elements take in the file
}

// File reads the array of one file. Its methods may be called from any
// goroutine.
type File struct {
	r       io.ReaderAt
	info    Info
	element element
}

// Open reads and checks the header of the file of size bytes behind r. It
// reads no element. r stays the caller's, who closes it when the File is no
// longer used.
//
// The error is InvalidArgument when the header is not valid or bytes are left
// over behind the array, Unimplemented for a version or a type that is not
// read, DataLoss when the file is shorter than the header says, and otherwise
// what r's error stands for.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r}
	if err := f.readHeader(size); err != nil {
		return nil, fileio.Wrap("npy", err)
	}
	return f, nil
}

// Info returns what the header says.
func (f *File) Info() Info { return f.info }

func (f *File) readHeader(size int64) error {
	text, dataStart, err := readHeaderText(f.r, size)
	if err != nil {
		return err
	}
	h, err := parseHeader(text)
	if err != nil {
		return fileio.Wrap("header", err)
	}
	have := size - dataStart
	switch elements := h.shape.Elements(); {
	case elements > have/h.element.size:
		return status.Errorf(status.DataLoss, "the header says %d elements of %d bytes; the file has %d bytes after it",
			elements, h.element.size, have)
	case elements*h.element.size < have:
		return invalid("the header says %d elements of %d bytes; the file has %d bytes after it, which is more than one array",
			elements, h.element.size, have)
	}
	f.element = h.element
	f.info = Info{
		DType:        h.element.dtype,
		Shape:        h.shape,
		Descr:        h.descr,
		FortranOrder: h.fortran,
		Offset:       dataStart,
		Bytes:        have,
	}
	return nil
}

// readHeaderText returns the dictionary's text and where the elements begin.
func readHeaderText(r io.ReaderAt, size int64) (text string, dataStart int64, err error) {
	const fixed = int64(len(magic) + 2) // and the version
	if size < fixed {
		return "", 0, status.Errorf(status.DataLoss, "the file has %d bytes; the magic and the version take %d", size, fixed)
	}
	start := make([]byte, min(size, fixed+4))
	if err := fileio.ReadAt(r, start, 0); err != nil {
		return "", 0, err
	}
	if got := string(start[:len(magic)]); got != magic {
		if got[:4] == "PK\x03\x04" {
			return "", 0, status.New(status.Unimplemented, "a zip archive (.npz): unpack it, each member is an .npy file")
		}
		return "", 0, invalid("the file begins with %q, not with %q", got, magic)
	}
	major, minor := start[len(magic)], start[len(magic)+1]
	length := start[fixed:]
	var n int64
	switch {
	case minor != 0 || major < 1 || major > 3:
		return "", 0, status.Errorf(status.Unimplemented, "format version %d.%d; 1.0, 2.0 and 3.0 are read", major, minor)
	case major == 1 && len(length) >= 2:
		length = length[:2]
		n = int64(binary.LittleEndian.Uint16(length))
	case major > 1 && len(length) == 4:
		n = int64(binary.LittleEndian.Uint32(length))
	default:
		return "", 0, status.Errorf(status.DataLoss, "the file ends within the header's length")
	}
	dataStart = fixed + int64(len(length)) + n
	switch {
	case n > MaxHeader:
		return "", 0, invalid("a header of %d bytes; at most %d are read", n, MaxHeader)
	case dataStart > size:
		return "", 0, status.Errorf(status.DataLoss, "a header of %d bytes; the file has %d left for it", n, size-dataStart+n)
	}
	b := make([]byte, n)
	if err := fileio.ReadAt(r, b, dataStart-n); err != nil {
		return "", 0, err
	}
	return string(b), dataStart, nil
}

// Read reads the array into memory from a; the caller gets the only reference.
// Bytes in big-endian and elements in column-major order are put in a tensor's
// order, with a few MiB besides.
//
// The elements of a character array become Go strings, on the heap: 'S' as its
// bytes, 'U' in UTF-8, both without the zeros that pad them. They take up to
// 17 times the file's bytes, for elements of one character.
func (f *File) Read(a tensor.Allocator) (*tensor.Tensor, error) {
	read := f.readPlain
	if f.element.kind != 0 {
		read = f.readCharacters
	}
	t, err := read(a)
	if err != nil {
		return nil, fileio.Wrap("npy", err)
	}
	return t, nil
}

func (f *File) readPlain(a tensor.Allocator) (*tensor.Tensor, error) {
	t, err := tensor.Allocate(a, f.info.DType, f.info.Shape)
	if err != nil {
		return nil, err
	}
	data := t.Bytes()
	if f.rowMajor() {
		err = fileio.ReadAt(f.r, data, f.info.Offset)
	} else {
		size := f.element.size
		err = f.each(func(place int64, b []byte) error {
			copy(data[place*size:], b)
			return nil
		})
	}
	if err != nil {
		t.Release()
		return nil, err
	}
	if n := f.element.number; n > 0 {
		for i := 0; i < len(data); i += n {
			slices.Reverse(data[i : i+n])
		}
	}
	return t, nil
}

// rowMajor reports whether the elements are in a tensor's order already.
func (f *File) rowMajor() bool {
	return !f.info.FortranOrder || !ordered(f.info.Shape)
}

// each calls do with the bytes of every element, in the order of the file, and
// with its place in row-major order. It stops at do's first error.
func (f *File) each(do func(place int64, b []byte) error) error {
	size := f.element.size
	chunk := make([]byte, min(max(chunkBytes/size, 1)*size, f.info.Bytes))
	places := newOrder(f.info.Shape, !f.rowMajor())
	for done := int64(0); done < f.info.Bytes; {
		chunk = chunk[:min(int64(len(chunk)), f.info.Bytes-done)]
		if err := fileio.ReadAt(f.r, chunk, f.info.Offset+done); err != nil {
			return err
		}
		for b := range slices.Chunk(chunk, int(size)) {
			if err := do(places.next(), b); err != nil {
				return err
			}
		}
		done += int64(len(chunk))
	}
	return nil
}
