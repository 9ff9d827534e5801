package rocewire

import (
	"errors"
	"fmt"
)

// The errors of Header.Decode. They are allocated once, so that rejecting a packet
// allocates nothing.
//
// A receiver drops packets with ErrShort or ErrVersion silently (specification, volume
// 1, 9.6). For the other errors the fields of the BTH are valid, so that the receiver
// can answer with NAKInvalidRequest. The kernel's rxe also drops those with ErrOpcode
// or ErrHeader.
var (
	ErrShort     = fmt.Errorf("packet is shorter than BTH and ICRC (%d bytes)", MinPacketLen)
	ErrUnaligned = errors.New("packet length is not a multiple of 4")
	ErrVersion   = errors.New("transport version is not 0")
	ErrOpcode    = errors.New("unknown opcode")
	ErrHeader    = errors.New("packet shorter than the headers of its opcode and the ICRC")
	ErrPad       = errors.New("pad count exceeds the payload")
	ErrPadInside = errors.New("pad count in a first or middle packet")
	ErrPayload   = errors.New("payload or pad in a packet whose opcode has none")
)
