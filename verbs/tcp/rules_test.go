package tcp

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// TestReaderGoesOnWhileTheWriterIsBlocked: a peer that reads nothing cannot stop the execution of
// its requests, since the reader neither writes nor waits for the writer.
func TestReaderGoesOnWhileTheWriterIsBlocked(t *testing.T) {
	h := newHandmade(t, 32<<20)
	v := h.victim
	v.patient()
	for i := range 2 { // more than all buffers between the two take
		wr := v.send(verbs.WRID(i), 64, 32<<20-64) // the receives have the memory before it
		v.post(wr)
	}
	for i := range 200 {
		v.recv(verbs.WRID(100+i), 0, 8)
		h.request(frame.Header{Kind: frame.Send, Flags: frame.WantAck, Total: 8}, []byte("12345678"))
		v.expect(verbs.WRID(100+i), verbs.StatusOK)
	}
}

// TestReaderWaitsForNoRoomInACompletionQueue: a queue that overruns is unusable, and another
// queue pair of the device is served.
func TestReaderWaitsForNoRoomInACompletionQueue(t *testing.T) {
	h := newHandmade(t, 4096)
	v := h.victim
	small, err := v.dev.CreateCQ(verbs.CQConfig{Size: 1})
	v.check(err)
	v.qp.mu.Lock()
	big := v.qp.Recv
	v.qp.Recv = small.(*soft.DrivenCQ).CQ //nolint:errcheck // what CreateCQ returns
	v.qp.mu.Unlock()
	defer func() {
		v.qp.mu.Lock()
		v.qp.Recv = big
		v.qp.mu.Unlock()
		v.check(small.Close())
	}()
	for i := range 3 {
		v.recv(verbs.WRID(i), 0, 8)
		h.request(frame.Header{Kind: frame.Send, Flags: frame.WantAck, Total: 8}, []byte("12345678"))
	}
	for acked := uint64(0); acked < 103; { // the reader acknowledges all three
		acked = h.read().Acked
	}
	if _, err := small.Poll(make([]verbs.WC, 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := small.Poll(make([]verbs.WC, 4)); err == nil || !strings.Contains(err.Error(), "overran") {
		t.Errorf("the queue that overran: %v", err)
	}
}

// patient makes a side that is connected wait longer for signs of life: a slow machine is no stopped peer.
func (s *side) patient() {
	s.qp.mu.Lock()
	defer s.qp.mu.Unlock()
	s.qp.machine.req.unit = time.Second
}

// TestRNRStopsOneDirectionOnly: while a message waits for a receive, the requests of the other
// direction complete, and those of other queue pairs.
func TestRNRStopsOneDirectionOnly(t *testing.T) {
	a, b := pair(t, 4096)
	c, d := pair(t, 4096)
	a.post(a.send(1, 0, 8))
	a.post(a.write(b, 2, 0, 8))
	for i := range 50 {
		b.post(b.write(a, verbs.WRID(10+i), 64, 1000))
		b.expect(verbs.WRID(10+i), verbs.StatusOK)
		c.post(c.write(d, verbs.WRID(10+i), 64, 1000))
		c.expect(verbs.WRID(10+i), verbs.StatusOK)
	}
	if n, err := a.cq.Poll(make([]verbs.WC, 1)); n != 0 || err != nil {
		t.Errorf("%d completions without a receive, %v", n, err)
	}
	b.recv(3, 0, 8)
	a.expect(1, verbs.StatusOK)
	a.expect(2, verbs.StatusOK)
	b.expect(3, verbs.StatusOK)
}

// TestRNRRepeatsWhatWasOnItsWay: requests that were sent before the RNR came are dropped and
// sent again, long ones too, in order.
func TestRNRRepeatsWhatWasOnItsWay(t *testing.T) {
	const n = 700 << 10
	a, b := pair(t, 4*n)
	for i := range a.mem {
		a.mem[i] = byte(i * 7)
	}
	for range 20 {
		clear(b.mem)
		write := a.write(b, 2, n, n)
		imm := a.write(b, 4, 3*n, n)
		imm.Op = verbs.OpWriteImm
		a.post(a.send(1, 0, n), write, a.send(3, 2*n, n), imm)
		b.recv(11, 0, n)
		b.expect(11, verbs.StatusOK)
		b.recv(13, 2*n, n)
		b.expect(13, verbs.StatusOK)
		b.recv(14, 0, 0)
		b.expect(14, verbs.StatusOK)
		for i := range 4 {
			a.expect(verbs.WRID(1+i), verbs.StatusOK)
		}
		if !bytes.Equal(a.mem, b.mem) {
			t.Fatal("wrong bytes")
		}
	}
}

// TestWindowCloseEndsAWriteUnderWay: when Close has returned, nothing is written, although the
// peer has sent only a part. The rest is refused and breaks the queue pair.
func TestWindowCloseEndsAWriteUnderWay(t *testing.T) {
	h := newHandmade(t, 1<<20)
	v := h.victim
	win, err := v.qp.BindWindow(v.mr, 0, 1<<20, verbs.AccessRemoteWrite)
	v.check(err)
	half := bytes.Repeat([]byte{1}, 300<<10)
	f := frame.Header{Kind: frame.Write, Total: 600 << 10, Addr: v.mr.Addr(), RKey: uint32(win.RKey()), Number: h.number, Length: 600 << 10}
	f.Acked = h.acked
	if _, err := h.c.Write(append(f.Append(nil), half...)); err != nil {
		t.Fatal(err)
	}
	v.check(win.Close())
	at := bytes.IndexByte(v.mem, 0) // how much came before Close
	if _, err := h.c.Write(half); err != nil {
		t.Fatal(err)
	}
	nak := h.read()
	if nak.Kind != frame.NAK || nak.Number != h.number || nak.Imm != uint32(verbs.StatusRemoteAccess) {
		t.Errorf("the rest is answered with %+v", nak)
	}
	if !quiet(v.mem[at:]) {
		t.Error("memory was written after Close")
	}
	if s, _ := v.qp.State(); s != verbs.StateErr {
		t.Errorf("the queue pair is in %v", s)
	}
}

// TestRegionCloseEndsASendUnderWay: when MR.Close has returned, the device reads the memory no
// more. The rest of the content cannot be sent, so the queue pair breaks.
func TestRegionCloseEndsASendUnderWay(t *testing.T) {
	h := newHandmade(t, 4096)
	v := h.victim
	v.patient()
	const n = 32 << 20
	mem, later := bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{2}, n)
	mr, err := v.pd.RegisterMemory(mem, verbs.AccessLocalWrite)
	v.check(err)
	v.post(verbs.SendWR{ID: 1, Op: verbs.OpSend, SGL: []verbs.SGE{{Addr: mr.Addr(), Length: n, LKey: mr.LKey()}}})
	h.readHeader() // it is on its way
	v.check(mr.Close())
	copy(mem, later)
	rest, err := io.ReadAll(h.c)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(rest, later[:64]) > 0 {
		t.Error("the memory was read after Close")
	}
	v.expect(1, verbs.StatusLocalProtection)
}

func (h *handmade) readHeader() {
	h.t.Helper()
	if _, err := io.ReadFull(h.c, make([]byte, frame.HeaderLen)); err != nil {
		h.t.Fatal(err)
	}
}

// TestSlowReaderIsNotAStoppedPeer: a long content takes longer than the patience, while the
// socket takes more of it all the time.
func TestSlowReaderIsNotAStoppedPeer(t *testing.T) {
	h := offerHandmade(t, 48<<20)
	v := h.victim
	if r := h.greet(h.greeting()); r.Reason != "" {
		t.Fatal(r.Reason)
	}
	h.c.(*net.TCPConn).SetReadBuffer(64 << 10) //nolint:errcheck // then it is only faster
	allowed := max(patienceFactor*7*verbs.TimeoutDuration(v.path.Timeout), minPatience)
	v.post(v.send(1, 0, 48<<20))
	const steps = 24
	start := time.Now()
	for range steps {
		if _, err := io.CopyN(io.Discard, h.c, 2<<20); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * allowed / steps)
	}
	if time.Since(start) < allowed {
		t.Fatal("it was no slow reader")
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		io.Copy(io.Discard, h.c) //nolint:errcheck // ends with the test
	})
	defer wg.Wait()
	defer h.c.Close()
	h.acked++
	for v.qp.machine.req.written.Load() != h.acked {
		select {
		case <-done:
			t.Fatal("the victim closed the connection")
		case <-time.After(time.Millisecond):
		}
	}
	h.frame(frame.Header{Kind: frame.Ack}, nil)
	v.expect(1, verbs.StatusOK)
}

