package roce

import (
	"encoding/binary"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// responder is the half of a queue pair that carries out what the peer asks for
// (specification, volume 1, 9.7.5). Its packets are numbered from 0 on.
type responder struct {
	limit int
	recvs ring[recvWork]

	posted uint64
	taken  uint64 // by messages

	first     verbs.PSN // of packet 0
	expected  uint64
	completed uint32 // messages: the MSN
	minRNR    uint8
	maxAsks   uint8

	message message
	// gap says that the requester was told what is expected: until that comes,
	// what lies ahead is dropped without a word.
	gap bool
	// data says that the packet before the expected one was a send's or a write's.
	data bool

	// What is owed to the requester: the answers to reads and atomics, oldest
	// first, then one acknowledgement or refusal, or both where something is missing.
	answers   [maxReadAtomic]answer
	answering int
	// paused says that answers to reads wait until pausedUntil; asked is what was asked
	// for in pieces.
	paused      bool
	pausedUntil time.Duration
	asked       uint64
	reply       wire.Syndrome
	replyAt     uint64 // the packet that it is for
	ackFirst    bool   // an acknowledgement of what was expected last goes before it
	replying    bool
	// held says that the reply, an acknowledgement, waits until heldUntil for
	// something to travel with; heldFor is how many messages it stands for.
	held      bool
	heldUntil time.Duration
	heldFor   int
	// shortAt is when a short message came last, and quick that the one before it was
	// no longer ago than alongTime.
	shortAt time.Duration
	quick   bool
	// talks says that this side has sent a request since an acknowledgement was last
	// held in vain.
	talks   bool
	cnp     bool
	cnpAt   time.Duration // of the last one
	cnpSent bool

	// atomics remembers what atomics found, for requesters that ask again.
	atomics    [maxReadAtomic]remembered
	remembered uint64 // so many, since the beginning
}

// message is the one that has begun and not ended.
type message struct {
	kind   messageKind
	done   uint64 // bytes that came
	length uint64 // of a write, by its RETH
	addr   uint64
	rkey   verbs.RKey
}

type messageKind uint8

const (
	noMessage messageKind = iota
	aSend
	aWrite
)

// recvWork is a slot of the receive queue.
type recvWork struct {
	id     verbs.WRID
	sgl    []verbs.SGE
	length uint64
}

// answer is the response to a read, of which a part may have been sent, or to an
// atomic.
type answer struct {
	number uint64 // the packet that it begins with
	read   bool
	addr   uint64
	rkey   verbs.RKey
	length uint64
	sent   uint64
	value  uint64 // an atomic's
	msn    uint32
	again  bool // it was sent before
}

type remembered struct {
	number uint64
	value  uint64
	valid  bool
}

// connect takes the queue pair's attributes.
func (r *responder) connect(a verbs.RTRAttr) {
	r.first, r.minRNR, r.maxAsks = a.Peer.PSN, a.MinRNRTimer, a.MaxDestReadAtomic
}

// postReceive takes a work request that was looked at, where the queue is not
// full. freed is the number below which slots are free.
func (m *machine) postReceive(wr *verbs.RecvWR, freed uint64) {
	r := &m.resp
	r.recvs.grow(freed, r.posted, r.limit)
	w := r.recvs.at(r.posted)
	w.id, w.length, w.sgl = wr.ID, wr.Len(), append(w.sgl[:0], wr.SGL...)
	r.posted++
	if m.state == verbs.StateErr {
		m.flushReceives()
	}
}

// respond is a request of the peer.
func (m *machine) respond(now time.Duration, h *wire.Header, payload []byte) {
	r := &m.resp
	number, ok := numberOf(r.first, h.PSN, r.expected)
	switch {
	case !ok:
		return
	case number > r.expected:
		if !r.gap {
			r.gap = true
			m.counts.gaps.Add(1)
			m.oweGap()
		}
		return
	case number < r.expected:
		m.repeated(number, h)
		return
	}
	r.gap = false
	switch {
	case h.Op.IsSend():
		m.takeSend(now, h, payload)
	case h.Op.IsWrite():
		m.takeWrite(now, h, payload)
	case r.message.kind != noMessage:
		m.refuse(wire.NAKInvalidRequest)
	case h.Op == wire.ReadRequest:
		m.takeRead(h)
	case h.Op.IsAtomic():
		m.takeAtomic(h)
	default: // FLUSH, ATOMIC WRITE: not offered
		m.refuse(wire.NAKInvalidRequest)
	}
}

// owe lets a reply go out, behind the answers to reads. The last one stands: it
// says all that those before it said.
func (m *machine) owe(s wire.Syndrome, number uint64) {
	r := &m.resp
	r.reply, r.replyAt, r.replying, r.held, r.ackFirst = s, number, true, false, false
}

// oweGap asks for what is missing. The send or write before it is acknowledged in a
// packet of its own, though the NAK says as much: a kernel that repeats something hears
// no further NAK until it has an ACK (started_retry of rxe_comp.c, Linux 6.1), and would
// wait until its time is up. Reads and atomics are acknowledged by their answers.
func (m *machine) oweGap() {
	r := &m.resp
	m.owe(wire.NAKSequence, r.expected)
	r.ackFirst = r.data
}

// owes says whether something waits to be sent.
func (r *responder) owes() bool { return r.replying && !r.held || r.answering > 0 || r.cnp }

// hold lets the acknowledgement of a short message wait where its receiver, as a
// rule, answers it: the two packets wake the peer once. A requester waits for it
// only to use a slot again (specification, volume 1, 9.7.5.1.2: coalesced
// acknowledgements). What waited already, waits no longer for it.
func (m *machine) hold(now time.Duration, since bool) {
	r := &m.resp
	until := now + holdTime
	if since {
		until = r.heldUntil
	}
	r.shortAt, r.quick = now, now-r.shortAt <= alongTime
	if r.heldFor++; r.heldFor < holdMessages {
		r.held, r.heldUntil = true, until
	}
}

// mayBeHeld says whether the acknowledgement of a packet may be held: it is a message,
// and takes a receive, so that somebody hears of it who may answer.
func mayBeHeld(h *wire.Header) bool {
	return h.Op.StartsMessage() && h.Op.EndsMessage() && (h.Op.IsSend() || h.Op.HasImm())
}

// ripe says whether an acknowledgement that is held goes along with a request of one
// packet: it costs both sides about as much as that. It is for some messages, or has
// waited for a while, or messages are far apart: there may be no other request in time,
// and a timer would wake a thread for each.
func (r *responder) ripe(now time.Duration) bool {
	return !r.quick || r.heldFor >= alongMessages || now >= r.heldUntil-holdTime+alongTime
}

// repeated is a request that was carried out before: its answer was lost.
func (m *machine) repeated(number uint64, h *wire.Header) {
	r := &m.resp
	m.counts.repeated.Add(1)
	if !h.Op.IsAtomic() && h.Op != wire.ReadRequest {
		if !r.replying {
			m.owe(wire.AckUnlimited, r.expected-1)
		}
		return
	}
	// One that goes beyond what was asked for before is none.
	read := h.Op == wire.ReadRequest && number+m.packetsOf(uint64(h.Length)) <= r.expected && m.mayRead(h) == 0
	from := answer{number: number, read: true, addr: h.Addr, rkey: h.RKey, length: uint64(h.Length), again: true}
	for i := range r.answering {
		switch a := &r.answers[i]; {
		case number < a.number || number >= a.number+m.packetsOf(a.length):
			continue
		case read && number < a.number+a.sent/m.mtu: // sent, and lost: the rest behind it is passed over there
			from.msn = a.msn
			*a = from
		}
		return // the answer is on its way
	}
	if r.answering >= int(r.maxAsks) {
		return
	}
	if h.Op == wire.ReadRequest {
		if read {
			m.answer(from)
		}
		return
	}
	for _, a := range r.atomics {
		if a.valid && a.number == number {
			m.answer(answer{number: number, value: a.value, again: true})
		}
	}
}

// answersMore says whether one more new request can be answered. Who asks has the
// answers to all but the last ones, so that those that were to be sent again make
// room.
func (r *responder) answersMore() bool {
	for i := 0; i < r.answering && r.answering >= int(r.maxAsks); {
		if !r.answers[i].again {
			i++
			continue
		}
		r.answering--
		copy(r.answers[i:], r.answers[i+1:r.answering+1])
	}
	return r.answering < int(r.maxAsks)
}

func (m *machine) answer(a answer) {
	r := &m.resp
	a.msn = r.completed
	if r.answering == 0 {
		r.paused = false // an earlier one's
	}
	if n := m.packetsOf(a.length); a.read && n <= readPackets {
		r.asked += charge(n, a.length)
	}
	r.answers[r.answering] = a
	r.answering++
}

func (m *machine) packetsOf(length uint64) uint64 { return max(1, (length+m.mtu-1)/m.mtu) }

// refuse answers that the request at hand fails, and breaks the queue pair
// (specification, volume 1, 9.9.3.1, class C).
func (m *machine) refuse(s wire.Syndrome) {
	m.counts.refused.Add(1)
	m.owe(s, m.resp.expected)
	if m.resp.message.kind == aSend {
		m.resp.taken-- // it is flushed
	}
	m.resp.message.kind = noMessage
	m.breaks()
	if s == wire.NAKRemoteAccess {
		m.out.tell(verbs.EventQPAccess)
	} else {
		m.out.tell(verbs.EventQPRequest)
	}
}

// failReceive ends the receive at hand with an error of this side.
func (m *machine) failReceive(own verbs.Status, theirs wire.Syndrome) {
	m.resp.message.kind = noMessage
	m.received(verbs.WC{Status: own}, false)
	m.refuse(theirs)
}

// done goes on to the next packet. A message that has ended is counted.
func (m *machine) done(now time.Duration, h *wire.Header) {
	r := &m.resp
	r.expected++
	r.data = true
	if h.Op.EndsMessage() {
		r.completed = (r.completed + 1) & psnMask
		r.message.kind = noMessage
	}
	if !h.AckReq {
		return
	}
	may, since := !r.replying || r.held, r.replying && r.held
	m.owe(wire.AckUnlimited, r.expected-1)
	if may && r.talks && m.state == verbs.StateRTS && mayBeHeld(h) {
		m.hold(now, since)
	}
}

// fits looks at a packet's place in its message, and at its size (specification,
// volume 1, 9.7.4.1.2).
func (m *machine) fits(kind messageKind, h *wire.Header, payload []byte) bool {
	n := uint64(len(payload))
	switch begun := m.resp.message.kind; {
	case h.Op.StartsMessage() != (begun == noMessage), begun != noMessage && begun != kind:
		return false
	case !h.Op.EndsMessage():
		return n == m.mtu
	case h.Op.StartsMessage():
		return n <= m.mtu
	default:
		return n >= 1 && n <= m.mtu
	}
}

// takeReceive takes the oldest receive for a message; where there is none the
// requester is asked to wait.
func (m *machine) takeReceive() bool {
	r := &m.resp
	if r.taken == r.posted {
		r.gap = true // what follows is dropped
		m.counts.rnr.Add(1)
		m.owe(wire.RNR(r.minRNR), r.expected)
		return false
	}
	r.taken++
	return true
}

// received ends the receive that was taken last.
func (m *machine) received(wc verbs.WC, solicited bool) {
	wc.ID = m.resp.recvs.at(m.resp.taken - 1).id
	m.out.received(wc, m.resp.taken, solicited)
}

func (m *machine) takeSend(now time.Duration, h *wire.Header, payload []byte) {
	r := &m.resp
	if !m.fits(aSend, h, payload) {
		m.refuse(wire.NAKInvalidRequest)
		return
	}
	if h.Op.StartsMessage() {
		if !m.takeReceive() {
			return
		}
		r.message = message{kind: aSend}
	}
	w := r.recvs.at(r.taken - 1)
	if r.message.done+uint64(len(payload)) > w.length {
		m.failReceive(verbs.StatusLocalLength, wire.NAKInvalidRequest)
		return
	}
	if len(payload) > 0 && !m.scatter(w.sgl, r.message.done, payload) {
		m.failReceive(verbs.StatusLocalProtection, wire.NAKRemoteOperation)
		return
	}
	r.message.done += uint64(len(payload))
	if h.Op.EndsMessage() {
		if h.Op.HasIeth() && !m.keys.invalidateLocked(h.Invalidate, m) {
			m.failReceive(verbs.StatusRemoteInvalidRequest, wire.NAKInvalidRequest)
			return
		}
		m.received(verbs.WC{Op: verbs.WCRecv, Len: uint32(r.message.done), HasImm: h.Op.HasImm(), Imm: h.Imm}, h.Solicited) //nolint:gosec // at most the receive
	}
	m.done(now, h)
}

func (m *machine) takeWrite(now time.Duration, h *wire.Header, payload []byte) {
	r := &m.resp
	if m.access&verbs.AccessRemoteWrite == 0 || !m.fits(aWrite, h, payload) {
		m.refuse(wire.NAKInvalidRequest)
		return
	}
	w := r.message
	if h.Op.StartsMessage() {
		w = message{kind: aWrite, addr: h.Addr, rkey: h.RKey, length: uint64(h.Length)}
	}
	n := uint64(len(payload))
	if w.length > maxMessage || w.done+n > w.length || h.Op.EndsMessage() != (w.done+n == w.length) {
		m.refuse(wire.NAKInvalidRequest)
		return
	}
	// An empty write needs no key (specification, volume 1, 9.7.5.2.4). The whole
	// range is looked at with each packet, as the region may have gone meanwhile.
	var mem []byte
	if w.length > 0 {
		var ok bool
		if mem, ok = m.keys.grantedLocked(m.domain, m, w.addr, w.length, w.rkey, verbs.AccessRemoteWrite); !ok {
			m.refuse(wire.NAKRemoteAccess)
			return
		}
	}
	if h.Op.HasImm() && !m.takeReceive() {
		return
	}
	copy(mem[w.done:], payload)
	w.done += n
	r.message = w
	if h.Op.HasImm() {
		m.received(verbs.WC{Op: verbs.WCRecvWrite, HasImm: true, Imm: h.Imm, Len: uint32(w.length)}, h.Solicited) //nolint:gosec // 32 bits on the wire
	}
	m.done(now, h)
}

// mayRead says why a read is not carried out; 0 when it is.
func (m *machine) mayRead(h *wire.Header) wire.Syndrome {
	if m.access&verbs.AccessRemoteRead == 0 || m.resp.maxAsks == 0 || h.Length > maxMessage {
		return wire.NAKInvalidRequest
	}
	if h.Length > 0 {
		if _, ok := m.keys.grantedLocked(m.domain, m, h.Addr, uint64(h.Length), h.RKey, verbs.AccessRemoteRead); !ok {
			return wire.NAKRemoteAccess
		}
	}
	return 0
}

func (m *machine) takeRead(h *wire.Header) {
	r := &m.resp
	if s := m.mayRead(h); s != 0 {
		m.refuse(s)
		return
	}
	if !r.answersMore() {
		m.refuse(wire.NAKInvalidRequest)
		return
	}
	r.completed = (r.completed + 1) & psnMask
	m.answer(answer{number: r.expected, read: true, addr: h.Addr, rkey: h.RKey, length: uint64(h.Length)})
	r.expected += m.packetsOf(uint64(h.Length))
	m.answersReply()
}

// answersReply drops an acknowledgement that the answer is as well.
func (m *machine) answersReply() {
	m.resp.data = false
	if m.resp.replying && m.resp.reply.IsAck() {
		m.resp.replying, m.resp.held, m.resp.heldFor = false, false, 0
	}
}

func (m *machine) takeAtomic(h *wire.Header) {
	r := &m.resp
	if m.access&verbs.AccessRemoteAtomic == 0 || h.Addr%8 != 0 || !r.answersMore() {
		m.refuse(wire.NAKInvalidRequest)
		return
	}
	mem, ok := m.keys.grantedLocked(m.domain, m, h.Addr, 8, h.RKey, verbs.AccessRemoteAtomic)
	if !ok {
		m.refuse(wire.NAKRemoteAccess)
		return
	}
	old := m.keys.atomically(mem, func(old uint64) uint64 {
		switch {
		case h.Op == wire.FetchAdd:
			return old + h.Swap
		case old == h.Compare:
			return h.Swap
		}
		return old
	})
	r.atomics[r.remembered%maxReadAtomic] = remembered{number: r.expected, value: old, valid: true}
	r.remembered++
	r.completed = (r.completed + 1) & psnMask
	m.answer(answer{number: r.expected, value: old})
	r.expected++
	m.answersReply()
}

// atomically changes 8 bytes in the machine's byte order. Atomics are atomic among
// the requests of one opening of a device (IBV_ATOMIC_HCA of ibv_query_device(3)).
func (k *keys) atomically(mem []byte, change func(uint64) uint64) uint64 {
	k.atomics.Lock()
	defer k.atomics.Unlock()
	old := binary.NativeEndian.Uint64(mem)
	binary.NativeEndian.PutUint64(mem, change(old))
	return old
}

// sawCongestion notes a packet that a switch had marked (ECN): the peer is told,
// now and then.
func (m *machine) sawCongestion(now time.Duration) {
	r := &m.resp
	if !r.cnpSent || now-r.cnpAt >= cnpEvery {
		r.cnp, r.cnpSent, r.cnpAt = true, true, now
	}
}

// nextResponse makes the next packet that the responder owes. along says that a
// request follows, which an acknowledgement that is held travels with.
func (m *machine) nextResponse(along bool, p *packet) bool {
	r := &m.resp
	switch {
	case r.cnp:
		r.cnp = false
		m.counts.cnpSent.Add(1)
		p.Op, p.BECN = wire.CNP, true
		return true
	case r.answering > 0:
		a := &r.answers[0]
		return (!a.read || !r.paused) && m.nextAnswer(a, p)
	case r.ackFirst:
		r.ackFirst = false
		p.Op, p.PSN, p.Syndrome, p.MSN = wire.Ack, psnOf(r.first, r.replyAt-1), wire.AckUnlimited, r.completed
		return true
	case r.replying && (along || !r.held):
		r.replying, r.held, r.heldFor = false, false, 0
		p.Op, p.PSN, p.Syndrome, p.MSN = wire.Ack, psnOf(r.first, r.replyAt), r.reply, r.completed
		return true
	}
	return false
}

func (m *machine) nextAnswer(a *answer, p *packet) bool {
	r := &m.resp
	p.Syndrome, p.MSN = wire.AckUnlimited, a.msn
	if !a.read {
		p.Op, p.PSN, p.Orig = wire.AtomicAck, psnOf(r.first, a.number), a.value
		m.popAnswer()
		return true
	}
	p.PSN = psnOf(r.first, a.number+a.sent/m.mtu)
	n := min(m.mtu, a.length-a.sent)
	if n > 0 {
		mem, ok := m.keys.grantedLocked(m.domain, m, a.addr+a.sent, n, a.rkey, verbs.AccessRemoteRead)
		if !ok && a.again { // a duplicate, of what the requester has as a rule
			m.popAnswer()
			return m.nextResponse(true, p)
		}
		if !ok { // it was taken away meanwhile
			r.answering = 0
			m.owe(wire.NAKRemoteAccess, a.number+a.sent/m.mtu)
			m.breaks()
			m.out.tell(verbs.EventQPAccess)
			return m.nextResponse(true, p)
		}
		p.Payload = append(p.Payload, mem)
	}
	p.Len = n
	p.Pad = uint8(-p.Len & 3)
	first, last := a.sent == 0, a.sent+p.Len == a.length
	a.sent += p.Len
	switch {
	case first && last:
		p.Op = wire.ReadResponseOnly
	case last:
		p.Op = wire.ReadResponseLast
	case first:
		p.Op = wire.ReadResponseFirst
	default:
		p.Op = wire.ReadResponseMiddle
	}
	if last {
		m.popAnswer()
	}
	return true
}

// popAnswer forgets the oldest answer: it was sent.
func (m *machine) popAnswer() {
	r := &m.resp
	r.answering--
	copy(r.answers[:], r.answers[1:r.answering+1])
}

func (m *machine) flushReceives() {
	r := &m.resp
	if r.message.kind == aSend {
		r.message.kind = noMessage
		r.taken--
	}
	for r.taken < r.posted {
		r.taken++
		m.received(verbs.WC{Status: verbs.StatusFlushed}, false)
	}
}

// reset forgets everything but the queue's size.
func (r *responder) reset() {
	*r = responder{limit: r.limit, recvs: r.recvs}
}
