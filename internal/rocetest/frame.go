package rocetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// Packet is a RoCEv2 packet with the headers around it.
type Packet struct {
	From, To       netip.AddrPort
	Identification uint16 // IPv4 only
	DontFragment   bool   // IPv4 only
	TOS            uint8  // DSCP and ECN; the traffic class of IPv6
	Checksum       uint16 // of UDP; 0: no checksum
	Data           []byte // BTH to ICRC
}

// Lengths in bytes.
const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
)

// ParseFrame parses an Ethernet frame. ok is false if it is not a packet to the RoCE
// port, over IPv4 or IPv6 without options or extension headers.
func ParseFrame(frame []byte) (p Packet, ok bool) {
	e := binary.BigEndian
	if len(frame) < ethernetLen {
		return p, false
	}
	ip := frame[ethernetLen:]
	var udp []byte
	var from, to netip.Addr
	switch e.Uint16(frame[12:]) {
	case 0x0800:
		if len(ip) < ipv4Len || ip[0] != 0x45 || ip[9] != 17 || int(e.Uint16(ip[2:])) > len(ip) || int(e.Uint16(ip[2:])) < ipv4Len {
			return p, false
		}
		p.TOS, p.Identification, p.DontFragment = ip[1], e.Uint16(ip[4:]), e.Uint16(ip[6:]) == 0x4000
		from, to = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		udp = ip[ipv4Len:e.Uint16(ip[2:])]
	case 0x86dd:
		if len(ip) < ipv6Len || ip[6] != 17 || int(e.Uint16(ip[4:])) > len(ip)-ipv6Len {
			return p, false
		}
		p.TOS = uint8(e.Uint16(ip) >> 4) //nolint:gosec // 8 of the 16 bits
		from, to = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		udp = ip[ipv6Len : ipv6Len+int(e.Uint16(ip[4:]))]
	default:
		return p, false
	}
	if len(udp) < udpLen || e.Uint16(udp[2:]) != rocewire.Port || int(e.Uint16(udp[4:])) != len(udp) {
		return p, false
	}
	p.From = netip.AddrPortFrom(from, e.Uint16(udp))
	p.To = netip.AddrPortFrom(to, e.Uint16(udp[2:]))
	p.Checksum = e.Uint16(udp[6:])
	p.Data = udp[udpLen:]
	return p, true
}

// Check decodes a packet and verifies that package rocewire would build the same one:
// encoding the header again gives the same bytes, and the ICRC is right for the
// packet's identification, which Path.Identify also finds.
func (p *Packet) Check() (h rocewire.Header, payload []byte, err error) {
	payload, err = h.Decode(p.Data)
	if err != nil {
		return h, nil, fmt.Errorf("decode %x: %w", p.Data, err)
	}
	if b := h.Append(nil); !bytes.Equal(b, p.Data[:len(b)]) {
		return h, nil, fmt.Errorf("header %x becomes %x: %+v", p.Data[:len(b)], b, h)
	}
	path := rocewire.NewPath(p.From, p.To)
	crc := rocewire.UpdateHeader(path.BeginID(len(p.Data), p.Identification), p.Data[:len(p.Data)-rocewire.ICRCLen])
	if got := rocewire.ICRC(p.Data); got != crc {
		return h, nil, fmt.Errorf("ICRC %#08x, computed with identification %d: %#08x", got, p.Identification, crc)
	}
	if id, ok := path.Identify(p.Data); !ok || id != p.Identification {
		return h, nil, fmt.Errorf("identification %d found, %v; it is %d", id, ok, p.Identification)
	}
	return h, payload, nil
}

// MissingOfRxe lists the kinds of packets that the kernel's rxe can send, over IPv4 and
// IPv6, and that a capture lacks. rxe of Linux 6.1 does not know FLUSH and ATOMIC WRITE
// and sends no CNP. It could send SEND with Invalidate, but package verbs has no such
// operation.
func MissingOfRxe(records []Record) (missing []string) {
	type kind struct {
		ipv6     bool
		op       rocewire.Opcode
		syndrome rocewire.Syndrome
	}
	seen := make(map[kind]bool)
	for _, r := range records {
		p, ok := ParseFrame(r.Frame)
		var h rocewire.Header
		if _, err := h.Decode(p.Data); ok && err == nil {
			if h.Syndrome.IsRNR() {
				h.Syndrome = rocewire.RNR(0)
			}
			seen[kind{p.To.Addr().Is6(), h.Op, h.Syndrome}] = true
		}
	}
	for _, ipv6 := range []bool{false, true} {
		family := "over IPv4"
		if ipv6 {
			family = "over IPv6"
		}
		for op := rocewire.SendFirst; op <= rocewire.FetchAdd; op++ {
			syndromes := []rocewire.Syndrome{0}
			switch {
			case op == rocewire.Ack:
				syndromes = []rocewire.Syndrome{
					rocewire.AckUnlimited, rocewire.RNR(0), rocewire.NAKSequence, rocewire.NAKInvalidRequest, rocewire.NAKRemoteAccess, rocewire.NAKRemoteOperation,
				}
			case op.HasAeth():
				syndromes = []rocewire.Syndrome{rocewire.AckUnlimited}
			}
			for _, s := range syndromes {
				if !seen[kind{ipv6, op, s}] {
					missing = append(missing, fmt.Sprintf("%v (%v) %s", op, s, family))
				}
			}
		}
	}
	return missing
}
