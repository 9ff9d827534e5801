package regmem

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
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
	largest  int    // bytes of an arena, unless a device allows less
	limit    int64  // bytes, a multiple of pageMultiple
	active   func() // Options.Active
	reserve  func(int64) (func(), error)
	giveBack func(int64) bool // Options.GiveBack; nil in the receiving pool
	pattern  *pattern         // nil: freed blocks are not watched
	closed   atomic.Bool
	log      *slog.Logger
	partial  sync.Once // the log has that a device lacks memory
	unshared sync.Once // the log has that an arena is no memfd although a device shares memory

	// growing is held while arenas are registered or deregistered, so that two
	// goroutines that find no free memory do not both register some. It is taken before
	// mu.
	growing sync.Mutex

	mu sync.Mutex
	// mu guards all fields below, and the blocks and arenas of the pool.
	arenas    []*arena        // all that are not retired
	mapped    int64           // bytes of arenas, including the one being made and retired ones that are in use
	coming    int64           // bytes of the arena that is being made
	inUse     int64           // bytes of allocated blocks
	buffers   int64           // number of allocated blocks
	grown     int64           // number of arenas registered so far
	exhausted int64           // number of allocations that were refused
	spare     []*block        // headers of merged blocks, to use again
	stuck     int64           // bytes of arenas that could not be deregistered
	ending    int             // endings under way
	leaving   map[*Domain]int // registrations that they have not ended yet
	ended     chan struct{}   // closed and replaced when one of them, or of a domain the last of these, is done
	late      error           // of endings on goroutines of their own; the next sweep returns it
}

func (b *block) buffer(n int) *tensor.Buffer {
	return tensor.NewOwnedBuffer(b.bytes()[:n], b)
}

// tooLargeLocked is the error of an allocation that the pool can never satisfy.
func (p *pool) tooLargeLocked(n int, what string, limit uint64) error {
	return status.Errorf(status.ResourceExhausted, "a tensor of %d bytes is larger than %s (%d bytes); send it in parts, or raise the setting arena-limit as far as the device allows", n, what, limit)
}

// triesAgain reports whether an allocation of n bytes that failed with err, for the time number try from 0 on, is worth
// another attempt, since users of the pool have released what they do not need. It counts the allocation as refused
// otherwise. The caller holds no locks, and may wait for memory.
func (p *pool) triesAgain(n, try int, err error) bool {
	if status.CodeOf(err) != status.ResourceExhausted { // nil too
		return false
	}
	if p.giveBack == nil || try >= maxGiveBack || int64(n) > p.limit {
		p.refused()
		return false
	}
	most := p.limit
	if try < maxGiveBack-1 {
		most = min(most, int64(n)<<(2*try))
	}
	if !p.giveBack(most) {
		p.refused()
		return false
	}
	return true
}

// refused counts an allocation that was refused.
func (p *pool) refused() {
	p.mu.Lock()
	p.exhausted++
	p.mu.Unlock()
}

// leavesEnough checks that a peer with held bytes of the pool, after it takes n more,
// leaves as much free as it has then. Content that is larger than half of the pool is
// allowed while the whole pool is free. Others are about to take staged bytes.
func (p *pool) leavesEnough(n, staged, held int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.inUse + staged
	if free := p.limit - used - n; held+n <= free || used == 0 {
		return nil
	}
	why := fmt.Sprintf("%d of %d bytes are in use", used, p.limit)
	if n <= p.limit-used {
		why += fmt.Sprintf(", %d of them by copies for this peer; that would leave other peers less than it has", held)
	}
	return status.PassingIf(n <= p.limit,
		"no room for a copy of %d bytes in the %s pool: %s; "+
			"allocate tensors with the server's allocator, which need no copy, move fewer at a time, or raise the setting arena-limit",
		n, p.name, why)
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
	var e *ending
	if !a.retired && a.used == 0 && len(a.section.members) == 0 { // no device needs it
		e = p.retireLocked(a)
	}
	if !a.retired && (a.used == 0 || a.kind == lazyPages) {
		p.active()
	}
	unmap := e == nil && p.doneLocked(a)
	p.mu.Unlock()
	if e != nil {
		_ = p.end(e) // nothing is registered
	}
	if unmap {
		a.unmap()
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
	err = p.endAll(leaving)
	p.awaitEnded()
	return errors.Join(err, p.takeLate())
}
