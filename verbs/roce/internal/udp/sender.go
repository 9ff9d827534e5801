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

// Destination is where messages go: made once for a peer, used by any number of
// senders of one local address.
type Destination struct {
	addr netip.AddrPort
	udp  *net.UDPAddr
	sockaddr
	plain atomic.Bool // the way there takes no super-packets
}

// NewDestination makes one. An IPv6 address of a link needs its zone.
func NewDestination(to netip.AddrPort) *Destination {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	return &Destination{addr: to, udp: net.UDPAddrFromAddrPort(to), sockaddr: newSockaddr(to)}
}

// Addr is its address.
func (d *Destination) Addr() netip.AddrPort { return d.addr }

// Message is a datagram, or a super-packet of several that the kernel cuts.
type Message struct {
	To *Destination
	// TOS is the whole byte of traffic class: DSCP in the upper six bits, ECN in
	// the lower two.
	TOS uint8
	// Segment is the length of each datagram in bytes; the last one may be
	// shorter. 0 for one datagram of all the pieces.
	Segment int
	// Pieces are the bytes, one after the other, cut without regard to where a
	// piece ends. They are lent until Send returns.
	Pieces [][]byte
}

// Sender is one sending socket, with a port of its own. Any number of goroutines
// may send; they go in one after the other.
type Sender struct {
	conn    *net.UDPConn
	kernel  kernel
	addr    netip.AddrPort
	segment bool // the kernel has UDP_SEGMENT

	mu      sync.Mutex // guards what follows
	room    packing
	missing []string
	told    bool // that a way takes no super-packets

	lost, plain atomic.Uint64
}

// kernel takes the messages of a packing from the at-th on, in one call, and says how
// many; an error is about the first, and then none was taken.
type kernel interface {
	// send gives isFull where wait waits for room, until the socket's deadline.
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

// SenderStats count since the socket was made.
type SenderStats struct {
	// Lost are the messages that found the send buffer full for sendWait or the
	// kernel without memory. Nobody was told.
	Lost uint64
	// Plain are the messages of several segments that went as one datagram a
	// segment.
	Plain uint64
}

// NewSender makes a sending socket at a local address. Errors are *Error.
func NewSender(addr netip.Addr, opts ...Option) (*Sender, error) {
	at := netip.AddrPortFrom(addr.Unmap(), 0)
	conn, err := open(at)
	if err != nil {
		return nil, &Error{Op: opOpen, Addr: at, Err: err}
	}
	s := &Sender{conn: conn, addr: localOf(conn, at)}
	if s.kernel, err = newKernel(conn); err == nil {
		err = s.configure(chosen(opts))
	}
	if err != nil {
		_ = conn.Close() // the error is the other one
		return nil, &Error{Op: opOpen, Addr: s.addr, Err: err}
	}
	return s, nil
}

// Addr is where its datagrams come from.
func (s *Sender) Addr() netip.AddrPort { return s.addr }

// Missing says in words what the kernel refused, so far.
func (s *Sender) Missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.missing)
}

// Stats returns what was counted.
func (s *Sender) Stats() SenderStats {
	return SenderStats{Lost: s.lost.Load(), Plain: s.plain.Load()}
}

// MaxSegments is how many segments of a length in bytes one message may have: 1
// where the kernel, or the way to d, takes no super-packets. It may become 1 while
// messages are sent, and is never more than it was.
func (s *Sender) MaxSegments(d *Destination, segment int) int {
	if !s.segment || segment <= 0 || d.plain.Load() {
		return 1
	}
	return max(min(maxSegments, maxPayload/segment), 1)
}

