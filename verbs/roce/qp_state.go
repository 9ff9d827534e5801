package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// State implements verbs.QP.
func (q *qp) State() (verbs.QPState, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked("query"); err != nil {
		return 0, err
	}
	return q.machine.state, nil
}

// stepLocked checks a change of state.
func (q *qp) stepLocked(op string, to verbs.QPState) error {
	if err := q.usableLocked(op); err != nil {
		return err
	}
	if err := verbs.CheckTransition(q.machine.state, to); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	return nil
}

// ToInit implements verbs.QP. It opens the endpoint of the local address if needed.
func (q *qp) ToInit(a verbs.InitAttr) error {
	const op = "bring to INIT"
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	q.mu.Lock()
	err := q.stepLocked(op, verbs.StateInit)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	addr, ok := d.address(a.SGIDIndex)
	switch {
	case a.Port != onlyPort:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "port %d: the only port is %d", a.Port, onlyPort)
	case a.PKeyIndex != 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "partition key index %d: the only index is 0", a.PKeyIndex)
	case !ok:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is empty", a.SGIDIndex)
	}
	e, err := d.endpointLocked(addr)
	if err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	// Take q.mu only now: endpointLocked may wait for an endpoint that is being closed,
	// and that endpoint's goroutine may take q.mu for its last packet.
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked(op, verbs.StateInit); err != nil {
		return err
	}
	if q.endpoint != e {
		q.endpoint, q.sender = e, e.nextSender()
	}
	q.machine.access, q.machine.state = a.Access, verbs.StateInit
	return nil
}

// ToRTR implements verbs.QP.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	const op = "bring to RTR"
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked(op, verbs.StateRTR); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	addr, ok := d.address(a.SGIDIndex)
	peer := a.Peer.GID.Addr()
	switch {
	case !ok || addr != q.endpoint.addr:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is not %v, the address given at INIT", a.SGIDIndex, q.endpoint.addr)
	case a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer has no GID, which RoCE needs")
	case peer.Is4() != addr.Is4():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer's address %v and the local address %v are of different families", peer, addr)
	case a.Peer.UDP.Port != 0 && len(a.Peer.UDP.Sources) == 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer receives on UDP port %d but names no source port, so packets from any port would be accepted", a.Peer.UDP.Port)
	case a.TrafficClass&ecnMask == congestionExperienced:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "traffic class %#x: the ECN value 3 (the two low bits) is reserved for switches; use 0, 1 or 2", a.TrafficClass)
	case a.MaxDestReadAtomic > maxReadAtomic:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d outstanding reads: the limit is %d", a.MaxDestReadAtomic, maxReadAtomic)
	}
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		peer = peer.WithZone(addr.Zone())
	}
	r := remoteOf(peer, a.Peer.UDP)
	q.tos = a.TrafficClass
	q.origin = q.endpoint.originOf(r, a.Peer.UDP.Sources)
	q.machine.toRTR(a)
	f := q.endpoint.flow(q.sender, r, q.machine.mtu)
	q.machine.readCost, q.machine.path = f.readCost, &f.peer.counts
	q.flow.Store(f)
	if q.timer == nil {
		q.timer = time.AfterFunc(never, q.expire)
		q.timer.Stop()
	}
	return nil
}

// ToRTS implements verbs.QP.
func (q *qp) ToRTS(a verbs.RTSAttr) error {
	const op = "bring to RTS"
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked(op, verbs.StateRTS); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	if a.MaxReadAtomic > maxReadAtomic {
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d outstanding reads: the limit is %d", a.MaxReadAtomic, maxReadAtomic)
	}
	q.machine.toRTS(a)
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.mu.Lock()
	err := q.stepLocked("bring to ERR", verbs.StateErr)
	if err == nil {
		q.machine.enterError()
	}
	q.mu.Unlock()
	q.kickWithFeedback()
	return err
}

// ToReset implements verbs.QP.
func (q *qp) ToReset() error {
	q.leaveFlow()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked("bring to RESET", verbs.StateReset); err != nil {
		return err
	}
	q.sendCQ.Purge(q) // before the reset: polling an old completion after it would free slots in use
	q.recvCQ.Purge(q)
	q.machine.reset()
	q.freedRecvs.Store(0)
	q.stopTimerLocked()
	q.origin = origin{}
	return nil
}

// leaveFlow removes the queue pair from its flow, if any.
func (q *qp) leaveFlow() {
	if f := q.flow.Swap(nil); f != nil {
		f.leave(q)
	}
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if _, open := d.qps[q]; !open {
		return nil
	}
	delete(d.qps, q)
	d.provider.unregister(q)
	q.leaveFlow()
	q.mu.Lock() // packets are processed and sent under it
	q.closed = true
	q.stopTimerLocked()
	q.mu.Unlock()
	q.sendCQ.Purge(q)
	q.recvCQ.Purge(q)
	q.pd.DropQPLocked(q.sendCQ, q.recvCQ)
	return nil
}
