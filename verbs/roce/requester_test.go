package roce

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// TestFailsAfterRetryPlusOneTimeouts: neither earlier nor later, whatever was
// retransmitted in between. A retry count of 7 means seven.
func TestFailsAfterRetryPlusOneTimeouts(t *testing.T) {
	for _, retry := range []uint8{0, 1, 6, 7} {
		p := defaultConnection()
		p.retry = retry
		n, a, b := connect(t, p)
		sent := 0
		n.lose = func(int, *rocewire.Header) bool { sent++; return true }
		a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0), a.to(b, 2, verbs.OpWrite, 0, 8, 0))
		timeout := verbs.TimeoutDuration(p.timeout)
		giveUp := time.Duration(retry+1) * timeout
		n.run(giveUp - 1)
		if len(a.sent) > 0 {
			t.Errorf("retry %d: it ends before %v: %q", retry, giveUp, short(a.sent))
		}
		n.run(1)
		expectWCs(t, "sent", a.sent, ended(1, verbs.StatusRetryExceeded), ended(2, verbs.StatusFlushed))
		if a.machine.state != verbs.StateErr {
			t.Errorf("retry %d: the state is %v", retry, a.machine.state)
		}
		// There is at least one retransmission per timeout, and a few more early ones.
		if tries := sent / 2; tries < int(retry)+1 || tries > int(retry)+4 {
			t.Errorf("retry %d: %d tries", retry, tries)
		}
		if n.run(time.Hour); len(n.todo) > 0 {
			t.Error("a timer runs in ERR")
		}
	}
}

// TestProgressRestartsTheTimeout: timeouts count from the last ACK.
func TestProgressRestartsTheTimeout(t *testing.T) {
	p := defaultConnection()
	n, a, b := connect(t, p)
	giveUp := time.Duration(p.retry+1) * verbs.TimeoutDuration(p.timeout)
	dead := false
	n.lose = func(int, *rocewire.Header) bool { return dead }
	for i := range 5 {
		a.post(a.to(b, verbs.WRID(i), verbs.OpWrite, 0, 8, 0))
		n.run(giveUp / 2)
	}
	expectWCs(t, "sent", a.sent, ok(0), ok(1), ok(2), ok(3), ok(4))
	dead = true
	a.post(a.to(b, 5, verbs.OpWrite, 0, 8, 0))
	n.run(giveUp - 1)
	if a.machine.state != verbs.StateRTS {
		t.Error("it failed early")
	}
	n.run(1)
	if a.machine.state != verbs.StateErr {
		t.Error("it does not fail")
	}
}

// TestRetransmitsFarBelowTheTimeout: the retransmission timer adapts to the round trip,
// and includes maxAckDelay if the peer may delay the ACK.
func TestRetransmitsFarBelowTheTimeout(t *testing.T) {
	for op, least := range map[verbs.Opcode]time.Duration{verbs.OpWrite: granularity, verbs.OpSend: granularity + maxAckDelay} {
		p := defaultConnection()
		p.timeout = 18 // 1 s
		n, a, b := connect(t, p)
		a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0))
		n.run(time.Second)
		b.recv(1, 0, 8)
		lost := 0
		n.lose = func(from int, _ *rocewire.Header) bool { lost++; return lost == 1 }
		start := n.now
		a.post(a.to(b, 2, op, 0, 8, 0))
		for len(a.sent) < 2 && n.now < start+time.Second {
			n.run(ms / 10)
		}
		if took := n.now - start; took < least || took > least+ms/2 {
			t.Errorf("%v: what was lost was sent again after %v", op, took)
		}
	}
}

// TestNoTimeout: with timeout 0 nothing is retransmitted.
func TestNoTimeout(t *testing.T) {
	p := defaultConnection()
	p.timeout = 0
	n, a, b := connect(t, p)
	sent := 0
	n.lose = func(int, *rocewire.Header) bool { sent++; return true }
	a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0))
	if n.run(time.Hour); sent != 1 || len(a.sent) > 0 {
		t.Errorf("%d packets, ended %q", sent, short(a.sent))
	}
}

