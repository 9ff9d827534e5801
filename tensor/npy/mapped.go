package npy

import (
	"os"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// Mapped gives out the array of a file that is mapped into memory, without
// copying. Its methods may be called from any goroutine.
//
// A mapped file that becomes shorter kills the process at the next access
// beyond its new end, and one that is rewritten changes under its readers: map
// only files that you own. Use Open for all others.
type Mapped struct {
	info    Info
	mapping *fileio.Mapping
}

// OpenMapped maps the file at path and reads and checks its header, as Open
// says; errors name path. It is Unimplemented where files cannot be mapped and
// for an array whose bytes are not a tensor's as they stand: big-endian,
// column-major, characters.
func OpenMapped(path string) (*Mapped, error) {
	m := &Mapped{}
	var err error
	m.mapping, err = fileio.Map(path, func(r *os.File, size int64) error {
		f, err := Open(r, size)
		if err != nil {
			return err
		}
		if f.element.kind != 0 || f.element.number > 0 || !f.rowMajor() {
			return status.Errorf(status.Unimplemented, "npy: descr %s with fortran_order %v cannot be used as it stands in the file; read it instead",
				fileio.Quote(f.info.Descr), f.info.FortranOrder)
		}
		m.info = f.info
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Info returns what the header says.
func (m *Mapped) Info() Info { return m.info }

// Tensor returns the array over the mapped memory; the caller gets a
// reference, and all callers get the same memory. After Close it fails with
// FailedPrecondition.
//
// Files of NumPy and of this package are aligned for every type. A file that is
// not is mapped all the same, and tensor.Values fails for its tensor.
func (m *Mapped) Tensor() (*tensor.Tensor, error) {
	buf, err := m.mapping.Buffer(m.info.Offset, m.info.Bytes)
	if err != nil {
		return nil, fileio.Wrap("npy", err)
	}
	t, err := tensor.New(m.info.DType, m.info.Shape, buf)
	if err != nil {
		buf.Release()
		return nil, fileio.Wrap("npy", err)
	}
	return t, nil
}

// Close lets go of the file. The memory is unmapped when the last tensor over
// it is released, so tensors outlive their file. A second Close does nothing.
func (m *Mapped) Close() error { return m.mapping.Close() }
