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

// pool is a set of arenas with one limit.
type pool struct {
	name     string // "sending", "receiving"
	sections []*section
	largest  int      // bytes of an arena, unless a device allows less
	limit    int64    // bytes, a multiple of pageMultiple
	active   func()   // Options.Active
	pattern  *pattern // nil: freed blocks are not watched
	closed   atomic.Bool

	// growing is held while arenas are registered or deregistered, so that two
	// goroutines that find no free memory do not both register some. It is taken before
	// mu.
	growing sync.Mutex

	mu sync.Mutex
	// mu guards all fields below, and the blocks and arenas of the pool.
	arenas    []*arena // all that are not retired
	mapped    int64    // bytes of arenas, including the one being made and retired ones that are in use
	inUse     int64    // bytes of allocated blocks
	buffers   int64    // number of allocated blocks
	grown     int64    // number of arenas registered so far
	exhausted int64    // number of allocations that failed
	spare     []*block // headers of merged blocks, to use again
	stuck     int64    // bytes of arenas that could not be deregistered
}

func (b *block) buffer(n int) *tensor.Buffer {
	return tensor.NewOwnedBuffer(b.bytes()[:n], b)
}

// tooLargeLocked is the error of an allocation that the pool can never satisfy.
func (p *pool) tooLargeLocked(n int, what string, limit uint64) error {
	p.exhausted++
	return status.Errorf(status.ResourceExhausted, "a tensor of %d bytes is larger than %s (%d bytes); send it in parts, or raise the setting arena-limit as far as the device allows", n, what, limit)
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
		"no room for a copy of %d bytes in the %s pool: it would leave other peers less than this peer has (%d bytes of copies; %d of %d bytes are in use); "+
			"allocate tensors with the server's allocator, which need no copy, move fewer at a time, or raise the setting arena-limit",
		n, p.name, held, p.inUse, p.limit)
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
	if free := &a.section.free; !a.own {
		free.drop(b)
		if rest := b.size - size; rest > 0 {
			r := p.headerLocked()
			*r = block{arena: a, off: b.off + size, size: rest, below: b, above: b.above, touched: b.touched}
			if r.above != nil {
				r.above.below = r
			}
			b.above, b.size = r, size
			free.put(r)
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
	if !a.retired && !a.own {
		free := &a.section.free
		if l := b.below; l != nil && !l.out {
			free.drop(l)
			p.mergeLocked(l, b)
			b = l
		}
		if h := b.above; h != nil && !h.out {
			free.drop(h)
			p.mergeLocked(b, h)
		}
		free.put(b)
	}
	if !a.retired && a.used == 0 && len(a.section.members) == 0 { // no device needs it
		p.retireLocked(a)
	}
	if !a.retired && (a.used == 0 || a.kind == lazyPages) {
		p.active()
	}
	unmap := p.doneLocked(a)
	p.mu.Unlock()
	if unmap {
		unmapMemory(a.mem, a.kind)
	}
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

// leavingLocked retires idle arenas of the pool until need more bytes are within the limit, or
// none is idle.
func (p *pool) leavingLocked(need int64) (leaving []*ending) {
	room := p.limit - p.mapped
	if need <= room {
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
		if need <= room {
			break
		}
		room += int64(len(a.mem))
		leaving = append(leaving, p.retireLocked(a))
	}
	return leaving
}

// ending is registrations of an arena that have to be ended.
type ending struct {
	arena *arena
	gone  []*region
}

func endingLocked(a *arena, d *Domain) *ending { return &ending{a, a.takeRegionsLocked(d)} }

// retireLocked removes an arena from the pool. The caller ends its registrations (endAll). It is
// unmapped when its last block is free.
func (p *pool) retireLocked(a *arena) *ending {
	a.retired = true
	for b := a.first; b != nil && !a.own; b = b.above {
		if !b.out {
			a.section.free.drop(b)
		}
	}
	i := slices.Index(p.arenas, a)
	p.arenas = slices.Delete(p.arenas, i, i+1)
	return endingLocked(a, nil)
}

// endAll ends registrations, and unmaps memory that nothing uses. Memory that cannot be deregistered
// stays mapped, since the device may still write to it; PoolStats.Stuck counts it. Called without mu.
func (p *pool) endAll(endings []*ending) (err error) {
	for _, e := range endings {
		err = errors.Join(err, p.end(e))
	}
	return err
}

func (p *pool) end(e *ending) error {
	var failed error
	for _, r := range e.gone {
		if err := r.mr.Close(); err != nil && !errors.Is(err, verbs.ErrDeviceGone) { // a device that is gone does not write
			failed = errors.Join(failed, fmt.Errorf("%d bytes of the %s pool stay registered with %s: %w", len(e.arena.mem), p.name, r.domain.device.Name, err))
		}
	}
	a := e.arena
	p.mu.Lock()
	a.closing -= len(e.gone)
	var others *ending
	if failed != nil && !a.stuck {
		a.stuck = true
		p.stuck += int64(len(a.mem))
		p.mapped -= int64(len(a.mem))
		if !a.retired { // the device may write to memory that is allocated again
			others = p.retireLocked(a)
		}
	}
	unmap := p.doneLocked(a)
	p.mu.Unlock()
	if unmap {
		unmapMemory(a.mem, a.kind)
	}
	if others != nil {
		return errors.Join(failed, p.end(others))
	}
	return failed
}

// doneLocked reports whether the caller has to unmap an arena.
func (p *pool) doneLocked(a *arena) bool {
	if !a.retired || a.used > 0 || a.closing > 0 || a.stuck || a.unmapped {
		return false
	}
	a.unmapped = true
	p.mapped -= int64(len(a.mem))
	return true
}

// close ends all registrations. Memory that is in use is unmapped with its last reference.
func (p *pool) close() (err error) {
	p.growing.Lock()
	defer p.growing.Unlock()
	p.closed.Store(true)
	p.mu.Lock()
	var leaving []*ending
	for _, a := range slices.Clone(p.arenas) {
		leaving = append(leaving, p.retireLocked(a))
	}
	p.mu.Unlock()
	return p.endAll(leaving)
}
