package tcp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// model is two machines with a stream of frames in each direction, without sockets and clocks.
type model struct {
	t      *testing.T
	random *rand.Rand
	now    time.Duration
	ends   [2]*modelEnd
}

type modelEnd struct {
	model   *model
	machine machine
	domain  *soft.Domain
	mr      *soft.Region
	mem     []byte
	in      []carried // frames on their way to this end

	posted, done     int // work requests
	sends            int // messages that the peer has posted
	recvs, taken     int
	failed           bool
	quiesced, events int
}

type carried struct {
	header  frame.Header
	content []byte
}

const (
	modelMemory = 1 << 20
	modelRecvs  = 16
)

func newModel(t *testing.T, seed uint64, rnrRetry uint8) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1))}
	for i := range m.ends {
		e := &modelEnd{model: m, mem: make([]byte, modelMemory)}
		e.domain = &soft.Domain{Keys: soft.NewKeys()}
		e.mr = e.domain.Keys.Add(e.domain, e.mem, allRights)
		e.machine.init(e, rc.Config{
			QPConfig:   verbs.QPConfig{MaxSend: 16, MaxRecv: modelRecvs, MaxSendSGE: 1, MaxRecvSGE: 1},
			ReadAtomic: maxReadAtomic, MaxMessage: frame.MaxMessage,
		})
		if err := e.machine.ToInit(verbs.InitAttr{Port: onlyPort, Access: allRights}); err != nil {
			t.Fatal(err)
		}
		m.ends[i] = e
	}
	for i, e := range m.ends {
		x := &e.machine
		x.toRTR(0, &verbs.RTRAttr{Peer: verbs.Endpoint{PSN: verbs.PSN(1000 * (1 - i))}, MinRNRTimer: 1, MaxDestReadAtomic: 4})
		if err := x.toRTS(&verbs.RTSAttr{PSN: verbs.PSN(1000 * i), Timeout: 14, Retry: 6, RNRRetry: rnrRetry, MaxReadAtomic: 4}); err != nil {
			t.Fatal(err)
		}
		x.req.up = true
	}
	return m
}

func (e *modelEnd) peer() *modelEnd {
	if e.model.ends[0] == e {
		return e.model.ends[1]
	}
	return e.model.ends[0]
}

func (e *modelEnd) SendCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64) {
	freed.Store(freedTo)
	if wc.Status != verbs.StatusOK {
		e.failed = true
		return
	}
	if int(wc.ID) != e.done {
		e.model.t.Fatalf("work request %d completes where %d is the next", wc.ID, e.done)
	}
	e.done++
}

// RecvCompleted checks that the messages come in order: each has its number as immediate data.
func (e *modelEnd) RecvCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64, _ bool) {
	freed.Store(freedTo)
	if wc.Status != verbs.StatusOK {
		e.failed = true
		return
	}
	if int(wc.ID) != e.taken || int(wc.Imm) != e.taken {
		e.model.t.Fatalf("message %d arrives in receive %d where %d is the next", wc.Imm, wc.ID, e.taken)
	}
	e.taken++
}

func (e *modelEnd) Event(verbs.EventKind) { e.events++ }
func (e *modelEnd) written() uint64       { return e.machine.req.written.Load() }

func (e *modelEnd) TakeBack() bool {
	e.quiesced++
	return true
}

func (e *modelEnd) Usable(sgl []verbs.SGE, write bool) bool {
	return e.domain.Keys.Usable(e.domain, sgl, write)
}

func (e *modelEnd) Granted(addr, length uint64, key verbs.RKey, need verbs.Access) bool {
	_, ok := e.domain.Keys.Granted(e.domain, e, addr, length, key, need)
	return ok
}

func (e *modelEnd) update(r *rc.Request, a, b uint64) (uint64, bool) {
	mem, ok := e.domain.Keys.Granted(e.domain, e, r.Addr, 8, r.RKey, verbs.AccessRemoteAtomic)
	if !ok {
		return 0, false
	}
	return e.domain.Keys.FetchAndUpdate(mem, func(old uint64) uint64 { return rc.Atomic(r.Op, old, a, b) }), true
}

func (e *modelEnd) send(now time.Duration, wr verbs.SendWR) {
	if _, _, err := e.machine.postSend(now, []verbs.SendWR{wr}); err != nil {
		e.model.t.Fatal(err)
	}
}

// post posts a random request. Messages carry their number.
func (e *modelEnd) post() {
	if e.posted-e.done >= 16 || e.failed {
		return
	}
	p := e.peer()
	n := [...]int{0, 1, 100, minSegment, minSegment + 1, 2*minSegment + 5}[e.model.random.IntN(6)]
	wr := verbs.SendWR{
		ID: verbs.WRID(e.posted), Signaled: true, SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: uint32(n), LKey: e.mr.LKey()}},
		RemoteAddr: p.mr.Addr(), RKey: p.mr.RKey(), Fence: e.model.random.IntN(4) == 0,
	}
	wr.Op = [...]verbs.Opcode{verbs.OpSendImm, verbs.OpSendImm, verbs.OpWriteImm, verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd}[e.model.random.IntN(6)]
	switch wr.Op {
	case verbs.OpSendImm, verbs.OpWriteImm:
		wr.Imm = uint32(p.sends)
		p.sends++
	case verbs.OpFetchAdd:
		wr.SGL[0].Length, wr.Add = 8, 1
	}
	e.posted++
	e.send(e.model.now, wr)
}

