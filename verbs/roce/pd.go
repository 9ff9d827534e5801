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

// region implements verbs.MR.
type region struct {
	pd     *pd
	mr     *mr
	length uint64
	closed bool // guarded by the device's lock
}

// Addr implements verbs.MR.
func (r *region) Addr() uint64 { return r.mr.addr }

// Len implements verbs.MR.
func (r *region) Len() uint64 { return r.length }

// LKey implements verbs.MR.
func (r *region) LKey() verbs.LKey { return r.mr.lkey }

// RKey implements verbs.MR.
func (r *region) RKey() verbs.RKey { return r.mr.rkey }

// Close implements verbs.MR. When it has returned, the memory is not touched any
// more, by whom ever.
func (r *region) Close() error {
	d := r.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.closed {
		return nil
	}
	if n := d.keys.remove(r.mr); n > 0 {
		return verbs.Errorf("close", "memory region", verbs.ErrBusy, "%d windows are bound to it", n)
	}
	r.closed = true
	r.pd.mrs--
	d.mrs--
	return nil
}

// boundWindow implements verbs.Window: a key of its own, at random, which holds through
// one queue pair and dies with the window. Binding costs no packet.
type boundWindow struct {
	dev    *device
	mr     *mr
	rkey   verbs.RKey
	closed bool // guarded by the device's lock
}

// BindWindow implements verbs.QP.
func (q *qp) BindWindow(mr verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	const op = "bind window"
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked(op); err != nil {
		return nil, err
	}
	r, ours := mr.(*region)
	const rights = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	switch {
	case !ours || r.pd != q.pd:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the memory region is not of the queue pair's protection domain")
	case r.closed:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrClosed, "the memory region is closed")
	case q.machine.state != verbs.StateRTS:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "windows are bound in RTS, and the queue pair is in %v", q.machine.state)
	case r.mr.access&verbs.AccessBindWindow == 0:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the memory region has no AccessBindWindow")
	case access&^rights != 0:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "a window gives remote rights only")
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && r.mr.access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the memory region has no AccessLocalWrite")
	case length == 0 || offset > r.length || length > r.length-offset:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d bytes at %d do not lie within the %d of the memory region", length, offset, r.length)
	}
	w := &boundWindow{dev: d, mr: r.mr, rkey: d.keys.bind(r.mr, &q.machine, offset, length, access)}
	d.windows++
	return w, nil
}

// RKey implements verbs.Window.
func (w *boundWindow) RKey() verbs.RKey { return w.rkey }

// Close implements verbs.Window. When it has returned, nothing is written by its
// key any more.
func (w *boundWindow) Close() error {
	w.dev.mu.Lock()
	defer w.dev.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.dev.keys.unbind(w.rkey, w.mr)
	w.dev.windows--
	return nil
}
