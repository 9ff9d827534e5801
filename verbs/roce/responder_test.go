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

// responderTest is a responder whose requester is the test.
type responderTest struct {
	*peerMachine
	t   *testing.T
	psn verbs.PSN // of the next request
}

func newResponderTest(t *testing.T, change ...func(*connection)) *responderTest {
	p := defaultConnection()
	for _, c := range change {
		c(&p)
	}
	_, b := join(p)
	return &responderTest{b, t, p.psn[0]}
}

// request sends the next request, or packet of a request.
func (s *responderTest) request(h rocewire.Header, payload ...byte) {
	h.PSN = s.psn
	s.psn = psnOf(s.psn, 1)
	if h.Op == rocewire.ReadRequest {
		s.psn = psnOf(s.psn, s.machine.packetsOf(uint64(h.Length))-1)
	}
	s.machine.handlePacket(0, &h, payload)
}

// write returns the header of a WRITE to the memory.
func (s *responderTest) write(op rocewire.Opcode, at, n int) rocewire.Header {
	return rocewire.Header{Op: op, Addr: s.mr.Addr() + uint64(at), RKey: s.mr.RKey(), Length: uint32(n), AckReq: op.EndsMessage()}
}

// wantPacket is an expected response: opcode, syndrome, packet number and MSN.
type wantPacket struct {
	op       rocewire.Opcode
	syndrome rocewire.Syndrome
	number   uint64
	msn      uint32
}

func (s *responderTest) expect(want ...wantPacket) {
	s.t.Helper()
	s.machine.expire(maxAckDelay)
	s.expectNow(want...)
}

// expectNow is expect without delayed ACKs.
func (s *responderTest) expectNow(want ...wantPacket) {
	s.t.Helper()
	var got []wantPacket
	for _, h := range s.packets(0) {
		got = append(got, wantPacket{h.Op, h.Syndrome, uint64(h.PSN-defaultConnection().psn[0]) & psnMask, h.MSN})
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("it sends %v, want %v", got, want)
	}
}

func ack(number uint64, msn uint32) wantPacket {
	return wantPacket{rocewire.Ack, rocewire.AckUnlimited, number, msn}
}

// TestDuplicates: WRITEs and SENDs are acknowledged again and not executed, READs are
// read again, and atomics return the first result.
func TestDuplicates(t *testing.T) {
	s := newResponderTest(t)
	first := s.psn
	again := func(number uint64, h rocewire.Header, payload ...byte) {
		now := s.psn
		s.psn = psnOf(first, number)
		s.request(h, payload...)
		s.psn = now
	}
	s.recv(1, 100, 8)
	s.recv(2, 200, 8)
	s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	s.request(rocewire.Header{Op: rocewire.SendOnly}, 5)
	add := rocewire.Header{Op: rocewire.FetchAdd, Addr: s.mr.Addr() + 8, RKey: s.mr.RKey(), Swap: 7}
	s.request(add)
	s.request(s.write(rocewire.ReadRequest, 0, 3000)) // packets 3 to 5
	s.request(s.write(rocewire.WriteOnly, 0, 1), 2)
	s.packets(0)

	again(0, s.write(rocewire.WriteOnly, 0, 1), 1)
	s.expect(ack(6, 5))
	again(1, rocewire.Header{Op: rocewire.SendOnly}, 5)
	s.expect(ack(6, 5))
	again(2, add)
	list := s.packets(0)
	if len(list) != 1 || list[0].Op != rocewire.AtomicAck || list[0].Orig != 0 || list[0].PSN != psnOf(first, 2) {
		t.Errorf("the response to the atomic is %+v", list)
	}
	again(3, s.write(rocewire.ReadRequest, 0, 3000))
	s.expect(wantPacket{rocewire.ReadResponseFirst, rocewire.AckUnlimited, 3, 5}, wantPacket{rocewire.ReadResponseMiddle, 0, 4, 0}, wantPacket{rocewire.ReadResponseLast, rocewire.AckUnlimited, 5, 5})
	again(4, s.write(rocewire.ReadRequest, 1024, 1976)) // from the first lost packet
	s.expect(wantPacket{rocewire.ReadResponseFirst, rocewire.AckUnlimited, 4, 5}, wantPacket{rocewire.ReadResponseLast, rocewire.AckUnlimited, 5, 5})

	if s.mem[0] != 2 || native(s.mem[8:]) != 7 || len(s.received) != 1 || s.mem[200] != 0 {
		t.Errorf("something was executed twice: %v, received %q", s.mem[:16], short(s.received))
	}
	// Not duplicates: a READ of more than was requested, or of memory without access;
	// an atomic where none was; a PSN before the first one.
	again(3, s.write(rocewire.ReadRequest, 0, 5*1024))
	again(3, rocewire.Header{Op: rocewire.ReadRequest, Addr: s.mr.Addr(), RKey: s.mr.RKey() + 1, Length: 8})
	again(1, add)
	again(psnMask, s.write(rocewire.WriteOnly, 0, 1), 99)
	s.expect()
	if s.machine.state != verbs.StateRTS || s.mem[0] != 2 || native(s.mem[8:]) != 7 {
		t.Errorf("in %v, memory %v", s.machine.state, s.mem[:16])
	}
	s.request(s.write(rocewire.WriteOnly, 0, 1), 3)
	s.expect(ack(7, 6))
}

