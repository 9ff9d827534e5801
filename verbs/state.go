package verbs

import (
	"fmt"
	"slices"
)

// QPState is the state of a queue pair. The values are those of enum ibv_qp_state.
type QPState uint8

// The states of a reliable-connected queue pair (specification, volume 1, 10.3.1).
// This project does not use SQD and SQE.
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

func (s QPState) String() string {
	return nameOf(s, "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
}

// transitions lists, by state, the states that ibv_modify_qp(3) can move a queue pair
// to (specification, volume 1, 10.3.1).
var transitions = [...][]QPState{
	StateReset: {StateReset, StateInit, StateErr},
	StateInit:  {StateReset, StateInit, StateRTR, StateErr},
	StateRTR:   {StateReset, StateRTS, StateErr},
	StateRTS:   {StateReset, StateRTS, StateErr},
	StateErr:   {StateReset, StateErr},
}

// predecessor is the state from which a queue pair enters a state.
var predecessor = [...]QPState{StateInit: StateReset, StateRTR: StateInit, StateRTS: StateRTR}

// CheckTransition returns nil if a queue pair can move from one state to the other,
// else ErrInvalid with the reason. Drivers report only EINVAL.
func CheckTransition(from, to QPState) error {
	if int(from) < len(transitions) && slices.Contains(transitions[from], to) {
		return nil
	}
	switch {
	case from == StateErr:
		return fmt.Errorf("%w: the queue pair is broken (ERR): create a new one, or reset it before it can become %v", ErrInvalid, to)
	case int(to) < len(predecessor) && to != StateReset:
		return fmt.Errorf("%w: a queue pair becomes %v from %v, and this one is in %v", ErrInvalid, to, predecessor[to], from)
	}
	return fmt.Errorf("%w: a queue pair cannot move from %v to %v", ErrInvalid, from, to)
}

// InitAttr holds the attributes of ToInit.
type InitAttr struct {
	Port      uint8  // from 1
	PKeyIndex uint16 // in the port's partition table
	Access    Access // remote rights of the peer: AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic
	// SGIDIndex is the same as in RTRAttr. A device in user space opens its sockets on
	// this address, so Endpoint.UDP is valid from INIT on. Other devices ignore it.
	SGIDIndex uint8
}

// RTRAttr holds the attributes of ToRTR: the peer and the path to it.
type RTRAttr struct {
	Peer         Endpoint
	MTU          MTU    // path MTU: at most the active MTU of both ports
	SGIDIndex    uint8  // entry of this port's GID table: the source address of packets
	TrafficClass uint8  // GRH or IP field: DSCP in the upper 6 bits, ECN in the lower 2
	ServiceLevel uint8  // 0 to 7 on Ethernet, where it is the priority; 0 to 15 on InfiniBand
	HopLimit     uint8  // 0 means 64
	FlowLabel    uint32 // 20 bits, of the GRH
	// MaxDestReadAtomic is the maximum number of outstanding reads and atomics of
	// the peer. It must be at least RTSAttr.MaxReadAtomic of the peer.
	MaxDestReadAtomic uint8
	// MinRNRTimer is the code of the time that the peer waits before it retries when
	// no receive is posted: 0 to 31 (specification, volume 1, table 45).
	MinRNRTimer uint8
}

// Check returns nil if the values are possible on some device, else ErrInvalid with the
// wrong value.
func (a *RTRAttr) Check() error {
	switch {
	case !a.MTU.Valid():
		return fmt.Errorf("%w: path MTU %d: must be 256, 512, 1024, 2048 or 4096", ErrInvalid, a.MTU)
	case a.Peer.QPN > 0xffffff || a.Peer.QPN < 2:
		return fmt.Errorf("%w: the peer's queue pair number %#x is out of range (2 to 0xffffff)", ErrInvalid, uint32(a.Peer.QPN))
	case a.Peer.PSN > 0xffffff:
		return fmt.Errorf("%w: the peer's PSN %#x has more than 24 bits", ErrInvalid, uint32(a.Peer.PSN))
	case a.Peer.GID.IsZero() && a.Peer.LID == 0:
		return fmt.Errorf("%w: the peer's endpoint has neither GID nor LID", ErrInvalid)
	case a.ServiceLevel > 15:
		return fmt.Errorf("%w: service level %d is out of range (0 to 15)", ErrInvalid, a.ServiceLevel)
	case a.MinRNRTimer > 31:
		return fmt.Errorf("%w: RNR timer %d is out of range (0 to 31)", ErrInvalid, a.MinRNRTimer)
	}
	return nil
}

// RTSAttr holds the attributes of ToRTS: how this side sends and retries.
type RTSAttr struct {
	PSN PSN // of the first packet of this side; the peer got it in Endpoint.PSN
	// Timeout is the code of the time without acknowledgement after which packets are
	// sent again: 4.096 us times 2 to the power of Timeout, at most 31; 0 means never
	// (TimeoutCode).
	Timeout uint8
	// Retry is the number of retries after a timeout, 0 to 7. The kernel's rxe takes
	// 7 as unlimited.
	Retry uint8
	// RNRRetry is the number of retries when the peer has no receive posted, 0 to 7.
	// 7 means unlimited (specification, volume 1, 9.7.5.2.8).
	RNRRetry uint8
	// MaxReadAtomic is the maximum number of outstanding reads and atomics of this
	// side. It must not exceed RTRAttr.MaxDestReadAtomic of the peer.
	MaxReadAtomic uint8
}

// Check returns nil if the values are possible on some device, else ErrInvalid with the
// wrong value.
func (a *RTSAttr) Check() error {
	switch {
	case a.PSN > 0xffffff:
		return fmt.Errorf("%w: PSN %#x has more than 24 bits", ErrInvalid, uint32(a.PSN))
	case a.Timeout > 31:
		return fmt.Errorf("%w: timeout code %d is out of range (0 to 31)", ErrInvalid, a.Timeout)
	case a.Retry > 7:
		return fmt.Errorf("%w: retry count %d is out of range (0 to 7)", ErrInvalid, a.Retry)
	case a.RNRRetry > 7:
		return fmt.Errorf("%w: RNR retry count %d is out of range (0 to 7)", ErrInvalid, a.RNRRetry)
	}
	return nil
}
