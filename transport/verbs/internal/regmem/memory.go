package regmem

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Options configure a Memory.
type Options struct {
	// Arena is the size of an arena in bytes; 0 means DefaultArena. At least MinArena, at
	// most the smaller pool. It is rounded up to a size class, or down where that exceeds
	// the pool or the device's largest region.
	Arena int64
	// SendLimit and RecvLimit bound the bytes that each pool registers; 0 means
	// DefaultLimit. At least MinArena; rounded down to whole pages.
	SendLimit, RecvLimit int64
	// Start is how many bytes each pool registers in Attach and keeps registered when they
	// are idle, unless the limit needs them for a tensor larger than an arena. Rounded up
	// to whole arenas. 0 means one arena, negative none.
	Start int64
	// Idle is how long an arena beyond Start stays registered without use; 0 means
	// DefaultIdle.
	Idle time.Duration
	// Reserve counts n bytes of memory before they are mapped, until release is called, or returns the error of a
	// process that may not use them. Nil counts nothing.
	Reserve func(n int64) (release func(), err error)
	// GiveBack, when not nil, is called before the sending pool refuses an allocation. It releases tensors
	// that nothing uses, n bytes of them or all, and reports whether it has released any. It is called without
	// locks, on the goroutine that allocates, by several at once.
	GiveBack func(n int64) bool
	// Active, when not nil, is called when there is something for Sweep to do, or may be soon.
	// It is called with a pool's lock held, often, and must not block.
	Active func()
	// Logger logs what makes the memory slower than it could be; nothing is logged when nil.
	Logger *slog.Logger
	// LateWrite, when not nil, is called for each write to free memory. Free memory is
	// filled with a pattern, which is checked when it is allocated again. LateWrite is
	// called with a pool's lock held. For tests, as it touches every byte.
	LateWrite func(LateWrite)
}

// Memory is the registered memory of a process. Its arenas are registered with each
// protection domain that is attached.
type Memory struct {
	sending   pool
	receiving pool
	idle      time.Duration
	start     int64 // Options.Start
	reserve   func(int64) (func(), error)

	copies      atomic.Int64
	copiedBytes atomic.Int64
	slotBytes   atomic.Int64

	staging sync.Mutex // Stage checks and counts one copy at a time; taken before the sending pool's locks
	staged  int64      // bytes of copies that are counted and wait for memory; guarded by staging

	// attaching is held while a domain is attached, and guards domains and closed. It is taken
	// before the locks of the pools.
	attaching sync.Mutex
	domains   []*Domain
	closed    bool

	// The receiving pool's lock guards all fields below and those of the accounts.
	accounts        map[*Account]struct{}
	early           int64 // bytes given out in advance
	quarantined     int64 // bytes in quarantine
	quarantineCount int64 // blocks in quarantine
}

// The sections of the receiving pool. No rkey of one reaches the memory of the other.
const (
	sharedRKeys = iota // peers get the rkeys of the arenas (libibverbs)
	leasedRKeys        // each transfer has an rkey of its own (Destination.Lease)
)

// New returns memory that is registered with no domain yet (Attach). Errors:
// InvalidArgument for options.
func New(o Options) (*Memory, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	m := &Memory{idle: o.Idle, start: o.Start, reserve: o.Reserve, accounts: make(map[*Account]struct{})}
	write := verbs.AccessLocalWrite | verbs.AccessRelaxedOrdering
	m.sending.setUp("sending", o.SendLimit, o, 0)
	m.sending.sections[0].shares, m.sending.giveBack = true, o.GiveBack
	m.receiving.setUp("receiving", o.RecvLimit, o, write|verbs.AccessRemoteWrite, write|verbs.AccessBindWindow)
	return m, nil
}

