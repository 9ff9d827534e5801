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

// UpdateHeader continues a CRC over hdr, which begins with a BTH, of which it
// takes byte 4 as all ones without writing to it. What follows the BTH in hdr
// counts, too.
func UpdateHeader(crc uint32, hdr []byte) uint32 {
	crc = Update(crc, hdr[:congestionByte])
	crc = Update(crc, ones[:1])
	return Update(crc, hdr[congestionByte+1:])
}

var ones = [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

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

	// maxPseudo is the longest of what is before the BTH.
	maxPseudo = lrhLen + ipv6Len + udpLen

	protocolUDP  = 17
	dontFragment = 0x4000
)

// Path is what the ICRC covers of one direction between two sockets: addresses
// and ports, of one family. Check keeps a little from call to call, so a Path is
// for one goroutine at a time.
type Path struct {
	ipv6   bool
	pseudo [maxPseudo]byte // LRH, IP and UDP headers, masked; lengths and identification 0
	length int             // of pseudo
	undo   undoCache
}

// NewPath is the path of packets from one socket to another. IPv4-mapped IPv6
// addresses are IPv4, zones are passed over. Both must be of one family: the
// ICRC of any other path fits no packet.
func NewPath(from, to netip.AddrPort) Path {
	src, dst := from.Addr().Unmap(), to.Addr().Unmap()
	p := Path{ipv6: dst.Is6()}
	e := binary.BigEndian
	copy(p.pseudo[:], ones[:lrhLen])
	ip := p.pseudo[lrhLen:]
	var udp []byte
	if p.ipv6 {
		e.PutUint32(ip, 6<<28|0x0fffffff)
		ip[6], ip[7] = protocolUDP, 0xff
		a, b := src.As16(), dst.As16()
		copy(ip[8:], a[:])
		copy(ip[24:], b[:])
		udp = ip[ipv6Len:]
		p.length = lrhLen + ipv6Len + udpLen
	} else {
		ip[0], ip[1] = 4<<4|ipv4Len/4, 0xff
		e.PutUint16(ip[6:], dontFragment)
		ip[8], ip[9] = 0xff, protocolUDP
		ip[10], ip[11] = 0xff, 0xff
		var a, b [4]byte
		if src.Is4() {
			a = src.As4()
		}
		if dst.Is4() {
			b = dst.As4()
		}
		copy(ip[12:], a[:])
		copy(ip[16:], b[:])
		udp = ip[ipv4Len:]
		p.length = lrhLen + ipv4Len + udpLen
	}
	e.PutUint16(udp, from.Port())
	e.PutUint16(udp[2:], to.Port())
	udp[6], udp[7] = 0xff, 0xff
	return p
}

// Begin is the CRC of everything before the BTH, for a packet of so many bytes
// from BTH to ICRC. For IPv4 the identification is 0 and the DF bit set, as
// Linux sends from an unconnected socket with IP_PMTUDISC_DO.
func (p *Path) Begin(udpPayload int) uint32 { return p.BeginID(udpPayload, 0) }

// BeginID is Begin for a packet with that identification: segment id of a
// super-packet (UDP_SEGMENT), which the kernel counts from 0. IPv6 has none.
func (p *Path) BeginID(udpPayload int, id uint16) uint32 {
	b := p.pseudo
	e := binary.BigEndian
	ip := b[lrhLen:p.length]
	if p.ipv6 {
		e.PutUint16(ip[4:], uint16(udpLen+udpPayload))         //nolint:gosec // of one datagram
		e.PutUint16(ip[ipv6Len+4:], uint16(udpLen+udpPayload)) //nolint:gosec // of one datagram
	} else {
		e.PutUint16(ip[2:], uint16(ipv4Len+udpLen+udpPayload)) //nolint:gosec // of one datagram
		e.PutUint16(ip[4:], id)
		e.PutUint16(ip[ipv4Len+4:], uint16(udpLen+udpPayload)) //nolint:gosec // of one datagram
	}
	return Update(0, b[:p.length])
}