// TestReplayedBytesAreRead: a listener that looked at the first bytes hands them over.
func TestReplayedBytesAreRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := newSide(t, Options{Listen: []string{l.Addr().String()}}, 1<<20)
	a := newSide(t, Options{}, 1<<20)
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		first := make([]byte, len(Magic))
		if _, err := io.ReadFull(c, first); err != nil || string(first) != Magic {
			t.Errorf("the connection begins with %q, %v", first, err)
		}
		b.dev.Accept(Replay(c, first))
	})
	connect(a, b)
	wg.Wait()
	a.post(a.write(b, 1, 0, 1<<20))
	a.expect(1, verbs.StatusOK)
	if c := b.qp.conn.Load(); c.reader.raw == nil || c.writer.raw == nil {
		t.Error("the connection lost its fast path")
	}
}

// TestDialTarget: Endpoint.Target takes the place of the addresses in Data.
func TestDialTarget(t *testing.T) {
	b := newSide(t, Options{ListenOn: "127.0.0.1:0"}, 4096)
	real := b.dev.addresses[0]
	var dialed []string
	var mu sync.Mutex
	a := newSide(t, Options{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		mu.Lock()
		dialed = append(dialed, address)
		mu.Unlock()
		return new(net.Dialer).DialContext(ctx, "tcp", real)
	}}, 4096)
	a.check(a.path.Init(a.qp))
	b.check(b.path.Init(b.qp))
	e := b.endpoint()
	e.Target = "tasks.example:7000"
	a.check(a.path.Connect(a.qp, a.psn, e))
	b.check(b.path.Connect(b.qp, b.psn, a.endpoint()))
	a.post(a.write(b, 1, 0, 64))
	a.expect(1, verbs.StatusOK)
	mu.Lock()
	defer mu.Unlock()
	if len(dialed) != 1 || dialed[0] != e.Target {
		t.Errorf("dialed %q", dialed)
	}
}

