package wire_test

import (
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/verbs/roce/wire"
)

func TestIdentificationIsFound(t *testing.T) {
	for _, pair := range [][2]string{{"192.0.2.1:4791", "192.0.2.2:50000"}, {"[2001:db8::1]:4791", "[2001:db8::2]:50000"}} {
		p := wire.NewPath(netip.MustParseAddrPort(pair[0]), netip.MustParseAddrPort(pair[1]))
		for _, size := range []int{0, 4, 1024, 4096} {
			for _, id := range []uint16{0, 1, 63, 64, 0x1234, 0xffff} {
				h := wire.Header{Op: wire.SendOnly, PSN: 5}
				b := h.Append(nil)
				crc := wire.UpdateHeader(p.BeginID(len(b)+size+4, id), b)
				b = append(b, make([]byte, size)...)
				crc = wire.Update(crc, b[h.Len():])
				b = wire.AppendICRC(b, crc)
				got, ok := p.Identify(b)
				if want := id; pair[0][0] != '[' && (got != want || !ok) {
					t.Error(size, id, got, ok)
				}
				if pair[0][0] == '[' && (got != 0 || !ok) {
					t.Error(size, id, got, ok)
				}
				b[3]++
				if v := p.Check(b, 64); v != wire.Bad {
					t.Error(v)
				}
			}
		}
	}
}
