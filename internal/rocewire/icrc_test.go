package rocewire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// bitwise is the CRC-32 of IEEE 802.3, computed bit by bit.
func bitwise(b []byte) uint32 {
	r := ^uint32(0)
	for _, v := range b {
		for i := range 8 {
			low := (r ^ uint32(v)>>i) & 1
			r = r>>1 ^ 0xedb88320*low
		}
	}
	return ^r
}

// pseudo returns the bytes that the ICRC covers, from the LRH to the pad
// (specification, annex A17.3.3).
func pseudo(from, to netip.AddrPort, id uint16, bthToPad []byte) []byte {
	e := binary.BigEndian
	b := bytes.Repeat([]byte{0xff}, 8)
	udp := uint16(8 + len(bthToPad) + 4)
	if to.Addr().Is4() {
		b = append(b, 0x45, 0xff)
		b = e.AppendUint16(b, 20+udp)
		b = e.AppendUint16(b, id)
		b = append(b, 0x40, 0x00, 0xff, 17, 0xff, 0xff)
	} else {
		b = append(b, 0x6f, 0xff, 0xff, 0xff)
		b = e.AppendUint16(b, udp)
		b = append(b, 17, 0xff)
	}
	b = append(b, from.Addr().AsSlice()...)
	b = append(b, to.Addr().AsSlice()...)
	b = e.AppendUint16(b, from.Port())
	b = e.AppendUint16(b, to.Port())
	b = e.AppendUint16(b, udp)
	b = append(b, 0xff, 0xff)
	masked := bytes.Clone(bthToPad)
	masked[4] = 0xff
	return append(b, masked...)
}

// ends are the sockets of several paths.
var ends = []struct{ from, to netip.AddrPort }{
	{netip.MustParseAddrPort("192.0.2.1:49152"), netip.MustParseAddrPort("192.0.2.2:4791")},
	{netip.MustParseAddrPort("192.0.2.2:4791"), netip.MustParseAddrPort("192.0.2.1:40000")},
	{netip.MustParseAddrPort("[2001:db8::1]:65535"), netip.MustParseAddrPort("[2001:db8::2]:4791")},
	{netip.MustParseAddrPort("[fe80::1]:1"), netip.MustParseAddrPort("[fe80::2]:4791")},
}

// sizes are lengths from BTH to pad: the shortest, odd ones, full packets of path MTU
// 1024 and 4096, the longest datagram.
var sizes = []int{12, 16, 20, 28, 40, 56, 60, 64, 1036, 1052, 4108, 4124, 4128, 65532 - 28 - 4}

