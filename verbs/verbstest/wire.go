package verbstest

import (
	"math"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// wire carries packets from one port to another, in order. Guarded by the
// fabric's lock.
type wire struct {
	from, to  *port
	latency   time.Duration
	bandwidth int64 // bytes per second; 0 for at once
	loss      float64
	cut       bool
	hold      bool
	held      []*packet
	last      time.Duration // when the last packet arrives that is on the way
	free      time.Duration // when the wire takes the next one
	carried   uint64        // bytes that have arrived
	meter     *meter
}

// meter counts the bytes that a link carries, to do something at a number of
// them.
type meter struct {
	carried uint64
	holdAt  uint64
	cutAt   uint64
	held    chan struct{} // closed when the hold begins; nil when none is to come
	cut     chan struct{} // likewise
	wires   []*wire       // that stop together
}

// wireLocked is the wire from one port to another, made at its first use.
func (f *Fabric) wireLocked(from, to *port) *wire {
	w := from.wires[to]
	if w == nil {
		w = &wire{from: from, to: to, latency: f.options.Latency, bandwidth: f.options.Bandwidth, loss: f.options.Loss}
		from.wires[to] = w
	}
	return w
}

// Link is all wires between two hosts, or in one direction between them, for
// the faults of a test.
type Link struct {
	f     *Fabric
	wires []*wire
}

// Link is what joins two hosts: every port of one with every port of the other,
// both ways. A host's link to itself is its loopback.
func (f *Fabric) Link(a, b string) *Link {
	ab, ba := f.OneWay(a, b), f.OneWay(b, a)
	if a != b {
		ab.wires = append(ab.wires, ba.wires...)
	}
	return ab
}

// OneWay is the direction of a link in which packets go from one host to the
// other. Acknowledgements go the other way.
func (f *Fabric) OneWay(from, to string) *Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Link{f: f}
	for _, a := range f.hostLocked(from).nics {
		for _, b := range f.hostLocked(to).nics {
			l.addLocked(a, b)
		}
	}
	return l
}

// Between is what joins two NICs, both ways: one rail.
func (f *Fabric) Between(a, b *NIC) *Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Link{f: f}
	l.addLocked(a, b)
	if a != b {
		l.addLocked(b, a)
	}
	return l
}

func (l *Link) addLocked(a, b *NIC) {
	for _, from := range a.ports {
		for _, to := range b.ports {
			l.wires = append(l.wires, l.f.wireLocked(from, to))
		}
	}
}

func (l *Link) each(do func(*wire)) *Link {
	l.f.enter()
	defer l.f.leave()
	for _, w := range l.wires {
		do(w)
	}
	return l
}

// SetLatency changes how long packets travel that are sent from now on; none
// overtakes an earlier one.
func (l *Link) SetLatency(d time.Duration) *Link { return l.each(func(w *wire) { w.latency = d }) }

// SetBandwidth changes how many bytes per second each wire takes; 0 for all at
// once.
func (l *Link) SetBandwidth(bytesPerSecond int64) *Link {
	return l.each(func(w *wire) { w.bandwidth = bytesPerSecond })
}

// SetLoss changes the share of packets that get lost, 0 to 1. They are sent
// again, so loss costs time, until the retries are used up.
func (l *Link) SetLoss(share float64) *Link { return l.each(func(w *wire) { w.loss = share }) }

// Cut loses everything, also what is on the way, until Restore. Nobody is told.
func (l *Link) Cut() *Link { return l.each((*wire).sever) }

func (w *wire) sever() {
	w.cut = true
	for _, p := range w.held {
		w.from.nic.f.dropLocked(p)
	}
	w.held = nil
}

// Restore ends a cut, also one that has not happened yet.
func (l *Link) Restore() *Link {
	return l.each(func(w *wire) {
		w.cut = false
		if w.meter != nil {
			w.meter.cut = nil
		}
	})
}

// Hold stops packets on their way, until Release. What waits for their answer
// may time out and send again meanwhile.
func (l *Link) Hold() *Link { return l.each(func(w *wire) { w.hold = true }) }

