package roce

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// testClass is a DSCP with ECN-capable transport.
const testClass = 26<<2 | 2

// withClass gives the packets of both ends a traffic class.
func withClass(class uint8) func(*verbs.Path, *verbs.Endpoint) {
	return func(p *verbs.Path, _ *verbs.Endpoint) { p.TrafficClass = class }
}

// opcode returns the opcode of the first packet.
func opcode(m *udp.Message) rocewire.Opcode { return rocewire.Opcode(m.Buffers[0][0]) }

// windowOf returns the congestion window of an end's flow.
func (x *testEnd) windowOf() uint64 {
	q, _ := x.inner()
	f := q.flow.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.window.size
}

func (x *testEnd) counter(name string) uint64 {
	x.t.Helper()
	d, ok := x.dev.(verbs.CounterReader)
	if !ok {
		x.t.Fatal("the device does not count")
	}
	return must(d.Counters(onlyPort))(x.t)[name]
}

// TestCongestionMarksReduceTheWindow: a switch marks ECN-capable packets, the receiver
// reports it at most once per cnpInterval, and the sender's window shrinks. Without
// marks it grows.
func TestCongestionMarksReduceTheWindow(t *testing.T) {
	const size = 4 << 20
	for _, marks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.bandwidth, f.buffer = 1<<30, 1<<20
			x, y := f.pair(t, size)
			joinEnds(x, y, withClass(testClass))
			var reported []time.Time
			f.class = func(from netip.AddrPort, m *udp.Message) uint8 {
				switch {
				case opcode(m) == rocewire.CNP:
					reported = append(reported, time.Now())
				case marks && from.Addr() == x.addr && m.TOS&ecnMask != 0:
					return m.TOS | congestionExperienced
				}
				return m.TOS
			}
			x.post(x.to(y, 1, verbs.OpWrite, 0, size, 0))
			x.ends(1, verbs.StatusOK)
			time.Sleep(time.Millisecond) // until the last one arrives
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			window, sent, taken := x.windowOf(), y.counter("np_cnp_sent"), x.counter("rp_cnp_handled")
			t.Logf("marks %v: the window is %d after %d CNPs", marks, window, sent)
			if !marks {
				if len(reported) > 0 || window <= initialWindow {
					t.Errorf("without marks %d CNPs, and a window of %d", len(reported), window)
				}
				return
			}
			if window >= initialWindow {
				t.Errorf("the window is %d", window)
			}
			if len(reported) < 10 || sent != uint64(len(reported)) || taken != sent {
				t.Errorf("%d CNPs were seen, %d sent, %d received", len(reported), sent, taken)
			}
			for i := 1; i < len(reported); i++ {
				if gap := reported[i].Sub(reported[i-1]); gap < cnpInterval {
					t.Errorf("CNP %d comes after %v", i, gap)
				}
			}
		})
	}
}

// TestCNPsAreSentWithoutECN: with the same DSCP, in a message of their own.
func TestCNPsAreSentWithoutECN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := f.pair(t, 1<<16)
		joinEnds(x, y, withClass(testClass))
		reported := 0
		f.class = func(_ netip.AddrPort, m *udp.Message) uint8 {
			if opcode(m) != rocewire.CNP {
				return m.TOS | congestionExperienced
			}
			reported++
			length := 0
			for _, p := range m.Buffers {
				length += len(p)
			}
			if m.TOS != testClass&^ecnMask || length != m.Segment {
				t.Errorf("a CNP has traffic class %#x, %d bytes of which %d are its own", m.TOS, length, m.Segment)
			}
			return m.TOS
		}
		x.post(x.to(y, 1, verbs.OpWrite, 0, 8, 0))
		x.ends(1, verbs.StatusOK)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if reported == 0 {
			t.Error("no mark was reported")
		}
	})
}

// TestMarkedCNPCausesNoCNP: a NIC's CNP may be marked. If each caused another one, idle
// ends would exchange CNPs forever.
func TestMarkedCNPCausesNoCNP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := f.pair(t, 1<<16)
		joinEnds(x, y, withClass(testClass))
		x.post(x.to(y, 1, verbs.OpWrite, 0, 8, 0))
		x.ends(1, verbs.StatusOK)
		from, _ := x.sockets()
		q, _ := y.inner()
		_, at := y.sockets()
		sent := y.counter("sent_pkts")
		b := packetOf(from, at, rocewire.Header{Op: rocewire.CNP, BECN: true, DestQP: q.number})
		f.mu.Lock()
		f.receivers[at].deliverLocked(udp.Datagram{Data: b, Segment: len(b), From: from, ECN: congestionExperienced})
		f.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := y.counter("rp_cnp_handled"); n != 1 {
			t.Errorf("%d CNPs were received", n)
		}
		if n := y.counter("sent_pkts") - sent; n > 0 {
			t.Errorf("%d packets are sent", n)
		}
	})
}

// TestAllPacketsHaveTheTrafficClass: that of the sending side, in requests, ACKs,
// responses and retransmissions.
func TestAllPacketsHaveTheTrafficClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		f := newFabric()
		f.loss = 0.02
		x, y := f.pair(t, size)
		classes := map[netip.Addr]uint8{x.addr: 26 << 2, y.addr: 10<<2 | 1}
		joinEnds(x, y, func(p *verbs.Path, peer *verbs.Endpoint) {
			p.TrafficClass = classes[x.addr]
			if peer.QPN == x.qp.QPN() {
				p.TrafficClass = classes[y.addr]
			}
		})
		sent := make(map[rocewire.Opcode]int)
		last, again := uint64(0), 0
		f.class = func(from netip.AddrPort, m *udp.Message) uint8 {
			op := opcode(m)
			sent[op]++
			if m.TOS != classes[from.Addr()] {
				t.Errorf("%v from %v has traffic class %#x", op, from, m.TOS)
			}
			if op == rocewire.WriteMiddle {
				var h rocewire.Header
				if _, err := h.Decode(slices.Concat(m.Buffers...)[:m.Segment]); err != nil {
					t.Error(err)
				}
				if n := uint64(h.PSN-x.psn) & psnMask; n > last {
					last = n
				} else {
					again++
				}
			}
			return m.TOS
		}
		x.post(x.to(y, 1, verbs.OpWrite, 0, size, 0))
		x.ends(1, verbs.StatusOK)
		x.post(x.to(y, 2, verbs.OpRead, 0, size, 0))
		x.ends(2, verbs.StatusOK)
		f.mu.Lock()
		defer f.mu.Unlock()
		if sent[rocewire.WriteMiddle] == 0 || sent[rocewire.Ack] == 0 || sent[rocewire.ReadRequest] == 0 || sent[rocewire.ReadResponseMiddle] == 0 || again == 0 {
			t.Errorf("%v were sent, %d of the writes again", sent, again)
		}
	})
}

// TestCongestionExperiencedIsRejected: as a traffic class to connect with.
func TestCongestionExperiencedIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := newFabric().pair(t, 64)
		path := x.path()
		path.TrafficClass = testClass | congestionExperienced
		if err := path.Connect(x.qp, x.psn, y.endpoint()); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("traffic class %#x: %v", path.TrafficClass, err)
		}
	})
}
