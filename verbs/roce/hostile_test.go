package roce

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// seal sets the ICRC of a packet for that path.
func seal(from, to netip.AddrPort, b []byte) []byte {
	path := rocewire.NewPath(from, to)
	crc := rocewire.UpdateHeader(path.Begin(len(b)), b[:rocewire.BTHLen])
	end := len(b) - rocewire.ICRCLen
	rocewire.PutICRC(b[end:], rocewire.Update(crc, b[rocewire.BTHLen:end]))
	return b
}

// packetOf builds a whole packet.
func packetOf(from, to netip.AddrPort, h rocewire.Header, payload ...byte) []byte {
	if h.PKey == 0 {
		h.PKey = rocewire.DefaultPKey
	}
	h.Pad = rocewire.PadOf(len(payload))
	b := append(h.Append(nil), payload...)
	b = append(b, zeros[:h.Pad]...)
	return seal(from, to, append(b, zeros[:rocewire.ICRCLen]...))
}

// inner returns the queue pair and the endpoint of an end.
func (x *testEnd) inner() (*qp, *endpoint) {
	q := x.qp.(*qp) //nolint:errcheck // always a *qp
	return q, q.endpoint
}

// sockets returns where an end's packets come from and where it receives.
func (x *testEnd) sockets() (from, at netip.AddrPort) {
	q, s := x.inner()
	return s.senders[q.sender].Addr(), s.receiver.Addr()
}