// Release ends a hold, also one that has not happened yet: everything arrives
// at once, in order.
func (l *Link) Release() *Link {
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

// HoldAfter lets n more bytes of content arrive, over all wires of the link
// together, and then holds them all. The channel is closed when that has
// happened. One link counts at a time on a wire: another one that has the wire,
// too, takes the place of this one.
func (l *Link) HoldAfter(n uint64) <-chan struct{} {
	c := make(chan struct{})
	l.measure(func(m *meter) { m.holdAt, m.held = m.carried+n, c })
	return c
}

// CutAfter does the same with a cut.
func (l *Link) CutAfter(n uint64) <-chan struct{} {
	c := make(chan struct{})
	l.measure(func(m *meter) { m.cutAt, m.cut = m.carried+n, c })
	return c
}

func (l *Link) measure(do func(*meter)) {
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

// check does what is to happen when n more bytes want to pass.
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

// Carried is how many bytes of content have arrived over the link.
func (l *Link) Carried() (n uint64) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for _, w := range l.wires {
		n += w.carried
	}
	return n
}

// packet is what travels as one: a segment of a message, or an answer.
type packet struct {
	kind packetKind
	wire *wire
	sgid verbs.GID // the sender's address
	dst  verbs.QPN
	// from is the sending queue pair; its number stays what it was.
	from    *qp
	fromQPN verbs.QPN
	// psn is the first one of the requester's life: who expects another one
	// does not know the packet.
	psn verbs.PSN
	mtu verbs.MTU

	// Of a request. seg numbers it: a queue pair's segments are numbered
	// from 0 on, as packets are by PSNs. Of an answer: what it is about.
	seg   uint64
	op    verbs.Opcode
	off   uint64 // in the message
	n     uint64 // bytes of this segment; of a read request, all that is asked for
	total uint64 // of the message
	work  *sendWork
	// number is the work request's: when that has ended, its slot may be
	// another's, and the packet is a second copy of what was taken.
	number uint64
	imm    uint32
	solic  bool
	addr   uint64
	rkey   verbs.RKey
	a, b   uint64 // operands of an atomic; of its answer, a is the old value

	status verbs.Status // of a nakError
	wait   uint8        // of an RNR NAK: the code of the time
	// data is the content, where it is not read from the sender's memory on
	// arrival: an answer's, and that of a sender who has let go meanwhile.
	data []byte
	buf  []byte // for use as data
	void bool   // there is no content any more: a second copy

	next, prev *packet // requests of one queue pair under way; next also in the free list
	tracked    bool
}

// packetKind says what a packet is.
type packetKind uint8

const (
	request     packetKind = iota
	ack                    // everything before seg was taken
	nakError               // NAK: seg failed with status
	nakSequence            // NAK: seg was expected
	nakRNR                 // RNR NAK: no receive is posted for seg
	response               // seg of a read or atomic
)

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

// list enters a request among those that read the memory of their sender when
// they arrive.
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

// detachInFlightLocked lets what is on the way from a queue pair take its content
// along: from now on the memory that it came from is its owner's.
func (q *qp) detachInFlightLocked() {
	for p := q.inFlight; p != nil; {
		next := p.next
		if p.number < q.finished {
			p.void = true
		} else {
			p.data = make([]byte, p.n)
			copyPieces([][]byte{p.data}, 0, p.work.mem, p.off, p.n)
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

// lostLocked says whether one of the packets is lost that n bytes take.
func (f *Fabric) lostLocked(share float64, n uint64, mtu verbs.MTU) bool {
	packets := max(1, (n+uint64(mtu)-1)/uint64(mtu))
	return f.random.Float64() >= math.Pow(1-share, float64(packets))
}

// routeLocked is the port that a queue pair's peer has, by its address.
func (q *qp) routeLocked() *port {
	f := q.nic.f
	if q.peer.GID.IsZero() {
		return f.lids[q.peer.LID]
	}
	if f.gids[q.sgid] != q.port { // the address was taken away
		return nil
	}
	return f.gids[q.peer.GID]
}

// arrive is the end of a packet's way.
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
		p.void = p.void || p.tracked && p.number < p.from.finished
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

// accepts says whether a packet comes from the queue pair's peer, as a device
// checks it; what does not is dropped without a word (rxe_recv.c).
func (q *qp) accepts(p *packet) bool {
	if q.port != p.wire.to || q.peer.QPN != p.fromQPN {
		return false
	}
	if q.peer.GID.IsZero() && q.peer.LID != p.wire.from.lid || !q.peer.GID.IsZero() && q.peer.GID != p.sgid {
		return false
	}
	if p.kind == request {
		return (q.state == verbs.StateRTR || q.state == verbs.StateRTS) && (q.peer.PSN == p.psn || q.nic.f.hasBug(anyPSN))
	}
	return q.state == verbs.StateRTS && q.rts.PSN == p.psn
}
