package verbs

import (
	"fmt"
	"slices"
)

// QPState is the state of a queue pair: ibv_qp_state, number for number.
type QPState uint8

// The states of a reliable-connected queue pair.
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

// stepsFrom has, for each state, the states that a queue pair may be brought to
// (InfiniBand specification, volume 1, 10.3.1; ibv_modify_qp(3)). SQD and SQE
// are not used here.
var stepsFrom = [...][]QPState{
	StateReset: {StateReset, StateInit, StateErr},
	StateInit:  {StateReset, StateInit, StateRTR, StateErr},
	StateRTR:   {StateReset, StateRTS, StateErr},
	StateRTS:   {StateReset, StateRTS, StateErr},
	StateErr:   {StateReset, StateErr},
}

// before is the state that one must have come to first.
var before = [...]QPState{StateInit: StateReset, StateRTR: StateInit, StateRTS: StateRTR}

// CheckTransition says, in words, why a queue pair cannot go from one state to
// another; nil when it can. Drivers say EINVAL.
func CheckTransition(from, to QPState) error {
	if int(from) < len(stepsFrom) && slices.Contains(stepsFrom[from], to) {
		return nil
	}
	switch {
	case from == StateErr:
		return fmt.Errorf("%w: the queue pair is broken (ERR); it must be made anew, or taken to RESET, before it can become %v", ErrInvalid, to)
	case int(to) < len(before) && to != StateReset:
		return fmt.Errorf("%w: a queue pair becomes %v from %v, and this one is in %v", ErrInvalid, to, before[to], from)
	}
	return fmt.Errorf("%w: a queue pair does not go from %v to %v", ErrInvalid, from, to)
}

// InitAttr is what ToInit needs.
type InitAttr struct {
	Port      uint8  // from 1
	PKeyIndex uint16 // in the port's partition table
	Access    Access // what the peer may do: AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic
	// SGIDIndex is that of RTRAttr. A device in user space opens its sockets by it,
	// so that Endpoint has them from INIT on; others do not look at it.
	SGIDIndex uint8
}

// RTRAttr is what ToRTR needs: who the peer is and how to get there.
type RTRAttr struct {
	Peer         Endpoint
	MTU          MTU   // of the path: at most what both ports have active
	SGIDIndex    uint8 // of this side's port: the source address of packets
	TrafficClass uint8 // DSCP in the upper 6 bits, ECN in the lower 2
	ServiceLevel uint8 // 0 to 7 on Ethernet (priority), 0 to 15 on InfiniBand
	HopLimit     uint8 // 64 is usual; 0 is taken as 64
	FlowLabel    uint32
	// MaxDestReadAtomic is how many reads and atomics of the peer may be under
	// way at once.
	MaxDestReadAtomic uint8
	// MinRNRTimer is the code of the time that a peer waits which finds no
	// receive posted, 0 to 31; 12 is 0.64 ms (specification, table 45).
	MinRNRTimer uint8
}

// Check says what is wrong with the attributes; nil when nothing is.
func (a *RTRAttr) Check() error {
	switch {
	case !a.MTU.Valid():
		return fmt.Errorf("%w: path MTU %d: there are 256, 512, 1024, 2048 and 4096", ErrInvalid, a.MTU)
	case a.Peer.QPN > 0xffffff || a.Peer.QPN < 2:
		return fmt.Errorf("%w: the peer's queue pair number %#x is not one that a peer can have (2 to 0xffffff)", ErrInvalid, uint32(a.Peer.QPN))
	case a.Peer.PSN > 0xffffff:
		return fmt.Errorf("%w: the peer's PSN %#x has more than 24 bits", ErrInvalid, uint32(a.Peer.PSN))
	case a.Peer.GID.IsZero() && a.Peer.LID == 0:
		return fmt.Errorf("%w: the peer has neither GID nor LID", ErrInvalid)
	case a.ServiceLevel > 15:
		return fmt.Errorf("%w: service level %d: 0 to 15", ErrInvalid, a.ServiceLevel)
	case a.MinRNRTimer > 31:
		return fmt.Errorf("%w: RNR timer %d: 0 to 31", ErrInvalid, a.MinRNRTimer)
	}
	return nil
}

// RTSAttr is what ToRTS needs: how this side sends.
type RTSAttr struct {
	PSN PSN // the first one that this side sends, told to the peer at bootstrap
	// Timeout is the code of the time without acknowledgement after which a
	// packet is sent again: 4.096 us times 2 to its power, 0 for never, at
	// most 31. TimeoutCode finds it.
	Timeout uint8
	// Retry is how often it is sent again, 0 to 7. On the kernel's rxe 7 means
	// for ever.
	Retry uint8
	// RNRRetry is the same for a peer without receives; 7 is for ever by the
	// specification.
	RNRRetry uint8
	// MaxReadAtomic is how many reads and atomics may be under way at once.
	MaxReadAtomic uint8
}

// Check says what is wrong with the attributes; nil when nothing is.
func (a *RTSAttr) Check() error {
	switch {
	case a.PSN > 0xffffff:
		return fmt.Errorf("%w: PSN %#x has more than 24 bits", ErrInvalid, uint32(a.PSN))
	case a.Timeout > 31:
		return fmt.Errorf("%w: timeout code %d: 0 to 31", ErrInvalid, a.Timeout)
	case a.Retry > 7:
		return fmt.Errorf("%w: retry count %d: 0 to 7", ErrInvalid, a.Retry)
	case a.RNRRetry > 7:
		return fmt.Errorf("%w: RNR retry count %d: 0 to 7", ErrInvalid, a.RNRRetry)
	}
	return nil
}