// randomPacket returns random bytes without ICRC.
func randomPacket(r *rand.Rand, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestICRCAgainstTheReference(t *testing.T) {
	r := random()
	for _, end := range ends {
		p := rocewire.NewPath(end.from, end.to)
		for _, size := range sizes {
			b := randomPacket(r, size)
			before := bytes.Clone(b)
			for _, id := range []uint16{0, 1, 2, 63, 64, 0x00ff, 0x0100, 0x1234, 0x8000, 0xffff, uint16(r.Uint32())} {
				want := bitwise(pseudo(end.from, end.to, id, b))
				// At once, and header and payload separately.
				if got := rocewire.UpdateHeader(p.BeginID(size+rocewire.ICRCLen, id), b); got != want {
					t.Errorf("%v to %v, %d bytes, identification %d: %#08x, want %#08x", end.from, end.to, size, id, got, want)
				}
				for _, cut := range []int{12, 16, 28, 40} {
					if cut > size {
						continue
					}
					crc := rocewire.UpdateHeader(p.BeginID(size+rocewire.ICRCLen, id), b[:cut])
					if got := rocewire.Update(rocewire.Update(crc, b[cut:(cut+size)/2]), b[(cut+size)/2:]); got != want {
						t.Errorf("%v to %v, %d bytes, cut at %d: %#08x, want %#08x", end.from, end.to, size, cut, got, want)
					}
				}
				if id == 0 && p.Begin(size+rocewire.ICRCLen) != p.BeginID(size+rocewire.ICRCLen, 0) {
					t.Errorf("Begin is not BeginID 0")
				}
			}
			if !bytes.Equal(b, before) {
				t.Fatal("the packet was written to")
			}
		}
	}
}

func TestUpdateHeaderOfAnyLength(t *testing.T) {
	r := random()
	for size := 8; size < 64; size++ {
		b := randomPacket(r, size)
		masked := bytes.Clone(b)
		masked[4] = 0xff
		if got, want := rocewire.UpdateHeader(0, b), bitwise(masked); got != want {
			t.Errorf("%d bytes: %#08x, want %#08x", size, got, want)
		}
	}
}

func TestICRCIgnoresWhatSwitchesChange(t *testing.T) {
	p := rocewire.NewPath(ends[0].from, ends[0].to)
	b := benchPacket(&p, 64, 0)
	for _, congestion := range []byte{0x80, 0x40, 0xff} {
		b[4] = congestion
		if !p.Check(b, 1) {
			t.Errorf("byte 4 is %#02x: wrong ICRC", congestion)
		}
	}
}

func TestPutICRC(t *testing.T) {
	b := []byte{9, 9, 9, 9, 9}
	rocewire.PutICRC(b[1:], 0x01020304)
	if !bytes.Equal(b, []byte{9, 4, 3, 2, 1}) || rocewire.ICRC(b) != 0x01020304 {
		t.Errorf("%x, %#x", b, rocewire.ICRC(b))
	}
	if !bytes.Equal(rocewire.AppendICRC(b[:1], 0x01020304), b) {
		t.Error("AppendICRC is something else")
	}
}

func TestMappedAddressesAndZones(t *testing.T) {
	plain := rocewire.NewPath(ends[0].from, ends[0].to)
	mapped := rocewire.NewPath(netip.MustParseAddrPort("[::ffff:192.0.2.1]:49152"), netip.MustParseAddrPort("[::ffff:192.0.2.2]:4791"))
	if mapped != plain {
		t.Error("IPv4-mapped addresses are not IPv4")
	}
	zoned := rocewire.NewPath(netip.MustParseAddrPort("[fe80::1%eth0]:1"), netip.MustParseAddrPort("[fe80::2%eth0]:4791"))
	if zoned != rocewire.NewPath(ends[3].from, ends[3].to) {
		t.Error("the zone counts")
	}
}

// signed returns random bytes with their ICRC.
func signed(r *rand.Rand, p *rocewire.Path, size int, id uint16) []byte {
	b := randomPacket(r, size)
	return rocewire.AppendICRC(b, rocewire.UpdateHeader(p.BeginID(size+rocewire.ICRCLen, id), b))
}

func TestEveryIdentificationIsFound(t *testing.T) {
	r := random()
	p := rocewire.NewPath(ends[0].from, ends[0].to)
	for i := range 1 << 16 {
		id := uint16(i)
		size := sizes[r.IntN(8)]
		if i < 64 {
			size = 4108
		}
		b := signed(r, &p, size, id)
		if got, ok := p.Identify(b); !ok || got != id {
			t.Fatalf("identification %d in %d bytes: %d, %v", id, size, got, ok)
		}
		for _, ids := range []int{0, 1, rocewire.IdentificationsRoCE, 1000, rocewire.IdentificationsAny} {
			if want := i < ids; p.Check(b, ids) != want {
				t.Fatalf("identification %d, of %d that there may be: %v", id, ids, p.Check(b, ids))
			}
		}
	}
	for _, size := range sizes { // In packets of each length, whatever came before.
		for _, id := range []uint16{1, 63, 0xffff} {
			b := signed(r, &p, size, id)
			if got, ok := p.Identify(b); !ok || got != id {
				t.Errorf("identification %d in %d bytes: %d, %v", id, size, got, ok)
			}
		}
	}
}

func TestIPv6HasNoIdentification(t *testing.T) {
	r := random()
	p := rocewire.NewPath(ends[2].from, ends[2].to)
	if p.BeginID(100, 7) != p.Begin(100) {
		t.Error("the identification counts")
	}
	b := signed(r, &p, 100, 0)
	if id, ok := p.Identify(b); id != 0 || !ok || !p.Check(b, 1) || !p.Check(b, rocewire.IdentificationsAny) {
		t.Errorf("a good packet: %d, %v", id, ok)
	}
	// A difference that an IPv4 identification could cause.
	four := rocewire.NewPath(ends[0].from, ends[0].to)
	difference := rocewire.UpdateHeader(four.Begin(104), b[:100]) ^ rocewire.UpdateHeader(four.BeginID(104, 1), b[:100])
	rocewire.PutICRC(b[100:], rocewire.ICRC(b)^difference)
	if _, ok := p.Identify(b); ok || p.Check(b, rocewire.IdentificationsAny) {
		t.Error("a damaged packet is good")
	}
}

func TestDamagedPacketsAreBad(t *testing.T) {
	r := random()
	for _, end := range ends {
		p := rocewire.NewPath(end.from, end.to)
		b := signed(r, &p, 60, 0)
		for i := range len(b) * 8 { // Each bit alone.
			b[i/8] ^= 1 << (i % 8)
			want := i/8 == 4 // switches may change it
			if v := p.Check(b, rocewire.IdentificationsRoCE); v != want {
				t.Errorf("bit %d is damaged: %v", i, v)
			}
			b[i/8] ^= 1 << (i % 8)
		}
		for n := range len(b) {
			if p.Check(bytes.Clone(b[:n]), rocewire.IdentificationsRoCE) {
				t.Errorf("cut to %d bytes it is good", n)
			}
		}
		for _, other := range ends {
			o := rocewire.NewPath(other.from, other.to)
			if v := o.Check(b, rocewire.IdentificationsRoCE); v != (other == end) {
				t.Errorf("a packet from %v to %v is %v from %v to %v", end.from, end.to, v, other.from, other.to)
			}
		}
	}
}

// TestFalseAcceptRate counts how many wrong ICRCs are accepted: of 2^32, as many as
// there are identifications.
func TestFalseAcceptRate(t *testing.T) {
	r := random()
	p := rocewire.NewPath(ends[0].from, ends[0].to)
	b := signed(r, &p, 100, 0)
	const tries = 1 << 20
	passed := 0
	for range tries {
		rocewire.PutICRC(b[100:], r.Uint32())
		if p.Check(b, rocewire.IdentificationsAny) {
			passed++
		}
	}
	// 16 are expected; the numbers are the same in each run.
	if passed < 8 || passed > 24 {
		t.Errorf("%d of %d random ICRCs pass", passed, tries)
	}
}

func TestICRCAllocatesNothing(t *testing.T) {
	r := random()
	for _, end := range ends {
		t.Run(fmt.Sprint(end.to), func(t *testing.T) {
			p := rocewire.NewPath(end.from, end.to)
			var packets [][]byte
			for _, size := range sizes {
				packets = append(packets, signed(r, &p, size, 63))
			}
			var sum uint32
			if n := testing.AllocsPerRun(20, func() {
				p := rocewire.NewPath(end.from, end.to)
				var hdr [rocewire.MaxHeaderLen]byte // stays on the stack
				h := rocewire.Header{Op: rocewire.WriteOnlyImm}
				sum += rocewire.UpdateHeader(p.Begin(100), h.Append(hdr[:0]))
				for _, b := range packets {
					sum += rocewire.UpdateHeader(p.BeginID(len(b), 5), b[:12])
					sum += rocewire.Update(0, b)
					if !p.Check(b, rocewire.IdentificationsRoCE) {
						sum++
					}
				}
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
			sink = sum
		})
	}
}
