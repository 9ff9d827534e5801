package regmem

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// block is a range of an arena's memory, free or allocated. It is the Owner of its
// buffer. Its pool's lock guards it. Fields that the holder of a buffer reads (arena,
// off, size) do not change while the block is allocated.
type block struct {
	arena   *arena
	off     int    // bytes from the arena's beginning, a multiple of granule
	size    int    // bytes, a multiple of granule
	out     bool   // allocated
	touched bool   // a free block whose pages may be present
	number  uint64 // in the order of allocation, for pattern

	below, above *block // neighbours in memory; nil at the arena's ends

	// Neighbours in a list: of its size class while it is free, of its account's
	// quarantine while it is there.
	prev, next *block

	// For a destination.
	account     *Account // nil: no peer can write to it
	early       bool
	quarantined bool
	since       time.Time // beginning of the quarantine
}

// bytes is the block's memory. Its capacity ends with the block.
func (b *block) bytes() []byte {
	return b.arena.mem[b.off : b.off+b.size : b.off+b.size]
}

// Reclaim implements tensor.Owner: the last reference is gone.
func (b *block) Reclaim([]byte) { b.arena.pool.reclaim(b) }

// ReclaimsPromptly implements tensor.PromptOwner.
func (*block) ReclaimsPromptly() {}

// OffHeap implements tensor.OffHeapOwner: memory that a device can access is never on the Go heap.
func (*block) OffHeap([]byte) bool { return true }

// Range is a range of registered memory, as in a work request or a message to a peer.
type Range struct {
	Addr uint64 // as the device addresses it
	Len  uint64 // bytes
	LKey verbs.LKey
	RKey verbs.RKey // gives no access to the sending pool, nor with a Domain that Leases
}

// rangeOf is the n bytes of the block from offset at, as registered in r.
func (b *block) rangeOf(r *region, at, n int) Range {
	return Range{Addr: r.addr + uint64(b.off+at), Len: uint64(n), LKey: r.lkey, RKey: r.rkey}
}
