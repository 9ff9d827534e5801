package roce

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// qp implements verbs.QP: a machine, and where its packets go.
type qp struct {
	pd             *pd
	number         verbs.QPN
	config         verbs.QPConfig
	sendCQ, recvCQ *cq
	freedRecvs     atomic.Uint64 // receives that were polled; written by polls

	// flow is where packets go, from RTR on; it is set under both locks. What
	// follows is guarded by the flow's lock.
	flow    atomic.Pointer[flow]
	queued  bool   // it is in the flow's turn list
	urgent  bool   // it counts in the flow's
	counted uint64 // of the machine's flight, in the flow's
	deficit int    // what it may send in its turn; below 0 it has sent too much

	mu      sync.Mutex // guards what follows
	machine machine
	closed  bool
	station *station // from INIT on
	taking  bool     // a packet, on the goroutine of the station

	unsettled bool // it is in its station's list
	sender    int  // of the station's
	tos       uint8
	from      source

	timer   *time.Timer
	timerAt time.Duration
	armed   bool // timerAt is set
}

// source is where the peer's packets have to come from.
type source struct {
	remote
	ports    []uint16  // that the peer named
	any      bool      // it is a kernel or a NIC, which name none: they may come from any
	ids      int       // identifications that they may have
	path     wire.Path // from fromPort to here
	fromPort uint16    // 0 for no path yet
}

// allows says whether a packet may come from there.
func (s *source) allows(from netip.AddrPort) bool {
	return from.Addr().WithZone("") == s.at.Addr().WithZone("") && (s.any || slices.Contains(s.ports, from.Port()))
}

// CreateQP implements verbs.PD.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	const op = "create QP"
	if err := p.usableLocked(op); err != nil {
		return nil, err
	}
	sendCQ, ok1 := c.SendCQ.(*cq)
	recvCQ, ok2 := c.RecvCQ.(*cq)
	if !ok1 || !ok2 || sendCQ.dev != d || recvCQ.dev != d {
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "both completion queues must be of this device, as it was opened here")
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	_, open1 := d.cqs[sendCQ]
	_, open2 := d.cqs[recvCQ]
	switch {
	case !open1 || !open2:
		return nil, verbs.Errorf(op, d.name, verbs.ErrClosed, "a completion queue is closed")
	case c.MaxSend < 0 || c.MaxSend > maxWR || c.MaxRecv < 0 || c.MaxRecv > maxWR:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d sends and %d receives: at most %d of each", c.MaxSend, c.MaxRecv, maxWR)
	case c.MaxSendSGE > maxSGEs || c.MaxRecvSGE > maxSGEs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d and %d pieces a work request: at most %d", c.MaxSendSGE, c.MaxRecvSGE, maxSGEs)
	case c.MaxInline < 0 || c.MaxInline > maxInline:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d bytes inline: at most %d", c.MaxInline, maxInline)
	case len(d.qps) >= maxQPs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "there are %d, which is the device's limit", len(d.qps))
	}
	q := &qp{pd: p, config: c, sendCQ: sendCQ, recvCQ: recvCQ}
	q.machine.init(q, &p.domain, &d.counts, c.MaxSend, c.MaxRecv)
	d.provider.register(q)
	d.qps[q] = struct{}{}
	sendCQ.users.Add(1)
	recvCQ.users.Add(1)
	p.qps++
	return q, nil
}

// object names the queue pair in errors.
func (q *qp) object() string { return fmt.Sprintf("%s QP %v", q.pd.dev.name, q.number) }

// usableLocked is nil while calls make sense.
func (q *qp) usableLocked(op string) error {
	switch {
	case q.closed:
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	case q.pd.dev.gone.Load():
		return q.pd.dev.goneError(op)
	}
	return nil
}

// sent, received and tell implement outcome. The caller holds the lock.
func (q *qp) sent(wc verbs.WC, upTo uint64) {
	wc.QPN = q.number
	q.push(q.sendCQ, cqe{wc: wc, freed: &q.machine.req.freed, upTo: upTo, qp: q}, false)
}

func (q *qp) received(wc verbs.WC, upTo uint64, solicited bool) {
	wc.QPN = q.number
	q.push(q.recvCQ, cqe{wc: wc, freed: &q.freedRecvs, upTo: upTo, qp: q}, solicited)
}

