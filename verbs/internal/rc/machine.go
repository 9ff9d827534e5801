package rc

import (
	"fmt"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// Machine is one end of a reliable connection. It is not safe for concurrent use, except that the
// owner of a completion frees its slot at any time. The zero value is of no use before Init.
type Machine struct {
	owner  Owner
	config Config

	state       verbs.QPState
	access      verbs.Access // of the peer, through this queue pair
	established bool         // EventCommEstablished was reported
	closed      bool

	// failure is how the oldest work request of the send queue ends when the queue pair breaks;
	// StatusOK: it is flushed like the others.
	failure verbs.Status
	// flushing: the queue pair broke, and the carrier has not called Flush yet.
	flushing bool

	requester
	responder
}

// Config describes a queue pair.
type Config struct {
	verbs.QPConfig
	Device string // with Number, the name of the queue pair in errors
	Number verbs.QPN
	// OnlyGID says in errors which index the only GID has, which is 0. If it is empty, the carrier
	// checks the index itself.
	OnlyGID string
	// ReadAtomic limits the reads and atomics that are outstanding, in each direction.
	ReadAtomic uint8
	// MaxPost is the longest message that can be posted, in bytes, and MaxMessage the longest that
	// does not fail when it is sent (CheckLocal). 0 means no limit.
	MaxPost, MaxMessage uint64
	NoAtomics           bool
}

// Owner is the queue pair of a machine. The machine calls it from within its methods.
type Owner interface {
	// SendCompleted reports the end of a work request of the send queue. When the completion has
	// been polled, freedTo is to be stored in freed.
	SendCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64)
	// RecvCompleted does the same for the receive queue.
	RecvCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64, solicited bool)
	// Event reports an asynchronous event of the queue pair.
	Event(kind verbs.EventKind)
	// TakeBack ends all access to the memory of work requests, since the queue pair breaks. False
	// means that an access is under way: nothing is flushed before the carrier calls Flush.
	TakeBack() bool
	// Usable reports whether the memory of a list may be used, and written if write is set.
	Usable(sgl []verbs.SGE, write bool) bool
	// Granted reports whether the peer may use memory through this queue pair. A carrier that
	// checks this while it uses the memory may return true.
	Granted(addr, length uint64, key verbs.RKey, need verbs.Access) bool
}

// Init sets up a queue pair in RESET.
func (m *Machine) Init(owner Owner, c Config) { m.owner, m.config = owner, c }

// Object names the queue pair in errors.
func (m *Machine) Object() string {
	return fmt.Sprintf("%s QP %v", m.config.Device, m.config.Number)
}

func (m *Machine) errorf(op string, err error, format string, args ...any) error {
	return verbs.Errorf(op, m.Object(), err, format, args...)
}

// State returns the state of the queue pair.
func (m *Machine) State() verbs.QPState { return m.state }

// MaxInline is the limit of inline content in bytes.
func (m *Machine) MaxInline() int { return m.config.MaxInline }

// IsUp reports whether the queue pair takes requests of the peer.
func (m *Machine) IsUp() bool { return m.state == verbs.StateRTR || m.state == verbs.StateRTS }

// Close makes all later calls of the user fail.
func (m *Machine) Close() { m.closed = true }

// Closed reports whether Close was called.
func (m *Machine) Closed() bool { return m.closed }

// Open returns an error if the queue pair is closed.
func (m *Machine) Open(op string) error {
	if m.closed {
		return m.errorf(op, verbs.ErrClosed, "the queue pair is closed")
	}
	return nil
}

// Step returns an error if the queue pair cannot move to a state.
func (m *Machine) Step(op string, to verbs.QPState) error {
	if err := m.Open(op); err != nil {
		return err
	}
	if err := verbs.CheckTransition(m.state, to); err != nil {
		return &verbs.Error{Op: op, Object: m.Object(), Err: err}
	}
	return nil
}

// ToInit moves to INIT on the only port of a device.
func (m *Machine) ToInit(a verbs.InitAttr) error {
	const op = "bring to INIT"
	if err := m.Step(op, verbs.StateInit); err != nil {
		return err
	}
	switch {
	case a.Port != soft.OnlyPort:
		return m.errorf(op, verbs.ErrInvalid, "port %d: the only port is %d", a.Port, soft.OnlyPort)
	case a.PKeyIndex != 0:
		return m.errorf(op, verbs.ErrInvalid, "partition key index %d: the only index is 0", a.PKeyIndex)
	case a.SGIDIndex != 0:
		return m.errorf(op, verbs.ErrInvalid, "GID index %d is empty: %s", a.SGIDIndex, m.config.OnlyGID)
	}
	m.EnterInit(a.Access)
	return nil
}

