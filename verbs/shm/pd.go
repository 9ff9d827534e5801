//go:build linux

package shm

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// pd implements verbs.PD. The device's lock guards its fields.
type pd struct {
	dev    *device
	closed bool
	mrs    int
	qps    int
}

// usableLocked returns an error if the protection domain or its device is closed.
func (p *pd) usableLocked(op string) error {
	if p.closed {
		return verbs.Errorf(op, name, verbs.ErrClosed, "the protection domain is closed")
	}
	return p.dev.usableLocked(op)
}

// RegisterMemory implements verbs.PD. It pins nothing, so the memory may belong to the Go
// heap. What peers are to read from such memory goes through a memfd of the queue pair, which
// costs a copy.
func (p *pd) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	return p.register(mem, nil, 0, access)
}

// RegisterShared implements verbs.SharedMemory: memory of a memfd, which peers map and read
// themselves.
func (p *pd) RegisterShared(mem []byte, fd int, offset int64, access verbs.Access) (verbs.MR, error) {
	const op = "register shared memory"
	size, _, err := checkMemfd(fd)
	if err != nil {
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "%v", err)
	}
	if offset < 0 || offset > size || int64(len(mem)) > size-offset {
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "%d bytes at offset %d exceed the memfd of %d bytes", len(mem), offset, size)
	}
	f := &file{id: p.dev.fileIDs.Add(1), fd: fd, size: uint64(size)}
	return p.register(mem, f, uint64(offset), access)
}

// register registers memory; f is the memfd that contains it from offset on, or nil.
func (p *pd) register(mem []byte, f *file, offset uint64, access verbs.Access) (verbs.MR, error) {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	const op = "register memory"
	if err := p.usableLocked(op); err != nil {
		return nil, err
	}
	switch {
	case len(mem) == 0:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "the memory is empty")
	case d.mrs >= maxMRs:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "the device's limit of %d is reached", d.mrs)
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "remote write and atomic access need AccessLocalWrite, which is missing (ibv_reg_mr(3))")
	}
	p.mrs++
	d.mrs++
	return &region{pd: p, mr: d.keys.add(p, mem, f, offset, access), length: uint64(len(mem))}, nil
}

// Close implements verbs.PD.
func (p *pd) Close() error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if p.closed {
		return nil
	}
	if p.mrs+p.qps > 0 {
		return verbs.Errorf("close", "protection domain", verbs.ErrBusy, "still open: %d memory regions and %d queue pairs", p.mrs, p.qps)
	}
	p.closed = true
	delete(p.dev.pds, p)
	return nil
}