// TestDuplicateAtomicsReturnTheFirstResult: for as many as may be outstanding; each is
// executed once.
func TestDuplicateAtomicsReturnTheFirstResult(t *testing.T) {
	s := newResponderTest(t, func(p *connection) { p.maxReadAtomic = maxReadAtomic })
	first := s.psn
	add := func(i int) rocewire.Header {
		return rocewire.Header{Op: rocewire.FetchAdd, Addr: s.mr.Addr(), RKey: s.mr.RKey(), Swap: uint64(i) + 1}
	}
	for i := range maxReadAtomic {
		s.request(add(i))
		s.packets(0)
	}
	sum := native(s.mem)
	s.psn = first
	for i := range maxReadAtomic {
		s.request(add(i))
	}
	for i, h := range s.packets(0) {
		if want := uint64(i) * uint64(i+1) / 2; h.Op != rocewire.AtomicAck || h.Orig != want || h.PSN != psnOf(first, uint64(i)) {
			t.Errorf("atomic %d returns %d the second time, not %d", i, h.Orig, want)
		}
	}
	if native(s.mem) != sum || sum != maxReadAtomic*(maxReadAtomic+1)/2 {
		t.Errorf("the sum is %d, and was %d", native(s.mem), sum)
	}
}

// TestCompareSwap: the swap happens only if the value is as expected.
func TestCompareSwap(t *testing.T) {
	s := newResponderTest(t)
	putNative(s.mem, 5)
	swap := rocewire.Header{Op: rocewire.CompareSwap, Addr: s.mr.Addr(), RKey: s.mr.RKey(), Compare: 4, Swap: 9}
	s.request(swap)
	if native(s.mem) != 5 {
		t.Errorf("stored %d", native(s.mem))
	}
	swap.Compare = 5
	s.request(swap)
	if list := s.packets(0); native(s.mem) != 9 || len(list) != 2 || list[0].Orig != 5 || list[1].Orig != 5 {
		t.Errorf("stored %d, sent %+v", native(s.mem), list)
	}
}

// TestNewRequestsReplaceRepeatedResponses: a requester may have a limited number of
// READs outstanding. A new READ replaces responses that are repeated; one beyond the
// limit is rejected.
func TestNewRequestsReplaceRepeatedResponses(t *testing.T) {
	s := newResponderTest(t, func(p *connection) { p.maxReadAtomic = 2 })
	first := s.psn
	read := s.write(rocewire.ReadRequest, 0, 8)
	s.request(read)
	s.request(read)
	s.packets(0)
	s.psn = first
	s.request(read)
	s.request(read)
	s.request(read)
	s.expect(wantPacket{rocewire.ReadResponseOnly, rocewire.AckUnlimited, 1, 2}, wantPacket{rocewire.ReadResponseOnly, rocewire.AckUnlimited, 2, 3})
	s.request(read)
	s.request(read)
	s.request(read)
	s.expect(wantPacket{rocewire.ReadResponseOnly, rocewire.AckUnlimited, 3, 4}, wantPacket{rocewire.ReadResponseOnly, rocewire.AckUnlimited, 4, 5},
		wantPacket{rocewire.Ack, rocewire.NAKInvalidRequest, 5, 5})
}