// TestNeitherSideCanBeDialed: ToRTR says so.
func TestNeitherSideCanBeDialed(t *testing.T) {
	a, b := newSide(t, Options{}, 4096), newSide(t, Options{}, 4096)
	a.check(a.path.Init(a.qp))
	b.check(b.path.Init(b.qp))
	err := a.path.Connect(a.qp, a.psn, b.endpoint())
	if err == nil || !strings.Contains(err.Error(), "neither this side nor the peer has an address") {
		t.Errorf("%v", err)
	}
}

// TestAnotherProcessAtTheAddress: a virtual address that leads to another process is refused in
// words, and the requests fail.
func TestAnotherProcessAtTheAddress(t *testing.T) {
	a, b, other := newSide(t, Options{}, 4096), newSide(t, Options{ListenOn: "127.0.0.1:0"}, 4096), newSide(t, Options{ListenOn: "127.0.0.1:0"}, 4096)
	a.path.Retry, a.path.Timeout = 0, verbs.TimeoutCode(2*time.Second)
	a.check(a.path.Init(a.qp))
	b.check(b.path.Init(b.qp))
	e := b.endpoint()
	e.Target = other.dev.addresses[0]
	a.check(a.path.Connect(a.qp, a.psn, e))
	b.check(b.path.Connect(b.qp, b.psn, a.endpoint()))
	a.post(a.write(b, 1, 0, 64))
	a.expect(1, verbs.StatusRetryExceeded)
	if err := a.qp.ConnectionError(); err == nil || !strings.Contains(err.Error(), "leads to another process") {
		t.Errorf("the reason is %v", err)
	}
	if s, _ := b.qp.State(); s != verbs.StateRTS {
		t.Errorf("the side that waits for its peer is in %v", s)
	}
}

// TestAcknowledgementOfWhatWentBack: after an RNR nothing counts as sent that goes again.
func TestAcknowledgementOfWhatWentBack(t *testing.T) {
	h := newHandmade(t, 4096)
	v := h.victim
	v.post(v.send(0, 0, 8), v.send(1, 0, 8), v.send(2, 0, 8), v.send(3, 0, 8))
	for range 4 {
		h.read()
	}
	h.acked++
	h.frame(frame.Header{Kind: frame.Ack}, nil)
	v.expect(0, verbs.StatusOK)
	h.frame(frame.Header{Kind: frame.RNR, Number: h.acked, Imm: 31}, nil)
	h.acked += 2
	h.frame(frame.Header{Kind: frame.Ack}, nil)
	v.expect(1, verbs.StatusBadResponse)
	if err := v.qp.ConnectionError(); err == nil || !strings.Contains(err.Error(), "which were sent") {
		t.Errorf("the reason is %v", err)
	}
}