// TestRNRRetries: the retry count limits the retries, which wait for the peer's time; 7
// means no limit (specification, volume 1, 9.7.5.2.8).
func TestRNRRetries(t *testing.T) {
	for _, rnr := range []uint8{0, 1, 6} {
		p := defaultConnection()
		p.rnr, p.rnrTimer = rnr, 14
		n, a, b := connect(t, p)
		var at []time.Duration
		n.seen = func(from int, h *rocewire.Header) {
			if from == 0 && h.Op == rocewire.SendOnly {
				at = append(at, n.now)
			}
		}
		a.post(a.to(b, 1, verbs.OpSend, 0, 8, 0), a.to(b, 2, verbs.OpWrite, 0, 8, 0))
		n.run(time.Hour)
		expectWCs(t, "sent", a.sent, ended(1, verbs.StatusRNRRetryExceeded), ended(2, verbs.StatusFlushed))
		if len(at) != int(rnr)+1 {
			t.Errorf("RNR retry %d: %d tries", rnr, len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap != rocewire.RNRDelay(14)+2*n.delay {
				t.Errorf("RNR retry %d: try %d came after %v", rnr, i, gap)
			}
		}
	}
	p := defaultConnection()
	p.rnrTimer = 1
	n, a, b := connect(t, p)
	a.post(a.to(b, 1, verbs.OpSend, 0, 8, 0))
	n.run(10 * time.Second)
	if a.machine.state != verbs.StateRTS || a.counts.rnrReceived.Load() < 1000 {
		t.Errorf("in %v after %d tries", a.machine.state, a.counts.rnrReceived.Load())
	}
	b.recv(9, 0, 8)
	n.run(time.Second)
	expectWCs(t, "sent", a.sent, ok(1))
	expectWCs(t, "received", b.received, ok(9))
}

// TestRNROfALaterMessage: an RNR NAK acknowledges everything before it. Retries count
// for the message that it is for. During the wait no other timer runs, although at 655
// ms it is longer than all timeouts together.
func TestRNROfALaterMessage(t *testing.T) {
	p := defaultConnection()
	p.rnr, p.rnrTimer, p.timeout, p.retry = 1, 0, 10, 1
	n, a, b := connect(t, p)
	a.machine.req.rnrRetries = 1 // of an earlier message
	n.batch = func() time.Duration { return n.delay }
	a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0), a.to(b, 2, verbs.OpSend, 0, 8, 0))
	n.run(100 * ms)
	if !a.machine.req.rnrWaiting || a.machine.req.rnrRetries != 1 {
		t.Fatalf("in %v, waiting for the receiver: %v, %d tries", a.machine.state, a.machine.req.rnrWaiting, a.machine.req.rnrRetries)
	}
	b.recv(9, 0, 8)
	n.run(time.Second)
	expectWCs(t, "sent", a.sent, ok(1), ok(2))
	if again := a.counts.timeouts.Load(); again > 0 {
		t.Errorf("%d timers fired", again)
	}
}

// TestResponsesToUnsentRequests: "ghost" ACKs, NAKs and responses change nothing
// (specification, volume 1, 9.7.5.1.1).
func TestResponsesToUnsentRequests(t *testing.T) {
	for _, h := range []rocewire.Header{
		{Op: rocewire.Ack, Syndrome: rocewire.AckUnlimited},
		{Op: rocewire.Ack, Syndrome: rocewire.NAKSequence},
		{Op: rocewire.Ack, Syndrome: rocewire.NAKInvalidRequest},
		{Op: rocewire.Ack, Syndrome: rocewire.NAKRemoteAccess},
		{Op: rocewire.Ack, Syndrome: rocewire.NAKRemoteOperation},
		{Op: rocewire.Ack, Syndrome: rocewire.RNR(31)},
		{Op: rocewire.ReadResponseOnly, Syndrome: rocewire.AckUnlimited},
		{Op: rocewire.AtomicAck, Syndrome: rocewire.AckUnlimited},
	} {
		for _, ahead := range []uint64{0, 1, 100, 1 << 23, psnMask - 1} {
			a, b := join(defaultConnection())
			a.window = 1
			a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0), a.to(b, 2, verbs.OpRead, 0, 8, 0))
			if len(a.packets(0)) != 1 {
				t.Fatal("the window does not hold")
			}
			h.PSN = psnOf(defaultConnection().psn[0], 1+ahead)
			a.machine.handlePacket(1, &h, nil)
			if a.machine.state != verbs.StateRTS || len(a.sent) > 0 || a.machine.req.rnrWaiting || a.machine.req.acked != 0 {
				t.Errorf("%v, %v, %d ahead: in %v, ended %q", h.Op, h.Syndrome, ahead, a.machine.state, short(a.sent))
			}
		}
	}
}