// TestAccess: a request with a wrong key, address, length or access right is rejected
// before a byte is written, and the queue pair fails.
func TestAccess(t *testing.T) {
	const size = 4096 // of the window and the region
	type request struct {
		name   string
		change func(s *responderTest, h *rocewire.Header) // makes the request invalid
		want   rocewire.Syndrome
	}
	access, invalid := rocewire.NAKRemoteAccess, rocewire.NAKInvalidRequest
	ops := []rocewire.Opcode{rocewire.WriteOnly, rocewire.WriteFirst, rocewire.WriteOnlyImm, rocewire.ReadRequest, rocewire.FetchAdd, rocewire.CompareSwap}
	right := map[rocewire.Opcode]verbs.Access{
		rocewire.WriteOnly: verbs.AccessRemoteWrite, rocewire.WriteFirst: verbs.AccessRemoteWrite, rocewire.WriteOnlyImm: verbs.AccessRemoteWrite,
		rocewire.ReadRequest: verbs.AccessRemoteRead, rocewire.FetchAdd: verbs.AccessRemoteAtomic, rocewire.CompareSwap: verbs.AccessRemoteAtomic,
	}
	names := func(h *rocewire.Header, m *soft.Region) { h.Addr, h.RKey = m.Addr(), m.RKey() }
	for _, op := range ops {
		length := uint64(16)
		if op == rocewire.WriteFirst {
			length = 2048
		}
		if right[op] == verbs.AccessRemoteAtomic {
			length = 8
		}
		tests := []request{
			{"an unknown key", func(_ *responderTest, h *rocewire.Header) { h.RKey++ }, access},
			{"key 0", func(_ *responderTest, h *rocewire.Header) { h.RKey = 0 }, access},
			{"the local key", func(s *responderTest, h *rocewire.Header) { h.RKey = verbs.RKey(s.mr.LKey()) }, access},
			{"before the region", func(s *responderTest, h *rocewire.Header) { h.Addr = s.mr.Addr() - 8 }, access},
			{"across the end", func(s *responderTest, h *rocewire.Header) { h.Addr = s.mr.Addr() + uint64(len(s.mem)) - length + 8 }, access},
			{"behind the end", func(s *responderTest, h *rocewire.Header) { h.Addr = s.mr.Addr() + uint64(len(s.mem)) }, access},
			{"far behind", func(s *responderTest, h *rocewire.Header) { h.Addr = s.mr.Addr() + soft.RegionGap }, access},
			{"an address that wraps", func(_ *responderTest, h *rocewire.Header) { h.Addr = ^uint64(0) &^ 7 }, access},
			{"another domain's", func(s *responderTest, h *rocewire.Header) {
				names(h, s.domain.Keys.Add(&soft.Domain{Keys: s.domain.Keys}, make([]byte, size), allRights))
			}, access},
			{"a region without the right", func(s *responderTest, h *rocewire.Header) {
				names(h, s.domain.Keys.Add(&s.domain, make([]byte, size), allRights&^right[op]))
			}, access},
			{"a region that is closed", func(s *responderTest, _ *rocewire.Header) { s.domain.Keys.Remove(s.mr) }, access},
			{"a window without the right", func(s *responderTest, h *rocewire.Header) {
				h.RKey = s.domain.Keys.Bind(s.mr, &s.machine, 0, size, allRights&^right[op])
			}, access},
			{"another queue pair's window", func(s *responderTest, h *rocewire.Header) {
				h.RKey = s.domain.Keys.Bind(s.mr, new(machine), 0, size, allRights)
			}, access},
			{"outside of the window", func(s *responderTest, h *rocewire.Header) {
				h.RKey = s.domain.Keys.Bind(s.mr, &s.machine, 0, length-8, allRights)
			}, access},
			{"before the window", func(s *responderTest, h *rocewire.Header) {
				h.RKey = s.domain.Keys.Bind(s.mr, &s.machine, 8, size, allRights)
			}, access},
			{"a window that is closed", func(s *responderTest, h *rocewire.Header) {
				h.RKey = s.domain.Keys.Bind(s.mr, &s.machine, 0, size, allRights)
				s.domain.Keys.Unbind(h.RKey, s.mr)
			}, access},
			{"a queue pair without the right", func(s *responderTest, _ *rocewire.Header) { s.machine.access &^= right[op] }, invalid},
		}
		if right[op] != verbs.AccessRemoteWrite {
			tests = append(tests, request{"no place to remember it", func(s *responderTest, _ *rocewire.Header) { s.machine.resp.maxReadAtomic = 0 }, invalid})
		}
		if right[op] == verbs.AccessRemoteAtomic {
			tests = append(tests, request{"not aligned", func(_ *responderTest, h *rocewire.Header) { h.Addr += 4 }, invalid})
		} else {
			tests = append(tests, request{"too long", func(s *responderTest, h *rocewire.Header) { h.Length = uint32(len(s.mem)) + 1 }, access})
			tests = append(tests, request{"longer than a message", func(_ *responderTest, h *rocewire.Header) { h.Length = maxMessage + 1 }, invalid})
		}
		for _, c := range tests {
			s := newResponderTest(t)
			s.recv(1, 0, 0)
			for i := range s.mem {
				s.mem[i] = byte(i)
			}
			before := bytes.Clone(s.mem)
			h := s.write(op, 0, int(length))
			c.change(s, &h)
			var payload []byte
			if op.HasPayload() {
				payload = bytes.Repeat([]byte{0xee}, int(min(length, 1024)))
			}
			if op == rocewire.WriteOnly || op == rocewire.WriteOnlyImm { // with the length of the RETH
				payload = bytes.Repeat([]byte{0xee}, int(min(h.Length, 1024)))
				if h.Length > 1024 {
					h.Op = rocewire.WriteFirst
				}
			}
			s.request(h, payload...)
			name := op.String() + ", " + c.name
			if !bytes.Equal(s.mem, before) {
				t.Errorf("%s: byte %d was written", name, differsAt(s.mem, before))
			}
			if list := s.packets(0); len(list) != 1 || list[0].Op != rocewire.Ack || list[0].Syndrome != c.want || list[0].PSN != defaultConnection().psn[0] {
				t.Errorf("%s: it sends %+v", name, list)
			}
			want := verbs.EventQPAccess
			if c.want == invalid {
				want = verbs.EventQPRequest
			}
			if s.machine.state != verbs.StateErr || !slices.Contains(s.events, want) {
				t.Errorf("%s: in %v, events %v", name, s.machine.state, s.events)
			}
			expectWCs(t, name, s.received, ended(1, verbs.StatusFlushed))
		}
		// The valid request is executed.
		s := newResponderTest(t)
		s.recv(1, 0, 0)
		payload := bytes.Repeat([]byte{0xee}, int(min(length, 1024)))
		if !op.HasPayload() {
			payload = nil
		}
		s.request(s.write(op, 0, int(length)), payload...)
		if s.machine.state != verbs.StateRTS || payload != nil && s.mem[len(payload)-1] != 0xee {
			t.Errorf("%v is refused", op)
		}
	}
}

