package rc

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// end is a machine with the simplest carrier: parts that are on their way to the peer, in order.
type end struct {
	t       *testing.T
	random  *rand.Rand
	machine Machine
	peer    *end

	in       []part
	waiting  bool   // the peer had no receive for the oldest request
	again    bool   // the next part is the first one that is sent again
	expected uint64 // the request to execute, or under way
	dropping bool   // there was no receive, and the request has not come again

	posted, recvs []verbs.WRID // not completed, in order
	events        []verbs.EventKind
	busy          bool // an access is under way
	wrongKey      bool
	failed        int
}

// part is what travels: a part of a request, or an answer.
type part struct {
	kind    partKind
	request Request
	number  uint64
	n       uint64
	first   bool // of its request
	again   bool // of what is sent again
}

type partKind uint8

const (
	requestPart partKind = iota
	executed             // all requests below number
	response             // n bytes for number
	noReceive
)

const (
	testDepth  = 8
	testRights = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	testLength = 1000 // of a receive
	testReads  = 3

	firstNumber = 100
)

func newEnds(t *testing.T, seed uint64, rnrRetry uint8) (a, b *end) {
	random := rand.New(rand.NewPCG(seed, 1))
	a, b = &end{t: t, random: random, expected: firstNumber}, &end{t: t, random: random, expected: firstNumber}
	a.peer, b.peer = b, a
	for _, e := range []*end{a, b} {
		m := &e.machine
		m.Init(e, Config{
			QPConfig: verbs.QPConfig{MaxSend: testDepth, MaxRecv: testDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 16},
			Device:   "test0", Number: 7, ReadAtomic: testReads, MaxMessage: 1 << 20,
		})
		e.check(m.ToInit(verbs.InitAttr{Port: 1, Access: testRights}))
		rtr := verbs.RTRAttr{Peer: verbs.Endpoint{QPN: 7, LID: 1}, MTU: verbs.MTU4096, MaxDestReadAtomic: testReads}
		e.check(m.CheckRTR(&rtr))
		m.EnterRTR(&rtr)
		rts := verbs.RTSAttr{RNRRetry: rnrRetry, MaxReadAtomic: testReads}
		e.check(m.CheckRTS(&rts))
		m.EnterRTS(&rts, firstNumber)
	}
	return a, b
}

func (e *end) check(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *end) SendCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64) {
	i := slices.Index(e.posted, wc.ID)
	if i < 0 {
		e.t.Fatalf("work request %d of %v completes", wc.ID, e.posted)
	}
	e.posted = e.posted[i+1:] // those before it are unsignaled
	freed.Store(freedTo)
	e.ended(wc)
}

func (e *end) RecvCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64, _ bool) {
	if len(e.recvs) == 0 || wc.ID != e.recvs[0] {
		e.t.Fatalf("receive %d of %v completes", wc.ID, e.recvs)
	}
	e.recvs = e.recvs[1:]
	freed.Store(freedTo)
	e.ended(wc)
}

func (e *end) ended(wc verbs.WC) {
	if wc.Status == verbs.StatusOK {
		return
	}
	e.failed++
	if e.busy {
		e.t.Fatal("memory is given back while it is used")
	}
	if e.machine.State() != verbs.StateErr && wc.Status == verbs.StatusFlushed {
		e.t.Fatal("flushed before the queue pair broke")
	}
}

func (e *end) Event(kind verbs.EventKind)                             { e.events = append(e.events, kind) }
func (e *end) TakeBack() bool                                         { return !e.busy }
func (e *end) Usable(sgl []verbs.SGE, _ bool) bool                    { return len(sgl) == 0 || sgl[0].LKey != 0 }
func (e *end) Granted(_, _ uint64, _ verbs.RKey, _ verbs.Access) bool { return !e.wrongKey }

func (e *end) post(wr verbs.SendWR) {
	n, _, err := e.machine.PostSend([]verbs.SendWR{wr})
	if n != 1 || err != nil {
		e.t.Fatal(n, err)
	}
}

