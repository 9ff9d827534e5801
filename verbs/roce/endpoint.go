package roce

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// endpoint is a local address with its sockets: one that receives, and several that
// send. All queue pairs of the address share them.
//
//	kernel ──► receiveLoop ──► handleDatagram ──► machine of the queue pair ──► flow ──► kernel
//	                                                     posts, timers ──────────▲
type endpoint struct {
	provider *Provider
	addr     netip.Addr
	receiver receiver
	senders  []sender
	users    int           // open devices that use it; guarded by the provider's lock
	removed  chan struct{} // closed after the provider has removed the endpoint

	next    atomic.Uint32 // index of the next sender
	closing chan struct{} // closed by close
	drops   drops
	wg      sync.WaitGroup

	// Only for receiveLoop's goroutine: the work that received packets cause, done by
	// flush.
	unflushed  int        // bytes received since the last flush; flushLimit forces one
	flushLimit int        // bytes after which to flush
	received   []*qp      // queue pairs that received packets
	sending    []*flow    // flows that flush transmits
	fired      []*soft.CQ // completion queues with an event

	mu    sync.Mutex // guards the fields below; taken after a queue pair's
	flows map[flowKey]*flow
	peers map[netip.AddrPort]*peer
}

// peer is a remote receiving socket, whose buffer the flows to it share.
type peer struct {
	flows  atomic.Int32
	counts pathCounters
}

// flowKey identifies the two sockets of a flow.
type flowKey struct {
	sender int
	to     netip.AddrPort
}

// remote is the receiving socket of a peer.
type remote struct {
	at netip.AddrPort
	// userSpace is set if the peer is a device of this package, whose sockets were
	// exchanged at bootstrap. Otherwise it is a kernel or a NIC.
	userSpace bool
	buffer    uint64 // in bytes; 0 if unknown
}

func remoteOf(addr netip.Addr, e verbs.UDPEndpoint) remote {
	if e.Port == 0 {
		return remote{at: netip.AddrPortFrom(addr, rocewire.Port)}
	}
	return remote{at: netip.AddrPortFrom(addr, e.Port), userSpace: true, buffer: e.Buffer}
}

// drops counts dropped packets by reason.
type drops struct {
	malformed, unknown, source, damaged, closed atomic.Uint64
}

func openEndpoint(p *Provider, addr netip.Addr) (*endpoint, error) {
	e := &endpoint{provider: p, addr: addr, removed: make(chan struct{}), closing: make(chan struct{}), flows: make(map[flowKey]*flow), peers: make(map[netip.AddrPort]*peer)}
	var err error
	if e.receiver, err = p.sys.listen(addr); err != nil {
		return nil, err
	}
	e.flushLimit = flushLimitOf(e.receiver.Buffer())
	for range p.options.Senders {
		out, err := p.sys.sender(addr)
		if err != nil {
			e.close()
			return nil, err
		}
		e.senders = append(e.senders, out)
	}
	// One process of a host can have the port, and only peers with an RDMA device of their kernel
	// need it. With such a peer the transport logs why it is not reached.
	if taken := e.receiver.PortTaken(); taken != "" {
		p.log.Debug("roce: " + taken)
	}
	// Not warnings: the device works.
	for _, m := range e.receiver.Missing() {
		p.log.Info("roce: " + m)
	}
	e.wg.Go(e.receiveLoop)
	return e, nil
}

// close closes the sockets and waits for receiveLoop to end.
func (e *endpoint) close() {
	close(e.closing)
	e.receiver.Close() //nolint:errcheck // nothing can be lost
	for _, out := range e.senders {
		out.Close() //nolint:errcheck // likewise
	}
	e.wg.Wait()
}

// nextSender returns the senders in turn.
func (e *endpoint) nextSender() int { return int(e.next.Add(1)-1) % len(e.senders) }

// flow returns the flow between a sending socket and a peer, for one more queue pair.
// The first queue pair creates it, and release of the last one removes it.
func (e *endpoint) flow(sender int, r remote, mtu uint64) *flow {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := flowKey{sender, r.at}
	f := e.flows[key]
	if f == nil {
		p := e.peers[r.at]
		if p == nil {
			p = &peer{}
			e.peers[r.at] = p
		}
		p.flows.Add(1)
		f = newFlow(e, key, r, p, mtu)
		e.flows[key] = f
	}
	f.users++
	return f
}

func (e *endpoint) release(f *flow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.users--; f.users == 0 {
		delete(e.flows, f.key)
		if f.peer.flows.Add(-1) == 0 {
			delete(e.peers, f.key.to)
		}
	}
}

// originOf returns where the packets of a peer come from.
func (e *endpoint) originOf(r remote, ports []uint16) origin {
	src := origin{remote: r, ports: ports, anyPort: !r.userSpace && len(ports) == 0, identifications: rocewire.IdentificationsAny}
	if r.userSpace {
		src.identifications = rocewire.IdentificationsRoCE
	}
	return src
}

// logReceive logs that receiving fails, with the number of failures before, and with a nil err
// that it works again. A few failures pass by themselves; longer ones are a warning, once.
func (e *endpoint) logReceive(failed int, err error) {
	switch {
	case err == nil && failed > failuresWarned:
		e.provider.log.Info("roce: receiving works again", "address", e.addr, "failures", failed)
	case err == nil:
	case failed == failuresWarned:
		e.provider.log.Warn("roce: receiving fails again and again, and packets of peers are lost; check the memory of the kernel (net.ipv4.udp_mem)", "address", e.addr, "reason", err)
	default:
		e.provider.log.Debug("roce: receiving failed", "address", e.addr, "reason", err)
	}
}

