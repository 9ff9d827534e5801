package verbstest

import (
	"math"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// wire carries packets from one port to another, in order. The fabric's lock guards it.
type wire struct {
	from, to  *port
	latency   time.Duration
	bandwidth int64 // bytes per second; 0: unlimited
	loss      float64
	cut       bool
	hold      bool
	held      []*packet
	last      time.Duration // when the last packet in flight arrives
	free      time.Duration // when the wire accepts the next packet
	carried   uint64        // bytes of content that arrived
	meter     *meter
}

// meter counts the bytes that some wires carry, for HoldAfter and CutAfter.
type meter struct {
	carried uint64
	holdAt  uint64
	cutAt   uint64
	held    chan struct{} // closed when the hold begins; nil if none is planned
	cut     chan struct{} // likewise
	wires   []*wire
}

// wireLocked returns the wire from one port to another, and creates it on first use.
func (f *Fabric) wireLocked(from, to *port) *wire {
	w := from.wires[to]
	if w == nil {
		w = &wire{from: from, to: to, latency: f.options.Latency, bandwidth: f.options.Bandwidth, loss: f.options.Loss}
		from.wires[to] = w
	}
	return w
}

// Wires are wires between two hosts or NICs. The methods change their properties and
// inject faults, and return them for chaining.
type Wires struct {
	f     *Fabric
	wires []*wire
}

// Wires returns all wires between two hosts, in both directions. Those of a host to
// itself are its loopback.
func (f *Fabric) Wires(a, b string) *Wires {
	ab, ba := f.OneWay(a, b), f.OneWay(b, a)
	if a != b {
		ab.wires = append(ab.wires, ba.wires...)
	}
	return ab
}

// OneWay returns the wires in one direction. Acknowledgements travel in the other one.
func (f *Fabric) OneWay(from, to string) *Wires {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Wires{f: f}
	for _, a := range f.hostLocked(from).nics {
		for _, b := range f.hostLocked(to).nics {
			l.addLocked(a, b)
		}
	}
	return l
}

// Between returns the wires between two NICs, in both directions: one rail.
func (f *Fabric) Between(a, b *NIC) *Wires {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Wires{f: f}
	l.addLocked(a, b)
	if a != b {
		l.addLocked(b, a)
	}
	return l
}

// Toward returns the wire from one NIC to another.
func (f *Fabric) Toward(from, to *NIC) *Wires {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Wires{f: f}
	l.addLocked(from, to)
	return l
}

func (l *Wires) addLocked(a, b *NIC) {
	for _, from := range a.ports {
		for _, to := range b.ports {
			l.wires = append(l.wires, l.f.wireLocked(from, to))
		}
	}
}

func (l *Wires) each(do func(*wire)) *Wires {
	l.f.enter()
	defer l.f.leave()
	for _, w := range l.wires {
		do(w)
	}
	return l
}

// SetLatency changes the latency of packets sent from now on. No packet overtakes an
// earlier one.
func (l *Wires) SetLatency(d time.Duration) *Wires { return l.each(func(w *wire) { w.latency = d }) }

// SetBandwidth changes the bandwidth of each wire, in bytes per second; 0 means unlimited.
func (l *Wires) SetBandwidth(bytesPerSecond int64) *Wires {
	return l.each(func(w *wire) { w.bandwidth = bytesPerSecond })
}

// SetLoss changes the probability that a packet is lost, 0 to 1. Queue pairs retransmit, so
// loss costs time, until their retries are exhausted.
func (l *Wires) SetLoss(share float64) *Wires { return l.each(func(w *wire) { w.loss = share }) }

// Cut drops all packets, including those in flight, until Restore. Devices get no event.
func (l *Wires) Cut() *Wires { return l.each((*wire).sever) }

func (w *wire) sever() {
	w.cut = true
	for _, p := range w.held {
		w.from.nic.f.dropLocked(p)
	}
	w.held = nil
}

// Restore ends a cut, and cancels a pending CutAfter.
func (l *Wires) Restore() *Wires {
	return l.each(func(w *wire) {
		w.cut = false
		if w.meter != nil {
			w.meter.cut = nil
		}
	})
}

// Hold delays all packets until Release. Queue pairs that wait for an acknowledgement may
// time out meanwhile and retransmit.
func (l *Wires) Hold() *Wires { return l.each(func(w *wire) { w.hold = true }) }

// Release ends a hold, and cancels a pending HoldAfter. The held packets arrive at once, in
// order.
func (l *Wires) Release() *Wires {
	return l.each(func(w *wire) {
		w.hold = false
		if w.meter != nil {
			w.meter.held = nil
		}
		for _, p := range w.held {
			w.from.nic.f.schedule.add(timedEvent{at: w.from.nic.f.now, packet: p})
		}
		w.held = nil
	})
}

// HoldAfter holds the wires after n more bytes of content have arrived, over all of them
// together. The channel is closed when the hold begins. A wire counts for one Wires at a
// time: a later HoldAfter or CutAfter of another one replaces this one on shared wires.
func (l *Wires) HoldAfter(n uint64) <-chan struct{} {
	c := make(chan struct{})
	l.measure(func(m *meter) { m.holdAt, m.held = m.carried+n, c })
	return c
}

// CutAfter is like HoldAfter, with a cut.
func (l *Wires) CutAfter(n uint64) <-chan struct{} {
	c := make(chan struct{})
	l.measure(func(m *meter) { m.cutAt, m.cut = m.carried+n, c })
	return c
}

func (l *Wires) measure(do func(*meter)) {
	l.f.enter()
	defer l.f.leave()
	if len(l.wires) == 0 {
		return
	}
	m := l.wires[0].meter
	if m == nil || !slices.Equal(m.wires, l.wires) {
		m = &meter{wires: l.wires}
		for _, w := range l.wires {
			w.meter = m
		}
	}
	do(m)
	m.check(0)
}

// check begins the hold or cut if n more bytes would exceed its limit.
func (m *meter) check(n uint64) {
	if m.held != nil && m.carried+n > m.holdAt || m.held != nil && m.carried >= m.holdAt {
		close(m.held)
		m.held = nil
		for _, w := range m.wires {
			w.hold = true
		}
	}
	if m.cut != nil && m.carried+n > m.cutAt || m.cut != nil && m.carried >= m.cutAt {
		close(m.cut)
		m.cut = nil
		for _, w := range m.wires {
			w.sever()
		}
	}
}

// Carried returns the number of bytes of content that arrived over the wires.
func (l *Wires) Carried() (n uint64) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for _, w := range l.wires {
		n += w.carried
	}
	return n
}

