package rocetest

import "github.com/tryst-rdma/tryst/internal/rocewire"

// This file exports the part of the packet codec that tests outside verbs/roce need.

// Header holds all fields of a packet before the payload.
type Header = rocewire.Header

// Opcode identifies the kind of a packet.
type Opcode = rocewire.Opcode

// Syndrome is the syndrome of an AETH.
type Syndrome = rocewire.Syndrome

// Path holds what the ICRC covers of one direction between two sockets.
type Path = rocewire.Path

// Opcodes.
const (
	SendFirst    = rocewire.SendFirst
	SendLast     = rocewire.SendLast
	SendOnly     = rocewire.SendOnly
	SendOnlyInv  = rocewire.SendOnlyInv
	WriteFirst   = rocewire.WriteFirst
	WriteMiddle  = rocewire.WriteMiddle
	WriteLast    = rocewire.WriteLast
	WriteOnly    = rocewire.WriteOnly
	WriteOnlyImm = rocewire.WriteOnlyImm
	ReadRequest  = rocewire.ReadRequest
	Ack          = rocewire.Ack
	FetchAdd     = rocewire.FetchAdd
	AtomicWrite  = rocewire.AtomicWrite
	CNP          = rocewire.CNP
)

// Syndromes of acknowledgements.
const (
	AckUnlimited = rocewire.AckUnlimited
	NAKSequence  = rocewire.NAKSequence
)

// Other constants.
const (
	Port               = rocewire.Port
	DefaultPKey        = rocewire.DefaultPKey
	IdentificationsAny = rocewire.IdentificationsAny
	// MinOverhead is the length of a packet without extended headers and payload.
	MinOverhead = rocewire.MinPacketLen
)

// NewPath returns the path of packets from one socket to another.
var NewPath = rocewire.NewPath

// AppendPacket appends a packet, from BTH to ICRC, to b. It sets the pad count of h.
// id is the IPv4 identification that the ICRC covers. change, unless it is nil,
// alters the bytes from BTH to pad before the ICRC is computed.
func AppendPacket(b []byte, path *Path, id uint16, h Header, payload []byte, change func([]byte) []byte) []byte {
	h.Pad = rocewire.PadOf(len(payload))
	p := append(h.Append(nil), payload...)
	p = append(p, make([]byte, h.Pad)...)
	if change != nil {
		p = change(p)
	}
	return append(b, rocewire.AppendICRC(p, rocewire.UpdateHeader(path.BeginID(len(p)+rocewire.ICRCLen, id), p))...)
}
