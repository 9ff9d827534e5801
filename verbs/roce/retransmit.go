package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// retransmitTimer decides when unacknowledged packets are sent again, and when the
// queue pair fails.
//
// The specification has one timer: after its timeout everything is sent again, at most
// retry times. This one fails the queue pair at the same time, (retry+1) timeouts after
// the last progress, but retransmits earlier: after the probe timeout of RFC 9002
// (6.2.1), which doubles each time and never exceeds the timeout.
type retransmitTimer struct {
	timeout time.Duration // 0: never
	retry   uint8

	lastProgress time.Duration // the last progress, or the first send after that; valid while waiting
	waiting      bool
	startedAt    time.Duration // when the retransmission timer was started
	backoff      uint8
	ackDelayed   bool // the peer may delay the ACK of packets below ackDelayedTo
	ackDelayedTo uint64

	srtt, rttvar time.Duration // smoothed round trip and its variation; 0 before the first sample
	least        time.Duration // shortest round trip; 0 before the first sample
	sampling     bool
	sampleNumber uint64 // the sample ends when all packets below are acknowledged
	sampleAt     time.Duration
}

// configure applies the attributes of the transition to RTS.
func (t *retransmitTimer) configure(a verbs.RTSAttr) {
	t.timeout, t.retry = verbs.TimeoutDuration(a.Timeout), a.Retry
}

// onSend records that the packets below next have been sent. retransmitted is set if
// they were sent before, delayed if the peer may delay their ACK.
func (t *retransmitTimer) onSend(now time.Duration, next uint64, retransmitted, delayed bool) {
	if delayed {
		t.ackDelayed, t.ackDelayedTo = true, next
	}
	if !t.waiting {
		t.ackDelayed = delayed
		t.waiting, t.lastProgress, t.startedAt = true, now, now
	}
	if !t.sampling && !retransmitted { // Karn's algorithm: retransmitted packets give no sample
		t.sampling, t.sampleNumber, t.sampleAt = true, next, now
	}
}

// onProgress records that all packets below acked are acknowledged. more is set if
// later packets are not.
func (t *retransmitTimer) onProgress(now time.Duration, acked uint64, more bool) {
	t.waiting, t.lastProgress, t.startedAt, t.backoff = more, now, now, 0
	t.ackDelayed = t.ackDelayed && acked < t.ackDelayedTo
	if t.sampling && acked >= t.sampleNumber {
		t.sampling = false
		t.measure(now - t.sampleAt)
	}
}

// onAlive records that the peer responded without an acknowledgement, and that no
// response is due.
func (t *retransmitTimer) onAlive() { t.waiting, t.sampling, t.backoff = false, false, 0 }

// measure adds a sample of the round trip (RFC 9002, 5.3; RFC 6298, section 2).
func (t *retransmitTimer) measure(rtt time.Duration) {
	rtt = max(rtt, 1)
	if t.least == 0 || rtt < t.least {
		t.least = rtt
	}
	if t.srtt == 0 {
		t.srtt, t.rttvar = rtt, rtt/2
		return
	}
	t.rttvar += (max(t.srtt-rtt, rtt-t.srtt) - t.rttvar) / 4
	t.srtt += (rtt - t.srtt) / 8
}

// rto returns the retransmission timeout.
func (t *retransmitTimer) rto() time.Duration {
	d := firstRTO
	if t.srtt != 0 {
		d = t.srtt + max(4*t.rttvar, granularity)
		if t.ackDelayed {
			d += maxAckDelay
		}
	}
	return min(d<<min(t.backoff, 16), t.timeout)
}

// onRetransmit records that all unacknowledged packets are sent again.
func (t *retransmitTimer) onRetransmit(now time.Duration) {
	t.sampling = false
	t.startedAt = now
}

// failsAt returns when the queue pair fails.
func (t *retransmitTimer) failsAt() time.Duration {
	return t.lastProgress + time.Duration(t.retry+1)*t.timeout
}

// deadline returns when to call check; false when no timer runs.
func (t *retransmitTimer) deadline() (time.Duration, bool) {
	if !t.waiting || t.timeout == 0 {
		return 0, false
	}
	return min(t.failsAt(), t.startedAt+t.rto()), true
}

// check reports which timer is due.
func (t *retransmitTimer) check(now time.Duration) (retransmit, failed bool) {
	if !t.waiting || t.timeout == 0 {
		return false, false
	}
	if now >= t.failsAt() {
		return false, true
	}
	if now < t.startedAt+t.rto() {
		return false, false
	}
	t.backoff = min(t.backoff+1, 16)
	return true, false
}
