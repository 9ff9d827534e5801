package tcp

import (
	"crypto/rand"
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// pd implements verbs.PD.
type pd struct {
	*soft.PD
	dev *device
}

// AllocPD implements verbs.Device.
func (d *device) AllocPD() (verbs.PD, error) {
	p, err := d.NewPD()
	if err != nil {
		return nil, err
	}
	return &pd{PD: p, dev: d}, nil
}

// CreateQP implements verbs.PD.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	d := p.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	sendCQ, _ := c.SendCQ.(*soft.DrivenCQ)
	recvCQ, _ := c.RecvCQ.(*soft.DrivenCQ)
	send, recv := sendCQ.Shared(), recvCQ.Shared()
	if err := p.CheckQPLocked("create QP", &c, send, recv, maxInline); err != nil {
		return nil, err
	}
	q := &qp{pd: p, sendCQ: sendCQ, recvCQ: recvCQ, changed: make(chan struct{})}
	rand.Read(q.secret[:]) // never fails (crypto/rand)
	d.number(q)
	q.Init(&d.Device, q.number, q, send, recv)
	q.machine.init(q, rc.Config{
		QPConfig: c, Device: d.Name(), Number: q.number, OnlyGID: fmt.Sprintf("the only GID has the index %d", onlyGID),
		ReadAtomic: maxReadAtomic, MaxMessage: frame.MaxMessage,
	})
	d.qps[q] = struct{}{}
	p.AddQPLocked(send, recv)
	sendCQ.Use(q)
	recvCQ.Use(q)
	return q, nil
}

// regionClosed waits for the accesses to the memory of a closed region. The caller holds the
// device's lock.
func (d *device) regionClosed(*soft.Region) (wait func()) {
	for q := range d.qps {
		q.waitForAccess()
	}
	return nil
}

// windowClosed waits for the reader where that fills the window, which is a system call that does
// not block, and for the writer where the window may be read. A write of the peer that is not
// complete breaks the queue pair.
func windowClosed(w *soft.Window) {
	q := w.Through().(*qp) //nolint:errcheck // BindWindow passes nothing else
	if c := q.conn.Load(); c != nil {
		c.waitForReader()
		if w.Access()&verbs.AccessRemoteRead != 0 {
			c.waitForWriter()
		}
	}
}

// BindWindow implements verbs.QP.
func (q *qp) BindWindow(mr verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	const op = "bind window"
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.machine.Open(op); err != nil {
		return nil, err
	}
	w, err := q.pd.BindLocked(op, q, q.machine.State(), mr, offset, length, access)
	if err != nil {
		err.Object = q.machine.Object()
		return nil, err
	}
	return w, nil
}
