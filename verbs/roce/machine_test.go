package roce

import (
	"container/heap"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// peerMachine is a machine with its memory and the completions of its work requests,
// which count as polled at once.
type peerMachine struct {
	machine  machine
	domain   soft.Domain
	mem      []byte
	mr       *soft.Region
	sent     []verbs.WC
	received []verbs.WC
	events   []verbs.EventKind
	freed    uint64 // receives
	window   uint64
	packet   packet
	counts   counters
}

func (h *peerMachine) sentWC(wc verbs.WC, freedTo uint64) {
	h.sent = append(h.sent, wc)
	h.machine.req.freed.Store(freedTo)
}

// completions implements completer.
type completions struct{ *peerMachine }

func (c completions) sendCompleted(wc verbs.WC, freedTo uint64) { c.sentWC(wc, freedTo) }
func (c completions) recvCompleted(wc verbs.WC, freedTo uint64, _ bool) {
	c.received = append(c.received, wc)
	c.freed = freedTo
}
func (c completions) asyncEvent(e verbs.EventKind) { c.events = append(c.events, e) }

const (
	testDepth  = 64
	testWindow = 1 << 20
	allRights  = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessBindWindow
)

// newHalf returns a queue pair in INIT with that much memory.
func newPeerMachine(size int) *peerMachine {
	h := &peerMachine{mem: make([]byte, size), domain: soft.Domain{Keys: soft.NewKeys()}, window: testWindow}
	h.machine.init(completions{h}, &h.domain, &h.counts, testDepth, testDepth)
	h.mr = h.domain.Keys.Add(&h.domain, h.mem, allRights)
	h.machine.access, h.machine.state = allRights, verbs.StateInit
	return h
}

// connection describes how two machines are connected.
type connection struct {
	mtu           verbs.MTU
	psn           [2]verbs.PSN
	maxReadAtomic uint8
	timeout       uint8
	retry, rnr    uint8
	rnrTimer      uint8
	memory        int
	onlyReceive   bool // the second machine stays in RTR
}

func defaultConnection() connection {
	return connection{
		mtu: verbs.MTU1024, psn: [2]verbs.PSN{100, 200}, maxReadAtomic: 4, timeout: 14, retry: 6, rnr: rnrInfinite,
		rnrTimer: verbs.DefaultMinRNRTimer, memory: 1 << 18,
	}
}

func join(p connection) (a, b *peerMachine) {
	machines := [2]*peerMachine{newPeerMachine(p.memory), newPeerMachine(p.memory)}
	for i, h := range machines {
		h.machine.toRTR(verbs.RTRAttr{
			Peer: verbs.Endpoint{QPN: verbs.QPN(0x20 + 1 - i), PSN: p.psn[1-i]}, MTU: p.mtu,
			MaxDestReadAtomic: p.maxReadAtomic, MinRNRTimer: p.rnrTimer,
		})
		if i == 0 || !p.onlyReceive {
			h.machine.toRTS(verbs.RTSAttr{PSN: p.psn[i], Timeout: p.timeout, Retry: p.retry, RNRRetry: p.rnr, MaxReadAtomic: p.maxReadAtomic})
		}
	}
	return machines[0], machines[1]
}

// sge returns a part of the memory.
func (h *peerMachine) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: h.mr.Addr() + uint64(off), Length: uint32(n), LKey: h.mr.LKey()}
}

// to returns a signaled operation on a part of each side's memory.
func (h *peerMachine) to(peer *peerMachine, id verbs.WRID, op verbs.Opcode, off, n, at int) verbs.SendWR {
	return verbs.SendWR{
		ID: id, Op: op, Signaled: true, SGL: []verbs.SGE{h.sge(off, n)}, RemoteAddr: peer.mr.Addr() + uint64(at), RKey: peer.mr.RKey(),
	}
}

func (h *peerMachine) post(wrs ...verbs.SendWR) {
	for i := range wrs {
		h.machine.postSend(&wrs[i])
	}
}

