package rocewire_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

var (
	benchFrom = netip.MustParseAddrPort("192.0.2.1:49152")
	benchTo   = netip.MustParseAddrPort("192.0.2.2:4791")
	sink      uint32
)

// benchPacket returns a WRITE Middle with a payload and the given identification.
func benchPacket(p *rocewire.Path, payload int, id uint16) []byte {
	h := rocewire.Header{Op: rocewire.WriteMiddle, MigReq: true, PKey: rocewire.DefaultPKey, DestQP: 0x123456, PSN: 0x654321}
	b := append(h.Append(nil), make([]byte, payload)...)
	return rocewire.AppendICRC(b, rocewire.UpdateHeader(p.BeginID(len(b)+rocewire.ICRCLen, id), b))
}

func BenchmarkBegin(b *testing.B) {
	p := rocewire.NewPath(benchFrom, benchTo)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		sink += p.BeginID(4112, uint16(i&63))
	}
}

func BenchmarkUpdateHeader(b *testing.B) {
	for _, op := range []rocewire.Opcode{rocewire.WriteMiddle, rocewire.WriteOnly, rocewire.WriteOnlyImm} {
		b.Run(fmt.Sprint(op), func(b *testing.B) {
			h := rocewire.Header{Op: op, PKey: rocewire.DefaultPKey, DestQP: 0x123456, PSN: 0x654321}
			hdr := h.Append(nil)
			b.ReportAllocs()
			for b.Loop() {
				sink = rocewire.UpdateHeader(sink, hdr)
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	payload := make([]byte, 4096)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		sink = rocewire.Update(sink, payload)
	}
}

func BenchmarkAppend(b *testing.B) {
	h := rocewire.Header{Op: rocewire.WriteOnly, PKey: rocewire.DefaultPKey, DestQP: 0x123456, PSN: 0x654321}
	buf := make([]byte, 0, rocewire.MaxHeaderLen)
	b.ReportAllocs()
	for b.Loop() {
		buf = h.Append(buf[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	p := rocewire.NewPath(benchFrom, benchTo)
	packet := benchPacket(&p, 4096, 0)
	var h rocewire.Header
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Decode(packet); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheck is the check of a received packet, next to the CRC of its payload
// alone.
func BenchmarkCheck(b *testing.B) {
	for _, payload := range []int{0, 4096} {
		for _, id := range []uint16{0, 1, 63} {
			b.Run(fmt.Sprintf("payload=%d/id=%d", payload, id), func(b *testing.B) {
				p := rocewire.NewPath(benchFrom, benchTo)
				packet := benchPacket(&p, payload, id)
				b.SetBytes(int64(payload))
				b.ReportAllocs()
				for b.Loop() {
					if !p.Check(packet, rocewire.IdentificationsRoCE) {
						b.Fatal("bad")
					}
				}
			})
		}
	}
}