// TestDrops: each reason to drop a packet has its counter. A dropped packet causes no
// response and no change of the queue pair.
func TestDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := f.pair(t, 4096)
		joinEnds(x, y, nil)
		from, _ := x.sockets()
		q, s := y.inner()
		_, at := y.sockets()
		idle := must(y.pd.CreateQP(verbs.QPConfig{SendCQ: y.cq, RecvCQ: y.cq}))(t)
		if err := y.path().Init(idle); err != nil {
			t.Fatal(err)
		}
		good := rocewire.Header{Op: rocewire.WriteOnly, DestQP: q.number, PSN: x.psn, Addr: y.mr.Addr(), RKey: y.mr.RKey(), Length: 1, AckReq: true}
		with := func(change func(*rocewire.Header)) rocewire.Header { h := good; change(&h); return h }
		cut := func(b []byte, n int) []byte { return b[:n] }
		spoil := func(b []byte, i int) []byte { b[i] ^= 1; return b }
		otherPort := netip.AddrPortFrom(from.Addr(), from.Port()+1)
		otherAddr := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), from.Port())
		sent := 0
		arrived := func() { time.Sleep(time.Millisecond); synctest.Wait() }
		f.see = func(from, _ netip.AddrPort, _ int, _ []byte) {
			if from.Addr() == y.addr {
				sent++
			}
		}
		for name, c := range map[string]struct {
			from    netip.AddrPort
			packet  []byte
			counter *atomic.Uint64
		}{
			"empty":               {from, nil, nil},
			"shorter than a BTH":  {from, make([]byte, 11), &s.drops.malformed},
			"no ICRC":             {from, cut(packetOf(from, at, good, 1), 12), &s.drops.malformed},
			"a cut header":        {from, cut(packetOf(from, at, good, 1), 20), &s.drops.malformed},
			"not a multiple of 4": {from, cut(packetOf(from, at, good, 1), 33), &s.drops.malformed},
			"another version":     {from, seal(from, at, spoil(packetOf(from, at, good, 1), 1)), &s.drops.malformed},
			"an unknown opcode":   {from, packetOf(from, at, with(func(h *rocewire.Header) { h.Op = 0x15 })), &s.drops.malformed},
			"an opcode of UD":     {from, packetOf(from, at, with(func(h *rocewire.Header) { h.Op = 0x64 })), &s.drops.malformed},
			"another partition":   {from, packetOf(from, at, with(func(h *rocewire.Header) { h.PKey = 0x8001 }), 1), &s.drops.malformed},
			"no queue pair":       {from, packetOf(from, at, with(func(h *rocewire.Header) { h.DestQP ^= 1 << 20 }), 1), &s.drops.unknown},
			"queue pair 0":        {from, packetOf(from, at, with(func(h *rocewire.Header) { h.DestQP = 0 }), 1), &s.drops.unknown},
			"another port":        {otherPort, packetOf(otherPort, at, good, 1), &s.drops.source},
			"another address":     {otherAddr, packetOf(otherAddr, at, good, 1), &s.drops.source},
			"a damaged payload":   {from, spoil(packetOf(from, at, good, 1), 28), &s.drops.damaged},
			"a damaged header":    {from, spoil(packetOf(from, at, good, 1), 20), &s.drops.damaged},
			"a damaged ICRC":      {from, spoil(packetOf(from, at, good, 1), 33), &s.drops.damaged},
			"another way's ICRC":  {from, packetOf(otherPort, at, good, 1), &s.drops.damaged},
			"not yet connected":   {from, packetOf(from, at, with(func(h *rocewire.Header) { h.DestQP = idle.QPN() }), 1), &s.drops.closed},
		} {
			all := func() (n uint64) {
				for _, c := range []*atomic.Uint64{&s.drops.malformed, &s.drops.unknown, &s.drops.source, &s.drops.damaged, &s.drops.closed} {
					n += c.Load()
				}
				return n
			}
			before, own := all(), uint64(0)
			if c.counter != nil {
				own = c.counter.Load()
			}
			f.inject(c.from, at, c.packet)
			arrived()
			if c.counter != nil && (c.counter.Load() != own+1 || all() != before+1) {
				t.Errorf("%s: its counter goes from %d to %d, all from %d to %d", name, own, c.counter.Load(), before, all())
			}
			if state := must(y.qp.State())(t); sent > 0 || y.mem[0] != 0 || state != verbs.StateRTS {
				t.Fatalf("%s: %d packets are sent, in %v, memory %d", name, sent, state, y.mem[0])
			}
		}
		// The right packet is executed; so are two of a datagram with a bad one between
		// them.
		f.inject(from, at, packetOf(from, at, good, 1))
		arrived()
		if sent != 1 || y.mem[0] != 1 {
			t.Fatalf("the right packet: %d responses, memory %d", sent, y.mem[0])
		}
		one := packetOf(from, at, with(func(h *rocewire.Header) { h.PSN++ }), 2)
		two := packetOf(from, at, with(func(h *rocewire.Header) { h.PSN += 2; h.Addr++ }), 3)
		bad := packetOf(from, at, with(func(h *rocewire.Header) { h.DestQP = 1 }), 3)
		f.mu.Lock()
		f.receivers[at].deliverLocked(udp.Datagram{Data: bytes.Join([][]byte{one, bad, two}, nil), Segment: len(one), From: from})
		f.mu.Unlock()
		arrived()
		if y.mem[0] != 2 || y.mem[1] != 3 {
			t.Errorf("memory is %v", y.mem[:2])
		}
		if err := y.qp.ToErr(); err != nil {
			t.Fatal(err)
		}
		closed := s.drops.closed.Load()
		f.inject(from, at, packetOf(from, at, with(func(h *rocewire.Header) { h.PSN += 3 }), 9))
		arrived()
		if s.drops.closed.Load() != closed+1 || y.mem[0] != 2 {
			t.Errorf("in ERR it is taken: memory %d", y.mem[0])
		}
		if err := idle.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestKernelsMayUseAnyPort: a peer that named no source ports, as kernels and NICs, may
