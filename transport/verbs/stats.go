package verbstransport

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/internal/channel"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
)

// Link is which wire carries a peer's tensors, why, and what has gone over verbs.
type Link struct {
	Task cluster.Task
	// Verbs says that a channel is up, of that Generation, with so many QueuePairs.
	Verbs      bool
	Generation uint64
	QueuePairs int
	// State is how far the bootstrap has come.
	State handshake.State
	// Reason is why there is no channel; nil when nothing went wrong.
	Reason error
	Stats  Stats
	// Poll is what the queues of all channels so far did.
	Poll progress.Stats
}

// Stats counts what has gone over verbs to and from one peer.
type Stats struct {
	Received, ReceivedBytes uint64 // values, and the bytes of their content
	Sent, SentBytes         uint64
	// Lost receives were asked again since their channel broke, Without ones took the
	// other wire since no channel was up.
	Lost, Without uint64
	// The others that took it: for want of registered memory, here or at the peer, and
	// those whose request is none for a channel (the key is longer than a message, an
	// earlier attempt has not ended).
	NoMemory, PeerNoMemory, NoFit uint64
	Breaks                        uint64 // channels that were left
	// Messages took a receive of the other side: control messages, and the last
	// writes of contents.
	MessagesSent, MessagesReceived uint64
	// Bootstraps are the calls that showed an offer to the peer.
	Bootstraps uint64
}

// Elsewhere are the receives that took the other wire although a channel was up.
func (s Stats) Elsewhere() uint64 { return s.NoMemory + s.PeerNoMemory + s.NoFit }

func (s *Stats) add(o Stats) {
	s.Received += o.Received
	s.ReceivedBytes += o.ReceivedBytes
	s.Sent += o.Sent
	s.SentBytes += o.SentBytes
	s.Lost += o.Lost
	s.Without += o.Without
	s.NoMemory += o.NoMemory
	s.PeerNoMemory += o.PeerNoMemory
	s.NoFit += o.NoFit
	s.Breaks += o.Breaks
	s.MessagesSent += o.MessagesSent
	s.MessagesReceived += o.MessagesReceived
	s.Bootstraps += o.Bootstraps
}

// counters are Stats while they change.
type counters struct {
	received, receivedBytes, sent, sentBytes atomic.Uint64
	lost, without, breaks                    atomic.Uint64
	noMemory, peerNoMemory, noFit            atomic.Uint64
	bootstraps                               atomic.Uint64
}

// past is what channels that are no more did.
type past struct {
	messages channel.Messages
	poll     progress.Stats
}

func (p *past) add(o past) {
	p.messages.Sent += o.messages.Sent
	p.messages.Received += o.messages.Received
	p.poll.Add(o.poll)
}

// did is what a link has done so far. What it counts ends before peer.linkGone.
func (l *link) did() past {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine == nil {
		return past{}
	}
	return past{l.machine.Messages(), l.queue.Stats()}
}

func (c *counters) read() Stats {
	return Stats{
		Received: c.received.Load(), ReceivedBytes: c.receivedBytes.Load(),
		Sent: c.sent.Load(), SentBytes: c.sentBytes.Load(),
		Lost: c.lost.Load(), Without: c.without.Load(), Breaks: c.breaks.Load(),
		NoMemory: c.noMemory.Load(), PeerNoMemory: c.peerNoMemory.Load(), NoFit: c.noFit.Load(),
		Bootstraps: c.bootstraps.Load(),
	}
}

// arrived counts a value that came over verbs, and tells the transfer log.
func (p *peer) arrived(a *delivery.Transfer, bytes int64) {
	p.counters.received.Add(1)
	p.counters.receivedBytes.Add(uint64(bytes)) //nolint:gosec // never negative
	t := transport.NewTransfer(a.Began, a.Ended, 0)
	t.Step, t.Tensor, t.Transport, t.Bytes, t.Attempt = a.Step, a.Key.Edge(), Name, bytes, a.Attempt
	t.Source, t.Destination = a.Key.Src(), a.Key.Dst()
	p.transport.opts.Transfers.Add(t)
}
