package tcp

import (
	"math/bits"
	"time"
)

// pace decides how much of the content that waits goes to the kernel at a time: what the
// connection sends in paceTime, within minShare and maxShare. Whoever waits for a full socket pays
// two wake-ups, so a fast connection should not wait often. What the kernel holds unsent is ahead of
// every acknowledgement, so a slow one should hold little.
//
// It measures from one moment at which the socket was full to a later one: what was written in
// between, the kernel has sent. The writer owns it.
type pace struct {
	share   int           // bytes, a power of two; 0: nothing was measured yet
	full    bool          // the socket has been full since the writer had nothing to do
	since   time.Duration // when it was
	written int           // bytes since then
}

// bytes is the share.
func (p *pace) bytes() int { return max(p.share, minShare) }

// wrote counts what the socket took.
func (p *pace) wrote(n int) { p.written += n }

// rest forgets a measurement that is under way: the writer has nothing to do.
func (p *pace) rest() { p.full = false }

// filled notes that the socket is full, and returns true if the share changed. It grows at once,
// and falls by half at a time: a busy machine stops a writer for longer than paceTime.
func (p *pace) filled(now time.Duration) bool {
	took := now - p.since
	if p.full && took < paceTime {
		return false
	}
	measured := p.full
	n := p.written
	p.full, p.since, p.written = true, now, 0
	if !measured {
		return false
	}
	share := int(float64(n) * float64(paceTime) / float64(took))
	share = min(max(share, minShare, p.bytes()/2), maxShare)
	share = 1 << (bits.Len(uint(share)) - 1) //nolint:gosec // positive
	changed := share != p.bytes()
	p.share = share
	return changed
}
