package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// control4112 is the control message for segments of 4112 bytes.
func control4112() []byte { return appendControl(nil, false, 4112, 0)[:unix.CmsgLen(2)] }

// The layout is that of cmsg(3), as another parser reads it.
func TestControlMessages(t *testing.T) {
	for _, six := range []bool{false, true} {
		for _, segment := range []int{0, 1, 4112, maxPayload} {
			b := appendControl(nil, six, segment, 0xb9)
			if len(b) > controlSpace {
				t.Fatalf("%d bytes, and there is space for %d", len(b), controlSpace)
			}
			msgs, err := unix.ParseSocketControlMessage(b)
			if err != nil {
				t.Fatal(err)
			}
			if segment > 0 {
				m := msgs[0]
				if m.Header.Level != unix.SOL_UDP || m.Header.Type != unix.UDP_SEGMENT || int(binary.NativeEndian.Uint16(m.Data)) != segment {
					t.Errorf("segment size: %+v", m)
				}
				msgs = msgs[1:]
			}
			level, kind := int32(unix.IPPROTO_IP), int32(unix.IP_TOS)
			if six {
				level, kind = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
			}
			if len(msgs) != 1 || msgs[0].Header.Level != level || msgs[0].Header.Type != kind || binary.NativeEndian.Uint32(msgs[0].Data) != 0xb9 {
				t.Errorf("traffic class: %+v", msgs)
			}
		}
	}
}

// Whatever the control messages contain, a datagram has at least one segment, and none
// longer than itself.
func FuzzControl(f *testing.F) {
	gro := func(n uint32) []byte {
		return align(binary.NativeEndian.AppendUint32(appendHeader(nil, unix.SOL_UDP, unix.UDP_GRO, 4), n))
	}
	f.Add([]byte{}, 1)
	f.Add(gro(4112), 9000)
	f.Add(gro(0), 9000)
	f.Add(gro(1<<31), 9000)
	f.Add(append(gro(4112), appendControl(nil, false, 0, 3)...), 4112)
	f.Add(append(gro(4113), appendControl(nil, true, 0, 0xff)...), 4112)
	f.Add(align(append(appendHeader(nil, unix.SOL_UDP, unix.UDP_GRO, 1), 7)), 9000)
	f.Add(appendHeader(nil, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1<<30), 9000)
	f.Fuzz(func(t *testing.T, control []byte, n int) {
		var r Receiver
		var d Datagram
		data := make([]byte, min(max(n, 0), maxReceive))
		if !r.parse(&d, data, control, 0, netip.AddrPort{}) {
			if len(data) != 0 {
				t.Fatal("it is dropped")
			}
			return
		}
		if d.Segment < 1 || d.Segment > len(data) || len(d.Data) != len(data) || d.ECN > 3 {
			t.Errorf("%d bytes: %+v", len(data), d.Segment)
		}
	})
}

// A missing or invalid segment size makes a single datagram.
func TestInvalidSegmentSize(t *testing.T) {
	var r Receiver
	var d Datagram
	for _, size := range []uint32{0, 9001, 1 << 31, 1<<32 - 1} {
		control := align(binary.NativeEndian.AppendUint32(appendHeader(nil, unix.SOL_UDP, unix.UDP_GRO, 4), size))
		if !r.parse(&d, make([]byte, 9000), control, 0, netip.AddrPort{}) || d.Segment != 9000 {
			t.Errorf("size %d: segments of %d", size, d.Segment)
		}
	}
}

// Truncated datagrams, those with truncated control messages, and empty ones are
// dropped and counted.
func TestTruncatedAndEmptyAreDropped(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		bound(t, r)
		to := NewDestination(r.Addr())
		b := NewBatch()
		receive := func(want byte, n int) {
			t.Helper()
			if err := r.Receive(b, nil); err != nil {
				t.Fatal(err)
			}
			if d := b.Datagram(0); b.Len() != 1 || len(d.Data) != n || d.Data[0] != want {
				t.Errorf("%d bytes with %d, want %d with %d", len(d.Data), d.Data[0], n, want)
			}
		}
		// No datagram exceeds a Batch, so make the Batch smaller.
		b.data = b.data[:100]
		send(t, s, Message{To: to, Buffers: [][]byte{make([]byte, 101)}}, Message{To: to, Buffers: [][]byte{bytes.Repeat([]byte{7}, 100)}})
		receive(7, 100)
		send(t, s, Message{To: to, TOS: 3, Buffers: [][]byte{{8}}})
		n, control, flags, from, err := r.conn.ReadMsgUDPAddrPort(b.data, b.control[:unix.CmsgSpace(0)])
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if r.parse(&b.datagrams[0], b.data[:n], b.control[:control], flags, from) {
			t.Error("a datagram without its control messages is taken")
		}
		if got := r.Stats(); got.Truncated != 2 || got.Datagrams != 1 {
			t.Errorf("%+v, want 2 truncated and 1 datagram", got)
		}
	})
}

