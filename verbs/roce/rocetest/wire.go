package rocetest

import "github.com/tryst-rdma/tryst/verbs/roce/internal/wire"

// This file exports the part of the packet codec that tests outside verbs/roce need.

// Header holds all fields of a packet before the payload.
type Header = wire.Header

// Opcode identifies the kind of a packet.
type Opcode = wire.Opcode

// Syndrome is the syndrome of an AETH.
type Syndrome = wire.Syndrome

// Path holds what the ICRC covers of one direction between two sockets.
type Path = wire.Path

// Opcodes.
const (
	SendFirst    = wire.SendFirst
	SendLast     = wire.SendLast
	SendOnly     = wire.SendOnly
	SendOnlyInv  = wire.SendOnlyInv
	WriteFirst   = wire.WriteFirst
	WriteMiddle  = wire.WriteMiddle
	WriteLast    = wire.WriteLast
	WriteOnly    = wire.WriteOnly
	WriteOnlyImm = wire.WriteOnlyImm
	ReadRequest  = wire.ReadRequest
	Ack          = wire.Ack
	FetchAdd     = wire.FetchAdd
	AtomicWrite  = wire.AtomicWrite
	CNP          = wire.CNP
)

// Syndromes of acknowledgements.
const (
	AckUnlimited = wire.AckUnlimited
	NAKSequence  = wire.NAKSequence
)

// Other constants.
const (
	Port               = wire.Port
	DefaultPKey        = wire.DefaultPKey
	IdentificationsAny = wire.IdentificationsAny
	// MinOverhead is the length of a packet without extended headers and payload.
	MinOverhead = wire.MinPacketLen
)

// NewPath returns the path of packets from one socket to another.
var NewPath = wire.NewPath

// AppendPacket appends a packet, from BTH to ICRC, to b. It sets the pad count of h.
// id is the IPv4 identification that the ICRC covers. change, unless it is nil,
// alters the bytes from BTH to pad before the ICRC is computed.
func AppendPacket(b []byte, path *Path, id uint16, h Header, payload []byte, change func([]byte) []byte) []byte {
	h.Pad = wire.PadOf(len(payload))
	p := append(h.Append(nil), payload...)
	p = append(p, make([]byte, h.Pad)...)
	if change != nil {
		p = change(p)
	}
	return append(b, wire.AppendICRC(p, wire.UpdateHeader(path.BeginID(len(p)+wire.ICRCLen, id), p))...)
}
