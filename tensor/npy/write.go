package npy

import (
	"bufio"
	"encoding/binary"
	"io"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// Write writes t as a file of format version 1.0, little-endian and row-major.
// The same tensor gives the same bytes. t is only read, and not kept.
//
// A String tensor becomes an 'S' array: all elements take as many bytes as the
// longest, and are padded with zeros; one that ends in a zero byte itself is
// InvalidArgument, since readers would drop it. So is a type that NumPy lacks
// (see Supported).
func Write(w io.Writer, t *tensor.Tensor) error {
	if err := write(w, t); err != nil {
		what := "npy"
		if t.Name() != "" {
			what += ": tensor " + fileio.Quote(t.Name())
		}
		return fileio.Wrap(what, err)
	}
	return nil
}

func write(w io.Writer, t *tensor.Tensor) error {
	if t.DType() == tensor.String {
		return writeStrings(w, t)
	}
	header, err := Header(t.DType(), t.Shape())
	if err != nil {
		return err
	}
	if err := fileio.Write(w, header); err != nil {
		return err
	}
	return fileio.Write(w, t.Bytes())
}

// Header returns what Write writes before the elements of a tensor of plain memory. A type that
// NumPy lacks is InvalidArgument, and so are strings, whose header depends on their lengths.
func Header(dtype tensor.DType, shape tensor.Shape) ([]byte, error) {
	code, ok := code(dtype)
	if !ok || dtype == tensor.String {
		return nil, invalid("NumPy has no elements of type %v; convert the tensor or write safetensors", dtype)
	}
	order := "<"
	if dtype.Size() == 1 {
		order = "|"
	}
	return encodeHeader(order+code, shape), nil
}

func writeStrings(w io.Writer, t *tensor.Tensor) error {
	size := 1 // NumPy has no shorter elements
	for i, s := range t.Elements() {
		if strings.HasSuffix(s, "\x00") {
			return invalid("element %d ends in a zero byte, which NumPy's strings cannot", i)
		}
		size = max(size, len(s))
	}
	b := bufio.NewWriterSize(w, chunkBytes)
	if _, err := b.Write(encodeHeader("|S"+strconv.Itoa(size), t.Shape())); err != nil {
		return err
	}
	for _, s := range t.Elements() {
		if _, err := b.WriteString(s); err != nil {
			return err
		}
		if err := pad(b, int64(size-len(s))); err != nil {
			return err
		}
	}
	return b.Flush()
}

// encodeHeader returns a file's bytes up to where the elements begin, as NumPy
// writes them. Even MaxDims dimensions fit version 1.0.
func encodeHeader(descr string, shape tensor.Shape) []byte {
	b := append([]byte(magic), 1, 0, 0, 0)
	const lengthAt, textAt = len(magic) + 2, len(magic) + 4
	b = append(b, "{'descr': '"...)
	b = append(b, descr...)
	b = append(b, "', 'fortran_order': False, 'shape': ("...)
	for i := range shape.Rank() {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, shape.Dim(i), 10)
		if i == 0 || i < shape.Rank()-1 {
			b = append(b, ',')
		}
	}
	b = append(b, "), }"...)
	for (len(b)+1)%dataAlignment != 0 {
		b = append(b, ' ')
	}
	b = append(b, '\n')
	binary.LittleEndian.PutUint16(b[lengthAt:], uint16(len(b)-textAt))
	return b
}
