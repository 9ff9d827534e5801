package tcp

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// pd implements verbs.PD. The device's lock guards its fields.
type pd struct {
	dev    *device
	domain domain
	closed bool
	mrs    int
	qps    int
}

// usableLocked returns an error if the protection domain or its device is closed.
func (p *pd) usableLocked(op string) error {
	if p.closed {
		return verbs.Errorf(op, p.dev.name, verbs.ErrClosed, "the protection domain is closed")
	}
	return p.dev.usableLocked(op)
}

// RegisterMemory implements verbs.PD. It pins nothing, so the memory may belong to the
// Go heap.
func (p *pd) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	const op = "register memory"
	if err := p.usableLocked(op); err != nil {
		return nil, err
	}
	switch {
	case len(mem) == 0:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the memory is empty")
	case d.mrs >= maxMRs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", d.mrs)
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "remote write and atomic access need AccessLocalWrite, which is missing (ibv_reg_mr(3))")
	}
	p.mrs++
	d.mrs++
	return &region{pd: p, mr: d.keys.add(&p.domain, mem, access), length: uint64(len(mem))}, nil
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
