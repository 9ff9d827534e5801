package tensor

import (
	"cmp"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/idle"
	"github.com/tryst-rdma/tryst/status"
)

// DefaultKeep is the default of PoolOptions.Keep, in bytes: enough for four
// transfers of 64 MiB at a time.
const DefaultKeep = 256 << 20

const (
	// keepParts is the fraction of the kept bytes that one block may take: a
	// block above a quarter is freed at its release. One rare large tensor
	// would otherwise evict all blocks that are used often.
	keepParts = 4

	// offHeapSize is the size in bytes from which a block is mapped from the
	// operating system, and unmapped when it is freed. Large blocks on the Go
	// heap would stay until the next garbage collection and raise the peak.
	// For small blocks a mapping costs more than it saves.
	offHeapSize = 1 << 20

	// pageMultiple is the unit, in bytes, of the sizes of blocks that are not
	// kept: whole pages on every machine (pages have up to 64 KiB on
	// linux/arm64).
	pageMultiple = 64 << 10
)

// PoolOptions are the bounds of a Pool.
type PoolOptions struct {
	// Limit is the maximum of the bytes allocated, kept and reserved; 0 means
	// no limit. It counts the sizes of the blocks (Stats), which are up to
	// 6.25 % above the requested sizes.
	Limit int64
	// Keep is the maximum of the released bytes that are kept for reuse; 0
	// means DefaultKeep, a negative number that nothing is kept. A block
	// larger than a quarter of Keep is never kept.
	Keep int64
	// Idle is how long a kept block may be unused before it is freed, at most twice as
	// long; 0 means DefaultIdle. With a negative number kept blocks stay.
	Idle time.Duration
	// Advice says in errors how to raise the limit; "raise the limit" when empty.
	Advice string
	// Refused, when not nil, is called with each error of the limit. It must not block.
	Refused func(error)
	// OffHeap, when not nil, is called with each change of the bytes of blocks that are not on the Go heap. It
	// must not block.
	OffHeap func(delta int64)
}

// DefaultIdle is the default of PoolOptions.Idle.
const DefaultIdle = idle.DefaultTime

// Pool is an Allocator that reuses released memory, for the destinations of
// transfers and for reading files. The first access to new memory costs a page
// fault and a clearing of every page, often more than the copy into it.
//
// A Pool has blocks of fixed sizes, with a list and a lock for each size. Reused
// memory is not cleared. Large blocks are not on the Go heap: a tensor that is not
// released leaks its memory, and an access through a slice after the release may
// fault.
//
// A kept block is freed when newer blocks take its place, when the limit requires
// it, when nothing has used it for PoolOptions.Idle, or by Trim.
type Pool struct {
	limit   int64
	keep    int64
	advice  string
	refused func(error)
	mapped  func(int64)
	owner   Owner       // a poolOwner, converted once and not for each Buffer
	classes []class     // the sizes that are kept, ascending
	timer   *idle.Timer // frees kept blocks that are not used; nil when they stay

	held  atomic.Int64  // bytes of all blocks, allocated, kept or between the two, and reserved bytes; at most limit
	kept  atomic.Int64  // bytes of the blocks in classes; at most keep
	out   atomic.Int64  // number of allocated blocks
	used  atomic.Int64  // bytes of the allocated blocks and of those being allocated, and reserved bytes; at most held
	sweep atomic.Uint32 // the class at which evict continues
}

// NewPool returns an empty pool.
func NewPool(o PoolOptions) *Pool {
	p := &Pool{limit: o.Limit, keep: o.Keep, advice: cmp.Or(o.Advice, "raise the limit"), refused: o.Refused, mapped: o.OffHeap}
	if p.limit <= 0 {
		p.limit = math.MaxInt64
	}
	switch {
	case p.keep == 0:
		p.keep = DefaultKeep
	case p.keep < 0:
		p.keep = 0
	}
	p.keep = min(p.keep, p.limit)
	if largest := min(p.keep/keepParts, math.MaxInt/4); largest >= classStep {
		n := classOf(int(largest))
		if classSize(n) <= int(largest) {
			n++
		}
		p.classes = make([]class, n)
	}
	p.owner = poolOwner{p}
	if o.Idle >= 0 && len(p.classes) > 0 {
		if o.Idle == 0 {
			o.Idle = DefaultIdle
		}
		p.timer = idle.NewTimer(o.Idle, p.freeIdle)
	}
	return p
}