func (e *modelEnd) postRecv() {
	if e.recvs-e.taken >= modelRecvs || e.recvs >= e.sends || e.failed {
		return
	}
	wr := verbs.RecvWR{ID: verbs.WRID(e.recvs), SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: modelMemory, LKey: e.mr.LKey()}}}
	e.recvs++
	if _, err := e.machine.postRecv([]verbs.RecvWR{wr}); err != nil {
		e.model.t.Fatal(err)
	}
}

// noContent stands for content, which a machine does not look at.
var noContent [maxSegment]byte

// write puts the next frame on its way.
func (e *modelEnd) write() bool {
	var c carried
	var s frameContent
	e.machine.share = uint64(minShare) << e.model.random.IntN(4)
	if !e.machine.next(e.model.now, true, &c.header, &s) {
		return false
	}
	c.content = noContent[:s.n]
	if s.atomic {
		c.content = make([]byte, 8)
		binary.NativeEndian.PutUint64(c.content, s.value)
	}
	e.machine.req.written.Store(max(e.written(), e.machine.Next()))
	p := e.peer()
	p.in = append(p.in, c)
	return true
}

// read takes the next frame.
func (e *modelEnd) read() bool {
	if len(e.in) == 0 {
		return false
	}
	c := e.in[0]
	e.in = e.in[1:]
	p, err := e.machine.receive(e.model.now, &c.header)
	if err != nil {
		e.model.t.Fatalf("at %v: %v", e.model.now, err)
	}
	e.machine.placed(&c.header, &p, c.content)
	return true
}

// step does one random thing.
func (m *model) step(posts bool) {
	e := m.ends[m.random.IntN(2)]
	switch k := m.random.IntN(10); {
	case k == 0 && posts:
		e.post()
	case k == 1:
		e.postRecv()
	case k < 6:
		e.write()
	default:
		e.read()
	}
	if m.random.IntN(50) == 0 { // frames take a while
		m.now += time.Millisecond
		m.expire()
	}
}

func (m *model) expire() (next time.Duration, ok bool) {
	for _, e := range m.ends {
		if at, due := e.machine.deadline(); due && at <= m.now {
			e.machine.expire(m.now)
		}
		if at, due := e.machine.deadline(); due {
			next, ok = earlier(next, ok, at)
		}
	}
	return next, ok
}

// finish goes on until nothing is left to do.
func (m *model) finish() {
	for range 1_000_000 {
		moved := false
		for _, e := range m.ends {
			e.postRecv()
			moved = e.write() || moved
			moved = e.read() || moved
		}
		if moved {
			continue
		}
		next, ok := m.expire()
		if !ok || m.ends[0].failed || m.ends[1].failed {
			return
		}
		m.now = max(m.now, next)
	}
	m.t.Fatal("it goes on for ever")
}

// TestEveryRequestCompletesInOrder: two machines exchange random requests while receives come
// late, and every request completes.
func TestEveryRequestCompletesInOrder(t *testing.T) {
	for seed := range uint64(400) {
		m := newModel(t, seed, rc.RNRUnlimited)
		for range 400 {
			m.step(true)
		}
		m.finish()
		for i, e := range m.ends {
			if e.failed || e.done != e.posted || e.taken != e.sends {
				t.Fatalf("seed %d, side %d: %d of %d requests and %d of %d messages, failed %v", seed, i, e.done, e.posted, e.taken, e.sends, e.failed)
			}
			if e.machine.hasOutput() {
				t.Fatalf("seed %d, side %d has something to send for ever", seed, i)
			}
			if at, ok := e.machine.deadline(); ok {
				t.Fatalf("seed %d, side %d: a timer at %v although nothing is outstanding", seed, i, at)
			}
		}
	}
}

// TestSilentPeerFails: without signs of life the requester asks, then fails, whatever was
// outstanding.
func TestSilentPeerFails(t *testing.T) {
	m := newModel(t, 1, rc.RNRUnlimited)
	e := m.ends[0]
	e.post()
	e.post()
	probes := 0
	for !e.failed {
		for e.write() {
			p := e.peer()
			if p.in[len(p.in)-1].header.Kind == frame.Probe {
				probes++
			}
		}
		next, ok := m.expire()
		if !ok {
			break
		}
		m.now = max(m.now, next)
	}
	want := max(patienceFactor*7*verbs.TimeoutDuration(14), minPatience)
	if !e.failed || probes != 1 || m.now != want || e.quiesced == 0 {
		t.Errorf("failed %v at %v (want %v) after %d probes, memory given back %d times", e.failed, m.now, want, probes, e.quiesced)
	}
}