func (e *end) postRandom(id verbs.WRID) {
	if e.machine.Posted()-e.machine.freed.Load() >= testDepth {
		return
	}
	length := uint32([...]int{0, 1, 100, testLength}[e.random.IntN(4)])
	wr := verbs.SendWR{
		ID: id, Op: verbs.Opcode(e.random.IntN(int(verbs.OpFetchAdd) + 1)), Signaled: e.random.IntN(3) > 0, Fence: e.random.IntN(4) == 0,
		SGL: []verbs.SGE{{Length: length, LKey: 1}},
	}
	if wr.Op >= verbs.OpCompareSwap {
		wr.SGL[0].Length = 8
	}
	e.posted = append(e.posted, id)
	e.post(wr)
}

func (e *end) postRecv(id verbs.WRID) {
	if e.machine.PostedRecvs()-e.machine.recvFreed.Load() >= testDepth {
		return
	}
	e.recvs = append(e.recvs, id)
	if n, err := e.machine.PostRecv([]verbs.RecvWR{{ID: id, SGL: []verbs.SGE{{Length: testLength, LKey: 1}}}}); n != 1 || err != nil {
		e.t.Fatal(n, err)
	}
}

// send puts the next part on its way.
func (e *end) send() bool {
	m := &e.machine
	if e.waiting {
		return false
	}
	w := m.Sendable()
	if w == nil {
		return false
	}
	if status := m.CheckLocal(w); status != verbs.StatusOK {
		return m.FailNext(status)
	}
	if m.Offset() == 0 && w.WR.Fence && m.reads > 0 || m.reads > testReads {
		e.t.Fatalf("%v is sent beside %d reads, fence %v", w.WR.Op, m.reads, w.WR.Fence)
	}
	p := part{number: m.Next(), first: m.Offset() == 0, again: e.again}
	e.again = false
	p.request = Request{Op: w.WR.Op, Total: w.Length, Imm: w.WR.Imm}
	if p.n = w.Length - m.Offset(); p.n > 1 && !w.HasResponse() {
		p.n = 1 + e.random.Uint64N(p.n)
	}
	m.Sent(p.n)
	e.peer.in = append(e.peer.in, p)
	return true
}

// receive takes the next part that has come.
func (e *end) receive() bool {
	if len(e.in) == 0 {
		return false
	}
	p := e.in[0]
	e.in = e.in[1:]
	m := &e.machine
	switch {
	case !m.IsUp():
	case p.kind == requestPart:
		e.execute(&p)
	case p.kind == executed:
		m.Acknowledge(p.number)
	case p.kind == response:
		if number, w := m.OldestRead(); w == nil || number != p.number {
			e.t.Fatalf("response to %d where %d is the oldest read", p.number, number)
		}
		m.Respond(p.number, p.n)
	case m.NotReady():
		m.SendFrom(m.Acked(), 0)
		e.waiting, e.again = true, true
	}
	return true
}

// execute executes a part of a request.
func (e *end) execute(p *part) {
	m := &e.machine
	if e.dropping = e.dropping && !p.again; e.dropping {
		return
	}
	if p.first != !m.Message().Active || p.number != e.expected {
		e.t.Fatalf("part of request %d where %d is expected", p.number, e.expected)
	}
	if p.first {
		status, ready := m.Begin(&p.request, 0)
		if !ready {
			e.dropping = true
			e.answer(part{kind: noReceive})
			return
		}
		if status != verbs.StatusOK {
			m.Break()
			m.Refused(status)
			return
		}
	}
	if p.request.Op < verbs.OpRead {
		if e.busy = e.random.IntN(100) == 0; e.busy {
			m.Break() // by another goroutine
		}
		e.busy = false
		m.Flush()
		if !m.IsUp() || !m.Placed(p.n) {
			return
		}
	}
	e.expected++
	e.answer(part{kind: executed, number: e.expected})
	if p.request.Op >= verbs.OpRead {
		e.answer(part{kind: response, number: p.number, n: p.n})
	}
}

func (e *end) answer(p part) { e.peer.in = append(e.peer.in, p) }