func (q *qp) tell(kind verbs.EventKind) {
	q.pd.dev.async.push(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// push puts a completion into a queue. One that overruns is lost; polls say so.
func (q *qp) push(c *cq, e cqe, solicited bool) {
	fired, room := c.push(e, solicited, q.taking)
	if fired {
		q.station.fired = append(q.station.fired, c)
	}
	if !room {
		q.pd.dev.async.push(verbs.AsyncEvent{Kind: verbs.EventCQError})
	}
}

// QPN implements verbs.QP.
func (q *qp) QPN() verbs.QPN { return q.number }

// Endpoint implements verbs.QP. From INIT on it has the sockets.
func (q *qp) Endpoint() verbs.Endpoint {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := verbs.Endpoint{QPN: q.number}
	if s := q.station; s != nil {
		e.UDP = verbs.UDPEndpoint{
			Port: s.receiver.Addr().Port(), Sources: []uint16{s.senders[q.sender].Addr().Port()},
			Buffer: uint64(s.receiver.Buffer()), //nolint:gosec // a size
		}
	}
	return e
}

// MaxInline implements verbs.QP.
func (q *qp) MaxInline() int { return q.config.MaxInline }

// State implements verbs.QP.
func (q *qp) State() (verbs.QPState, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked("query"); err != nil {
		return 0, err
	}
	return q.machine.state, nil
}

// stepLocked begins a change of state.
func (q *qp) stepLocked(op string, to verbs.QPState) error {
	if err := q.usableLocked(op); err != nil {
		return err
	}
	if err := verbs.CheckStep(q.machine.state, to); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	return nil
}

// ToInit implements verbs.QP. The sockets of the address that packets come from
// are opened, unless they are.
func (q *qp) ToInit(a verbs.InitAttr) error {
	const op = "bring to INIT"
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
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
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "partition index %d: there is only 0", a.PKeyIndex)
	case !ok:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is empty", a.SGIDIndex)
	}
	s, err := d.stationLocked(addr)
	if err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	// Not before: sockets that are being closed are waited for, and their goroutine may
	// have a packet in hand that names this queue pair.
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked(op, verbs.StateInit); err != nil {
		return err
	}
	if q.station != s {
		q.station, q.sender = s, s.nextSender()
	}
	q.machine.access, q.machine.state = a.Access, verbs.StateInit
	return nil
}

// ToRTR implements verbs.QP.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	const op = "bring to RTR"
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
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
	case !ok || addr != q.station.addr:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is not %v, which the queue pair was brought to INIT with", a.SGIDIndex, q.station.addr)
	case a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer has no GID, which Ethernet needs")
	case peer.Is4() != addr.Is4():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer is at %v, and this side sends from %v: they are of different families", peer, addr)
	case a.Peer.UDP.Port != 0 && len(a.Peer.UDP.Sources) == 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer takes packets on UDP port %d and names no port that it sends from: all would have to be taken for its own", a.Peer.UDP.Port)
	case a.TrafficClass&ecnMask == congestionExperienced:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "traffic class %#x: its ECN (the two low bits) is the mark of a switch; 0, 1 and 2 can be sent", a.TrafficClass)
	case a.MaxDestReadAtomic > maxReadAtomic:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d reads at once: at most %d", a.MaxDestReadAtomic, maxReadAtomic)
	}
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		peer = peer.WithZone(addr.Zone())
	}
	r := remoteOf(peer, a.Peer.UDP)
	q.tos = a.TrafficClass
	q.from = q.station.sourceOf(r, a.Peer.UDP.Sources)
	q.machine.toRTR(a)
	f := q.station.flow(q.sender, r, q.machine.mtu)
	q.machine.readCost = f.readCost
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
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d reads at once: at most %d", a.MaxReadAtomic, maxReadAtomic)
	}
	q.machine.toRTS(a)
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.mu.Lock()
	err := q.stepLocked("bring to ERR", verbs.StateErr)
	if err == nil {
		q.machine.breaks()
	}
	q.mu.Unlock()
	q.settle()
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
	q.sendCQ.purge(q) // first: who polled a completion behind the reset would free slots that are not taken
	q.recvCQ.purge(q)
	q.machine.reset()
	q.freedRecvs.Store(0)
	q.stopTimerLocked()
	q.from = source{}
	return nil
}