func TestEmptyIsDropped(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		if _, err := s.conn.WriteToUDPAddrPort(nil, r.Addr()); err != nil {
			t.Fatal(err)
		}
		send(t, s, Message{To: NewDestination(r.Addr()), Buffers: [][]byte{{5}}})
		if got, _ := segments(t, r, 1); !bytes.Equal(got[0], []byte{5}) {
			t.Errorf("received %v", got)
		}
		if got := r.Stats(); got.Empty != 1 || got.Datagrams != 1 {
			t.Errorf("%+v, want one of each", got)
		}
	})
}

// A path that takes no super-packets is detected once, and reported once.
func TestRefusedSuperPacketIsSentAsDatagrams(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EINVAL} {
		t.Run(errno.Error(), func(t *testing.T) {
			r, s := ends(t, loopbacks["IPv4"])
			super := func(m *ipv4.Message) error {
				if bytes.Contains(m.OOB, control4112()) {
					return errno
				}
				return nil
			}
			d := disturb(s, super)
			to, other := NewDestination(r.Addr()), NewDestination(r.Addr())
			if !s.canSegment {
				t.Skip("this system has no UDP_SEGMENT")
			}
			if n := s.MaxSegments(to, 4112); n != 15 {
				t.Fatalf("%d segments of 4112 bytes in one message, want 15", n)
			}
			message := Message{To: to, Segment: 4112, Buffers: [][]byte{pattern(4112*3 + 7)}}
			lone := Message{To: to, Buffers: [][]byte{pattern(9)}}
			send(t, s, lone, message, lone, message, lone)
			if got, _ := segments(t, r, 4+1+4+1+1); len(got[0]) != 9 || len(got[1]) != 4112 || len(got[4]) != 7 || len(got[5]) != 9 {
				t.Error("the order or the lengths differ")
			}
			if n := s.MaxSegments(to, 4112); n != 1 {
				t.Errorf("%d segments in one message after that, want 1", n)
			}
			if n := s.MaxSegments(other, 4112); n != 15 {
				t.Errorf("%d segments in one message elsewhere, want 15", n)
			}
			calls := d.calls
			send(t, s, message)
			segments(t, r, 4)
			if d.calls != calls+1 {
				t.Errorf("%d calls for a message that has to be cut, want 1", d.calls-calls)
			}
			message.To = other
			send(t, s, message)
			segments(t, r, 4)
			if told := s.Missing(); len(told) != 1 || !strings.Contains(told[0], to.Addr().String()) {
				t.Errorf("the log is %q, want one line", told)
			}
			if got := s.Stats(); got.Separate != 4 || got.Lost != 0 {
				t.Errorf("%+v, want 4 plain", got)
			}
		})
	}
}

func TestECNArrives(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		to := NewDestination(r.Addr())
		var msgs []Message
		for tos := range 256 {
			msgs = append(msgs, Message{To: to, TOS: uint8(tos), Buffers: [][]byte{{uint8(tos)}}}) //nolint:gosec // modulo 256
		}
		msgs = append(msgs, msgs[1:]...) // so that a cached control message is used for other messages
		send(t, s, msgs...)
		got, ecn := segments(t, r, len(msgs))
		for i := range got {
			if ecn[i] != got[i][0]&3 {
				t.Errorf("TOS %#x arrived with ECN %d", got[i][0], ecn[i])
			}
		}
	})
}

