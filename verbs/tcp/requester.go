package tcp

import (
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// requester is what a stream adds to the half of a queue pair that sends requests. Work requests,
// and so the frames, are numbered from its PSN on.
type requester struct {
	first uint64 // the PSN
	// written is one more than the last request of which every byte was written. The writer
	// stores it right after the system call (conn.access is held), so that an honest
	// acknowledgement is never above it.
	written atomic.Uint64
	// again: requests that count as written will be sent again. The next frame resets written, when
	// all frames that were built before are written.
	again bool

	rnrWaiting bool          // the peer has no receive for the request Acked
	rnrUntil   time.Duration // when to send a Probe; 0: it was sent since the last RNR

	probeDue bool // Probe is to be sent
	patience
}

// startAt sets the number of the first request.
func (r *requester) startAt(n uint64) {
	r.first, r.again = n, false
	r.written.Store(n)
}

// postSend posts work requests, and returns their number and bytes.
func (m *machine) postSend(now time.Duration, wrs []verbs.SendWR) (n int, bytes uint64, err error) {
	if m.Idle() {
		m.req.alive(now)
	}
	return m.PostSend(wrs)
}

// sendable returns the work request that the next frame belongs to; nil if none can go on. It may turn
// out to be wrong then.
func (m *machine) sendable() *rc.SendWork {
	if m.req.rnrWaiting || m.resp.refused {
		return nil
	}
	return m.Sendable()
}

// nextRequest builds the next frame of the send queue. All frames of earlier batches are written.
func (m *machine) nextRequest(h *frame.Header, s *frameContent) bool {
	w := m.sendable()
	if w == nil {
		return false
	}
	if m.req.again {
		m.req.again = false
		m.req.written.Store(m.Next())
	}
	if status := m.CheckLocal(w); status != verbs.StatusOK {
		m.FailNext(status)
		return false
	}
	off := m.Offset()
	n := w.Length - off
	h.Number = m.Next()
	if off > 0 {
		h.Kind = frame.Data
	} else {
		firstFrame(w, h)
	}
	switch {
	case w.WR.Op == verbs.OpRead:
	case w.IsAtomic():
		var b [frame.AtomicLen]byte
		putOperands(b[:], &w.WR)
		w.Inline = append(w.Inline[:0], b[:]...)
		s.inline, s.n = w.Inline, frame.AtomicLen
		h.Length = frame.AtomicLen
	default:
		n = min(m.segment(), n)
		s.off, s.n = off, n
		if w.IsInline {
			s.inline = w.Inline[off : off+n]
		} else {
			s.sgl = w.SGL
		}
		h.Length = uint32(n) //nolint:gosec // at most maxSegment
	}
	m.Sent(n)
	return true
}

// firstFrame fills the header of a request's first frame.
func firstFrame(w *rc.SendWork, h *frame.Header) {
	h.Kind, h.Total = frame.Send+frame.Kind(w.WR.Op), w.Length
	if w.WR.Solicited {
		h.Flags |= frame.Solicited
	}
	if w.WR.Signaled {
		h.Flags |= frame.WantAck
	}
	if h.Kind.HasImm() {
		h.Imm = w.WR.Imm
	}
	if w.WR.Op >= verbs.OpWrite {
		h.Addr, h.RKey = w.WR.RemoteAddr, uint32(w.WR.RKey)
	}
}

// reset clears everything.
func (r *requester) reset() {
	r.startAt(0)
	r.rnrWaiting, r.probeDue = false, false
	r.patience = patience{}
}
