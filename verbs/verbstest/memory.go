package verbstest

import (
	"errors"

	"github.com/tryst-rdma/tryst/verbs"
)

// pd implements verbs.PD. The fabric's lock guards its fields.
type pd struct {
	dev    *device
	closed bool
	mrs    int
	qps    int
}

// mr implements verbs.MR.
type mr struct {
	pd     *pd
	mem    []byte // the caller's; used until Close
	access verbs.Access
	addr   uint64
	lkey   verbs.LKey
	rkey   verbs.RKey

	// The fabric's lock guards the fields below.
	closed  bool
	windows int
}

// grant is the memory and the rights behind a remote key: those of a region or a window.
type grant struct {
	mr     *mr
	addr   uint64
	length uint64
	access verbs.Access
	qp     *qp // the only queue pair that may use it, for a window; nil for a region
}

// usableLocked returns nil if the domain can be used, else the error of op.
func (p *pd) usableLocked(op string) error {
	if p.closed {
		return verbs.Errorf(op, p.dev.nic.name, verbs.ErrClosed, "the protection domain is closed")
	}
	return p.dev.usableLocked(op)
}

// RegisterMemory implements verbs.PD.
func (p *pd) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	n := p.dev.nic
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	const op = "register memory"
	if err := p.usableLocked(op); err != nil {
		return nil, err
	}
	switch limits := n.options.Limits; {
	case len(mem) == 0:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "mem is empty")
	case uint64(len(mem)) > limits.MRSize:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d bytes exceed the limit of the device, %d", len(mem), limits.MRSize)
	case p.dev.mrs >= limits.MRs:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d are open, the limit of the device", p.dev.mrs)
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "remote write and atomic access need AccessLocalWrite (ibv_reg_mr(3))")
	}
	m := &mr{pd: p, mem: mem, access: access, addr: n.address, lkey: n.freshLKey(), rkey: n.freshRKey()}
	n.address += (uint64(len(mem)) + pageSize - 1) &^ (pageSize - 1)
	n.address += regionGap
	n.local[m.lkey] = m
	n.remote[m.rkey] = &grant{mr: m, addr: m.addr, length: uint64(len(mem)), access: access}
	p.mrs++
	p.dev.mrs++
	n.host.sent.Registrations++
	return m, nil
}

// freshLKey returns a random unused key. Local and remote keys differ too, so a stale key,
// or one of the wrong kind, does not work by chance.
func (n *NIC) freshLKey() verbs.LKey {
	for {
		k := verbs.LKey(n.f.random.Uint32())
		if _, taken := n.local[k]; !taken && k != 0 {
			return k
		}
	}
}

// freshRKey is like freshLKey.
func (n *NIC) freshRKey() verbs.RKey {
	for {
		k := verbs.RKey(n.f.random.Uint32())
		_, taken := n.remote[k]
		_, mixed := n.local[verbs.LKey(k)]
		if !taken && !mixed && k != 0 {
			return k
		}
	}
}

// Close implements verbs.PD.
func (p *pd) Close() error {
	f := p.dev.nic.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.closed || p.dev.killed.Load() {
		return nil
	}
	if p.mrs+p.qps > 0 && !p.dev.nic.f.hasBug(anyCloseOrder) {
		return verbs.Errorf("close", "protection domain", verbs.ErrBusy, "still open: %d memory regions and %d queue pairs", p.mrs, p.qps)
	}
	p.closed = true
	delete(p.dev.pds, p)
	return nil
}

// Addr implements verbs.MR.
func (m *mr) Addr() uint64 { return m.addr }

// Len implements verbs.MR.
func (m *mr) Len() uint64 { return uint64(len(m.mem)) }

// LKey implements verbs.MR.
func (m *mr) LKey() verbs.LKey { return m.lkey }

// RKey implements verbs.MR.
func (m *mr) RKey() verbs.RKey { return m.rkey }

