package rc

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// requester is the half of a machine that sends requests. It numbers work requests:
//
//	freed <= completed <= acked <= next <= posted
type requester struct {
	sends     soft.Ring[SendWork]
	posted    uint64
	next      uint64 // the next part belongs to it
	offset    uint64 // its content before the next part
	acked     uint64 // the peer has executed all below
	completed uint64
	freed     atomic.Uint64 // slots below are free; written by polls

	reads    int // reads and atomics below next without their whole response
	maxReads int

	rnrRetry   uint8
	rnrRetries uint8 // since the last progress
}

// SendWork is a slot of the send queue. It keeps its content until the work request completes.
type SendWork struct {
	WR       verbs.SendWR // without SGL and Inline
	SGL      []verbs.SGE
	Inline   []byte // used if IsInline
	IsInline bool
	Length   uint64 // bytes of content
	Got      uint64 // bytes of the response that have come
	done     bool   // the whole response has come, or there is none
}

// HasResponse reports whether the peer answers with content.
func (w *SendWork) HasResponse() bool { return w.WR.Op >= verbs.OpRead }

// IsAtomic reports whether the operation is an atomic one.
func (w *SendWork) IsAtomic() bool { return w.WR.Op >= verbs.OpCompareSwap }

// Posted, Next, Acked and Completed are the numbers of the first work requests that have not been
// posted, sent, executed by the peer, and completed. Offset is how much of Next has been sent, in bytes.
func (r *requester) Posted() uint64    { return r.posted }
func (r *requester) Next() uint64      { return r.next }
func (r *requester) Offset() uint64    { return r.offset }
func (r *requester) Acked() uint64     { return r.acked }
func (r *requester) Completed() uint64 { return r.completed }

// Idle reports whether no work request is outstanding.
func (r *requester) Idle() bool { return r.completed == r.posted }

// Work returns the slot of a work request that has not completed.
func (r *requester) Work(number uint64) *SendWork { return r.sends.At(number) }

func (r *requester) startAt(n uint64) {
	r.posted, r.next, r.offset, r.acked, r.completed = n, n, 0, n, n
	r.freed.Store(n)
}

// Sendable returns the work request that the next part belongs to; nil if nothing may be sent now,
// because of a fence, the limit of reads, or the state.
func (m *Machine) Sendable() *SendWork {
	if m.state != verbs.StateRTS || m.next == m.posted {
		return nil
	}
	w := m.sends.At(m.next)
	if m.offset == 0 && (w.WR.Fence && m.reads > 0 || w.HasResponse() && m.maxReads > 0 && m.reads >= m.maxReads) {
		return nil
	}
	return w
}

// CheckLocal returns the status with which the work request fails before its first part is sent;
// StatusOK for none.
func (m *Machine) CheckLocal(w *SendWork) verbs.Status {
	switch {
	case m.config.MaxMessage > 0 && w.Length > m.config.MaxMessage:
		return verbs.StatusLocalLength
	case w.HasResponse() && m.maxReads == 0:
		return verbs.StatusLocalQPOperation
	case m.offset == 0 && !m.owner.Usable(w.SGL, w.HasResponse()):
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// FailNext fails the work request of Sendable. That waits until all before it have completed: false
// means not yet.
func (m *Machine) FailNext(status verbs.Status) bool {
	if m.completed < m.next {
		return false
	}
	m.Fail(status)
	return true
}

// Sent counts n bytes of the work request of Sendable as sent, and returns true if that was its
// last part. The bytes of a read or atomic are those that it requests.
func (m *Machine) Sent(n uint64) (last bool) {
	w := m.sends.At(m.next)
	if m.offset += n; m.offset < w.Length {
		return false
	}
	if w.HasResponse() {
		m.reads++
	}
	m.next++
	m.offset = 0
	return true
}

// SendFrom makes the content of a work request from offset on the next to send: the peer has dropped
// what was sent after it. number is at least Acked.
func (m *Machine) SendFrom(number, offset uint64) {
	for ; m.next > number; m.next-- {
		if m.sends.At(m.next - 1).HasResponse() {
			m.reads--
		}
	}
	m.next, m.offset = number, offset
}

// Acknowledge notes that the peer has executed all work requests below a number. Reads and atomics
// complete with their response. If the number is above Next, since they were to be sent again, the
// carrier calls SendFrom.
func (m *Machine) Acknowledge(number uint64) {
	m.acked, m.rnrRetries = number, 0
	m.completeDone()
}

// OldestRead returns the oldest executed read or atomic that has not its whole response; nil for
// none.
func (m *Machine) OldestRead() (number uint64, w *SendWork) {
	for i := m.completed; i < m.acked; i++ {
		if w := m.sends.At(i); !w.done {
			return i, w
		}
	}
	return 0, nil
}

// Respond notes that n more bytes of the response to a read or atomic are in their place.
func (m *Machine) Respond(number, n uint64) {
	w := m.sends.At(number)
	if w.Got += n; w.Got < w.Length {
		return
	}
	w.done = true
	if number < m.next { // it is not about to be sent again
		m.reads--
	}
	m.completeDone()
}

// completeDone ends the oldest work requests that have their results.
func (m *Machine) completeDone() {
	for m.completed < m.acked && m.sends.At(m.completed).done {
		m.completeSend(verbs.StatusOK)
	}
}

// NotReady counts that the peer had no receive for the request Acked. When the retries are over it
// fails the request and returns false.
func (m *Machine) NotReady() bool {
	if m.rnrRetry != RNRUnlimited && m.rnrRetries >= m.rnrRetry {
		m.Fail(verbs.StatusRNRRetryExceeded)
		return false
	}
	if m.rnrRetries < RNRUnlimited {
		m.rnrRetries++
	}
	return true
}

// RNREndless reports whether the retries without a receive have no limit.
func (r *requester) RNREndless() bool { return r.rnrRetry == RNRUnlimited }

// completeSend ends the oldest work request.
func (m *Machine) completeSend(status verbs.Status) {
	w := m.sends.At(m.completed)
	m.completed++
	if !w.WR.Signaled && status == verbs.StatusOK {
		return
	}
	m.owner.SendCompleted(verbs.WC{ID: w.WR.ID, Status: status, Op: completionOf(w.WR.Op)}, &m.freed, m.completed)
}

func completionOf(op verbs.Opcode) verbs.WCOp {
	switch op {
	case verbs.OpSend, verbs.OpSendImm:
		return verbs.WCSend
	case verbs.OpWrite, verbs.OpWriteImm:
		return verbs.WCWrite
	case verbs.OpRead:
		return verbs.WCRead
	}
	return verbs.WCAtomic
}
