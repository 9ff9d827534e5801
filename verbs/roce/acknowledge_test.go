package roce

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// What the responder says of the order in which requests come.

// TestOneNAKForAGap: until what is missing comes, what lies behind is dropped
// without another word (specification, volume 1, 9.7.5.2.8).
func TestOneNAKForAGap(t *testing.T) {
	s := serve(t)
	s.asks(s.write(wire.WriteOnly, 0, 1), 1)
	s.expect(ack(0, 1))
	lost := s.psn
	s.psn++
	for i := range 5 {
		s.asks(s.write(wire.WriteOnly, 10+i, 1), 9)
	}
	s.expect(ack(0, 1), reply{wire.Ack, wire.NAKSequence, 1, 1})
	if slices.Contains(s.mem, 9) {
		t.Error("what lies behind the gap is written")
	}
	s.psn = lost
	s.asks(s.write(wire.WriteOnly, 1, 1), 2)
	s.expect(ack(1, 2))
	s.psn += 3
	s.asks(s.write(wire.WriteOnly, 2, 1), 3)
	s.expect(ack(1, 2), reply{wire.Ack, wire.NAKSequence, 2, 2})
	if s.counts.nakSeqSent.Load() != 2 {
		t.Errorf("%d gaps are counted", s.counts.nakSeqSent.Load())
	}
}

// TestAnACKGoesBeforeTheNAKOfAGap: of a send or write, or of a part of one. What went
// before it is acknowledged by it, and reads and atomics by their answers.
func TestAnACKGoesBeforeTheNAKOfAGap(t *testing.T) {
	const full = 1024
	nak := func(number uint64, msn uint32) reply { return reply{wire.Ack, wire.NAKSequence, number, msn} }
	s := serve(t)
	s.psn++
	s.asks(s.write(wire.WriteOnly, 0, 1), 1)
	s.expect(nak(0, 0))

	s = serve(t)
	s.asks(s.write(wire.WriteFirst, 0, 4*full), make([]byte, full)...)
	s.asks(s.write(wire.WriteMiddle, 0, 0), make([]byte, full)...)
	lost := s.psn
	s.psn++
	for range 3 {
		s.asks(s.write(wire.WriteMiddle, 0, 0), make([]byte, full)...)
	}
	s.expect(ack(1, 0), nak(2, 0))
	s.psn = lost
	s.asks(s.write(wire.WriteMiddle, 0, 0), make([]byte, full)...)
	s.psn++ // the next one is lost as well
	s.asks(s.write(wire.WriteMiddle, 0, 0), make([]byte, full)...)
	s.expect(ack(2, 0), nak(3, 0))

	s = serve(t)
	s.asks(s.write(wire.WriteOnly, 0, 1), 1)
	s.expect(ack(0, 1)) // may be lost
	s.psn++
	s.asks(s.write(wire.WriteOnly, 1, 1), 2)
	s.expect(ack(0, 1), nak(1, 1))

	s = serve(t)
	s.asks(wire.Header{Op: wire.FetchAdd, Addr: s.mr.addr + 8, RKey: s.mr.rkey, Swap: 7})
	s.expect(reply{wire.AtomicAck, wire.AckUnlimited, 0, 1})
	s.psn++
	s.asks(s.write(wire.WriteOnly, 1, 1), 2)
	s.expect(nak(1, 1))
}

// TestAcknowledgementsCoalesce: one for all packets that came together, behind the
// answers of reads; one that an answer is as well is left out; none that was not
// asked for.
func TestAcknowledgementsCoalesce(t *testing.T) {
	s := serve(t)
	for range 10 {
		s.asks(s.write(wire.WriteOnly, 0, 1), 1)
	}
	s.expect(ack(9, 10))
	s.asks(s.write(wire.WriteFirst, 0, 2048), make([]byte, 1024)...)
	s.expect()
	s.asks(s.write(wire.WriteLast, 0, 0), make([]byte, 1024)...)
	s.asks(s.write(wire.ReadRequest, 0, 8))
	s.expect(reply{wire.ReadResponseOnly, wire.AckUnlimited, 12, 12})
	s.asks(s.write(wire.ReadRequest, 0, 8))
	s.asks(s.write(wire.WriteOnly, 0, 1), 1)
	s.expect(reply{wire.ReadResponseOnly, wire.AckUnlimited, 13, 13}, ack(14, 14))
	quiet := s.write(wire.WriteOnly, 0, 1)
	quiet.AckReq = false
	s.asks(quiet, 1)
	s.expect()
	s.asks(s.write(wire.WriteOnly, 0, 1), 1)
	s.expect(ack(16, 16))
}

// TestMSNCountsMessages: those that were completed, of every kind, in 24 bits.
func TestMSNCountsMessages(t *testing.T) {
	s := serve(t)
	s.machine.resp.completed = psnMask - 1
	s.asks(s.write(wire.WriteFirst, 0, 2048), make([]byte, 1024)...)
	s.asks(s.write(wire.WriteLast, 0, 0), make([]byte, 1024)...)
	s.expect(ack(1, psnMask))
	s.recv(1, 0, 8)
	s.asks(wire.Header{Op: wire.SendOnly, AckReq: true}, 1)
	s.expect(ack(2, 0))
	s.asks(wire.Header{Op: wire.FetchAdd, Addr: s.mr.addr, RKey: s.mr.rkey})
	s.expect(reply{wire.AtomicAck, wire.AckUnlimited, 3, 1})
}

// TestPSNWindow: requests from 2^23 ahead on are behind, and none of either is
// carried out.
func TestPSNWindow(t *testing.T) {
	s := serve(t)
	for range 3 {
		s.asks(s.write(wire.WriteOnly, 0, 1), 1)
	}
	s.packets(0)
	for ahead, want := range map[uint64][]reply{
		1:           {ack(2, 3), {wire.Ack, wire.NAKSequence, 3, 3}},
		1<<23 - 1:   {ack(2, 3), {wire.Ack, wire.NAKSequence, 3, 3}},
		1 << 23:     nil, // before the first of all
		psnMask - 2: {ack(2, 3)},
		psnMask:     {ack(2, 3)},
	} {
		s.machine.resp.nakSent = false
		s.psn = psnOf(usual().psn[0], 3+ahead)
		s.asks(s.write(wire.WriteOnly, 0, 1), 9)
		s.expect(want...)
		if s.mem[0] != 1 {
			t.Errorf("%d ahead is written", ahead)
		}
	}
}
