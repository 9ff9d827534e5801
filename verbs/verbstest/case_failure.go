package verbstest

import (
	"bytes"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

func failureCases() []testCase {
	return []testCase{
		{name: "NoReceive", run: noReceive},
		{name: "NoReceiveForAWriteWithImm", run: noReceiveForImm},
		{name: "LateReceive", run: lateReceive},
		{name: "WrongRKey", run: wrongRKey},
		{name: "RKeyOfAnotherDomain", run: rkeyOfAnotherDomain},
		{name: "PastTheEnd", run: pastTheEnd},
		{name: "ReadOnlyRegion", run: readOnlyRegion},
		{name: "UnreadableRegion", needs: []Feature{Reads}, run: unreadableRegion},
		{name: "QueuePairWithoutWriteAccess", run: qpWithoutWriteAccess},
		{name: "RegionClosed", run: regionClosed},
		{name: "LongerThanTheReceive", run: longerThanTheReceive},
		{name: "WrongLKey", run: wrongLKey},
		{name: "LocalPastTheEnd", run: localPastTheEnd},
		{name: "WrongLKeyOfAReceive", run: wrongLKeyOfAReceive},
		{name: "EarlierRequestsSucceed", run: earlierSucceed},
		{name: "AllOutstandingAreFlushed", run: allFlushed},
		{name: "PostedInErrIsFlushed", run: postedToBroken},
		{name: "SentIntoInitIsLost", run: sentIntoInit},
		{name: "DestroyedPeer", run: destroyedPeer},
		{name: "BrokenPeer", run: brokenPeer},
		{name: "PeerClosesSilently", run: peerClosesSilently},
		{name: "WrongPSN", run: wrongPSN},
	}
}

// noReceive: RNR_RETRY_EXC_ERR after the retries (specification, volume 1,
// 9.7.5.2.8 and 10.10.3).
func noReceive(w *world) {
	a, b := w.pair(func(s *params) { s.rnrRetry = 2 })
	a.post(a.send(1, 0, 8), a.send(2, 0, 8))
	a.expect(1, verbs.StatusRNRRetryExceeded)
	a.expect(2, verbs.StatusFlushed)
	a.waitState(verbs.StateErr)
	// The peer is not affected.
	b.stateIs(verbs.StateRTS)
	b.noCompletion()
}

func noReceiveForImm(w *world) {
	a, b := w.pair(func(s *params) { s.rnrRetry = 2 })
	a.post(a.to(b, 1, verbs.OpWriteImm, 0, 64, 0))
	a.expect(1, verbs.StatusRNRRetryExceeded)
}

func lateReceive(w *world) {
	a, b := w.pair(func(s *params) { s.rnrRetry = 7 })
	pattern(a.mem[:100], 5)
	a.post(a.send(1, 0, 100))
	a.noCompletion()
	b.recv(2, 0, 100)
	a.expect(1, verbs.StatusOK)
	b.expect(2, verbs.StatusOK)
	w.memoryIs(b.mem, 0, a.mem[:100], 0)
}

// isRejected posts a request that the peer rejects. It checks that the requester's queue
// pair breaks with one of the statuses, and that the responder's breaks with an event
// (specification, volume 1, 9.9.3 and 9.9.6, class C; rxe_resp.c).
func (e *end) isRejected(peer *end, wr verbs.SendWR, status ...verbs.Status) {
	e.w.Helper()
	peer.recv(800, 0, 8)
	wr.ID = 900
	e.post(wr, e.send(901, 0, 8))
	wc := e.next()
	if wc.ID != 900 || !slices.Contains(status, wc.Status) {
		e.w.Fatalf("%v ends with %+v (%v), want %v", wr.Op, wc, wc.Status, status)
	}
	e.expect(901, verbs.StatusFlushed)
	e.waitState(verbs.StateErr)
	peer.waitState(verbs.StateErr)
	peer.expect(800, verbs.StatusFlushed)
	if !e.w.unsupported(QPEvents) {
		if _, ok := peer.n.nextEvent(soon, func(a verbs.AsyncEvent) bool {
			return a.QPN == peer.qp.QPN() && (a.Kind == verbs.EventQPAccess || a.Kind == verbs.EventQPRequest || a.Kind == verbs.EventQPFatal || a.Kind == verbs.EventQPProtocol)
		}); !ok {
			e.w.Error("no event for the rejected request")
		}
	}
}

// wrongRKey: REM_ACCESS_ERR.
func wrongRKey(w *world) {
	a, b := w.pair()
	wr := a.to(b, 0, verbs.OpWrite, 0, 64, 0)
	wr.RKey ^= 0x5555
	pattern(a.mem[:64], 1)
	a.isRejected(b, wr, verbs.StatusRemoteAccess)
	w.memoryIs(b.mem, 0, nil, 0)
}

// rkeyOfAnotherDomain: a key is valid only in its protection domain (specification, volume
// 1, 10.6.3).
func rkeyOfAnotherDomain(w *world) {
	a, b := w.pair()
	other := w.end(w.nodes[1], w.params())
	pattern(a.mem[:64], 1)
	a.isRejected(b, a.to(other, 0, verbs.OpWrite, 0, 64, 0), verbs.StatusRemoteAccess)
	w.memoryIs(other.mem, 0, nil, 0)
}

// pastTheEnd: the whole range must lie within the region.
func pastTheEnd(w *world) {
	for _, at := range []int{memorySize - 63, memorySize, memorySize + 1<<20, -1} {
		a, b := w.pair()
		pattern(a.mem[:64], 1)
		a.isRejected(b, a.to(b, 0, verbs.OpWrite, 0, 64, at), verbs.StatusRemoteAccess)
		// Packets before the invalid one may be written. This message is one packet.
		w.memoryIs(b.mem, 0, nil, 0)
	}
	a, b := w.pair()
	wr := a.to(b, 0, verbs.OpWrite, 0, 64, 0)
	wr.RemoteAddr = ^uint64(0) - 10 // the range wraps around
	a.isRejected(b, wr, verbs.StatusRemoteAccess)
}

func readOnlyRegion(w *world) {
	a, b := w.pair(func(s *params) { s.access = verbs.AccessLocalWrite | verbs.AccessRemoteRead })
	pattern(a.mem[:64], 1)
	a.isRejected(b, a.to(b, 0, verbs.OpWrite, 0, 64, 0), verbs.StatusRemoteAccess)
	w.memoryIs(b.mem, 0, nil, 0)
}

func unreadableRegion(w *world) {
	a, b := w.pair(func(s *params) { s.access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite })
	a.isRejected(b, a.to(b, 0, verbs.OpRead, 0, 64, 0), verbs.StatusRemoteAccess)
}

// qpWithoutWriteAccess: a request needs the rights of the queue pair too. The specification
// (volume 1, 9.7.4.1.3) and rxe report an invalid request, some NICs an access error.
func qpWithoutWriteAccess(w *world) {
	a, b := w.pair(func(s *params) { s.allows = 0 })
	pattern(a.mem[:64], 1)
	a.isRejected(b, a.to(b, 0, verbs.OpWrite, 0, 64, 0), verbs.StatusRemoteInvalidRequest, verbs.StatusRemoteAccess)
	w.memoryIs(b.mem, 0, nil, 0)
}

// regionClosed: the keys of a region are invalid after Close.
func regionClosed(w *world) {
	a, b := w.pair()
	extra, err := b.pd.RegisterMemory(w.memory(b.n, 4096), allMemory)
	if err != nil {
		w.Fatal(err)
	}
	wr := a.to(b, 0, verbs.OpWrite, 0, 64, 0)
	wr.RemoteAddr, wr.RKey = extra.Addr(), extra.RKey()
	a.post(wr)
	a.expect(0, verbs.StatusOK)
	w.noError(extra.Close())
	a.isRejected(b, wr, verbs.StatusRemoteAccess)

	a, b = w.pair()
	if extra, err = a.pd.RegisterMemory(w.memory(a.n, 4096), allMemory); err != nil {
		w.Fatal(err)
	}
	sge := verbs.SGE{Addr: extra.Addr(), Length: 64, LKey: extra.LKey()}
	w.noError(extra.Close())
	wr = a.to(b, 1, verbs.OpWrite, 0, 0, 0)
	wr.SGL = []verbs.SGE{sge}
	a.failsLocally(b, wr)
}

// longerThanTheReceive: the responder gets a length error, the requester an invalid request
// (specification, volume 1, 9.7.4.1.7). rxe gives both sides the same status, or an
// operation error if it detects the excess only while copying.
func longerThanTheReceive(w *world) {
	for _, n := range []int{65, 100 << 10} {
		a, b := w.pair()
		pattern(a.mem[:n], 1)
		b.recv(1, 4096, 64)
		b.recv(2, 0, 64)
		a.post(a.send(3, 0, n), a.send(4, 0, 8))
		wc := a.next()
		if wc.ID != 3 || !slices.Contains([]verbs.Status{verbs.StatusRemoteInvalidRequest, verbs.StatusRemoteOperation}, wc.Status) {
			w.Errorf("the send that is too long completes as %+v (%v)", wc, wc.Status)
		}
		a.expect(4, verbs.StatusFlushed)
		wc = b.next()
		if wc.ID != 1 || !slices.Contains([]verbs.Status{verbs.StatusLocalLength, verbs.StatusRemoteInvalidRequest, verbs.StatusLocalQPOperation}, wc.Status) {
			w.Errorf("the receive that is too short completes as %+v (%v)", wc, wc.Status)
		}
		b.expect(2, verbs.StatusFlushed)
		if !bytes.Equal(b.mem[4096+64:8192], make([]byte, 4096-64)) {
			w.Error("memory after the receive was written")
		}
	}
}

// failsLocally posts a request with an error on this side. It checks for a protection error,
// that nothing reaches the peer, and that the queue pair breaks (specification, volume 1,
// 9.9.2).
func (e *end) failsLocally(peer *end, wr verbs.SendWR) {
	e.w.Helper()
	n, err := e.qp.PostSend([]verbs.SendWR{wr})
	if err != nil { // a provider may check at the post
		e.w.errorIs(err, verbs.ErrInvalid)
		return
	}
	if n != 1 {
		e.w.Fatalf("%d of 1 posted", n)
	}
	wc := e.next()
	if wc.ID != wr.ID || !slices.Contains([]verbs.Status{verbs.StatusLocalProtection, verbs.StatusLocalQPOperation}, wc.Status) {
		e.w.Errorf("the work request completes as %+v (%v)", wc, wc.Status)
	}
	e.waitState(verbs.StateErr)
	e.w.memoryIs(peer.mem, 0, nil, 0)
	peer.stateIs(verbs.StateRTS)
}

func wrongLKey(w *world) {
	a, b := w.pair()
	wr := a.to(b, 1, verbs.OpWrite, 0, 64, 0)
	wr.SGL[0].LKey ^= 0x5555
	a.failsLocally(b, wr)
}

func localPastTheEnd(w *world) {
	for _, at := range []int{memorySize - 63, memorySize, -1} {
		a, b := w.pair()
		a.failsLocally(b, a.to(b, 1, verbs.OpWrite, at, 64, 0))
	}
}

// wrongLKeyOfAReceive: the receiver gets a protection error, the sender a remote operation
// error (specification, volume 1, 9.9.3.1.6).
func wrongLKeyOfAReceive(w *world) {
	a, b := w.pair()
	sge := b.sge(0, 64)
	sge.LKey ^= 0x5555
	if n, err := b.qp.PostRecv([]verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{sge}}}); err != nil || n != 1 {
		w.errorIs(err, verbs.ErrInvalid)
		return
	}
	a.post(a.send(2, 0, 64))
	a.expect(2, verbs.StatusRemoteOperation)
	wc := b.next()
	if wc.ID != 1 || !slices.Contains([]verbs.Status{verbs.StatusLocalProtection, verbs.StatusLocalQPOperation}, wc.Status) {
		w.Errorf("the receive completes as %+v (%v)", wc, wc.Status)
	}
}

