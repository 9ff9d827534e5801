package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// loopbacks are the addresses that the tests use.
var loopbacks = map[string]netip.Addr{
	"IPv4": netip.MustParseAddr("127.0.0.1"),
	"IPv6": netip.IPv6Loopback(),
}

// modes are with and without the offloads of this kernel.
var modes = map[string][]Option{"offload": nil, "no offload": {NoOffload()}}

// eachMode runs a test on each address, with and without offloads.
func eachMode(t *testing.T, f func(t *testing.T, addr netip.Addr, opts []Option)) {
	for family, addr := range loopbacks {
		for way, opts := range modes {
			t.Run(family+"/"+way, func(t *testing.T) {
				has(t, addr)
				f(t, addr, opts)
			})
		}
	}
}

// eachFamily runs a test on each address.
func eachFamily(t *testing.T, f func(t *testing.T, addr netip.Addr)) {
	for family, addr := range loopbacks {
		t.Run(family, func(t *testing.T) {
			has(t, addr)
			f(t, addr)
		})
	}
}

// has skips a test on a host without the family of an address.
func has(t testing.TB, addr netip.Addr) {
	t.Helper()
	conn, err := open(netip.AddrPortFrom(addr, 0))
	if err != nil {
		t.Skipf("this host has no %v: %v", addr, err)
	}
	conn.Close()
}

// ends returns a receiver and a sender on one address.
func ends(t testing.TB, addr netip.Addr, opts ...Option) (*Receiver, *Sender) {
	t.Helper()
	has(t, addr)
	r, err := Listen(addr, 0, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	s, err := NewSender(addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return r, s
}

// bound limits the time of a receiver.
func bound(t testing.TB, r *Receiver) {
	t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
}

// segments receives n segments, and returns copies and their ECN.
func segments(t testing.TB, r *Receiver, n int) (all [][]byte, ecn []uint8) {
	t.Helper()
	bound(t, r)
	b := NewBatch()
	for len(all) < n {
		if err := r.Receive(b, nil); err != nil {
			t.Fatalf("after %d segments of %d: %v", len(all), n, err)
		}
		if b.Len() < 1 {
			t.Fatal("Receive returned nothing and no error")
		}
		for i := range b.Len() {
			d := b.Datagram(i)
			if d.Segment < 1 || d.Segment > len(d.Data) {
				t.Fatalf("%d bytes in segments of %d", len(d.Data), d.Segment)
			}
			for data := d.Data; len(data) > 0; {
				k := min(d.Segment, len(data))
				all, ecn = append(all, bytes.Clone(data[:k])), append(ecn, d.ECN)
				data = data[k:]
			}
		}
	}
	return all, ecn
}

// pattern returns n bytes that differ from segment to segment.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func send(t testing.TB, s *Sender, msgs ...Message) {
	t.Helper()
	if n, err := s.Send(msgs); err != nil || n != len(msgs) {
		t.Fatalf("%d of %d messages sent: %v", n, len(msgs), err)
	}
}

// A super-packet arrives as the segments that were sent, however it is divided into
// buffers.
func TestSuperPacketArrivesAsItsSegments(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		to := NewDestination(r.Addr())
		offload := len(opts) == 0 && !strings.Contains(strings.Join(append(r.Missing(), s.Missing()...), "\n"), "alone")
		for _, c := range []struct{ total, segment, buffer int }{
			{4112 * 15, 4112, 4112 * 15},
			{4112 * 15, 4112, 4096},
			{4112*14 + 1, 4112, 1000},
			{4112, 4112, 4112},
			{100, 4112, 7},
			{1040 * 62, 1040, 1024},
			{1, 1, 1},
			{64, 1, 3},
			{maxPayload, 0, 10_000},
			{maxPayload, maxPayload, 10_000},
			{5, 0, 5},
		} {
			t.Run(fmt.Sprintf("%d by %d from %d", c.total, c.segment, c.buffer), func(t *testing.T) {
				data := pattern(c.total)
				var buffers, want [][]byte
				for b := data; len(b) > 0; b = b[min(c.buffer, len(b)):] {
					buffers = append(buffers, b[:min(c.buffer, len(b))])
				}
				segment := c.segment
				if segment == 0 {
					segment = c.total
				}
				for b := data; len(b) > 0; b = b[min(segment, len(b)):] {
					want = append(want, b[:min(segment, len(b))])
				}
				before := r.Stats().Datagrams
				send(t, s, Message{To: to, Segment: c.segment, Buffers: buffers})
				got, _ := segments(t, r, len(want))
				if n := r.Stats().Datagrams - before; (n == 1) != (len(want) == 1 || offload) {
					t.Errorf("%d segments came in %d buffers", len(want), n)
				}
				for i := range want {
					if !bytes.Equal(got[i], want[i]) {
						t.Fatalf("segment %d: %d bytes, want %d, or others", i, len(got[i]), len(want[i]))
					}
				}
			})
		}
	})
}

// A receiver without UDP_GRO gets the segments of a super-packet one by one.
func TestSuperPacketWithoutGRO(t *testing.T) {
	eachFamily(t, func(t *testing.T, addr netip.Addr) {
		r, err := Listen(addr, 0, NoOffload())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, s := ends(t, addr)
		data := pattern(4112*14 + 5)
		send(t, s, Message{To: NewDestination(r.Addr()), Segment: 4112, Buffers: [][]byte{data}})
		got, _ := segments(t, r, 15)
		if !bytes.Equal(bytes.Join(got, nil), data) || r.Stats().Datagrams != 15 {
			t.Errorf("%d datagrams, want 15, or other bytes", r.Stats().Datagrams)
		}
	})
}

func TestUsedPortIsReported(t *testing.T) {
	eachFamily(t, func(t *testing.T, addr netip.Addr) {
		first, err := Listen(addr, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		want := first.Addr().Port()
		second, err := Listen(addr, want)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if second.Addr().Port() == want || second.Addr().Port() == 0 || second.Addr().Addr() != addr {
			t.Errorf("port %d is taken, and the second has %v", want, second.Addr())
		}
		if told := second.PortTaken(); first.PortTaken() != "" || !strings.Contains(told, fmt.Sprintf("port %d of %v is used", want, addr)) {
			t.Errorf("it says %q", told)
		}
	})
}

func TestCloseEndsReceive(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		done := make(chan error)
		go func() { done <- r.Receive(NewBatch(), nil) }()
		r.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Receive: %v", err)
		}
		if err := r.Receive(NewBatch(), nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a later one: %v", err)
		}
		s.Close()
		if _, err := s.Send([]Message{{To: NewDestination(r.Addr()), Buffers: [][]byte{{1}}}}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Send: %v", err)
		}
	})
}

// TestEmptyDatagramsDoNotDelayOthers: a flood of empty datagrams must not delay the
// ACKs of packets that were received before.
func TestEmptyDatagramsDoNotDelayOthers(t *testing.T) {
	r, err := Listen(netip.MustParseAddr("127.0.0.1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 * readTries {
		if _, err := c.Write(nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	idle := 0
	b := NewBatch()
	if err := r.Receive(b, func() { idle++ }); err != nil {
		t.Fatal(err)
	}
	if b.Len() != 1 || idle < 3 {
		t.Errorf("%d datagrams, and idle was called %d times", b.Len(), idle)
	}
}
