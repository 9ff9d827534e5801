package safetensors

import (
	"io"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// File reads the tensors of one file. Its methods may be called from any
// goroutine.
type File struct {
	*Header
	r io.ReaderAt
}

// Open reads and checks the header of the file of size bytes behind r, as
// ReadHeader says. It reads no tensor. r stays the caller's, who closes it
// when the File is no longer used.
func Open(r io.ReaderAt, size int64) (*File, error) {
	h, err := ReadHeader(r, size)
	if err != nil {
		return nil, err
	}
	return &File{h, r}, nil
}

// Read reads the named tensor with one ReadAt into memory from a. The caller
// gets the only reference. An unknown name is NotFound; a file that has become
// shorter since Open is DataLoss.
func (f *File) Read(name string, a tensor.Allocator) (*tensor.Tensor, error) {
	info, err := f.find(name)
	if err != nil {
		return nil, err
	}
	t, err := tensor.Allocate(a, info.DType, info.Shape)
	if err != nil {
		return nil, prefixed("tensor "+quote(name), err)
	}
	if err := fileio.ReadAt(f.r, t.Bytes(), info.Offset); err != nil {
		t.Release()
		return nil, prefixed("tensor "+quote(name), err)
	}
	return t.Named(name), nil
}