// packet is the unit of transmission: a segment of a message, or a reply.
type packet struct {
	kind packetKind
	wire *wire
	sgid verbs.GID // source address
	dst  verbs.QPN // destination queue pair
	// from is the sending queue pair. fromQPN is kept apart: from may be closed.
	from    *qp
	fromQPN verbs.QPN
	// psn is the initial PSN of the requester. A queue pair that expects another
	// initial PSN drops the packet.
	psn verbs.PSN
	mtu verbs.MTU

	// seg is the number of the segment: the segments of a queue pair are numbered from
	// 0, as packets are by PSN. In a reply it is the segment that the reply is for.
	seg   uint64
	op    verbs.Opcode
	off   uint64 // of the segment in the message
	n     uint64 // bytes of this segment; of a read request, all requested bytes
	total uint64 // of the message
	// content is that of the work request. It is read on arrival, unless data is set.
	content *segments
	// number is that of the work request. If the request has completed, its slot may
	// have been reused, and the packet is a duplicate of one that was accepted.
	number uint64
	imm    uint32
	solic  bool
	addr   uint64
	rkey   verbs.RKey
	// Operands of an atomic.
	compareAdd, swap uint64

	status verbs.Status // of nakError
	wait   uint8        // of an RNR NAK: the code of the time to wait
	// data is the content of a response, and of a request whose sender has released
	// its memory. The content of other requests is read from the sender's memory on
	// arrival.
	data []byte
	buf  []byte // capacity to reuse for data
	void bool   // a duplicate without content

	next, prev *packet // list of the queue pair's requests in flight; next also links the free list
	tracked    bool
}

// packetKind is the type of a packet.
type packetKind uint8

const (
	request     packetKind = iota
	ack                    // all segments before seg were accepted
	nakError               // NAK: seg was rejected with status
	nakSequence            // NAK of a sequence error: seg was expected
	nakRNR                 // RNR NAK: no receive is posted for seg
	response               // seg of a read, or the old value of an atomic
)

// newPacketLocked returns a zero packet; freeLocked returns it to the free list.
func (f *Fabric) newPacketLocked() *packet {
	p := f.free
	if p == nil {
		return &packet{}
	}
	f.free = p.next
	*p = packet{buf: p.buf}
	return p
}

func (f *Fabric) freeLocked(p *packet) {
	buf := p.buf
	*p = packet{buf: buf, next: f.free}
	f.free = p
}

func (f *Fabric) dropLocked(p *packet) {
	p.untrack()
	f.freeLocked(p)
}

