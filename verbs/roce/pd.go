package roce

import (
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
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
	send, _ := c.SendCQ.(*soft.CQ)
	recv, _ := c.RecvCQ.(*soft.CQ)
	if err := p.CheckQPLocked("create QP", &c, send, recv, maxInline); err != nil {
		return nil, err
	}
	q := &qp{pd: p, config: c, sendCQ: send, recvCQ: recv}
	q.machine.init(q, &p.Domain, &d.counts, c.MaxSend, c.MaxRecv)
	d.provider.register(q)
	d.qps[q] = struct{}{}
	p.AddQPLocked(send, recv)
	return q, nil
}

// BindWindow implements verbs.QP.
func (q *qp) BindWindow(mr verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	const op = "bind window"
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked(op); err != nil {
		return nil, err
	}
	w, err := q.pd.BindLocked(op, &q.machine, q.machine.state, mr, offset, length, access)
	if err != nil {
		err.Object = q.object()
		return nil, err
	}
	return w, nil
}