// TestACKsAreRequested: with the last packet of each message, every sixteenth of a long
// message, and at the end of the window.
func TestACKsAreRequested(t *testing.T) {
	a, b := join(defaultConnection())
	a.post(a.to(b, 1, verbs.OpWrite, 0, 40<<10, 0), a.to(b, 2, verbs.OpWrite, 0, 8, 0))
	var requested []int
	list := a.packets(0)
	for i, h := range list {
		if h.AckReq {
			requested = append(requested, i)
		}
	}
	if len(list) != 41 || !slices.Equal(requested, []int{15, 31, 39, 40}) {
		t.Errorf("%d packets, ACK requested with %d", len(list), requested)
	}
	a, b = join(defaultConnection())
	a.window = 5 * windowCost(1, 1024)
	a.post(a.to(b, 1, verbs.OpWrite, 0, 40<<10, 0))
	if list = a.packets(0); len(list) != 5 || !list[4].AckReq || list[3].AckReq {
		t.Errorf("%d packets, ACK requested with the last: %v", len(list), list[len(list)-1].AckReq)
	}
}

// TestReadsAreRequestedInParts: of at most readPackets, and at most the space in the
// window; at most as many at a time as the peer allows; with a single completion.
func TestReadsAreRequestedInParts(t *testing.T) {
	p := defaultConnection()
	p.maxReadAtomic = 2
	n, a, b := connect(t, p)
	for i := range b.mem {
		b.mem[i] = byte(i * 7 >> 3)
	}
	var lengths []uint32
	under, most := 0, 0
	n.seen = func(from int, h *rocewire.Header) {
		if h.Op == rocewire.ReadRequest {
			lengths = append(lengths, h.Length)
			under++
			most = max(most, under)
		}
		if h.Op.IsReadResponse() && h.Op.EndsMessage() {
			under--
		}
	}
	const size = 40<<10 + 5
	a.post(a.to(b, 1, verbs.OpRead, 0, size, 100))
	n.run(time.Second)
	expectWCs(t, "sent", a.sent, ok(1))
	if !slices.Equal(lengths, []uint32{16 << 10, 16 << 10, 8<<10 + 5}) || most != 2 {
		t.Errorf("requested %d bytes, %d at a time", lengths, most)
	}
	if !bytes.Equal(a.mem[:size], b.mem[100:100+size]) || a.mem[size] != 0 {
		t.Error("different bytes")
	}
}

// TestLostResponsesAreRequestedAgain: from the first missing one, in the same parts as
// before, and at once.
func TestLostResponsesAreRequestedAgain(t *testing.T) {
	n, a, b := connect(t, defaultConnection())
	var requested [][2]uint64
	responses := 0
	n.seen = func(_ int, h *rocewire.Header) {
		if h.Op == rocewire.ReadRequest {
			requested = append(requested, [2]uint64{h.Addr - b.mr.Addr(), uint64(h.Length)})
		}
	}
	n.lose = func(_ int, h *rocewire.Header) bool {
		if h.Op.IsReadResponse() {
			responses++
			return responses == 4
		}
		return false
	}
	a.post(a.to(b, 1, verbs.OpRead, 0, 20<<10, 0), a.to(b, 2, verbs.OpWrite, 0, 8, 0))
	n.run(firstRTO - 1)
	expectWCs(t, "sent", a.sent, ok(1), ok(2))
	if !slices.Equal(requested, [][2]uint64{{0, 16 << 10}, {16 << 10, 4 << 10}, {3 << 10, 13 << 10}, {16 << 10, 4 << 10}}) {
		t.Errorf("requested %d", requested)
	}
}

