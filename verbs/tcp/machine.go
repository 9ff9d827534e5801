package tcp

import (
	"errors"
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// machine is a queue pair over a stream of frames, without sockets, goroutines and clocks. What every
// carrier has in common is in rc.Machine. Inputs are work requests, frames and the time; outputs are
// frames, completions and a deadline.
//
//	postSend ──► next ──► frames ══════► receive, placed ──► completions
//	              ▲                        │
//	              └─ responses, ACK ◄══════┘ next of the peer's machine
//
// The requester (requester.go, acknowledge.go) sends requests, the responder (responder.go)
// executes those of the peer. A machine copies no content: it tells its caller from where to
// where. It is not safe for concurrent use. Times are durations since the device was opened.
type machine struct {
	rc.Machine
	out owner

	req  requester
	resp responder
	turn bool // the next segment of content is a response, if there is one
	// share is that of the connection (pace.go); 0 before it is known.
	share uint64
	at    time.Duration // of the input under way
}

// owner is the queue pair of a machine.
type owner interface {
	rc.Owner
	// written returns requester.written, after a system call of the writer that is under way.
	written() uint64
	// update executes an atomic on memory of this side, and returns the old value; false if the peer
	// may not use the memory. The caller is in an access.
	update(r *rc.Request, a, b uint64) (old uint64, ok bool)
}

// frameContent says where the content of a frame is: in a work request of this side, or behind a
// remote key (a response). It refers to a slot by number: the slot keeps its content until
// the work request completes.
type frameContent struct {
	inline []byte      // if not nil: the bytes themselves
	sgl    []verbs.SGE // of a work request
	off    uint64      // in the list
	addr   uint64      // of a response
	rkey   verbs.RKey
	n      uint64
	value  uint64 // the result of an atomic, if atomic
	atomic bool
}

// place says where the content of a frame goes.
type place struct {
	rc.Place        // SGL is that of a receive, or of a read of this side
	number   uint64 // of the request, for placeResponse
}

// Places besides those of rc.Machine.
const (
	placeResponse = rc.PlaceRemote + 1 + iota // a read or atomic of this side
	placeOperands                             // the operands of an atomic
)

// init sets up a queue pair in RESET.
func (m *machine) init(o owner, c rc.Config) {
	m.out = o
	m.Init(o, c)
}

// segment is the most content of a frame in bytes.
func (m *machine) segment() uint64 { return min(max(m.share, minSegment), maxSegment) }

// toRTR and toRTS apply attributes. CheckRTR has checked those of toRTR.
func (m *machine) toRTR(now time.Duration, a *verbs.RTRAttr) {
	m.EnterRTR(a)
	m.resp.minRNR = a.MinRNRTimer
	m.req.connectBy = now + connectTime
	m.resp.expected, m.resp.started = uint64(a.Peer.PSN), false
}

func (m *machine) toRTS(a *verbs.RTSAttr) error {
	if err := m.CheckRTS(a); err != nil {
		return err
	}
	if m.EnterRTS(a, uint64(a.PSN)) {
		m.req.startAt(uint64(a.PSN))
	}
	m.req.configure(a)
	return nil
}

// reset returns to RESET. The sizes of the queues stay.
func (m *machine) reset() {
	m.Reset()
	m.req.reset()
	m.resp = responder{}
}

// next builds the header of the next frame, and says where its content is. It returns false
// if there is nothing to send now. alone says that the frame is the first of its batch: a NAK
// ends all access to memory, so it goes alone.
func (m *machine) next(now time.Duration, alone bool, h *frame.Header, s *frameContent) bool {
	m.at = now
	*h, *s = frame.Header{Acked: m.resp.expected}, frameContent{}
	if m.nextReply(h) {
		return true
	}
	m.turn = !m.turn
	if m.turn && m.nextResponse(h, s) || m.nextRequest(h, s) || !m.turn && m.nextResponse(h, s) {
		m.resp.ackDue = false
		return true
	}
	if alone && m.nextNAK(h) {
		return true
	}
	if m.resp.ackDue && m.IsUp() {
		h.Kind = frame.Ack
		m.resp.ackDue = false
		return true
	}
	return false
}

// hasOutput reports whether next would return a frame, or would find that a request fails.
func (m *machine) hasOutput() bool {
	r := &m.resp
	if !m.IsUp() {
		return false
	}
	return r.rnrDue || r.readyDue || m.req.probeDue || r.numResponses > 0 || r.refused || r.ackDue || m.sendable() != nil
}

// onlyAcks reports whether all that next would return is acknowledgements, which are short.
func (m *machine) onlyAcks() bool {
	r := &m.resp
	return m.IsUp() && !r.rnrDue && !r.readyDue && !m.req.probeDue && r.numResponses == 0 && !r.refused && m.sendable() == nil
}

// receive takes the header of a frame and says where its content goes. An error means that the
// peer broke the protocol. The caller then places the content, and calls placed; if it
// cannot, misplaced.
func (m *machine) receive(now time.Duration, h *frame.Header) (place, error) {
	m.at = now
	if !m.IsUp() || m.resp.refused {
		return place{}, nil
	}
	if m.State() == verbs.StateRTS { // in RTR this side does not know its PSN
		if err := m.acknowledge(now, h.Acked); err != nil {
			return place{}, err
		}
	}
	switch h.Kind {
	case frame.Data:
		return m.receiveData(h)
	case frame.Response:
		return m.receiveResponse(now, h)
	case frame.Ack:
		m.req.alive(now)
	case frame.RNR:
		return place{}, m.receiveRNR(now, h)
	case frame.Ready:
		m.receiveReady(now, h)
	case frame.NAK:
		return place{}, m.receiveNAK(h)
	case frame.Probe:
		m.receiveProbe()
	default:
		return m.begin(h)
	}
	return place{}, nil
}

// placed reports that the content of the frame is in its place. operands is that of
// placeOperands.
func (m *machine) placed(h *frame.Header, p *place, operands []byte) {
	if !m.IsUp() {
		return
	}
	switch p.Kind {
	case rc.PlaceRecv, rc.PlaceRemote:
		m.contentPlaced(uint64(h.Length))
	case placeResponse:
		m.Respond(p.number, uint64(h.Length))
	case placeOperands:
		m.executeAtomic(operands)
	case rc.PlaceNowhere:
		if h.Kind.IsRequest() || h.Kind == frame.Data {
			m.contentPlaced(0)
		}
	}
}

// misplaced reports that the place of the content is no longer valid.
func (m *machine) misplaced(p *place) {
	if !m.IsUp() {
		return
	}
	switch p.Kind {
	case rc.PlaceRecv, rc.PlaceRemote:
		m.refuse(m.Misplaced())
	case placeResponse:
		m.Fail(verbs.StatusLocalProtection)
	}
}

// errProtocol is wrapped by errors about frames that no honest peer sends.
var errProtocol = errors.New("the peer broke the protocol")

func protocolError(h *frame.Header, format string, args ...any) error {
	return fmt.Errorf("%w: %v number %d %s", errProtocol, h.Kind, h.Number, fmt.Sprintf(format, args...))
}
