package rocewire

import "fmt"

// Opcode identifies the kind of a packet and with it the packet's headers (9.2.1, table
// 38).
type Opcode uint8

// The opcodes of the reliable connection, and that of the RoCEv2 congestion
// notification packet (annex A17.9.3). Flush and AtomicWrite: annex A19.
const (
	SendFirst Opcode = iota
	SendMiddle
	SendLast
	SendLastImm
	SendOnly
	SendOnlyImm
	WriteFirst
	WriteMiddle
	WriteLast
	WriteLastImm
	WriteOnly
	WriteOnlyImm
	ReadRequest
	ReadResponseFirst
	ReadResponseMiddle
	ReadResponseLast
	ReadResponseOnly
	Ack
	AtomicAck
	CompareSwap
	FetchAdd
	_
	SendLastInv
	SendOnlyInv
	Flush       Opcode = 0x1c
	AtomicWrite Opcode = 0x1d
	CNP         Opcode = 0x81
)

// trait is a set of properties of an opcode.
type trait uint16

const (
	known trait = 1 << iota
	starts
	ends
	response
	reth
	aeth
	imm
	atomic
	atomicAck
	ieth
	feth
	hasPayload
)

// traits holds the properties of each opcode; 0 for unknown opcodes.
var traits = [256]trait{
	SendFirst:          known | starts | hasPayload,
	SendMiddle:         known | hasPayload,
	SendLast:           known | ends | hasPayload,
	SendLastImm:        known | ends | imm | hasPayload,
	SendOnly:           known | starts | ends | hasPayload,
	SendOnlyImm:        known | starts | ends | imm | hasPayload,
	WriteFirst:         known | starts | reth | hasPayload,
	WriteMiddle:        known | hasPayload,
	WriteLast:          known | ends | hasPayload,
	WriteLastImm:       known | ends | imm | hasPayload,
	WriteOnly:          known | starts | ends | reth | hasPayload,
	WriteOnlyImm:       known | starts | ends | reth | imm | hasPayload,
	ReadRequest:        known | starts | ends | reth,
	ReadResponseFirst:  known | starts | response | aeth | hasPayload,
	ReadResponseMiddle: known | response | hasPayload,
	ReadResponseLast:   known | ends | response | aeth | hasPayload,
	ReadResponseOnly:   known | starts | ends | response | aeth | hasPayload,
	Ack:                known | starts | ends | response | aeth,
	AtomicAck:          known | starts | ends | response | aeth | atomicAck,
	CompareSwap:        known | starts | ends | atomic,
	FetchAdd:           known | starts | ends | atomic,
	SendLastInv:        known | ends | ieth | hasPayload,
	SendOnlyInv:        known | starts | ends | ieth | hasPayload,
	Flush:              known | starts | ends | feth | reth,
	AtomicWrite:        known | starts | ends | reth | hasPayload,
	CNP:                known | starts | ends,
}

func (o Opcode) has(t trait) bool { return traits[o]&t != 0 }

// Known reports whether this package knows the opcode.
func (o Opcode) Known() bool { return o.has(known) }

// StartsMessage reports whether the packet is the first or only one of a message. The
// packets of a response form a message of their own.
func (o Opcode) StartsMessage() bool { return o.has(starts) }

// EndsMessage reports whether the packet is the last or only one of a message.
func (o Opcode) EndsMessage() bool { return o.has(ends) }

// Request reports whether the packet goes from requester to responder.
func (o Opcode) Request() bool { return o.has(known) && !o.has(response) && o != CNP }

// Response reports whether the packet goes from responder to requester.
func (o Opcode) Response() bool { return o.has(response) }

// IsSend reports whether the packet belongs to a SEND of any kind.
func (o Opcode) IsSend() bool { return o <= SendOnlyImm || o == SendLastInv || o == SendOnlyInv }