// leaveFlow takes the queue pair out of its flow, where it has one.
func (q *qp) leaveFlow() {
	if f := q.flow.Swap(nil); f != nil {
		f.leave(q)
	}
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, open := d.qps[q]; !open {
		return nil
	}
	delete(d.qps, q)
	q.pd.qps--
	d.provider.unregister(q)
	q.leaveFlow()
	q.mu.Lock() // packets are taken, and sent, under it
	q.closed = true
	q.stopTimerLocked()
	q.mu.Unlock()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
	q.sendCQ.users.Add(-1)
	q.recvCQ.users.Add(-1)
	return nil
}

// PostSend implements verbs.QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	n, err := q.postSendLocked(wrs)
	q.mu.Unlock()
	if n > 0 {
		q.kick()
	}
	return n, err
}

func (q *qp) postSendLocked(wrs []verbs.SendWR) (int, error) {
	const op = "post send"
	if err := q.usableLocked(op); err != nil {
		return 0, err
	}
	if s := q.machine.state; s != verbs.StateRTS && s != verbs.StateErr {
		return 0, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the queue pair is in %v and sends only in RTS", s)
	}
	for i := range wrs {
		if err := q.checkSend(&wrs[i]); err != nil {
			return i, err
		}
		if q.machine.req.full() {
			return i, verbs.Errorf(op, q.object(), verbs.ErrQueueFull, "all %d slots of the send queue are taken", q.config.MaxSend)
		}
		q.machine.post(&wrs[i])
	}
	return len(wrs), nil
}

// checkSend says why a work request cannot be posted at all.
func (q *qp) checkSend(wr *verbs.SendWR) error {
	const op = "post send"
	switch {
	case wr.Op > verbs.OpFetchAdd:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "there is no operation %d", wr.Op)
	case wr.Inline != nil && wr.Op >= verbs.OpRead:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v cannot be inline", wr.Op)
	case len(wr.Inline) > q.config.MaxInline:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d bytes inline: at most %d", len(wr.Inline), q.config.MaxInline)
	case len(wr.SGL) > q.config.MaxSendSGE:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d pieces: at most %d", len(wr.SGL), q.config.MaxSendSGE)
	case wr.Op < verbs.OpCompareSwap:
		return nil
	case len(wr.SGL) != 1 || wr.SGL[0].Length != 8:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v needs one piece of 8 bytes", wr.Op)
	case wr.RemoteAddr%8 != 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v needs an address that 8 divides", wr.Op)
	}
	return nil
}

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	const op = "post receive"
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked(op); err != nil {
		return 0, err
	}
	if q.machine.state == verbs.StateReset {
		return 0, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the queue pair is in RESET: receives can be posted from INIT on")
	}
	for i := range wrs {
		if len(wrs[i].SGL) > q.config.MaxRecvSGE {
			return i, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d pieces: at most %d", len(wrs[i].SGL), q.config.MaxRecvSGE)
		}
		freed := q.freedRecvs.Load()
		if q.machine.resp.posted-freed >= uint64(q.config.MaxRecv) { //nolint:gosec // not negative
			return i, verbs.Errorf(op, q.object(), verbs.ErrQueueFull, "all %d slots of the receive queue are taken", q.config.MaxRecv)
		}
		q.machine.postReceive(&wrs[i], freed)
	}
	return len(wrs), nil
}

// PostSendAndPoll implements verbs.QP.
func (q *qp) PostSendAndPoll(wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	posted, err = q.PostSend(wrs)
	polled, pollErr := c.Poll(wcs)
	if err == nil {
		err = pollErr
	}
	return posted, polled, err
}

// armLocked sets the timer for the machine's deadline. It is set anew only when
// it would come too late: one that comes too early looks again.
func (q *qp) armLocked() {
	at, ok := q.machine.deadline()
	if !ok || q.timer == nil || q.closed || q.armed && q.timerAt <= at {
		return
	}
	q.armed, q.timerAt = true, at
	q.timer.Reset(max(at-q.pd.dev.now(), 0))
}

func (q *qp) stopTimerLocked() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.armed = false
}

// expire is the timer's.
func (q *qp) expire() {
	q.mu.Lock()
	q.armed = false
	now := q.pd.dev.now()
	if at, ok := q.machine.deadline(); ok && !q.closed && now >= at {
		q.machine.expire(now)
	}
	q.armLocked()
	q.mu.Unlock()
	q.settle()
}
