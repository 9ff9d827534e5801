package roce

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// half is a machine with its memory, and what came of its work requests, all of
// which is polled at once.
type half struct {
	machine  machine
	domain   domain
	mem      []byte
	mr       *mr
	sent     []verbs.WC
	received []verbs.WC
	events   []verbs.EventKind
	freed    uint64 // receives
	window   uint64
	packet   packet
	counts   counters
}

func (h *half) sentWC(wc verbs.WC, freedTo uint64) {
	h.sent = append(h.sent, wc)
	h.machine.req.freed.Store(freedTo)
}

// completions implements outcome.
type completions struct{ *half }

func (c completions) sendCompleted(wc verbs.WC, freedTo uint64) { c.sentWC(wc, freedTo) }
func (c completions) recvCompleted(wc verbs.WC, freedTo uint64, _ bool) {
	c.half.received = append(c.half.received, wc)
	c.freed = freedTo
}
func (c completions) asyncEvent(e verbs.EventKind) { c.events = append(c.events, e) }

const (
	testDepth  = 64
	testWindow = 1 << 20
	allRights  = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessBindWindow
)

// newHalf is a queue pair in INIT with that much memory.
func newHalf(size int) *half {
	h := &half{mem: make([]byte, size), domain: domain{keys: newKeys()}, window: testWindow}
	h.machine.init(completions{h}, &h.domain, &h.counts, testDepth, testDepth)
	h.mr = h.domain.keys.add(&h.domain, h.mem, allRights)
	h.machine.access, h.machine.state = allRights, verbs.StateInit
	return h
}

// pairing is how two halves are joined.
type pairing struct {
	mtu         verbs.MTU
	psn         [2]verbs.PSN
	asks        uint8
	timeout     uint8
	retry, rnr  uint8
	rnrTimer    uint8
	memory      int
	onlyReceive bool // the second stays in RTR
}

func usual() pairing {
	return pairing{
		mtu: verbs.MTU1024, psn: [2]verbs.PSN{100, 200}, asks: 4, timeout: 14, retry: 6, rnr: rnrInfinite,
		rnrTimer: verbs.DefaultMinRNRTimer, memory: 1 << 18,
	}
}

func join(p pairing) (a, b *half) {
	halves := [2]*half{newHalf(p.memory), newHalf(p.memory)}
	for i, h := range halves {
		h.machine.toRTR(verbs.RTRAttr{
			Peer: verbs.Endpoint{QPN: verbs.QPN(0x20 + 1 - i), PSN: p.psn[1-i]}, MTU: p.mtu,
			MaxDestReadAtomic: p.asks, MinRNRTimer: p.rnrTimer,
		})
		if i == 0 || !p.onlyReceive {
			h.machine.toRTS(verbs.RTSAttr{PSN: p.psn[i], Timeout: p.timeout, Retry: p.retry, RNRRetry: p.rnr, MaxReadAtomic: p.asks})
		}
	}
	return halves[0], halves[1]
}

// sge is a piece of the memory.
func (h *half) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: h.mr.addr + uint64(off), Length: uint32(n), LKey: h.mr.lkey}
}

// to is a signalled operation on a piece of each side's memory.
func (h *half) to(peer *half, id verbs.WRID, op verbs.Opcode, off, n, at int) verbs.SendWR {
	return verbs.SendWR{
		ID: id, Op: op, Signaled: true, SGL: []verbs.SGE{h.sge(off, n)}, RemoteAddr: peer.mr.addr + uint64(at), RKey: peer.mr.rkey,
	}
}

func (h *half) post(wrs ...verbs.SendWR) {
	for i := range wrs {
		h.machine.postSend(&wrs[i])
	}
}

func (h *half) recv(id verbs.WRID, off, n int) {
	wr := verbs.RecvWR{ID: id}
	if n > 0 {
		wr.SGL = []verbs.SGE{h.sge(off, n)}
	}
	h.machine.postRecv(&wr, h.freed)
}

