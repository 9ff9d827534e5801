package verbs

import (
	"fmt"
	"math/bits"
	"time"
)

// Endpoint is what a peer must know of a queue pair to connect to it.
type Endpoint struct {
	QPN QPN
	PSN PSN // the first one that this queue pair sends
	GID GID
	LID LID // 0 on Ethernet
	// UDP is set by a device in user space, which has sockets and no port
	// 4791 by nature. Zero elsewhere.
	UDP UDPEndpoint
}

func (e Endpoint) String() string {
	if e.LID != 0 {
		return fmt.Sprintf("QP %v at LID %d, GID %v", e.QPN, e.LID, e.GID)
	}
	return fmt.Sprintf("QP %v at GID %v", e.QPN, e.GID)
}

// UDPEndpoint is where a device in user space takes packets and where it sends
// them from.
type UDPEndpoint struct {
	Port    uint16   // that it receives on; 0 for one behind a kernel, which takes them on 4791
	Sources []uint16 // that its packets come from; empty, for any, with Port 0 alone
	Buffer  uint64   // bytes that its receive buffer holds; 0 not known
}

// Path is how this side sends: what ToInit, ToRTR and ToRTS need beside the peer.
type Path struct {
	Port         uint8
	PKeyIndex    uint16
	Access       Access
	SGIDIndex    uint8
	MTU          MTU
	TrafficClass uint8
	ServiceLevel uint8
	Timeout      uint8 // code: TimeoutCode
	Retry        uint8
	RNRRetry     uint8
	MinRNRTimer  uint8
	ReadAtomic   uint8 // reads and atomics under way at once, both ways; 0 for none
}

// DefaultMinRNRTimer is 0.64 ms. With 1 (0.01 ms) rxe was seen to storm.
const DefaultMinRNRTimer = 12

// Init brings a queue pair to INIT along the path: receives can be posted then.
func (p Path) Init(qp QP) error {
	return qp.ToInit(InitAttr{Port: p.Port, PKeyIndex: p.PKeyIndex, Access: p.Access, SGIDIndex: p.SGIDIndex})
}

// Connect brings a queue pair in INIT to RTS, with the peer at its other end.
// psn is this side's, as it was told to the peer.
func (p Path) Connect(qp QP, psn PSN, peer Endpoint) error {
	err := qp.ToRTR(RTRAttr{
		Peer: peer, MTU: p.MTU, SGIDIndex: p.SGIDIndex, TrafficClass: p.TrafficClass,
		ServiceLevel: p.ServiceLevel, MaxDestReadAtomic: p.ReadAtomic, MinRNRTimer: p.MinRNRTimer,
	})
	if err != nil {
		return err
	}
	return qp.ToRTS(RTSAttr{PSN: psn, Timeout: p.Timeout, Retry: p.Retry, RNRRetry: p.RNRRetry, MaxReadAtomic: p.ReadAtomic})
}

// timeoutUnit is the unit of RTSAttr.Timeout (specification, volume 1, 11.6.2).
const timeoutUnit = 4096 * time.Nanosecond

// TimeoutCode is the code of the shortest timeout that is not below d; 1 at
// least, since 0 means never, and 31 at most.
func TimeoutCode(d time.Duration) uint8 {
	units := uint64((max(d, 1) + timeoutUnit - 1) / timeoutUnit)
	return uint8(min(max(bits.Len64(units-1), 1), 31))
}

// TimeoutDuration is the time that a code stands for; 0 for never.
func TimeoutDuration(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return timeoutUnit << min(code, 31)
}
