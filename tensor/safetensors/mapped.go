package safetensors

import (
	"os"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// Mapped gives out tensors over a file that is mapped into memory, without
// copying. Its methods may be called from any goroutine.
//
// A mapped file that becomes shorter kills the process at the next access
// beyond its new end, and one that is rewritten changes under its readers: map
// only files that you own. Use Open for all others.
type Mapped struct {
	*Header
	mapping *fileio.Mapping
}

// OpenMapped maps the file at path and reads and checks its header, as
// ReadHeader says; errors name path. Where files cannot be mapped it is
// Unimplemented.
func OpenMapped(path string) (*Mapped, error) {
	var h *Header
	m, err := fileio.Map(path, func(f *os.File, size int64) (err error) {
		h, err = ReadHeader(f, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Mapped{h, m}, nil
}

// Tensor returns the named tensor over the mapped memory; the caller gets a
// reference, and all callers get the same memory. An unknown name is NotFound,
// a closed file FailedPrecondition.
//
// The format promises no alignment: tensor.Values fails for a tensor whose
// offset is no multiple of its element's size. Files written by this package
// in the order of Sort, or by the reference implementation, have none.
func (m *Mapped) Tensor(name string) (*tensor.Tensor, error) {
	info, err := m.find(name)
	if err != nil {
		return nil, err
	}
	buf, err := m.mapping.Buffer(info.Offset, info.Bytes)
	if err != nil {
		return nil, prefixed("tensor "+quote(name), err)
	}
	t, err := tensor.New(info.DType, info.Shape, buf)
	if err != nil {
		buf.Release()
		return nil, prefixed("tensor "+quote(name), err)
	}
	return t.Named(name), nil
}

// Close lets go of the file. The memory is unmapped when the last tensor over
// it is released, so tensors outlive their file. A second Close does nothing.
func (m *Mapped) Close() error { return m.mapping.Close() }
