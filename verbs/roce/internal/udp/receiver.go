package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
)

// Option changes how a socket is made.
type Option func(*options)

type options struct{ plain bool }

// Plain makes a socket that asks the kernel for no offload, as if it had none.
func Plain() Option { return func(o *options) { o.plain = true } }

func chosen(opts []Option) (o options) {
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Receiver is the one receiving socket of a local address. One goroutine receives;
// the other methods may be called at any time.
type Receiver struct {
	conn    *net.UDPConn
	direct  directReceiver
	addr    netip.AddrPort
	buffer  int // as getsockopt returned it
	joins   bool
	missing []string

	datagrams, truncated, empty, overflowed atomic.Uint64
}

// ReceiverStats count what came, since the socket was made.
type ReceiverStats struct {
	// Datagrams is how many were received, a super-packet as one.
	Datagrams uint64
	// Truncated were longer than a datagram can be here, or came without their
	// whole control messages. They were dropped, and so were the Empty ones.
	Truncated, Empty uint64
	// Overflowed is what the kernel dropped since the buffer was full, as far as
	// it has told: it tells with the next datagram that fits.
	Overflowed uint64
}

// Listen makes the receiving socket of a local address: on port want when that is
// free, else on any other, which Addr and Missing tell. The port belongs to this
// socket alone. addr is one address, of IPv4 or IPv6; an IPv6 address of a link
// needs its zone. Errors are *Error.
func Listen(addr netip.Addr, want uint16, opts ...Option) (*Receiver, error) {
	o := chosen(opts)
	at := netip.AddrPortFrom(addr.Unmap(), want)
	conn, err := open(at)
	var missing []string
	if err != nil && want != 0 && isTaken(err) {
		at = netip.AddrPortFrom(at.Addr(), 0)
		if conn, err = open(at); err == nil {
			missing = append(missing, fmt.Sprintf("port %d of %v is taken by another socket, so this one has port %d: who sends to port %d only does not reach it",
				want, at.Addr(), localOf(conn, at).Port(), want))
		}
	}
	if err != nil {
		return nil, &Error{Op: opListen, Addr: at, Err: err}
	}
	r := &Receiver{conn: conn, addr: localOf(conn, at), missing: missing}
	if err := errors.Join(r.direct.init(conn), r.configure(o)); err != nil {
		_ = conn.Close() // the error is the other one
		return nil, &Error{Op: opListen, Addr: r.addr, Err: err}
	}
	return r, nil
}

// open makes a socket of one address. Go sets neither SO_REUSEADDR nor
// SO_REUSEPORT on it.
func open(at netip.AddrPort) (*net.UDPConn, error) {
	if !at.Addr().IsValid() || at.Addr().IsUnspecified() {
		return nil, errors.New("a socket needs one address of this host")
	}
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}
	return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
}

// localOf is where the socket is bound; at is what was asked for.
func localOf(conn *net.UDPConn, at netip.AddrPort) netip.AddrPort {
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		return netip.AddrPortFrom(at.Addr(), a.AddrPort().Port())
	}
	return at
}

// Addr is where it receives.
func (r *Receiver) Addr() netip.AddrPort { return r.addr }

// Buffer is how many bytes of datagrams under way the receive buffer holds without
// loss, as peers are told: a datagram counts with its length, and with LeastCost
// when it is shorter. All peers share it.
func (r *Receiver) Buffer() int { return r.buffer / bufferShare }

// JoinedBuffer is the same for datagrams that come as super-packets of 8 KiB and
// more: from senders that send such, over the loopback, a veth pair, or a network
// card that joins them again. It is more, and Buffer where the kernel has no
// UDP_GRO.
func (r *Receiver) JoinedBuffer() int {
	if !r.joins {
		return r.Buffer()
	}
	return r.buffer / joinedShare * 10
}

// Missing says in words what the kernel refused, and what to do about it.
func (r *Receiver) Missing() []string { return r.missing }

// Stats returns what was counted.
func (r *Receiver) Stats() ReceiverStats {
	return ReceiverStats{
		Datagrams: r.datagrams.Load(), Truncated: r.truncated.Load(), Empty: r.empty.Load(),
		Overflowed: r.overflowed.Load(),
	}
}

// Datagram is what one call of the kernel gave: one or more segments of Segment
// bytes each, from one sender with one ECN; the last may be shorter. A single one
// has Segment == len(Data), which is at least 1.
type Datagram struct {
	// Data is lent until the next Receive with the same Batch.
	Data    []byte
	Segment int
	From    netip.AddrPort
	// ECN is the congestion field of the IP header, 0 to 3 (RFC 3168).
	ECN uint8
}

// Batch is the memory of received datagrams: 64 KiB and what belongs to them. It
// serves one Receive at a time.
type Batch struct {
	n         int
	datagrams [1]Datagram
	data      []byte
	control   []byte
}

// NewBatch makes one.
func NewBatch() *Batch {
	return &Batch{data: make([]byte, maxReceive), control: make([]byte, controlRoom)}
}

// Len is how many datagrams the last Receive brought.
func (b *Batch) Len() int { return b.n }

// Datagram returns the i-th.
func (b *Batch) Datagram(i int) Datagram { return b.datagrams[i] }

// Receive blocks until something is there and takes it. It returns net.ErrClosed
// after Close. idle, unless it is nil, is called when nothing is there, before it
// waits: as often as that is seen. It must not close the Receiver.
func (r *Receiver) Receive(b *Batch, idle func()) error {
	b.n = 0
	for tries, dropped := 1, 0; ; {
		n, control, flags, err := r.direct.receive(b.data, b.control, idle)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || tries == readTries {
				return err
			}
			tries++
			continue
		}
		if r.take(&b.datagrams[0], b.data[:n], b.control[:control], flags, r.direct.sender(r.addr.Addr().Zone())) {
			b.n = 1
			return nil
		}
		if dropped++; dropped%readTries == 0 && idle != nil {
			idle() // who floods the socket with what is nothing does not hold up the rest
		}
	}
}

// take makes a datagram of what the kernel gave, and says whether it is one.
func (r *Receiver) take(d *Datagram, data, control []byte, flags int, from netip.AddrPort) bool {
	switch {
	case isTruncated(flags):
		r.truncated.Add(1)
		return false
	case len(data) == 0:
		r.empty.Add(1)
		return false
	}
	c := parseControl(control)
	if c.segment <= 0 || c.segment > len(data) { // not there: it is one datagram
		c.segment = len(data)
	}
	if c.overflowed != 0 {
		r.overflowed.Store(uint64(c.overflowed))
	}
	r.datagrams.Add(1)
	*d = Datagram{Data: data, Segment: c.segment, From: from, ECN: c.class & ecnMask}
	return true
}

// ecnMask is what of a traffic class is ECN (RFC 3168 section 5).
const ecnMask = 3

// received is what the control messages of a datagram say; zero for what they do
// not.
type received struct {
	segment    int
	class      uint8
	overflowed uint32
}

// Close ends Receive, now and later.
func (r *Receiver) Close() error { return r.conn.Close() }
