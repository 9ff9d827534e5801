package udp

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoChecksumOverIPv6: kernels and NICs send UDP checksum 0.
func TestNoChecksumOverIPv6(t *testing.T) {
	has(t, netip.IPv6Loopback())
	r, err := Listen(netip.IPv6Loopback(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(r.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := withFD(conn, func(fd int) error {
		return setOption(fd, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX, 1, "UDP_NO_CHECK6_TX")
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("without")); err != nil {
		t.Fatal(err)
	}
	conn2, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(r.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn2.Close()
	if _, err := conn2.Write([]byte("with")); err != nil {
		t.Fatal(err)
	}
	bound(t, r)
	b := NewBatch()
	if err := r.Receive(b, nil); err != nil || string(b.Datagram(0).Data) != "without" {
		t.Errorf("received %q, %v", b.Datagram(0).Data, err)
	}
}