// Send hands messages to the kernel, in order, and returns how many. An error is
// about the first that is not among them, and says why it cannot be sent: nothing
// is wrong with the socket, and those behind it may be tried. It is *Error, and
//
//   - ErrTooBig when a segment is longer than the path MTU,
//   - of the system's EPERM, ENETUNREACH, EHOSTUNREACH and others, for that
//     destination,
//   - net.ErrClosed after Close.
//
// A send buffer that stays full is no error: the messages count as lost on the way
// (SenderStats.Lost). A message that the kernel does not take as a super-packet
// goes as one datagram a segment, all of identification 0; from then on
// MaxSegments of its destination is 1.
func (s *Sender) Send(msgs []Message) (sent int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sent < len(msgs) {
		n, err := s.some(msgs[sent:])
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// some sends the first message and what can go with it in one call of the kernel,
// or says why not.
func (s *Sender) some(msgs []Message) (int, error) {
	p := &s.room
	p.reset()
	for i := range msgs[:min(len(msgs), maxSegments)] {
		m := &msgs[i]
		n := length(m.Pieces)
		segment := m.Segment
		if n <= segment {
			segment = 0 // it is one datagram
		}
		cut := segment > 0 && (!s.segment || m.To.plain.Load())
		if i > 0 && cut {
			break // later
		}
		if err := s.check(m, n); err != nil {
			if i > 0 {
				break // those before it come first
			}
			return 0, err
		}
		if cut {
			return s.cut(m)
		}
		p.add(m, segment, m.Pieces)
	}
	n, err := s.write(0)
	if err == nil {
		return n, nil
	}
	m := &msgs[0]
	if m.Segment == 0 || length(m.Pieces) <= m.Segment || !refusesSegments(err) {
		return 0, s.explain(m, err)
	}
	refused := err
	if n, err = s.cut(m); err == nil && m.To.plain.CompareAndSwap(false, true) && !s.told {
		s.told = true
		s.missing = append(s.missing, fmt.Sprintf("the way to %v, and perhaps others, takes no super-packets (%v), so each datagram is sent alone: see tx-checksumming and tx-udp-segmentation of its interface (ethtool -k)",
			m.To.addr, refused))
	}
	return n, err
}

// cut sends a message segment by segment.
func (s *Sender) cut(m *Message) (int, error) {
	s.room.reset()
	s.room.cut(m)
	for at := 0; at < s.room.n; {
		n, err := s.write(at)
		if err != nil {
			return 0, s.explain(m, err)
		}
		at += n
	}
	s.plain.Add(1)
	return 1, nil
}

// check refuses what no kernel would take. n is the length.
func (s *Sender) check(m *Message, n int) error {
	switch {
	case m.To.addr.Addr().Is4() != s.addr.Addr().Is4():
		return &Error{Op: opSend, Addr: m.To.addr, Err: fmt.Errorf("it is not of the family of %v, where the socket is", s.addr.Addr())}
	case n == 0:
		return &Error{Op: opSend, Addr: m.To.addr, Err: errors.New("there is nothing in the message")}
	case m.Segment < 0 || n > maxPayload || m.Segment > 0 && (n+m.Segment-1)/m.Segment > maxSegments:
		return &Error{Op: opSend, Addr: m.To.addr, Err: fmt.Errorf("a message of %d bytes in segments of %d; the most are %d bytes and %d segments",
			n, m.Segment, maxPayload, maxSegments)}
	}
	return nil
}

// write hands the packed messages from the at-th on to the kernel and says how many
// it took. What finds no room within sendWait is lost, and counts as taken.
func (s *Sender) write(at int) (int, error) {
	n, err := s.kernel.send(&s.room, at)
	if err == nil || n > 0 {
		return n, nil
	}
	if isFull(err) {
		_ = s.conn.SetWriteDeadline(time.Now().Add(sendWait)) // of a closed socket the write tells
		n, err = s.kernel.wait(&s.room, at)
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

// explain makes words of why the kernel did not take a message.
func (s *Sender) explain(m *Message, err error) error {
	e := &Error{Op: opSend, Addr: m.To.addr, Err: err}
	if isTooBig(err) {
		segment := m.Segment
		if n := length(m.Pieces); segment == 0 || n < segment {
			segment = n
		}
		mtu, _ := PathMTU(s.addr.Addr(), m.To.addr) // 0: nobody knows
		e.Err = &tooBig{segment: segment, mtu: mtu, err: err}
		e.Hint = "take a smaller MTU for the queue pairs, or a larger one on the way there"
	}
	return e
}

// Close ends Send, now and later.
func (s *Sender) Close() error { return s.conn.Close() }

// PathMTU is what the kernel knows of the path from a local address to another, in
// bytes of IP packets: the MTU of the interface, or less where a router has said
// so. Nothing is sent. errors.ErrUnsupported where the system does not tell.
func PathMTU(from netip.Addr, to netip.AddrPort) (int, error) { return pathMTU(from, to) }

// MaxDatagram is the longest datagram for a path MTU in bytes and an address.
func MaxDatagram(mtu int, to netip.Addr) int {
	if to.Unmap().Is4() {
		return mtu - ip4Header - udpHeader
	}
	return mtu - ip6Header - udpHeader
}

func length(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}