// TestAccessOfEmptyOperations: an operation without bytes needs no key (specification,
// volume 1, 9.7.5.2.4), but the access right of the queue pair.
func TestAccessOfEmptyOperations(t *testing.T) {
	for _, op := range []rocewire.Opcode{rocewire.WriteOnly, rocewire.WriteOnlyImm, rocewire.ReadRequest} {
		s := newResponderTest(t)
		s.recv(1, 0, 0)
		s.request(rocewire.Header{Op: op, Addr: 1, RKey: 2, AckReq: true})
		want := ack(0, 1)
		if op == rocewire.ReadRequest {
			want.op = rocewire.ReadResponseOnly
		}
		s.expect(want)
		s.machine.access = verbs.AccessLocalWrite
		s.request(rocewire.Header{Op: op, Addr: 1, RKey: 2, AckReq: true})
		s.expect(wantPacket{rocewire.Ack, rocewire.NAKInvalidRequest, 1, 1})
	}
	s := newResponderTest(t)
	s.recv(1, 0, 0)
	s.recv(2, 8, 8)
	s.request(rocewire.Header{Op: rocewire.SendOnly})
	s.request(rocewire.Header{Op: rocewire.SendOnlyImm, Imm: 3})
	if len(s.received) != 2 || s.received[0].Len != 0 || s.received[1].Imm != 3 || s.machine.state != verbs.StateRTS {
		t.Errorf("received %q", short(s.received))
	}
}

