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

// Mapping is a file in memory. The pages are private: what is written to them
// reaches neither the file nor another mapping. They stay mapped until Close
// and until the last buffer over them is released.
//
// A file that becomes shorter while it is mapped kills the process at the next
// access beyond its end (SIGBUS): map only files that nobody truncates.
type Mapping struct {
	file *tensor.Buffer // the whole mapping; each part holds a reference

	mu sync.Mutex // protects parts
	// parts holds one reference to each buffer handed out, so that none is
	// unique, hence writable, while another can be had. Nil after Close.
	parts map[span]*tensor.Buffer
}

type span struct{ off, n int64 }

// Map maps the regular file at path. header is called with the open file and
// its size before anything is mapped; its error ends Map. Errors name path.
func Map(path string, header func(f *os.File, size int64) error) (*Mapping, error) {
	m, err := mapFile(path, header)
	if err != nil {
		if pathError, ok := errors.AsType[*fs.PathError](err); ok && pathError.Path == path {
			err = pathError.Err // Wrap says the path
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
		return nil, status.Errorf(status.ResourceExhausted, "%d bytes do not fit the address space", info.Size())
	}
	data, err := mmap(f, int(info.Size()))
	if err != nil {
		return nil, err
	}
	return &Mapping{
		// Unmapping fails only for an address that was never mapped.
		file:  tensor.NewBuffer(data, func() { _ = munmap(data) }),
		parts: make(map[span]*tensor.Buffer),
	}, nil
}

// Buffer returns the n bytes at offset off, with a reference for the caller.
// The span must lie within the file and overlap no other one that is asked
// for. After Close it fails with FailedPrecondition.
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

// Close gives up the mapping's own references; the memory is unmapped when the
// buffers handed out are released too. A second Close does nothing.
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
