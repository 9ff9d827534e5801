package roce

import (
	"time"
)

// readPacer limits the rate of READ responses of a flow. Nobody acknowledges them, so
// the number of bytes in flight is unknown. A flow sends at most a full window of
// responses per readInterval, so that other queue pairs get the flow, and the endpoint
// can receive.
//
// Responses to READs that are requested in parts of a super-packet, as devices of this
// package do, do not wait: the requester's own window limits them.
type readPacer struct {
	capacity int64         // capacity of the peer's receive buffer
	budget   int64         // cost of the responses that may be sent now
	refilled time.Duration // when the budget was last set to a full window
}

func newReadPacer(buffer, mtu uint64) readPacer {
	n := int64(newWindow(buffer, mtu).capacity) //nolint:gosec // at most maxWindow
	return readPacer{capacity: n, budget: n}
}

// refill is called before each round of turns. flows is the number of flows that share
// the peer's buffer, credit the cost of the READs that were requested in parts since
// the last call.
func (p *readPacer) refill(now time.Duration, flows int64, credit uint64) {
	if now >= p.refilled+readInterval {
		p.refilled, p.budget = now, max(p.budget, p.capacity/max(flows, 1))
	}
	p.budget = min(p.budget+int64(credit), p.capacity) //nolint:gosec // bounded by the number of queued responses
}