// The kernel refuses super-packets on a socket without checksums, as on an interface
// without them: they are sent as single datagrams.
func TestKernelRefusesSuperPackets(t *testing.T) {
	r, s := ends(t, loopbacks["IPv4"])
	if err := withFD(s.conn, func(fd int) error { return setOption(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1, "SO_NO_CHECK") }); err != nil {
		t.Fatal(err)
	}
	to := NewDestination(r.Addr())
	send(t, s, Message{To: to, Segment: 4112, Buffers: [][]byte{pattern(4112 * 3)}})
	segments(t, r, 3)
	if s.MaxSegments(to, 4112) != 1 || len(s.Missing()) != 1 || !strings.Contains(s.Missing()[0], "invalid argument") {
		t.Errorf("%d segments, missing: %q", s.MaxSegments(to, 4112), s.Missing())
	}
}

// A segment that is longer than the path MTU is an error that names both.
func TestLongerThanThePathMTU(t *testing.T) {
	for way, opts := range modes {
		t.Run(way, func(t *testing.T) {
			r, s := ends(t, loopbacks["IPv6"], opts...)
			to := NewDestination(r.Addr())
			// IPV6_MTU is the only way to lower the MTU of a loopback socket.
			if err := withFD(s.conn, func(fd int) error { return setOption(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU, 1500, "IPV6_MTU") }); err != nil {
				t.Fatal(err)
			}
			for _, m := range []Message{
				{To: to, Segment: 4112, Buffers: [][]byte{pattern(4112 * 2)}},
				{To: to, Segment: 4112, Buffers: [][]byte{pattern(4112)}},
				{To: to, Buffers: [][]byte{pattern(4112)}},
			} {
				n, err := s.Send([]Message{m})
				if n != 0 || !errors.Is(err, ErrTooBig) || !errors.Is(err, syscall.EMSGSIZE) ||
					!strings.Contains(err.Error(), "a datagram of 4112 bytes does not fit into the path MTU of") {
					t.Errorf("%d sent: %v", n, err)
				}
			}
			segment := MaxDatagram(1500, to.Addr().Addr())
			send(t, s, Message{To: to, Segment: segment, Buffers: [][]byte{pattern(segment * 3)}})
			segments(t, r, 3)
			if n := s.MaxSegments(to, segment); way == "offload" && n == 1 {
				t.Error("super-packets are disabled for it")
			}
		})
	}
}

func TestPathMTU(t *testing.T) {
	eachFamily(t, func(t *testing.T, addr netip.Addr) {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		if mtu, err := PathMTU(addr, netip.AddrPortFrom(addr, 4791)); err != nil || mtu != min(lo.MTU, 65536) && mtu != min(lo.MTU, 65535) { // IPv4's maximum is one less
			t.Errorf("%d, %v, want %d", mtu, err, lo.MTU)
		}
	})
	if n := MaxDatagram(1500, loopbacks["IPv4"]); n != 1472 {
		t.Errorf("a packet of 1500 bytes has space for %d", n)
	}
	if n := MaxDatagram(1500, loopbacks["IPv6"]); n != 1452 {
		t.Errorf("a packet of 1500 bytes has space for %d", n)
	}
}

