package regmem

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Grow says whether an allocation may register memory.
type Grow bool

const (
	// NoGrow never registers. It is for the goroutine that polls completions, which must
	// not be delayed. The allocation may fail with ErrMustGrow.
	NoGrow Grow = false
	// MayGrow registers when the pool has no free memory and is below its limit.
	MayGrow Grow = true
)

// ErrMustGrow is returned for NoGrow when the pool would have to register memory, and its
// limit allows it. Call again with MayGrow on a goroutine that may take that time.
var ErrMustGrow = errors.New("no registered memory is free; more may be registered")

// pool is a set of arenas with the same access rights.
type pool struct {
	name      string // "sending", "receiving"
	pd        verbs.PD
	access    verbs.Access
	mapping   mapping
	device    string // for errors
	arenaSize int
	maxRegion uint64
	limit     int64    // bytes, a multiple of pageMultiple
	start     int64    // bytes that sweep keeps registered while the pool is open
	active    func()   // Options.Active
	pattern   *pattern // nil: freed blocks are not watched
	closed    atomic.Bool

	// growing is held while arenas are registered or deregistered, so that two
	// goroutines that find no free memory do not both register some. It is taken before
	// mu.
	growing sync.Mutex

	mu sync.Mutex
	// mu guards all fields below, and the blocks and arenas of the pool.
	free       classes  // the free blocks of ordinary arenas
	arenas     []*arena // all registered arenas
	registered int64    // bytes of arenas, including the one being made
	inUse      int64    // bytes of allocated blocks
	buffers    int64    // number of allocated blocks
	grown      int64    // number of arenas registered so far
	exhausted  int64    // number of allocations that failed
	refused    error    // why the device refused to register; tried again after the next sweep
	refusal    int      // bytes of the smallest region that the device refused
	spare      []*block // headers of merged blocks, to use again
	stuck      int64    // bytes of arenas that could not be deregistered
}

// Allocate implements tensor.Allocator. It may register memory.
func (p *pool) Allocate(n int) (*tensor.Buffer, error) {
	if n == 0 {
		return tensor.NewBuffer(nil, nil), nil
	}
	b, err := p.take(n, MayGrow)
	if err != nil {
		return nil, err
	}
	return b.buffer(n), nil
}

func (b *block) buffer(n int) *tensor.Buffer {
	return tensor.NewOwnedBuffer(b.bytes()[:n], b)
}

// sizeOf returns how many bytes of an arena an allocation of n takes, and whether it needs
// an arena of its own.
func (p *pool) sizeOf(n int) (size int, own bool) {
	if n > p.arenaSize {
		return (n + pageMultiple - 1) / pageMultiple * pageMultiple, true
	}
	return classSize(ceilClass(n)), false
}

// take allocates a block of at least n bytes, n ≥ 1.
func (p *pool) take(n int, grow Grow) (*block, error) {
	switch {
	case n <= 0:
		return nil, status.Errorf(status.InvalidArgument, "cannot allocate %d bytes of registered memory", n)
	case int64(n) > p.limit:
		return nil, p.tooLargeError(n, "the limit of the "+p.name+" pool", uint64(p.limit))
	case uint64(n) > p.maxRegion:
		return nil, p.tooLargeError(n, "the largest memory region", p.maxRegion)
	}
	size, own := p.sizeOf(n)
	b, err := p.takeFree(n, size, own)
	if err == nil || grow == NoGrow || !errors.Is(err, ErrMustGrow) {
		return b, err
	}

	p.growing.Lock()
	defer p.growing.Unlock()
	// Another goroutine may have registered memory meanwhile.
	if b, err = p.takeFree(n, size, own); err == nil || !errors.Is(err, ErrMustGrow) {
		return b, err
	}
	return p.grow(n, size, own)
}

// tooLargeError is the error of an allocation that the pool can never satisfy.
func (p *pool) tooLargeError(n int, what string, limit uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exhausted++
	return status.Errorf(status.ResourceExhausted, "a tensor of %d bytes is larger than %s of %s (%d bytes); send it in parts, or raise the setting arena-limit as far as the device allows", n, what, p.device, limit)
}

// fullErrorLocked is the error of a pool that is at its limit.
func (p *pool) fullErrorLocked(n int) error {
	p.exhausted++
	return status.Errorf(status.ResourceExhausted,
		"no room for %d bytes in the %s pool of %s: %d bytes are in use and its limit is %d; release tensors sooner, move fewer at a time, or raise the setting arena-limit",
		n, p.name, p.device, p.inUse, p.limit)
}

