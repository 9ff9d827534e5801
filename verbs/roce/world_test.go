package roce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// expected is the expected result of a machine.
type expected struct {
	mem      []byte
	sent     []verbs.WC
	received []verbs.WC
}

// worldParams are the random parameters of a network.
type worldParams struct {
	random               *rand.Rand
	loss, again, corrupt float64
	spread               time.Duration // of the delays; reorders packets
	late                 time.Duration // until when receives are posted
	breaks               bool
}

func randomParams(r *rand.Rand) worldParams {
	rate := func(top float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return r.Float64() * top
	}
	w := worldParams{random: r, loss: rate(0.15), again: rate(0.2), corrupt: rate(0.05), breaks: r.IntN(8) == 0}
	if r.IntN(2) == 0 {
		w.spread = time.Duration(r.IntN(200)) * time.Microsecond
	}
	if r.IntN(2) == 0 {
		w.late = time.Duration(r.IntN(20)) * time.Millisecond
	}
	return w
}

// randomConnection returns random parameters of a connection.
func randomConnection(r *rand.Rand) connection {
	p := connection{
		mtu: []verbs.MTU{256, 512, 1024, 2048, 4096}[r.IntN(5)], maxReadAtomic: uint8(1 + r.IntN(maxReadAtomic)),
		timeout: 20, retry: 7, rnr: rnrInfinite, rnrTimer: uint8(1 + r.IntN(16)), memory: worldMemory,
	}
	for i := range p.psn {
		p.psn[i] = verbs.PSN(r.Uint32() & psnMask)
		if r.IntN(3) == 0 {
			p.psn[i] = psnMask - verbs.PSN(r.IntN(20)) // so that PSNs wrap
		}
	}
	return p
}

// plan posts work requests of all kinds from one machine to its peer at random times,
// and returns the expected results.
func (n *network) plan(w worldParams, p connection, from int, mine, theirs *expected) {
	r := w.random
	h, peer := n.machines[from], n.machines[1-from]
	mtu := int(p.mtu)
	sizes := []int{0, 1, 3, 7, 8, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 2*mtu + 5, 4096, 4097, 9000}
	messages := 0
	var wrs []verbs.SendWR
	for i := range 1 + r.IntN(worldSends) {
		size := sizes[r.IntN(len(sizes))]
		op := verbs.Opcode(r.IntN(int(verbs.OpFetchAdd) + 1))
		sink := partSink + i*worldSlot
		at := r.IntN(1<<16 - size) // offset in the source
		wr := h.to(peer, verbs.WRID(i), op, partSource+at, size, partTarget)
		wr.Signaled, wr.Fence, wr.Solicited = r.IntN(3) > 0, r.IntN(4) == 0, r.IntN(2) == 0
		wr.Imm = r.Uint32()
		body := h.mem[partSource+at : partSource+at+size]
		if size > 4 && r.IntN(3) == 0 { // in two parts
			cut := 1 + r.IntN(size-1)
			wr.SGL = []verbs.SGE{h.sge(partSource+at, cut), {}, h.sge(partSource+at+cut, size-cut)}
		}
		if size <= maxInline && op < verbs.OpRead && r.IntN(3) == 0 {
			wr.SGL, wr.Inline = nil, bytes.Clone(body)
			if wr.Inline == nil {
				wr.Inline = []byte{}
			}
		}
		receive := verbs.WC{ID: verbs.WRID(messages), Imm: wr.Imm, HasImm: true, Op: verbs.WCRecv, Len: uint32(size)}
		switch op {
		case verbs.OpSend, verbs.OpSendImm:
			if op == verbs.OpSend {
				receive.Imm, receive.HasImm = 0, false
			}
			copy(theirs.mem[partInbox+messages*worldSlot:], body)
		case verbs.OpWrite, verbs.OpWriteImm:
			to := r.IntN(1<<16 - size)
			wr.RemoteAddr += uint64(to)
			copy(theirs.mem[partTarget+to:], body)
			receive.Op = verbs.WCRecvWrite
		case verbs.OpRead:
			from := r.IntN(1<<16 - size)
			wr.RemoteAddr = peer.mr.Addr() + uint64(partSource+from)
			for k := range wr.SGL { // into the sink, in as many parts
				wr.SGL[k].Addr += uint64(sink - partSource - at)
			}
			copy(mine.mem[sink:], peer.mem[partSource+from:partSource+from+size])
		default:
			counter := partCounters + 8*r.IntN(4)
			wr.RemoteAddr = peer.mr.Addr() + uint64(counter)
			wr.SGL = []verbs.SGE{h.sge(sink, 8)}
			was := theirs.mem[counter : counter+8]
			copy(mine.mem[sink:], was)
			wr.Add, wr.Swap = r.Uint64(), r.Uint64()
			old := native(was)
			if wr.Compare = r.Uint64(); r.IntN(2) == 0 {
				wr.Compare = old
			}
			if op == verbs.OpFetchAdd {
				putNative(was, old+wr.Add)
			} else if old == wr.Compare {
				putNative(was, wr.Swap)
			}
		}
		if op == verbs.OpSend || op == verbs.OpSendImm || op == verbs.OpWriteImm {
			theirs.received = append(theirs.received, receive)
			messages++
		}
		if wr.Signaled {
			mine.sent = append(mine.sent, verbs.WC{ID: wr.ID, Op: completionOf(op)})
		}
		wrs = append(wrs, wr)
	}
	// Some are posted together, in order.
	at := time.Duration(0)
	for len(wrs) > 0 {
		k := 1 + r.IntN(min(len(wrs), 8))
		some := wrs[:k]
		wrs = wrs[k:]
		at += time.Duration(r.IntN(200)) * time.Microsecond
		n.after(at, func() { h.post(some...); n.kick(from) })
	}
	for i := range messages {
		n.after(w.late*time.Duration(i)/time.Duration(messages), func() {
			peer.recv(verbs.WRID(i), partInbox+i*worldSlot, worldSlot)
		})
	}
	n.after(time.Duration(r.IntN(2000))*time.Microsecond, func() { h.window = uint64(1 + r.IntN(200<<10)) })
}

