package regmem

import (
	"fmt"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Account is what one channel holds of the receiving pool. A generation of a
// channel has an account of its own. Its methods may be called from any goroutine.
type Account struct {
	name string
	m    *Memory

	// All below are guarded by the receiving pool's lock.
	held        int // destinations
	heldBytes   int64
	early       int64  // bytes
	quarantine  *block // the one that has been there longest; linked by next
	last        *block // the one that came last
	quarantined int64  // bytes
}

// OpenAccount returns a new account. name says whose it is, in errors.
func (m *Memory) OpenAccount(name string) *Account {
	a := &Account{name: name, m: m}
	m.receiving.mu.Lock()
	defer m.receiving.mu.Unlock()
	m.accounts[a] = struct{}{}
	return a
}

// Close ends the account, when every queue pair of its channel is destroyed and
// every destination released. Destinations that are left are an error that tells
// how many; they stay valid.
func (a *Account) Close() error {
	a.m.receiving.mu.Lock()
	defer a.m.receiving.mu.Unlock()
	delete(a.m.accounts, a)
	if a.held > 0 {
		return status.Errorf(status.Internal, "%s ended with %d destinations (%d bytes) that nobody released", a.name, a.held, a.heldBytes)
	}
	return nil
}

// Name is what OpenAccount was given.
func (a *Account) Name() string { return a.name }

// Early says that a destination's address goes out with the request, before the
// sender is known to have the tensor.
type Early bool

// The two times at which an address is given out.
const (
	OnDemand  Early = false // the sender has the tensor and said its size
	InAdvance Early = true  // counted, and limited to a quarter of the receiving pool
)

// ErrEarlyLimit is the answer to InAdvance when a quarter of the receiving pool is
// given out in advance: the request goes without an address.
var ErrEarlyLimit error = status.Errorf(status.ResourceExhausted, "a quarter of the receiving pool waits for answers")

// Destination is the transport's reference to memory that a peer may write to,
// from the moment that its address is given out until Release. The zero value is
// none.
type Destination struct {
	buf *tensor.Buffer
	b   *block
}

// Destination takes n bytes (at least 1) of the receiving pool. Errors:
// ErrMustGrow with NoGrow, ErrEarlyLimit with InAdvance, ResourceExhausted when the
// pool is at its limit.
func (a *Account) Destination(n int, early Early, grow Grow) (Destination, error) {
	m, p := a.m, &a.m.receiving
	var reserved int64
	if early {
		size, _ := p.sizeOf(n)
		reserved = int64(size)
		p.mu.Lock()
		full := m.early+reserved > p.limit/shareParts
		if !full {
			m.early += reserved
		}
		p.mu.Unlock()
		if full {
			return Destination{}, ErrEarlyLimit
		}
	}
	b, err := p.take(n, grow)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.early -= reserved
	if err != nil {
		return Destination{}, err
	}
	b.account, b.early = a, bool(early)
	a.held++
	a.heldBytes += int64(b.size)
	if early {
		a.early += int64(b.size)
		m.early += int64(b.size)
	}
	return Destination{buf: b.buffer(n), b: b}, nil
}

// IsZero reports whether d is no destination.
func (d Destination) IsZero() bool { return d.buf == nil }

// Buffer is the memory, with the reference that is d's own. A receive that is
// complete gives its tensor one more (Retain).
func (d Destination) Buffer() *tensor.Buffer { return d.buf }

// Piece is the memory as the peer is told of it.
func (d Destination) Piece() Piece { return d.b.piece(0, d.buf.Len()) }

// Lease gives the peer of a queue pair in RTS the right to write to the memory, and
// to no other, by a key at random that dies with the window. The window is the
// caller's, to be closed before Release. For a Memory that Leases.
func (d Destination) Lease(qp verbs.QP) (verbs.Window, error) {
	return qp.BindWindow(d.b.arena.mr, uint64(d.b.off), uint64(d.buf.Len()), verbs.AccessRemoteWrite) //nolint:gosec // never negative
}

// Quarantine says that at now the receive has ended without the tensor, while
// the peer may still write. Only the first call counts.
func (d Destination) Quarantine(now time.Time) {
	d.buf.Len() // panics when d was released
	p := d.b.arena.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	b, a := d.b, d.b.account
	if a == nil || b.quarantined {
		return
	}
	b.quarantined, b.since = true, now
	b.prev, b.next = a.last, nil
	if a.last != nil {
		a.last.next = b
	} else {
		a.quarantine = b
	}
	a.last = b
	a.quarantined += int64(b.size)
	a.m.quarantined += int64(b.size)
	a.m.quarantineCount++
}

// Release gives up the transport's reference, when the peer cannot write to the
// memory any more. It panics when d was released before, like the methods of
// tensor.Buffer.
func (d Destination) Release() {
	d.buf.Len() // panics when the last reference is gone
	p := d.b.arena.pool
	p.mu.Lock()
	held := d.b.account != nil
	if held {
		d.b.account.dropLocked(d.b)
	}
	p.mu.Unlock()
	if !held {
		panic("mem: Release of a released Destination") //nolint:forbidigo // going on would take away somebody else's reference
	}
	d.buf.Release()
}

// dropLocked ends what the account knows of b.
func (a *Account) dropLocked(b *block) {
	n := int64(b.size)
	a.held--
	a.heldBytes -= n
	if b.early {
		a.early -= n
		a.m.early -= n
	}
	if b.quarantined {
		if b.prev != nil {
			b.prev.next = b.next
		} else {
			a.quarantine = b.next
		}
		if b.next != nil {
			b.next.prev = b.prev
		} else {
			a.last = b.prev
		}
		a.quarantined -= n
		a.m.quarantined -= n
		a.m.quarantineCount--
	}
	b.account, b.early, b.quarantined = nil, false, false
}

// Overdue is an account whose channel must be closed, and why.
type Overdue struct {
	Account *Account
	Reason  string // for the log and the BYE
}

// Overdue names the channels that must be closed since they keep memory that is
// of use to nobody: a block has been in quarantine for QuarantineTime, or all
// blocks there together are more than a quarter of the receiving pool; then those
// that hold most of it. To be asked when a Destination goes into quarantine, and
// every second.
func (m *Memory) Overdue(now time.Time) []Overdue {
	p := &m.receiving
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.limit / shareParts
	left := m.quarantined
	if left == 0 {
		return nil
	}
	var over []Overdue
	var young []*Account
	for a := range m.accounts {
		if a.quarantine == nil {
			continue
		}
		if age := now.Sub(a.quarantine.since); age >= QuarantineTime {
			left -= a.quarantined
			over = append(over, Overdue{a, fmt.Sprintf("%d bytes of cancelled receives are not given back for %v", a.quarantined, age.Round(time.Millisecond))})
			continue
		}
		young = append(young, a)
	}
	slices.SortFunc(young, func(a, b *Account) int { return int(min(max(b.quarantined-a.quarantined, -1), 1)) })
	for _, a := range young {
		if left <= limit {
			break
		}
		over = append(over, Overdue{a, fmt.Sprintf("cancelled receives hold %d bytes, of which this channel has %d; the limit is %d", m.quarantined, a.quarantined, limit)})
		left -= a.quarantined
	}
	return over
}