// leavesEnough checks that a peer with held bytes of the pool, after it takes n more,
// leaves as much free as it has then. Content that is larger than half of the pool is
// allowed while the whole pool is free.
func (p *pool) leavesEnough(n int, held int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if free := p.limit - p.inUse - int64(n); held+int64(n) <= free || p.inUse == 0 {
		return nil
	}
	p.exhausted++
	return status.Errorf(status.ResourceExhausted,
		"no room for a copy of %d bytes in the %s pool of %s: it would leave other peers less than this peer has (%d bytes of copies; %d of %d bytes are in use); "+
			"allocate tensors with the server's allocator, which need no copy, move fewer at a time, or raise the setting arena-limit",
		n, p.name, p.device, held, p.inUse, p.limit)
}

// takeFree is take without registering. It returns ErrMustGrow when registering could
// help.
func (p *pool) takeFree(n, size int, own bool) (*block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return nil, status.Errorf(status.Unavailable, "the %s pool of %s: %w", p.name, p.device, verbs.ErrClosed)
	}
	if b := p.freeLocked(size, own); b != nil {
		p.handOutLocked(b, size)
		return b, nil
	}
	if p.idleLocked() < int64(size)-(p.limit-p.registered) {
		return nil, p.fullErrorLocked(n)
	}
	if p.refused != nil && p.growthLocked(size, own) >= p.refusal { // less may still be registered
		p.exhausted++
		return nil, p.refused
	}
	return nil, ErrMustGrow
}

// freeLocked finds a free block for size bytes, or nil.
func (p *pool) freeLocked(size int, own bool) *block {
	if !own {
		return p.free.find(ceilClass(size))
	}
	var best *arena
	for _, a := range p.arenas {
		if a.own && a.used == 0 && len(a.mem) >= size && len(a.mem) <= size+size/ownWaste &&
			(best == nil || len(a.mem) < len(best.mem)) {
			best = a
		}
	}
	if best == nil {
		return nil
	}
	return best.first
}

// idleLocked is how many bytes could be deregistered to make space for others. The arenas
// of the start count too, as new ones replace them.
func (p *pool) idleLocked() (n int64) {
	for _, a := range p.arenas {
		if a.used == 0 {
			n += int64(len(a.mem))
		}
	}
	return n
}

// handOutLocked allocates the first size bytes of the free block b.
func (p *pool) handOutLocked(b *block, size int) {
	a := b.arena
	if !a.own {
		p.free.drop(b)
		if rest := b.size - size; rest > 0 {
			r := p.headerLocked()
			*r = block{arena: a, off: b.off + size, size: rest, below: b, above: b.above, touched: b.touched}
			if r.above != nil {
				r.above.below = r
			}
			b.above, b.size = r, size
			p.free.put(r)
		}
	}
	b.out = true
	a.used += b.size
	a.idleSince, a.quietSince = time.Time{}, time.Time{}
	p.inUse += int64(b.size)
	p.buffers++
	p.pattern.handOut(p, b)
}

// reclaim frees a block and merges it with its free neighbours.
func (p *pool) reclaim(b *block) {
	p.mu.Lock()
	p.pattern.release(b)
	a := b.arena
	b.out, b.touched = false, true
	a.used -= b.size
	a.touched, a.quietSince = true, time.Time{}
	p.inUse -= int64(b.size)
	p.buffers--
	if b.account != nil {
		b.account.dropLocked(b)
	}
	switch {
	case a.state == goneArena:
		if a.used == 0 {
			p.mu.Unlock()
			unmapMemory(a.mem, a.kind)
			return
		}
	case a.state == liveArena && !a.own:
		if l := b.below; l != nil && !l.out {
			p.free.drop(l)
			p.mergeLocked(l, b)
			b = l
		}
		if h := b.above; h != nil && !h.out {
			p.free.drop(h)
			p.mergeLocked(b, h)
		}
		p.free.put(b)
	}
	if a.state == liveArena && (a.used == 0 || a.kind == lazyPages) {
		p.active()
	}
	p.mu.Unlock()
}

// mergeLocked merges high into low. Neither is in a list.
func (p *pool) mergeLocked(low, high *block) {
	low.size += high.size
	low.touched = low.touched || high.touched
	low.above = high.above
	if low.above != nil {
		low.above.below = low
	}
	*high = block{}
	p.spare = append(p.spare, high)
}

func (p *pool) headerLocked() *block {
	n := len(p.spare)
	if n == 0 {
		return new(block)
	}
	b := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return b
}