// TestRNRRetriesAreCounted: the requester fails after its retries, the responder is not affected.
func TestRNRRetriesAreCounted(t *testing.T) {
	for retries := range uint8(4) {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			m := newModel(t, 1, retries)
			e, p := m.ends[0], m.ends[1]
			e.send(0, verbs.SendWR{Op: verbs.OpSendImm, Signaled: true})
			rnrs := 0
			for !e.failed {
				for e.write() {
					p.read()
				}
				for p.write() {
					if e.in[0].header.Kind == frame.RNR {
						rnrs++
					}
					e.read()
				}
				if next, ok := m.expire(); ok {
					m.now = max(m.now, next)
				}
			}
			if rnrs != int(retries)+1 || p.failed || p.machine.State() != verbs.StateRTS {
				t.Errorf("%d RNR, the responder is in %v", rnrs, p.machine.State())
			}
		})
	}
}

// TestQueuePairWithoutConnectionBreaks: ToRTR does not wait for the connection, but the queue pair
// does not wait for ever: with requests as long as retries may take, without any for connectTime.
func TestQueuePairWithoutConnectionBreaks(t *testing.T) {
	for posts, want := range []time.Duration{connectTime, connectFactor * 7 * verbs.TimeoutDuration(14)} {
		m := newModel(t, 1, rc.RNRUnlimited)
		e := m.ends[0]
		e.machine.req.up = false
		for range posts {
			e.post()
		}
		for e.machine.State() != verbs.StateErr {
			next, ok := e.machine.deadline()
			if !ok {
				t.Fatal("no timer runs")
			}
			m.now = next
			e.machine.expire(m.now)
		}
		if m.now != want {
			t.Errorf("with %d requests it breaks after %v, want %v", posts, m.now, want)
		}
	}
}

// TestResentRequestIsAcknowledgedOnlyAfterItWasWritten: a peer that answers RNR to a request, and
// acknowledges it while it waits to be sent again, must not make the memory of it free.
func TestResentRequestIsAcknowledgedOnlyAfterItWasWritten(t *testing.T) {
	e := newModel(t, 1, 6).ends[0]
	x := &e.machine
	e.send(0, verbs.SendWR{ID: 0, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: 1000, LKey: e.mr.LKey()}}})
	n := x.Acked()
	var h frame.Header
	var s frameContent
	send := func() {
		t.Helper()
		if !x.next(0, true, &h, &s) || h.Kind != frame.Send {
			t.Fatalf("the next frame is %+v", h)
		}
	}
	receive := func(h frame.Header) error {
		_, err := x.receive(time.Second, &h)
		return err
	}
	send()
	x.req.written.Store(n + 1)
	for _, h := range []frame.Header{{Kind: frame.RNR, Number: n, Acked: n, Imm: 1}, {Kind: frame.Ready, Number: n, Acked: n}} {
		if err := receive(h); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if err := receive(frame.Header{Kind: frame.Ack, Acked: n + 1}); err == nil || e.done > 0 {
		t.Errorf("before it was written again: %d requests completed, %v", e.done, err)
	}
	x.req.written.Store(n + 1)
	if err := receive(frame.Header{Kind: frame.Ack, Acked: n + 1}); err != nil || e.done != 1 {
		t.Errorf("after it was written: %d requests completed, %v", e.done, err)
	}
}

// TestContentWithoutAPlaceAfterTheEnd: memory that was closed while its content came matters no more once the
// queue pair is broken.
func TestContentWithoutAPlaceAfterTheEnd(t *testing.T) {
	for _, kind := range []rc.PlaceKind{rc.PlaceRecv, rc.PlaceRemote, placeResponse} {
		m := newModel(t, 1, 0)
		e := m.ends[0]
		e.machine.Break()
		events := e.events
		e.machine.misplaced(&place{Place: rc.Place{Kind: kind}})
		if e.machine.resp.refused || e.failed || e.events != events {
			t.Errorf("kind %d: refused %v, failed %v, %d events", kind, e.machine.resp.refused, e.failed, e.events-events)
		}
	}
}

// TestRefusalThatCannotBeSentHasADeadline: a peer that takes no bytes cannot keep a queue pair that has
// refused its request.
func TestRefusalThatCannotBeSentHasADeadline(t *testing.T) {
	m := newModel(t, 1, 0)
	x := &m.ends[0].machine
	x.at = 5 * time.Second
	x.refuse(verbs.StatusRemoteAccess)
	at, ok := x.deadline()
	if !ok || at != 5*time.Second+minPatience {
		t.Fatalf("deadline %v, %v", at, ok)
	}
	x.expire(at - 1)
	if x.State() == verbs.StateErr {
		t.Error("it ends before its deadline")
	}
	x.expire(at)
	if x.State() != verbs.StateErr {
		t.Errorf("state %v at the deadline", x.State())
	}
}
