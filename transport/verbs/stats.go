package verbstransport

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// Connection describes the connection to a peer: whether verbs or gRPC carries its tensors, why,
// and counts of what verbs has carried.
type Connection struct {
	Task cluster.Task
	// Verbs is set while a channel is up. Generation is its generation and QueuePairs the
	// number of its queue pairs.
	Verbs      bool
	Generation uint64
	QueuePairs int
	// Route is that of the channel that is up: "shm", "rdma" or "tcp";
	// empty when none is up. Routes has all, the best one first, in a process with
	// several devices.
	Route  string
	Routes []RouteStatus
	// Device is the RDMA device of the channel that is up, Local its address, and Remote that
	// of the peer. For InfiniBand these are GIDs of ports.
	Device        string
	Local, Remote verbs.GID
	// LastRoute and LastDevice are the Route and Device of the channel that is up, or of the last
	// one; empty if none was up yet.
	LastRoute, LastDevice string
	// Since is when Verbs has changed; zero if no channel was up yet.
	Since time.Time
	// Socket is where packets go (verbs.PathStats.Peer). Its port means nothing on InfiniBand.
	Socket netip.AddrPort
	// State is the state of the handshake, and StateSince when it has changed.
	State      handshake.State
	StateSince time.Time
	// Reason is the last error while there is no channel; nil when there was none.
	Reason error
	Stats  Stats
	// Poll counts what the completion queues of all channels to the peer have done.
	Poll progress.Stats
}

// RouteStatus describes one route to a peer.
type RouteStatus struct {
	// Route is as in Connection.Route, and Device this process's device; empty for none.
	Route, Device string
	// State is the state of its handshake. Used says that its channel carries receives.
	State handshake.State
	Used  bool
	// Why says why it is not used; empty when it is. Better says that it is preferred to the
	// route that is used.
	Why    string
	Better bool
}

// Stats counts what verbs has carried to and from one peer.
type Stats struct {
	Received, ReceivedBytes uint64 // values, and the bytes of their content
	Sent, SentBytes         uint64
	// Lost counts attempts whose channel broke, so that the receive was requested again.
	// Without counts receives that took gRPC since no channel was up.
	Lost, Without uint64
	// Receives that took gRPC although a channel was up: no registered memory here, or none
	// at the peer, or a request that the channel cannot carry (the key is longer than a
	// message, or an earlier attempt has not ended).
	NoMemory, PeerNoMemory, NoFit uint64
	Breaks                        uint64 // channels that were left
	// MessagesSent and MessagesReceived count what takes a posted receive: control messages,
	// and the last write of each content.
	MessagesSent, MessagesReceived uint64
	// Bootstraps counts the bootstrap calls to the peer.
	Bootstraps uint64
}

// Fallbacks counts the receives that took gRPC although a channel was up.
func (s Stats) Fallbacks() uint64 { return s.NoMemory + s.PeerNoMemory + s.NoFit }

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

// counters are the Stats that change concurrently.
type counters struct {
	received, receivedBytes, sent, sentBytes atomic.Uint64
	lost, without, breaks                    atomic.Uint64
	noMemory, peerNoMemory, noFit            atomic.Uint64
	bootstraps                               atomic.Uint64
}

// totals are the counts of links.
type totals struct {
	messages channel.Messages
	poll     progress.Stats
}

func (p *totals) add(o totals) {
	p.messages.Sent += o.messages.Sent
	p.messages.Received += o.messages.Received
	p.poll.Add(o.poll)
}

// totals returns the counts of a link. They do not change after peer.linkGone.
func (l *link) totals() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine == nil {
		return totals{}
	}
	return totals{l.machine.Messages(), l.queue.Stats()}
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

// countReceived counts a value that came over verbs and records which device has received it,
// for its receiver and in the transfer log.
func (p *peer) countReceived(a *transport.Receive, device string, bytes int64) {
	a.Arrival.Transport, a.Arrival.Device = Name, device
	p.counters.received.Add(1)
	p.counters.receivedBytes.Add(uint64(bytes)) //nolint:gosec // never negative
	t := transport.NewTransfer(a.Began, a.Ended, 0)
	t.Step, t.Tensor, t.Bytes, t.Attempt = a.Step, a.Key.Edge(), bytes, a.Attempt
	t.Transport, t.Device = Name, device
	t.Source, t.Destination, t.Peer = a.Key.Src(), a.Key.Dst(), p.task
	p.transport.opts.Transfers.Add(t)
}

// State is the state of the channel to a peer (Connection.State).
type State = handshake.State

// The states of a channel.
const (
	StateDown      = handshake.Down
	StateHandshake = handshake.InProgress
	StateUp        = handshake.Up
)

// PollStats counts what the polling of a channel has done (Connection.Poll).
type PollStats = progress.Stats

// PoolStats counts the memory registered for one direction (MemoryStats).
type PoolStats = regmem.PoolStats

// MemoryStats counts registered memory (Transport.Memory).
type MemoryStats = regmem.Stats