// grow registers an arena of at least size bytes and allocates size of them, nothing if
// size is 0. It first deregisters idle arenas as far as the limit requires. The caller
// holds growing.
func (p *pool) grow(n, size int, own bool) (*block, error) {
	p.mu.Lock()
	leaving := p.leavingLocked(int64(size))
	room := p.limit - p.registered
	if int64(size) > room { // idle arenas are in use again meanwhile
		err := p.fullErrorLocked(n)
		p.mu.Unlock()
		return nil, errors.Join(err, p.endAll(leaving))
	}
	total := p.growthLocked(size, own)
	p.registered += int64(total)
	p.mu.Unlock()

	err := p.endAll(leaving)
	var a *arena
	if err == nil {
		a, err = newArena(p, total)
	}
	if err != nil {
		return nil, p.growFailed(total, p.registerError(total, err))
	}
	a.own = own

	p.mu.Lock()
	defer p.mu.Unlock()
	p.grown++
	p.arenas = append(p.arenas, a)
	a.first = p.headerLocked()
	*a.first = block{arena: a, size: total}
	if !own {
		p.free.put(a.first)
	}
	if size == 0 {
		return nil, nil
	}
	p.handOutLocked(a.first, size)
	return a.first, nil
}

// growthLocked is how many bytes grow registers for size. It may be more after grow has
// deregistered idle arenas.
func (p *pool) growthLocked(size int, own bool) int {
	if own {
		return size
	}
	return int(min(int64(p.arenaSize), max(p.limit-p.registered, int64(size)))) // the last arena below the limit is smaller
}

// growFailed undoes the reservation of bytes that could not be registered.
func (p *pool) growFailed(bytes int, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registered -= int64(bytes)
	p.exhausted++
	if p.refused == nil || bytes < p.refusal {
		p.refused, p.refusal = err, bytes
	}
	p.active()
	return err
}

// leavingLocked removes idle arenas from the pool until need more bytes are within the
// limit, or none is idle.
func (p *pool) leavingLocked(need int64) (leaving []*arena) {
	if need <= p.limit-p.registered {
		return nil
	}
	var idle []*arena
	for _, a := range p.arenas {
		if a.used == 0 {
			idle = append(idle, a)
		}
	}
	slices.SortStableFunc(idle, idleLonger)
	for _, a := range idle {
		if need <= p.limit-p.registered {
			break
		}
		p.removeLocked(a)
		leaving = append(leaving, a)
	}
	return leaving
}

// removeLocked removes an idle arena from the pool.
func (p *pool) removeLocked(a *arena) {
	if !a.own {
		p.free.drop(a.first)
	}
	i := slices.Index(p.arenas, a)
	p.arenas = slices.Delete(p.arenas, i, i+1)
	p.registered -= int64(len(a.mem))
}

// endAll deregisters and unmaps arenas that removeLocked removed. Memory that cannot be
// deregistered stays mapped, since the device may still write to it.
func (p *pool) endAll(arenas []*arena) (err error) {
	for _, a := range arenas {
		if e := p.deregister(a); e != nil {
			err = errors.Join(err, e)
			continue
		}
		unmapMemory(a.mem, a.kind)
	}
	return err
}

// deregister ends an arena's registration. If that fails, the memory must stay mapped,
// and PoolStats.Stuck counts it.
func (p *pool) deregister(a *arena) error {
	err := a.mr.Close()
	if err == nil || errors.Is(err, verbs.ErrDeviceGone) { // a device that is gone does not write
		return nil
	}
	p.mu.Lock()
	p.stuck += int64(len(a.mem))
	p.mu.Unlock()
	return fmt.Errorf("%d bytes of the %s pool stay registered: %w", len(a.mem), p.name, err)
}

// prepare registers ordinary arenas until the pool has bytes, rounded up to whole arenas
// within the limit. Sweep keeps them.
func (p *pool) prepare(bytes int64) error {
	p.growing.Lock()
	defer p.growing.Unlock()
	for {
		p.mu.Lock()
		done := p.closed.Load() || p.registered >= min(bytes, p.limit)
		p.mu.Unlock()
		if done {
			return nil
		}
		if _, err := p.grow(0, 0, false); err != nil {
			return err
		}
		p.mu.Lock()
		p.start = p.registered
		p.mu.Unlock()
	}
}

// close ends all registrations. Memory that is in use is unmapped with its last
// reference.
func (p *pool) close() (err error) {
	p.growing.Lock()
	defer p.growing.Unlock()
	p.mu.Lock()
	arenas := p.arenas
	p.arenas, p.registered = nil, 0
	p.free = classes{}
	for _, a := range arenas {
		a.state = leavingArena
	}
	p.mu.Unlock()
	p.closed.Store(true)
	for _, a := range arenas {
		if e := p.deregister(a); e != nil {
			err = errors.Join(err, e)
			continue
		}
		p.mu.Lock()
		a.state = goneArena
		empty := a.used == 0
		p.mu.Unlock()
		if empty {
			unmapMemory(a.mem, a.kind)
		}
	}
	return err
}
