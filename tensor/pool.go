package tensor

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
)

// DefaultKeep is how many bytes a Pool keeps for reuse when its options do not
// say: enough for four transfers of 64 MiB under way, little beside the
// memory of a machine that moves tensors.
const DefaultKeep = 256 << 20

const (
	// A block that takes more than this part of what may be kept is given
	// back at once: one rare large tensor must not push out everything that
	// is used again.
	keepParts = 4

	// offHeapSize is the size from which blocks are mapped from the operating
	// system and unmapped when they are given back. On the Go heap the blocks
	// that wait for the next garbage collection would add to the peak; below
	// this size that is little, and a mapping costs more than it saves.
	offHeapSize = 1 << 20

	// Blocks that will not be kept are rounded up to this: whole pages on
	// every machine (16 KiB on darwin/arm64, up to 64 KiB on linux/arm64).
	pageMultiple = 64 << 10
)

// PoolOptions are the bounds of a Pool.
type PoolOptions struct {
	// Limit is the most bytes that the pool has at a time, handed out, kept and
	// reserved together; 0 means no limit. What counts is the size of the blocks
	// (Stats), up to 6.25 % above what was asked for.
	Limit int64
	// Keep is the most bytes that are kept for reuse after their release; 0
	// means DefaultKeep, a negative number that nothing is kept. A block
	// larger than a quarter of it is never kept.
	Keep int64
}

// Pool is an Allocator that keeps released memory for whoever asks next, for
// the destinations of transfers and the reading of files: new memory costs a
// page fault and a clearing of every page, often more than the copy into it.
//
// Memory comes in blocks of fixed sizes, each with a list of its own, so that
// callers who want different sizes do not meet at a lock. Memory that is used
// again is not cleared. Large blocks are not Go heap memory: a tensor that
// was never released is never collected, and reading a slice of it after its
// release may fault.
//
// What is kept stays until somebody uses it, newer blocks push it out, the
// limit needs it or Trim is called.
type Pool struct {
	limit   int64
	keep    int64
	owner   Owner   // p.put as a value, made once and not for each Buffer
	classes []class // the sizes that are kept, ascending

	held  atomic.Int64  // bytes of all blocks, handed out, kept and on their way between, and reserved bytes; at most limit
	kept  atomic.Int64  // bytes of the blocks in classes; at most keep
	out   atomic.Int64  // number of blocks handed out
	used  atomic.Int64  // bytes of them, of the block being made for an Allocate, and reserved bytes; at most held
	sweep atomic.Uint32 // where evict goes on
}

// NewPool returns an empty pool.
func NewPool(o PoolOptions) *Pool {
	p := &Pool{limit: o.Limit, keep: o.Keep}
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
	return p
}

// Allocate implements Allocator. The content is what the last owner left.
func (p *Pool) Allocate(n int) (*Buffer, error) {
	// The header is new each time (48 bytes, some 60 ns): a used one could not
	// tell a late call of its last owner from a call of its new owner.
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
			return nil, p.exhausted(int64(n))
		}
		if !p.evict(int64(size)) {
			// What would do is in nobody's use: another goroutine is about to
			// keep it or to give it back, and waits for nobody.
			runtime.Gosched()
		}
	}
	p.used.Add(int64(size))
	block, err := newBlock(size)
	if err != nil {
		p.used.Add(-int64(size))
		p.held.Add(-int64(size))
		return nil, status.Errorf(status.ResourceExhausted,
			"cannot allocate %d bytes: there is no more memory (%d bytes are in use): %w",
			n, p.used.Load(), err)
	}
	return block, nil
}

// Reserve implements Reserver. Kept blocks make room for what is reserved.
func (p *Pool) Reserve(n int64) (*Buffer, error) {
	switch {
	case n < 0:
		return nil, status.Errorf(status.InvalidArgument, "cannot reserve %d bytes", n)
	case n == 0:
		return NewBuffer(nil, nil), nil
	}
	for !addWithin(&p.held, n, p.limit) {
		if n > p.limit-p.used.Load() {
			return nil, p.exhausted(n)
		}
		if !p.evict(n) {
			runtime.Gosched() // as in take
		}
	}
	p.used.Add(n)
	return NewOwnedBuffer(nil, reservation{p, n}), nil
}

// reservation is the owner of a buffer that only counts.
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

func (p *Pool) exhausted(n int64) error {
	return status.Errorf(status.ResourceExhausted,
		"cannot allocate %d bytes: %d bytes are in use and the pool's limit is %d; release tensors sooner, move fewer at a time, or raise the limit",
		n, p.used.Load(), p.limit)
}

// poolOwner is the pool as the owner of its blocks.
type poolOwner struct{ pool *Pool }

// Reclaim implements Owner.
func (o poolOwner) Reclaim(data []byte) { o.pool.put(data) }

// ReclaimsPromptly implements PromptOwner.
func (poolOwner) ReclaimsPromptly() {}

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
		// What was released last is used first, so the older blocks go.
		if !p.evict(size) {
			p.drop(block)
			return
		}
	}
	p.classes[i].push(block)
}

// drop gives a block back to where it came from.
func (p *Pool) drop(block []byte) {
	freeBlock(block)
	p.held.Add(-int64(len(block)))
}

// evict drops kept blocks until need bytes are free or nothing is kept, class
// by class, each time from where it ended before. It reports whether it
// dropped any.
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

// Trim gives back all memory that is kept, as an idle server may want.
func (p *Pool) Trim() {
	for p.evict(math.MaxInt64) {
	}
}

// PoolStats is what a Pool has and did. The numbers are taken one by one while
// others use the pool, so they may not add up exactly.
type PoolStats struct {
	InUse   int64 // bytes of the blocks handed out, and of what is reserved
	Buffers int64 // number of the blocks
	Kept    int64 // bytes of the blocks that wait to be used again
	Limit   int64 // the most that InUse and Kept may come to; 0 without a limit
	// Classes are the block sizes in use at some time, ascending.
	Classes []ClassStats
}

// ClassStats is what a Pool did with blocks of one size.
type ClassStats struct {
	Size   int   // bytes
	Kept   int   // number of blocks kept
	Hits   int64 // how often a kept block was used again
	Misses int64 // how often none was kept
}

// Stats returns what the pool has at the moment.
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

// addWithin adds n to v unless that would exceed limit, and reports whether it
// did.
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
