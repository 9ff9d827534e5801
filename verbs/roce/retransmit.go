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
// (6.2.1), which doubles each time and exceeds the timeout only where the path has shown
// that it takes longer (rto).
type retransmitTimer struct {
	timeout time.Duration // 0: never
	retry   uint8

	lastProgress time.Duration // the last progress, or the first send after that; valid while waiting
	waiting      bool
	startedAt    time.Duration // when the retransmission timer was started
	backoff      uint8
	ackDelayed   bool // the peer may delay the ACK of packets below ackDelayedTo
	ackDelayedTo uint64

	pathRTT time.Duration // what other queue pairs measured on the path; 0 for nothing
	// If the timer fires and then the peer responds, either a packet was lost or the
	// timeout is too short. No packet that was sent twice shows which (Karn's algorithm), so
	// the longer timeout is kept until the next sample (RFC 6298, section 5): at once while the
	// timeout is a guess, otherwise when it happens again and again.
	kept      time.Duration // 0 for none
	unsampled uint8         // how often that has happened since the last sample
	doubtful  time.Duration // longest time from a retransmission to the response, before the first sample; 0 for none
	spurious  bool          // the first sample is longer than that: nothing was lost

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
	if t.backoff > 0 {
		t.keepTimeout(now)
	}
	t.waiting, t.lastProgress, t.startedAt, t.backoff = more, now, now, 0
	t.ackDelayed = t.ackDelayed && acked < t.ackDelayedTo
	if t.sampling && acked >= t.sampleNumber {
		t.sampling = false
		t.measure(now - t.sampleAt)
	}
}

// keepTimeout handles a response of the peer after a timeout.
func (t *retransmitTimer) keepTimeout(now time.Duration) {
	t.unsampled = min(t.unsampled+1, maxUnsampled)
	if t.srtt != 0 && t.unsampled < maxUnsampled {
		return
	}
	longer := max(t.rto(), 2*(now-t.lastProgress)) // a round trip is at most the time since lastProgress
	if t.kept != 0 {
		longer = min(longer, 2*t.kept) // where many packets are lost
	}
	t.kept = min(longer, maxKept)
	if t.srtt == 0 {
		t.doubtful = max(t.doubtful, now-t.startedAt, 1)
	}
}

// onAlive records that the peer responded without an acknowledgement, and that no
// response is due.
func (t *retransmitTimer) onAlive() { t.waiting, t.sampling, t.backoff = false, false, 0 }

// measure adds a sample of the round trip (RFC 9002, 5.3; RFC 6298, section 2).
func (t *retransmitTimer) measure(rtt time.Duration) {
	rtt = max(rtt, 1)
	t.kept, t.unsampled = 0, 0
	if t.least == 0 || rtt < t.least {
		t.least = rtt
	}
	if t.srtt == 0 {
		t.srtt, t.rttvar = rtt, rtt/2
		t.spurious = t.doubtful > 0 && t.doubtful+firstRTO/2 <= rtt
		return
	}
	t.rttvar += (max(t.srtt-rtt, rtt-t.srtt) - t.rttvar) / 4
	t.srtt += (rtt - t.srtt) / 8
}

// rto returns the retransmission timeout. It does not exceed the timeout of the queue pair,
// unless the path has shown that it takes longer: then it is at most a fourth of the time
// after which the queue pair fails, so that a packet is sent again some times before.
func (t *retransmitTimer) rto() time.Duration {
	shown, d := 3*t.pathRTT, firstRTO // RFC 6298, 2.2: three times the first sample
	if t.srtt != 0 {
		shown, d = t.srtt+4*t.rttvar, t.srtt+max(4*t.rttvar, granularity)
		if t.ackDelayed {
			d += maxAckDelay
		}
	}
	shown = max(shown, t.kept)
	d = max(d, shown)
	limit := max(t.timeout, min(shown, time.Duration(t.retry+1)*t.timeout/4))
	return min(d<<min(t.backoff, 16), limit)
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