// TestFence: a fenced request waits for earlier READs and atomics, others do not.
func TestFence(t *testing.T) {
	for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpFetchAdd} {
		for _, fence := range []bool{false, true} {
			a, b := join(defaultConnection())
			wr := a.to(b, 2, verbs.OpWrite, 0, 8, 0)
			wr.Fence = fence
			a.post(a.to(b, 1, op, 0, 8, 0), wr)
			if list := a.packets(0); (len(list) == 1) != fence {
				t.Errorf("%v, fence %v: %v go out", op, fence, list)
			}
			if !fence {
				continue
			}
			h := rocewire.Header{Op: rocewire.ReadResponseOnly, PSN: defaultConnection().psn[0], Syndrome: rocewire.AckUnlimited}
			payload := make([]byte, 8)
			if op == verbs.OpFetchAdd {
				h.Op, payload = rocewire.AtomicAck, nil
			}
			a.machine.handlePacket(1, &h, payload)
			if list := a.packets(1); len(list) != 1 || list[0].Op != rocewire.WriteOnly {
				t.Errorf("%v: %v are sent after the response", op, list)
			}
		}
	}
}

// TestMismatchedResponses: a response of wrong length or kind, or out of order, is
// ignored and requested again.
func TestMismatchedResponses(t *testing.T) {
	for name, c := range map[string]struct {
		op      verbs.Opcode
		h       rocewire.Header
		payload int
	}{
		"a read's, too short":     {verbs.OpRead, rocewire.Header{Op: rocewire.ReadResponseOnly}, 99},
		"a read's, too long":      {verbs.OpRead, rocewire.Header{Op: rocewire.ReadResponseOnly}, 101},
		"a read's, empty":         {verbs.OpRead, rocewire.Header{Op: rocewire.ReadResponseMiddle}, 0},
		"an atomic's to a read":   {verbs.OpRead, rocewire.Header{Op: rocewire.AtomicAck}, 0},
		"a read's to an atomic":   {verbs.OpFetchAdd, rocewire.Header{Op: rocewire.ReadResponseOnly}, 8},
		"a read's to a write":     {verbs.OpWrite, rocewire.Header{Op: rocewire.ReadResponseOnly}, 100},
		"an atomic's to a write":  {verbs.OpWrite, rocewire.Header{Op: rocewire.AtomicAck}, 0},
		"an ACK of a read":        {verbs.OpRead, rocewire.Header{Op: rocewire.Ack, Syndrome: rocewire.AckUnlimited}, 0},
		"an ACK of an atomic":     {verbs.OpFetchAdd, rocewire.Header{Op: rocewire.Ack, Syndrome: rocewire.AckUnlimited}, 0},
		"an unknown NAK":          {verbs.OpWrite, rocewire.Header{Op: rocewire.Ack, Syndrome: 0x7f}, 0},
		"a reserved syndrome":     {verbs.OpWrite, rocewire.Header{Op: rocewire.Ack, Syndrome: 0xdf}, 0},
		"an unknown kind of AETH": {verbs.OpWrite, rocewire.Header{Op: rocewire.Ack, Syndrome: 0x5f}, 0},
	} {
		a, b := join(defaultConnection())
		size := 100
		if c.op == verbs.OpFetchAdd {
			size = 8
		}
		a.post(a.to(b, 1, c.op, 0, size, 0))
		a.packets(0)
		c.h.PSN = defaultConnection().psn[0]
		a.machine.handlePacket(1, &c.h, bytes.Repeat([]byte{1}, c.payload))
		if len(a.sent) > 0 || a.machine.state != verbs.StateRTS || slices.Contains(a.mem, 1) {
			t.Errorf("%s: in %v, ended %q, memory %v", name, a.machine.state, short(a.sent), a.mem[:4])
		}
	}
}

