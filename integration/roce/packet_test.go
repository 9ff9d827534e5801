//go:build rxe && linux && cgo

package roce_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/internal/rocetest"
	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// socket is an ordinary UDP socket at an address of our end, on the RoCE port.
type socket struct {
	t    *testing.T
	conn *net.UDPConn
	addr netip.AddrPort
}

// newSocket opens a socket whose packets have the DF bit and identification 0.
func (n *namespace) newSocket(t *testing.T, addr netip.Addr) *socket {
	t.Helper()
	s := &socket{t: t, addr: netip.AddrPortFrom(addr, rocewire.Port)}
	var err error
	n.Do(func() { s.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.addr)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	if addr.Is4() {
		s.option(unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	} else {
		s.option(unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	}
	return s
}

// withoutChecksum makes the socket receive IPv6 packets with UDP checksum 0, as rxe and
// NICs send them. Otherwise the kernel drops them.
func (s *socket) withoutChecksum() {
	s.t.Helper()
	if s.addr.Addr().Is6() {
		s.option(unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1)
	}
}

// option sets an option of the socket.
func (s *socket) option(level, name, value int) {
	s.t.Helper()
	raw, err := s.conn.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, name, value) }); err != nil || set != nil {
		s.t.Fatal(err, set)
	}
}

// packet builds a packet to the RoCE port of a peer.
func (s *socket) packet(to netip.Addr, h rocewire.Header, payload []byte) []byte {
	return s.changed(to, h, payload, nil)
}

// changed builds a packet of which change alters the bytes from BTH to pad before the
// ICRC is computed.
func (s *socket) changed(to netip.Addr, h rocewire.Header, payload []byte, change func([]byte) []byte) []byte {
	path := s.path(to)
	return rocetest.AppendPacket(nil, &path, 0, h, payload, change)
}

// path returns the path to the RoCE port of a peer.
func (s *socket) path(to netip.Addr) rocewire.Path {
	return rocewire.NewPath(s.addr, netip.AddrPortFrom(to, rocewire.Port))
}

func (s *socket) send(to netip.Addr, packet []byte) {
	s.t.Helper()
	if _, err := s.conn.WriteToUDPAddrPort(packet, netip.AddrPortFrom(to, rocewire.Port)); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next packet; ok is false if none arrives in time.
func (s *socket) next(within time.Duration) (packet []byte, from netip.AddrPort, ok bool) {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		s.t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, from, err := s.conn.ReadFromUDPAddrPort(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, from, false
	case err != nil:
		s.t.Fatal(err)
	}
	return b[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), true
}

// quiet is how long a test waits to see that no packet arrives.
const quiet = time.Second

// TestRxeAcknowledgesPacketsOfAUDPSocket is the basis of verbs/roce: the kernel's device accepts
// packets from an ordinary UDP socket, and its responses can be decoded.
func TestRxeAcknowledgesPacketsOfAUDPSocket(t *testing.T) {
	n := newCable(t)
	for i, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			theirs, ours := kernelAddrs[i].Addr(), ourAddrs[i].Addr()
			k := newKernel(t, kernelDevice, theirs, 1<<16)
			s := n.newSocket(t, ours)
			s.withoutChecksum()
			const qpn, psn = verbs.QPN(0x123456), verbs.PSN(0xffffff)
			k.connect(verbs.MTU1024, verbs.Endpoint{QPN: qpn, PSN: psn, GID: verbs.GIDFromAddr(ours)})
			k.recv(verbs.RecvWR{ID: 1, SGL: k.sge(0, 1024)})

			bth := rocewire.Header{PKey: rocewire.DefaultPKey, MigReq: true, AckReq: true, DestQP: k.qp.QPN(), PSN: psn}
			write := bth
			write.Op = rocewire.WriteOnly
			write.Addr, write.RKey, write.Length = k.mr.Addr()+2048, k.mr.RKey(), 1001
			send := bth
			send.Op, send.PSN = rocewire.SendOnly, 0
			content := bytes.Repeat([]byte("ours "), 201)[:1001]

			// A packet with a wrong ICRC is dropped.
			damaged := s.packet(theirs, write, bytes.Repeat([]byte("bad  "), 201)[:1001])
			damaged[100] ^= 1
			s.send(theirs, damaged)
			if b, from, ok := s.next(quiet); ok {
				t.Fatalf("a damaged packet got a response from %v: %x, want none", from, b)
			}

			for i, h := range []rocewire.Header{write, send} {
				s.send(theirs, s.packet(theirs, h, content))
				b, from, ok := s.next(testTimeout)
				if !ok {
					t.Fatalf("%v: no response", h.Op)
				}
				path := rocewire.NewPath(from, s.addr)
				id, valid := path.Identify(b)
				var ack rocewire.Header
				payload, err := ack.Decode(b)
				t.Logf("%v: response from %v, ICRC valid %v with identification %d: %+v", h.Op, from, valid, id, ack)
				if !valid || err != nil || len(payload) != 0 {
					t.Errorf("%v: response %x: ICRC valid %v, error %v, want a valid one without payload", h.Op, b, valid, err)
				}
				want := rocewire.Header{
					Op: rocewire.Ack, PKey: rocewire.DefaultPKey, DestQP: qpn, PSN: h.PSN, Syndrome: rocewire.AckUnlimited, MSN: uint32(i + 1),
					MigReq: ack.MigReq,
				}
				if ack != want {
					t.Errorf("%v: got response %+v, want %+v", h.Op, ack, want)
				}
			}
			if !bytes.Equal(k.mem[2048:2048+1001], content) || k.mem[2048+1001] != 0 {
				t.Errorf("memory has %q, want the content of the write", k.mem[2048:2048+1010])
			}
			if wc := k.completion(); wc.Status != verbs.StatusOK || wc.Op != verbs.WCRecv || wc.Len != 1001 || !bytes.Equal(k.mem[:1001], content) {
				t.Errorf("receive completes as %+v with %q, want the content of the send", wc, k.mem[:20])
			}
		})
	}
}

// The kernel's device sends IPv6 packets without a UDP checksum. A socket receives them only with
// UDP_NO_CHECK6_RX.
func TestRxeSendsNoUDPChecksum(t *testing.T) {
	n := newCable(t)
	theirs, ours := kernelAddrs[1].Addr(), ourAddrs[1].Addr()
	k := newKernel(t, kernelDevice, theirs, 4096)
	s := n.newSocket(t, ours)
	k.connect(verbs.MTU1024, verbs.Endpoint{QPN: 5, PSN: 1, GID: verbs.GIDFromAddr(ours)})
	h := rocewire.Header{
		Op: rocewire.WriteOnly, PKey: rocewire.DefaultPKey, MigReq: true, AckReq: true, DestQP: k.qp.QPN(), PSN: 1,
		Addr: k.mr.Addr(), RKey: k.mr.RKey(), Length: 4,
	}
	s.send(theirs, s.packet(theirs, h, []byte("here")))
	if b, _, ok := s.next(quiet); ok {
		t.Errorf("got the response %x without UDP_NO_CHECK6_RX, want none", b)
	}
	if string(k.mem[:4]) != "here" {
		t.Error("the write was not carried out")
	}
	s.withoutChecksum()
	s.send(theirs, s.packet(theirs, h, []byte("here"))) // a duplicate is acknowledged, too
	if _, _, ok := s.next(testTimeout); !ok {
		t.Error("no response with UDP_NO_CHECK6_RX")
	}
}
