package roce

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// Acknowledgements of the responder for requests in and out of order.

// TestOneNAKPerGap: until the missing packet arrives, later packets are dropped without
// another NAK (specification, volume 1, 9.7.5.2.8).
func TestOneNAKPerGap(t *testing.T) {
	s := newResponderTest(t)
	s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	s.expect(ack(0, 1))
	lost := s.psn
	s.psn++
	for i := range 5 {
		s.request(s.write(rocewire.WriteOnly, 10+i, 1), 9)
	}
	s.expect(ack(0, 1), wantPacket{rocewire.Ack, rocewire.NAKSequence, 1, 1})
	if slices.Contains(s.mem, 9) {
		t.Error("a packet after the gap is executed")
	}
	s.psn = lost
	s.request(s.write(rocewire.WriteOnly, 1, 1), 2)
	s.expect(ack(1, 2))
	s.psn += 3
	s.request(s.write(rocewire.WriteOnly, 2, 1), 3)
	s.expect(ack(1, 2), wantPacket{rocewire.Ack, rocewire.NAKSequence, 2, 2})
	if s.counts.nakSeqSent.Load() != 2 {
		t.Errorf("%d gaps are counted", s.counts.nakSeqSent.Load())
	}
}

// TestACKBeforeSequenceNAK: an ACK of the SEND or WRITE before a gap is sent before the
// NAK. READs and atomics are acknowledged by their responses.
func TestACKBeforeSequenceNAK(t *testing.T) {
	const full = 1024
	nak := func(number uint64, msn uint32) wantPacket {
		return wantPacket{rocewire.Ack, rocewire.NAKSequence, number, msn}
	}
	s := newResponderTest(t)
	s.psn++
	s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	s.expect(nak(0, 0))

	s = newResponderTest(t)
	s.request(s.write(rocewire.WriteFirst, 0, 4*full), make([]byte, full)...)
	s.request(s.write(rocewire.WriteMiddle, 0, 0), make([]byte, full)...)
	lost := s.psn
	s.psn++
	for range 3 {
		s.request(s.write(rocewire.WriteMiddle, 0, 0), make([]byte, full)...)
	}
	s.expect(ack(1, 0), nak(2, 0))
	s.psn = lost
	s.request(s.write(rocewire.WriteMiddle, 0, 0), make([]byte, full)...)
	s.psn++ // the next packet is lost, too
	s.request(s.write(rocewire.WriteMiddle, 0, 0), make([]byte, full)...)
	s.expect(ack(2, 0), nak(3, 0))

	s = newResponderTest(t)
	s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	s.expect(ack(0, 1)) // this one may be lost
	s.psn++
	s.request(s.write(rocewire.WriteOnly, 1, 1), 2)
	s.expect(ack(0, 1), nak(1, 1))

	s = newResponderTest(t)
	s.request(rocewire.Header{Op: rocewire.FetchAdd, Addr: s.mr.Addr() + 8, RKey: s.mr.RKey(), Swap: 7})
	s.expect(wantPacket{rocewire.AtomicAck, rocewire.AckUnlimited, 0, 1})
	s.psn++
	s.request(s.write(rocewire.WriteOnly, 1, 1), 2)
	s.expect(nak(1, 1))
}

// TestAcknowledgementsCoalesce: packets that arrive together get one ACK, after the
// responses to READs. An ACK that a response implies is not sent, nor one that was not
// requested.
func TestAcknowledgementsCoalesce(t *testing.T) {
	s := newResponderTest(t)
	for range 10 {
		s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	}
	s.expect(ack(9, 10))
	s.request(s.write(rocewire.WriteFirst, 0, 2048), make([]byte, 1024)...)
	s.expect()
	s.request(s.write(rocewire.WriteLast, 0, 0), make([]byte, 1024)...)
	s.request(s.write(rocewire.ReadRequest, 0, 8))
	s.expect(wantPacket{rocewire.ReadResponseOnly, rocewire.AckUnlimited, 12, 12})
	s.request(s.write(rocewire.ReadRequest, 0, 8))
	s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	s.expect(wantPacket{rocewire.ReadResponseOnly, rocewire.AckUnlimited, 13, 13}, ack(14, 14))
	quiet := s.write(rocewire.WriteOnly, 0, 1)
	quiet.AckReq = false
	s.request(quiet, 1)
	s.expect()
	s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	s.expect(ack(16, 16))
}

// TestMSNCountsMessages: the MSN counts completed messages of every kind, in 24 bits.
func TestMSNCountsMessages(t *testing.T) {
	s := newResponderTest(t)
	s.machine.resp.completed = psnMask - 1
	s.request(s.write(rocewire.WriteFirst, 0, 2048), make([]byte, 1024)...)
	s.request(s.write(rocewire.WriteLast, 0, 0), make([]byte, 1024)...)
	s.expect(ack(1, psnMask))
	s.recv(1, 0, 8)
	s.request(rocewire.Header{Op: rocewire.SendOnly, AckReq: true}, 1)
	s.expect(ack(2, 0))
	s.request(rocewire.Header{Op: rocewire.FetchAdd, Addr: s.mr.Addr(), RKey: s.mr.RKey()})
	s.expect(wantPacket{rocewire.AtomicAck, rocewire.AckUnlimited, 3, 1})
}

// TestPSNWindow: PSNs 2^23 or more ahead count as behind. Neither is executed.
func TestPSNWindow(t *testing.T) {
	s := newResponderTest(t)
	for range 3 {
		s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	}
	s.packets(0)
	for ahead, want := range map[uint64][]wantPacket{
		1:           {ack(2, 3), {rocewire.Ack, rocewire.NAKSequence, 3, 3}},
		1<<23 - 1:   {ack(2, 3), {rocewire.Ack, rocewire.NAKSequence, 3, 3}},
		1 << 23:     nil, // before the first packet
		psnMask - 2: {ack(2, 3)},
		psnMask:     {ack(2, 3)},
	} {
		s.machine.resp.nakSent = false
		s.psn = psnOf(defaultConnection().psn[0], 3+ahead)
		s.request(s.write(rocewire.WriteOnly, 0, 1), 9)
		s.expect(want...)
		if s.mem[0] != 1 {
			t.Errorf("%d ahead is written", ahead)
		}
	}
}