// Close implements verbs.MR.
func (m *mr) Close() error {
	n := m.pd.dev.nic
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if m.closed || m.pd.dev.killed.Load() {
		return nil
	}
	if m.windows > 0 {
		return verbs.Errorf("close", "memory region", verbs.ErrBusy, "%d windows are bound to it", m.windows)
	}
	// A real device has read the content of packets in flight before.
	for _, q := range n.qps {
		q.detachInFlightLocked()
	}
	m.closed = true
	m.mem = nil
	delete(n.local, m.lkey)
	delete(n.remote, m.rkey)
	m.pd.mrs--
	m.pd.dev.mrs--
	return nil
}

// sliceLocked returns the memory of an SGE. It returns false if the SGE does not lie within
// a region of the domain, or write is set and the region does not allow writes.
func (n *NIC) sliceLocked(p *pd, s verbs.SGE, write bool) ([]byte, bool) {
	m := n.local[s.LKey]
	if m == nil || m.pd != p && !n.f.hasBug(anyDomain) || write && m.access&verbs.AccessLocalWrite == 0 {
		return nil, false
	}
	off := s.Addr - m.addr
	if s.Addr < m.addr || off > uint64(len(m.mem)) || uint64(s.Length) > uint64(len(m.mem))-off {
		return nil, false
	}
	return m.mem[off : off+uint64(s.Length) : off+uint64(s.Length)], true
}

// grantedLocked returns the memory that a request of the peer names. It returns false if the
// key is invalid for the queue pair, the range or the access.
func (q *qp) grantedLocked(addr, length uint64, key verbs.RKey, need verbs.Access) ([]byte, bool) {
	g := q.nic.remote[key]
	f := q.nic.f
	if g == nil || g.mr.pd != q.pd && !f.hasBug(anyDomain) || g.access&need != need && !f.hasBug(ignoresRights) || g.qp != nil && g.qp != q {
		return nil, false
	}
	off := addr - g.addr
	if addr < g.addr || off > g.length || length > g.length-off {
		return nil, false
	}
	at := addr - g.mr.addr
	return g.mr.mem[at : at+length : at+length], true
}

// window implements verbs.Window. It is of type 2B: its key is valid for one queue pair only
// (specification, volume 1, 10.6.7.2).
type window struct {
	grant  *grant
	rkey   verbs.RKey
	dev    *device
	closed bool // guarded by the fabric's lock
}

// BindWindow implements verbs.QP.
func (q *qp) BindWindow(region verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	const op = "bind window"
	f := q.nic.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.nic.options.NoWindows {
		return nil, verbs.Errorf(op, q.nic.name, errors.ErrUnsupported, "the device has no memory windows")
	}
	if err := q.usableLocked(op); err != nil {
		return nil, err
	}
	m, ours := region.(*mr)
	const rights = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	switch {
	case !ours || m.pd != q.pd:
		return nil, verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the memory region belongs to another protection domain")
	case m.closed:
		return nil, verbs.Errorf(op, q.machine.Object(), verbs.ErrClosed, "the memory region is closed")
	case q.machine.State() != verbs.StateRTS:
		return nil, verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the queue pair is in %v: windows can be bound in RTS", q.machine.State())
	case m.access&verbs.AccessBindWindow == 0:
		return nil, verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the memory region has no AccessBindWindow")
	case access&^rights != 0:
		return nil, verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "a window can grant only remote rights")
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && m.access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the memory region has no AccessLocalWrite")
	case length == 0 || offset > m.Len() || length > m.Len()-offset:
		return nil, verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "%d bytes at offset %d exceed the memory region of %d bytes", length, offset, m.Len())
	}
	w := &window{rkey: q.nic.freshRKey(), dev: q.pd.dev, grant: &grant{mr: m, addr: m.addr + offset, length: length, access: access, qp: q}}
	q.nic.remote[w.rkey] = w.grant
	m.windows++
	q.pd.dev.windows++
	return w, nil
}

// RKey implements verbs.Window.
func (w *window) RKey() verbs.RKey { return w.rkey }

// Close implements verbs.Window.
func (w *window) Close() error {
	n := w.dev.nic
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if w.closed || w.dev.killed.Load() {
		return nil
	}
	w.closed = true
	if !n.f.hasBug(windowKeyOutlivesClose) {
		delete(n.remote, w.rkey)
	}
	w.grant.mr.windows--
	w.dev.windows--
	return nil
}
