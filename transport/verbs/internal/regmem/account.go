package regmem

import (
	"fmt"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Account records the memory that one channel holds of the receiving pool. Each
// generation of a channel has its own. Its methods may be called from any goroutine.
type Account struct {
	name   string
	m      *Memory
	domain *Domain

	// The receiving pool's lock guards all fields below.
	held        int // number of destinations
	heldBytes   int64
	early       int64  // bytes of destinations given out in advance
	quarantine  *block // the oldest block in quarantine; linked by next
	last        *block // the newest
	quarantined int64  // bytes in quarantine
}

// OpenAccount returns a new account of a channel over the domain's device. Errors contain name.
func (d *Domain) OpenAccount(name string) *Account {
	m := d.m
	a := &Account{name: name, m: m, domain: d}
	m.receiving.mu.Lock()
	defer m.receiving.mu.Unlock()
	m.accounts[a] = struct{}{}
	return a
}

// Close ends the account. Call it when all queue pairs of the channel are destroyed and
// all destinations released. Destinations that are left are an error; they stay valid.
func (a *Account) Close() error {
	a.m.receiving.mu.Lock()
	defer a.m.receiving.mu.Unlock()
	delete(a.m.accounts, a)
	if a.held > 0 {
		return status.Errorf(status.Internal, "%s ended with %d destinations (%d bytes) that were not released", a.name, a.held, a.heldBytes)
	}
	return nil
}

// Name is the name given to OpenAccount.
func (a *Account) Name() string { return a.name }

// Early says that the request carries the destination's address, before the sender is
// known to have the tensor.
type Early bool

// When an address is given to the sender.
const (
	OnDemand  Early = false // the sender has the tensor and has sent its size
	InAdvance Early = true  // with the request; limited to a quarter of the receiving pool
)

// ErrEarlyLimit is returned for InAdvance when a quarter of the receiving pool has been
// given out in advance. The request then carries no address.
var ErrEarlyLimit error = status.Errorf(status.ResourceExhausted, "a quarter of the receiving pool is given out in advance")

// Destination is the transport's reference to memory that a peer may write to, from the
// time that its address is given out until Release. The zero value is no destination.
type Destination struct {
	buf *tensor.Buffer
	b   *block
	at  *region // of the account's domain
	n   int     // bytes that the peer writes
}

// Destination allocates n bytes (at least 1) of the receiving pool. Errors: ErrMustGrow
// with NoGrow, ErrEarlyLimit with InAdvance, ResourceExhausted when the pool is at its
// limit.
func (a *Account) Destination(n int, early Early, grow Grow) (Destination, error) {
	m, p, section := a.m, &a.m.receiving, a.domain.receive
	var reserved int64
	if early {
		p.mu.Lock()
		size, _ := section.sizeLocked(n)
		reserved = int64(size)
		full := m.early+reserved > p.limit/shareParts
		if !full {
			m.early += reserved
		}
		p.mu.Unlock()
		if full {
			return Destination{}, ErrEarlyLimit
		}
	}
	b, at, err := a.domain.take(section, n, grow)
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
	return Destination{buf: b.buffer(n), b: b, at: at, n: n}, nil
}

// Adopt is Destination in memory that exists: the first n bytes of buf, a buffer of the
// receiver's own, or a slice of one. ok is false when that is no memory of this receiving pool, or not of the
// domain's section of it, or when it is a destination already. The destination holds a
// reference of its own to buf, and its rules are those of any other: the block is in the
// account, and counts in quarantine, until Release. It takes nothing of the limit of
// destinations that are given out in advance, since it takes nothing of the pool.
func (a *Account) Adopt(buf *tensor.Buffer, n int) (d Destination, ok bool) {
	root, off := buf.Root()
	b, mine := root.Owner().(*block)
	p := &a.m.receiving
	if !mine || b.arena.section != a.domain.receive || n <= 0 || n > buf.Len() || &buf.Bytes()[0] != &b.bytes()[off] {
		return Destination{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := b.arena.regionOf(a.domain)
	if b.account != nil || at == nil {
		return Destination{}, false
	}
	if root != buf { // other slices of the block may be destinations, too
		b = &block{arena: b.arena, off: b.off + off, size: buf.Len(), out: true}
	}
	b.account = a
	a.held++
	a.heldBytes += int64(b.size)
	return Destination{buf: buf.Retain(), b: b, at: at, n: n}, true
}

// IsZero reports whether d is no destination.
func (d Destination) IsZero() bool { return d.buf == nil }

// Buffer is the memory. The reference belongs to d; a receive that has completed adds one
// for its tensor (Retain).
func (d Destination) Buffer() *tensor.Buffer { return d.buf }

// Range is the memory as it is described to the peer.
func (d Destination) Range() Range { return d.b.rangeOf(d.at, 0, d.n) }

// Lease allows the peer of a queue pair in RTS to write to this memory and no other, with
// a random rkey that is valid until the window is closed. The caller closes the window
// before Release. Only for a Domain whose Leases is true.
func (d Destination) Lease(qp verbs.QP) (verbs.Window, error) {
	return qp.BindWindow(d.at.mr, uint64(d.b.off), uint64(d.n), verbs.AccessRemoteWrite) //nolint:gosec // never negative
}

// Quarantine records that the receive has ended at now without the tensor, while the
// peer may still write. Only the first call counts.
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
	p.active()
}

// Release ends the transport's reference. Call it when the peer cannot write to the
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
		panic("regmem: Release of a released Destination") //nolint:forbidigo // going on would release another owner's reference
	}
	d.buf.Release()
}

// dropLocked removes b from the account.
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

// Overdue is an account whose channel must be closed, with the reason.
type Overdue struct {
	Account *Account
	Reason  string // for the log and the BYE
}

// Overdue returns the channels that must be closed because of their memory in
// quarantine: those with a block there for QuarantineTime, and, when all blocks there
// together exceed a quarter of the receiving pool, those that hold most of it. Call it
// when a Destination goes into quarantine, and every second.
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
			over = append(over, Overdue{a, fmt.Sprintf("%d bytes of cancelled receives have not been released for %v", a.quarantined, age.Round(time.Millisecond))})
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