// EnterInit moves to INIT after Step.
func (m *Machine) EnterInit(access verbs.Access) { m.access, m.state = access, verbs.StateInit }

// CheckRTR returns an error if the queue pair cannot move to RTR with these attributes.
func (m *Machine) CheckRTR(a *verbs.RTRAttr) error {
	const op = "bring to RTR"
	if err := m.Step(op, verbs.StateRTR); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: m.Object(), Err: err}
	}
	switch {
	case a.SGIDIndex != 0 && m.config.OnlyGID != "":
		return m.errorf(op, verbs.ErrInvalid, "GID index %d is empty: %s", a.SGIDIndex, m.config.OnlyGID)
	case a.MaxDestReadAtomic > m.config.ReadAtomic:
		return m.errorf(op, verbs.ErrInvalid, "%d outstanding reads: the limit is %d", a.MaxDestReadAtomic, m.config.ReadAtomic)
	}
	return nil
}

// EnterRTR moves to RTR after CheckRTR.
func (m *Machine) EnterRTR(a *verbs.RTRAttr) {
	m.peerReads, m.state = int(a.MaxDestReadAtomic), verbs.StateRTR
}

// CheckRTS returns an error if the queue pair cannot move to RTS with these attributes.
func (m *Machine) CheckRTS(a *verbs.RTSAttr) error {
	const op = "bring to RTS"
	if err := m.Step(op, verbs.StateRTS); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: m.Object(), Err: err}
	}
	if a.MaxReadAtomic > m.config.ReadAtomic {
		return m.errorf(op, verbs.ErrInvalid, "%d outstanding reads: the limit is %d", a.MaxReadAtomic, m.config.ReadAtomic)
	}
	return nil
}

// EnterRTS moves to RTS after CheckRTS. number is that of the first work request. It counts once, on
// the move from RTR; first says so.
func (m *Machine) EnterRTS(a *verbs.RTSAttr, number uint64) (first bool) {
	if first = m.state == verbs.StateRTR; first {
		m.startAt(number)
	}
	m.rnrRetry, m.maxReads, m.state = a.RNRRetry, int(a.MaxReadAtomic), verbs.StateRTS
	return first
}

// ToErr moves to ERR on behalf of the user.
func (m *Machine) ToErr() error {
	if err := m.Step("bring to ERR", verbs.StateErr); err != nil {
		return err
	}
	m.Break()
	return nil
}

// Reset returns to RESET. The completions of the queue pair have been removed before: polling one
// afterwards would free slots in use.
func (m *Machine) Reset() {
	m.state, m.established, m.failure, m.flushing = verbs.StateReset, false, verbs.StatusOK, false
	m.startAt(0)
	m.reads, m.rnrRetries = 0, 0
	m.recvPosted, m.consumed, m.message = 0, 0, Message{}
	m.recvFreed.Store(0)
}

// Break moves the queue pair to ERR and flushes all outstanding work requests, also unsignaled
// ones, as rxe and NICs do (specification, volume 1, 10.3.1).
func (m *Machine) Break() {
	if m.state == verbs.StateErr {
		return
	}
	m.flushing = !m.owner.TakeBack()
	m.state = verbs.StateErr
	if !m.flushing {
		m.flush()
	}
}

// Fail breaks the queue pair. Its oldest work request ends with a status.
func (m *Machine) Fail(status verbs.Status) {
	if m.state == verbs.StateErr {
		return
	}
	m.failure = status
	m.Break()
}

// Flush ends the work requests of a queue pair that broke while the carrier used their memory. It
// does nothing otherwise.
func (m *Machine) Flush() {
	if m.flushing {
		m.flushing = false
		m.flush()
	}
}

func (m *Machine) flush() {
	status := m.failure
	m.failure = verbs.StatusOK
	for m.completed < m.posted {
		if status == verbs.StatusOK {
			status = verbs.StatusFlushed
		}
		m.completeSend(status)
		status = verbs.StatusFlushed
	}
	m.next, m.acked, m.offset, m.reads = m.posted, m.posted, 0, 0
	if m.message.Active && m.message.Op != verbs.OpWrite {
		m.consumed-- // the receive of an incomplete message is flushed too
	}
	m.message = Message{}
	for m.consumed < m.recvPosted {
		m.consumed++
		m.completeRecv(verbs.WC{Status: verbs.StatusFlushed}, false)
	}
}
