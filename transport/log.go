package transport

import (
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Transfer is the record of one RecvTensor.
type Transfer struct {
	Step        int64
	Tensor      string // the name in the key
	Source      cluster.Device
	Destination cluster.Device
	Transport   string
	Bytes       int64
	// Attempt is which one brought it: 1, or more when it was asked again.
	Attempt uint32
	// Start and End are by this process's clock. Start is when the sender
	// began, as far as that is known and plausible: the sender's clock may
	// be wrong, so a transfer never begins before its request or after its
	// end.
	Start, End time.Time
}

// NewTransfer places a transfer between its request and its end.
// sendStartMicros is the sender's word on when it began, in microseconds since
// 1970 by its clock; 0 when it said nothing.
func NewTransfer(requested, ended time.Time, sendStartMicros int64) (t Transfer) {
	// How long it took is by the monotonic clock; what is recorded is by the
	// wall clock, which may have been set meanwhile.
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

// Log keeps the last transfers and hands each to an observer. A nil Log
// records nothing. It is safe for concurrent use.
type Log struct {
	observe func(Transfer)

	mu   sync.Mutex // guards the ring
	ring []Transfer
	next int // where the next one goes
	full bool
}

// NewLog returns a log of the last size transfers; of none when size is not
// positive. observe, if not nil, is called with each one, on the goroutine that
// received it; it must not block.
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
