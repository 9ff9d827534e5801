package roce

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// boundWindow implements verbs.Window: a key of its own, at random, which holds through
// one queue pair and dies with the window. Binding costs no packet.
type memoryWindow struct {
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
	w := &memoryWindow{dev: d, mr: r.mr, rkey: d.keys.bind(r.mr, &q.machine, offset, length, access)}
	d.windows++
	return w, nil
}

// RKey implements verbs.Window.
func (w *memoryWindow) RKey() verbs.RKey { return w.rkey }

// Close implements verbs.Window. When it has returned, nothing is written by its
// key any more.
func (w *memoryWindow) Close() error {
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
