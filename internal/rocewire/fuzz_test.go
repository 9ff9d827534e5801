package rocewire_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// FuzzDecode: no packet causes a panic, and an accepted one is the same after encoding
// it again, except for reserved bits.
func FuzzDecode(f *testing.F) {
	for _, p := range captured(f) {
		if len(p.Data) < 100 {
			f.Add(p.Data)
		}
	}
	for _, o := range opcodes {
		f.Add(packetOf(full(o.op), ""))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		var h rocewire.Header
		payload, err := h.Decode(b)
		if !bytes.Equal(b, before) {
			t.Fatal("the packet was written to")
		}
		if err != nil {
			if payload != nil {
				t.Fatalf("payload in spite of %v", err)
			}
			return
		}
		hdr := h.Append(nil)
		want := bytes.Clone(b[:len(hdr)])
		want[4] &= 0xc0
		want[8] &= 0x80
		if h.Op == rocewire.CNP {
			clear(want[rocewire.BTHLen:])
		}
		if !bytes.Equal(hdr, want) {
			t.Fatalf("%+v is %x, and was %x", h, hdr, want)
		}
		if n := len(hdr) + len(payload) + int(h.Pad) + rocewire.ICRCLen; n != len(b) || !bytes.Equal(payload, b[len(hdr):len(hdr)+len(payload)]) {
			t.Fatalf("%d bytes of %d are reported", n, len(b))
		}
		var again rocewire.Header
		if _, err := again.Decode(packetOf(h, string(payload))); err != nil || again != h {
			t.Fatalf("%+v becomes %+v, %v", h, again, err)
		}
	})
}

// FuzzICRC: the ICRC of any packet, identification and path is that of the reference,
// is accepted, and after any change is rejected.
func FuzzICRC(f *testing.F) {
	f.Add([]byte("twelve bytes"), uint16(0), []byte("\xc0\x00\x02\x01\xc0\x00\x02\x02"), uint16(49152), uint16(4791), uint16(3), byte(1))
	f.Add(make([]byte, 4108), uint16(63), make([]byte, 32), uint16(0), uint16(0xffff), uint16(100), byte(0x80))
	f.Fuzz(func(t *testing.T, b []byte, id uint16, addrs []byte, fromPort, toPort, place uint16, change byte) {
		if len(b) < rocewire.BTHLen || len(b) > 65000 {
			return
		}
		n := 4
		if len(addrs) >= 32 {
			n, id = 16, 0
		} else if len(addrs) < 8 {
			return
		}
		src, _ := netip.AddrFromSlice(addrs[:n])
		dst, _ := netip.AddrFromSlice(addrs[n : 2*n])
		from, to := netip.AddrPortFrom(src.Unmap(), fromPort), netip.AddrPortFrom(dst.Unmap(), toPort)
		if from.Addr().Is4() != to.Addr().Is4() {
			return
		}
		p := rocewire.NewPath(from, to)
		crc := rocewire.Update(rocewire.UpdateHeader(p.BeginID(len(b)+rocewire.ICRCLen, id), b[:rocewire.BTHLen]), b[rocewire.BTHLen:])
		if want := bitwise(pseudo(from, to, id, b)); crc != want {
			t.Fatalf("%#08x, want %#08x", crc, want)
		}
		packet := rocewire.AppendICRC(bytes.Clone(b), crc)
		if got, ok := p.Identify(packet); !ok || got != id {
			t.Fatalf("identification %d is found as %d, %v", id, got, ok)
		}
		i := int(place) % len(packet)
		if packet[i] ^= change; change == 0 || i == 4 {
			return
		}
		// Another identification may compensate the change, but not the packet's own.
		if got, ok := p.Identify(packet); ok && got == id {
			t.Fatalf("byte %d is changed by %#02x, and the packet good", i, change)
		}
	})
}
