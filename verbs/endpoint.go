package verbs

import (
	"fmt"
	"math/bits"
	"time"
)

// Endpoint is what a queue pair needs to connect to its peer. Both sides exchange
// theirs before ToRTR.
type Endpoint struct {
	QPN QPN
	PSN PSN // of the first packet that this queue pair sends
	GID GID
	LID LID // 0 on Ethernet
	// UDP is set by a device in user space, which has its own sockets.
	// It is zero for all other devices.
	UDP UDPEndpoint
	// Data is what a device that is not RDMA (LinkTCP, LinkShared) adds, at most MaxEndpointData
	// bytes. PROTOCOL.md describes the bytes. Only a device of the same provider reads them, and
	// nobody changes them. It is empty for all other devices.
	Data []byte
	// Target is the address by which the caller of ToRTR knows the peer, "host:port" as for
	// gRPC; empty for none. It never travels to the peer. A device of LinkTCP dials it, in
	// place of the addresses in Data.
	Target string
}

func (e Endpoint) String() string {
	if e.LID != 0 {
		return fmt.Sprintf("QP %v at LID %d, GID %v", e.QPN, e.LID, e.GID)
	}
	return fmt.Sprintf("QP %v at GID %v", e.QPN, e.GID)
}

// RoCEPort is the UDP port of RoCEv2 at kernels and NICs (annex A17.4.3 of the specification).
const RoCEPort = 4791

// UDPEndpoint names the UDP ports of a device in user space.
type UDPEndpoint struct {
	Port    uint16   // destination port of packets to this device; 0: 4791, the RoCEv2 port of kernels and NICs
	Sources []uint16 // source ports of its packets; empty means any, and only with Port 0
	Buffer  uint64   // receive buffer in bytes; 0: unknown
}

// Path holds the parameters of one direction of a connection: all that ToInit, ToRTR
// and ToRTS need apart from the peer. InitAttr, RTRAttr and RTSAttr explain the fields.
type Path struct {
	Port         uint8
	PKeyIndex    uint16
	Access       Access
	SGIDIndex    uint8
	MTU          MTU
	TrafficClass uint8
	ServiceLevel uint8
	Timeout      uint8 // code: see TimeoutCode
	Retry        uint8
	RNRRetry     uint8
	MinRNRTimer  uint8
	ReadAtomic   uint8 // outstanding reads and atomics, in each direction; 0: none allowed
}

// DefaultMinRNRTimer is the code of 0.64 ms. Codes of much shorter times make the
// kernel's rxe flood the network with retries.
const DefaultMinRNRTimer = 12

// Init moves qp from RESET to INIT. Receives can be posted from then on.
func (p Path) Init(qp QP) error {
	return qp.ToInit(InitAttr{Port: p.Port, PKeyIndex: p.PKeyIndex, Access: p.Access, SGIDIndex: p.SGIDIndex})
}

// Connect moves qp from INIT through RTR to RTS, connected to peer. psn is the PSN
// that this side sent to the peer in its Endpoint. After an error qp is in INIT or RTR.
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

// TimeoutCode returns the code (RTSAttr.Timeout) of the shortest timeout that is at
// least d. The result is 1 to 31: code 0 would mean no timeout.
func TimeoutCode(d time.Duration) uint8 {
	units := uint64((max(d, 1) + timeoutUnit - 1) / timeoutUnit)
	return uint8(min(max(bits.Len64(units-1), 1), 31))
}

// TimeoutDuration returns the time that a code (RTSAttr.Timeout) stands for; 0 for
// code 0, no timeout.
func TimeoutDuration(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return timeoutUnit << min(code, 31)
}
