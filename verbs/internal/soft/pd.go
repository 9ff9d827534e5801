package soft

import "github.com/tryst-rdma/tryst/verbs"

// PD is a protection domain. A provider embeds it in its own type, which creates queue pairs.
type PD struct {
	Domain // of its regions

	dev *Device
	// Device.Mu guards the fields below.
	closed bool
	mrs    int
	qps    int
}

// NewPD opens a protection domain.
func (d *Device) NewPD() (*PD, error) {
	const op = "allocate PD"
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.UsableLocked(op); err != nil {
		return nil, err
	}
	if d.pds >= d.limits.PDs {
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", d.pds)
	}
	d.pds++
	return &PD{Domain: Domain{Keys: d.Keys}, dev: d}, nil
}

// UsableLocked returns an error if the protection domain is closed, or its device is not usable.
func (p *PD) UsableLocked(op string) error {
	if p.closed {
		return verbs.Errorf(op, p.dev.name, verbs.ErrClosed, "the protection domain is closed")
	}
	return p.dev.UsableLocked(op)
}

// RegisterMemory implements verbs.PD. It pins nothing, so the memory may belong to the Go heap.
func (p *PD) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	r, err := p.Register(mem, access, nil)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Register is RegisterMemory with what the provider wants to know of the memory, see
// Region.Backing.
func (p *PD) Register(mem []byte, access verbs.Access, backing any) (*Region, error) {
	const op = "register memory"
	d := p.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := p.UsableLocked(op); err != nil {
		return nil, err
	}
	switch {
	case len(mem) == 0:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the memory is empty")
	case d.mrs >= d.limits.MRs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", d.mrs)
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "remote write and atomic access need AccessLocalWrite, which is missing (ibv_reg_mr(3))")
	}
	p.mrs++
	d.mrs++
	return d.Keys.add(&Region{pd: p, domain: &p.Domain, mem: mem, access: access, backing: backing}), nil
}

// CheckQPLocked checks the configuration of CreateQP, and sets its defaults. send and recv are nil
// if they are no completion queues of this provider.
func (p *PD) CheckQPLocked(op string, c *verbs.QPConfig, send, recv *CQ, maxInline int) error {
	d := p.dev
	if err := p.UsableLocked(op); err != nil {
		return err
	}
	if send == nil || recv == nil || send.dev != d || recv.dev != d {
		return verbs.Errorf(op, d.name, verbs.ErrInvalid, "both completion queues must belong to this opened device")
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	_, open1 := d.cqs[send]
	_, open2 := d.cqs[recv]
	switch l := &d.limits; {
	case !open1 || !open2:
		return verbs.Errorf(op, d.name, verbs.ErrClosed, "a completion queue is closed")
	case c.MaxSend < 0 || c.MaxSend > l.SendWR || c.MaxRecv < 0 || c.MaxRecv > l.RecvWR:
		return verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d sends and %d receives: the limits are %d and %d", c.MaxSend, c.MaxRecv, l.SendWR, l.RecvWR)
	case c.MaxSendSGE > l.SGEs || c.MaxRecvSGE > l.SGEs:
		return verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d and %d scatter/gather elements: the limit is %d", c.MaxSendSGE, c.MaxRecvSGE, l.SGEs)
	case c.MaxInline < 0 || c.MaxInline > maxInline:
		return verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d bytes inline: the limit is %d", c.MaxInline, maxInline)
	case d.qps >= l.QPs:
		return verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", d.qps)
	}
	return nil
}

// AddQPLocked counts a queue pair, which keeps the protection domain and the queues open.
func (p *PD) AddQPLocked(send, recv *CQ) {
	p.qps++
	p.dev.qps++
	send.users.Add(1)
	recv.users.Add(1)
}

// DropQPLocked is the opposite of AddQPLocked.
func (p *PD) DropQPLocked(send, recv *CQ) {
	p.qps--
	p.dev.qps--
	send.users.Add(-1)
	recv.users.Add(-1)
}

// Close implements verbs.PD.
func (p *PD) Close() error {
	p.dev.Mu.Lock()
	defer p.dev.Mu.Unlock()
	if p.closed {
		return nil
	}
	if p.mrs+p.qps > 0 {
		return verbs.Errorf("close", "protection domain", verbs.ErrBusy, "still open: %d memory regions and %d queue pairs", p.mrs, p.qps)
	}
	p.closed = true
	p.dev.pds--
	return nil
}