// track adds a request to the list of its sender: its content is read from the sender's
// memory when it arrives.
func (p *packet) track() {
	q := p.from
	p.tracked = true
	p.next = q.inFlight
	if p.next != nil {
		p.next.prev = p
	}
	q.inFlight = p
}

func (p *packet) untrack() {
	if !p.tracked {
		return
	}
	p.tracked = false
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		p.from.inFlight = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.next, p.prev = nil, nil
}

// detachInFlightLocked copies the content of the queue pair's requests in flight, so that
// their memory is the owner's again.
func (q *qp) detachInFlightLocked() {
	for p := q.inFlight; p != nil; {
		next := p.next
		if p.number < q.machine.Completed() {
			p.void = true
		} else {
			p.data = make([]byte, p.n)
			copyBuffers([][]byte{p.data}, 0, p.content.mem, p.off, p.n)
		}
		p.untrack()
		p = next
	}
}

// send puts a packet of a queue pair on its wire.
func (q *qp) send(p *packet) {
	f := q.nic.f
	to := q.routeLocked()
	if to == nil || !q.port.up() || !to.up() {
		f.freeLocked(p)
		return
	}
	w := f.wireLocked(q.port, to)
	p.wire, p.from, p.fromQPN, p.sgid, p.dst, p.mtu = w, q, q.number, q.sgid, q.peer.QPN, q.mtu
	content := p.n
	if p.kind == request && p.op == verbs.OpRead {
		content = 0
	}
	if w.cut || w.loss > 0 && f.lostLocked(w.loss, content, q.mtu) {
		f.freeLocked(p)
		return
	}
	at := max(f.now, w.free)
	if w.bandwidth > 0 {
		at += time.Duration(float64(content) / float64(w.bandwidth) * float64(time.Second))
		w.free = at
	}
	at = max(at+w.latency, w.last)
	w.last = at
	q.lastArrival = max(q.lastArrival, at)
	if p.kind != request {
		if peer := to.nic.qps[p.dst]; peer != nil {
			peer.lastArrival = max(peer.lastArrival, at)
		}
	}
	if p.kind == request && p.op != verbs.OpRead && p.n > 0 {
		p.track()
	}
	f.schedule.add(timedEvent{at: at, packet: p})
}

// lostLocked reports whether at least one of the packets of n bytes is lost.
func (f *Fabric) lostLocked(share float64, n uint64, mtu verbs.MTU) bool {
	packets := max(1, (n+uint64(mtu)-1)/uint64(mtu))
	return f.random.Float64() >= math.Pow(1-share, float64(packets))
}

// routeLocked returns the port with the address of the queue pair's peer, or nil.
func (q *qp) routeLocked() *port {
	f := q.nic.f
	if q.peer.GID.IsZero() {
		return f.lids[q.peer.LID]
	}
	if f.gids[q.sgid] != q.port { // the source address was removed
		return nil
	}
	return f.gids[q.peer.GID]
}

// arrive delivers a packet, unless its wire is cut or held.
func (f *Fabric) arrive(p *packet) {
	w := p.wire
	if m := w.meter; m != nil && p.n > 0 && (p.kind != request || p.op != verbs.OpRead) {
		m.check(p.n)
	}
	switch {
	case w.cut || !w.from.up() || !w.to.up():
		f.dropLocked(p)
		return
	case w.hold:
		w.held = append(w.held, p)
		return
	}
	if p.kind != request || p.op != verbs.OpRead {
		w.carried += p.n
		if w.meter != nil {
			w.meter.carried += p.n
		}
	}
	if q := w.to.nic.qps[p.dst]; q != nil && q.accepts(p) {
		p.void = p.void || p.tracked && p.number < p.from.machine.Completed()
		switch {
		case p.kind != request:
			q.handleReply(p)
		case !p.void || p.seg < q.segExpected:
			q.handleRequest(p)
		}
	}
	if m := w.meter; m != nil {
		m.check(0)
	}
	f.dropLocked(p)
}

// accepts reports whether a packet comes from the peer of the queue pair, as devices check
// it. Other packets are dropped silently (drivers/infiniband/sw/rxe/rxe_recv.c).
func (q *qp) accepts(p *packet) bool {
	if q.port != p.wire.to || q.peer.QPN != p.fromQPN {
		return false
	}
	if q.peer.GID.IsZero() && q.peer.LID != p.wire.from.lid || !q.peer.GID.IsZero() && q.peer.GID != p.sgid {
		return false
	}
	if p.kind == request {
		return q.machine.IsUp() && (q.peer.PSN == p.psn || q.nic.f.hasBug(anyPSN))
	}
	return q.machine.State() == verbs.StateRTS && q.rts.PSN == p.psn
}
