package bench

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// makeMemfds puts each tensor into a memfd, and returns paths by which processes of the same
// user open them. On an error it returns those that it has made.
func makeMemfds(tensors map[int64]*tensor.Tensor) (files []*os.File, paths map[int64]string, err error) {
	paths = make(map[int64]string)
	for size, t := range tensors {
		if size == 0 {
			continue // nothing can be mapped
		}
		fd, err := unix.MemfdCreate("tryst-bench", unix.MFD_CLOEXEC)
		if err != nil {
			return files, nil, fmt.Errorf("memfd_create: %w", err)
		}
		f := os.NewFile(uintptr(fd), "memfd")
		files = append(files, f)
		if _, err := f.Write(t.Bytes()); err != nil {
			return files, nil, err
		}
		paths[size] = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	}
	return files, paths, nil
}

// memfdMapping is the memory of another process, mapped to be read, and destinations here.
type memfdMapping struct {
	source  []byte // the mapping
	buffers []*tensor.Buffer
	next    []int // by worker
}

// openMemfd maps a memfd and fills the pages of the destinations, so that no copy does. The
// destinations are of a pool, as those of the other baselines: with huge pages where receives have them.
func openMemfd(path string, b bareRun, pool tensor.Allocator) (*memfdMapping, error) {
	if path == "" || b.Buffers < b.Inflight {
		return nil, status.Errorf(status.InvalidArgument, "%s: %d bytes at %q into %d buffers, %d at once", MemfdCopy, b.Size, path, b.Buffers, b.Inflight)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: %w", MemfdCopy, err)
	}
	defer f.Close()
	m := &memfdMapping{next: make([]int, b.Inflight)}
	m.source, err = unix.Mmap(int(f.Fd()), 0, int(b.Size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: mmap: %w", MemfdCopy, err)
	}
	for i := range b.Buffers {
		to, err := pool.Allocate(int(b.Size))
		if err != nil {
			return nil, errors.Join(err, m.close())
		}
		m.buffers = append(m.buffers, to)
		copy(m.buffers[i].Bytes(), m.source)
	}
	for worker := range m.next {
		m.next[worker] = worker
	}
	return m, nil
}

// copy copies once into the next buffer of a worker: each has every Inflight-th.
func (m *memfdMapping) copy(worker int) error {
	i := m.next[worker]
	copy(m.buffers[i].Bytes(), m.source)
	if i += len(m.next); i >= len(m.buffers) {
		i = worker
	}
	m.next[worker] = i
	return nil
}

func (m *memfdMapping) close() error {
	for _, b := range m.buffers {
		b.Release()
	}
	return os.NewSyscallError("munmap", unix.Munmap(m.source))
}