// Allocate implements Allocator. Reused memory has the content of its last user.
func (p *Pool) Allocate(n int) (*Buffer, error) {
	// Headers are not reused: a reused header could not tell a late call by its
	// last user from a call by the new one.
	b := new(Buffer)
	if err := p.allocate(b, n); err != nil {
		return nil, err
	}
	return b, nil
}

// allocate is Allocate into a new header.
func (p *Pool) allocate(b *Buffer, n int) error {
	if err := checkSize(n); err != nil {
		return err
	}
	if n == 0 {
		b.init(nil, nil)
		return nil
	}
	block, err := p.take(n)
	if err != nil {
		return err
	}
	p.out.Add(1)
	b.init(block[:n], p.owner)
	return nil
}

// take returns a kept block for n bytes, or a new one.
func (p *Pool) take(n int) ([]byte, error) {
	size, i := n, classOf(n)
	if i < len(p.classes) {
		size = classSize(i)
	} else if n >= offHeapSize {
		size = (n + pageMultiple - 1) / pageMultiple * pageMultiple
	}
	for again := false; ; again = true {
		if i < len(p.classes) {
			if block := p.classes[i].pop(again); block != nil {
				p.kept.Add(-int64(size))
				p.used.Add(int64(size))
				return block, nil
			}
		}
		if addWithin(&p.held, int64(size), p.limit) {
			break
		}
		if int64(size) > p.limit-p.used.Load() {
			return nil, p.exhausted(int64(n), int64(size))
		}
		if !p.evict(int64(size)) {
			// Enough bytes are unused, but not in classes yet: another
			// goroutine is about to keep or to free them, without blocking.
			runtime.Gosched()
		}
	}
	p.used.Add(int64(size))
	block, err := newBlock(size)
	if err != nil {
		p.used.Add(-int64(size))
		p.held.Add(-int64(size))
		return nil, status.Errorf(status.ResourceExhausted,
			"cannot allocate %d bytes: the system is out of memory (the pool has %d bytes in use): %w",
			n, p.used.Load(), err)
	}
	p.moved(block, int64(size))
	return block, nil
}

// Reserve implements Reserver. It frees kept blocks when the limit requires it.
func (p *Pool) Reserve(n int64) (*Buffer, error) {
	switch {
	case n < 0:
		return nil, status.Errorf(status.InvalidArgument, "cannot reserve %d bytes", n)
	case n == 0:
		return NewBuffer(nil, nil), nil
	}
	for !addWithin(&p.held, n, p.limit) {
		if n > p.limit-p.used.Load() {
			return nil, p.exhausted(n, n)
		}
		if !p.evict(n) {
			runtime.Gosched() // as in take
		}
	}
	p.used.Add(n)
	return NewOwnedBuffer(nil, reservation{p, n}), nil
}

// reservation is the owner of a buffer without memory, which counts reserved
// bytes.
type reservation struct {
	pool  *Pool
	bytes int64
}

// Reclaim implements Owner.
func (r reservation) Reclaim([]byte) {
	r.pool.used.Add(-r.bytes)
	r.pool.held.Add(-r.bytes)
}

// ReclaimsPromptly implements PromptOwner.
func (reservation) ReclaimsPromptly() {}

// exhausted returns the error of the limit for n bytes, which take size. It passes when others release, unless size is
// beyond the limit.
func (p *Pool) exhausted(n, size int64) error {
	err := status.PassingIf(size <= p.limit,
		"cannot allocate %d bytes: %d bytes are in use and the pool's limit is %d; release tensors sooner, move fewer at a time, or %s",
		n, p.used.Load(), p.limit, p.advice)
	if p.refused != nil {
		p.refused(err)
	}
	return err
}

