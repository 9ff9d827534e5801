package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
)

// Option is an option of a socket.
type Option func(*options)

type options struct{ noOffload bool }

// NoOffload makes a socket that uses no segmentation offload and no receive coalescing.
func NoOffload() Option { return func(o *options) { o.noOffload = true } }

func apply(opts []Option) (o options) {
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Receiver is the receiving socket of a local address. Only one goroutine may call
// Receive at a time; the other methods are safe for concurrent use.
type Receiver struct {
	conn    *net.UDPConn
	reader  socketReader
	addr    netip.AddrPort
	buffer  int // as returned by getsockopt
	joins   bool
	missing []string
	taken   string // see PortTaken

	datagrams, truncated, empty, overflowed atomic.Uint64
}

// ReceiverStats are counters since the socket was opened.
type ReceiverStats struct {
	// Datagrams is the number of received datagrams; a super-packet counts as one.
	Datagrams uint64
	// Truncated and Empty are the numbers of dropped datagrams: those longer than the
	// receive space or with incomplete control messages, and those without content.
	Truncated, Empty uint64
	// Overflowed is the number of datagrams that the kernel dropped because the buffer
	// was full. The kernel reports it with the next datagram that fits.
	Overflowed uint64
}

// Listen opens the receiving socket of a local address, on port want if it is free, or
// else on any port; Addr and PortTaken then show it. The port belongs to this socket
// alone. addr must not be the unspecified address; an IPv6 link-local address needs its
// zone. Errors are of type *Error.
func Listen(addr netip.Addr, want uint16, opts ...Option) (*Receiver, error) {
	o := apply(opts)
	at := netip.AddrPortFrom(addr.Unmap(), want)
	conn, err := open(at)
	taken := ""
	if err != nil && want != 0 && isPortInUse(err) {
		at = netip.AddrPortFrom(at.Addr(), 0)
		if conn, err = open(at); err == nil {
			taken = fmt.Sprintf("port %d of %v is used by another socket, so this one uses port %d: peers that send only to port %d, as RDMA devices of kernels and NICs do, cannot reach it and use another transport",
				want, at.Addr(), localAddr(conn, at).Port(), want)
		}
	}
	if err != nil {
		return nil, &Error{Op: opListen, Addr: at, Err: err}
	}
	r := &Receiver{conn: conn, addr: localAddr(conn, at), taken: taken}
	if err := errors.Join(r.reader.init(conn), r.configure(o)); err != nil {
		_ = conn.Close() // report the first error
		return nil, &Error{Op: opListen, Addr: r.addr, Err: err}
	}
	return r, nil
}

// open opens a socket on one address. Go sets neither SO_REUSEADDR nor SO_REUSEPORT on
// it.
func open(at netip.AddrPort) (*net.UDPConn, error) {
	if !at.Addr().IsValid() || at.Addr().IsUnspecified() {
		return nil, errors.New("a socket needs a specific address of this host")
	}
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}
	return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
}

// localAddr returns the address with the port that the socket is bound to.
func localAddr(conn *net.UDPConn, at netip.AddrPort) netip.AddrPort {
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		return netip.AddrPortFrom(at.Addr(), a.AddrPort().Port())
	}
	return at
}

// Addr returns the local address.
func (r *Receiver) Addr() netip.AddrPort { return r.addr }

// Buffer is how many bytes of datagrams from all peers together the receive buffer
// holds without loss. A datagram counts with its length, and at least with MinCost.
func (r *Receiver) Buffer() int { return r.buffer / bufferShare }

// JoinedBuffer is Buffer for datagrams that arrive as super-packets of 8 KiB or more:
// sent as such over the loopback or a veth pair, or joined by the network card. It is
// larger than Buffer, or equal if the kernel has no UDP_GRO.
func (r *Receiver) JoinedBuffer() int {
	if !r.joins {
		return r.Buffer()
	}
	return r.buffer / joinedShare * 10
}

// Missing lists, in words, what the kernel refused, and what to do about it.
func (r *Receiver) Missing() []string { return r.missing }

// PortTaken describes, in words, that another socket has the wanted port, and which peers that
// concerns; empty when this socket has the port.
func (r *Receiver) PortTaken() string { return r.taken }

// Stats returns the counters.
func (r *Receiver) Stats() ReceiverStats {
	return ReceiverStats{
		Datagrams: r.datagrams.Load(), Truncated: r.truncated.Load(), Empty: r.empty.Load(),
		Overflowed: r.overflowed.Load(),
	}
}

// Datagram is the result of one receive call: one or more segments of Segment bytes
// from one sender, with the same ECN; the last segment may be shorter. A single segment
// has Segment == len(Data), at least 1.
type Datagram struct {
	// Data is valid until the next Receive with the same Batch.
	Data    []byte
	Segment int
	From    netip.AddrPort
	// ECN is the ECN field of the IP header, 0 to 3 (RFC 3168).
	ECN uint8
}

// Batch is the memory for received datagrams: 64 KiB and metadata. Only one Receive may
// use it at a time.
type Batch struct {
	n         int
	datagrams [1]Datagram
	data      []byte
	control   []byte
}

// NewBatch returns a Batch.
func NewBatch() *Batch {
	return &Batch{data: make([]byte, maxReceive), control: make([]byte, controlSpace)}
}

// Len returns the number of datagrams of the last Receive.
func (b *Batch) Len() int { return b.n }

// Datagram returns datagram i.
func (b *Batch) Datagram(i int) Datagram { return b.datagrams[i] }

// Receive blocks until a datagram arrives. It returns net.ErrClosed after Close. If
// idle is not nil, Receive calls it whenever nothing is there, before it blocks. idle
// must not close the Receiver.
func (r *Receiver) Receive(b *Batch, idle func()) error {
	b.n = 0
	for tries, dropped := 1, 0; ; {
		n, control, flags, err := r.reader.receive(b.data, b.control, idle)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || tries == readTries {
				return err
			}
			tries++
			continue
		}
		if r.parse(&b.datagrams[0], b.data[:n], b.control[:control], flags, r.reader.sender(r.addr.Addr().Zone())) {
			b.n = 1
			return nil
		}
		if dropped++; dropped%readTries == 0 && idle != nil {
			idle() // a flood of invalid datagrams must not delay the caller's other work
		}
	}
}

// parse fills d with what the kernel returned, and reports whether it is a valid
// datagram.
func (r *Receiver) parse(d *Datagram, data, control []byte, flags int, from netip.AddrPort) bool {
	switch {
	case isTruncated(flags):
		r.truncated.Add(1)
		return false
	case len(data) == 0:
		r.empty.Add(1)
		return false
	}
	c := parseControl(control)
	if c.segment <= 0 || c.segment > len(data) { // no UDP_GRO message: a single datagram
		c.segment = len(data)
	}
	if c.overflowed != 0 {
		r.overflowed.Store(uint64(c.overflowed))
	}
	r.datagrams.Add(1)
	*d = Datagram{Data: data, Segment: c.segment, From: from, ECN: c.class & ecnMask}
	return true
}

// ecnMask is the ECN part of a traffic class (RFC 3168 section 5).
const ecnMask = 3

// controlInfo is the content of a datagram's control messages; 0 for missing ones.
type controlInfo struct {
	segment    int
	class      uint8
	overflowed uint32
}

// Close closes the socket. Receive then returns net.ErrClosed.
func (r *Receiver) Close() error { return r.conn.Close() }