// earlierSucceed: a request that fails flushes those after it, not those before.
func earlierSucceed(w *world) {
	a, b := w.pair()
	pattern(a.mem[:512], 1)
	var wrs []verbs.SendWR
	for i := range 8 {
		wrs = append(wrs, a.to(b, verbs.WRID(i), verbs.OpWrite, 64*i, 64, 64*i))
	}
	wrs[5].RKey ^= 0x5555
	wrs[3].Signaled, wrs[7].Signaled = false, false
	a.post(wrs...)
	for _, i := range []int{0, 1, 2, 4} {
		a.expect(verbs.WRID(i), verbs.StatusOK)
	}
	a.expect(5, verbs.StatusRemoteAccess)
	a.expect(6, verbs.StatusFlushed)
	a.expect(7, verbs.StatusFlushed)
	w.memoryIs(b.mem, 0, a.mem[:320], 0)
}

// allFlushed: 40 unsignaled sends and 16 receives give 56 completions, as with rxe and NICs
// (specification, volume 1, 10.3.1.6).
func allFlushed(w *world) {
	a, _ := w.blockedPair()
	for i := range 40 {
		wr := a.send(verbs.WRID(i), 0, 8)
		wr.Signaled = false
		a.post(wr)
	}
	for i := range 16 {
		a.recv(verbs.WRID(100+i), 0, 8)
	}
	w.noError(a.qp.ToErr())
	sends, recvs := 0, 0
	for range 56 {
		wc := a.next()
		want := &sends
		id := sends
		if wc.ID >= 100 {
			want, id = &recvs, 100+recvs
		}
		if wc.ID != verbs.WRID(id) || wc.Status != verbs.StatusFlushed {
			w.Fatalf("after %d sends and %d receives: unexpected completion %+v (%v)", sends, recvs, wc, wc.Status)
		}
		*want++
	}
	if sends != 40 || recvs != 16 {
		w.Errorf("%d sends and %d receives were flushed, want 40 and 16", sends, recvs)
	}
	a.noCompletion()
}