// send from any port, but from its address only.
func TestKernelsMayUseAnyPort(t *testing.T) {
	src := origin{remote: remoteOf(netip.MustParseAddr("10.0.0.1"), verbs.UDPEndpoint{}), anyPort: true}
	if !src.allows(netip.MustParseAddrPort("10.0.0.1:49153")) || src.allows(netip.MustParseAddrPort("10.0.0.2:49153")) {
		t.Error("the address does not count, or the port does")
	}
	if src.userSpace || src.at.Port() != rocewire.Port {
		t.Errorf("it is parsed as %+v", src.remote)
	}
}

// TestPeerWithoutSourcePortsIsRejected: between two devices of this package, packets
// must come from the ports that the bootstrap named. A peer with a receive port that
// names no source ports cannot be connected.
func TestPeerWithoutSourcePortsIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := newFabric().pair(t, 64)
		for _, port := range []uint16{rocewire.Port, 5000} {
			peer := y.endpoint()
			peer.UDP.Port, peer.UDP.Sources = port, nil
			if err := x.path().Connect(x.qp, x.psn, peer); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("port %d: %v", port, err)
			}
			src := (*endpoint)(nil).originOf(remoteOf(y.addr, peer.UDP), nil)
			if src.allows(netip.AddrPortFrom(y.addr, 9)) {
				t.Errorf("port %d: packets from any port are accepted", port)
			}
		}
	})
}

// TestDroppedPacketsAllocateNothing, whatever the packet is.
func TestDroppedPacketsAllocateNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := f.pair(t, 4096)
		joinEnds(x, y, nil)
		from, _ := x.sockets()
		q, s := y.inner()
		_, at := y.sockets()
		synctest.Wait() // the endpoint's goroutine is idle, so the test may use its fields
		good := rocewire.Header{Op: rocewire.WriteOnly, DestQP: q.number, PSN: x.psn, Length: 1}
		ahead, other, bad := good, good, packetOf(from, at, good, 1)
		ahead.PSN = psnOf(ahead.PSN, 1<<20)
		other.DestQP++
		bad[30] ^= 1
		for name, d := range map[string]udp.Datagram{
			"short":              {From: from, Data: bad[:10]},
			"unknown queue pair": {From: from, Data: packetOf(from, at, other, 1)},
			"wrong source":       {From: netip.AddrPortFrom(from.Addr(), 9), Data: packetOf(from, at, good, 1)},
			"damaged":            {From: from, Data: bad},
			"far ahead":          {From: from, Data: packetOf(from, at, ahead, 1)},
		} {
			d.Segment = len(d.Data)
			s.handleDatagram(&d) // the first packet after a gap causes a NAK
			if n := testing.AllocsPerRun(100, func() { s.handleDatagram(&d) }); n > 0 && !raceEnabled {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	})
}

// packetForger builds hostile packets for a live pair.
type packetForger struct {
	t      *testing.T
	f      *fabric
	ends   [2]*testEnd
	random *rand.Rand

	mu   sync.Mutex
	seen [2][][]byte // packets that an end has sent
}

const seenPackets = 64

func (g *packetForger) observe(from, _ netip.AddrPort, _ int, b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range g.ends {
		if from.Addr() == e.addr {
			if len(g.seen[i]) == seenPackets {
				g.seen[i] = append(g.seen[i][:0], g.seen[i][1:]...)
			}
			g.seen[i] = append(g.seen[i], bytes.Clone(b))
		}
	}
}

// sample returns a packet that an end has sent; nil before the first.
func (g *packetForger) sample(end int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen[end]) == 0 {
		return nil
	}
	return bytes.Clone(g.seen[end][g.random.IntN(len(g.seen[end]))])
}

// mutate changes some bytes.
func (g *packetForger) mutate(b []byte) []byte {
	for range 1 + g.random.IntN(4) {
		i := g.random.IntN(len(b))
		if g.random.IntN(2) == 0 {
			i = g.random.IntN(min(len(b), 32)) // in the headers
		}
		b[i] = byte(g.random.Uint32())
	}
	switch g.random.IntN(8) {
	case 0:
		b = b[:g.random.IntN(len(b)/4+1)*4]
	case 1:
		b = append(b, make([]byte, 4*g.random.IntN(8))...)
	}
	return b
}

