package tcp

import (
	"encoding/binary"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// acknowledge takes the count of requests that the peer has executed. It comes with every
// frame.
func (m *machine) acknowledge(now time.Duration, acked uint64) error {
	r := &m.req
	switch {
	case acked == m.Acked():
		return nil
	case m.Acked() == r.first && (acked < r.first || acked > m.Next()): // the peer expects another PSN, and executes nothing
		return nil
	}
	if acked < m.Acked() || acked > m.Next() || acked > r.written.Load() && acked > m.out.written() {
		return protocolError(&frame.Header{Kind: frame.Ack, Number: acked}, "is not between %d, which it acknowledged before, and %d, which were sent",
			m.Acked(), r.written.Load())
	}
	r.alive(now)
	r.rnrWaiting = false
	m.Acknowledge(acked)
	return nil
}

// receiveResponse takes content of a read, or the result of an atomic.
func (m *machine) receiveResponse(now time.Duration, h *frame.Header) (place, error) {
	number, w := m.OldestRead()
	switch {
	case w == nil || number != h.Number:
		return place{}, protocolError(h, "answers no read or atomic that is outstanding")
	case w.Got+uint64(h.Length) > w.Length || h.Length == 0 && w.Length > 0:
		return place{}, protocolError(h, "has %d bytes after %d of %d", h.Length, w.Got, w.Length)
	}
	m.req.alive(now)
	return place{Place: rc.Place{Kind: placeResponse, SGL: w.SGL, Off: w.Got}, number: number}, nil
}

// receiveRNR waits for the peer to post a receive. Nothing is sent meanwhile but a Probe
// after each RNR time; the peer answers RNR or Ready. A Ready that comes earlier ends the wait
// too.
func (m *machine) receiveRNR(now time.Duration, h *frame.Header) error {
	r := &m.req
	delay, known := rc.RNRDelay(h.Imm)
	switch {
	case h.Number != m.Acked() || !known:
		return protocolError(h, "with the timer code %d: the next to execute is %d", h.Imm, m.Acked())
	case m.Next() == m.Acked() && !r.rnrWaiting && m.Offset() == 0:
		return protocolError(h, "was not sent")
	}
	if !m.NotReady() {
		return nil
	}
	if !r.rnrWaiting {
		m.SendFrom(m.Acked(), 0)
		r.again = true
	}
	r.alive(now)
	r.rnrWaiting, r.rnrUntil = true, now+delay
	return nil
}

func (m *machine) receiveReady(now time.Duration, h *frame.Header) {
	r := &m.req
	r.alive(now)
	if h.Number == m.Acked() {
		r.rnrWaiting, r.probeDue = false, false
	}
}

// receiveNAK fails the request that the peer refused.
func (m *machine) receiveNAK(h *frame.Header) error {
	status := verbs.Status(h.Imm) //nolint:gosec // compared below
	switch {
	case h.Imm != uint32(status) || status != verbs.StatusRemoteInvalidRequest && status != verbs.StatusRemoteAccess && status != verbs.StatusRemoteOperation:
		return protocolError(h, "with the status %d, which refuses nothing", h.Imm)
	case h.Number != m.Acked() || h.Number >= m.Posted():
		return protocolError(h, "refuses no request that is outstanding")
	}
	m.Fail(status)
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