// TestWindowClosedWithinAMessage: what arrived before stays, and nothing is written
// after.
func TestWindowClosedWithinAMessage(t *testing.T) {
	s := newResponderTest(t)
	h := s.write(rocewire.WriteFirst, 0, 3*1024)
	h.RKey = s.domain.Keys.Bind(s.mr, &s.machine, 0, 4096, verbs.AccessRemoteWrite)
	packet := bytes.Repeat([]byte{7}, 1024)
	s.request(h, packet...)
	s.request(rocewire.Header{Op: rocewire.WriteMiddle}, packet...)
	s.domain.Keys.Unbind(h.RKey, s.mr)
	s.request(rocewire.Header{Op: rocewire.WriteLast}, packet...)
	s.expect(wantPacket{rocewire.Ack, rocewire.NAKRemoteAccess, 2, 0})
	if s.mem[2047] != 7 || s.mem[2048] != 0 || s.machine.state != verbs.StateErr {
		t.Errorf("byte 2047 is %d, 2048 %d", s.mem[2047], s.mem[2048])
	}
}

// TestRegionClosedWithinAReadResponse: the response ends with a NAK of the packet that
// cannot be read.
func TestRegionClosedWithinAReadResponse(t *testing.T) {
	s := newResponderTest(t)
	s.request(s.write(rocewire.ReadRequest, 0, 3000))
	s.request(s.write(rocewire.ReadRequest, 0, 8))
	if s.next(0) == nil {
		t.Fatal("no response")
	}
	s.domain.Keys.Remove(s.mr)
	s.expect(wantPacket{rocewire.Ack, rocewire.NAKRemoteAccess, 1, 2})
	if s.machine.state != verbs.StateErr || !slices.Contains(s.events, verbs.EventQPAccess) {
		t.Errorf("in %v, events %v", s.machine.state, s.events)
	}
}

