package roce

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// grouped is a message of a burst, as the kernel would cut it.
type grouped struct {
	ops   []wire.Opcode
	cuts  [][]byte
	bytes []byte // the payloads
}

// group takes the messages apart, and looks at each packet's ICRC: that of segment i
// is made for identification i.
func group(t *testing.T, path *wire.Path, msgs []udp.Message) (list []grouped) {
	t.Helper()
	for _, m := range msgs {
		var g grouped
		rest := slices.Concat(m.Pieces...)
		if len(rest) > maxSuperPacket {
			t.Errorf("a message has %d bytes", len(rest))
		}
		for i := 0; len(rest) > 0; i++ {
			b := rest[:min(m.Segment, len(rest))]
			rest = rest[len(b):]
			if len(b) < m.Segment && len(rest) > 0 {
				t.Error("a short segment is not the last")
			}
			var h wire.Header
			payload, err := h.Decode(b)
			if err != nil {
				t.Fatalf("segment %d: %v", i, err)
			}
			if id, ok := path.Identify(b); !ok || int(id) != i {
				t.Errorf("segment %d has the ICRC of identification %d, %v", i, id, ok)
			}
			g.ops, g.cuts = append(g.ops, h.Op), append(g.cuts, b)
			g.bytes = append(g.bytes, payload...)
		}
		list = append(list, g)
	}
	return list
}

// fill adds what a half has to send to a burst.
func (b *batch) fill(path *wire.Path, h *half, limit int) {
	b.reset()
	for b.hasSpace() && h.machine.nextPacket(0, 1<<30, &h.packet) {
		b.add(path, &h.packet, 0, limit)
	}
}

