package regmem

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Options configure a Memory.
type Options struct {
	// Device is the device that the memory is registered with.
	Device verbs.DeviceInfo
	// Arena is the size of an arena in bytes; 0 means DefaultArena. At least MinArena, at
	// most the smaller pool. It is rounded up to a size class, or down where that exceeds
	// the pool or the device's largest region.
	Arena int64
	// SendLimit and RecvLimit bound the bytes that each pool registers; 0 means
	// DefaultLimit. At least MinArena; rounded down to whole pages.
	SendLimit, RecvLimit int64
	// Start is how many bytes each pool registers in New and keeps registered when they
	// are idle, unless the limit needs them for a tensor larger than an arena. Rounded up
	// to whole arenas. 0 means one arena, negative none.
	Start int64
	// Idle is how long an arena beyond Start stays registered without use; 0 means
	// DefaultIdle.
	Idle time.Duration
	// Active, when not nil, is called when there is something for Sweep to do, or may be soon.
	// It is called with a pool's lock held, often, and must not block.
	Active func()
	// LateWrite, when not nil, is called for each write to free memory. Free memory is
	// filled with a pattern, which is checked when it is allocated again. LateWrite is
	// called with a pool's lock held. For tests, as it touches every byte.
	LateWrite func(LateWrite)
}

// Memory is the registered memory of one protection domain.
type Memory struct {
	sending   pool
	receiving pool
	device    verbs.DeviceInfo
	pd        verbs.PD
	idle      time.Duration
	leases    bool

	copies      atomic.Int64
	copiedBytes atomic.Int64
	slotBytes   atomic.Int64

	staging sync.Mutex // Stage checks and counts one copy at a time; taken before the sending pool's locks

	// The receiving pool's lock guards all fields below and those of the accounts.
	accounts        map[*Account]struct{}
	early           int64 // bytes given out in advance
	quarantined     int64 // bytes in quarantine
	quarantineCount int64 // blocks in quarantine
}

// New returns the memory of pd, with Options.Start bytes of each pool registered. The
// caller closes it before pd. Errors: InvalidArgument for options; ResourceExhausted when
// Start cannot be registered, which is verbs.ErrMemlock and names the limit to raise when
// the limit of locked memory is the cause.
func New(pd verbs.PD, o Options) (*Memory, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	m := &Memory{device: o.Device, pd: pd, idle: o.Idle, leases: o.Device.Windows && o.Device.GoMemory, accounts: make(map[*Account]struct{})}
	rights := verbs.AccessRemoteWrite
	if m.leases {
		rights = verbs.AccessBindWindow
	}
	m.sending.setUp(m, "sending", 0, o.SendLimit, o)
	m.receiving.setUp(m, "receiving", verbs.AccessLocalWrite|rights|verbs.AccessRelaxedOrdering, o.RecvLimit, o)
	for _, p := range []*pool{&m.sending, &m.receiving} {
		start := o.Start
		if start == 0 {
			start = int64(p.arenaSize)
		}
		if err := p.prepare(start); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
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
	if o.Device.Limits.MRSize == 0 {
		o.Device.Limits.MRSize = math.MaxInt
	}
	// Arenas (also those for one tensor) and slots have whole pages.
	limit := o.Device.Limits.MRSize / pageMultiple * pageMultiple
	if limit == 0 {
		return status.Errorf(status.InvalidArgument, "%s registers at most %d bytes in one region, and at least %d are needed; use another device",
			o.Device.Name, o.Device.Limits.MRSize, pageMultiple)
	}
	o.Device.Limits.MRSize = limit
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	return nil
}

func (p *pool) setUp(m *Memory, name string, access verbs.Access, limit int64, o Options) {
	// A size class: otherwise a request for a whole arena would look in a class above the
	// one that lists the free arena, and not find it.
	most := int(min(uint64(limit), o.Device.Limits.MRSize))
	p.arenaSize = classSize(min(ceilClass(int(o.Arena)), floorClass(most)))
	p.name, p.pd, p.access, p.device = name, m.pd, access, o.Device.Name
	p.mapping = mappingFor(o.Device.GoMemory)
	p.maxRegion, p.limit = o.Device.Limits.MRSize, limit
	p.free = newClasses(p.arenaSize)
	p.active = o.Active
	if p.active == nil {
		p.active = func() {}
	}
	if o.LateWrite != nil {
		p.pattern = &pattern{report: o.LateWrite}
	}
}

// Leases reports whether peers get an rkey for each destination (Destination.Lease) and
// none for an arena. That is so where memory windows need no command to hardware: on a
// device in software.
func (m *Memory) Leases() bool { return m.leases }

// Allocator allocates tensors that are sent without a copy. They may outlive the Memory.
func (m *Memory) Allocator() tensor.Allocator { return &m.sending }

// ReceiveAllocator allocates tensors that peers can write a content into (Account.Adopt),
// and that are sent without a copy, too. Peers have rights to the arenas of this memory
// while transfers into it are under way; to that of Allocator never.
func (m *Memory) ReceiveAllocator() tensor.Allocator { return &m.receiving }

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

// Close ends all registrations. Call it when every queue pair of the protection domain is
// destroyed. Tensors that are in use stay valid; their memory is unmapped with their last
// reference. Owners close their Slots. Idempotent.
func (m *Memory) Close() error {
	return errors.Join(m.sending.close(), m.receiving.close())
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
	Registered int64 // bytes that are registered
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
		Limit: p.limit, Registered: p.registered, Start: min(p.start, p.registered), InUse: p.inUse, Buffers: p.buffers, Arenas: int64(len(p.arenas)),
		Grown: p.grown, Exhausted: p.exhausted, Stuck: p.stuck,
	}
	for _, a := range p.arenas {
		if a.kind == hugePages {
			s.HugePages += int64(len(a.mem))
		}
		s.Absent += a.absent()
	}
	return s
}
