package roce

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// shortMessage requests an ACK.
var shortMessage = rocewire.Header{Op: rocewire.SendOnly, AckReq: true}

// serveInConversation returns a responder whose side has sent a request.
func serveInConversation(t *testing.T) *responderTest {
	s := newResponderTest(t)
	s.machine.postSend(&verbs.SendWR{Op: verbs.OpSend, Inline: []byte{1}})
	if got := s.packets(0); len(got) != 1 {
		t.Fatalf("it sends %+v, want the request", got)
	}
	s.machine.handlePacket(0, &rocewire.Header{Op: rocewire.Ack, PSN: defaultConnection().psn[1], Syndrome: rocewire.AckUnlimited, MSN: 1}, nil)
	if at, ok := s.machine.deadline(); ok {
		t.Fatalf("the request is not acknowledged: there is a deadline at %v", at)
	}
	return s
}

// TestACKIsDelayedOnlyInConversation: if this side sends no requests, the ACK is sent
// at once; also after one was delayed in vain, until this side sends again.
func TestACKIsDelayedOnlyInConversation(t *testing.T) {
	s := newResponderTest(t)
	for i := range 5 {
		s.recv(verbs.WRID(i), 0, 8)
	}
	s.request(shortMessage, 1)
	s.expectNow(ack(0, 1))
	s.machine.postSend(&verbs.SendWR{Op: verbs.OpSend, Inline: []byte{1}})
	s.packets(0)
	s.request(shortMessage, 1)
	s.expectNow()
	s.machine.expire(maxAckDelay)
	s.expectNow(ack(1, 2))
	s.request(shortMessage, 1)
	s.expectNow(ack(2, 3))
	s.machine.postSend(&verbs.SendWR{Op: verbs.OpSend, Inline: []byte{1}})
	s.packets(0)
	s.request(shortMessage, 1)
	s.expectNow()
}

// TestACKOfAShortMessageIsDelayed: until a deadline.
func TestACKOfAShortMessageIsDelayed(t *testing.T) {
	s := serveInConversation(t)
	s.recv(1, 0, 8)
	s.request(shortMessage, 1)
	s.expectNow()
	if at, ok := s.machine.deadline(); !ok || at != maxAckDelay {
		t.Fatalf("the deadline is %v (%v), want %v", at, ok, maxAckDelay)
	}
	s.machine.expire(maxAckDelay - 1)
	s.expectNow()
	s.machine.expire(maxAckDelay)
	s.expectNow(ack(0, 1))
	if at, ok := s.machine.deadline(); ok {
		t.Errorf("there is a deadline at %v still", at)
	}
}

// TestDelayedACKTravelsWithARequest: the ACK is sent before a request. If the request
// has one packet, that needs several messages, some delay, or infrequent messages.
func TestDelayedACKTravelsWithARequest(t *testing.T) {
	for name, c := range map[string]struct {
		messages int
		apart    time.Duration // time after the previous message
		after    time.Duration
		bytes    int // length of the message that the receiver sends
		along    bool
	}{
		"one":                {1, piggybackTime, 0, 1, false},
		"some":               {piggybackMessages - 1, piggybackTime, piggybackTime - 1, 1, false},
		"enough":             {piggybackMessages, piggybackTime, 0, 1, true},
		"one, after a while": {1, piggybackTime, piggybackTime, 1, true},
		"one, far apart":     {1, piggybackTime + 1, 0, 1, true},
		"before a long one":  {1, piggybackTime, 0, 2000, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveInConversation(t)
			s.machine.resp.lastShort = -c.apart
			for i := range c.messages {
				s.recv(verbs.WRID(i), 0, 8)
				s.request(shortMessage, 1)
				s.expectNow()
			}
			s.machine.postSend(&verbs.SendWR{Op: verbs.OpSend, Inline: make([]byte, c.bytes)})
			got := s.packets(c.after)
			if !got[len(got)-1].Op.IsSend() || (got[0].Op == rocewire.Ack) != c.along {
				t.Errorf("it sends %+v, want the message, and an ACK before it: %v", got, c.along)
			}
			if !c.along {
				s.machine.expire(maxAckDelay)
				s.expectNow(ack(uint64(c.messages-1), uint32(c.messages)))
			}
		})
	}
}

// TestDelayedACKIsSentInTime: the ACK is not delayed after many messages, for long
// messages, for WRITEs that nobody is notified of, and after packets out of order.
func TestDelayedACKIsSentInTime(t *testing.T) {
	s := serveInConversation(t)
	for i := range 2 * maxDelayedAcks {
		s.recv(verbs.WRID(i), 0, 2048)
	}
	for range maxDelayedAcks - 1 {
		s.request(shortMessage, 1)
		s.expectNow()
	}
	s.request(shortMessage, 1)
	s.expectNow(ack(maxDelayedAcks-1, maxDelayedAcks))
	s.request(shortMessage, 1)
	s.expectNow() // a new delay begins
	s.request(s.write(rocewire.WriteOnly, 0, 1), 1)
	s.expectNow(ack(maxDelayedAcks+1, maxDelayedAcks+2))
	s.request(rocewire.Header{Op: rocewire.SendFirst}, make([]byte, 1024)...)
	s.request(rocewire.Header{Op: rocewire.SendLast, AckReq: true}, 1)
	s.expectNow(ack(maxDelayedAcks+3, maxDelayedAcks+3))
}

// TestDelayedACKIsSentOnError: the message was received.
func TestDelayedACKIsSentOnError(t *testing.T) {
	s := serveInConversation(t)
	s.recv(1, 0, 8)
	s.request(shortMessage, 1)
	s.machine.enterError()
	s.expectNow(ack(0, 1))
}

// TestWriteAfterADelayedACK: what is sent after a message with a delayed ACK does not
// shorten its timeout, even if a round trip takes a little longer than before.
func TestWriteAfterADelayedACK(t *testing.T) {
	for _, gap := range []time.Duration{0, 900, 1000, 1100, 1200} {
		for _, extra := range []time.Duration{0, 50, 200} {
			p := defaultConnection()
			p.timeout = 18
			n, a, b := connect(t, p)
			for range 60 {
				a.post(a.to(b, 1, verbs.OpWrite, 0, 8, 0))
				n.run(5 * ms)
			}
			b.post(b.to(a, 1, verbs.OpWrite, 0, 8, 0)) // now it sends requests
			n.run(5 * ms)
			b.recv(1, 0, 8)
			n.delay += extra * time.Microsecond / 2
			a.post(a.to(b, 2, verbs.OpSend, 0, 8, 0))
			n.run(gap * time.Microsecond)
			a.post(a.to(b, 3, verbs.OpWrite, 0, 8, 0))
			n.run(20 * ms)
			if again := a.counts.retransmitted.Load(); again > 0 || len(a.sent) != 62 {
				t.Errorf("a write %d us behind a SEND, %d us more a round trip: %d packets were sent again, %d of 62 ended", int(gap), int(extra), again, len(a.sent))
			}
		}
	}
}