// The kinds of forged packets. Only the last one may affect the transfer.
const (
	forgeNoise     = iota // random bytes
	forgeAgain            // a replayed packet
	forgeElsewhere        // a changed packet with a valid ICRC from another source
	forgeBehind           // a request with a PSN that is not expected
	forgeStranger         // a changed packet for another queue pair
	forgeInside           // a changed packet from the right source: the queue pair may fail
	forgeKinds
)

// forge sends one packet, as if from one end to the other.
func (g *packetForger) forge(kind, end int) {
	from, _ := g.ends[end].sockets()
	q, _ := g.ends[1-end].inner()
	_, at := g.ends[1-end].sockets()
	b := g.sample(end)
	if b == nil {
		return
	}
	switch kind {
	case forgeNoise:
		b = make([]byte, g.random.IntN(100))
		for i := range b {
			b[i] = byte(g.random.Uint32())
		}
	case forgeAgain:
	case forgeElsewhere, forgeStranger, forgeInside:
		b = g.mutate(b)
		if kind == forgeElsewhere {
			if g.random.IntN(2) == 0 {
				from = netip.AddrPortFrom(from.Addr(), from.Port()+1+uint16(g.random.IntN(1000)))
			} else {
				from = netip.AddrPortFrom(netip.MustParseAddr("10.0.0.7"), from.Port())
			}
		}
		if len(b) < rocewire.MinPacketLen {
			break
		}
		if kind == forgeStranger {
			b[5] = byte(q.number>>16) ^ byte(1+g.random.IntN(255))
		}
		seal(from, at, b)
	case forgeBehind:
		var h rocewire.Header
		payload, err := h.Decode(b)
		if err != nil || !h.Op.Request() {
			return
		}
		for i := range payload {
			payload[i] ^= 0x55
		}
		q.mu.Lock()
		h.PSN = psnOf(q.machine.resp.first, q.machine.resp.expected)
		q.mu.Unlock()
		if g.random.IntN(2) == 0 {
			h.PSN = psnOf(h.PSN, 1<<22+uint64(g.random.IntN(1<<21)))
		} else {
			h.PSN = psnOf(h.PSN, psnMask-uint64(g.random.IntN(1000)))
		}
		b = packetOf(from, at, h, bytes.Clone(payload)...)
	}
	g.f.inject(from, at, b)
}

// lineCounter counts writes.
type lineCounter struct{ atomic.Int64 }

func (l *lineCounter) Write(b []byte) (int, error) { l.Add(1); return len(b), nil }