// On IPv4: don't fragment, identification 0 (see the package comment), and received
// packets that nobody reads take no memory.
func TestSenderOptions(t *testing.T) {
	eachFamily(t, func(t *testing.T, addr netip.Addr) {
		_, s := ends(t, addr)
		level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
		if addr.Is6() {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
		}
		if err := withFD(s.conn, func(fd int) error {
			if v, err := unix.GetsockoptInt(fd, level, option); err != nil || v != unix.IP_PMTUDISC_DO {
				return fmt.Errorf("path MTU discovery is %d, %w", v, err)
			}
			if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil || v > 1<<14 {
				return fmt.Errorf("the receive buffer is %d, %w", v, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// No other socket can receive the packets of a port.
func TestPortIsNotShared(t *testing.T) {
	eachFamily(t, func(t *testing.T, addr netip.Addr) {
		r, s := ends(t, addr)
		for _, c := range []*net.UDPConn{r.conn, s.conn} {
			if err := withFD(c, func(fd int) error {
				for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
					if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil || v != 0 {
						return fmt.Errorf("option %d is %d, %w", option, v, err)
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
}

// The receive buffer holds what Buffer promises, for datagrams of any length, while a
// reader keeps up.
func TestBufferHoldsWhatItPromises(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		for _, c := range []struct{ size, segments int }{{1, 1}, {256, 1}, {272, 15}, {MinCost, 1}, {1040, 1}, {1040, 15}, {2064, 1}, {4112, 1}, {4112, 2}, {4112, 15}, {1040, 62}, {9000, 1}} {
			t.Run(fmt.Sprintf("%d times %d", c.segments, c.size), func(t *testing.T) {
				r, s := ends(t, addr, opts...)
				bound(t, r)
				var held int // with the usual net.core.rmem_max
				if err := withFD(r.conn, func(fd int) (err error) {
					if err = setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 208<<10, "SO_RCVBUF"); err == nil {
						held, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
				cost, n := max(c.size, MinCost), c.segments
				r.buffer = held
				held = r.Buffer()
				if n > 1 && n*c.size >= 8<<10 {
					cost, held = c.size, r.JoinedBuffer()
				}
				if len(opts) > 0 && r.JoinedBuffer() != r.Buffer() {
					t.Error("the buffer is that for super-packets, which will not arrive")
				}
				message := Message{To: NewDestination(r.Addr()), Segment: c.size, Buffers: [][]byte{pattern(c.segments * c.size)}}
				b := NewBatch()
				for sent, got := 0, 0; got < 10*held/cost; {
					for ; (sent-got+n)*cost <= held; sent += n {
						send(t, s, message)
					}
					if err := r.Receive(b, nil); err != nil {
						t.Fatalf("%d of %d received, with %d bytes in flight: %v", got, sent, held, err)
					}
					for i := range b.Len() {
						got += len(b.Datagram(i).Data) / c.size
					}
				}
				if st := r.Stats(); st.Overflowed > 0 {
					t.Errorf("%d were lost with %d bytes in flight", st.Overflowed, held)
				}
			})
		}
	})
}

// After an overflow, the next datagram reports it.
func TestOverflowIsCounted(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		if err := withFD(r.conn, func(fd int) error { return setOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF") }); err != nil {
			t.Fatal(err)
		}
		m := Message{To: NewDestination(r.Addr()), Buffers: [][]byte{pattern(4000)}}
		for range 100 {
			send(t, s, m)
		}
		got, _ := segments(t, r, 1)
		for held := len(got); r.Stats().Overflowed == 0; held++ {
			if held == 100 {
				t.Fatal("all were received, and none is counted")
			}
			send(t, s, m)
			segments(t, r, 1)
		}
	})
}

// A buffer capped by the kernel is reported, with what to do.
func TestCappedBufferIsReported(t *testing.T) {
	if why := bufferCapped(receiveBuffer); why != "" {
		t.Errorf("a whole buffer: %q", why)
	}
	if why := bufferCapped(212992); !strings.Contains(why, "capped at 212992 bytes") || !strings.Contains(why, "sysctl -w net.core.rmem_max=4194304") {
		t.Errorf("a small buffer: %q", why)
	}
	r, _ := ends(t, loopbacks["IPv4"])
	if err := withFD(r.conn, func(fd int) error {
		doubled, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if want := bufferCapped(doubled / 2); strings.Join(r.Missing(), "\n") != want {
			t.Errorf("it says %q, want %q", r.Missing(), want)
		}
		if r.Buffer() != doubled/bufferShare {
			t.Errorf("peers get a buffer of %d of %d", r.Buffer(), doubled)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// Link-local addresses have a zone, in both directions.
func TestLinkLocal(t *testing.T) {
	addr, why := linkLocal()
	if !addr.IsValid() {
		t.Skip("no IPv6 address of a link: " + why)
	}
	for way, opts := range modes {
		t.Run(way, func(t *testing.T) {
			r, s := ends(t, addr, opts...)
			bound(t, r)
			b := NewBatch()
			send(t, s, Message{To: NewDestination(r.Addr()), TOS: 1, Segment: 1000, Buffers: [][]byte{pattern(1001)}})
			for got := 0; got < 1001; {
				if err := r.Receive(b, nil); err != nil {
					t.Fatal(err)
				}
				d := b.Datagram(0)
				if d.From != s.Addr() || d.ECN != 1 {
					t.Fatalf("from %v with ECN %d, want %v", d.From, d.ECN, s.Addr())
				}
				got += len(d.Data)
			}
		})
	}
}

// linkLocal returns a link-local address of this host, or why there is none.
func linkLocal() (netip.Addr, string) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, err.Error()
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				addr, _ := netip.AddrFromSlice(n.IP)
				return addr.WithZone(i.Name), ""
			}
		}
	}
	return netip.Addr{}, fmt.Sprintf("%d interfaces have none", len(interfaces))
}
