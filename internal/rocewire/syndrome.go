package rocewire

import (
	"fmt"
	"time"
)

// Syndrome is the syndrome of an AETH (9.7.5.2.1, table 43). Bits 6 and 5 give the
// kind, bits 4 to 0 a code:
//
//	000ccccc  ACK; c is an encoded credit count, 31 for no credits
//	001ttttt  RNR NAK; t encodes the time to wait before a retry
//	011nnnnn  NAK; n is the reason
type Syndrome uint8

const (
	// AckUnlimited is an ACK without end-to-end flow control: the requester does not
	// count posted receives. rxe and this project send no other ACK.
	AckUnlimited Syndrome = 0x1f
	// NAKSequence reports that packets before this PSN are missing. The requester sends
	// again from the PSN of the NAK on.
	NAKSequence Syndrome = 0x60
	// NAKInvalidRequest rejects a request that is malformed, unknown or longer than its
	// receive.
	NAKInvalidRequest Syndrome = 0x61
	// NAKRemoteAccess rejects a request whose key, address, length or access rights are
	// wrong.
	NAKRemoteAccess Syndrome = 0x62
	// NAKRemoteOperation reports that the responder failed to execute the request.
	NAKRemoteOperation Syndrome = 0x63
)

const (
	syndromeKind = 0x60
	syndromeCode = 0x1f
	kindAck      = 0x00
	kindRNR      = 0x20
	kindNAK      = 0x60
	syndromeTop  = 0x80 // reserved, must be 0
)

// RNR returns the RNR NAK (no receive is posted) with a timer code of 0 to 31.
func RNR(timer uint8) Syndrome { return kindRNR | Syndrome(timer&syndromeCode) }

// IsAck reports whether the syndrome is a positive acknowledgement.
func (s Syndrome) IsAck() bool { return s&(syndromeTop|syndromeKind) == kindAck }

// IsRNR reports whether the syndrome is an RNR NAK.
func (s Syndrome) IsRNR() bool { return s&(syndromeTop|syndromeKind) == kindRNR }

// IsNAK reports whether the syndrome is a NAK other than RNR, also one with an unknown
// reason.
func (s Syndrome) IsNAK() bool { return s&(syndromeTop|syndromeKind) == kindNAK }

// Timer returns the timer code of an RNR NAK.
func (s Syndrome) Timer() uint8 { return uint8(s & syndromeCode) }

// Delay returns the time that an RNR NAK asks the requester to wait.
func (s Syndrome) Delay() time.Duration { return RNRDelay(s.Timer()) }

// RNRDelay returns the time of an RNR timer code (9.7.5.2.8, table 45): from 10 µs for
// 1 to 491.52 ms for 31, and 655.36 ms for 0.
func RNRDelay(timer uint8) time.Duration {
	return time.Duration(rnrDelays[timer&syndromeCode]) * rnrUnit
}

// rnrUnit is the unit of rnrDelays.
const rnrUnit = 10 * time.Microsecond

var rnrDelays = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
	6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

func (s Syndrome) String() string {
	switch {
	case s == AckUnlimited:
		return "ACK"
	case s.IsAck():
		return fmt.Sprintf("ACK with credit code %d", uint8(s&syndromeCode))
	case s.IsRNR():
		return fmt.Sprintf("RNR NAK, %v", s.Delay())
	case s == NAKSequence:
		return "NAK: PSN sequence error"
	case s == NAKInvalidRequest:
		return "NAK: invalid request"
	case s == NAKRemoteAccess:
		return "NAK: remote access error"
	case s == NAKRemoteOperation:
		return "NAK: remote operational error"
	case s.IsNAK():
		return fmt.Sprintf("NAK: code %d", uint8(s&syndromeCode))
	}
	return fmt.Sprintf("syndrome 0x%02x", uint8(s))
}