// FuzzEndpoint: a pair of devices transfers in both directions while an attacker sends
// what the program says, two bytes for each packet: its kind and the pause before it.
// With an odd seed the attacker also sends from the right source with the right ICRC.
// Otherwise the transfer is not affected. If it is, the connection may fail, but
// nothing is written where the peer has no access.
func FuzzEndpoint(f *testing.F) {
	for kind := range byte(forgeKinds) {
		program := []byte{kind}
		for i := range byte(60) {
			program = append(program, kind, i%7)
		}
		f.Add(uint64(kind), program)
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	for seed := range uint64(20) {
		program := make([]byte, 120)
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		f.Add(seed, program)
	}
	f.Fuzz(func(t *testing.T, seed uint64, program []byte) {
		synctest.Test(t, func(t *testing.T) { attack(t, seed, program[:min(len(program), 400)]) })
	})
}

const (
	attackedSize   = 1 << 18
	attackedChunks = 24
	guardSize      = 4096
)

func attack(t *testing.T, seed uint64, program []byte) {
	f := newFabric()
	var logged lineCounter
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	var ends [2]*testEnd
	for i, addr := range []string{hostA, hostB} {
		p := newProvider(Options{Logger: logger}, f.host(addr))
		ends[i] = newTestEnd(t, p, "roce-eth0", netip.MustParseAddr(addr), attackedSize)
	}
	x, y := ends[0], ends[1]
	joinEnds(x, y, nil)
	start := logged.Load()
	g := &packetForger{t: t, f: f, ends: ends, random: rand.New(rand.NewPCG(seed, 3))} //nolint:gosec // a test's
	f.see = g.observe
	inside := seed%2 == 1

	// A region without remote access, next to one with it.
	guard := make([]byte, guardSize)
	guarded := must(y.pd.RegisterMemory(guard, verbs.AccessLocalWrite|verbs.AccessRemoteRead))(t)
	defer func() {
		if err := guarded.Close(); err != nil {
			t.Error(err)
		}
	}()

	// The first half of each memory is the source, the second half the target.
	const half = attackedSize / 2
	for i := range half {
		x.mem[i], y.mem[i] = byte(i*13>>4), byte(i*7>>3)
	}
	sources := [2][]byte{bytes.Clone(x.mem[:half]), bytes.Clone(y.mem[:half])}
	chunk := func(k int) (off, n int) { return k * (half / attackedChunks), half/attackedChunks - 3*k }

	var attackers sync.WaitGroup
	attackers.Go(func() {
		for i := 0; i+1 < len(program); i += 2 {
			time.Sleep(time.Duration(program[i+1]) * time.Microsecond)
			kind := int(program[i]) % forgeKinds
			if kind == forgeInside && !inside {
				continue
			}
			g.forge(kind, int(program[i]/forgeKinds)%2)
		}
	})
	// x writes to y and reads from it, alternately, each chunk; y sends to x.
	for k := range attackedChunks {
		off, _ := chunk(k)
		x.recv(verbs.WRID(1000+k), off+half, 64) // into the chunk's first bytes, which a READ overwrites later
	}
	done := 0
	ok := true
	for k := 0; k < attackedChunks && ok; k++ {
		off, n := chunk(k)
		x.post(x.to(y, verbs.WRID(2*k), verbs.OpWrite, off, n, off+half))
		y.post(verbs.SendWR{ID: verbs.WRID(k), Op: verbs.OpSend, Signaled: true, Inline: sources[1][off : off+64]})
		for range 2 {
			wc := x.wait()
			if ok = ok && wc.Status == verbs.StatusOK; !ok {
				break
			}
			if wc.Op == verbs.WCWrite && !bytes.Equal(y.mem[off+half:off+half+n], sources[0][off:off+n]) && !inside {
				t.Fatalf("chunk %d was written and has other bytes", k)
			}
			if wc.Op == verbs.WCRecv && !bytes.Equal(x.mem[off+half:off+half+64], sources[1][off:off+64]) && !inside {
				t.Fatalf("message %d has other bytes", k)
			}
		}
		if !ok {
			break
		}
		done++
		x.post(x.to(y, verbs.WRID(2*k+1), verbs.OpRead, off+half, n, off))
		wc := x.wait()
		if ok = wc.Status == verbs.StatusOK; ok && !bytes.Equal(x.mem[off+half:off+half+n], sources[1][off:off+n]) && !inside {
			t.Fatalf("chunk %d was read and has other bytes", k)
		}
	}
	attackers.Wait()
	if !inside && (!ok || done != attackedChunks) {
		t.Errorf("the transfer ended after %d chunks", done)
	}
	if !bytes.Equal(x.mem[:half], sources[0]) || !bytes.Equal(y.mem[:half], sources[1]) {
		if !inside {
			t.Error("a source changed")
		}
	}
	if !bytes.Equal(guard, make([]byte, guardSize)) {
		t.Error("a region without remote access was written")
	}
	if n := logged.Load() - start; n > 10 {
		t.Errorf("%d lines are logged", n)
	}
}
