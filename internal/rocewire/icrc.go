package rocewire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// The ICRC (invariant CRC; annex A17.3.3, polynomial: 7.8.1) is the CRC-32 of IEEE
// 802.3, as hash/crc32.IEEE, over the part of a packet that switches do not change.
// Fields that they may change count as all ones:
//
//	8 bytes of ones              in place of InfiniBand's LRH
//	IPv4 header, 20 bytes        with TOS, TTL and checksum as ones
//	or IPv6 header, 40 bytes     with traffic class, flow label and hop limit as ones
//	UDP header, 8 bytes          with the checksum as ones
//	BTH                          with byte 4 (FECN, BECN, reserved) as ones
//	extended headers, payload, pad
//
// So the ICRC covers addresses, ports, lengths, the DF bit and the IPv4 identification.
// It is stored little-endian.
//
// CRC values in this package are those of hash/crc32: already inverted. Begin returns
// the CRC of the headers, Update continues it as crc32.Update does, and PutICRC stores
// the result. Callers never invert anything.

// Update continues a CRC over b: extended headers, payload, pad.
func Update(crc uint32, b []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, b) }

// UpdateHeader continues a CRC over hdr, which begins with a BTH. It counts byte 4 of
// the BTH as all ones and does not write to hdr. It covers all of hdr, but is slower
// than Update for a payload.
func UpdateHeader(crc uint32, hdr []byte) uint32 {
	e := binary.LittleEndian
	r := update4(^crc ^ e.Uint32(hdr))
	r = update4(r ^ (e.Uint32(hdr[congestionByte:]) | 0xff))
	return ^updateShort(r, hdr[congestionByte+4:])
}

// PutICRC stores the CRC of a whole packet in the first 4 bytes of b.
func PutICRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// AppendICRC appends the CRC of a whole packet.
func AppendICRC(b []byte, crc uint32) []byte { return binary.LittleEndian.AppendUint32(b, crc) }

// ICRC returns the CRC stored in the last 4 bytes of a packet.
func ICRC(packet []byte) uint32 { return binary.LittleEndian.Uint32(packet[len(packet)-ICRCLen:]) }

// Lengths and fields of the headers below the BTH, in bytes (RFC 791, 8200, 768).
const (
	lrhLen  = 8
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8

	protocolUDP  = 17
	dontFragment = 0x4000
)

// Path holds what the ICRC covers of one direction between two sockets: addresses and
// ports. Begin and BeginID are safe for concurrent use; Check and Identify are not,
// since they fill a cache.
type Path struct {
	ipv6 bool
	// zeroLen is the CRC of the headers with lengths and identification 0.
	zeroLen  uint32
	inverses inverseCache
}

// NewPath returns the path of packets from one socket to another. IPv4-mapped IPv6
// addresses count as IPv4, and zones are ignored. Both addresses must be of the same
// family; the CRCs of a path with mixed families fit no packet.
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
		s, d := as4(src), as4(dst)
		b = append(b, 4<<4|ipv4Len/4, 0xff, 0, 0) // TOS, total length
		b = append(b, 0, 0)                       // identification
		b = e.AppendUint16(b, dontFragment)
		b = append(b, 0xff, protocolUDP, 0xff, 0xff) // TTL, checksum
		b = append(append(b, s[:]...), d[:]...)
	}
	b = e.AppendUint16(e.AppendUint16(b, from.Port()), to.Port())
	b = append(b, 0, 0, 0xff, 0xff) // length, checksum
	return Path{ipv6: dst.Is6(), zeroLen: ^updateShort(^uint32(0), b)}
}

// as4 returns an IPv4 address; 0.0.0.0 for any other.
func as4(a netip.Addr) (b [4]byte) {
	if a.Is4() {
		b = a.As4()
	}
	return b
}

// Begin returns the CRC of everything before the BTH. udpPayload is the packet's length
// from BTH to ICRC, in bytes. For IPv4 it assumes identification 0 and the DF bit,
// which Linux sends from an unconnected socket with IP_PMTUDISC_DO.
func (p *Path) Begin(udpPayload int) uint32 {
	length := uint16(udpLen + udpPayload) //nolint:gosec // of one datagram
	crc := p.zeroLen ^ udpLength.of(length)
	if p.ipv6 {
		return crc ^ ipv6PayloadLength.of(length)
	}
	return crc ^ ipv4TotalLength.of(ipv4Len+length)
}

// BeginID is Begin for a packet with the given IPv4 identification. Segment i of a
// super-packet (UDP_SEGMENT) has identification i. IPv6 has no identification.
func (p *Path) BeginID(udpPayload int, id uint16) uint32 {
	crc := p.Begin(udpPayload)
	if p.ipv6 {
		return crc
	}
	return crc ^ ipv4Identification.of(id)
}
