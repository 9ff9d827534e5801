package roce

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// station is a local address with its sockets: one that receives, and some that
// send. All queue pairs of the address share them.
//
//	kernel ──► receive ──► take ──► machine of the queue pair ──► flow ──► kernel
//	                                     posts, timers ────────────▲
type endpoint struct {
	provider *Provider
	addr     netip.Addr
	receiver receiver
	senders  []sender
	users    int           // devices; guarded by the provider's lock
	removed  chan struct{} // closed when a station without users is the provider's no more

	next    atomic.Uint32 // sender
	closing chan struct{} // closed by close
	drops   drops
	wg      sync.WaitGroup

	// Of receive's goroutine: what was begun with packets and is ended by settle.
	unflushed  int     // bytes of them, or settleAt where it is not to wait
	flushLimit int     // bytes that are taken at most before that
	received   []*qp   // took some
	sending    []*flow // that settle transmits
	fired      []*cq   // had an event, which they are to be called for

	mu    sync.Mutex // guards what follows; taken after a queue pair's
	flows map[flowKey]*flow
	peers map[netip.AddrPort]*peer
}

// peer is what the flows to one receiving socket share: its buffer.
type peer struct{ flows atomic.Int32 }

// flowKey names the two sockets of a flow.
type flowKey struct {
	sender int
	to     netip.AddrPort
}

// remote is a peer's receiving socket.
type remote struct {
	at netip.AddrPort
	// roce says that the peer is a device like this one, whose sockets were named
	// at bootstrap; else it is a kernel or a NIC.
	peerIsRoCE bool
	buffer     uint64 // bytes; 0 for not known
}

func remoteOf(addr netip.Addr, e verbs.UDPEndpoint) remote {
	if e.Port == 0 {
		return remote{at: netip.AddrPortFrom(addr, wire.Port)}
	}
	return remote{at: netip.AddrPortFrom(addr, e.Port), peerIsRoCE: true, buffer: e.Buffer}
}

// drops counts the packets that were not taken, by the reason.
type drops struct {
	malformed, unknown, source, damaged, closed atomic.Uint64
}

func openEndpoint(p *Provider, addr netip.Addr) (*endpoint, error) {
	s := &endpoint{provider: p, addr: addr, removed: make(chan struct{}), closing: make(chan struct{}), flows: make(map[flowKey]*flow), peers: make(map[netip.AddrPort]*peer)}
	var err error
	if s.receiver, err = p.sys.listen(addr); err != nil {
		return nil, err
	}
	s.flushLimit = flushLimitOf(s.receiver.Buffer())
	for range p.options.Senders {
		out, err := p.sys.sender(addr)
		if err != nil {
			s.close()
			return nil, err
		}
		s.senders = append(s.senders, out)
	}
	// No warnings: all of it works, and the next process on a host is always without
	// the port.
	for _, m := range s.receiver.Missing() {
		p.log.Info("roce: " + m)
	}
	if port := s.receiver.Addr().Port(); port != wire.Port {
		p.log.Info("roce: RDMA devices of kernels and NICs cannot send here, so peers that have one are served otherwise",
			"address", addr, "port", port)
	}
	s.wg.Go(s.receiveLoop)
	return s, nil
}

// close ends the sockets, and returns when nothing is received any more.
func (s *endpoint) close() {
	close(s.closing)
	s.receiver.Close() //nolint:errcheck // nothing is lost by it
	for _, out := range s.senders {
		out.Close() //nolint:errcheck // likewise
	}
	s.wg.Wait()
}

// nextSender deals the sending sockets out in turn.
func (s *endpoint) nextSender() int { return int(s.next.Add(1)-1) % len(s.senders) }

// flow is the one between a sending socket and a peer; it is made for its first
// queue pair and goes with its last.
func (s *endpoint) flow(sender int, r remote, mtu uint64) *flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := flowKey{sender, r.at}
	f := s.flows[key]
	if f == nil {
		p := s.peers[r.at]
		if p == nil {
			p = &peer{}
			s.peers[r.at] = p
		}
		p.flows.Add(1)
		f = newFlow(s, key, r, p, mtu)
		s.flows[key] = f
	}
	f.users++
	return f
}

func (s *endpoint) release(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users--; f.users == 0 {
		delete(s.flows, f.key)
		if f.peer.flows.Add(-1) == 0 {
			delete(s.peers, f.key.to)
		}
	}
}

// sourceOf is where the packets of a peer come from.
func (s *endpoint) sourceOf(r remote, ports []uint16) source {
	src := source{remote: r, ports: ports, anyPort: !r.peerIsRoCE && len(ports) == 0, identifications: wire.IdentificationsAny}
	if r.peerIsRoCE {
		src.identifications = wire.IdentificationsRoCE
	}
	return src
}

