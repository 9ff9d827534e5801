//go:build linux

package shm

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// memoryWindow implements verbs.Window. It has a random key of its own, which is valid
// on one queue pair until Close. Binding sends no packet.
type memoryWindow struct {
	dev    *device
	qp     *qp
	mr     *mr
	access verbs.Access
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
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the memory region belongs to another protection domain than the queue pair")
	case r.closed:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrClosed, "the memory region is closed")
	case q.state != verbs.StateRTS:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the queue pair is in %v; windows can be bound only in RTS", q.state)
	case r.mr.access&verbs.AccessBindWindow == 0:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the memory region has no AccessBindWindow")
	case access&^rights != 0:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "a window gives remote access only")
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && r.mr.access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the memory region has no AccessLocalWrite")
	case length == 0 || offset > r.length || length > r.length-offset:
		return nil, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d bytes at offset %d exceed the memory region of %d bytes", length, offset, r.length)
	}
	w := &memoryWindow{dev: d, qp: q, mr: r.mr, access: access, rkey: d.keys.bind(r.mr, q, offset, length, access)}
	d.windows++
	return w, nil
}

// RKey implements verbs.Window.
func (w *memoryWindow) RKey() verbs.RKey { return w.rkey }

// Close implements verbs.Window. After it has returned, its key gives no access. A READ of the peer that
// was answered and whose content the peer has not copied yet breaks the queue pair.
func (w *memoryWindow) Close() error {
	w.dev.mu.Lock()
	defer w.dev.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.dev.keys.unbind(w.rkey, w.mr)
	if w.access&verbs.AccessRemoteRead != 0 && w.mr.file != nil {
		w.qp.windowClosed(w.rkey)
	}
	w.dev.windows--
	return nil
}