// receiveLoop receives until the socket is closed.
func (e *endpoint) receiveLoop() {
	flush := e.flush // once: a method value allocates
	for failed := 0; ; {
		datagrams, err := e.receiver.Receive(flush)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example, the kernel is out of memory
			e.flush()
			e.logReceive(failed, err)
			select {
			case <-time.After(time.Millisecond << min(failed, 10)):
			case <-e.closing:
				return
			}
			failed++
			continue
		}
		if failed > 0 {
			e.logReceive(failed, nil)
			failed = 0
		}
		e.provider.order.onReceive()
		for i := range datagrams {
			e.unflushed += max(len(datagrams[i].Data), overhead) // counted as receive buffers do
			e.handleDatagram(&datagrams[i])
		}
		if e.unflushed >= e.flushLimit {
			e.flush()
		}
	}
}

// flushLimitOf returns the number of bytes after which to flush, for a socket with a
// receive buffer of that many bytes. No peer has a larger window.
func flushLimitOf(buffer int) int { return min(buffer, maxWindow) / flushShare }

// flush completes the work that received packets have caused, when no more packets are
// there, or flushLimit is reached. First it calls the handlers of events, then the
// queue pairs send, so that requests posted by the handlers travel with the ACKs.
func (e *endpoint) flush() {
	for i, c := range e.fired {
		c.Call()
		e.fired[i] = nil
	}
	for i, q := range e.received {
		q.mu.Lock()
		q.received = false
		q.mu.Unlock()
		if f := q.schedule(true); f != nil {
			if !f.sendQueued {
				f.sendQueued = true
				e.sending = append(e.sending, f)
			}
			f.mu.Unlock()
		}
		e.received[i] = nil
	}
	for i, f := range e.sending {
		f.mu.Lock()
		f.sendQueued = false
		f.transmit()
		f.mu.Unlock()
		e.sending[i] = nil
	}
	e.fired, e.received, e.sending, e.unflushed = e.fired[:0], e.received[:0], e.sending[:0], 0
}

// handleDatagram processes the packets of a datagram. It locks a queue pair once for
// consecutive packets, and usually all of them are for the same queue pair.
func (e *endpoint) handleDatagram(d *udp.Datagram) {
	var h rocewire.Header
	var q *qp
	for rest := d.Data; len(rest) > 0; {
		b := rest[:min(d.Segment, len(rest))]
		rest = rest[len(b):]
		payload, err := h.Decode(b)
		if err != nil || h.PKey&partition != rocewire.DefaultPKey&partition {
			e.drops.malformed.Add(1)
			continue
		}
		if q == nil || q.number != h.DestQP {
			if q != nil {
				q.endReceive()
			}
			if q = e.provider.find(h.DestQP); q == nil {
				e.drops.unknown.Add(1)
				continue
			}
			q.mu.Lock()
			q.receiving = true
			q.machine.keys.Mu.RLock()
		}
		q.handlePacketLocked(e, d, &h, b, payload)
	}
	if q != nil {
		q.endReceive()
	}
}

// partition is the part of a partition key that identifies the partition; the other bit
// is the membership type (10.9.1.1).
const partition = 0x7fff

// handlePacketLocked processes a packet for a queue pair. Unless it comes from the
// peer, has a right ICRC, and the queue pair is in RTR or RTS, it only increments a
// counter.
func (q *qp) handlePacketLocked(e *endpoint, d *udp.Datagram, h *rocewire.Header, b, payload []byte) {
	switch {
	case q.closed || q.endpoint != e || q.machine.state != verbs.StateRTR && q.machine.state != verbs.StateRTS:
		e.drops.closed.Add(1)
		return
	case !q.origin.allows(d.From):
		e.drops.source.Add(1)
		return
	}
	if q.origin.fromPort != d.From.Port() {
		q.origin.path = rocewire.NewPath(d.From, e.receiver.Addr())
		q.origin.fromPort = d.From.Port()
	}
	if !q.origin.path.Check(b, q.origin.identifications) {
		e.drops.damaged.Add(1)
		return
	}
	if !q.received {
		q.received = true
		e.received = append(e.received, q)
	}
	if !q.origin.userSpace {
		// Flush after this packet, so that each NAK is sent. An ACK must come between
		// two NAKs: rxe counts consecutive NAKs as retries, even if they acknowledge
		// packets, and fails at its retry count.
		e.unflushed = e.flushLimit
	}
	now := q.pd.dev.now()
	if d.ECN == congestionExperienced && h.Op != rocewire.CNP { // a CNP must not cause another CNP
		q.machine.onCongestionMark(now)
	}
	q.machine.counters.received.Add(1)
	q.machine.path.received.Add(1)
	q.machine.handlePacket(now, h, payload)
}

// congestionExperienced is the ECN value of a switch with a long queue (RFC 3168,
// section 5).
const congestionExperienced = 3

// ecnMask is the ECN part of a traffic class.
const ecnMask = 3

// endReceive unlocks a queue pair after its packets were processed.
func (q *qp) endReceive() {
	q.machine.keys.Mu.RUnlock()
	q.receiving = false
	q.armLocked()
	q.mu.Unlock()
}
