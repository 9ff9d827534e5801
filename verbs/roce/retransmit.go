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
type retransmitTimer struct {
	timeout time.Duration // 0 for never
	retry   uint8

	lastProgress time.Duration // of the last sign of life while something waits for an answer; unset when nothing does
	waiting      bool
	startedAt    time.Duration // when the retransmission timer was started
	backoff      uint8
	ackDelayed   bool // the peer may hold the acknowledgement of what is below heldTo
	ackDelayedTo uint64

	srtt, rttvar time.Duration // 0 before the first round trip
	sampling     bool
	sampleNumber uint64 // acknowledged when a packet beyond it is expected
	sampleAt     time.Duration
}

// configure takes the queue pair's attributes.
func (p *retransmitTimer) configure(a verbs.RTSAttr) {
	p.timeout, p.retry = verbs.TimeoutOf(a.Timeout), a.Retry
}

// onSend notes that packets below next have been sent; again says that they were
// sent before, and held that their acknowledgement may be held.
func (p *retransmitTimer) onSend(now time.Duration, next uint64, retransmitted, delayed bool) {
	if delayed {
		p.ackDelayed, p.ackDelayedTo = true, next
	}
	if !p.waiting {
		p.ackDelayed = delayed
		p.waiting, p.lastProgress, p.startedAt = true, now, now
	}
	if !p.sampling && !retransmitted { // Karn: what was sent twice is no measure
		p.sampling, p.sampleNumber, p.sampleAt = true, next, now
	}
}

// onProgress notes that all packets below acked are acknowledged; rest says that
// others are not.
func (p *retransmitTimer) onProgress(now time.Duration, acked uint64, more bool) {
	p.waiting, p.lastProgress, p.startedAt, p.backoff = more, now, now, 0
	p.ackDelayed = p.ackDelayed && acked < p.ackDelayedTo
	if p.sampling && acked >= p.sampleNumber {
		p.sampling = false
		p.measure(now - p.sampleAt)
	}
}

// onAlive notes that the peer lives though nothing was acknowledged, and that
// nothing is waited for.
func (p *retransmitTimer) onAlive() { p.waiting, p.sampling, p.backoff = false, false, 0 }

// measure takes a round trip (RFC 9002, 5.3; RFC 6298, section 2).
func (p *retransmitTimer) measure(rtt time.Duration) {
	rtt = max(rtt, 1)
	if p.srtt == 0 {
		p.srtt, p.rttvar = rtt, rtt/2
		return
	}
	p.rttvar += (max(p.srtt-rtt, rtt-p.srtt) - p.rttvar) / 4
	p.srtt += (rtt - p.srtt) / 8
}

// rto is the retransmission timeout.
func (p *retransmitTimer) rto() time.Duration {
	d := firstRTO
	if p.srtt != 0 {
		d = p.srtt + max(4*p.rttvar, granularity)
		if p.ackDelayed {
			d += maxAckDelay
		}
	}
	return min(d<<min(p.backoff, 16), p.timeout)
}

// onResend notes that everything is sent again.
func (p *retransmitTimer) onRetransmit(now time.Duration) {
	p.sampling = false
	p.startedAt = now
}

// givesUpAt is when the queue pair breaks.
func (p *retransmitTimer) failsAt() time.Duration {
	return p.lastProgress + time.Duration(p.retry+1)*p.timeout
}

// deadline is when to look again; false for not at all.
func (p *retransmitTimer) deadline() (time.Duration, bool) {
	if !p.waiting || p.timeout == 0 {
		return 0, false
	}
	return min(p.failsAt(), p.startedAt+p.rto()), true
}

// look says what is due.
func (p *retransmitTimer) check(now time.Duration) (retransmit, failed bool) {
	if !p.waiting || p.timeout == 0 {
		return false, false
	}
	if now >= p.failsAt() {
		return false, true
	}
	if now < p.startedAt+p.rto() {
		return false, false
	}
	p.backoff = min(p.backoff+1, 16)
	return true, false
}