func (h *peerMachine) recv(id verbs.WRID, off, n int) {
	wr := verbs.RecvWR{ID: id}
	if n > 0 {
		wr.SGL = []verbs.SGE{h.sge(off, n)}
	}
	h.machine.postRecv(&wr, h.freed)
}

// next returns the next packet, with an ICRC of zeros; nil for none.
func (h *peerMachine) next(now time.Duration) []byte {
	space := int64(h.window) - int64(h.machine.req.flight)
	p := &h.packet
	if !h.machine.nextPacket(now, space, p) {
		return nil
	}
	b := p.Append(nil)
	for _, buffer := range p.Payload {
		b = append(b, buffer...)
	}
	b = append(b, zeros[:p.Pad]...)
	return append(b, zeros[:rocewire.ICRCLen]...)
}

// packets returns all packets that the machine has to send.
func (h *peerMachine) packets(now time.Duration) (list []rocewire.Header) {
	for b := h.next(now); b != nil; b = h.next(now) {
		var header rocewire.Header
		if _, err := header.Decode(b); err != nil {
			panic(err) //nolint:forbidigo // the test encoded it
		}
		list = append(list, header)
	}
	return list
}

// take delivers a packet.
func (h *peerMachine) take(now time.Duration, b []byte) {
	var header rocewire.Header
	payload, err := header.Decode(b)
	if err != nil {
		panic(err) //nolint:forbidigo // the peer encoded it
	}
	h.machine.handlePacket(now, &header, payload)
}

// The network between two machines.

// event is a call at a point in time.
type event struct {
	at    time.Duration
	order int
	do    func()
}

type eventQueue []event

func (a eventQueue) Len() int { return len(a) }
func (a eventQueue) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a eventQueue) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *eventQueue) Push(x any)   { *a = append(*a, x.(event)) } //nolint:errcheck // it is one
func (a *eventQueue) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

// network carries packets on virtual time.
type network struct {
	t        *testing.T
	now      time.Duration
	todo     eventQueue
	order    int
	machines [2]*peerMachine
	woken    [2]time.Duration // when the timer fires; never if it is not set
	delay    time.Duration
	// lose decides whether a packet is lost; nil: no loss. change, if not nil, returns
	// the packets that arrive instead, and when.
	lose  func(from int, h *rocewire.Header) bool
	carry func(from int, b []byte)
	seen  func(from int, h *rocewire.Header)
	batch func() time.Duration // how long a machine waits before it sends, to respond to several packets at once
	sends [2]bool              // a send is scheduled
}

func connect(t *testing.T, p connection) (n *network, a, b *peerMachine) {
	t.Helper()
	a, b = join(p)
	return &network{t: t, machines: [2]*peerMachine{a, b}, woken: [2]time.Duration{never, never}, delay: 10 * time.Microsecond}, a, b
}

func (n *network) after(d time.Duration, do func()) {
	n.order++
	heap.Push(&n.todo, event{n.now + d, n.order, do})
}

// kick schedules the sending of a machine.
func (n *network) kick(i int) {
	if n.batch == nil {
		n.flush(i)
	} else if !n.sends[i] {
		n.sends[i] = true
		n.after(n.batch(), func() { n.sends[i] = false; n.flush(i) })
	}
}

func (n *network) flush(i int) {
	h := n.machines[i]
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
	var h rocewire.Header
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
		n.deliver(from, n.delay, b)
	}
}

func (n *network) deliver(from int, after time.Duration, b []byte) {
	n.after(after, func() {
		n.machines[1-from].take(n.now, b)
		n.kick(1 - from)
	})
}

// run advances the time until no events are left, or by d.
func (n *network) run(d time.Duration) {
	n.kick(0)
	n.kick(1)
	end := n.now + d
	for len(n.todo) > 0 && n.todo[0].at <= end {
		e := heap.Pop(&n.todo).(event) //nolint:errcheck // it is one
		n.now = e.at
		e.do()
	}
	n.now = end
}

// short formats completions briefly.
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