// fill replaces zeros by defaults and checks the values.
func (o *Options) fill() error {
	if o.Arena == 0 {
		o.Arena = DefaultArena
	}
	for _, limit := range []*int64{&o.SendLimit, &o.RecvLimit} {
		if *limit == 0 {
			*limit = DefaultLimit
		}
		if *limit < MinArena || *limit > math.MaxInt-DefaultArena {
			return status.Errorf(status.InvalidArgument, "a pool of registered memory cannot have %d bytes: the minimum is %d", *limit, MinArena)
		}
		*limit = *limit / pageMultiple * pageMultiple
	}
	if o.Arena < MinArena || o.Arena > min(o.SendLimit, o.RecvLimit) {
		return status.Errorf(status.InvalidArgument,
			"an arena of %d bytes: at least %d, at most the smaller pool of registered memory (%d)", o.Arena, MinArena, min(o.SendLimit, o.RecvLimit))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	if o.Reserve == nil {
		o.Reserve = func(int64) (func(), error) { return func() {}, nil }
	}
	return nil
}

// setUp makes a pool with a section for each of the access rights.
func (p *pool) setUp(name string, limit int64, o Options, access ...verbs.Access) {
	p.name, p.limit, p.active, p.log, p.ended, p.reserve = name, limit, o.Active, o.Logger, make(chan struct{}), o.Reserve
	p.leaving = make(map[*Domain]int)
	p.largest = classSize(min(ceilClass(int(o.Arena)), floorClass(int(limit))))
	if p.active == nil {
		p.active = func() {}
	}
	if o.LateWrite != nil {
		p.pattern = &pattern{report: o.LateWrite}
	}
	for _, rights := range access {
		p.sections = append(p.sections, &section{pool: p, access: rights, arenaSize: p.largest, free: newClasses(p.largest)})
	}
}

// Allocator allocates tensors that are sent without a copy over every device. They may
// outlive the Memory. Its error is verbs.ErrClosed while no domain is attached.
func (m *Memory) Allocator() tensor.Allocator { return m.sending.sections[0] }

// Sweep returns idle memory to the system: arenas that nothing has used for Options.Idle, and the
// pages of what stays registered with a device that locks none. It also lets the pools try
// registrations again that the device has refused. Call it every second after Options.Active, on a
// goroutine that does not poll, since deregistering takes time, until more is false. Its error names
// memory that could not be deregistered; that memory stays mapped.
func (m *Memory) Sweep(now time.Time) (more bool, err error) {
	sending, err1 := m.sending.sweep(now, m.idle)
	receiving, err2 := m.receiving.sweep(now, m.idle)
	m.receiving.mu.Lock()
	more = sending || receiving || m.quarantined > 0
	m.receiving.mu.Unlock()
	return more, errors.Join(err1, err2)
}

// Close detaches all domains and unmaps the memory. Tensors that are in use stay valid;
// their memory is unmapped with their last reference. Idempotent.
func (m *Memory) Close() (err error) {
	m.attaching.Lock()
	m.closed = true
	domains := slices.Clone(m.domains)
	m.attaching.Unlock()
	for _, d := range domains {
		err = errors.Join(err, d.Detach())
	}
	return errors.Join(err, m.sending.close(), m.receiving.close())
}

// Stats describes a Memory and counts its work.
type Stats struct {
	Sending, Receiving PoolStats
	// Early is the bytes of the receiving pool that were given out in advance.
	// Quarantined is the bytes in quarantine: the receive has ended, and the peer may
	// still write. Quarantine is the number of blocks there, and Oldest the age of the
	// oldest one.
	Early       int64
	Quarantined int64
	Quarantine  int64
	Oldest      time.Duration
	// Copies counts tensors that were copied because they did not lie in registered
	// memory.
	Copies      int64
	CopiedBytes int64
	// Slots is the bytes registered for messages.
	Slots int64
}

// PoolStats describes a pool and counts its work.
type PoolStats struct {
	Limit      int64 // bytes that may be registered
	Registered int64 // bytes that are registered with a device
	Mapped     int64 // bytes of arenas, registered or not
	Start      int64 // bytes of them that stay registered when they are idle (Options.Start)
	InUse      int64 // bytes of the allocated blocks
	Absent     int64 // bytes of free blocks that have no pages, so they take no memory
	Buffers    int64 // number of allocated blocks
	Arenas     int64
	HugePages  int64 // bytes registered in the system's huge pages
	Grown      int64 // how often memory was registered
	Exhausted  int64 // how often an allocation failed for lack of memory
	Stuck      int64 // bytes that could not be deregistered
}

// Stats returns the present values.
func (m *Memory) Stats(now time.Time) Stats {
	s := Stats{Sending: m.sending.stats(), Copies: m.copies.Load(), CopiedBytes: m.copiedBytes.Load(), Slots: m.slotBytes.Load()}
	s.Receiving = m.receiving.stats()
	m.receiving.mu.Lock()
	defer m.receiving.mu.Unlock()
	s.Early, s.Quarantined, s.Quarantine = m.early, m.quarantined, m.quarantineCount
	for a := range m.accounts {
		if a.quarantine != nil {
			s.Oldest = max(s.Oldest, now.Sub(a.quarantine.since))
		}
	}
	return s
}

func (p *pool) stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PoolStats{
		Limit: p.limit, Mapped: p.mapped, InUse: p.inUse, Buffers: p.buffers, Arenas: int64(len(p.arenas)),
		Grown: p.grown, Exhausted: p.exhausted, Stuck: p.stuck,
	}
	for _, a := range p.arenas {
		if a.kind == hugePages {
			s.HugePages += int64(len(a.mem))
		}
		s.Absent += a.absent()
		if len(a.all()) > 0 {
			s.Registered += int64(len(a.mem))
		}
	}
	for _, o := range p.sections {
		s.Start += o.start
	}
	s.Start = min(s.Start, s.Registered)
	return s
}