// IsWrite reports whether the packet belongs to an RDMA WRITE, with or without
// immediate data. AtomicWrite does not.
func (o Opcode) IsWrite() bool { return o >= WriteFirst && o <= WriteOnlyImm }

// IsReadResponse reports whether the packet belongs to a READ response.
func (o Opcode) IsReadResponse() bool { return o >= ReadResponseFirst && o <= ReadResponseOnly }

// IsAtomic reports whether the packet is a request with an AtomicETH.
func (o Opcode) IsAtomic() bool { return o.has(atomic) }

// HasReth reports whether the packet has a RETH: Addr, RKey and Length.
func (o Opcode) HasReth() bool { return o.has(reth) }

// HasAeth reports whether the packet has an AETH: Syndrome and MSN.
func (o Opcode) HasAeth() bool { return o.has(aeth) }

// HasImm reports whether the packet has immediate data.
func (o Opcode) HasImm() bool { return o.has(imm) }

// HasAtomic reports whether the packet has an AtomicETH: Addr, RKey, Swap and Compare.
func (o Opcode) HasAtomic() bool { return o.has(atomic) }

// HasAtomicAck reports whether the packet has an AtomicAckETH: Orig.
func (o Opcode) HasAtomicAck() bool { return o.has(atomicAck) }

// HasIeth reports whether the packet has an IETH: Invalidate.
func (o Opcode) HasIeth() bool { return o.has(ieth) }

// HasFeth reports whether the packet has a FETH: FlushKind.
func (o Opcode) HasFeth() bool { return o.has(feth) }

// HasPayload reports whether the packet may carry payload, which may be empty.
func (o Opcode) HasPayload() bool { return o.has(hasPayload) }

// HeaderLen returns the length of BTH and extended headers in bytes. For an unknown
// opcode it is the length of the BTH.
func (o Opcode) HeaderLen() int {
	t, n := traits[o], BTHLen
	if t&feth != 0 {
		n += FETHLen
	}
	if t&reth != 0 {
		n += RETHLen
	}
	if t&atomic != 0 {
		n += AtomicETHLen
	}
	if t&aeth != 0 {
		n += AETHLen
	}
	if t&atomicAck != 0 {
		n += AtomicAckETHLen
	}
	if t&imm != 0 {
		n += ImmDtLen
	}
	if t&ieth != 0 {
		n += IETHLen
	}
	if o == CNP {
		n += CNPLen
	}
	return n
}

// names holds the names of table 38.
var names = [256]string{
	SendFirst:          "SEND First",
	SendMiddle:         "SEND Middle",
	SendLast:           "SEND Last",
	SendLastImm:        "SEND Last with Immediate",
	SendOnly:           "SEND Only",
	SendOnlyImm:        "SEND Only with Immediate",
	WriteFirst:         "RDMA WRITE First",
	WriteMiddle:        "RDMA WRITE Middle",
	WriteLast:          "RDMA WRITE Last",
	WriteLastImm:       "RDMA WRITE Last with Immediate",
	WriteOnly:          "RDMA WRITE Only",
	WriteOnlyImm:       "RDMA WRITE Only with Immediate",
	ReadRequest:        "RDMA READ Request",
	ReadResponseFirst:  "RDMA READ Response First",
	ReadResponseMiddle: "RDMA READ Response Middle",
	ReadResponseLast:   "RDMA READ Response Last",
	ReadResponseOnly:   "RDMA READ Response Only",
	Ack:                "Acknowledge",
	AtomicAck:          "ATOMIC Acknowledge",
	CompareSwap:        "CmpSwap",
	FetchAdd:           "FetchAdd",
	SendLastInv:        "SEND Last with Invalidate",
	SendOnlyInv:        "SEND Only with Invalidate",
	Flush:              "FLUSH",
	AtomicWrite:        "ATOMIC WRITE",
	CNP:                "CNP",
}

func (o Opcode) String() string {
	if s := names[o]; s != "" {
		return s
	}
	return fmt.Sprintf("opcode 0x%02x", uint8(o))
}
