package tcp

import (
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// requester is the half of a queue pair that sends requests. It numbers work requests
// from its PSN on, and so do the frames:
//
//	freed <= completed <= acked <= sending <= posted
//
// reading is the oldest read or atomic without its whole response, from completed on.
type requester struct {
	limit int
	sends soft.Ring[sendWork]

	first     uint64 // the PSN
	posted    uint64
	sending   uint64 // the one that the next frame belongs to
	offset    uint64 // its content before it is built into frames
	acked     uint64 // the peer has executed all below
	completed uint64
	freed     atomic.Uint64 // slots below are free; written by polls
	// written is one more than the last request of which every byte was written. The writer
	// stores it right after the system call (conn.access is held), so that an honest
	// acknowledgement is never above it.
	written atomic.Uint64
	// again: requests that count as written will be sent again. The next frame resets written, when
	// all frames that were built before are written.
	again bool

	reads    int // sent, without their whole response
	maxReads int

	rnrWaiting bool // the peer has no receive for the request acked
	rnrUntil   time.Duration
	rnrRetry   uint8
	rnrRetries uint8

	probeDue bool // Probe is to be sent
	patience
}

// sendWork is a slot of the send queue.
type sendWork struct {
	wr     verbs.SendWR // without SGL and Inline
	sgl    []verbs.SGE
	inline []byte // used if isInline
	length uint64
	got    uint64 // bytes of the response
	done   bool   // the whole response has come

	isInline bool
}

func (w *sendWork) isReadOrAtomic() bool { return w.wr.Op >= verbs.OpRead }

// startAt sets the number of the first request.
func (r *requester) startAt(n uint64) {
	r.first, r.posted, r.sending, r.offset, r.acked, r.completed, r.again = n, n, n, 0, n, n, false
	r.freed.Store(n)
	r.written.Store(n)
}

// full reports whether the send queue has no free slot.
func (r *requester) full() bool { return r.posted-r.freed.Load() >= uint64(r.limit) } //nolint:gosec // not negative

// postSend posts a work request. The caller has checked it, and that the queue is not full.
func (m *machine) postSend(now time.Duration, wr *verbs.SendWR) {
	r := &m.req
	r.sends.Grow(r.freed.Load(), r.posted, r.limit)
	w := r.sends.At(r.posted)
	w.wr = *wr
	w.wr.SGL, w.wr.Inline = nil, nil
	w.sgl, w.inline = append(w.sgl[:0], wr.SGL...), append(w.inline[:0], wr.Inline...)
	w.length, w.got, w.done, w.isInline = wr.Len(), 0, !w.isReadOrAtomic(), wr.Inline != nil
	if r.completed == r.posted {
		r.alive(now)
	}
	r.posted++
	if m.state == verbs.StateErr {
		m.flushSends()
	}
}

// canRequest reports whether a request can go on. It may turn out to be wrong then.
func (m *machine) canRequest() bool {
	r := &m.req
	if m.state != verbs.StateRTS || r.rnrWaiting || r.sending == r.posted || m.resp.refused {
		return false
	}
	w := r.sends.At(r.sending)
	switch {
	case r.offset > 0:
		return true
	case w.wr.Fence && r.reads > 0:
		return false
	}
	return !w.isReadOrAtomic() || r.reads < r.maxReads || r.maxReads == 0
}

// nextRequest builds the next frame of the send queue. All frames of earlier batches are written.
func (m *machine) nextRequest(h *frame.Header, s *source) bool {
	if !m.canRequest() {
		return false
	}
	r := &m.req
	if r.again {
		r.again = false
		r.written.Store(r.sending)
	}
	w := r.sends.At(r.sending)
	if status := m.checkLocal(w); status != verbs.StatusOK {
		// Fail only after all earlier work requests have completed.
		if r.completed == r.sending {
			m.failRequest(r.sending, status)
		}
		return false
	}
	h.Number = r.sending
	if r.offset > 0 {
		h.Kind = frame.Data
	} else {
		m.firstFrame(w, h)
	}
	switch {
	case w.wr.Op == verbs.OpRead:
		r.offset = w.length
	case w.isReadOrAtomic():
		var b [frame.AtomicLen]byte
		putOperands(b[:], &w.wr)
		w.inline = append(w.inline[:0], b[:]...)
		s.inline, s.n = w.inline, frame.AtomicLen
		h.Length = frame.AtomicLen
		r.offset = w.length
	default:
		s.n = min(m.segment(), w.length-r.offset)
		s.off = r.offset
		if w.isInline {
			s.inline = w.inline[s.off : s.off+s.n]
		} else {
			s.sgl = w.sgl
		}
		h.Length = uint32(s.n) //nolint:gosec // at most maxSegment
		r.offset += s.n
	}
	if r.offset == w.length {
		r.offset = 0
		r.sending++
	}
	return true
}

// firstFrame fills the header of a request's first frame.
func (m *machine) firstFrame(w *sendWork, h *frame.Header) {
	h.Kind, h.Total = frame.Send+frame.Kind(w.wr.Op), w.length
	if w.wr.Solicited {
		h.Flags |= frame.Solicited
	}
	if w.wr.Signaled {
		h.Flags |= frame.WantAck
	}
	if h.Kind.HasImm() {
		h.Imm = w.wr.Imm
	}
	if w.wr.Op >= verbs.OpWrite {
		h.Addr, h.RKey = w.wr.RemoteAddr, uint32(w.wr.RKey)
	}
	if w.isReadOrAtomic() {
		m.req.reads++
	}
}

// checkLocal checks the local side of a work request, before its first frame is sent.
func (m *machine) checkLocal(w *sendWork) verbs.Status {
	switch {
	case w.length > frame.MaxMessage:
		return verbs.StatusLocalLength
	case w.isReadOrAtomic() && m.req.maxReads == 0:
		return verbs.StatusLocalQPOperation
	case m.req.offset == 0 && !m.keys.Usable(m.domain, w.sgl, w.isReadOrAtomic()):
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// goBack lets all requests that the peer has not executed be sent again.
func (r *requester) goBack() {
	for i := r.acked; i < r.sending; i++ {
		if r.sends.At(i).isReadOrAtomic() {
			r.reads--
		}
	}
	r.sending, r.offset, r.again = r.acked, 0, true
}

// completeSend ends the oldest work request.
func (m *machine) completeSend(status verbs.Status) {
	r := &m.req
	w := r.sends.At(r.completed)
	r.completed++
	if !w.wr.Signaled && status == verbs.StatusOK {
		return
	}
	m.out.sendCompleted(verbs.WC{ID: w.wr.ID, Status: status, Op: completionOf(w.wr.Op)}, r.completed)
}

// failRequest ends a work request with an error, and moves the queue pair to ERR. All before it
// end first: with the same error if they have no result.
func (m *machine) failRequest(number uint64, status verbs.Status) {
	r := &m.req
	if m.state == verbs.StateErr {
		return
	}
	m.out.stopAccess()
	for r.completed < number && r.completed < r.acked && r.sends.At(r.completed).done {
		m.completeSend(verbs.StatusOK)
	}
	if r.completed < r.posted {
		m.completeSend(status)
	}
	m.enterError()
}

func (m *machine) flushSends() {
	r := &m.req
	for r.completed < r.posted {
		m.completeSend(verbs.StatusFlushed)
	}
	r.sending, r.acked, r.offset, r.reads = r.posted, r.posted, 0, 0
	r.rnrWaiting, r.probeDue = false, false
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

// reset clears everything but the size of the queue.
func (r *requester) reset() {
	r.startAt(0)
	r.reads, r.rnrWaiting, r.rnrRetries, r.probeDue = 0, false, 0, false
	r.patience = patience{}
}
