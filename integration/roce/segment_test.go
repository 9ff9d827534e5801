//go:build rxe && linux && cgo

package roce_test

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/internal/rocetest"
	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestRxeTakesSuperPackets: rxe accepts packets that our kernel splits from one
// datagram (UDP_SEGMENT) if the ICRC of segment i covers identification i.
func TestRxeTakesSuperPackets(t *testing.T) {
	n := newCable(t)
	for i, family := range []string{"IPv4", "IPv6"} {
		for _, id := range []uint16{1, 0} { // increment of the identification per segment
			t.Run(fmt.Sprintf("%s, identifications grow by %d", family, id), func(t *testing.T) {
				theirs, ours := kernelAddrs[i].Addr(), ourAddrs[i].Addr()
				k := newKernel(t, kernelDevice, theirs, 1<<16)
				s := n.newSocket(t, ours)
				s.withoutChecksum()
				const mtu, segments = 1024, 40
				k.connect(mtu, verbs.Endpoint{QPN: 5, PSN: 100, GID: verbs.GIDFromAddr(ours)})
				content := make([]byte, mtu*(1+segments))
				for i := range content {
					content[i] = byte(i * 11 >> 3)
				}
				h := rocewire.Header{
					Op: rocewire.WriteFirst, PKey: rocewire.DefaultPKey, MigReq: true, DestQP: k.qp.QPN(), PSN: 100,
					Addr: k.mr.Addr(), RKey: k.mr.RKey(), Length: uint32(len(content)),
				}
				s.send(theirs, s.packet(theirs, h, content[:mtu]))

				path := s.path(theirs)
				var super []byte
				for i := range segments {
					h.Op, h.PSN, h.AckReq = rocewire.WriteMiddle, h.PSN+1, false
					if i == segments-1 {
						h.Op, h.AckReq = rocewire.WriteLast, true
					}
					super = rocetest.AppendPacket(super, &path, uint16(i)*id, h, content[mtu*(1+i):mtu*(2+i)], nil)
				}
				s.option(unix.IPPROTO_UDP, unix.UDP_SEGMENT, mtu+rocewire.MinPacketLen)
				s.send(theirs, super)
				lost := id == 0 && ours.Is4()
				if lost { // only the first segment is valid: the response to a duplicate shows the expected PSN
					h.PSN++
					s.send(theirs, s.packet(theirs, h, content[:mtu]))
				}

				b, _, ok := s.next(testTimeout)
				var response rocewire.Header
				if _, err := response.Decode(b); !ok || err != nil {
					t.Fatalf("no response: %v", err)
				}
				if lost {
					if response.Syndrome != rocewire.NAKSequence || response.PSN != 102 {
						t.Errorf("got response %+v, want a NAK of PSN 102", response)
					}
					return
				}
				if response.Syndrome != rocewire.AckUnlimited || response.PSN != 100+segments || response.MSN != 1 {
					t.Errorf("got response %+v, want an ACK of PSN %d", response, 100+segments)
				}
				if !bytes.Equal(k.mem[:len(content)], content) {
					t.Error("memory differs from the content that was sent")
				}
			})
		}
	}
}
