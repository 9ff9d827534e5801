package wire

// Verdict is what Path.Check thinks of a packet.
type Verdict bool

// The verdicts.
const (
	Bad  Verdict = false
	Good Verdict = true
)

func (v Verdict) String() string {
	if v == Good {
		return "good"
	}
	return "bad"
}

// IdentificationsRoCE and IdentificationsAny are how many identifications Check
// is to allow: those of the segments of one super-packet, from a peer that is
// such a device as this, and all, from others.
const (
	IdentificationsRoCE = 64
	IdentificationsAny  = 1 << 16
)

// Check says whether the ICRC of a received packet, from BTH to ICRC, fits the
// path. Over IPv6 it is the whole check. Over IPv4 the packet's identification,
// which the ICRC covers, does not reach a UDP socket: the ICRC must be right for
// an identification below ids, at most 65536.
//
// What that is worth: a damaged packet passes with a probability of ids in 2^32,
// one in 67 million for 64, one in 65536 for all.
func (p *Path) Check(packet []byte, ids int) Verdict {
	id, ok := p.Identify(packet)
	return Verdict(ok && int(id) < ids)
}

// Identify is the identification for which the ICRC of a received packet is
// right; 0 over IPv6. It is not ok when there is none.
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
	return p.undo.identification(difference, len(packet))
}
