package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Destination is the address of a peer. It is created once, and all senders of a local
// address may use it.
type Destination struct {
	addr netip.AddrPort
	udp  *net.UDPAddr
	sockaddr
	noSuperPackets atomic.Bool // the path takes no super-packets
}

// NewDestination returns a Destination. An IPv6 link-local address needs its zone.
func NewDestination(to netip.AddrPort) *Destination {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	return &Destination{addr: to, udp: net.UDPAddrFromAddrPort(to), sockaddr: newSockaddr(to)}
}

// Addr returns the address.
func (d *Destination) Addr() netip.AddrPort { return d.addr }

// Message is a datagram, or a super-packet that the kernel splits into datagrams.
type Message struct {
	To *Destination
	// TOS is the traffic class: DSCP in the upper six bits, ECN in the lower two.
	TOS uint8
	// Segment is the length of each datagram in bytes; the last one may be shorter. 0
	// means one datagram with all buffers.
	Segment int
	// Buffers are the content. Datagrams may begin and end within a buffer. The memory is
	// lent until Send returns.
	Buffers [][]byte
}

// Sender is a sending socket with its own port. It is safe for concurrent use.
type Sender struct {
	conn       *net.UDPConn
	kernel     kernel
	addr       netip.AddrPort
	canSegment bool // the kernel has UDP_SEGMENT

	mu       sync.Mutex // guards the fields below
	packing  packing
	missing  []string
	reported bool // missing has an entry about super-packets

	lost, separate atomic.Uint64
}

// kernel sends the messages of a packing, from index at on, in one call, and returns
// how many it sent. An error is about the first message, and then none was sent.
type kernel interface {
	// send does not block: if the send buffer is full, its error satisfies isFull. wait
	// blocks until the socket's deadline.
	send(p *packing, at int) (int, error)
	wait(p *packing, at int) (int, error)
}

// batchWriter is ipv4.PacketConn or ipv6.PacketConn.
type batchWriter interface {
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

func newBatchWriter(conn *net.UDPConn) batchWriter {
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok && a.AddrPort().Addr().Unmap().Is6() {
		return ipv6.NewPacketConn(conn)
	}
	return ipv4.NewPacketConn(conn)
}

// SenderStats are counters since the socket was opened.
type SenderStats struct {
	// Lost is the number of messages that were dropped because the send buffer stayed
	// full for sendWait, or the kernel had no memory.
	Lost uint64
	// Separate is the number of messages of several segments that were sent as one
	// datagram for each segment.
	Separate uint64
}

// NewSender opens a sending socket on a local address. Errors are of type *Error.
func NewSender(addr netip.Addr, opts ...Option) (*Sender, error) {
	at := netip.AddrPortFrom(addr.Unmap(), 0)
	conn, err := open(at)
	if err != nil {
		return nil, &Error{Op: opOpen, Addr: at, Err: err}
	}
	s := &Sender{conn: conn, addr: localAddr(conn, at)}
	if s.kernel, err = newKernel(conn); err == nil {
		err = s.configure(apply(opts))
	}
	if err != nil {
		_ = conn.Close() // report the first error
		return nil, &Error{Op: opOpen, Addr: s.addr, Err: err}
	}
	return s, nil
}

// Addr returns the local address.
func (s *Sender) Addr() netip.AddrPort { return s.addr }

// Missing lists, in words, what the kernel has refused so far, and what to do about it.
func (s *Sender) Missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.missing)
}

// Stats returns the counters.
func (s *Sender) Stats() SenderStats {
	return SenderStats{Lost: s.lost.Load(), Separate: s.separate.Load()}
}

// MaxSegments returns how many segments of a length in bytes a message may have: 1 if
// the kernel or the path to d takes no super-packets. The result may drop to 1 while
// messages are sent; it never grows.
func (s *Sender) MaxSegments(d *Destination, segment int) int {
	if !s.canSegment || segment <= 0 || d.noSuperPackets.Load() {
		return 1
	}
	return max(min(maxSegments, maxPayload/segment), 1)
}

