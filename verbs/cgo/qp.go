//go:build linux && cgo

package libibverbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/tryst-rdma/tryst/verbs"
)

// queuePair is a reliable-connected queue pair. Its locks are taken in the order
// ctl, send, recv, and a completion queue's after them.
type queuePair struct {
	pd        *protectionDomain
	parents   []*node // the protection domain and the completion queues
	qpn       verbs.QPN
	maxInline int

	ctl  sync.Mutex // one step or Close at a time; protects port
	port uint8      // of ToInit

	send sendQueue
	recv recvQueue
}

// CreateQP makes a queue pair.
func (p *protectionDomain) CreateQP(cfg verbs.QPConfig) (verbs.QP, error) {
	d := p.device
	const op = "create a queue pair on"
	invalid := func(format string, args ...any) error {
		return verbs.Errorf(op, d.info.Name, verbs.ErrInvalid, format, args...)
	}
	sendCQ, ok1 := cfg.SendCQ.(*completionQueue)
	recvCQ, ok2 := cfg.RecvCQ.(*completionQueue)
	if !ok1 || !ok2 || sendCQ.device != d || recvCQ.device != d {
		return nil, invalid("it needs completion queues of the same device")
	}
	cfg.MaxSendSGE, cfg.MaxRecvSGE = max(cfg.MaxSendSGE, 1), max(cfg.MaxRecvSGE, 1)
	limits := d.info.Limits
	switch {
	case cfg.MaxSend < 1 || cfg.MaxSend > limits.SendWR:
		return nil, invalid("%d send work requests: this device has 1 to %d", cfg.MaxSend, limits.SendWR)
	case cfg.MaxRecv < 1 || cfg.MaxRecv > limits.RecvWR:
		return nil, invalid("%d receive work requests: this device has 1 to %d", cfg.MaxRecv, limits.RecvWR)
	case cfg.MaxSendSGE > limits.SGEs || cfg.MaxRecvSGE > limits.SGEs:
		return nil, invalid("%d and %d scatter/gather elements: this device has %d at most", cfg.MaxSendSGE, cfg.MaxRecvSGE, limits.SGEs)
	case cfg.MaxInline < 0:
		return nil, invalid("%d inline bytes", cfg.MaxInline)
	}

	q := &queuePair{pd: p, parents: []*node{&p.node, &sendCQ.node}}
	if recvCQ != sendCQ {
		q.parents = append(q.parents, &recvCQ.node)
	}
	if err := d.enter(&d.counts.QPs, q.parents...); err != nil {
		return nil, &verbs.Error{Op: op, Object: d.info.Name, Err: err}
	}
	limit := C.shim_qp_cap{
		max_send_wr: C.uint32_t(cfg.MaxSend), max_recv_wr: C.uint32_t(cfg.MaxRecv),
		max_send_sge: C.uint32_t(cfg.MaxSendSGE), max_recv_sge: C.uint32_t(cfg.MaxRecvSGE),
		max_inline_data: C.uint32_t(cfg.MaxInline),
	}
	qp, errno := C.shim_create_qp(d.lib, p.handle, sendCQ.handle, recvCQ.handle, &limit)
	if err := pointerOrErrno(qp == nil, errno); err != nil {
		d.leave(&d.counts.QPs, q.parents...)
		if errors.Is(err, syscall.EINVAL) {
			return nil, &verbs.Error{Op: op, Object: d.info.Name, Err: fmt.Errorf("%w: %w", verbs.ErrInvalid, err),
				Hint: fmt.Sprintf("probably more than the device can do together: %d send and %d receive work requests of %d and %d scatter/gather elements, %d bytes inline",
					cfg.MaxSend, cfg.MaxRecv, cfg.MaxSendSGE, cfg.MaxRecvSGE, cfg.MaxInline)}
		}
		return nil, outOfMemory(op, d.info.Name, 0, err)
	}
	q.qpn = verbs.QPN(C.shim_qp_num(qp))
	q.maxInline = int(limit.max_inline_data)
	// What the device rounded up counts for the rings too.
	err := q.send.init(qp, q.object(), int(limit.max_send_sge), q.maxInline)
	if err == nil {
		err = q.recv.init(qp, q.object(), int(limit.max_recv_sge))
	}
	if err != nil {
		_ = q.Close()
		return nil, &verbs.Error{Op: op, Object: d.info.Name, Err: err}
	}
	return q, nil
}

