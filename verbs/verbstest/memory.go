package verbstest

import (
	"errors"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// pd implements verbs.PD.
type pd struct {
	*soft.PD
	dev *device
}

// mr implements verbs.MR. Its memory is the caller's, and used until Close.
type mr struct {
	*soft.Region
	dev *device
}

// openWindow is a window that no Close ends, for windowKeyOutlivesClose.
type openWindow struct{ *soft.Window }

// Close implements verbs.Window.
func (openWindow) Close() error { return nil }

// remoteRights are those that a peer can have.
const remoteRights = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.PD, error) {
	p, err := d.NewPD()
	if err != nil {
		return nil, err
	}
	f := d.nic.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hasBug(anyDomain) {
		d.domains = append(d.domains, &p.Domain)
	}
	return &pd{PD: p, dev: d}, nil
}

// RegisterMemory implements verbs.PD.
func (p *pd) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	f := p.dev.nic.f
	if f.hasBug(ignoresRights) {
		access |= remoteRights | verbs.AccessLocalWrite
	}
	r, err := p.Register(mem, access, nil)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.dev.nic.host.sent.Registrations++
	return &mr{Region: r, dev: p.dev}, nil
}

// Close implements verbs.PD.
func (p *pd) Close() error {
	err := p.dev.closed(p.PD.Close())
	if p.dev.nic.f.hasBug(anyCloseOrder) {
		return nil
	}
	return err
}

// Close implements verbs.MR.
func (m *mr) Close() error { return m.dev.closed(m.Region.Close()) }

// regionClosed ends the use of the memory of a region. A real device has read the content of packets in
// flight before.
func (d *device) regionClosed(*soft.Region) (wait func()) {
	f := d.nic.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range d.nic.qps {
		q.detachInFlightLocked()
	}
	return nil
}

// windowClosed waits for the accesses that are under way, which hold the fabric's lock.
func (d *device) windowClosed(*soft.Window) {
	d.nic.f.mu.Lock()
	d.nic.f.mu.Unlock() //nolint:staticcheck // an empty section waits for the owner
}

// sliceLocked returns the memory of an SGE. It returns false if the SGE does not lie within
// a region of the domain, or write is set and the region does not allow writes.
func (q *qp) sliceLocked(s verbs.SGE, write bool) (mem []byte, ok bool) {
	k := q.pd.dev.Keys
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	mem, ok = k.MemoryLocked(&q.pd.Domain, s, write)
	for _, d := range q.pd.dev.domains {
		if !ok {
			mem, ok = k.MemoryLocked(d, s, write)
		}
	}
	return mem, ok
}

// grantedLocked returns the memory that a request of the peer names. It returns false if the
// key is invalid for the queue pair, the range or the access.
func (q *qp) grantedLocked(addr, length uint64, key verbs.RKey, need verbs.Access) (mem []byte, ok bool) {
	k := q.pd.dev.Keys
	k.Mu.RLock()
	defer k.Mu.RUnlock()
	mem, ok = k.GrantedLocked(&q.pd.Domain, q, addr, length, key, need)
	for _, d := range q.pd.dev.domains {
		if !ok {
			mem, ok = k.GrantedLocked(d, q, addr, length, key, need)
		}
	}
	return mem, ok
}

// BindWindow implements verbs.QP. The key of the window is valid for this queue pair only
// (specification, volume 1, 10.6.7.2).
func (q *qp) BindWindow(region verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	const op = "bind window"
	d, f := q.pd.dev, q.nic.f
	if q.nic.options.NoWindows {
		return nil, verbs.Errorf(op, q.nic.name, errors.ErrUnsupported, "the device has no memory windows")
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := q.usableLocked(op); err != nil {
		return nil, err
	}
	if m, ok := region.(*mr); ok {
		region = m.Region
	}
	w, err := q.pd.BindLocked(op, q, q.machine.State(), region, offset, length, access)
	if err != nil {
		err.Object = q.machine.Object()
		return nil, err
	}
	if f.hasBug(windowKeyOutlivesClose) {
		return openWindow{w}, nil
	}
	return w, nil
}