// TestToErrGivesTheMemoryBack: when the completions of a broken queue pair are in, the device
// reads and writes the memory of the work requests no more.
func TestToErrGivesTheMemoryBack(t *testing.T) {
	const n = 32 << 20
	h := newHandmade(t, n)
	v := h.victim
	copy(v.mem, bytes.Repeat([]byte{1}, n))
	v.post(v.send(1, 0, n))
	h.readHeader() // it is on its way
	v.check(v.qp.ToErr())
	v.expect(1, verbs.StatusFlushed)
	later := bytes.Repeat([]byte{2}, n)
	copy(v.mem, later)
	rest, err := io.ReadAll(h.c)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(rest, later[:64]) > 0 {
		t.Error("the memory was read after the completion")
	}
}

// TestClosesWaitForTheReader: closing a window, a region and a queue pair waits while the reader
// or the writer uses memory.
func TestClosesWaitForTheReader(t *testing.T) {
	for name, lock := range map[string]func(c *conn) *sync.Mutex{
		"reader": func(c *conn) *sync.Mutex { return &c.readAccess }, "writer": func(c *conn) *sync.Mutex { return &c.writeAccess },
	} {
		a, b := pair(t, 4096)
		a.post(a.write(b, 1, 0, 8))
		a.expect(1, verbs.StatusOK)
		win, err := b.qp.BindWindow(b.mr, 0, 4096, verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
		b.check(err)
		access := lock(b.qp.conn.Load())
		for what, closeIt := range map[string]func() error{"the window": win.Close, "the queue pair": b.qp.ToErr} {
			access.Lock()
			ended := make(chan error, 1)
			go func() { ended <- closeIt() }()
			for range 2000 {
				runtime.Gosched()
			}
			select {
			case err := <-ended:
				t.Errorf("%s was closed although the %s uses memory", what, name)
				ended <- err
			default:
			}
			access.Unlock()
			b.check(<-ended)
		}
	}
}

// TestResetKeepsTheConnectionUntilItsAccessHasEnded: closing a window beside ToReset waits as well.
func TestResetKeepsTheConnectionUntilItsAccessHasEnded(t *testing.T) {
	a, b := pair(t, 4096)
	a.post(a.write(b, 1, 0, 8))
	a.expect(1, verbs.StatusOK)
	win, err := b.qp.BindWindow(b.mr, 0, 4096, verbs.AccessRemoteWrite)
	b.check(err)
	c := b.qp.conn.Load()
	c.readAccess.Lock()
	reset, closed := make(chan error, 1), make(chan error, 1)
	go func() { reset <- b.qp.ToReset() }()
	for !c.dead.Load() {
		runtime.Gosched()
	}
	go func() { closed <- win.Close() }()
	for range 2000 {
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Error("the window was closed although the reader fills it")
		closed <- err
	default:
	}
	c.readAccess.Unlock()
	b.check(<-closed)
	b.check(<-reset)
}

// TestNothingIsAllocatedPerFrame: neither for short messages nor for long writes and reads.
func TestNothingIsAllocatedPerFrame(t *testing.T) {
	if copiesFirst {
		t.Log("the race detector allocates; counted without it")
		return
	}
	const n = 1 << 20
	a, b := pair(t, n)
	var wcs [16]verbs.WC
	poll := func(s *side) { // for one completion
		for armed := false; ; armed = !armed {
			k, err := s.cq.Poll(wcs[:1])
			s.check(err)
			switch {
			case k == 1 && wcs[0].Status != verbs.StatusOK:
				t.Fatalf("%+v", wcs[0])
			case k == 1:
				return
			case armed:
				s.check(s.cq.Wait(context.Background()))
			default:
				s.check(s.cq.Arm(false))
			}
		}
	}
	recv := []verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{b.sge(0, 64)}}}
	short, long, read := []verbs.SendWR{a.send(2, 0, 64)}, []verbs.SendWR{a.write(b, 3, 0, n)}, []verbs.SendWR{a.write(b, 4, 0, n)}
	read[0].Op = verbs.OpRead
	for what, round := range map[string]func(){
		"a short message": func() {
			b.qp.PostRecv(recv)  //nolint:errcheck // poll finds it
			a.qp.PostSend(short) //nolint:errcheck // likewise
			poll(a)
			poll(b)
		},
		"a long write": func() { a.qp.PostSend(long); poll(a) }, //nolint:errcheck // likewise
		"a long read":  func() { a.qp.PostSend(read); poll(a) }, //nolint:errcheck // likewise
	} {
		for range 40 { // queues grow on use
			round()
		}
		if allocs := testing.AllocsPerRun(100, round); allocs >= 1 {
			t.Errorf("%s allocates %v times", what, allocs)
		}
	}
}