// TestBursts: packets of one length share a message, a shorter one ends it, and what
// is longer than those behind it goes alone: FIRST, and a full LAST with immediate
// data.
func TestBursts(t *testing.T) {
	const mtu = 1024
	kinds := func(list []grouped) (lens []int) {
		for _, g := range list {
			lens = append(lens, len(g.ops))
		}
		return lens
	}
	type op struct {
		op   verbs.Opcode
		size int
	}
	for name, c := range map[string]struct {
		ops   []op
		limit int
		want  []int // packets of each message
	}{
		"a write":                       {[]op{{verbs.OpWrite, 10*mtu + 5}}, 64, []int{1, 10}},
		"a full one":                    {[]op{{verbs.OpWrite, 10 * mtu}}, 64, []int{1, 9}},
		"with imm":                      {[]op{{verbs.OpWriteImm, 10*mtu - 4}}, 64, []int{1, 9}},
		"with imm and full":             {[]op{{verbs.OpWriteImm, 10 * mtu}}, 64, []int{1, 8, 1}},
		"with imm and nearly full":      {[]op{{verbs.OpWriteImm, 10*mtu - 3}}, 64, []int{1, 8, 1}},
		"a send":                        {[]op{{verbs.OpSend, 10 * mtu}}, 64, []int{1, 9}},
		"a limit":                       {[]op{{verbs.OpWrite, 10 * mtu}}, 4, []int{1, 4, 4, 1}},
		"no segments":                   {[]op{{verbs.OpWrite, 4 * mtu}}, 1, []int{1, 1, 1, 1}},
		"small ones of one length":      {[]op{{verbs.OpWrite, 8}, {verbs.OpWrite, 8}, {verbs.OpWrite, 5}, {verbs.OpWrite, 8}}, 64, []int{4}},
		"a shorter one ends it":         {[]op{{verbs.OpWrite, 100}, {verbs.OpWrite, 8}, {verbs.OpWrite, 8}}, 64, []int{2, 1}},
		"a longer one begins another":   {[]op{{verbs.OpWrite, 8}, {verbs.OpWrite, 100}}, 64, []int{1, 1}},
		"nothing behind a FIRST":        {[]op{{verbs.OpWrite, mtu + 1}}, 64, []int{1, 1}},
		"nothing but what is empty":     {[]op{{verbs.OpWrite, 0}, {verbs.OpSend, 0}, {verbs.OpSend, 0}}, 64, []int{2, 1}},
		"an ONLY of the largest length": {[]op{{verbs.OpWrite, mtu}, {verbs.OpWrite, mtu}}, 64, []int{2}},
	} {
		p := usual()
		a, b := join(p)
		for i := range a.mem {
			a.mem[i] = byte(i * 7 >> 2)
		}
		var want []byte
		for i, o := range c.ops {
			a.post(a.to(b, verbs.WRID(i), o.op, i, o.size, 0))
			want = append(want, a.mem[i:i+o.size]...)
		}
		path := wire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
		var out batch
		out.fill(&path, a, c.limit)
		list := group(t, &path, out.messages(nil))
		if got := kinds(list); !slices.Equal(got, c.want) {
			t.Errorf("%s: messages of %d packets, want %d", name, got, c.want)
		}
		var got []byte
		for _, g := range list {
			got = append(got, g.bytes...)
			for i, o := range g.ops {
				if o.StartsMessage() && !o.EndsMessage() && len(g.ops) > 1 {
					t.Errorf("%s: %v is packet %d of %d", name, o, i, len(g.ops))
				}
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the bytes are others", name)
		}
	}
}

// TestTrafficClassesGoApart: a super-packet has one.
func TestTrafficClassesGoApart(t *testing.T) {
	path := wire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
	var out batch
	out.reset()
	classes := []uint8{2, 2, 106, 2}
	for _, c := range classes {
		out.add(&path, &packet{Header: wire.Header{Op: wire.Ack}}, c, 64)
	}
	out.add(&path, &packet{Header: wire.Header{Op: wire.CNP}}, 2, 64)
	var got [][2]int
	for _, m := range out.messages(nil) {
		n := 0
		for _, p := range m.Pieces {
			n += len(p)
		}
		got = append(got, [2]int{int(m.TOS), n / m.Segment})
	}
	if want := [][2]int{{2, 2}, {106, 1}, {2, 1}, {0, 1}}; !slices.Equal(got, want) {
		t.Errorf("classes %v and one of congestion are messages of class and packets %v, want %v", classes, got, want)
	}
}

// TestBurstsOverIPv6: there is no identification: all ICRCs are of 0.
func TestBurstsOverIPv6(t *testing.T) {
	a, b := join(usual())
	a.post(a.to(b, 1, verbs.OpWrite, 0, 4096, 0))
	path := wire.NewPath(netip.MustParseAddrPort("[fd00::1]:7000"), netip.MustParseAddrPort("[fd00::2]:4791"))
	var out batch
	out.fill(&path, a, 64)
	for _, m := range out.messages(nil) {
		rest := slices.Concat(m.Pieces...)
		for len(rest) > 0 {
			n := min(m.Segment, len(rest))
			if !path.Check(rest[:n], 1) {
				t.Error("an ICRC is wrong")
			}
			rest = rest[n:]
		}
	}
}

// TestBurstsAreBounded: in packets, and a super-packet in bytes.
func TestBurstsAreBounded(t *testing.T) {
	p := usual()
	p.mtu, p.memory = verbs.MTU4096, 1<<20
	a, b := join(p)
	a.post(a.to(b, 1, verbs.OpWrite, 0, 1<<20, 0))
	path := wire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
	var out batch
	out.fill(&path, a, 64)
	text := &out.buf[0]
	total := 0
	for _, g := range group(t, &path, out.messages(nil)) {
		total += len(g.ops)
		if len(g.ops) > 15 {
			t.Errorf("%d packets of 4 KiB in one", len(g.ops))
		}
	}
	if total != maxBatch {
		t.Errorf("%d packets", total)
	}
	// Its memory stays where it is: pieces point into it. The most is taken by short payloads.
	p.mtu = verbs.MTU256
	a, b = join(p)
	for i := range 64 {
		a.post(a.to(b, verbs.WRID(i), verbs.OpWriteImm, 0, 253, 0))
		b.recv(verbs.WRID(i), 0, 0)
	}
	if out.fill(&path, a, 64); &out.buf[0] != text || out.packets != maxBatch {
		t.Errorf("it moved, with %d packets", out.packets)
	}
}

// TestBurstsAllocateNothing once they have been used.
func TestBurstsAllocateNothing(t *testing.T) {
	p := usual()
	p.memory = 1 << 20
	a, b := join(p)
	path := wire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
	var out batch
	wr := a.to(b, 1, verbs.OpWrite, 0, 40<<10, 0)
	ack := wire.Header{Op: wire.Ack, Syndrome: wire.AckUnlimited}
	a.sent = make([]verbs.WC, 0, 1<<12)
	round := func() {
		a.machine.postSend(&wr)
		out.fill(&path, a, 64)
		out.messages(nil)
		ack.PSN = psnOf(p.psn[0], a.machine.req.highest-1)
		a.machine.handlePacket(0, &ack, nil)
	}
	for range 100 { // the rings and pieces grow
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 0 && !raceEnabled {
		t.Errorf("%v allocations for a message of 40 packets", n)
	}
}

// kernelPair are two ends of which the first takes the second for a kernel's device.
func kernelPair(t *testing.T, f *fabric, size int) (x, y *tip) {
	t.Helper()
	x, y = f.tips(t, size)
	joinTips(x, y, func(_ *verbs.Path, peer *verbs.Endpoint) {
		if peer.QPN == y.qp.QPN() {
			peer.UDP = verbs.UDPEndpoint{}
		}
	})
	return x, y
}

// longest counts the packets of the super-packets of an end.
func (f *fabric) longest(from *tip) func() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := 0
	f.see = func(sender, _ netip.AddrPort, segment int, _ []byte) {
		if sender.Addr() == from.addr {
			most = max(most, segment+1)
		}
	}
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := most
		most = 0
		return n
	}
}

// trust is what an end's flow thinks of its peer.
func (x *tip) trust() superPacketProbe {
	q, _ := x.inner()
	f := q.flow.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probe
}

// moves writes the first half of x's memory over the second one of y's.
func moves(x, y *tip) {
	x.t.Helper()
	half := len(x.mem) / 2
	x.post(x.to(y, 1, verbs.OpWrite, 0, half, half))
	x.ends(1, verbs.StatusOK)
}

