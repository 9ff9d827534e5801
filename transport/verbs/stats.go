package verbstransport

import (
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/poll"
)

// Link is which wire carries a peer's tensors, why, and what has gone over verbs.
type Link struct {
	Task cluster.Task
	// Verbs says that a channel is up, of that Generation.
	Verbs      bool
	Generation uint64
	// Reason is why there is no channel; nil when nothing went wrong.
	Reason error
	Stats  Stats
	// Poll is what the queue of the present channel did.
	Poll poll.Stats
}

// Stats counts what has gone over verbs to and from one peer.
type Stats struct {
	Received, ReceivedBytes uint64 // values, and the bytes of their content
	Sent, SentBytes         uint64
	// Lost receives were asked again since their channel broke, Elsewhere ones
	// went over the other wire for want of room, Without ones since no channel
	// was up.
	Lost, Elsewhere, Without uint64
	Breaks                   uint64 // channels that were left
}

// counters are Stats while they change.
type counters struct {
	received, receivedBytes, sent, sentBytes atomic.Uint64
	lost, elsewhere, without, breaks         atomic.Uint64
}

func (c *counters) read() Stats {
	return Stats{
		Received: c.received.Load(), ReceivedBytes: c.receivedBytes.Load(),
		Sent: c.sent.Load(), SentBytes: c.sentBytes.Load(),
		Lost: c.lost.Load(), Elsewhere: c.elsewhere.Load(), Without: c.without.Load(), Breaks: c.breaks.Load(),
	}
}

// arrived counts a value that came over verbs, and tells the transfer log.
func (p *peer) arrived(a *transport.Attempt, requested time.Time, bytes int64) {
	p.counters.received.Add(1)
	p.counters.receivedBytes.Add(uint64(bytes)) //nolint:gosec // never negative
	t := transport.NewTransfer(requested, time.Now(), 0)
	t.Step, t.Tensor, t.Transport, t.Bytes = a.Step, a.Key.Edge(), Name, bytes
	t.Source, t.Destination = a.Key.Src(), a.Key.Dst()
	p.transport.opts.Transfers.Add(t)
}
