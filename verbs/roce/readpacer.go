package roce

import (
	"time"
)

// answers bounds what is sent of the answers to READs, which nobody acknowledges, so
// that it is not known what of them is under way: a window that is full, and no more
// before some time has passed, in which others have the flow and the station receives.
// Who asks for pieces that fit into a super-packet, as roce devices do, has them as
// fast as it asks: its own window bounds what it has asked for and not got.
type readPacer struct {
	capacity int64         // what the peer's receive buffer holds
	budget   int64         // may be sent
	refilled time.Duration // when it was a whole window again
}

func newReadPacer(buffer, mtu uint64) readPacer {
	n := int64(newWindow(buffer, mtu).capacity) //nolint:gosec // at most maxWindow
	return readPacer{capacity: n, budget: n}
}

// take is called before turns, with what pieces were asked for meanwhile, and how
// many flows share the buffer.
func (a *readPacer) refill(now time.Duration, flows int64, asked uint64) {
	if now >= a.refilled+readInterval {
		a.refilled, a.budget = now, max(a.budget, a.capacity/max(flows, 1))
	}
	a.budget = min(a.budget+int64(asked), a.capacity) //nolint:gosec // answers that are remembered, of pieces
}