// next is the bytes of the next packet, with an ICRC of zeros; nil for none.
func (h *half) next(now time.Duration) []byte {
	space := int64(h.window) - int64(h.machine.req.flight)
	p := &h.packet
	if !h.machine.nextPacket(now, space, p) {
		return nil
	}
	b := p.Append(nil)
	for _, piece := range p.Payload {
		b = append(b, piece...)
	}
	b = append(b, zeros[:p.Pad]...)
	return append(b, zeros[:wire.ICRCLen]...)
}

// packets are all that the half has to send.
func (h *half) packets(now time.Duration) (list []wire.Header) {
	for b := h.next(now); b != nil; b = h.next(now) {
		var header wire.Header
		if _, err := header.Decode(b); err != nil {
			panic(err) //nolint:forbidigo // a test: it was encoded here
		}
		list = append(list, header)
	}
	return list
}

// take is a packet that has arrived.
func (h *half) take(now time.Duration, b []byte) {
	var header wire.Header
	payload, err := header.Decode(b)
	if err != nil {
		panic(err) //nolint:forbidigo // a test: the peer encoded it
	}
	h.machine.handlePacket(now, &header, payload)
}

// The network between two halves.

// happening is what takes place at a time.
type happening struct {
	at    time.Duration
	order int
	do    func()
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) } //nolint:errcheck // it is one
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

// net carries packets on virtual time.
type network struct {
	t      *testing.T
	now    time.Duration
	todo   agenda
	order  int
	halves [2]*half
	woken  [2]time.Duration // by the timer; never for not set
	delay  time.Duration
	// lose decides about a packet; nil for no loss. change, when not nil, may return
	// what arrives in its place, when: nothing, or several.
	lose  func(from int, h *wire.Header) bool
	carry func(from int, b []byte)
	seen  func(from int, h *wire.Header)
	batch func() time.Duration // how long a half waits before it sends, so as to answer several packets at once
	sends [2]bool              // it is on the agenda
}

func connect(t *testing.T, p pairing) (n *network, a, b *half) {
	t.Helper()
	a, b = join(p)
	return &network{t: t, halves: [2]*half{a, b}, woken: [2]time.Duration{never, never}, delay: 10 * time.Microsecond}, a, b
}

func (n *network) after(d time.Duration, do func()) {
	n.order++
	heap.Push(&n.todo, happening{n.now + d, n.order, do})
}

// kick sends what a half has to send.
func (n *network) kick(i int) {
	if n.batch == nil {
		n.flush(i)
	} else if !n.sends[i] {
		n.sends[i] = true
		n.after(n.batch(), func() { n.sends[i] = false; n.flush(i) })
	}
}

func (n *network) flush(i int) {
	h := n.halves[i]
	for b := h.next(n.now); b != nil; b = h.next(n.now) {
		n.send(i, b)
	}
	at, ok := h.machine.deadline()
	if !ok || n.woken[i] <= at {
		return
	}
	n.woken[i] = at
	n.after(max(at-n.now, 0), func() {
		if n.woken[i] != at {
			return
		}
		n.woken[i] = never
		if due, ok := h.machine.deadline(); ok && n.now >= due {
			h.machine.expire(n.now)
		}
		n.kick(i)
	})
}

func (n *network) send(from int, b []byte) {
	var h wire.Header
	if _, err := h.Decode(b); err != nil {
		n.t.Fatalf("%x: %v", b, err)
	}
	if n.seen != nil {
		n.seen(from, &h)
	}
	switch {
	case n.lose != nil && n.lose(from, &h):
	case n.carry != nil:
		n.carry(from, b)
	default:
		n.arrives(from, n.delay, b)
	}
}

func (n *network) arrives(from int, after time.Duration, b []byte) {
	n.after(after, func() {
		n.halves[1-from].take(n.now, b)
		n.kick(1 - from)
	})
}

// run lets time pass until nothing is left to do, or for so long.
func (n *network) run(d time.Duration) {
	n.kick(0)
	n.kick(1)
	end := n.now + d
	for len(n.todo) > 0 && n.todo[0].at <= end {
		e := heap.Pop(&n.todo).(happening) //nolint:errcheck // it is one
		n.now = e.at
		e.do()
	}
	n.now = end
}

