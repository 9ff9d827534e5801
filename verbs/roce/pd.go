package roce

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

// usableLocked is nil while calls make sense.
func (p *pd) usableLocked(op string) error {
	if p.closed {
		return verbs.Errorf(op, p.dev.name, verbs.ErrClosed, "the protection domain is closed")
	}
	return p.dev.usableLocked(op)
}

// RegisterMemory implements verbs.PD. Nothing is pinned: the memory may be the Go
// heap's.
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
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "no memory was given")
	case d.mrs >= maxMRs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "there are %d, which is the device's limit", d.mrs)
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "peers may write only where the device may: AccessLocalWrite is missing (ibv_reg_mr(3))")
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
		return verbs.Errorf("close", "protection domain", verbs.ErrBusy, "open are %d memory regions and %d queue pairs", p.mrs, p.qps)
	}
	p.closed = true
	delete(p.dev.pds, p)
	return nil
}
