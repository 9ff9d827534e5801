//go:build linux && cgo

package libibverbs

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// The library's numbers, from <infiniband/verbs.h>. layout_test.go compares each
// with the header, where it is there. Statuses, states of queue pairs and ports
// and link layers are the same numbers in package verbs.
const (
	ibvSendFence     = 1 << 0
	ibvSendSignaled  = 1 << 1
	ibvSendSolicited = 1 << 2
	ibvSendInline    = 1 << 3

	ibvWCWithImm = 1 << 1

	ibvAtomicNone = 0

	ibvQPState           = 1 << 0
	ibvQPAccessFlags     = 1 << 3
	ibvQPPKeyIndex       = 1 << 4
	ibvQPPort            = 1 << 5
	ibvQPAV              = 1 << 7
	ibvQPPathMTU         = 1 << 8
	ibvQPTimeout         = 1 << 9
	ibvQPRetryCnt        = 1 << 10
	ibvQPRNRRetry        = 1 << 11
	ibvQPRQPSN           = 1 << 12
	ibvQPMaxQPRDAtomic   = 1 << 13
	ibvQPMinRNRTimer     = 1 << 15
	ibvQPSQPSN           = 1 << 16
	ibvQPMaxDestRDAtomic = 1 << 17
	ibvQPDestQPN         = 1 << 20

	// What ibv_modify_qp(3) requires of a reliable-connected queue pair.
	toInitMask = ibvQPState | ibvQPPKeyIndex | ibvQPPort | ibvQPAccessFlags
	toRTRMask  = ibvQPState | ibvQPAV | ibvQPPathMTU | ibvQPDestQPN | ibvQPRQPSN | ibvQPMaxDestRDAtomic | ibvQPMinRNRTimer
	toRTSMask  = ibvQPState | ibvQPTimeout | ibvQPRetryCnt | ibvQPRNRRetry | ibvQPSQPSN | ibvQPMaxQPRDAtomic
)

// wrOpcodes is ibv_wr_opcode of an operation.
var wrOpcodes = [...]uint32{
	verbs.OpSend: 2, verbs.OpSendImm: 3, verbs.OpWrite: 0, verbs.OpWriteImm: 1,
	verbs.OpRead: 4, verbs.OpCompareSwap: 5, verbs.OpFetchAdd: 6,
}

// wcOp is what an ibv_wc_opcode of a reliable-connected queue pair says that
// completed.
func wcOp(opcode uint32) verbs.WCOp {
	switch opcode {
	case 1:
		return verbs.WCWrite
	case 2:
		return verbs.WCRead
	case 3, 4:
		return verbs.WCAtomic
	case 128:
		return verbs.WCRecv
	case 129:
		return verbs.WCRecvWrite
	}
	return verbs.WCSend
}

// accessFlags are ibv_access_flags.
var accessFlags = [...]struct {
	access verbs.Access
	flag   uint32
}{
	{verbs.AccessLocalWrite, 1 << 0},
	{verbs.AccessRemoteWrite, 1 << 1},
	{verbs.AccessRemoteRead, 1 << 2},
	{verbs.AccessRemoteAtomic, 1 << 3},
	{verbs.AccessBindWindow, 1 << 4},
	{verbs.AccessRelaxedOrdering, ibvAccessRelaxedOrdering},
}

// ibvAccessRelaxedOrdering is the first of the optional flags, which only
// ibv_reg_mr_iova2 takes, and which devices without it pass over.
const ibvAccessRelaxedOrdering = 1 << 20

func accessBits(a verbs.Access) (bits uint32) {
	for _, f := range accessFlags {
		if a&f.access != 0 {
			bits |= f.flag
		}
	}
	return bits
}

// mtus is the number of bytes of an ibv_mtu.
var mtus = [...]verbs.MTU{1: verbs.MTU256, 2: verbs.MTU512, 3: verbs.MTU1024, 4: verbs.MTU2048, 5: verbs.MTU4096}

// mtuOf is 0 for a number that is not in the specification.
func mtuOf(n uint32) verbs.MTU {
	if n < uint32(len(mtus)) {
		return mtus[n]
	}
	return 0
}

// mtuNumber undoes mtuOf, for a valid MTU.
func mtuNumber(m verbs.MTU) uint32 {
	for n, v := range mtus {
		if v == m {
			return uint32(n)
		}
	}
	return 0
}

// eventKinds is what an ibv_event_type is here. The others are EventOther.
var eventKinds = map[uint32]verbs.EventKind{
	0: verbs.EventCQError, 1: verbs.EventQPFatal, 2: verbs.EventQPRequest, 3: verbs.EventQPAccess,
	4: verbs.EventCommEstablished, 8: verbs.EventDeviceFatal, 9: verbs.EventPortActive, 10: verbs.EventPortDown,
	11: verbs.EventLIDChange, 12: verbs.EventPKeyChange, 13: verbs.EventSMChange, 16: verbs.EventLastWQEReached,
	17: verbs.EventClientReregister, 18: verbs.EventGIDChange,
}

// What this package chooses.
const (
	// ringWRs is how many work requests one crossing posts at most. Batches of
	// 32 cost 43 ns against 35 ns for one, so more gains little; 64 descriptors
	// are a page.
	ringWRs = 64
	// ringSGEs is how many scatter/gather elements they may have together, and
	// ringInline how many inline bytes, unless one request alone may have
	// more. When either is used up, what is there is posted first.
	ringSGEs   = 2 * ringWRs
	ringInline = 8 << 10 // bytes
	// pollBatch is how many completions one crossing takes at most.
	pollBatch = 64
	// defaultHopLimit is RTRAttr.HopLimit where that is 0: what routers pass.
	defaultHopLimit = 64
	// presenceCheck is how often a goroutine that waits for events looks whether
	// the device was removed. Who removes it waits that long, and until all is
	// closed; a look is one stat.
	presenceCheck = 2 * time.Second
	// maxFlowLabel is the largest that the 20 bits of a GRH hold.
	maxFlowLabel = 1<<20 - 1
)

// The specification's (InfiniBand architecture, volume 1).
const (
	atomicBytes = 8       // that an atomic operation changes (9.4.5)
	maxMessage  = 1 << 31 // bytes of a message (9.7.7)
)
