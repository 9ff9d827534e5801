package verbstest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// world is the environment of one case.
type world struct {
	testing.TB
	env     Env
	ctx     context.Context
	nodes   [2]*node // the same one twice, if both ends are one device
	running sync.WaitGroup
}

// node is an open device with the address of its port.
type node struct {
	w   *world
	end End
	dev verbs.Device
	gid verbs.GID
	lid verbs.LID
	mtu verbs.MTU
}

// open opens a device. At the end of the case it checks that no object is open on it, and
// closes it.
func (w *world) open(e End) *node {
	w.Helper()
	var before verbs.Counts
	if w.env.KernelCounts != nil {
		before = w.env.KernelCounts(w, e)
	}
	n := &node{w: w, end: e}
	var err error
	if n.dev, err = e.Provider.Open(e.Device); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if c := n.dev.Counts(); c != (verbs.Counts{}) {
			w.Errorf("still open on %s at the end: %+v", e.Device, c)
		}
		w.noError(n.dev.Close())
		if w.env.KernelCounts != nil {
			if after := w.env.KernelCounts(w, e); after != before {
				w.Errorf("Env.KernelCounts of %s: %+v after the case, %+v before", e.Device, after, before)
			}
		}
	})
	port, err := n.dev.Port(e.Port)
	if err != nil {
		w.Fatal(err)
	}
	n.lid, n.mtu = port.LID, port.ActiveMTU
	gids, err := n.dev.GIDs(e.Port)
	if err != nil {
		w.Fatal(err)
	}
	for _, g := range gids {
		if g.Index == int(e.GIDIndex) {
			n.gid = g.GID
		}
	}
	if n.gid.IsZero() {
		w.Fatalf("port %d of %s has no GID at index %d, but %v", e.Port, e.Device, e.GIDIndex, gids)
	}
	return n
}

