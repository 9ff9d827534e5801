package wire

import (
	"errors"
	"fmt"
)

// What Header.Decode finds wrong. The values are made once: refusing a packet
// allocates nothing.
//
// A packet that is ErrShort or ErrVersion is dropped without a word (specification,
// volume 1, 9.6). For the others the fields of the BTH are decoded, so that a
// requester can be answered with NAKInvalidRequest. The kernel's rxe drops those
// with ErrOpcode and ErrHeader, too.
var (
	ErrShort     = fmt.Errorf("packet shorter than BTH and ICRC, %d bytes", MinPacketLen)
	ErrUnaligned = errors.New("packet length is no multiple of 4")
	ErrVersion   = errors.New("transport version is not 0")
	ErrOpcode    = errors.New("unknown opcode")
	ErrHeader    = errors.New("packet shorter than the headers of its opcode and the ICRC")
	ErrPad       = errors.New("pad count is more than the payload")
	ErrPadInside = errors.New("pad count in a first or middle packet")
	ErrPayload   = errors.New("payload or pad in a packet that has none")
)