// receive runs until the socket is closed.
func (s *endpoint) receiveLoop() {
	settle := s.flush // made once: a method value allocates
	for failed := 0; ; {
		datagrams, err := s.receiver.Receive(settle)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the kernel is out of memory, or the like
			s.flush()
			s.provider.log.Warn("roce: nothing can be received", "address", s.addr, "reason", err)
			select {
			case <-time.After(time.Millisecond << min(failed, 10)):
			case <-s.closing:
				return
			}
			failed++
			continue
		}
		failed = 0
		s.provider.order.onReceive()
		for i := range datagrams {
			s.unflushed += max(len(datagrams[i].Data), overhead) // as buffers count them
			s.handleDatagram(&datagrams[i])
		}
		if s.unflushed >= s.flushLimit {
			s.flush()
		}
	}
}

// settleAfter is how many bytes are taken before they are answered, by a socket whose
// buffer holds so much: peers have no larger window.
func flushLimitOf(buffer int) int { return min(buffer, maxWindow) / flushShare }

// settle ends what packets began, when no more are there, or enough were taken: it
// calls for events, and then queue pairs send what is to be sent. What the calls post
// travels with the acknowledgements.
func (s *endpoint) flush() {
	for i, c := range s.fired {
		c.onEvent()
		s.fired[i] = nil
	}
	for i, q := range s.received {
		q.mu.Lock()
		q.received = false
		q.mu.Unlock()
		if f := q.schedule(true); f != nil {
			if !f.sendQueued {
				f.sendQueued = true
				s.sending = append(s.sending, f)
			}
			f.mu.Unlock()
		}
		s.received[i] = nil
	}
	for i, f := range s.sending {
		f.mu.Lock()
		f.sendQueued = false
		f.transmit()
		f.mu.Unlock()
		s.sending[i] = nil
	}
	s.fired, s.received, s.sending, s.unflushed = s.fired[:0], s.received[:0], s.sending[:0], 0
}

// take looks at the packets of a datagram. Those of one queue pair in a row, which
// all of them are as a rule, are taken under one lock.
func (s *endpoint) handleDatagram(d *udp.Datagram) {
	var h wire.Header
	var q *qp
	for rest := d.Data; len(rest) > 0; {
		b := rest[:min(d.Segment, len(rest))]
		rest = rest[len(b):]
		payload, err := h.Decode(b)
		if err != nil || h.PKey&partition != wire.DefaultPKey&partition {
			s.drops.malformed.Add(1)
			continue
		}
		if q == nil || q.number != h.DestQP {
			if q != nil {
				q.endReceive()
			}
			if q = s.provider.find(h.DestQP); q == nil {
				s.drops.unknown.Add(1)
				continue
			}
			q.mu.Lock()
			q.receiving = true
			q.machine.keys.mu.RLock()
		}
		q.handlePacketLocked(s, d, &h, b, payload)
	}
	if q != nil {
		q.endReceive()
	}
}

// partition is the part of a key that says which; the rest says how (10.9.1.1).
const partition = 0x7fff

// takeLocked is a packet for a queue pair: from its peer, whole, and in the range
// of its states, or it changes nothing but a counter.
func (q *qp) handlePacketLocked(s *endpoint, d *udp.Datagram, h *wire.Header, b, payload []byte) {
	switch {
	case q.closed || q.endpoint != s || q.machine.state != verbs.StateRTR && q.machine.state != verbs.StateRTS:
		s.drops.closed.Add(1)
		return
	case !q.source.allows(d.From):
		s.drops.source.Add(1)
		return
	}
	if q.source.fromPort != d.From.Port() {
		q.source.path = wire.NewPath(d.From, s.receiver.Addr())
		q.source.fromPort = d.From.Port()
	}
	if !q.source.path.Check(b, q.source.identifications) {
		s.drops.damaged.Add(1)
		return
	}
	if !q.received {
		q.received = true
		s.received = append(s.received, q)
	}
	if !q.source.peerIsRoCE {
		// rxe gives up after as many NAKs as it may try again, although they acknowledge
		// what came before, unless an ACK comes in between: none is passed over.
		s.unflushed = s.flushLimit
	}
	now := q.pd.dev.now()
	if d.ECN == congestionExperienced && h.Op != wire.CNP { // a CNP for a CNP would go on for ever
		q.machine.onCongestionMark(now)
	}
	q.machine.counters.received.Add(1)
	q.machine.handlePacket(now, h, payload)
}

// congestionExperienced is the ECN that a switch with a long queue sets (RFC 3168,
// section 5).
const congestionExperienced = 3

// ecnMask is what of a traffic class is ECN.
const ecnMask = 3

// rest lets go of a queue pair that took packets.
func (q *qp) endReceive() {
	q.machine.keys.mu.RUnlock()
	q.receiving = false
	q.armLocked()
	q.mu.Unlock()
}
