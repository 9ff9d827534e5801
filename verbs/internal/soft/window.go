package soft

import "github.com/tryst-rdma/tryst/verbs"

// Window implements verbs.Window. It has a random key of its own, which is valid on one queue pair
// until Close. Binding sends nothing.
type Window struct {
	dev     *Device
	region  *Region
	through any
	access  verbs.Access
	rkey    verbs.RKey
	closed  bool // guarded by Device.Mu
}

// BindLocked implements verbs.QP.BindWindow for a queue pair in a state. through names the queue
// pair in Keys. The caller holds Device.Mu and the lock of the queue pair, and completes the error,
// which has no Object.
func (p *PD) BindLocked(op string, through any, state verbs.QPState, mr verbs.MR, offset, length uint64, access verbs.Access) (*Window, *verbs.Error) {
	const rights = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	r, ours := mr.(*Region)
	switch {
	case !ours || r.pd != p:
		return nil, verbs.Errorf(op, "", verbs.ErrInvalid, "the memory region belongs to another protection domain than the queue pair")
	case r.closed:
		return nil, verbs.Errorf(op, "", verbs.ErrClosed, "the memory region is closed")
	case state != verbs.StateRTS:
		return nil, verbs.Errorf(op, "", verbs.ErrInvalid, "the queue pair is in %v; windows can be bound only in RTS", state)
	case r.access&verbs.AccessBindWindow == 0:
		return nil, verbs.Errorf(op, "", verbs.ErrInvalid, "the memory region has no AccessBindWindow")
	case access&^rights != 0:
		return nil, verbs.Errorf(op, "", verbs.ErrInvalid, "a window gives remote access only")
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && r.access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, "", verbs.ErrInvalid, "the memory region has no AccessLocalWrite")
	case length == 0 || offset > r.length || length > r.length-offset:
		return nil, verbs.Errorf(op, "", verbs.ErrInvalid, "%d bytes at offset %d exceed the memory region of %d bytes", length, offset, r.length)
	}
	p.dev.windows++
	return &Window{dev: p.dev, region: r, through: through, access: access, rkey: p.Keys.Bind(r, through, offset, length, access)}, nil
}

// RKey implements verbs.Window.
func (w *Window) RKey() verbs.RKey { return w.rkey }

// Through is the queue pair of BindLocked.
func (w *Window) Through() any { return w.through }

// Access is what the window gives.
func (w *Window) Access() verbs.Access { return w.access }

// Region is what the window gives access to.
func (w *Window) Region() *Region { return w.region }

// Close implements verbs.Window. After it has returned, its key gives no access.
func (w *Window) Close() error {
	w.dev.Mu.Lock()
	defer w.dev.Mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.dev.Keys.Unbind(w.rkey, w.region)
	if f := w.dev.hooks.WindowClosed; f != nil {
		f(w)
	}
	w.dev.windows--
	return nil
}