// short are completions in few words.
func short(wcs []verbs.WC) (list []string) {
	for _, wc := range wcs {
		list = append(list, fmt.Sprintf("%d %v: %v, %d bytes, imm %#x", uint64(wc.ID), wc.Op, wc.Status, wc.Len, wc.Imm))
	}
	return list
}

// expectWCs compares work requests and their statuses.
func expectWCs(t *testing.T, what string, got []verbs.WC, want ...verbs.WC) {
	t.Helper()
	same := func(a, b verbs.WC) bool { return a.ID == b.ID && a.Status == b.Status }
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: %q, want %q", what, short(got), short(want))
	}
}

func ok(id verbs.WRID) verbs.WC                    { return verbs.WC{ID: id} }
func ended(id verbs.WRID, s verbs.Status) verbs.WC { return verbs.WC{ID: id, Status: s} }

// Worlds.

// The parts of a half's memory in a world.
const (
	partSource   = 0       // does not change; sent, and read by the peer
	partTarget   = 1 << 16 // written by the peer
	partCounters = 2 << 16 // of the peer's atomics
	partInbox    = 3 << 16 // receives
	partSink     = 7 << 16 // what reads and atomics bring
	worldMemory  = 11<<16 + 4096
	worldSlot    = 4096*2 + 1024 // of the inbox and the sink: more than the longest message
	worldSends   = 24
)

// expected is what a half has in the end.
type expected struct {
	mem      []byte
	sent     []verbs.WC
	received []verbs.WC
}

// tossed is a network as a seed makes it.
type tossed struct {
	random               *rand.Rand
	loss, again, corrupt float64
	spread               time.Duration // of the delays: what reorders
	late                 time.Duration // until when receives are posted
	breaks               bool
}

func toss(r *rand.Rand) tossed {
	rate := func(top float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return r.Float64() * top
	}
	w := tossed{random: r, loss: rate(0.15), again: rate(0.2), corrupt: rate(0.05), breaks: r.IntN(8) == 0}
	if r.IntN(2) == 0 {
		w.spread = time.Duration(r.IntN(200)) * time.Microsecond
	}
	if r.IntN(2) == 0 {
		w.late = time.Duration(r.IntN(20)) * time.Millisecond
	}
	return w
}

// worldPairing is how a world's halves are joined.
func worldPairing(r *rand.Rand) pairing {
	p := pairing{
		mtu: []verbs.MTU{256, 512, 1024, 2048, 4096}[r.IntN(5)], asks: uint8(1 + r.IntN(maxReadAtomic)),
		timeout: 20, retry: 7, rnr: rnrInfinite, rnrTimer: uint8(1 + r.IntN(16)), memory: worldMemory,
	}
	for i := range p.psn {
		p.psn[i] = verbs.PSN(r.Uint32() & psnMask)
		if r.IntN(3) == 0 {
			p.psn[i] = psnMask - verbs.PSN(r.IntN(20)) // it wraps
		}
	}
	return p
}

