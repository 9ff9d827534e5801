package roce

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

const ms = time.Millisecond

// TestRTO: RFC 6298, sections 2 and 5, limited by the timeout of the queue pair.
func TestRTO(t *testing.T) {
	p := retransmitTimer{timeout: time.Second}
	at := time.Duration(0)
	is := func(when string, want time.Duration) {
		t.Helper()
		if got := p.rto(); got != want {
			t.Errorf("%s the timeout is %v, want %v", when, got, want)
		}
	}
	trip := func(rtt time.Duration) {
		p.onSend(at, 1, false, true)
		at += rtt
		p.onProgress(at, 1, false)
	}
	is("at first", firstRTO)
	trip(40 * ms) // SRTT = R, RTTVAR = R/2
	is("after the first round trip", 40*ms+4*20*ms)
	trip(80 * ms) // RTTVAR = 3/4 RTTVAR + 1/4 |SRTT-R|, then SRTT = 7/8 SRTT + 1/8 R
	is("after the second", 45*ms+4*25*ms)
	for range 100 {
		trip(100 * time.Microsecond)
	}
	least := p.srtt + granularity
	if least > 101*time.Microsecond+granularity {
		t.Errorf("a round trip of 100 us counts as %v", p.srtt)
	}
	is("on a fast network", least)
	p.onSend(at, 2, false, false)
	for i := 1; least<<i < p.timeout; i++ {
		at += p.rto()
		if resend, giveUp := p.check(at - 1); resend || giveUp {
			t.Errorf("timer %d fires early", i)
		}
		if resend, _ := p.check(at); !resend {
			t.Errorf("timer %d does not fire", i)
		}
		p.onRetransmit(at)
		is("backed off", least<<i)
	}
	p.backoff++
	is("backed off", p.timeout)
	p.backoff = 200
	is("backed off for long", p.timeout)
	p.onProgress(at, 2, false)
	is("after progress", least)
	p.onSend(at, 3, false, true)
	is("where the acknowledgement may be held", least+maxAckDelay)
	p.onSend(at, 4, false, false)
	is("with something behind that", least+maxAckDelay)
	p.onProgress(at, 3, true)
	least = p.srtt + granularity
	is("when that is acknowledged, and what is behind it not", least)
	p.onSend(at, 5, false, true)
	p.onAlive()
	p.onSend(at, 6, false, false)
	is("when nothing was waited for", least)
}

// TestKarn: retransmitted packets give no sample of the round trip.
func TestKarn(t *testing.T) {
	p := retransmitTimer{timeout: time.Second}
	p.onSend(0, 1, false, true)
	p.onRetransmit(50 * ms)
	p.onSend(50*ms, 1, true, true)
	p.onProgress(51*ms, 1, false)
	if p.srtt != 0 {
		t.Errorf("a round trip of %v was measured", p.srtt)
	}
	// Neither does an ACK of earlier packets.
	p.onSend(60*ms, 5, false, true)
	p.onSend(60*ms, 6, false, true)
	p.onProgress(61*ms, 4, true)
	if p.srtt != 0 {
		t.Errorf("a round trip of %v was measured", p.srtt)
	}
	p.onProgress(62*ms, 5, true)
	if p.srtt != 2*ms {
		t.Errorf("a round trip of %v was measured, not of 2 ms", p.srtt)
	}
}

// TestNoTimerWhileNothingIsOutstanding, and never with timeout 0.
func TestNoTimerWhileNothingIsOutstanding(t *testing.T) {
	p := retransmitTimer{timeout: time.Second, retry: 3}
	none := func(when string) {
		t.Helper()
		if at, ok := p.deadline(); ok {
			t.Errorf("%s the timer is set to %v", when, at)
		}
	}
	none("at first")
	p.onSend(0, 1, false, true)
	if _, ok := p.deadline(); !ok {
		t.Error("nothing is waited for")
	}
	p.onProgress(ms, 1, false)
	none("when all is acknowledged")
	p.onSend(ms, 2, false, true)
	p.onAlive()
	none("while the peer has no receive")
	p.configure(verbs.RTSAttr{Timeout: 0, Retry: 3})
	p.onSend(ms, 3, false, true)
	none("without a timeout")
	if resend, giveUp := p.check(time.Hour); resend || giveUp {
		t.Error("without a timeout it does something")
	}
}