// moved reports a block that was made, or freed with a negative n.
func (p *Pool) moved(block []byte, n int64) {
	if p.mapped != nil && offHeap && cap(block) >= offHeapSize {
		p.mapped(n)
	}
}

// poolOwner is the owner of a pool's blocks. Its methods are not Pool's, so that
// they are not part of Pool's interface.
type poolOwner struct{ pool *Pool }

// Reclaim implements Owner.
func (o poolOwner) Reclaim(data []byte) { o.pool.put(data) }

// ReclaimsPromptly implements PromptOwner.
func (poolOwner) ReclaimsPromptly() {}

// OffHeap implements OffHeapOwner.
func (poolOwner) OffHeap(data []byte) bool { return offHeap && cap(data) >= offHeapSize }

// put takes back the memory of a Buffer.
func (p *Pool) put(data []byte) {
	block := data[:cap(data)]
	size := int64(len(block))
	p.out.Add(-1)
	p.used.Add(-size)
	i := classOf(len(block))
	if i >= len(p.classes) {
		p.drop(block)
		return
	}
	for !addWithin(&p.kept, size, p.keep) {
		// Blocks are reused in last-in, first-out order, so the oldest are evicted.
		if !p.evict(size) {
			p.drop(block)
			return
		}
	}
	p.classes[i].push(block)
	if p.timer != nil {
		p.timer.Start()
	}
}

// drop frees a block.
func (p *Pool) drop(block []byte) {
	p.moved(block, -int64(len(block)))
	freeBlock(block)
	p.held.Add(-int64(len(block)))
}

// evict frees kept blocks until need bytes are free or nothing is kept. It
// continues with the class after the last one that it visited, and reports
// whether it freed any block.
func (p *Pool) evict(need int64) bool {
	var freed int64
	for range p.classes {
		c := &p.classes[int(p.sweep.Add(1))%len(p.classes)]
		for _, block := range c.popBytes(need - freed) {
			freed += int64(len(block))
			p.kept.Add(-int64(len(block)))
			p.drop(block)
		}
		if freed >= need {
			break
		}
	}
	return freed > 0
}

// freeIdle frees the blocks that nothing has used since the last call, and reports whether
// others are kept.
func (p *Pool) freeIdle(time.Duration) (more bool) {
	for i := range p.classes {
		for _, block := range p.classes[i].popIdle() {
			p.kept.Add(-int64(len(block)))
			p.drop(block)
		}
	}
	return p.kept.Load() > 0
}

// Trim frees all kept memory at once.
func (p *Pool) Trim() {
	for p.evict(math.MaxInt64) {
	}
}

// PoolStats are the counters of a Pool. They are read one by one while the pool
// is in use, so they may not add up exactly.
type PoolStats struct {
	InUse   int64 // bytes of the allocated blocks, and reserved bytes
	Buffers int64 // number of allocated blocks
	Kept    int64 // bytes of the blocks kept for reuse
	Limit   int64 // maximum of InUse + Kept; 0 without a limit
	// Classes are the block sizes that were allocated at least once, ascending.
	Classes []ClassStats
}

// ClassStats are the counters of a Pool for blocks of one size.
type ClassStats struct {
	Size   int   // bytes
	Kept   int   // number of blocks kept
	Hits   int64 // allocations that reused a kept block
	Misses int64 // allocations that found no kept block
}

// Stats returns the pool's present counters.
func (p *Pool) Stats() PoolStats {
	s := PoolStats{InUse: p.used.Load(), Buffers: p.out.Load(), Kept: p.kept.Load(), Limit: p.limit}
	if s.Limit == math.MaxInt64 {
		s.Limit = 0
	}
	for i := range p.classes {
		if c := p.classes[i].stats(); c.Hits+c.Misses > 0 {
			c.Size = classSize(i)
			s.Classes = append(s.Classes, c)
		}
	}
	return s
}

// addWithin adds n to v unless the sum would exceed limit, and reports whether it
// added.
func addWithin(v *atomic.Int64, n, limit int64) bool {
	for {
		old := v.Load()
		if n > limit-old {
			return false
		}
		if v.CompareAndSwap(old, old+n) {
			return true
		}
	}
}