// postedToBroken: in ERR work requests are accepted and flushed (specification, volume 1,
// 10.3.1.6).
func postedToBroken(w *world) {
	a, b := w.pair()
	w.noError(a.qp.ToErr())
	a.post(a.send(1, 0, 8))
	a.expect(1, verbs.StatusFlushed)
	wr := a.to(b, 2, verbs.OpWrite, 0, 8, 0)
	wr.Signaled = false
	a.post(wr)
	a.expect(2, verbs.StatusFlushed)
	a.recv(3, 0, 8)
	a.expect(3, verbs.StatusFlushed)
}

// retryTime returns the limits of the time until a requester reports an error: (retries + 1)
// times the timeout, each of which may last up to four times as long (specification, volume
// 1, 9.7.6.1.3).
func (e *end) retryTime() (least, most time.Duration) {
	t := verbs.TimeoutDuration(e.params.timeout)
	n := time.Duration(e.params.retry)
	return n * t, 4 * (n + 1) * t
}

// retriesExpire waits until a request fails for lack of an acknowledgement, and checks that
// the time since the post is within retryTime.
func (e *end) retriesExpire(id verbs.WRID, since time.Time) {
	e.w.Helper()
	least, _ := e.retryTime()
	e.fails(id, since, least)
}

// fails is retriesExpire with another least time.
func (e *end) fails(id verbs.WRID, since time.Time, least time.Duration) {
	e.w.Helper()
	e.expect(id, verbs.StatusRetryExceeded)
	_, most := e.retryTime()
	slack := time.Second
	if !e.w.env.Virtual {
		slack = soon // on a busy machine a process may rest for a second
	}
	if d := time.Since(since); d < least || d > e.w.scaled(most+slack) {
		e.w.Errorf("failed after %v, want %v to %v", d, least, e.w.scaled(most))
	}
	e.waitState(verbs.StateErr)
}

