package verbs

// Opcode says what a send work request does.
type Opcode uint8

// The operations of a reliable-connected queue pair (ibv_post_send(3)).
const (
	OpSend        Opcode = iota // into a receive that the peer posted
	OpSendImm                   // with 32 bits beside it
	OpWrite                     // into the peer's memory, unseen by it
	OpWriteImm                  // and completes a receive that the peer posted, with 32 bits
	OpRead                      // from the peer's memory
	OpCompareSwap               // 8 bytes of the peer's memory, which must be aligned to 8
	OpFetchAdd                  // likewise
)

func (o Opcode) String() string {
	return nameOf(o, "SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ", "CMP_AND_SWP", "FETCH_AND_ADD")
}

// SGE is a piece of registered memory. Its bytes belong to the device from the
// post of the work request that names it until the completion of that request
// (of a later one of the same queue, where it is unsignalled).
type SGE struct {
	Addr   uint64 // in a memory region of this side
	Length uint32 // bytes
	LKey   LKey   // of that region
}

// SendWR is a work request for the send queue.
type SendWR struct {
	ID WRID
	Op Opcode
	// Signaled asks for a completion. Without it there is one only when the
	// request fails or is flushed.
	Signaled bool
	// Solicited wakes a peer that armed its queue for solicited events.
	Solicited bool
	// Fence lets the request wait for all earlier reads and atomics.
	Fence bool
	// Imm goes with OpSendImm and OpWriteImm. It is a number: big-endian on
	// the wire, whatever the machine.
	Imm uint32
	// RemoteAddr and RKey name the peer's memory for writes, reads, atomics.
	RemoteAddr uint64
	RKey       RKey
	// Swap is stored by OpCompareSwap where memory equals Compare; Add is
	// what OpFetchAdd adds. The old value comes into the one SGE, 8 bytes.
	Compare, Swap, Add uint64
	// SGL is the local memory, in order. Read when the request is posted:
	// the slice itself is the caller's again when PostSend returns.
	SGL []SGE
	// Inline, when not nil, takes the place of SGL: its bytes are copied
	// when the request is posted and need no registration. At most the
	// queue pair's MaxInline bytes; for sends and writes only.
	Inline []byte
}

// Len is the number of bytes that the request moves.
func (w *SendWR) Len() uint64 {
	if w.Inline != nil {
		return uint64(len(w.Inline))
	}
	return sglLen(w.SGL)
}

// RecvWR is a work request for the receive queue: room for one message, or with
// an empty SGL for a WRITE_WITH_IMM or an empty message.
type RecvWR struct {
	ID  WRID
	SGL []SGE // as in SendWR
}

// Len is the room that the request gives.
func (w *RecvWR) Len() uint64 { return sglLen(w.SGL) }

func sglLen(sgl []SGE) (n uint64) {
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

// WC is a work completion. When Status is not StatusOK only ID, Status, VendorErr
// and QPN mean anything (ibv_poll_cq(3)).
type WC struct {
	ID        WRID
	Status    Status
	Op        WCOp
	HasImm    bool
	VendorErr uint32 // the device's own number for the failure
	Len       uint32 // bytes received (WCRecv: the message; WCRecvWrite: what was written)
	Imm       uint32 // with HasImm
	QPN       QPN    // of the queue pair of this side; for words only: who it was says ID
}

// WCOp says what completed.
type WCOp uint8

// What completes.
const (
	WCSend WCOp = iota
	WCWrite
	WCRead
	WCAtomic
	WCRecv      // a message into a posted receive
	WCRecvWrite // a WRITE_WITH_IMM of the peer, which took a posted receive
)

func (o WCOp) String() string {
	return nameOf(o, "send", "RDMA write", "RDMA read", "atomic", "receive", "receive of RDMA write")
}
