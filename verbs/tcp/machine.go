package tcp

import (
	"errors"
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// machine is a reliable-connected queue pair as a state machine, without sockets, goroutines
// and clocks. Inputs are work requests, frames and the time; outputs are frames, completions
// and a deadline.
//
//	postSend ──► next ──► frames ══════► receive, placed ──► completions
//	              ▲                        │
//	              └─ responses, ACK ◄══════┘ next of the peer's machine
//
// The requester (requester.go, acknowledge.go) sends requests, the responder (responder.go)
// executes those of the peer. A machine copies no content: it tells its caller from where to
// where. It is not safe for concurrent use. Times are durations since the device was opened.
type machine struct {
	out    completer
	keys   *soft.Keys
	domain *soft.Domain
	qp     *qp // names the queue pair whose windows the peer may use

	state       verbs.QPState
	access      verbs.Access // of the peer, through this queue pair
	established bool         // EventCommEstablished was reported

	req  requester
	resp responder
	turn bool // the next piece of content is a response, if there is one
	// share is that of the connection (pace.go); 0 before it is known.
	share uint64
	at    time.Duration // of the input under way
}

// completer receives the completions and events of a queue pair. The machine calls it from
// within its methods.
type completer interface {
	// sendCompleted reports the end of a work request of the send queue. When the
	// completion has been polled, the slots below freedTo are free.
	sendCompleted(wc verbs.WC, freedTo uint64)
	// recvCompleted does the same for the receive queue.
	recvCompleted(wc verbs.WC, freedTo uint64, solicited bool)
	// asyncEvent reports an asynchronous event of the queue pair.
	asyncEvent(verbs.EventKind)
	// stopAccess ends all access to the memory of work requests. The machine calls it
	// before it gives them back by flushing.
	stopAccess()
	// written returns requester.written, after a system call of the writer that is under way.
	written() uint64
}

// source says where the content of a frame is: in a work request of this side, or behind a
// remote key (a response). It refers to a slot by number: the slot keeps its content until
// the work request completes.
type source struct {
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
	kind placeKind
	sgl  []verbs.SGE // of a receive or of a read of this side
	off  uint64
	addr uint64 // of a write of the peer
	rkey verbs.RKey
	need verbs.Access
	// Of a response, the number of the request.
	number uint64
}

type placeKind uint8

const (
	placeNowhere  placeKind = iota // dropped
	placeRecv                      // a receive
	placeRemote                    // memory that the peer named
	placeResponse                  // a read or atomic of this side
	placeOperands                  // the operands of an atomic
)

// init sets up a queue pair in RESET.
func (m *machine) init(q *qp, d *soft.Domain, sends, recvs int) {
	m.out, m.qp, m.keys, m.domain = q, q, d.Keys, d
	m.req.limit, m.resp.limit = sends, recvs
}

// segment is the most content of a frame in bytes.
func (m *machine) segment() uint64 { return min(max(m.share, minSegment), maxSegment) }

// toRTR and toRTS apply attributes. The caller has checked them, and the transition.
func (m *machine) toRTR(now time.Duration, a verbs.RTRAttr) {
	m.resp.minRNR, m.resp.maxReads = a.MinRNRTimer, int(a.MaxDestReadAtomic)
	m.req.connectBy = now + connectTime
	m.resp.expected, m.resp.started = uint64(a.Peer.PSN), false
	m.state = verbs.StateRTR
}

func (m *machine) toRTS(a verbs.RTSAttr) {
	if m.state == verbs.StateRTR { // the PSN is set once
		m.req.startAt(uint64(a.PSN))
	}
	m.req.configure(a)
	m.state = verbs.StateRTS
}

// reset returns to RESET. The sizes of the queues stay.
func (m *machine) reset() {
	m.req.reset()
	m.resp.reset()
	m.state, m.established = verbs.StateReset, false
}

// enterError moves the queue pair to ERR and flushes all outstanding work requests.
func (m *machine) enterError() {
	if m.state == verbs.StateErr {
		return
	}
	m.out.stopAccess()
	m.state = verbs.StateErr
	m.flushSends()
	m.resp.abandon()
	m.flushRecvs()
}

// next builds the header of the next frame, and says where its content is. It returns false
// if there is nothing to send now. alone says that the frame is the first of its batch: a NAK
// ends all access to memory, so it goes alone.
func (m *machine) next(now time.Duration, alone bool, h *frame.Header, s *source) bool {
	m.at = now
	*h, *s = frame.Header{Acked: m.resp.expected}, source{}
	if m.nextReply(h) {
		return true
	}
	m.turn = !m.turn
	if m.turn && m.nextResponse(h, s) || m.nextRequest(h, s) || !m.turn && m.nextResponse(h, s) {
		m.resp.acknowledged()
		return true
	}
	if alone && m.nextNAK(h) {
		return true
	}
	if m.resp.ackDue && m.isUp() {
		h.Kind = frame.Ack
		m.resp.acknowledged()
		return true
	}
	return false
}

// isUp reports whether the queue pair takes requests of the peer.
func (m *machine) isUp() bool { return m.state == verbs.StateRTR || m.state == verbs.StateRTS }

// hasOutput reports whether next would return a frame, or would find that a request fails.
func (m *machine) hasOutput() bool {
	r := &m.resp
	if !m.isUp() {
		return false
	}
	return r.rnrDue || r.readyDue || m.req.probeDue || r.numResponses > 0 || r.refused || r.ackDue || m.canRequest()
}

// receive takes the header of a frame and says where its content goes. An error means that the
// peer broke the protocol. The caller then places the content, and calls placed; if it
// cannot, misplaced.
func (m *machine) receive(now time.Duration, h *frame.Header) (place, error) {
	m.at = now
	if !m.isUp() || m.resp.refused {
		return place{}, nil
	}
	if m.state == verbs.StateRTS { // in RTR this side does not know its PSN
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
	if !m.isUp() {
		return
	}
	switch p.kind {
	case placeRecv, placeRemote:
		m.contentPlaced(uint64(h.Length))
	case placeResponse:
		m.responsePlaced(p.number, uint64(h.Length))
	case placeOperands:
		m.executeAtomic(operands)
	case placeNowhere:
		if h.Kind.IsRequest() || h.Kind == frame.Data {
			m.contentPlaced(0)
		}
	}
}

// misplaced reports that the place of the content is no longer valid.
func (m *machine) misplaced(p *place) {
	if !m.isUp() {
		return
	}
	switch p.kind {
	case placeRecv:
		m.failRecv(verbs.StatusLocalProtection, verbs.StatusRemoteOperation)
	case placeRemote:
		m.refuse(verbs.StatusRemoteAccess)
	case placeResponse:
		m.failRequest(p.number, verbs.StatusLocalProtection)
	}
}

// errProtocol is wrapped by errors about frames that no honest peer sends.
var errProtocol = errors.New("the peer broke the protocol")

func protocolError(h *frame.Header, format string, args ...any) error {
	return fmt.Errorf("%w: %v number %d %s", errProtocol, h.Kind, h.Number, fmt.Sprintf(format, args...))
}
