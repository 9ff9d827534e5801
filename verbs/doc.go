// Package verbs defines RDMA for Go: the data types and the interfaces that every
// provider implements. Callers use the interfaces only, so they run unchanged on a
// NIC or the kernel's Soft-RoCE through libibverbs (verbs/cgo), on a RoCEv2 endpoint
// in user space (verbs/roce), and on memory (verbs/verbstest).
//
// The conformance suite verbstest.Run checks what the comments here promise. All
// providers pass it. docs/providers.md explains how to write one.
//
//	Provider ── Open ──► Device ── AllocPD ──► PD ── RegisterMemory ──► MR
//	                       │                    └─── CreateQP ────────► QP
//	                       └────── CreateCQ ──► CQ ◄── completions ──────┘
//
// Close an object before the one that created it. Closing the creator first fails
// with ErrBusy, as in the kernel. Close is idempotent. All methods may be called
// from several goroutines at once, unless their comment restricts that.
//
// # States of a queue pair
//
//	        ToInit        ToRTR         ToRTS
//	RESET ─────────► INIT ─────► RTR ─────────► RTS
//	                  receives    accepts        also sends
//	                  can be      packets of
//	                  posted      the peer
//	any state ── ToErr, or a failed work request ──► ERR: all outstanding work
//	                                                 requests complete with StatusFlushed
//	any state ── Close ──► destroyed: the device no longer accesses memory for it
//
// The device owns the memory of a work request from the post until its completion.
// ERR does not stop writes of the peer into registered memory; only Close does. An
// unsignaled work request completes only when the queue pair breaks, so size a
// completion queue for all work requests that can be outstanding on it.
//
// # Memory
//
// RegisterMemory takes a []byte that must not move and must not belong to the garbage
// collector: mapped memory. A device that sets DeviceInfo.GoMemory accepts any memory.
// The caller keeps the memory valid until the MR is closed. Work requests and peers
// name memory by address. MR.Addr returns the address of the first byte, in the
// address space of the device.
package verbs