// TestTrustOfAKernel: one super-packet of two segments is sent, and longer ones only
// when it was acknowledged.
func TestTrustOfAKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = 10 * time.Millisecond // so that the window is sent before an answer comes
		x, y := kernelPair(t, f, 1<<20)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		synctest.Wait()
		if n := longest(); n != 2 || x.trust().state != probeSent {
			t.Errorf("before anything is acknowledged %d segments are sent, state %d", n, x.trust().state)
		}
		x.ends(1, verbs.StatusOK)
		if s := x.trust().state; s != probeSucceeded {
			t.Errorf("the probe is acknowledged, and the state is %d", s)
		}
		moves(x, y)
		if n := longest(); n < 10 {
			t.Errorf("the longest super-packet has %d segments", n)
		}
	})
}

// TestTrustOfAKernelThatDropsSegments: after trustTests probes packets go alone, and
// everything arrives.
func TestTrustOfAKernelThatDropsSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 1<<18)
		for i := range x.mem {
			x.mem[i] = byte(i * 3 >> 1)
		}
		longest := f.longest(x)
		for range maxLostProbes {
			moves(x, y)
		}
		if n := longest(); n != 2 {
			t.Errorf("a probe has %d segments", n)
		}
		if tr := x.trust(); tr.state != probeFailed || tr.lost != maxLostProbes {
			t.Errorf("the state is %d after %d tests", tr.state, tr.lost)
		}
		moves(x, y)
		if n := longest(); n != 1 {
			t.Errorf("a distrusted peer gets %d segments", n)
		}
		half := len(x.mem) / 2
		synctest.Wait()
		if !bytes.Equal(x.mem[:half], y.mem[half:]) {
			t.Error("the bytes are others")
		}
	})
}

// TestTrustSurvivesALostProbe: packets are lost for other reasons, too.
func TestTrustSurvivesALostProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 1<<18)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		time.Sleep(f.latency / 2)
		f.mu.Lock()
		f.firstOnly = false
		f.mu.Unlock()
		x.ends(1, verbs.StatusOK)
		moves(x, y)
		if tr := x.trust(); tr.state != probeSucceeded || tr.lost == 0 || longest() < 10 {
			t.Errorf("the state is %d after %d tests", tr.state, tr.lost)
		}
	})
}

// TestResponsesProveNothing: nobody acknowledges an answer, so those to READs go alone
// until a request has proved that super-packets arrive.
func TestResponsesProveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 1<<18)
		longest := f.longest(x)
		for range 2 {
			y.post(y.to(x, 1, verbs.OpRead, 0, 1<<17, 0))
			y.ends(1, verbs.StatusOK)
		}
		if n := longest(); n != 1 || x.trust().state != probeNone {
			t.Errorf("answers have %d segments, and the state is %d", n, x.trust().state)
		}
		for range maxLostProbes {
			moves(x, y)
		}
		if n := longest(); n != 2 || x.trust().state != probeFailed {
			t.Errorf("probes have %d segments, and the state is %d", n, x.trust().state)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := kernelPair(t, f, 1<<18)
		moves(x, y)
		longest := f.longest(x)
		y.post(y.to(x, 1, verbs.OpRead, 0, 1<<17, 0))
		y.ends(1, verbs.StatusOK)
		if n := longest(); n < 10 {
			t.Errorf("once it is trusted the longest answer has %d segments", n)
		}
	})
}

// TestProbeOfWhoBreaksProvesNothing: what is flushed was not acknowledged.
func TestProbeOfWhoBreaksProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := kernelPair(t, f, 64<<10)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		if s := x.trust().state; s != probeSent {
			t.Fatalf("state %d", s)
		}
		if err := x.qp.ToErr(); err != nil {
			t.Fatal(err)
		}
		if s := x.trust().state; s != probeNone {
			t.Errorf("a probe that was never acknowledged makes it %d, want %d", s, probeNone)
		}
	})
}

// TestWhatIsSentAgainProvesNothing: of a probe that came too early for its receiver
// nothing is known when it has arrived, packet by packet, later.
func TestWhatIsSentAgainProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 4096)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpSend, 0, 8, 0), x.to(y, 2, verbs.OpSend, 0, 8, 0))
		time.Sleep(3 * f.latency) // y has said that it has no receive
		if n := longest(); n != 2 {
			t.Errorf("the probe has %d segments", n)
		}
		y.recv(1, 0, 8)
		y.recv(2, 0, 8)
		x.ends(1, verbs.StatusOK)
		x.ends(2, verbs.StatusOK)
		if tr := x.trust(); tr.state != probeNone || tr.lost != 0 {
			t.Errorf("the state is %d after %d tests", tr.state, tr.lost)
		}
	})
}

// TestTrustOfOneOfItsKind: a roce device is trusted from the first packet on.
func TestTrustOfOneOfItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = 10 * time.Millisecond
		x, y := f.tips(t, 1<<18)
		joinTips(x, y, nil)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		synctest.Wait()
		if n := longest(); n < 10 {
			t.Errorf("the longest super-packet has %d segments", n)
		}
		x.ends(1, verbs.StatusOK)
	})
}
