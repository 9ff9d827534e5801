package frame

import (
	"encoding/binary"
	"fmt"
)

// Kind is the type of a frame.
type Kind uint8

// The kinds. Requests are those from Send to FetchAdd; a request that is longer than its
// first frame goes on in Data frames.
const (
	Send Kind = 1 + iota
	SendImm
	Write
	WriteImm
	Read
	CompareSwap
	FetchAdd
	Data     // continues the request before it
	Response // content of a read, or the old value of an atomic
	Ack      // nothing but what every header says
	RNR      // no receive is posted for the request Number
	Ready    // a receive is posted now for the request that RNR named
	NAK      // the request Number is refused with the status in Imm
	Probe    // asks for Ack, RNR or Ready
	lastKind = Probe
)

func (k Kind) String() string {
	names := [...]string{"0", "SEND", "SEND_WITH_IMM", "WRITE", "WRITE_WITH_IMM", "READ", "CMP_AND_SWP", "FETCH_AND_ADD", "DATA", "RESPONSE", "ACK", "RNR", "READY", "NAK", "PROBE"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("%d", uint8(k))
}

// IsRequest reports whether a frame of the kind begins a request.
func (k Kind) IsRequest() bool { return k >= Send && k <= FetchAdd }

// HasImm reports whether the request has immediate data, and takes a receive for it.
func (k Kind) HasImm() bool { return k == SendImm || k == WriteImm }

// The flags of a request.
const (
	Solicited uint8 = 1 << iota // the completion at the peer is solicited
	WantAck                     // acknowledge at once
	allFlags  = Solicited | WantAck
)

// HeaderLen is the length of a header in bytes.
const HeaderLen = 48

// AtomicLen is the length in bytes of the operands of an atomic: the value to compare, and
// the value to store or to add.
const AtomicLen = 16

// Header is the header of a frame. A field that the kind does not have is zero.
type Header struct {
	Kind   Kind
	Flags  uint8
	Length uint32 // bytes that follow
	// Number is that of the request: of the sender for requests, Data and Probe, of the
	// receiver for all others. Each side counts its requests from its PSN.
	Number uint64
	// Acked says that the sender has executed all requests of the receiver below it.
	Acked uint64
	RKey  uint32
	Imm   uint32 // immediate data; the RNR timer of RNR; the status of NAK
	Addr  uint64 // address in the memory of the receiver
	Total uint64 // bytes of the whole request
}

// Append appends the header to b.
func (h *Header) Append(b []byte) []byte {
	b = append(b, byte(h.Kind), h.Flags, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.Length)
	b = binary.LittleEndian.AppendUint64(b, h.Number)
	b = binary.LittleEndian.AppendUint64(b, h.Acked)
	b = binary.LittleEndian.AppendUint32(b, h.RKey)
	b = binary.LittleEndian.AppendUint32(b, h.Imm)
	b = binary.LittleEndian.AppendUint64(b, h.Addr)
	return binary.LittleEndian.AppendUint64(b, h.Total)
}

// Parse reads the header at the start of b, which has at least HeaderLen bytes. It refuses
// what no sender of this version writes.
func (h *Header) Parse(b []byte) error {
	*h = Header{
		Kind: Kind(b[0]), Flags: b[1],
		Length: binary.LittleEndian.Uint32(b[4:]),
		Number: binary.LittleEndian.Uint64(b[8:]),
		Acked:  binary.LittleEndian.Uint64(b[16:]),
		RKey:   binary.LittleEndian.Uint32(b[24:]),
		Imm:    binary.LittleEndian.Uint32(b[28:]),
		Addr:   binary.LittleEndian.Uint64(b[32:]),
		Total:  binary.LittleEndian.Uint64(b[40:]),
	}
	switch {
	case h.Kind == 0 || h.Kind > lastKind:
		return fmt.Errorf("a frame of the unknown kind %v", h.Kind)
	case b[2] != 0 || b[3] != 0:
		return fmt.Errorf("%v with reserved bytes %#x, which must be 0", h.Kind, b[2:4])
	case h.Length > MaxPayload:
		return fmt.Errorf("%v with %d bytes: at most %d may follow a header", h.Kind, h.Length, MaxPayload)
	case h.Flags&^allFlags != 0 || h.Flags != 0 && !h.Kind.IsRequest():
		return fmt.Errorf("%v with the unknown flags %#x", h.Kind, h.Flags)
	}
	if why := h.wrong(); why != "" {
		return fmt.Errorf("%v with %s", h.Kind, why)
	}
	return nil
}

// wrong says which field does not fit the kind; empty for none.
func (h *Header) wrong() string {
	addressed := h.Kind >= Write && h.Kind <= FetchAdd
	switch {
	case !addressed && (h.RKey != 0 || h.Addr != 0):
		return "a key or an address"
	case !h.Kind.HasImm() && h.Kind != RNR && h.Kind != NAK && h.Imm != 0:
		return "immediate data"
	case !h.Kind.IsRequest() && h.Total != 0:
		return "a total length"
	case h.Total > MaxMessage:
		return fmt.Sprintf("a total length of %d: the limit is %d", h.Total, uint64(MaxMessage))
	}
	switch h.Kind {
	case Send, SendImm, Write, WriteImm:
		if uint64(h.Length) > h.Total || h.Length == 0 && h.Total != 0 {
			return fmt.Sprintf("%d bytes of %d", h.Length, h.Total)
		}
	case CompareSwap, FetchAdd:
		if h.Length != AtomicLen || h.Total != 8 {
			return fmt.Sprintf("%d bytes for %d: an atomic has %d for 8", h.Length, h.Total, AtomicLen)
		}
	case Data:
		if h.Length == 0 {
			return "no bytes"
		}
	case Response:
	default:
		if h.Length != 0 {
			return fmt.Sprintf("%d bytes, and none may follow", h.Length)
		}
	}
	return ""
}
