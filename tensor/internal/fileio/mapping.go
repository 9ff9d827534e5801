package fileio

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Mapping is a memory-mapped file. The pages are private: writes to them reach
// neither the file nor another mapping. They stay mapped until Close was called
// and the last buffer over them is released.
//
// If the file is truncated while it is mapped, an access beyond its new end kills
// the process (SIGBUS). Map only files that are not truncated.
type Mapping struct {
	file *tensor.Buffer // the whole mapping; each part holds a reference

	mu sync.Mutex // protects parts
	// parts holds one reference to each buffer that Buffer returned, so that
	// no caller has the only reference, which would allow writing. Nil after
	// Close.
	parts map[span]*tensor.Buffer
}

type span struct{ off, n int64 }

// Map maps the regular file at path. Before it maps the file it calls header with
// the open file and its size, and fails if header fails. Errors name path.
func Map(path string, header func(f *os.File, size int64) error) (*Mapping, error) {
	m, err := mapFile(path, header)
	if err != nil {
		if pathError, ok := errors.AsType[*fs.PathError](err); ok && pathError.Path == path {
			err = pathError.Err // the prefix names the path
		}
		return nil, Wrap("mapping "+path, err)
	}
	return m, nil
}

func mapFile(path string, header func(f *os.File, size int64) error) (*Mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // a mapping outlives its descriptor
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, status.New(status.InvalidArgument, "not a regular file")
	}
	if err := header(f, info.Size()); err != nil {
		return nil, err
	}
	if info.Size() > math.MaxInt {
		return nil, status.Errorf(status.ResourceExhausted, "the file has %d bytes, more than the address space", info.Size())
	}
	data, err := mmap(f, int(info.Size()))
	if err != nil {
		return nil, err
	}
	return &Mapping{
		// munmap fails only for an address that is not mapped.
		file:  tensor.NewBuffer(data, func() { _ = munmap(data) }),
		parts: make(map[span]*tensor.Buffer),
	}, nil
}

// Buffer returns a buffer over the n bytes at offset off, with a reference for the
// caller. The span must lie within the file and must not overlap a different span
// of another call. After Close it fails with FailedPrecondition.
func (m *Mapping) Buffer(off, n int64) (*tensor.Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts == nil {
		return nil, status.New(status.FailedPrecondition, "the mapped file is closed")
	}
	key := span{off, n}
	part, ok := m.parts[key]
	if !ok {
		data := m.file.Bytes()[off : off+n : off+n]
		part = tensor.NewBuffer(data, m.file.Retain().Release)
		m.parts[key] = part
	}
	return part.Retain(), nil
}

// Close releases the mapping's own references. The memory is unmapped after the
// buffers that Buffer returned are released too. A second Close does nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts == nil {
		return nil
	}
	for _, part := range m.parts {
		part.Release()
	}
	m.parts = nil
	m.file.Release()
	return nil
}
