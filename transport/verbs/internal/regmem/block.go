package regmem

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// block is a run of an arena's memory, free or handed out. It is the Owner of the
// buffer that it is handed out as. Guarded by its pool's lock; what a buffer's
// holder reads (pool, arena, off, size) does not change while it is handed out.
type block struct {
	arena  *arena
	off    int // bytes from the arena's beginning, a multiple of granule
	size   int // bytes, a multiple of granule
	out    bool
	number uint64 // in the order of handing out, for pattern

	below, above *block // the neighbours in memory; nil at the arena's ends

	// The neighbours in a list: of its class while free, of its account's
	// quarantine while there.
	prev, next *block

	// Of a destination.
	account     *Account // nil: nobody else can write to it
	early       bool
	quarantined bool
	since       time.Time // of the quarantine
}

// bytes is all of the block's memory, and cannot be grown into the next one.
func (b *block) bytes() []byte {
	return b.arena.mem[b.off : b.off+b.size : b.off+b.size]
}

// Reclaim implements tensor.Owner: the last reference is gone.
func (b *block) Reclaim([]byte) { b.arena.pool.reclaim(b) }

// ReclaimsPromptly implements tensor.PromptOwner.
func (*block) ReclaimsPromptly() {}

// Piece is a run of registered memory, as a work request or a peer names it.
type Piece struct {
	Addr uint64 // in the device's numbering
	Len  uint64 // bytes
	LKey verbs.LKey
	RKey verbs.RKey // gives no rights to memory of the sending pool, nor to that of a Memory that Leases
}

// piece is n bytes of the block, from its offset at on.
func (b *block) piece(at, n int) Piece {
	mr := b.arena.mr
	return Piece{Addr: mr.Addr() + uint64(b.off+at), Len: uint64(n), LKey: mr.LKey(), RKey: mr.RKey()}
}
