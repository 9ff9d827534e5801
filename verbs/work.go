package verbs

// Opcode is the operation of a send work request.
type Opcode uint8

// The operations of a reliable-connected queue pair (ibv_post_send(3), IBV_WR_*).
const (
	OpSend        Opcode = iota // message to a posted receive of the peer
	OpSendImm                   // the same with 32 bits of immediate data
	OpWrite                     // write to the peer's memory, without a completion there
	OpWriteImm                  // the same, and completes a posted receive of the peer with immediate data
	OpRead                      // read from the peer's memory
	OpCompareSwap               // atomic on 8 bytes of the peer's memory, aligned to 8
	OpFetchAdd                  // likewise
)

func (o Opcode) String() string {
	return nameOf(o, "SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ", "CMP_AND_SWP", "FETCH_AND_ADD")
}

// SGE (scatter/gather element) is a range of registered memory. The device owns the bytes
// from the post of the work request until its completion. An unsignaled request ends no
// later than the next completion of its queue.
type SGE struct {
	Addr   uint64 // within a memory region of this side (MR.Addr)
	Length uint32 // bytes
	LKey   LKey   // of that region
}

// SendWR is a work request of the send queue.
type SendWR struct {
	ID WRID
	Op Opcode
	// Signaled requests a completion. An unsignaled request completes only when it
	// fails or is flushed.
	Signaled bool
	// Solicited causes an event at a peer that armed its queue with solicitedOnly.
	Solicited bool
	// Fence delays the request until all earlier reads and atomics have completed.
	Fence bool
	// Imm is the immediate data of OpSendImm and OpWriteImm, in host byte order. It is
	// big-endian on the wire.
	Imm uint32
	// RemoteAddr and RKey name the peer's memory, for writes, reads and atomics.
	RemoteAddr uint64
	RKey       RKey
	// OpCompareSwap stores Swap if the memory equals Compare. OpFetchAdd adds Add.
	// Both return the old value in a single SGE of 8 bytes. All are in host byte order.
	Compare, Swap, Add uint64
	// SGL (scatter/gather list) names the local memory, in order. PostSend copies the
	// slice itself.
	SGL []SGE
	// Inline, when not nil, replaces SGL, for sends and writes only. PostSend copies
	// the bytes, which need no registration. At most QP.MaxInline bytes.
	Inline []byte
}

// Len returns the number of bytes that the request transfers.
func (w *SendWR) Len() uint64 {
	if w.Inline != nil {
		return uint64(len(w.Inline))
	}
	return sglLen(w.SGL)
}

// RecvWR is a work request of the receive queue: the buffer of one message. An empty SGL
// is enough for an empty message or an OpWriteImm of the peer.
type RecvWR struct {
	ID  WRID
	SGL []SGE // local memory to fill, in order; PostRecv copies the slice itself
}

// Len returns the size of the buffer in bytes.
func (w *RecvWR) Len() uint64 { return sglLen(w.SGL) }

func sglLen(sgl []SGE) (n uint64) {
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

// WC is a work completion. If Status is not StatusOK, only ID, Status, VendorErr and QPN
// are valid (ibv_poll_cq(3)).
type WC struct {
	ID        WRID
	Status    Status
	Op        WCOp
	HasImm    bool
	VendorErr uint32 // vendor-specific error code (VendorError); 0: none
	Len       uint32 // bytes: of the message for WCRecv, written by the peer for WCRecvWrite
	Imm       uint32 // immediate data in host byte order, if HasImm
	QPN       QPN    // local queue pair, for messages; numbers are reused, so identify it by ID
}

// WCOp is the type of the work request that completed.
type WCOp uint8

// The types of completions.
const (
	WCSend WCOp = iota
	WCWrite
	WCRead
	WCAtomic
	WCRecv      // a message in a posted receive
	WCRecvWrite // an OpWriteImm of the peer, which consumed a posted receive
)

func (o WCOp) String() string {
	return nameOf(o, "send", "RDMA write", "RDMA read", "atomic", "receive", "receive of RDMA write")
}
