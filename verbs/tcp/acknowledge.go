package tcp

import (
	"encoding/binary"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// acknowledge takes the count of requests that the peer has executed. It comes with every
// frame.
func (m *machine) acknowledge(now time.Duration, acked uint64) error {
	r := &m.req
	switch {
	case acked == r.acked:
		return nil
	case r.acked == r.first && (acked < r.first || acked > r.sending): // the peer expects another PSN, and executes nothing
		return nil
	}
	if acked < r.acked || acked > r.sending || acked > r.written.Load() && acked > m.out.written() {
		return protocolError(&frame.Header{Kind: frame.Ack, Number: acked}, "is not between %d, which it acknowledged before, and %d, which were sent",
			r.acked, r.written.Load())
	}
	r.acked = acked
	r.alive(now)
	r.rnrRetries, r.rnrWaiting = 0, false
	m.completeSends()
	return nil
}

// completeSends ends the oldest work requests that have their results.
func (m *machine) completeSends() {
	r := &m.req
	for r.completed < r.acked && r.sends.At(r.completed).done {
		m.completeSend(verbs.StatusOK)
	}
}

// oldestRead returns the oldest read or atomic that was sent and has not its whole response.
func (r *requester) oldestRead() (number uint64, w *sendWork) {
	for i := r.completed; i < r.acked; i++ {
		if w := r.sends.At(i); !w.done {
			return i, w
		}
	}
	return 0, nil
}

// receiveResponse takes content of a read, or the result of an atomic.
func (m *machine) receiveResponse(now time.Duration, h *frame.Header) (place, error) {
	r := &m.req
	number, w := r.oldestRead()
	switch {
	case w == nil || number != h.Number:
		return place{}, protocolError(h, "answers no read or atomic that is outstanding")
	case w.got+uint64(h.Length) > w.length || h.Length == 0 && w.length > 0:
		return place{}, protocolError(h, "has %d bytes after %d of %d", h.Length, w.got, w.length)
	}
	r.alive(now)
	return place{kind: placeResponse, sgl: w.sgl, off: w.got, number: number}, nil
}

func (m *machine) responsePlaced(number, n uint64) {
	r := &m.req
	w := r.sends.At(number)
	if w.got += n; w.got < w.length {
		return
	}
	w.done = true
	r.reads--
	m.completeSends()
}

// receiveRNR waits for the peer to post a receive. Nothing is sent meanwhile but a Probe
// after each RNR time; the peer answers RNR or Ready. A Ready that comes earlier ends the wait
// too.
func (m *machine) receiveRNR(now time.Duration, h *frame.Header) error {
	r := &m.req
	switch {
	case h.Number != r.acked || h.Imm >= uint32(len(rnrTime)):
		return protocolError(h, "with the timer code %d: the next to execute is %d", h.Imm, r.acked)
	case r.sending == r.acked && !r.rnrWaiting && r.offset == 0:
		return protocolError(h, "was not sent")
	case r.rnrRetry != rnrUnlimited && r.rnrRetries >= r.rnrRetry:
		m.failRequest(r.acked, verbs.StatusRNRRetryExceeded)
		return nil
	}
	if !r.rnrWaiting {
		r.goBack()
	}
	if r.rnrRetries < rnrUnlimited {
		r.rnrRetries++
	}
	r.alive(now)
	r.rnrWaiting, r.rnrUntil = true, now+rnrUnit*rnrTime[h.Imm]
	return nil
}

func (m *machine) receiveReady(now time.Duration, h *frame.Header) {
	r := &m.req
	r.alive(now)
	if h.Number == r.acked {
		r.rnrWaiting, r.probeDue = false, false
	}
}

// receiveNAK fails the request that the peer refused.
func (m *machine) receiveNAK(h *frame.Header) error {
	r := &m.req
	status := verbs.Status(h.Imm) //nolint:gosec // compared below
	switch {
	case h.Imm != uint32(status) || status != verbs.StatusRemoteInvalidRequest && status != verbs.StatusRemoteAccess && status != verbs.StatusRemoteOperation:
		return protocolError(h, "with the status %d, which refuses nothing", h.Imm)
	case h.Number != r.acked || h.Number >= r.posted:
		return protocolError(h, "refuses no request that is outstanding")
	}
	m.failRequest(h.Number, status)
	return nil
}

// putOperands encodes the operands of an atomic.
func putOperands(b []byte, wr *verbs.SendWR) {
	if wr.Op == verbs.OpFetchAdd {
		binary.LittleEndian.PutUint64(b[8:], wr.Add)
		return
	}
	binary.LittleEndian.PutUint64(b, wr.Compare)
	binary.LittleEndian.PutUint64(b[8:], wr.Swap)
}