// TestOpcodeSequences: packets out of sequence and of wrong length are rejected
// (specification, volume 1, 9.7.4.1.2).
func TestOpcodeSequences(t *testing.T) {
	const full = 1024
	type step struct {
		op     rocewire.Opcode
		length int // of the payload
		says   int // in the RETH
	}
	for name, c := range map[string]struct {
		steps []step
		want  rocewire.Syndrome
	}{
		"a middle without a first":           {[]step{{rocewire.SendMiddle, full, 0}}, rocewire.NAKInvalidRequest},
		"a last without a first":             {[]step{{rocewire.SendLast, 1, 0}}, rocewire.NAKInvalidRequest},
		"a last with imm without a first":    {[]step{{rocewire.WriteLastImm, 1, 0}}, rocewire.NAKInvalidRequest},
		"a write's middle in a send":         {[]step{{rocewire.SendFirst, full, 0}, {rocewire.WriteMiddle, full, 0}}, rocewire.NAKInvalidRequest},
		"a send's last in a write":           {[]step{{rocewire.WriteFirst, full, 2 * full}, {rocewire.SendLast, full, 0}}, rocewire.NAKInvalidRequest},
		"a first in a send":                  {[]step{{rocewire.SendFirst, full, 0}, {rocewire.SendFirst, full, 0}}, rocewire.NAKInvalidRequest},
		"an only in a send":                  {[]step{{rocewire.SendFirst, full, 0}, {rocewire.SendOnly, 1, 0}}, rocewire.NAKInvalidRequest},
		"a write in a send":                  {[]step{{rocewire.SendFirst, full, 0}, {rocewire.WriteOnly, 1, 1}}, rocewire.NAKInvalidRequest},
		"a read in a send":                   {[]step{{rocewire.SendFirst, full, 0}, {rocewire.ReadRequest, 0, 8}}, rocewire.NAKInvalidRequest},
		"an atomic in a write":               {[]step{{rocewire.WriteFirst, full, 2 * full}, {rocewire.FetchAdd, 0, 0}}, rocewire.NAKInvalidRequest},
		"a first that is short":              {[]step{{rocewire.SendFirst, full - 4, 0}}, rocewire.NAKInvalidRequest},
		"a first that is long":               {[]step{{rocewire.WriteFirst, full + 4, 2 * full}}, rocewire.NAKInvalidRequest},
		"a middle that is short":             {[]step{{rocewire.SendFirst, full, 0}, {rocewire.SendMiddle, 1, 0}}, rocewire.NAKInvalidRequest},
		"a last that is empty":               {[]step{{rocewire.SendFirst, full, 0}, {rocewire.SendLast, 0, 0}}, rocewire.NAKInvalidRequest},
		"a last that is long":                {[]step{{rocewire.SendFirst, full, 0}, {rocewire.SendLast, full + 1, 0}}, rocewire.NAKInvalidRequest},
		"an only that is long":               {[]step{{rocewire.SendOnly, full + 1, 0}}, rocewire.NAKInvalidRequest},
		"a write of more than it says":       {[]step{{rocewire.WriteOnly, 8, 7}}, rocewire.NAKInvalidRequest},
		"a write of less than it says":       {[]step{{rocewire.WriteOnly, 7, 8}}, rocewire.NAKInvalidRequest},
		"a first of all that it says":        {[]step{{rocewire.WriteFirst, full, full}}, rocewire.NAKInvalidRequest},
		"a middle of all that it says":       {[]step{{rocewire.WriteFirst, full, 2 * full}, {rocewire.WriteMiddle, full, 0}}, rocewire.NAKInvalidRequest},
		"a middle of more than it says":      {[]step{{rocewire.WriteFirst, full, full + 1}, {rocewire.WriteMiddle, full, 0}}, rocewire.NAKInvalidRequest},
		"a last of less than it says":        {[]step{{rocewire.WriteFirst, full, 2 * full}, {rocewire.WriteLast, full - 1, 0}}, rocewire.NAKInvalidRequest},
		"a write that is longer than it may": {[]step{{rocewire.WriteFirst, full, maxMessage + 1}}, rocewire.NAKInvalidRequest},
		"FLUSH":                              {[]step{{rocewire.Flush, 0, 8}}, rocewire.NAKInvalidRequest},
		"ATOMIC WRITE":                       {[]step{{rocewire.AtomicWrite, 8, 8}}, rocewire.NAKInvalidRequest},
		"a send longer than its receive":     {[]step{{rocewire.SendFirst, full, 0}, {rocewire.SendMiddle, full, 0}, {rocewire.SendLast, 1, 0}}, rocewire.NAKInvalidRequest},
	} {
		s := newResponderTest(t)
		s.recv(1, 4096, 2*full)
		s.recv(2, 16384, 2*full)
		for i, step := range c.steps {
			h := s.write(step.op, 0, step.says)
			h.AckReq = false
			s.request(h, bytes.Repeat([]byte{0xee}, step.length)...)
			if last := i == len(c.steps)-1; (s.machine.state == verbs.StateErr) != last {
				t.Errorf("%s: in %v after packet %d", name, s.machine.state, i)
			}
		}
		s.expect(wantPacket{rocewire.Ack, c.want, uint64(len(c.steps) - 1), 0})
		// No receive is lost: the one that was too short for the message ends with an
		// error, and the others are flushed, in order.
		own := verbs.StatusFlushed
		if name == "a send longer than its receive" {
			own = verbs.StatusLocalLength
		}
		expectWCs(t, name, s.received, ended(1, own), ended(2, verbs.StatusFlushed))
		if slices.Contains(s.mem[16384:16384+2*full], 0xee) || slices.Contains(s.mem[4096+2*full:8192], 0xee) {
			t.Errorf("%s: bytes where none belong", name)
		}
	}
}

// TestReceiveIntoClosedRegion: the receiver gets a local error, the requester that the
// operation failed.
func TestReceiveIntoClosedRegion(t *testing.T) {
	s := newResponderTest(t)
	s.recv(1, len(s.mem)-4, 8)
	s.recv(2, 0, 8)
	s.request(rocewire.Header{Op: rocewire.SendOnly}, 1, 2, 3, 4, 5, 6, 7, 8)
	s.expect(wantPacket{rocewire.Ack, rocewire.NAKRemoteOperation, 0, 0})
	expectWCs(t, "received", s.received, ended(1, verbs.StatusLocalProtection), ended(2, verbs.StatusFlushed))
	if slices.Contains(s.mem, 4) {
		t.Error("a part of it is written")
	}
}

