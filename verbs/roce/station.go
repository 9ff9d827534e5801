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
type station struct {
	provider *Provider
	addr     netip.Addr
	receiver receiver
	senders  []sender
	users    int           // devices; guarded by the provider's lock
	gone     chan struct{} // closed when a station without users is the provider's no more

	next  atomic.Uint32 // sender
	done  chan struct{} // closed by close
	drops drops
	ended sync.WaitGroup

	// Of receive's goroutine: what was begun with packets and is ended by settle.
	taken     int     // bytes of them, or settleAt where it is not to wait
	settleAt  int     // bytes that are taken at most before that
	unsettled []*qp   // took some
	sending   []*flow // that settle transmits
	fired     []*cq   // had an event, which they are to be called for

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
	roce   bool
	buffer uint64 // bytes; 0 for not known
}

func remoteOf(addr netip.Addr, e verbs.UDPEndpoint) remote {
	if e.Port == 0 {
		return remote{at: netip.AddrPortFrom(addr, wire.Port)}
	}
	return remote{at: netip.AddrPortFrom(addr, e.Port), roce: true, buffer: e.Buffer}
}

// drops counts the packets that were not taken, by the reason.
type drops struct {
	malformed, unknown, source, damaged, closed atomic.Uint64
}

func openStation(p *Provider, addr netip.Addr) (*station, error) {
	s := &station{provider: p, addr: addr, gone: make(chan struct{}), done: make(chan struct{}), flows: make(map[flowKey]*flow), peers: make(map[netip.AddrPort]*peer)}
	var err error
	if s.receiver, err = p.sys.listen(addr); err != nil {
		return nil, err
	}
	s.settleAt = settleAfter(s.receiver.Buffer())
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
	s.ended.Go(s.receive)
	return s, nil
}

// close ends the sockets, and returns when nothing is received any more.
func (s *station) close() {
	close(s.done)
	s.receiver.Close() //nolint:errcheck // nothing is lost by it
	for _, out := range s.senders {
		out.Close() //nolint:errcheck // likewise
	}
	s.ended.Wait()
}

// nextSender deals the sending sockets out in turn.
func (s *station) nextSender() int { return int(s.next.Add(1)-1) % len(s.senders) }

// flow is the one between a sending socket and a peer; it is made for its first
// queue pair and goes with its last.
func (s *station) flow(sender int, r remote, mtu uint64) *flow {
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

func (s *station) release(f *flow) {
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
func (s *station) sourceOf(r remote, ports []uint16) source {
	src := source{remote: r, ports: ports, any: !r.roce && len(ports) == 0, ids: wire.IdentificationsAny}
	if r.roce {
		src.ids = wire.IdentificationsRoCE
	}
	return src
}

// receive runs until the socket is closed.
func (s *station) receive() {
	settle := s.settle // made once: a method value allocates
	for failed := 0; ; {
		datagrams, err := s.receiver.Receive(settle)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the kernel is out of memory, or the like
			s.settle()
			s.provider.log.Warn("roce: nothing can be received", "address", s.addr, "reason", err)
			select {
			case <-time.After(time.Millisecond << min(failed, 10)):
			case <-s.done:
				return
			}
			failed++
			continue
		}
		failed = 0
		s.provider.order.receives()
		for i := range datagrams {
			s.taken += max(len(datagrams[i].Data), overhead) // as buffers count them
			s.take(&datagrams[i])
		}
		if s.taken >= s.settleAt {
			s.settle()
		}
	}
}

// settleAfter is how many bytes are taken before they are answered, by a socket whose
// buffer holds so much: peers have no larger window.
func settleAfter(buffer int) int { return min(buffer, maxWindow) / settleShare }

// settle ends what packets began, when no more are there, or enough were taken: it
// calls for events, and then queue pairs send what is to be sent. What the calls post
// travels with the acknowledgements.
func (s *station) settle() {
	for i, c := range s.fired {
		c.onEvent()
		s.fired[i] = nil
	}
	for i, q := range s.unsettled {
		q.mu.Lock()
		q.unsettled = false
		q.mu.Unlock()
		if f := q.enlist(true); f != nil {
			if !f.unsettled {
				f.unsettled = true
				s.sending = append(s.sending, f)
			}
			f.mu.Unlock()
		}
		s.unsettled[i] = nil
	}
	for i, f := range s.sending {
		f.mu.Lock()
		f.unsettled = false
		f.transmit()
		f.mu.Unlock()
		s.sending[i] = nil
	}
	s.fired, s.unsettled, s.sending, s.taken = s.fired[:0], s.unsettled[:0], s.sending[:0], 0
}

// take looks at the packets of a datagram. Those of one queue pair in a row, which
// all of them are as a rule, are taken under one lock.
func (s *station) take(d *udp.Datagram) {
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
				q.rest()
			}
			if q = s.provider.find(h.DestQP); q == nil {
				s.drops.unknown.Add(1)
				continue
			}
			q.mu.Lock()
			q.taking = true
			q.machine.keys.mu.RLock()
		}
		q.takeLocked(s, d, &h, b, payload)
	}
	if q != nil {
		q.rest()
	}
}

// partition is the part of a key that says which; the rest says how (10.9.1.1).
const partition = 0x7fff

// takeLocked is a packet for a queue pair: from its peer, whole, and in the range
// of its states, or it changes nothing but a counter.
func (q *qp) takeLocked(s *station, d *udp.Datagram, h *wire.Header, b, payload []byte) {
	switch {
	case q.closed || q.station != s || q.machine.state != verbs.StateRTR && q.machine.state != verbs.StateRTS:
		s.drops.closed.Add(1)
		return
	case !q.from.allows(d.From):
		s.drops.source.Add(1)
		return
	}
	if q.from.fromPort != d.From.Port() {
		q.from.path = wire.NewPath(d.From, s.receiver.Addr())
		q.from.fromPort = d.From.Port()
	}
	if !q.from.path.Check(b, q.from.ids) {
		s.drops.damaged.Add(1)
		return
	}
	if !q.unsettled {
		q.unsettled = true
		s.unsettled = append(s.unsettled, q)
	}
	if !q.from.roce {
		// rxe gives up after as many NAKs as it may try again, although they acknowledge
		// what came before, unless an ACK comes in between: none is passed over.
		s.taken = s.settleAt
	}
	now := q.pd.dev.now()
	if d.ECN == congestionExperienced && h.Op != wire.CNP { // a CNP for a CNP would go on for ever
		q.machine.sawCongestion(now)
	}
	q.machine.counts.received.Add(1)
	q.machine.take(now, h, payload)
}

// congestionExperienced is the ECN that a switch with a long queue sets (RFC 3168,
// section 5).
const congestionExperienced = 3

// ecnMask is what of a traffic class is ECN.
const ecnMask = 3

// rest lets go of a queue pair that took packets.
func (q *qp) rest() {
	q.machine.keys.mu.RUnlock()
	q.taking = false
	q.armLocked()
	q.mu.Unlock()
}
