package rocewire

import (
	"encoding/binary"

	"github.com/tryst-rdma/tryst/verbs"
)

// Header holds all fields before the payload. The opcode decides which fields are
// present besides those of the BTH: Decode sets the others to 0, and Append ignores
// them.
type Header struct {
	// The BTH.
	Op        Opcode
	Solicited bool      // solicited event
	MigReq    bool      // path migration state; senders without path migration set it
	AckReq    bool      // request for an acknowledgement
	FECN      bool      // congestion on the forward path
	BECN      bool      // congestion on the return path
	Pad       uint8     // pad bytes after the payload, 0 to 3; see PadOf
	PKey      uint16    // partition key
	DestQP    verbs.QPN // 24 bits
	PSN       verbs.PSN // 24 bits

	// RETH; AtomicETH has Addr and RKey too.
	Addr   uint64
	RKey   verbs.RKey
	Length uint32 // bytes of the whole message

	// AtomicETH.
	Swap    uint64 // the value that CompareSwap stores or FetchAdd adds
	Compare uint64

	Imm        uint32     // ImmDt, in host byte order
	Invalidate verbs.RKey // IETH

	// AETH.
	Syndrome Syndrome
	MSN      uint32 // 24 bits: number of messages that the responder has completed

	Orig uint64 // AtomicAckETH: the original value

	FlushKind uint32 // FETH: placement type in bits 0 to 3, selectivity in 4 and 5
}

// PadOf returns the pad count of a payload of n bytes.
func PadOf(n int) uint8 { return uint8(-n & maxPad) } //nolint:gosec // 0 to 3

// Len returns the number of bytes that Append adds.
func (h *Header) Len() int { return h.Op.HeaderLen() }

// Append appends the header to b. Reserved fields are 0. Bits beyond the width of a
// field are cut off.
func (h *Header) Append(b []byte) []byte {
	e := binary.BigEndian
	t := traits[h.Op]
	b = append(b, byte(h.Op), bit(h.Solicited, bitSolicited)|bit(h.MigReq, bitMigReq)|h.Pad&maxPad<<shiftPad)
	b = e.AppendUint16(b, h.PKey)
	b = e.AppendUint32(b, uint32(bit(h.FECN, bitFECN)|bit(h.BECN, bitBECN))<<24|uint32(h.DestQP)&mask24)
	b = e.AppendUint32(b, uint32(bit(h.AckReq, bitAckReq))<<24|uint32(h.PSN)&mask24)
	if t&feth != 0 {
		b = e.AppendUint32(b, h.FlushKind)
	}
	if t&(reth|atomic) != 0 {
		b = e.AppendUint64(b, h.Addr)
		b = e.AppendUint32(b, uint32(h.RKey))
		if t&reth != 0 {
			b = e.AppendUint32(b, h.Length)
		} else {
			b = e.AppendUint64(b, h.Swap)
			b = e.AppendUint64(b, h.Compare)
		}
	}
	if t&aeth != 0 {
		b = e.AppendUint32(b, uint32(h.Syndrome)<<24|h.MSN&mask24)
	}
	if t&atomicAck != 0 {
		b = e.AppendUint64(b, h.Orig)
	}
	if t&imm != 0 {
		b = e.AppendUint32(b, h.Imm)
	}
	if t&ieth != 0 {
		b = e.AppendUint32(b, uint32(h.Invalidate))
	}
	if h.Op == CNP {
		b = append(b, make([]byte, CNPLen)...)
	}
	return b
}

func bit(set bool, b byte) byte {
	if set {
		return b
	}
	return 0
}

// Decode parses a packet, from BTH to ICRC. The returned payload is a part of b,
// without pad and ICRC. Errors are the values Err* of this package.
//
// Decode checks only what a single packet shows. The caller, which knows the
// connection, checks the order of opcodes, and the length of the payload against path
// MTU and RETH. Path.Check verifies the ICRC. Reserved bits are ignored (9.2).
func (h *Header) Decode(b []byte) (payload []byte, err error) {
	*h = Header{}
	if len(b) < MinPacketLen {
		return nil, ErrShort
	}
	if b[1]&maskVersion != 0 {
		return nil, ErrVersion
	}
	e := binary.BigEndian
	h.Op = Opcode(b[0])
	h.Solicited = b[1]&bitSolicited != 0
	h.MigReq = b[1]&bitMigReq != 0
	h.Pad = b[1] >> shiftPad & maxPad
	h.PKey = e.Uint16(b[2:])
	h.FECN = b[congestionByte]&bitFECN != 0
	h.BECN = b[congestionByte]&bitBECN != 0
	h.DestQP = verbs.QPN(e.Uint32(b[4:]) & mask24)
	h.AckReq = b[8]&bitAckReq != 0
	h.PSN = verbs.PSN(e.Uint32(b[8:]) & mask24)

	t := traits[h.Op]
	if t&known == 0 {
		return nil, ErrOpcode
	}
	if len(b)&maxPad != 0 {
		return nil, ErrUnaligned
	}
	n := h.Op.HeaderLen()
	if len(b) < n+ICRCLen {
		return nil, ErrHeader
	}
	payload = b[n : len(b)-ICRCLen]
	switch {
	case len(payload) < int(h.Pad):
		return nil, ErrPad
	case len(payload) > 0 && t&hasPayload == 0:
		return nil, ErrPayload
	case h.Pad != 0 && t&ends == 0:
		return nil, ErrPadInside
	}
	h.decodeExtended(t, b[BTHLen:n])
	return payload[:len(payload)-int(h.Pad)], nil
}

// decodeExtended parses the extended headers, which fill b.
func (h *Header) decodeExtended(t trait, b []byte) {
	e := binary.BigEndian
	if t&feth != 0 {
		h.FlushKind = e.Uint32(b)
		b = b[FETHLen:]
	}
	if t&(reth|atomic) != 0 {
		h.Addr = e.Uint64(b)
		h.RKey = verbs.RKey(e.Uint32(b[8:]))
		if t&reth != 0 {
			h.Length = e.Uint32(b[12:])
			b = b[RETHLen:]
		} else {
			h.Swap = e.Uint64(b[12:])
			h.Compare = e.Uint64(b[20:])
			b = b[AtomicETHLen:]
		}
	}
	if t&aeth != 0 {
		h.Syndrome = Syndrome(b[0])
		h.MSN = e.Uint32(b) & mask24
		b = b[AETHLen:]
	}
	if t&atomicAck != 0 {
		h.Orig = e.Uint64(b)
		b = b[AtomicAckETHLen:]
	}
	if t&imm != 0 {
		h.Imm = e.Uint32(b)
		b = b[ImmDtLen:]
	}
	if t&ieth != 0 {
		h.Invalidate = verbs.RKey(e.Uint32(b))
	}
}
