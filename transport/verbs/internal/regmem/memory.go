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
	// Device is what the memory is registered with.
	Device verbs.DeviceInfo
	// Arena is the size of an arena in bytes; 0 means DefaultArena. At least
	// MinArena, at most the smaller pool; rounded up to a size class, or down
	// where that is more than the pool, or than the device can register as one.
	Arena int64
	// SendLimit and RecvLimit are the most bytes that the pools register; 0
	// means DefaultLimit. At least MinArena; rounded down to whole pages.
	SendLimit, RecvLimit int64
	// Start is how many bytes each pool registers in New and keeps registered
	// when they are idle, unless its limit needs them for a tensor larger than
	// an arena; rounded up to whole arenas. 0 means one arena, negative none.
	Start int64
	// Idle is how long an arena beyond Start is kept without use; 0 means
	// DefaultIdle.
	Idle time.Duration
	// LateWrite, when not nil, watches memory that nobody has: it is filled
	// with a pattern, and looked at when it is handed out again. It is called
	// with a pool's lock held. For tests: it touches every byte.
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

	staging sync.Mutex // one copy at a time is counted in a Share; taken before the sending pool's locks

	// Guarded by the receiving pool's lock, with all that is in an Account.
	accounts        map[*Account]struct{}
	early           int64 // bytes
	quarantined     int64
	quarantineCount int64
}

// New returns the memory of pd, with what Options.Start says registered. The
// caller closes it before pd. Errors: InvalidArgument for options,
// ResourceExhausted when the start cannot be registered (with verbs.ErrMemlock and
// the number to raise when that is why).
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

// fill replaces zeros by defaults and checks.
func (o *Options) fill() error {
	if o.Arena == 0 {
		o.Arena = DefaultArena
	}
	for _, limit := range []*int64{&o.SendLimit, &o.RecvLimit} {
		if *limit == 0 {
			*limit = DefaultLimit
		}
		if *limit < MinArena || *limit > math.MaxInt-DefaultArena {
			return status.Errorf(status.InvalidArgument, "a pool of registered memory cannot have %d bytes: %d at least", *limit, MinArena)
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
	// Arenas, also those of one tensor, and slots are whole pages.
	limit := o.Device.Limits.MRSize / pageMultiple * pageMultiple
	if limit == 0 {
		return status.Errorf(status.InvalidArgument, "%s registers regions of %d bytes at most, and memory comes in pieces of %d; use another device",
			o.Device.Name, o.Device.Limits.MRSize, pageMultiple)
	}
	o.Device.Limits.MRSize = limit
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	return nil
}

func (p *pool) setUp(m *Memory, name string, access verbs.Access, limit int64, o Options) {
	// A size class: else what takes a whole arena is of a class above that of the
	// arena when it is free, and is not found again.
	most := int(min(uint64(limit), o.Device.Limits.MRSize))
	p.arenaSize = classSize(min(ceilClass(int(o.Arena)), floorClass(most)))
	p.name, p.pd, p.access, p.device = name, m.pd, access, o.Device.Name
	p.mapping = mappingFor(o.Device.GoMemory)
	p.maxRegion, p.limit = o.Device.Limits.MRSize, limit
	p.free = newClasses(p.arenaSize)
	if o.LateWrite != nil {
		p.pattern = &pattern{report: o.LateWrite}
	}
}

// Leases reports whether peers get a key for each destination (Destination.Lease)
// and none of an arena: where windows are made without a word to a device, as those
// of a device in software.
func (m *Memory) Leases() bool { return m.leases }

// Allocator makes tensors that go out without a copy. They may outlive the
// Memory.
func (m *Memory) Allocator() tensor.Allocator { return &m.sending }

// Sweep gives back to the system what has been idle, and lets the pools try again
// what the device has refused. It is to be called every few seconds, by a goroutine that
// does not poll: giving back takes time. The error tells what the device did not let go
// of; that memory stays.
func (m *Memory) Sweep(now time.Time) error {
	return errors.Join(m.sending.sweep(now, m.idle), m.receiving.sweep(now, m.idle))
}

// Close ends all registrations, when every queue pair of the domain is destroyed.
// Tensors that are still in use stay valid; their memory goes back to the system
// with their last reference. Slots are closed by their owners. Idempotent.
func (m *Memory) Close() error {
	return errors.Join(m.sending.close(), m.receiving.close())
}

// Stats is what a Memory has and did.
type Stats struct {
	Sending, Receiving PoolStats
	// Early and Quarantined are bytes of the receiving pool: given out in
	// advance; and held for peers that may still write, though the receive has
	// ended. Quarantine is the number of blocks there and Oldest the age of the
	// oldest.
	Early       int64
	Quarantined int64
	Quarantine  int64
	Oldest      time.Duration
	// Copies of tensors that did not lie in registered memory.
	Copies      int64
	CopiedBytes int64
	// Slots are bytes registered for control messages.
	Slots int64
}

// PoolStats is what a pool has and did.
type PoolStats struct {
	Limit      int64 // bytes that may be registered
	Registered int64 // bytes that are
	InUse      int64 // bytes of the blocks handed out
	Buffers    int64 // number of them
	Arenas     int64
	HugePages  int64 // bytes registered in the system's huge pages
	Grown      int64 // how often memory was registered
	Exhausted  int64 // how often there was none
	Stuck      int64 // bytes that the device did not let go of
}

// Stats returns what the memory has at the moment.
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
		Limit: p.limit, Registered: p.registered, InUse: p.inUse, Buffers: p.buffers, Arenas: int64(len(p.arenas)),
		Grown: p.grown, Exhausted: p.exhausted, Stuck: p.stuck,
	}
	for _, a := range p.arenas {
		if a.kind == hugePages {
			s.HugePages += int64(len(a.mem))
		}
	}
	return s
}
