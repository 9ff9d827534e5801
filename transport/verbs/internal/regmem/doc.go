// Package regmem is the registered memory of a process: memory that devices read tensors
// from when they send, and that peers write tensors to.
//
//	Memory ─┬─ sending pool    access: none for peers         ← Allocator, Domain.ForSending
//	        └─ receiving pool  access: local and remote write ← Account.Destination
//	             ├─ section of devices whose arenas have rkeys for peers
//	             └─ section of devices with an rkey for each transfer
//	Domain ──── Slots           messages; each set has a registration of its own
//
//	section ─── arenas, each mapped from the system once, registered with each Domain
//	              └─ blocks, allocated by size class, merged again when they are freed
//
// A Domain is a protection domain of a device. The memory outlives it: tensors stay where
// they are when a device goes, and are registered with the next one.
//
// A tensor larger than an arena gets an arena of its own. Arenas stay registered until
// they have been idle for a while (Sweep), or until the pool's limit needs their space.
// So a steady flow of tensors registers nothing. What stays registered with a device in
// software then gives the pages of its free blocks back.
//
// Tensors in memory of either pool are sent without a copy. Other content is copied once into
// the sending pool (Stage), when the peer has named the destination. Where that has no room, a
// device that pins no memory reads it from where it lies (InPlace). Arenas of the sending
// pool carry no remote rights; for a device that shares memory with its peers (verbs/shm)
// they are sealed memfds.
//
// # Waiting
//
// No call waits for memory to be freed: a pool that is at its limit returns
// ResourceExhausted at once, unless an arena is being made. Registering takes milliseconds, so only a goroutine that
// passes MayGrow does it, for its own allocation. The goroutine that polls completions
// passes NoGrow and gets ErrMustGrow instead.
//
// # Ownership of blocks
//
// A block is a [tensor.Buffer] whose Owner knows the registration. It is freed with its
// last reference. A [Destination] is the transport's own reference to a block whose
// address was given to a peer; it lasts until the peer cannot write there any more. When
// the receive ends before (it was cancelled), the block is in quarantine: allocated, but
// not used. [Memory.Overdue] returns the channels that must be closed because their
// quarantine is too large or too old (ARCHITECTURE.md section 4).
//
// Memory of a receiver's own (rendezvous.Into) that lies in the receiving pool is a Destination
// itself (Adopt). While its Buffer is not Unique, a late write may land there.
//
// # Trust
//
// All peers of a device share one protection domain: a peer with the rkey of a receiving
// arena can write anywhere in it. Where memory windows cost nothing, no peer has such an
// rkey. Each transfer gets an rkey of its own ([Destination.Lease]), which lets one queue
// pair write to its destination until the transfer has ended. Over libibverbs the rkey is that
// of the arena, and only the rules of when a destination is free protect the memory. The
// arenas of the two sections are apart, so a peer with an rkey of an arena reaches nothing that
// was received over a device of the other section.
package regmem