// plan posts work requests of all kinds from h to peer at random times, and
// returns what comes of them.
func (n *network) plan(w tossed, p pairing, from int, mine, theirs *expected) {
	r := w.random
	h, peer := n.halves[from], n.halves[1-from]
	mtu := int(p.mtu)
	sizes := []int{0, 1, 3, 7, 8, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 2*mtu + 5, 4096, 4097, 9000}
	messages := 0
	var wrs []verbs.SendWR
	for i := range 1 + r.IntN(worldSends) {
		size := sizes[r.IntN(len(sizes))]
		op := verbs.Opcode(r.IntN(int(verbs.OpFetchAdd) + 1))
		sink := partSink + i*worldSlot
		at := r.IntN(1<<16 - size) // of the source
		wr := h.to(peer, verbs.WRID(i), op, partSource+at, size, partTarget)
		wr.Signaled, wr.Fence, wr.Solicited = r.IntN(3) > 0, r.IntN(4) == 0, r.IntN(2) == 0
		wr.Imm = r.Uint32()
		body := h.mem[partSource+at : partSource+at+size]
		if size > 4 && r.IntN(3) == 0 { // in two pieces
			cut := 1 + r.IntN(size-1)
			wr.SGL = []verbs.SGE{h.sge(partSource+at, cut), {}, h.sge(partSource+at+cut, size-cut)}
		}
		if size <= maxInline && op < verbs.OpRead && r.IntN(3) == 0 {
			wr.SGL, wr.Inline = nil, bytes.Clone(body)
			if wr.Inline == nil {
				wr.Inline = []byte{}
			}
		}
		receive := verbs.WC{ID: verbs.WRID(messages), Imm: wr.Imm, HasImm: true, Op: verbs.WCRecv, Len: uint32(size)}
		switch op {
		case verbs.OpSend, verbs.OpSendImm:
			if op == verbs.OpSend {
				receive.Imm, receive.HasImm = 0, false
			}
			copy(theirs.mem[partInbox+messages*worldSlot:], body)
		case verbs.OpWrite, verbs.OpWriteImm:
			to := r.IntN(1<<16 - size)
			wr.RemoteAddr += uint64(to)
			copy(theirs.mem[partTarget+to:], body)
			receive.Op = verbs.WCRecvWrite
		case verbs.OpRead:
			from := r.IntN(1<<16 - size)
			wr.RemoteAddr = peer.mr.addr + uint64(partSource+from)
			for k := range wr.SGL { // into the sink, in as many pieces
				wr.SGL[k].Addr += uint64(sink - partSource - at)
			}
			copy(mine.mem[sink:], peer.mem[partSource+from:partSource+from+size])
		default:
			counter := partCounters + 8*r.IntN(4)
			wr.RemoteAddr = peer.mr.addr + uint64(counter)
			wr.SGL = []verbs.SGE{h.sge(sink, 8)}
			was := theirs.mem[counter : counter+8]
			copy(mine.mem[sink:], was)
			wr.Add, wr.Swap = r.Uint64(), r.Uint64()
			old := native(was)
			if wr.Compare = r.Uint64(); r.IntN(2) == 0 {
				wr.Compare = old
			}
			if op == verbs.OpFetchAdd {
				putNative(was, old+wr.Add)
			} else if old == wr.Compare {
				putNative(was, wr.Swap)
			}
		}
		if op == verbs.OpSend || op == verbs.OpSendImm || op == verbs.OpWriteImm {
			theirs.received = append(theirs.received, receive)
			messages++
		}
		if wr.Signaled {
			mine.sent = append(mine.sent, verbs.WC{ID: wr.ID, Op: completionOf(op)})
		}
		wrs = append(wrs, wr)
	}
	// Some together, in their order.
	at := time.Duration(0)
	for len(wrs) > 0 {
		k := 1 + r.IntN(min(len(wrs), 8))
		some := wrs[:k]
		wrs = wrs[k:]
		at += time.Duration(r.IntN(200)) * time.Microsecond
		n.after(at, func() { h.post(some...); n.kick(from) })
	}
	for i := range messages {
		n.after(w.late*time.Duration(i)/time.Duration(messages), func() {
			peer.recv(verbs.WRID(i), partInbox+i*worldSlot, worldSlot)
		})
	}
	n.after(time.Duration(r.IntN(2000))*time.Microsecond, func() { h.window = uint64(1 + r.IntN(200<<10)) })
}

// weather makes the network as it was tossed.
func (n *network) weather(w tossed) {
	r := w.random
	n.carry = func(from int, b []byte) {
		for again := true; again; again = r.Float64() < w.again {
			if r.Float64() < w.loss {
				continue
			}
			if r.Float64() < w.corrupt {
				if r.IntN(2) == 0 {
					continue // the ICRC tells
				}
				b = bytes.Clone(b)
				b[4] ^= byte(1 + r.IntN(255)) // what it does not cover: FECN, BECN, reserved
			}
			d := n.delay
			if w.spread > 0 {
				d += time.Duration(r.Int64N(int64(w.spread)))
			}
			n.arrives(from, d, b)
		}
	}
	if r.IntN(2) == 0 {
		n.batch = func() time.Duration { return time.Duration(r.IntN(30)) * time.Microsecond }
	}
}