// TestNAKsFailTheOldestRequest: each NAK has its status. Later requests are flushed,
// also unsignaled ones, and earlier ones complete.
func TestNAKsFailTheOldestRequest(t *testing.T) {
	for s, status := range map[rocewire.Syndrome]verbs.Status{
		rocewire.NAKInvalidRequest:  verbs.StatusRemoteInvalidRequest,
		rocewire.NAKRemoteAccess:    verbs.StatusRemoteAccess,
		rocewire.NAKRemoteOperation: verbs.StatusRemoteOperation,
	} {
		a, b := join(defaultConnection())
		quiet := a.to(b, 3, verbs.OpWrite, 0, 8, 0)
		quiet.Signaled = false
		a.recv(8, 0, 8)
		a.recv(9, 0, 8)
		a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0), a.to(b, 2, verbs.OpWrite, 0, 8, 0), quiet, a.to(b, 4, verbs.OpRead, 0, 8, 0))
		a.packets(0)
		a.machine.handlePacket(1, &rocewire.Header{Op: rocewire.Ack, PSN: defaultConnection().psn[0] + 1, Syndrome: s}, nil)
		expectWCs(t, s.String(), a.sent, ok(1), ended(2, status), ended(3, verbs.StatusFlushed), ended(4, verbs.StatusFlushed))
		expectWCs(t, s.String(), a.received, ended(8, verbs.StatusFlushed), ended(9, verbs.StatusFlushed))
		if _, waits := a.machine.deadline(); waits || a.machine.state != verbs.StateErr || len(a.packets(1)) > 0 || a.machine.req.flight != 0 {
			t.Errorf("%v: in %v, waits %v, %d in flight", s, a.machine.state, waits, a.machine.req.flight)
		}
		// What is posted after that is flushed at once, in order.
		a.post(a.to(b, 5, verbs.OpWrite, 0, 8, 0))
		a.recv(10, 0, 8)
		expectWCs(t, "late", a.sent[4:], ended(5, verbs.StatusFlushed))
		expectWCs(t, "late", a.received[2:], ended(10, verbs.StatusFlushed))
	}
}

// TestLocalErrors: a request with invalid memory or a length that is too large fails
// after earlier requests have completed.
func TestLocalErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *peerMachine, wr *verbs.SendWR)
		want   verbs.Status
	}{
		"an unknown key":        {func(_ *peerMachine, wr *verbs.SendWR) { wr.SGL[0].LKey++ }, verbs.StatusLocalProtection},
		"a remote key":          {func(a *peerMachine, wr *verbs.SendWR) { wr.SGL[0].LKey = verbs.LKey(a.mr.RKey()) }, verbs.StatusLocalProtection},
		"before the region":     {func(_ *peerMachine, wr *verbs.SendWR) { wr.SGL[0].Addr-- }, verbs.StatusLocalProtection},
		"behind the region":     {func(a *peerMachine, wr *verbs.SendWR) { wr.SGL[0].Addr += uint64(len(a.mem)) - 7 }, verbs.StatusLocalProtection},
		"an address that wraps": {func(_ *peerMachine, wr *verbs.SendWR) { wr.SGL[0].Addr = ^uint64(0) - 3 }, verbs.StatusLocalProtection},
		"the second part": {func(a *peerMachine, wr *verbs.SendWR) {
			wr.SGL = append(wr.SGL, verbs.SGE{Addr: 1, Length: 1, LKey: a.mr.LKey()})
		}, verbs.StatusLocalProtection},
		"a read into what it may not write": {func(a *peerMachine, wr *verbs.SendWR) {
			m := a.domain.Keys.Add(&a.domain, make([]byte, 8), 0)
			wr.Op, wr.SGL = verbs.OpRead, []verbs.SGE{{Addr: m.Addr(), Length: 8, LKey: m.LKey()}}
		}, verbs.StatusLocalProtection},
		"another domain's": {func(a *peerMachine, wr *verbs.SendWR) {
			m := a.domain.Keys.Add(&soft.Domain{Keys: a.domain.Keys}, make([]byte, 8), allRights)
			wr.SGL = []verbs.SGE{{Addr: m.Addr(), Length: 8, LKey: m.LKey()}}
		}, verbs.StatusLocalProtection},
		"more than a message": {func(_ *peerMachine, wr *verbs.SendWR) {
			wr.SGL = []verbs.SGE{{Length: maxMessage}, {Length: 1}}
		}, verbs.StatusLocalLength},
	} {
		n, a, b := connect(t, defaultConnection())
		wr := a.to(b, 2, verbs.OpWrite, 0, 8, 0)
		c.change(a, &wr)
		a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0), wr, a.to(b, 3, verbs.OpWrite, 0, 8, 0))
		n.run(time.Second)
		expectWCs(t, name, a.sent, ok(1), ended(2, c.want), ended(3, verbs.StatusFlushed))
	}
	// Without slots for outstanding READs there are no READs.
	p := defaultConnection()
	p.maxReadAtomic = 0
	for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpFetchAdd} {
		n, a, b := connect(t, p)
		a.post(a.to(b, 1, op, 0, 8, 0))
		n.run(time.Second)
		expectWCs(t, op.String(), a.sent, ended(1, verbs.StatusLocalQPOperation))
	}
}

