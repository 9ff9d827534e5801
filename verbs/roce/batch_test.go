package roce

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// joinedMessage is a message of a batch, as the kernel would split it.
type joinedMessage struct {
	ops   []rocewire.Opcode
	cuts  [][]byte
	bytes []byte // the payloads
}

// joinedMessages parses the messages and checks the ICRC of each packet: that of
// segment i covers identification i.
func joinedMessages(t *testing.T, path *rocewire.Path, msgs []udp.Message) (list []joinedMessage) {
	t.Helper()
	for _, m := range msgs {
		var g joinedMessage
		rest := slices.Concat(m.Buffers...)
		if len(rest) > maxSuperPacket {
			t.Errorf("a message has %d bytes", len(rest))
		}
		for i := 0; len(rest) > 0; i++ {
			b := rest[:min(m.Segment, len(rest))]
			rest = rest[len(b):]
			if len(b) < m.Segment && len(rest) > 0 {
				t.Error("a short segment is not the last")
			}
			var h rocewire.Header
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

// fill adds the packets of a machine to a batch.
func (b *batch) fill(path *rocewire.Path, h *peerMachine, limit int) {
	b.reset()
	for b.hasSpace() && h.machine.nextPacket(0, 1<<30, &h.packet) {
		b.add(path, &h.packet, 0, limit)
	}
}

// TestBatches: packets of one length share a message, a shorter one ends it, and one
// that is longer than the next ones goes alone: FIRST, and a full LAST with immediate
// data.
func TestBatches(t *testing.T) {
	const mtu = 1024
	kinds := func(list []joinedMessage) (lens []int) {
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
		p := defaultConnection()
		a, b := join(p)
		for i := range a.mem {
			a.mem[i] = byte(i * 7 >> 2)
		}
		var want []byte
		for i, o := range c.ops {
			a.post(a.to(b, verbs.WRID(i), o.op, i, o.size, 0))
			want = append(want, a.mem[i:i+o.size]...)
		}
		path := rocewire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
		var out batch
		out.fill(&path, a, c.limit)
		list := joinedMessages(t, &path, out.messages(nil))
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
			t.Errorf("%s: different bytes", name)
		}
	}
}

// TestTrafficClassesAreNotJoined: a super-packet has one traffic class.
func TestTrafficClassesAreNotJoined(t *testing.T) {
	path := rocewire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
	var out batch
	out.reset()
	classes := []uint8{2, 2, 106, 2}
	for _, c := range classes {
		out.add(&path, &packet{Header: rocewire.Header{Op: rocewire.Ack}}, c, 64)
	}
	out.add(&path, &packet{Header: rocewire.Header{Op: rocewire.CNP}}, 2, 64)
	var got [][2]int
	for _, m := range out.messages(nil) {
		n := 0
		for _, p := range m.Buffers {
			n += len(p)
		}
		got = append(got, [2]int{int(m.TOS), n / m.Segment})
	}
	if want := [][2]int{{2, 2}, {106, 1}, {2, 1}, {0, 1}}; !slices.Equal(got, want) {
		t.Errorf("classes %v and a CNP are messages of class and packets %v, want %v", classes, got, want)
	}
}

// TestBatchesOverIPv6: without identification, all ICRCs are as for identification 0.
func TestBatchesOverIPv6(t *testing.T) {
	a, b := join(defaultConnection())
	a.post(a.to(b, 1, verbs.OpWrite, 0, 4096, 0))
	path := rocewire.NewPath(netip.MustParseAddrPort("[fd00::1]:7000"), netip.MustParseAddrPort("[fd00::2]:4791"))
	var out batch
	out.fill(&path, a, 64)
	for _, m := range out.messages(nil) {
		rest := slices.Concat(m.Buffers...)
		for len(rest) > 0 {
			n := min(m.Segment, len(rest))
			if !path.Check(rest[:n], 1) {
				t.Error("an ICRC is wrong")
			}
			rest = rest[n:]
		}
	}
}

// TestBatchesAreBounded: batches in packets, super-packets in bytes.
func TestBatchesAreBounded(t *testing.T) {
	p := defaultConnection()
	p.mtu, p.memory = verbs.MTU4096, 1<<20
	a, b := join(p)
	a.post(a.to(b, 1, verbs.OpWrite, 0, 1<<20, 0))
	path := rocewire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
	var out batch
	out.fill(&path, a, 64)
	text := &out.buf[0]
	total := 0
	for _, g := range joinedMessages(t, &path, out.messages(nil)) {
		total += len(g.ops)
		if len(g.ops) > 15 {
			t.Errorf("%d packets of 4 KiB in one", len(g.ops))
		}
	}
	if total != maxBatch {
		t.Errorf("%d packets", total)
	}
	// buf must not move, since buffers point into it. Short payloads take most of
	// it.
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

// TestBatchesAllocateNothing after the first use.
func TestBatchesAllocateNothing(t *testing.T) {
	p := defaultConnection()
	p.memory = 1 << 20
	a, b := join(p)
	path := rocewire.NewPath(netip.MustParseAddrPort("10.0.0.1:7000"), netip.MustParseAddrPort("10.0.0.2:4791"))
	var out batch
	wr := a.to(b, 1, verbs.OpWrite, 0, 40<<10, 0)
	ack := rocewire.Header{Op: rocewire.Ack, Syndrome: rocewire.AckUnlimited}
	a.sent = make([]verbs.WC, 0, 1<<12)
	round := func() {
		a.machine.postSend(&wr)
		out.fill(&path, a, 64)
		out.messages(nil)
		ack.PSN = psnOf(p.psn[0], a.machine.req.highest-1)
		a.machine.handlePacket(0, &ack, nil)
	}
	for range 100 { // the rings and buffers grow
		round()
	}
	if n := testing.AllocsPerRun(100, round); n > 0 && !raceEnabled {
		t.Errorf("%v allocations for a message of 40 packets", n)
	}
}