// TestWorlds: whatever the network does, every work request ends once, in order,
// memory is as if each had been carried out once, in order, and nothing else has
// changed.
func TestWorlds(t *testing.T) {
	worlds := 600
	if testing.Short() || raceEnabled {
		worlds = 100
	}
	for seed := range worlds {
		if !t.Run(fmt.Sprint("Seed", seed), func(t *testing.T) { runWorld(t, uint64(seed)) }) {
			return
		}
	}
}

// FuzzWorlds looks for seeds that fail.
func FuzzWorlds(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(runWorld)
}

func runWorld(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
	w, p := toss(r), worldPairing(r)
	n, a, b := connect(t, p)
	var want [2]expected
	for i, h := range n.halves {
		rand.NewChaCha8([32]byte{byte(seed), byte(i)}).Read(h.mem) //nolint:errcheck // it never fails
		want[i].mem = bytes.Clone(h.mem)
	}
	n.plan(w, p, 0, &want[0], &want[1])
	n.plan(w, p, 1, &want[1], &want[0])
	n.weather(w)
	if w.breaks {
		n.after(time.Duration(r.IntN(3000))*time.Microsecond, func() { a.machine.enterError() })
	}
	n.run(time.Hour)
	if len(n.todo) > 0 {
		t.Fatal("it does not come to rest")
	}
	if w.breaks {
		n.endsBroken(want)
		return
	}
	for i, h := range [2]*half{a, b} {
		if h.machine.state != verbs.StateRTS {
			t.Fatalf("%d broke: sent %q, received %q", i, short(h.sent), short(h.received))
		}
		if !slices.Equal(h.sent, want[i].sent) {
			t.Errorf("%d sent %q, want %q", i, short(h.sent), short(want[i].sent))
		}
		if !slices.Equal(h.received, want[i].received) {
			t.Errorf("%d received %q, want %q", i, short(h.received), short(want[i].received))
		}
		if !bytes.Equal(h.mem, want[i].mem) {
			t.Errorf("memory of %d differs at byte %#x", i, differsAt(h.mem, want[i].mem))
		}
		if req := &h.machine.req; req.flight != 0 || req.completed != req.posted || req.acked != req.postedPackets || req.numOutstanding != 0 {
			t.Errorf("left in the requester of %d: %+v", i, req)
		}
	}
}

// endsBroken looks at a world in which the first half broke: what was posted ends
// well, then with an error at most once, then flushed; all of it, once, in order.
func (n *network) endsBroken(want [2]expected) {
	n.t.Helper()
	for i, h := range n.halves {
		if h.machine.req.completed != h.machine.req.posted {
			if i == 1 && h.machine.state == verbs.StateRTS {
				n.t.Error("the peer waits for ever")
			}
			continue
		}
		last, broken := -1, false
		for _, wc := range h.sent {
			if int(wc.ID) <= last {
				n.t.Errorf("%d: work request %d ends after %d", i, wc.ID, last)
			}
			last = int(wc.ID)
			if broken && wc.Status != verbs.StatusFlushed {
				n.t.Errorf("%d: work request %d ends with %v behind an error", i, wc.ID, wc.Status)
			}
			broken = wc.Status != verbs.StatusOK
		}
		for k, wc := range h.received {
			if wc.Status == verbs.StatusOK && wc != want[i].received[k] {
				n.t.Errorf("%d received %+v, want %+v", i, wc, want[i].received[k])
			}
		}
		if !bytes.Equal(h.mem[:partTarget], want[i].mem[:partTarget]) {
			n.t.Errorf("%d: the source changed", i)
		}
	}
}

func differsAt(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
