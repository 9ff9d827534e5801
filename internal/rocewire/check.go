package rocewire

// How many IPv4 identifications Check allows, counted from 0. See Check.
const (
	// IdentificationsRoCE is for peers whose sockets are those of package udp: the
	// kernel numbers the segments of a super-packet (UDP_SEGMENT) from 0 on.
	IdentificationsRoCE = 64
	// IdentificationsAny is for kernels and NICs, which use any identification.
	IdentificationsAny = 1 << 16
)

// Check reports whether the ICRC of a received packet, from BTH to ICRC, is right for
// the path. Over IPv6 the check is complete. Over IPv4 the ICRC covers the
// identification of the IP header, which a UDP socket does not deliver, so Check
// accepts an ICRC that is right for any identification below ids (at most 65536).
//
// A damaged packet passes over IPv4 with a probability of ids in 2^32: one in 67
// million for 64 identifications, one in 65536 for all of them.
func (p *Path) Check(packet []byte, ids int) bool {
	id, ok := p.Identify(packet)
	return ok && int(id) < ids
}

// Identify returns the IPv4 identification for which the ICRC of a received packet
// is right; over IPv6 it returns 0. ok is false when there is none, that is, when
// the packet is damaged or comes from another path.
func (p *Path) Identify(packet []byte) (id uint16, ok bool) {
	if len(packet) < MinPacketLen {
		return 0, false
	}
	crc := UpdateHeader(p.Begin(len(packet)), packet[:BTHLen])
	if end := len(packet) - ICRCLen; end > BTHLen {
		crc = Update(crc, packet[BTHLen:end])
	}
	difference := crc ^ ICRC(packet)
	if difference == 0 {
		return 0, true
	}
	if p.ipv6 {
		return 0, false
	}
	return p.inverses.identification(difference, len(packet))
}