// TestEveryWorkRequestEndsOnceAndInOrder: two machines exchange random requests while receives come
// late and queue pairs break, also during an access. Nothing ends twice, out of order, or while its
// memory is used, and at the end nothing is outstanding.
func TestEveryWorkRequestEndsOnceAndInOrder(t *testing.T) {
	broken := 0
	for seed := range uint64(2000) {
		a, b := newEnds(t, seed, RNRUnlimited)
		ends := []*end{a, b}
		for i := range verbs.WRID(300) {
			e := ends[a.random.IntN(2)]
			switch a.random.IntN(8) {
			case 0:
				e.postRandom(i)
			case 1:
				e.postRecv(i)
				e.peer.waiting = false
			case 2, 3, 4:
				e.send()
			default:
				e.receive()
			}
		}
		for id := verbs.WRID(1000); ; id++ {
			moved := false
			for _, e := range ends {
				if !e.machine.HasRecv() {
					e.postRecv(id)
				}
				e.peer.waiting = false
				moved = e.send() || moved
				moved = e.receive() || moved
			}
			if !moved {
				break
			}
			if id > 100000 {
				t.Fatalf("seed %d: it goes on for ever", seed)
			}
		}
		for _, e := range ends {
			if e.machine.IsUp() && e.peer.machine.IsUp() && !e.machine.Idle() {
				t.Fatalf("seed %d: %d of %d work requests completed", seed, e.machine.Completed(), e.machine.Posted())
			}
			if !e.machine.IsUp() {
				broken++
			}
			e.machine.Break()
			if !e.machine.Idle() || e.machine.HasRecv() || len(e.recvs) > 0 || e.machine.reads != 0 {
				t.Fatalf("seed %d: after the flush %d of %d work requests and %d receives are left", seed, e.machine.Completed(), e.machine.Posted(), len(e.recvs))
			}
		}
	}
	if broken == 0 {
		t.Error("no queue pair broke")
	}
}

// TestRequestsAreRefusedByTheirStatus: what the specification refuses, with its statuses and events.
func TestRequestsAreRefusedByTheirStatus(t *testing.T) {
	for _, c := range []struct {
		name     string
		request  Request
		reads    int
		wrongKey bool
		noRights bool
		want     verbs.Status
		own      verbs.Status // of the receive
	}{
		{name: "a message that is too long", request: Request{Op: verbs.OpSend, Total: testLength + 1}, want: verbs.StatusRemoteInvalidRequest, own: verbs.StatusLocalLength},
		{name: "a message that fits", request: Request{Op: verbs.OpSend, Total: testLength}},
		{name: "a wrong key", request: Request{Op: verbs.OpWrite, Total: 1}, wrongKey: true, want: verbs.StatusRemoteAccess},
		{name: "a wrong key of nothing", request: Request{Op: verbs.OpWrite}, wrongKey: true},
		{name: "no right to write", request: Request{Op: verbs.OpWrite}, noRights: true, want: verbs.StatusRemoteInvalidRequest},
		{name: "no right to read", request: Request{Op: verbs.OpRead}, noRights: true, want: verbs.StatusRemoteInvalidRequest},
		{name: "no right to atomics", request: Request{Op: verbs.OpFetchAdd, Total: 8}, noRights: true, want: verbs.StatusRemoteInvalidRequest},
		{name: "too many reads", request: Request{Op: verbs.OpRead}, reads: testReads, want: verbs.StatusRemoteInvalidRequest},
		{name: "an atomic at an odd address", request: Request{Op: verbs.OpCompareSwap, Total: 8, Addr: 4}, want: verbs.StatusRemoteInvalidRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := newEnds(t, 1, 0)
			if e.wrongKey = c.wrongKey; c.noRights {
				e.machine.access = 0
			}
			e.postRecv(1)
			status, ready := e.machine.Begin(&c.request, c.reads)
			if status != c.want || !ready || (e.failed == 1) != (c.own != verbs.StatusOK) {
				t.Errorf("%v, ready %v, %d receives failed", status, ready, e.failed)
			}
			e.machine.Break()
			e.machine.Refused(status)
			want := verbs.EventQPRequest
			if status == verbs.StatusRemoteAccess {
				want = verbs.EventQPAccess
			}
			if len(e.recvs) > 0 || !slices.Equal(e.events, []verbs.EventKind{want}) {
				t.Errorf("%d receives are left, events %v", len(e.recvs), e.events)
			}
		})
	}
}