// applyFaults sets up the network with the faults of w.
func (n *network) applyFaults(w worldParams) {
	r := w.random
	n.carry = func(from int, b []byte) {
		for again := true; again; again = r.Float64() < w.again {
			if r.Float64() < w.loss {
				continue
			}
			if r.Float64() < w.corrupt {
				if r.IntN(2) == 0 {
					continue // the ICRC detects it
				}
				b = bytes.Clone(b)
				b[4] ^= byte(1 + r.IntN(255)) // not covered by the ICRC: FECN, BECN, reserved
			}
			d := n.delay
			if w.spread > 0 {
				d += time.Duration(r.Int64N(int64(w.spread)))
			}
			n.deliver(from, d, b)
		}
	}
	if r.IntN(2) == 0 {
		n.batch = func() time.Duration { return time.Duration(r.IntN(30)) * time.Microsecond }
	}
}

// TestRandomWorlds: whatever the network does, every work request completes once and in
// order, memory is as if each was executed once and in order, and nothing else changes.
func TestRandomWorlds(t *testing.T) {
	worlds := 600
	if testing.Short() || raceEnabled {
		worlds = 100
	}
	for seed := range worlds {
		if !t.Run(fmt.Sprint("Seed", seed), func(t *testing.T) { runWorld(t, uint64(seed)) }) {
			return
		}
	}
}

// FuzzWorlds searches for seeds that fail.
func FuzzWorlds(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(runWorld)
}

func runWorld(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
	w, p := randomParams(r), randomConnection(r)
	n, a, b := connect(t, p)
	var want [2]expected
	for i, h := range n.machines {
		rand.NewChaCha8([32]byte{byte(seed), byte(i)}).Read(h.mem) //nolint:errcheck // never fails
		want[i].mem = bytes.Clone(h.mem)
	}
	n.plan(w, p, 0, &want[0], &want[1])
	n.plan(w, p, 1, &want[1], &want[0])
	n.applyFaults(w)
	if w.breaks {
		n.after(time.Duration(r.IntN(3000))*time.Microsecond, func() { a.machine.enterError() })
	}
	n.run(time.Hour)
	if len(n.todo) > 0 {
		t.Fatal("it does not become idle")
	}
	if w.breaks {
		n.checkError(want)
		return
	}
	for i, h := range [2]*peerMachine{a, b} {
		if h.machine.state != verbs.StateRTS {
			t.Fatalf("%d broke: sent %q, received %q", i, short(h.sent), short(h.received))
		}
		if !slices.Equal(h.sent, want[i].sent) {
			t.Errorf("%d sent %q, want %q", i, short(h.sent), short(want[i].sent))
		}
		if !slices.Equal(h.received, want[i].received) {
			t.Errorf("%d received %q, want %q", i, short(h.received), short(want[i].received))
		}
		if !bytes.Equal(h.mem, want[i].mem) {
			t.Errorf("memory of %d differs at byte %#x", i, differsAt(h.mem, want[i].mem))
		}
		if req := &h.machine.req; req.flight != 0 || req.completed != req.posted || req.acked != req.postedPackets || req.numOutstanding != 0 {
			t.Errorf("left in the requester of %d: %+v", i, req)
		}
	}
}

// checkError checks a world in which the first machine failed: posted work requests
// complete with success, then at most one with an error, then all others flushed; each
// once and in order.
func (n *network) checkError(want [2]expected) {
	n.t.Helper()
	for i, h := range n.machines {
		if h.machine.req.completed != h.machine.req.posted {
			if i == 1 && h.machine.state == verbs.StateRTS {
				n.t.Error("the peer waits forever")
			}
			continue
		}
		last, broken := -1, false
		for _, wc := range h.sent {
			if int(wc.ID) <= last {
				n.t.Errorf("%d: work request %d ends after %d", i, wc.ID, last)
			}
			last = int(wc.ID)
			if broken && wc.Status != verbs.StatusFlushed {
				n.t.Errorf("%d: work request %d ends with %v behind an error", i, wc.ID, wc.Status)
			}
			broken = wc.Status != verbs.StatusOK
		}
		for k, wc := range h.received {
			if wc.Status == verbs.StatusOK && wc != want[i].received[k] {
				n.t.Errorf("%d received %+v, want %+v", i, wc, want[i].received[k])
			}
		}
		if !bytes.Equal(h.mem[:partTarget], want[i].mem[:partTarget]) {
			n.t.Errorf("%d: the source changed", i)
		}
	}
}

func differsAt(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// The parts of a machine's memory.
const (
	partSource   = 0       // constant; sent, and read by the peer
	partTarget   = 1 << 16 // written by the peer
	partCounters = 2 << 16 // for the peer's atomics
	partInbox    = 3 << 16 // for receives
	partSink     = 7 << 16 // results of READs and atomics
	worldMemory  = 11<<16 + 4096
	worldSlot    = 4096*2 + 1024 // in the inbox and the sink; more than the longest message
	worldSends   = 24
)