// Send sends messages in order, and returns how many. An error is about the first
// message that was not sent; later ones may still be sent. It is an *Error that wraps
//
//   - ErrTooBig when a segment is longer than the path MTU,
//   - EPERM, ENETUNREACH, EHOSTUNREACH and others of the system, for that destination,
//   - net.ErrClosed after Close.
//
// If the send buffer stays full, Send returns no error, but counts the messages as lost
// (SenderStats.Lost). If the kernel does not take a message as a super-packet, Send
// sends one datagram for each segment, all with identification 0; from then on
// MaxSegments of that destination is 1.
func (s *Sender) Send(msgs []Message) (sent int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sent < len(msgs) {
		n, err := s.sendSome(msgs[sent:])
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// sendSome sends the first message, and those after it that can go in the same call of
// the kernel.
func (s *Sender) sendSome(msgs []Message) (int, error) {
	p := &s.packing
	p.reset()
	for i := range msgs[:min(len(msgs), maxSegments)] {
		m := &msgs[i]
		n := length(m.Buffers)
		segment := m.Segment
		if n <= segment {
			segment = 0 // a single datagram
		}
		cut := segment > 0 && (!s.canSegment || m.To.noSuperPackets.Load())
		if i > 0 && cut {
			break // in the next call
		}
		if err := s.check(m, n); err != nil {
			if i > 0 {
				break // send those before it first
			}
			return 0, err
		}
		if cut {
			return s.sendSegments(m)
		}
		p.add(m, segment, m.Buffers)
	}
	n, err := s.write(0)
	if err == nil {
		return n, nil
	}
	m := &msgs[0]
	if m.Segment == 0 || length(m.Buffers) <= m.Segment || !refusesSegments(err) {
		return 0, s.explain(m, err)
	}
	refused := err
	if n, err = s.sendSegments(m); err == nil && m.To.noSuperPackets.CompareAndSwap(false, true) && !s.reported {
		s.reported = true
		s.missing = append(s.missing, fmt.Sprintf("the path to %v, and perhaps others, takes no super-packets (%v), so each datagram is sent alone: check tx-checksumming and tx-udp-segmentation of its interface (ethtool -k)",
			m.To.addr, refused))
	}
	return n, err
}

// sendSegments sends each segment of a message as a datagram.
func (s *Sender) sendSegments(m *Message) (int, error) {
	s.packing.reset()
	s.packing.addSegments(m)
	for at := 0; at < s.packing.n; {
		n, err := s.write(at)
		if err != nil {
			return 0, s.explain(m, err)
		}
		at += n
	}
	s.separate.Add(1)
	return 1, nil
}

// check returns an error for a message that no kernel would take. n is its length.
func (s *Sender) check(m *Message, n int) error {
	switch {
	case m.To.addr.Addr().Is4() != s.addr.Addr().Is4():
		return &Error{Op: opSend, Addr: m.To.addr, Err: fmt.Errorf("its address family differs from that of the socket, which is on %v", s.addr.Addr())}
	case n == 0:
		return &Error{Op: opSend, Addr: m.To.addr, Err: errors.New("the message is empty")}
	case m.Segment < 0 || n > maxPayload || m.Segment > 0 && (n+m.Segment-1)/m.Segment > maxSegments:
		return &Error{Op: opSend, Addr: m.To.addr, Err: fmt.Errorf("the message has %d bytes in segments of %d; the limits are %d bytes and %d segments",
			n, m.Segment, maxPayload, maxSegments)}
	}
	return nil
}

// write sends the packed messages from index at on, and returns how many the kernel
// took. A message that finds no space within sendWait is lost, and counts as taken.
func (s *Sender) write(at int) (int, error) {
	n, err := s.kernel.send(&s.packing, at)
	if err == nil || n > 0 {
		return n, nil
	}
	if isFull(err) {
		_ = s.conn.SetWriteDeadline(time.Now().Add(sendWait)) // if the socket is closed, wait reports it
		n, err = s.kernel.wait(&s.packing, at)
		_ = s.conn.SetWriteDeadline(time.Time{})
		if err == nil || n > 0 {
			return n, nil
		}
	}
	if isFull(err) || errors.Is(err, os.ErrDeadlineExceeded) {
		s.lost.Add(1)
		return 1, nil
	}
	return 0, err
}

// explain returns the error for a message that the kernel did not take.
func (s *Sender) explain(m *Message, err error) error {
	e := &Error{Op: opSend, Addr: m.To.addr, Err: err}
	if isTooBig(err) {
		segment := m.Segment
		if n := length(m.Buffers); segment == 0 || n < segment {
			segment = n
		}
		mtu, _ := PathMTU(s.addr.Addr(), m.To.addr) // 0: unknown
		e.Err = &tooBigError{segment: segment, mtu: mtu, err: err}
		e.Hint = "use a smaller MTU for the queue pairs, or raise the MTU of the path"
	}
	return e
}

// Close closes the socket. Send then returns net.ErrClosed.
func (s *Sender) Close() error { return s.conn.Close() }

// PathMTU returns the MTU of the path from a local address to another one, in bytes of
// IP packets, as far as the kernel knows it: the MTU of the interface, or less if a
// router has reported that. It sends nothing. The error is errors.ErrUnsupported on
// systems without this information.
func PathMTU(from netip.Addr, to netip.AddrPort) (int, error) { return pathMTU(from, to) }

// MaxDatagram returns the maximum length of a datagram to an address, for a path MTU in
// bytes.
func MaxDatagram(mtu int, to netip.Addr) int {
	if to.Unmap().Is4() {
		return mtu - ip4Header - udpHeader
	}
	return mtu - ip6Header - udpHeader
}

func length(buffers [][]byte) (n int) {
	for _, p := range buffers {
		n += len(p)
	}
	return n
}
