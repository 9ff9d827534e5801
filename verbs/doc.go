// Package verbs is RDMA in Go's words: the types that every provider shares and
// the interfaces that it implements. Above it nobody knows whether a device is a
// NIC behind libibverbs (verbs/cgo), the kernel's Soft-RoCE behind the same
// library, a RoCEv2 endpoint in user space (verbs/roce), or memory
// (verbs/verbstest). Which provider may do what is decided by one conformance
// suite, verbstest.Run, that all of them pass.
//
//	Provider ── Open ──► Device ── AllocPD ──► PD ── RegisterMemory ──► MR
//	                       │                    └─── CreateQP ────────► QP
//	                       └────── CreateCQ ──► CQ ◄── completions ──────┘
//
// An object is closed before the one that it came from; closing earlier is
// refused with ErrBusy, as the kernel does. Close is idempotent. Methods may be
// called from many goroutines, save where their comment says otherwise.
//
// # Life of a queue pair
//
//	        ToInit        ToRTR         ToRTS
//	RESET ─────────► INIT ─────► RTR ─────────► RTS
//	                  receives    receives       also sends
//	                  may be      are taken
//	                  posted
//	any state ── ToErr, or a failed work request ──► ERR: everything posted
//	                                                 completes with StatusFlushed
//	any state ── Close ──► gone: no work request touches memory any more
//
// Between a work request's post and its completion its memory belongs to the
// device. The state ERR is no fence for what the peer writes: only Close is.
// Unsignalled work requests complete only when the queue pair breaks, so a
// completion queue needs room for every work request that can be posted on it.
//
// # Memory
//
// Memory is registered as a []byte that does not move and that the garbage
// collector does not own: mmap'd memory, unless DeviceInfo.GoMemory says that
// the device takes any. Its owner keeps it until the MR is closed. Work requests
// name memory by address: MR.Addr() is that of its first byte, in the numbering
// of the device, and is what peers are told.
package verbs
