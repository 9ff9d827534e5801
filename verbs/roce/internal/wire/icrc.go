package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// The ICRC (invariant CRC; annex A17.3.3, and 7.8.1 for the polynomial) is the
// CRC-32 of IEEE 802.3, that of hash/crc32.IEEE, over what no switch may change
// of a packet. Fields that one may change count as all ones, as does an LRH that
// is not there:
//
//	8 bytes of ones              in place of InfiniBand's LRH
//	IPv4 header, 20 bytes        but TOS, TTL and checksum as ones
//	or IPv6 header, 40 bytes     but traffic class, flow label and hop limit as ones
//	UDP header, 8 bytes          but its checksum as ones
//	BTH                          but byte 4 (FECN, BECN, reserved) as ones
//	extended headers, payload, pad
//
// So it covers addresses, ports, lengths, the DF bit and IPv4's identification.
// It is stored little-endian.
//
// The values of type uint32 in this package are CRCs as hash/crc32 has them,
// inverted already: what Begin gives is the CRC of the headers, Update continues
// it as crc32.Update does, and the last one is what PutICRC stores. Nobody
// inverts anything.

// Update continues a CRC over b: extended headers, payload, pad.
func Update(crc uint32, b []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, b) }

// UpdateHeader continues a CRC over hdr, which begins with a BTH of which it takes
// byte 4 as all ones, without writing to it. What follows the BTH in hdr counts,
// too; it is made for headers, and for a payload Update is faster.
func UpdateHeader(crc uint32, hdr []byte) uint32 {
	e := binary.LittleEndian
	r := fourBytes(^crc ^ e.Uint32(hdr))
	r = fourBytes(r ^ (e.Uint32(hdr[congestionByte:]) | 0xff))
	return ^fewBytes(r, hdr[congestionByte+4:])
}

// PutICRC stores the CRC of a whole packet in the 4 bytes at the beginning of b.
func PutICRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// AppendICRC appends the CRC of a whole packet.
func AppendICRC(b []byte, crc uint32) []byte { return binary.LittleEndian.AppendUint32(b, crc) }

// ICRC is the CRC that the last 4 bytes of a packet hold.
func ICRC(packet []byte) uint32 { return binary.LittleEndian.Uint32(packet[len(packet)-ICRCLen:]) }

// Sizes and fields of the headers below the BTH, in bytes (RFC 791, 8200, 768).
const (
	lrhLen  = 8
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8

	protocolUDP  = 17
	dontFragment = 0x4000
)

// Path is what the ICRC covers of one direction between two sockets: addresses
// and ports. Begin and BeginID may be called from many goroutines; Check and
// Identify keep a little from call to call, so one goroutine at a time calls them.
type Path struct {
	ipv6 bool
	// empty is the CRC of the headers with lengths and identification 0.
	empty uint32
	undo  undoCache
}

// NewPath is the path of packets from one socket to another. IPv4-mapped IPv6
// addresses are IPv4, zones are passed over. Both are to be of one family; no
// packet goes along another path, so what it says of one does not matter.
func NewPath(from, to netip.AddrPort) Path {
	src, dst := from.Addr().Unmap(), to.Addr().Unmap()
	e := binary.BigEndian
	b := append(make([]byte, 0, lrhLen+ipv6Len+udpLen), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	if dst.Is6() {
		s, d := src.As16(), dst.As16()
		b = e.AppendUint32(b, 6<<28|0x0fffffff) // version; traffic class and flow label
		b = append(b, 0, 0, protocolUDP, 0xff)  // payload length; hop limit
		b = append(append(b, s[:]...), d[:]...)
	} else {
		s, d := in4(src), in4(dst)
		b = append(b, 4<<4|ipv4Len/4, 0xff, 0, 0) // TOS, total length
		b = append(b, 0, 0)                       // identification
		b = e.AppendUint16(b, dontFragment)
		b = append(b, 0xff, protocolUDP, 0xff, 0xff) // TTL, checksum
		b = append(append(b, s[:]...), d[:]...)
	}
	b = e.AppendUint16(e.AppendUint16(b, from.Port()), to.Port())
	b = append(b, 0, 0, 0xff, 0xff) // length, checksum
	return Path{ipv6: dst.Is6(), empty: ^fewBytes(^uint32(0), b)}
}

// in4 is an IPv4 address; 0.0.0.0 for any other.
func in4(a netip.Addr) (b [4]byte) {
	if a.Is4() {
		b = a.As4()
	}
	return b
}

// Begin is the CRC of everything before the BTH, for a packet of so many bytes
// from BTH to ICRC. For IPv4 the identification is 0 and the DF bit set, as
// Linux sends from an unconnected socket with IP_PMTUDISC_DO.
func (p *Path) Begin(udpPayload int) uint32 {
	length := uint16(udpLen + udpPayload) //nolint:gosec // of one datagram
	crc := p.empty ^ udpLength.of(length)
	if p.ipv6 {
		return crc ^ ipv6PayloadLength.of(length)
	}
	return crc ^ ipv4TotalLength.of(ipv4Len+length)
}

// BeginID is Begin for a packet with that identification: segment id of a
// super-packet (UDP_SEGMENT), which the kernel counts from 0. IPv6 has none.
func (p *Path) BeginID(udpPayload int, id uint16) uint32 {
	crc := p.Begin(udpPayload)
	if p.ipv6 {
		return crc
	}
	return crc ^ ipv4Identification.of(id)
}