// TestRNRNAK: without a receive, later packets are dropped silently until the message
// is sent again, which then takes one receive.
func TestRNRNAK(t *testing.T) {
	for _, op := range []rocewire.Opcode{rocewire.SendOnly, rocewire.SendFirst, rocewire.WriteOnlyImm} {
		s := newResponderTest(t)
		h := s.write(op, 0, 8)
		payload := make([]byte, 8)
		if op == rocewire.SendFirst {
			payload = make([]byte, 1024)
		}
		first := s.psn
		s.request(h, payload...)
		s.request(s.write(rocewire.WriteOnly, 100, 1), 9)
		s.expect(wantPacket{rocewire.Ack, rocewire.RNR(verbs.DefaultMinRNRTimer), 0, 0})
		if s.mem[100] != 0 || s.machine.state != verbs.StateRTS {
			t.Errorf("%v: what follows is executed, in %v", op, s.machine.state)
		}
		s.recv(1, 0, 2048)
		s.psn = first
		s.request(h, payload...)
		if op == rocewire.SendFirst {
			s.request(rocewire.Header{Op: rocewire.SendLast, AckReq: true}, 1)
			s.expect(ack(1, 1))
		} else {
			s.expect(ack(0, 1))
		}
		expectWCs(t, op.String(), s.received, ok(1))
	}
}

// TestRNRAtTheLastPacketOfAWrite: a WRITE with immediate data takes its receive with
// the last packet.
func TestRNRAtTheLastPacketOfAWrite(t *testing.T) {
	s := newResponderTest(t)
	s.request(s.write(rocewire.WriteFirst, 0, 1025), bytes.Repeat([]byte{1}, 1024)...)
	last := s.psn
	s.request(rocewire.Header{Op: rocewire.WriteLastImm, Imm: 5, AckReq: true}, 2)
	s.expect(wantPacket{rocewire.Ack, rocewire.RNR(verbs.DefaultMinRNRTimer), 1, 0})
	if s.mem[1024] != 0 {
		t.Error("the last packet is written without a receive")
	}
	s.recv(1, 0, 0)
	s.psn = last
	s.request(rocewire.Header{Op: rocewire.WriteLastImm, Imm: 5, AckReq: true}, 2)
	s.expect(ack(1, 1))
	if len(s.received) != 1 || s.received[0].Len != 1025 || s.received[0].Imm != 5 || s.received[0].Op != verbs.WCRecvWrite || s.mem[1024] != 2 {
		t.Errorf("received %q", short(s.received))
	}
}

// TestSendWithInvalidate: the key of a window on this queue pair is invalidated and the
// message is received; any other key is rejected.
func TestSendWithInvalidate(t *testing.T) {
	s := newResponderTest(t)
	s.recv(1, 0, 8)
	key := s.domain.Keys.Bind(s.mr, &s.machine, 0, 4096, verbs.AccessRemoteWrite)
	s.request(rocewire.Header{Op: rocewire.SendOnlyInv, Invalidate: key, AckReq: true}, 1)
	s.expect(ack(0, 1))
	expectWCs(t, "received", s.received, ok(1))
	h := s.write(rocewire.WriteOnly, 0, 1)
	h.RKey = key
	s.request(h, 9)
	s.expect(wantPacket{rocewire.Ack, rocewire.NAKRemoteAccess, 1, 1})

	for name, key := range map[string]func(*responderTest) verbs.RKey{
		"an unknown key": func(s *responderTest) verbs.RKey { return s.mr.RKey() + 1 },
		"a region's key": func(s *responderTest) verbs.RKey { return s.mr.RKey() },
		"another queue pair's window": func(s *responderTest) verbs.RKey {
			return s.domain.Keys.Bind(s.mr, new(machine), 0, 8, verbs.AccessRemoteWrite)
		},
		"one that died before": func(s *responderTest) verbs.RKey {
			k := s.domain.Keys.Bind(s.mr, &s.machine, 0, 8, verbs.AccessRemoteWrite)
			s.domain.Keys.InvalidateLocked(k, &s.machine)
			return k
		},
	} {
		s := newResponderTest(t)
		s.recv(1, 0, 8)
		s.request(rocewire.Header{Op: rocewire.SendOnlyInv, Invalidate: key(s)}, 1)
		s.expect(wantPacket{rocewire.Ack, rocewire.NAKInvalidRequest, 0, 0})
		expectWCs(t, name, s.received, ended(1, verbs.StatusRemoteInvalidRequest))
		if _, ok := s.domain.Keys.Granted(&s.domain, &s.machine, s.mr.Addr(), 1, s.mr.RKey(), verbs.AccessRemoteWrite); !ok {
			t.Errorf("%s: the region's key is invalid", name)
		}
	}
}