// object is the queue pair in an error.
func (q *queuePair) object() string {
	return fmt.Sprintf("queue pair %v of %s", q.qpn, q.pd.device.info.Name)
}

// QPN is its number.
func (q *queuePair) QPN() verbs.QPN { return q.qpn }

// Endpoint is the queue pair's number.
func (q *queuePair) Endpoint() verbs.Endpoint { return verbs.Endpoint{QPN: q.qpn} }

// MaxInline is how many bytes can be sent inline.
func (q *queuePair) MaxInline() int { return q.maxInline }

// State asks the device.
func (q *queuePair) State() (verbs.QPState, error) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	s, err := q.stateLocked()
	if err != nil {
		return 0, explain("query", q.object(), err)
	}
	return s, nil
}

func (q *queuePair) stateLocked() (verbs.QPState, error) {
	if q.send.handle == nil {
		return 0, verbs.ErrClosed
	}
	var state C.uint32_t
	rc, errno := C.shim_query_qp_state(q.pd.device.lib, q.send.handle, &state)
	return verbs.QPState(state), zeroOrErrno(int(rc), errno)
}

// ToInit brings the queue pair to INIT.
func (q *queuePair) ToInit(a verbs.InitAttr) error {
	if ports := q.pd.device.info.Ports; a.Port < 1 || a.Port > ports {
		return verbs.Errorf("initialise", q.object(), verbs.ErrInvalid, "there is no port %d; the device has %d, numbered from 1", a.Port, ports)
	}
	attr := C.shim_qp_attr{
		port_num: C.uint8_t(a.Port), pkey_index: C.uint16_t(a.PKeyIndex),
		qp_access_flags: C.uint32_t(accessBits(a.Access &^ (verbs.AccessBindWindow | verbs.AccessRelaxedOrdering))),
	}
	return q.step("initialise", verbs.StateInit, &attr, toInitMask, "is the partition key index in the port's table?")
}

// ToRTR connects the queue pair to its peer.
func (q *queuePair) ToRTR(a verbs.RTRAttr) error {
	err := a.Check()
	if err == nil && a.FlowLabel > maxFlowLabel {
		err = fmt.Errorf("%w: flow label %#x has more than 20 bits", verbs.ErrInvalid, a.FlowLabel)
	}
	if err != nil {
		return &verbs.Error{Op: "connect", Object: q.object(), Err: err}
	}
	hops := a.HopLimit
	if hops == 0 {
		hops = defaultHopLimit
	}
	attr := C.shim_qp_attr{
		path_mtu: C.uint32_t(mtuNumber(a.MTU)), dest_qp_num: C.uint32_t(a.Peer.QPN), rq_psn: C.uint32_t(a.Peer.PSN),
		max_dest_rd_atomic: C.uint8_t(a.MaxDestReadAtomic), min_rnr_timer: C.uint8_t(a.MinRNRTimer),
		ah_dlid: C.uint16_t(a.Peer.LID), ah_sl: C.uint8_t(a.ServiceLevel),
		grh_sgid_index: C.uint8_t(a.SGIDIndex), grh_hop_limit: C.uint8_t(hops),
		grh_traffic_class: C.uint8_t(a.TrafficClass), grh_flow_label: C.uint32_t(a.FlowLabel),
	}
	if !a.Peer.GID.IsZero() { // Always so on Ethernet.
		attr.ah_is_global = 1
		for i, b := range a.Peer.GID {
			attr.grh_dgid[i] = C.uint8_t(b)
		}
	}
	return q.step("connect", verbs.StateRTR, &attr, toRTRMask,
		fmt.Sprintf("is GID index %d filled, of the same RoCE version as the peer's %v, and is MTU %d not above the port's active one?", a.SGIDIndex, a.Peer.GID, a.MTU))
}

