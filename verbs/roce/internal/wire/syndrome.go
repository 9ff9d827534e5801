package wire

import (
	"fmt"
	"time"
)

// Syndrome is what an AETH says (9.7.5.2.1, table 43): in bits 6 and 5 what it
// is, in bits 4 to 0 a code.
//
//	000ccccc  ACK; c is a credit count, coded, or 31 for none kept
//	001ttttt  RNR NAK; t codes the time to wait before asking again
//	011nnnnn  NAK; n is the reason
type Syndrome uint8

const (
	// AckUnlimited is an ACK without end-to-end flow control: the sender need
	// not count the receives that are posted. It is the only one that rxe and
	// this project send.
	AckUnlimited Syndrome = 0x1f
	// NAKSequence says that packets are missing before this PSN: send again
	// from the PSN of the NAK.
	NAKSequence Syndrome = 0x60
	// NAKInvalidRequest refuses a request that is malformed, unknown or longer
	// than its receive.
	NAKInvalidRequest Syndrome = 0x61
	// NAKRemoteAccess refuses a request whose key, address, length or rights
	// do not fit.
	NAKRemoteAccess Syndrome = 0x62
	// NAKRemoteOperation says that the responder could not carry it out.
	NAKRemoteOperation Syndrome = 0x63
)

const (
	syndromeKind = 0x60
	syndromeCode = 0x1f
	kindAck      = 0x00
	kindRNR      = 0x20
	kindNAK      = 0x60
	syndromeTop  = 0x80 // reserved, and 0
)

// RNR is the RNR NAK with a timer code, 0 to 31: no receive is posted.
func RNR(timer uint8) Syndrome { return kindRNR | Syndrome(timer&syndromeCode) }

// IsAck reports whether it is a positive acknowledgement.
func (s Syndrome) IsAck() bool { return s&(syndromeTop|syndromeKind) == kindAck }

// IsRNR reports whether it is an RNR NAK.
func (s Syndrome) IsRNR() bool { return s&(syndromeTop|syndromeKind) == kindRNR }

// IsNAK reports whether it is a NAK other than RNR. The reason may be one that
// this package does not know.
func (s Syndrome) IsNAK() bool { return s&(syndromeTop|syndromeKind) == kindNAK }

// Timer is the timer code of an RNR NAK.
func (s Syndrome) Timer() uint8 { return uint8(s & syndromeCode) }

// Delay is how long an RNR NAK asks to wait.
func (s Syndrome) Delay() time.Duration { return RNRDelay(s.Timer()) }

// RNRDelay is the time that an RNR timer code stands for (9.7.5.2.8, table 45),
// from 10 µs for 1 to 491.52 ms for 31 and 655.36 ms for 0.
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
