package doctor

import (
	"net"
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/verbs/roce"
)

// TestHostSockets: what this kernel gives, on an address of loopback that nobody uses.
func TestHostSockets(t *testing.T) {
	addr := netip.MustParseAddr("127.0.53.91")
	s := hostSockets(addr)
	if s.Err != nil || s.Taken != nil || s.Buffer <= 0 || s.ReceiveMax == 0 {
		t.Fatalf("%+v", s)
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, roce.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if s := hostSockets(addr); s.Err != nil || s.Taken == nil {
		t.Errorf("the port is taken, and it says %+v", s)
	}
	if s := hostSockets(netip.MustParseAddr("192.0.2.199")); s.Err == nil {
		t.Errorf("an address of another host: %+v", s)
	}
}
