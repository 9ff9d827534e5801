// Package regmem is the registered memory of one protection domain: what a device
// may read when a tensor goes out, and what peers may write when one comes in.
//
//	Memory ─┬─ sending pool    rights: none for peers        ← Allocator, Source
//	        ├─ receiving pool  rights: local and remote write ← Account.Destination
//	        └─ Slots           control messages, a registration of their own
//
//	pool ─── arenas, each mapped from the system and registered once
//	           └─ blocks, handed out by size class, merged again when they come back
//
// A tensor larger than an arena gets an arena of its own. Registered arenas stay
// until they have been idle for a while (Sweep), or until the pool's limit needs
// them, so that a steady flow registers nothing.
//
// # Who may wait for what
//
// Nothing waits for memory to come back: a pool that is at its limit answers
// ResourceExhausted at once. Registering takes milliseconds, so it happens on the
// goroutine that allocates and only where it says MayGrow; who polls completions
// says NoGrow and gets ErrMustGrow instead.
//
// # Who owns a block and until when
//
// A block is a [tensor.Buffer] whose Owner knows the registration. It comes back
// when the last reference is gone. A [Destination] is the transport's own
// reference to a block whose address was given to a peer; it lasts until the peer
// cannot write there any more. When the receive ends before (cancelled), the block
// is in quarantine: held, and of use to nobody. [Memory.Overdue] names the
// channels that must be closed for holding too much or too long.
//
// # Trust
//
// All peers of a device share one protection domain: whoever has a key to a
// receiving arena can write anywhere in it. Where windows cost nothing no peer has
// such a key: each transfer gets one of its own ([Destination.Lease]), which gives
// its destination to one queue pair until the transfer has ended.
package regmem