func (w *world) noError(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

// errorIs fails the case unless errors.Is(err, sentinel).
func (w *world) errorIs(err, sentinel error) {
	w.Helper()
	if !errors.Is(err, sentinel) {
		w.Errorf("the error is %v, not %q", err, sentinel)
	}
}

// scaled multiplies a wait by Env.TimeScale.
func (w *world) scaled(d time.Duration) time.Duration { return d * time.Duration(w.env.TimeScale) }

// eventually polls a condition until it is true, or returns false after d. The pauses let
// virtual time advance.
func (w *world) eventually(d time.Duration, so func() bool) bool {
	start := time.Now()
	for wait := time.Microsecond; !so(); wait = min(2*wait, time.Millisecond) {
		if time.Since(start) > w.scaled(d) || w.ctx.Err() != nil {
			return so()
		}
		pause(wait)
	}
	return true
}

// params holds the parameters of an end of a connection.
type params struct {
	sends, recvs, sges, inline int
	cqSize                     int           // of the completion queue; 0: all work requests that can be posted
	access                     verbs.Access  // of the memory region
	allows                     verbs.Access  // of the queue pair, for its peer
	retry, rnrRetry            uint8         // of both ends
	timeout                    uint8         // code of the time after which a request is sent again
	reads                      uint8         // outstanding reads and atomics
	rnr                        uint8         // code of the time to wait after an RNR NAK
	cq                         verbs.CQ      // completion queue to share; nil: a new one
	of                         *end          // end whose protection domain and memory are shared; nil: new ones
	size                       int           // of the memory in bytes, if more than memorySize
	memory                     func() []byte // returns the memory to use; nil: Env.Memory or the Go heap
}

const (
	allMemory = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	allQP     = verbs.AccessRemoteWrite | verbs.AccessRemoteRead
)

func (w *world) params(change ...func(*params)) params {
	s := params{
		sends: 64, recvs: 64, sges: 4, access: allMemory, allows: allQP,
		retry: 6, rnrRetry: 6, timeout: max(w.env.Path.Timeout, patientTimeout), rnr: verbs.DefaultMinRNRTimer,
	}
	if !w.unsupported(Reads) {
		s.reads = 4
	}
	if !w.unsupported(Inline) {
		s.inline = 32
	}
	if !w.unsupported(Atomics) {
		s.access |= verbs.AccessRemoteAtomic
		s.allows |= verbs.AccessRemoteAtomic
	}
	if !w.unsupported(Windows) {
		s.access |= verbs.AccessBindWindow
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// expires is for cases in which the peer does not respond, and that wait until the retries are over.
func (w *world) expires(retries uint8) func(*params) {
	return func(s *params) { s.retry, s.timeout = retries, w.env.Path.Timeout }
}

// end is one end of a connection with its own protection domain, completion
// queue and memory, all closed at the end of the case.
type end struct {
	w      *world
	n      *node
	params params
	pd     verbs.PD
	cq     verbs.CQ
	qp     verbs.QP
	mem    []byte
	mr     verbs.MR
	psn    verbs.PSN
	polled []verbs.WC // completions that were polled and not yet checked
}

// end creates an end with its queue pair in RESET.
func (w *world) end(n *node, s params) *end {
	w.Helper()
	e := &end{w: w, n: n, params: s, cq: s.cq}
	var err error
	if s.of != nil {
		e.pd, e.mem, e.mr = s.of.pd, s.of.mem, s.of.mr
	} else {
		if e.pd, err = n.dev.AllocPD(); err != nil {
			w.Fatal(err)
		}
		w.closeAtEnd(e.pd)
		if s.memory != nil {
			e.mem = s.memory()
		} else {
			e.mem = w.memory(n, max(memorySize, s.size))
		}
		if !n.dev.Info().Windows {
			s.access &^= verbs.AccessBindWindow
		}
		if e.mr, err = e.pd.RegisterMemory(e.mem, s.access); err != nil {
			w.Fatal(err)
		}
		w.closeAtEnd(e.mr)
	}
	if e.cq == nil {
		size := s.cqSize
		if size == 0 {
			size = s.sends + s.recvs
		}
		if e.cq, err = n.dev.CreateCQ(verbs.CQConfig{Size: size}); err != nil {
			w.Fatal(err)
		}
		w.closeAtEnd(e.cq)
	}
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{
		SendCQ: e.cq, RecvCQ: e.cq, MaxSend: s.sends, MaxRecv: s.recvs, MaxSendSGE: s.sges, MaxRecvSGE: s.sges, MaxInline: s.inline,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.closeAtEnd(e.qp)
	e.psn = verbs.PSN(e.qp.QPN()*2654435761) & 0xffffff // differs between queue pairs
	return e
}

// closeAtEnd closes an object at the end of the case, in reverse order of the calls.
func (w *world) closeAtEnd(c interface{ Close() error }) {
	w.Cleanup(func() { w.noError(c.Close()) })
}

// memory returns memory that the device can register.
func (w *world) memory(n *node, size int) []byte {
	w.Helper()
	if w.env.Memory != nil {
		return w.env.Memory(w, size)
	}
	if !n.dev.Info().GoMemory {
		w.Fatal("Env.Memory is missing: the device does not accept Go memory")
	}
	return make([]byte, size)
}

// path returns the path of an end to its peer.
func (e *end) path(to *end) verbs.Path {
	p := e.w.env.Path
	p.Port, p.SGIDIndex = e.n.end.Port, e.n.end.GIDIndex
	p.Access, p.ReadAtomic = e.params.allows, e.params.reads
	p.Timeout, p.Retry, p.RNRRetry, p.MinRNRTimer = e.params.timeout, e.params.retry, e.params.rnrRetry, e.params.rnr
	if p.MTU == 0 {
		p.MTU = min(e.n.mtu, to.n.mtu)
	}
	return p
}

// endpoint returns the endpoint of an end, for its peer.
func (e *end) endpoint() verbs.Endpoint {
	p := e.qp.Endpoint()
	p.PSN, p.GID, p.LID = e.psn, e.n.gid, e.n.lid
	return p
}

func (e *end) init() {
	e.w.Helper()
	if err := e.path(e).Init(e.qp); err != nil {
		e.w.Fatal(err)
	}
}

func (e *end) connect(to *end) {
	e.w.Helper()
	if err := e.path(to).Connect(e.qp, e.psn, to.endpoint()); err != nil {
		e.w.Fatal(err)
	}
}

// pair returns two connected ends, one on each device.
func (w *world) pair(change ...func(*params)) (a, b *end) {
	w.Helper()
	s := w.params(change...)
	a, b = w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	w.join(a, b)
	return a, b
}

// impatient returns a connected pair of which only a's requests expire soon: what b sends arrives on a busy machine, too.
func (w *world) impatient() (a, b *end) {
	w.Helper()
	a, b = w.end(w.nodes[0], w.params(w.expires(6))), w.end(w.nodes[1], w.params())
	w.join(a, b)
	return a, b
}

func (w *world) join(a, b *end) {
	w.Helper()
	a.init()
	b.init()
	a.connect(b)
	b.connect(a)
}

// sge returns an SGE of the end's memory.
func (e *end) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: e.mr.Addr() + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

// send returns a signaled send with one SGE.
func (e *end) send(id verbs.WRID, off, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{e.sge(off, n)}}
}

// to returns a signaled operation on n bytes at off of this end's memory and at of the
// peer's.
func (e *end) to(peer *end, id verbs.WRID, op verbs.Opcode, off, n, at int) verbs.SendWR {
	return verbs.SendWR{
		ID: id, Op: op, Signaled: true, SGL: []verbs.SGE{e.sge(off, n)},
		RemoteAddr: peer.mr.Addr() + uint64(at), RKey: peer.mr.RKey(),
	}
}

func (e *end) post(wrs ...verbs.SendWR) {
	e.w.Helper()
	if n, err := e.qp.PostSend(wrs); err != nil || n != len(wrs) {
		e.w.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

// recv posts a receive with one SGE, or none if n is 0.
func (e *end) recv(id verbs.WRID, off, n int) {
	e.w.Helper()
	wr := verbs.RecvWR{ID: id}
	if n > 0 {
		wr.SGL = []verbs.SGE{e.sge(off, n)}
	}
	if k, err := e.qp.PostRecv([]verbs.RecvWR{wr}); err != nil || k != 1 {
		e.w.Fatalf("posted %d of 1 receive: %v", k, err)
	}
}

// poll polls the completion queue once into e.polled.
func (e *end) poll() {
	e.w.Helper()
	var wcs [16]verbs.WC
	n, err := e.cq.Poll(wcs[:])
	if err != nil {
		e.w.Fatal(err)
	}
	e.polled = append(e.polled, wcs[:n]...)
}

// next polls for the next completion.
func (e *end) next() verbs.WC {
	e.w.Helper()
	if !e.w.eventually(soon, func() bool { e.poll(); return len(e.polled) > 0 }) {
		e.w.Fatal("no completion occurred")
	}
	wc := e.polled[0]
	e.polled = e.polled[1:]
	return wc
}

// expect returns the next completion and checks its ID and status.
func (e *end) expect(id verbs.WRID, status verbs.Status) verbs.WC {
	e.w.Helper()
	wc := e.next()
	if wc.ID != id || wc.Status != status {
		e.w.Fatalf("the completion is of work request %d with %v, want %d with %v", wc.ID, wc.Status, id, status)
	}
	return wc
}

// noCompletion checks that no completion occurs for a while.
func (e *end) noCompletion() {
	e.w.Helper()
	if e.w.eventually(quiet, func() bool { e.poll(); return len(e.polled) > 0 }) {
		e.w.Fatalf("unexpected completion: %+v", e.polled[0])
	}
}

// waitState waits until the queue pair is in a state.
func (e *end) waitState(want verbs.QPState) {
	e.w.Helper()
	var state verbs.QPState
	if !e.w.eventually(soon, func() bool {
		var err error
		if state, err = e.qp.State(); err != nil {
			e.w.Fatal(err)
		}
		return state == want
	}) {
		e.w.Errorf("the queue pair is in %v, not in %v", state, want)
	}
}

// wait returns the next completion, with Arm and Wait in place of polling.
func (e *end) wait() (verbs.WC, error) {
	for {
		if len(e.polled) > 0 {
			wc := e.polled[0]
			e.polled = e.polled[1:]
			return wc, nil
		}
		for range 2 { // once before arming, once after
			var wcs [16]verbs.WC
			n, err := e.cq.Poll(wcs[:])
			if err != nil {
				return verbs.WC{}, err
			}
			if e.polled = append(e.polled, wcs[:n]...); n > 0 {
				break
			}
			if err := e.cq.Arm(false); err != nil {
				return verbs.WC{}, err
			}
		}
		if len(e.polled) > 0 {
			continue
		}
		if err := e.cq.Wait(e.w.ctx); err != nil {
			return verbs.WC{}, err
		}
	}
}

// background runs do in a goroutine. The case ends after it.
func (w *world) background(do func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	w.running.Go(func() {
		defer close(done)
		do()
	})
	return done
}

// pattern fills memory with bytes that differ from place to place.
func pattern(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*31 + byte(i>>8)*17 + byte(i>>16)*7 + seed
	}
}

// memoryIs checks that mem holds want at offset at, and the byte rest everywhere else.
func (w *world) memoryIs(mem []byte, at int, want []byte, rest byte) {
	w.Helper()
	if rest == 0 && bytes.Equal(mem[at:at+len(want)], want) && empty(mem[:at]) && empty(mem[at+len(want):]) {
		return
	}
	for i, b := range mem {
		should := rest
		if i >= at && i < at+len(want) {
			should = want[i-at]
		}
		if b != should {
			w.Fatalf("byte %d is %#x, want %#x (the pattern is %d to %d)", i, b, should, at, at+len(want))
		}
	}
}

// empty reports whether mem is all zero, by comparing each byte with the one before.
func empty(mem []byte) bool {
	return len(mem) == 0 || mem[0] == 0 && bytes.Equal(mem[1:], mem[:len(mem)-1])
}