// TestRegionClosedWhileItIsSent: the message fails, and the peer has received a part of
// it.
func TestRegionClosedWhileItIsSent(t *testing.T) {
	a, b := join(defaultConnection())
	a.post(a.to(b, 1, verbs.OpWrite, 0, 4096, 0))
	if a.next(0) == nil {
		t.Fatal("nothing is sent")
	}
	a.domain.Keys.Remove(a.mr)
	if a.next(0) != nil {
		t.Error("more is sent")
	}
	expectWCs(t, "sent", a.sent, ended(1, verbs.StatusLocalProtection))
}

// TestFlightIsBounded: at most maxFlight packets, far below half of the PSNs.
func TestFlightIsBounded(t *testing.T) {
	p := defaultConnection()
	p.mtu, p.memory = verbs.MTU256, 1<<20
	a, b := join(p)
	a.window = 1 << 40
	for i := range 20 {
		a.post(a.to(b, verbs.WRID(i), verbs.OpWrite, 0, 1<<20, 0))
	}
	sent, requested := 0, false
	for a.machine.nextPacket(0, 1<<40, &a.packet) {
		sent++
		requested = a.packet.AckReq
	}
	if sent != maxFlight || !requested {
		t.Errorf("%d packets are unacknowledged; ACK requested: %v", sent, requested)
	}
	if a.machine.req.canSend() {
		t.Error("it wants to send more")
	}
}

// TestPSNsWrap: a stream of more than 2^24 packets behaves as a short one.
func TestPSNsWrap(t *testing.T) {
	p := defaultConnection()
	p.psn = [2]verbs.PSN{psnMask - 5, psnMask}
	n, a, b := connect(t, p)
	for i := range b.mem[:64<<10] {
		a.mem[i] = byte(i >> 4)
	}
	var psns []verbs.PSN
	n.seen = func(from int, h *rocewire.Header) {
		if from == 0 {
			psns = append(psns, h.PSN)
		}
	}
	a.post(a.to(b, 1, verbs.OpWrite, 0, 10<<10, 0), a.to(b, 2, verbs.OpRead, 64<<10, 10<<10, 0), a.to(b, 3, verbs.OpFetchAdd, 80<<10, 8, 32<<10))
	n.run(time.Second)
	expectWCs(t, "sent", a.sent, ok(1), ok(2), ok(3))
	if psns[5] != psnMask || psns[6] != 0 || psns[10] != 4 || psns[11] != 14 {
		t.Errorf("the PSNs are %#x", psns)
	}
	if !bytes.Equal(a.mem[64<<10:74<<10], a.mem[:10<<10]) {
		t.Error("different bytes")
	}
}

// TestTimeoutIsALossIfTheProbeShowsIt: after the probe is acknowledged, packets sent
// after it count as lost only if they are not acknowledged, too.
func TestTimeoutIsALossIfTheProbeShowsIt(t *testing.T) {
	for name, c := range map[string]struct {
		lost func(from int, h *rocewire.Header) bool
		want bool
	}{
		"only responses": {func(from int, _ *rocewire.Header) bool { return from == 1 }, false},
		"requests":       {func(from int, h *rocewire.Header) bool { return from == 0 && h.Op == rocewire.WriteLast }, true},
	} {
		t.Run(name, func(t *testing.T) {
			n, a, b := connect(t, defaultConnection())
			a.post(a.to(b, 1, verbs.OpWrite, 0, 3*1024, 0))
			on := true
			n.lose = func(from int, h *rocewire.Header) bool { return on && c.lost(from, h) }
			for a.machine.feedback.timeouts == 0 && n.now < time.Second {
				n.run(ms)
			}
			on = false
			seen := a.machine.takeFeedback()
			if seen.timeouts != 1 || seen.lost {
				t.Fatalf("it has seen %+v, want a timeout", seen)
			}
			for len(a.sent) == 0 && n.now < time.Second {
				n.run(ms)
			}
			if lost := a.machine.takeFeedback().lost; lost != c.want {
				t.Errorf("taken for a loss: %v, want %v", lost, c.want)
			}
		})
	}
}
