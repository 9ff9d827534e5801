package wire

import "fmt"

// Opcode says what a packet is and which headers it has (9.2.1, table 38).
type Opcode uint8

// The opcodes of the reliable connection, and the one of the congestion
// notification of RoCEv2 (annex A17.9.3). Flush and AtomicWrite: annex A19.
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

// trait is one thing that an opcode says of its packet.
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

// traits are those of each opcode; 0 for the unknown.
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

// Known reports whether it is one of the opcodes of this package.
func (o Opcode) Known() bool { return o.has(known) }

// StartsMessage reports whether it is the first or only packet of a message, and
// EndsMessage whether it is the last or only one. A response's message is the
// response.
func (o Opcode) StartsMessage() bool { return o.has(starts) }

// EndsMessage reports whether it is the last or only packet of a message.
func (o Opcode) EndsMessage() bool { return o.has(ends) }

// Request reports whether it goes from requester to responder.
func (o Opcode) Request() bool { return o.has(known) && !o.has(response) && o != CNP }

// Response reports whether it goes from responder to requester.
func (o Opcode) Response() bool { return o.has(response) }

// IsSend reports whether it is a part of a SEND of any kind.
func (o Opcode) IsSend() bool { return o <= SendOnlyImm || o == SendLastInv || o == SendOnlyInv }

// IsWrite reports whether it is a part of an RDMA WRITE, with or without
// immediate data; AtomicWrite is none.
func (o Opcode) IsWrite() bool { return o >= WriteFirst && o <= WriteOnlyImm }

// IsReadResponse reports whether it is a part of a READ response.
func (o Opcode) IsReadResponse() bool { return o >= ReadResponseFirst && o <= ReadResponseOnly }

// IsAtomic reports whether it is a request with an AtomicETH.
func (o Opcode) IsAtomic() bool { return o.has(atomic) }

// HasReth reports whether the packet has a RETH: Addr, RKey and Length.
func (o Opcode) HasReth() bool { return o.has(reth) }

// HasAeth reports whether it has an AETH: Syndrome and MSN.
func (o Opcode) HasAeth() bool { return o.has(aeth) }

// HasImm reports whether it has immediate data.
func (o Opcode) HasImm() bool { return o.has(imm) }

// HasAtomic reports whether it has an AtomicETH: Addr, RKey, Swap and Compare.
func (o Opcode) HasAtomic() bool { return o.has(atomic) }

// HasAtomicAck reports whether it has an AtomicAckETH: Orig.
func (o Opcode) HasAtomicAck() bool { return o.has(atomicAck) }

// HasIeth reports whether it has an IETH: Invalidate.
func (o Opcode) HasIeth() bool { return o.has(ieth) }

// HasFeth reports whether it has a FETH: FlushKind.
func (o Opcode) HasFeth() bool { return o.has(feth) }

// HasPayload reports whether the packet may carry payload. It may be empty all
// the same.
func (o Opcode) HasPayload() bool { return o.has(hasPayload) }

// HeaderLen is the size of BTH and extended headers in bytes; that of a BTH for
// an unknown opcode.
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

// names are the opcodes in the words of table 38.
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