// TestLocalFaultWaitsForEarlierRequests: a work request that cannot be sent fails after those before it
// have completed.
func TestLocalFaultWaitsForEarlierRequests(t *testing.T) {
	a, b := newEnds(t, 1, 0)
	a.posted = []verbs.WRID{1, 2, 3}
	a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true})
	a.post(verbs.SendWR{ID: 2, Op: verbs.OpWrite, SGL: []verbs.SGE{{Length: 8}}}) // no key
	a.post(verbs.SendWR{ID: 3, Op: verbs.OpWrite})
	a.send()
	if a.send() || a.machine.State() != verbs.StateRTS {
		t.Fatal("it fails before the request before it")
	}
	b.receive()
	a.receive()
	if !a.send() || a.failed != 2 || a.machine.State() != verbs.StateErr || len(a.posted) > 0 {
		t.Errorf("%d of 2 have failed, in %v", a.failed, a.machine.State())
	}
}

// TestMissingReceiveEndsAfterItsRetries: the count begins anew when a request was executed.
func TestMissingReceiveEndsAfterItsRetries(t *testing.T) {
	a, _ := newEnds(t, 1, 2)
	a.posted = []verbs.WRID{1, 2}
	for id := range verbs.WRID(2) {
		a.post(verbs.SendWR{ID: id + 1, Op: verbs.OpSend, Signaled: true})
		a.send()
	}
	for range 2 {
		if !a.machine.NotReady() {
			t.Fatal("it fails too early")
		}
	}
	a.machine.Acknowledge(firstNumber + 1)
	for range 2 {
		if !a.machine.NotReady() {
			t.Fatal("it fails too early after progress")
		}
	}
	if a.machine.NotReady() || a.machine.State() != verbs.StateErr || a.failed != 1 {
		t.Errorf("after the retries: %v, %d have failed", a.machine.State(), a.failed)
	}
}

// TestFlushWaitsForTheCarrier: while the carrier uses memory of work requests nothing is flushed, also
// nothing that is posted then.
func TestFlushWaitsForTheCarrier(t *testing.T) {
	a, _ := newEnds(t, 1, 0)
	a.posted = []verbs.WRID{1, 2}
	a.post(verbs.SendWR{ID: 1, Op: verbs.OpSend})
	a.postRecv(3)
	a.busy = true
	a.machine.Fail(verbs.StatusBadResponse)
	a.post(verbs.SendWR{ID: 2, Op: verbs.OpSend})
	a.postRecv(4)
	if a.failed != 0 || a.machine.State() != verbs.StateErr {
		t.Fatalf("%d are flushed, in %v", a.failed, a.machine.State())
	}
	a.busy = false
	a.machine.Flush()
	if a.failed != 4 {
		t.Errorf("%d of 4 are flushed", a.failed)
	}
}

// TestPostsAreChecked: what is wrong with a post is an error with the name of the queue pair, and the
// posts before it count.
func TestPostsAreChecked(t *testing.T) {
	a, _ := newEnds(t, 1, 0)
	good := verbs.SendWR{Op: verbs.OpWrite}
	for want, bad := range map[string]verbs.SendWR{
		"post send test0 QP 0x000007: unknown operation 7":                                     {Op: verbs.OpFetchAdd + 1},
		"post send test0 QP 0x000007: RDMA_READ cannot be inline":                              {Op: verbs.OpRead, Inline: []byte{1}},
		"post send test0 QP 0x000007: 17 bytes inline: the limit is 16":                        {Inline: make([]byte, 17)},
		"post send test0 QP 0x000007: 2 scatter/gather elements: the limit is 1":               {SGL: make([]verbs.SGE, 2)},
		"post send test0 QP 0x000007: CMP_AND_SWP needs one scatter/gather element of 8 bytes": {Op: verbs.OpCompareSwap},
		"post send test0 QP 0x000007: FETCH_AND_ADD needs an address that is a multiple of 8":  {Op: verbs.OpFetchAdd, SGL: []verbs.SGE{{Length: 8}}, RemoteAddr: 4},
	} {
		n, _, err := a.machine.PostSend([]verbs.SendWR{good, bad, good})
		if n != 1 || err == nil || err.Error() != want {
			t.Errorf("%d posted, %v\nwant %s", n, err, want)
		}
	}
	if a.machine.Close(); a.machine.Open("query") == nil || a.machine.ToErr() == nil {
		t.Error("a closed queue pair takes calls")
	}
}
