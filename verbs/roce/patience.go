package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// patience decides when packets that are not acknowledged are sent again, and
// when the queue pair gives up.
//
// The specification has one timer: after its timeout everything is sent again, at
// most retry times. Here the queue pair gives up at that very time, (retry+1)
// timeouts after the last sign of life, but sends again earlier: after the probe
// timeout of RFC 9002 (6.2.1), doubled each time, never more than the timeout.
type patience struct {
	timeout time.Duration // 0 for never
	retry   uint8

	since   time.Duration // of the last sign of life while something waits for an answer; unset when nothing does
	waiting bool
	sent    time.Duration // when the retransmission timer was started
	backoff uint8
	held    bool // the peer may hold the acknowledgement of what is below heldTo
	heldTo  uint64

	srtt, rttvar time.Duration // 0 before the first round trip
	sampling     bool
	sampleNumber uint64 // acknowledged when a packet beyond it is expected
	sampleAt     time.Duration
}

// configure takes the queue pair's attributes.
func (p *patience) configure(a verbs.RTSAttr) {
	p.timeout, p.retry = verbs.TimeoutOf(a.Timeout), a.Retry
}

// onSend notes that packets below next have been sent; again says that they were
// sent before, and held that their acknowledgement may be held.
func (p *patience) onSend(now time.Duration, next uint64, again, held bool) {
	if held {
		p.held, p.heldTo = true, next
	}
	if !p.waiting {
		p.held = held
		p.waiting, p.since, p.sent = true, now, now
	}
	if !p.sampling && !again { // Karn: what was sent twice is no measure
		p.sampling, p.sampleNumber, p.sampleAt = true, next, now
	}
}

// onProgress notes that all packets below acked are acknowledged; rest says that
// others are not.
func (p *patience) onProgress(now time.Duration, acked uint64, rest bool) {
	p.waiting, p.since, p.sent, p.backoff = rest, now, now, 0
	p.held = p.held && acked < p.heldTo
	if p.sampling && acked >= p.sampleNumber {
		p.sampling = false
		p.measure(now - p.sampleAt)
	}
}

// onAlive notes that the peer lives though nothing was acknowledged, and that
// nothing is waited for.
func (p *patience) onAlive() { p.waiting, p.sampling, p.backoff = false, false, 0 }

// measure takes a round trip (RFC 9002, 5.3; RFC 6298, section 2).
func (p *patience) measure(rtt time.Duration) {
	rtt = max(rtt, 1)
	if p.srtt == 0 {
		p.srtt, p.rttvar = rtt, rtt/2
		return
	}
	p.rttvar += (max(p.srtt-rtt, rtt-p.srtt) - p.rttvar) / 4
	p.srtt += (rtt - p.srtt) / 8
}

// rto is the retransmission timeout.
func (p *patience) rto() time.Duration {
	d := firstRTO
	if p.srtt != 0 {
		d = p.srtt + max(4*p.rttvar, granularity)
		if p.held {
			d += holdTime
		}
	}
	return min(d<<min(p.backoff, 16), p.timeout)
}

// onResend notes that everything is sent again.
func (p *patience) onResend(now time.Duration) {
	p.sampling = false
	p.sent = now
}

// givesUpAt is when the queue pair breaks.
func (p *patience) givesUpAt() time.Duration { return p.since + time.Duration(p.retry+1)*p.timeout }

// deadline is when to look again; false for not at all.
func (p *patience) deadline() (time.Duration, bool) {
	if !p.waiting || p.timeout == 0 {
		return 0, false
	}
	return min(p.givesUpAt(), p.sent+p.rto()), true
}

// look says what is due.
func (p *patience) look(now time.Duration) (resend, giveUp bool) {
	if !p.waiting || p.timeout == 0 {
		return false, false
	}
	if now >= p.givesUpAt() {
		return false, true
	}
	if now < p.sent+p.rto() {
		return false, false
	}
	p.backoff = min(p.backoff+1, 16)
	return true, false
}