// sentIntoInit: a queue pair in INIT drops packets silently, so all retries of the message
// are lost (specification, volume 1, 10.3.1.2).
func sentIntoInit(w *world) {
	s := w.params(w.expires(2))
	a, b := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	a.init()
	b.init()
	b.recv(1, 0, 64)
	a.connect(b)
	start := time.Now()
	a.post(a.send(2, 0, 64))
	a.retriesExpire(2, start)
	b.noCompletion()
	b.stateIs(verbs.StateInit)
}

// destroyedPeer: a device that learns of the end of the peer's queue pair may fail at once. There are many retries, since
// the peer responds at first.
func destroyedPeer(w *world) {
	a, b := w.impatient()
	b.sendsTo(a)
	w.noError(b.qp.Close())
	start := time.Now()
	a.post(a.to(b, 1, verbs.OpWrite, 0, 64, 0), a.send(2, 0, 8))
	a.fails(1, start, 0)
	a.expect(2, verbs.StatusFlushed)
}

// brokenPeer: a queue pair in ERR does not respond. The two have exchanged something: a device that connects later than RTS may
// learn at once that there is nobody to connect to. For that there are many retries.
func brokenPeer(w *world) {
	a, b := w.impatient()
	b.sendsTo(a)
	b.recv(1, 0, 8)
	w.noError(b.qp.ToErr())
	b.expect(1, verbs.StatusFlushed)
	start := time.Now()
	a.post(a.send(2, 0, 8))
	a.retriesExpire(2, start)
}

// peerClosesSilently: a side that only waits is not informed when the peer closes its queue
// pair. An empty write detects it, at once on a device that has learnt of the end.
func peerClosesSilently(w *world) {
	a, b := w.pair(w.expires(1))
	a.recv(1, 0, 8)
	w.noError(b.qp.Close())
	a.noCompletion()
	a.stateIs(verbs.StateRTS)
	start := time.Now()
	a.post(verbs.SendWR{ID: 2, Op: verbs.OpWrite})
	a.fails(2, start, 0)
	a.expect(1, verbs.StatusFlushed)
}

// wrongPSN: packets with an unexpected PSN have no effect.
func wrongPSN(w *world) {
	s := w.params(w.expires(1))
	a, b := w.end(w.nodes[0], s), w.end(w.nodes[1], s)
	a.init()
	b.init()
	b.recv(1, 0, 8)
	a.connect(b)
	// b expects a PSN before the one that arrives: a gap that never closes. (A PSN
	// before the expected one looks like a duplicate, which rxe acknowledges.)
	a.psn = (a.psn - 1000) & 0xffffff
	b.connect(a)
	a.post(a.send(2, 0, 8))
	a.expect(2, verbs.StatusRetryExceeded)
	b.noCompletion()
}
