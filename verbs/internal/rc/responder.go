package rc

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// responder is the half of a machine that executes the requests of the peer, in order. It numbers
// receives:
//
//	recvFreed <= consumed <= recvPosted
type responder struct {
	recvs      soft.Ring[recvWork]
	recvPosted uint64
	consumed   uint64        // receives that messages have taken
	recvFreed  atomic.Uint64 // slots below are free; written by polls

	peerReads int // reads and atomics that the peer may have outstanding
	message   Message
}

// recvWork is a slot of the receive queue.
type recvWork struct {
	id     verbs.WRID
	sgl    []verbs.SGE
	length uint64
}

// Request is a request of the peer.
type Request struct {
	Op        verbs.Opcode
	Total     uint64 // bytes of the message
	Addr      uint64 // of writes, reads and atomics
	RKey      verbs.RKey
	Imm       uint32
	Solicited bool
}

// Message is the SEND or WRITE that is coming in.
type Message struct {
	Request
	Active bool   // there is one
	Got    uint64 // bytes of it that are in their place
}

// isSend reports whether the content goes to a receive.
func (g *Message) isSend() bool { return g.Op <= verbs.OpSendImm }

// Place says where content of a message goes.
type Place struct {
	Kind  PlaceKind
	SGL   []verbs.SGE // of a receive; valid until it completes
	Addr  uint64      // of the whole WRITE
	Total uint64      // bytes of it
	RKey  verbs.RKey
	Off   uint64 // of the content in the message
}

// PlaceKind is the kind of memory that a Place is in.
type PlaceKind uint8

// The kinds of places. A carrier may have more.
const (
	PlaceNowhere PlaceKind = iota // there is no content, or it is dropped
	PlaceRecv                     // a receive
	PlaceRemote                   // memory that the peer named
)

// PostedRecvs and Consumed are the numbers of receives that were posted, and that messages have taken.
func (r *responder) PostedRecvs() uint64 { return r.recvPosted }
func (r *responder) Consumed() uint64    { return r.consumed }

// HasRecv reports whether a receive is posted that no message has taken.
func (r *responder) HasRecv() bool { return r.consumed < r.recvPosted }

// Message returns the message that is coming in, which is not active if there is none.
func (r *responder) Message() *Message { return &r.message }

// Begin takes a request. reads is the number of reads and atomics that the peer has outstanding.
// Without ready there is no receive for it, and it has no effect. With another status than StatusOK
// it is to be refused. Otherwise content of a SEND or WRITE goes to Place, and the carrier executes a
// read or an atomic itself.
func (m *Machine) Begin(r *Request, reads int) (status verbs.Status, ready bool) {
	if m.state == verbs.StateRTR && !m.established {
		m.established = true
		m.owner.Event(verbs.EventCommEstablished)
	}
	if status := m.checkRights(r, reads); status != verbs.StatusOK || r.Op >= verbs.OpRead {
		return status, true
	}
	if r.Op != verbs.OpWrite {
		if !m.HasRecv() {
			return verbs.StatusOK, false
		}
		m.consumed++
	}
	m.message = Message{Request: *r, Active: true}
	if !m.message.isSend() {
		return verbs.StatusOK, true
	}
	switch w := m.recvs.At(m.consumed - 1); {
	case r.Total > w.length:
		return m.failRecv(verbs.StatusLocalLength, verbs.StatusRemoteInvalidRequest), true
	case r.Total > 0 && !m.owner.Usable(w.sgl, true):
		return m.Misplaced(), true
	}
	return verbs.StatusOK, true
}

// checkRights returns the status with which a request is refused; StatusOK for none.
func (m *Machine) checkRights(r *Request, reads int) verbs.Status {
	var need verbs.Access
	switch r.Op {
	case verbs.OpSend, verbs.OpSendImm:
		return verbs.StatusOK
	case verbs.OpWrite, verbs.OpWriteImm:
		need = verbs.AccessRemoteWrite
	case verbs.OpRead:
		need = verbs.AccessRemoteRead
	default:
		need = verbs.AccessRemoteAtomic
	}
	switch {
	case m.access&need == 0,
		r.Op >= verbs.OpRead && reads >= m.peerReads,
		r.Op >= verbs.OpCompareSwap && r.Addr%8 != 0:
		return verbs.StatusRemoteInvalidRequest
	case r.Total > 0 && !m.owner.Granted(r.Addr, r.Total, r.RKey, need): // an empty WRITE or READ needs no key (9.7.5.2.4)
		return verbs.StatusRemoteAccess
	}
	return verbs.StatusOK
}

// Place returns where the next content of the message goes.
func (m *Machine) Place() Place {
	g := &m.message
	switch {
	case g.Total == 0:
		return Place{}
	case g.isSend():
		return Place{Kind: PlaceRecv, SGL: m.recvs.At(m.consumed - 1).sgl, Off: g.Got}
	}
	return Place{Kind: PlaceRemote, Addr: g.Addr, Total: g.Total, RKey: g.RKey, Off: g.Got}
}

// Placed notes that n more bytes of the message are in their place, and returns true at its end.
// That completes its receive.
func (m *Machine) Placed(n uint64) (last bool) {
	g := &m.message
	if g.Got += n; g.Got < g.Total {
		return false
	}
	g.Active = false
	if g.Op == verbs.OpWrite {
		return true
	}
	wc := verbs.WC{Op: verbs.WCRecv, Len: uint32(g.Total)} //nolint:gosec // no carrier takes longer messages
	if g.Op == verbs.OpWriteImm {
		wc.Op = verbs.WCRecvWrite
	}
	if g.Op != verbs.OpSend {
		wc.HasImm, wc.Imm = true, g.Imm
	}
	m.completeRecv(wc, g.Solicited)
	return true
}

// Misplaced ends the message, whose place is no longer valid, and returns the status with which it
// is to be refused.
func (m *Machine) Misplaced() verbs.Status {
	if m.message.isSend() {
		return m.failRecv(verbs.StatusLocalProtection, verbs.StatusRemoteOperation)
	}
	return verbs.StatusRemoteAccess
}

// Refused reports that a request of the peer is refused (specification, volume 1, 9.9.3.1, classes A
// and C). The carrier tells the peer, and breaks the queue pair.
func (m *Machine) Refused(status verbs.Status) {
	if status == verbs.StatusRemoteAccess {
		m.owner.Event(verbs.EventQPAccess)
	} else {
		m.owner.Event(verbs.EventQPRequest)
	}
}

// failRecv completes the receive of the message with the status own, and returns the status theirs.
func (m *Machine) failRecv(own, theirs verbs.Status) verbs.Status {
	m.message.Active = false
	m.completeRecv(verbs.WC{Status: own}, false)
	return theirs
}

// completeRecv completes the receive that was taken last.
func (m *Machine) completeRecv(wc verbs.WC, solicited bool) {
	wc.ID = m.recvs.At(m.consumed - 1).id
	m.owner.RecvCompleted(wc, &m.recvFreed, m.consumed, solicited)
}

// Atomic returns the value that an atomic stores where old was: a is Compare or Add, and b is Swap.
func Atomic(op verbs.Opcode, old, a, b uint64) uint64 {
	switch {
	case op == verbs.OpFetchAdd:
		return old + a
	case old == a:
		return b
	}
	return old
}
