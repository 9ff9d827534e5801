package transport

import (
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Transfer is the record of one RecvTensor.
type Transfer struct {
	Step        int64
	Tensor      string // the tensor name in the key
	Source      cluster.Device
	Destination cluster.Device
	// Peer is the task that was asked, by its name in the cluster of this process; zero when it has
	// none. The names in Source and Destination are those of a session.
	Peer      cluster.Task
	Transport string
	Device    string // the RDMA device that received the content; empty without one
	Bytes     int64
	// Attempt is the number of the attempt that succeeded, from 1.
	Attempt uint32
	// Start and End are times of this process's clock. Start is when the sender began. As
	// the sender's clock may be wrong, Start is never before the request or after End.
	Start, End time.Time
}

// NewTransfer returns a Transfer with Start and End. sendStartMicros is when the sender
// began, in microseconds since 1970 by the sender's clock; 0 when unknown.
func NewTransfer(requested, ended time.Time, sendStartMicros int64) (t Transfer) {
	// The duration is by the monotonic clock, and the record by the wall clock, which may
	// have been set during the transfer.
	took := max(0, ended.Sub(requested))
	t.Start = requested.Round(0)
	t.End = t.Start.Add(took)
	if sendStartMicros == 0 {
		return t
	}
	if s := time.UnixMicro(sendStartMicros); s.After(t.Start) {
		t.Start = s
	}
	if t.Start.After(t.End) {
		t.Start = t.End
	}
	return t
}

// Log keeps the last transfers and passes each one to an observer. A nil Log records nothing.
// It is safe for concurrent use.
type Log struct {
	observe func(Transfer)

	mu   sync.Mutex // guards the fields below
	ring []Transfer
	next int  // index of the next transfer in ring
	full bool // ring has no unused elements
}

// NewLog returns a log of the last size transfers; of none when size is not positive. Add
// calls observe, if not nil, with each transfer; observe must not block.
func NewLog(size int, observe func(Transfer)) *Log {
	return &Log{ring: make([]Transfer, max(0, size)), observe: observe}
}

// Add records a transfer.
func (l *Log) Add(t Transfer) {
	if l == nil {
		return
	}
	if len(l.ring) > 0 {
		l.mu.Lock()
		l.ring[l.next] = t
		l.next = (l.next + 1) % len(l.ring)
		l.full = l.full || l.next == 0
		l.mu.Unlock()
	}
	if l.observe != nil {
		l.observe(t)
	}
}

// Transfers returns the recorded transfers, the oldest first.
func (l *Log) Transfers() []Transfer {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.full {
		return append([]Transfer(nil), l.ring[:l.next]...)
	}
	return append(append([]Transfer(nil), l.ring[l.next:]...), l.ring[:l.next]...)
}