// ToRTS lets the queue pair send.
func (q *queuePair) ToRTS(a verbs.RTSAttr) error {
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: "start", Object: q.object(), Err: err}
	}
	attr := C.shim_qp_attr{
		sq_psn: C.uint32_t(a.PSN), timeout: C.uint8_t(a.Timeout), retry_cnt: C.uint8_t(a.Retry),
		rnr_retry: C.uint8_t(a.RNRRetry), max_rd_atomic: C.uint8_t(a.MaxReadAtomic),
	}
	return q.step("start", verbs.StateRTS, &attr, toRTSMask, "does the device take so many reads and atomics at once?")
}

// ToErr breaks the queue pair.
func (q *queuePair) ToErr() error {
	return q.step("break", verbs.StateErr, &C.shim_qp_attr{}, ibvQPState, "")
}

// ToReset takes the queue pair back to its beginning.
func (q *queuePair) ToReset() error {
	return q.step("reset", verbs.StateReset, &C.shim_qp_attr{}, ibvQPState, "")
}

// stir lets the driver look at a broken queue pair again. rxe takes receives
// without a call into the kernel, so that nobody there would flush those that
// come after the break. When it fails they stay until Close, as without it.
func (q *queuePair) stir() {
	attr := C.shim_qp_attr{qp_state: C.uint32_t(verbs.StateErr)}
	C.shim_modify_qp(q.pd.device.lib, q.recv.handle, &attr, ibvQPState)
}

// step brings the queue pair to a state. Nothing is posted meanwhile, so that
// the queues know in which state they are. hint asks what may be wrong when the
// device refuses.
func (q *queuePair) step(op string, to verbs.QPState, attr *C.shim_qp_attr, mask C.int, hint string) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()

	from, err := q.stateLocked()
	if err != nil {
		return explain(op, q.object(), err)
	}
	if err := verbs.CheckTransition(from, to); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	attr.qp_state = C.uint32_t(to)
	if to == verbs.StateInit {
		q.port = uint8(attr.port_num)
	}
	attr.ah_port_num = C.uint8_t(q.port)
	rc, errno := C.shim_modify_qp(q.pd.device.lib, q.send.handle, attr, mask)
	if err := zeroOrErrno(int(rc), errno); err != nil {
		if !errors.Is(err, syscall.EINVAL) {
			return explain(op, q.object(), err)
		}
		return &verbs.Error{Op: op, Object: q.object(), Hint: hint, Err: q.refused(from, to, err)}
	}
	q.send.state, q.recv.state = to, to
	return nil
}

// refused puts the device's EINVAL into words: the state may have changed under
// our hands, else it is one of the values.
func (q *queuePair) refused(from, to verbs.QPState, cause error) error {
	now, err := q.stateLocked()
	if err == nil && now != from {
		if err := verbs.CheckTransition(now, to); err != nil {
			return fmt.Errorf("%w: %w", err, cause)
		}
	}
	return fmt.Errorf("%w: the device refuses a value on the way from %v to %v: %w", verbs.ErrInvalid, from, to, cause)
}

// BindWindow is not supported.
func (q *queuePair) BindWindow(verbs.MR, uint64, uint64, verbs.Access) (verbs.Window, error) {
	return nil, verbs.Errorf("bind a window on", q.object(), errors.ErrUnsupported, "memory windows are not supported by this provider: it registers memory with rights of its own")
}

// Close destroys the queue pair. The kernel takes it out of the device before it
// returns, so that no packet of the peer finds it any more.
func (q *queuePair) Close() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	if q.send.handle == nil {
		return nil
	}
	d := q.pd.device
	rc, errno := C.shim_destroy_qp(d.lib, q.send.handle)
	if err := zeroOrErrno(int(rc), errno); err != nil && !gone(err) {
		return explain("destroy", q.object(), err)
	}
	q.send.free()
	q.recv.free()
	d.leave(&d.counts.QPs, q.parents...)
	return nil
}