// TestCongestionIsReported: at most once per cnpInterval, before everything else.
func TestCongestionIsReported(t *testing.T) {
	s := newResponderTest(t)
	reported := 0
	for at := time.Duration(0); at < time.Millisecond; at += time.Microsecond {
		s.machine.onCongestionMark(at)
		for _, h := range s.packets(at) {
			if h.Op != rocewire.CNP || !h.BECN {
				t.Errorf("sent %+v", h)
			}
			reported++
		}
	}
	if reported != 20 {
		t.Errorf("%d CNPs in 1 ms", reported)
	}
	a, _ := join(defaultConnection())
	a.machine.handlePacket(0, &rocewire.Header{Op: rocewire.CNP, BECN: true}, nil)
	if !a.machine.takeFeedback().congested || a.machine.takeFeedback().congested {
		t.Error("it is not noted once")
	}
}

// TestResponsesAreSentAfterAnError: queued responses, and the NAK of the error.
func TestResponsesAreSentAfterAnError(t *testing.T) {
	s := newResponderTest(t)
	s.request(s.write(rocewire.ReadRequest, 0, 2000))
	s.request(rocewire.Header{Op: rocewire.FetchAdd, Addr: s.mr.Addr(), RKey: s.mr.RKey(), Swap: 1})
	s.request(rocewire.Header{Op: rocewire.WriteMiddle}, make([]byte, 1024)...)
	if s.machine.state != verbs.StateErr || !s.machine.hasResponse() {
		t.Fatalf("in %v, response pending: %v", s.machine.state, s.machine.hasResponse())
	}
	s.expect(wantPacket{rocewire.ReadResponseFirst, rocewire.AckUnlimited, 0, 1}, wantPacket{rocewire.ReadResponseLast, rocewire.AckUnlimited, 1, 1},
		wantPacket{rocewire.AtomicAck, rocewire.AckUnlimited, 2, 2}, wantPacket{rocewire.Ack, rocewire.NAKInvalidRequest, 3, 2})
	s.request(s.write(rocewire.WriteOnly, 0, 1), 9)
	s.expect()
	if s.mem[0] == 9 || s.machine.hasResponse() {
		t.Error("it continues in ERR")
	}
}

// TestErrorWithinAMessage: its receive is flushed with the others, in order.
func TestErrorWithinAMessage(t *testing.T) {
	s := newResponderTest(t)
	s.recv(1, 0, 4096)
	s.recv(2, 0, 4096)
	s.request(rocewire.Header{Op: rocewire.SendFirst}, make([]byte, 1024)...)
	s.machine.enterError()
	s.machine.enterError()
	expectWCs(t, "received", s.received, ended(1, verbs.StatusFlushed), ended(2, verbs.StatusFlushed))
}

// TestEstablished: the first packet in RTR is reported once, and requests are executed
// in RTR.
func TestEstablished(t *testing.T) {
	s := newResponderTest(t, func(p *connection) { p.onlyReceive = true })
	s.request(s.write(rocewire.WriteOnly, 0, 1), 9)
	s.request(s.write(rocewire.WriteOnly, 1, 1), 9)
	s.expect(ack(1, 2))
	if s.mem[1] != 9 || !slices.Equal(s.events, []verbs.EventKind{verbs.EventCommEstablished}) {
		t.Errorf("events %v", s.events)
	}
}
