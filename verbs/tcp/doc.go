// Package tcp is RDMA over TCP connections: each queue pair is a connection of its own. It
// needs no RDMA device and no privilege, and works wherever TCP does, also under TLS. The only
// device, tcp0, has one port with one GID, which is a random number of the opened device.
// PROTOCOL.md section 11 has the bytes.
//
//	PostSend ─► machine ─► writer ═══ connection ═══► reader ─► machine ─► completions
//	             ▲                                      │
//	             └── what to send: acknowledgements, ◄──┘
//	                 responses, RNR, NAK
//
// The machine (machine.go, requester.go, responder.go) is a queue pair as a pure state
// machine: rc.Machine, and what a stream of frames adds to it. A connection has two goroutines:
// one reads, one writes (conn.go, reader.go, writer.go). A short post writes on its caller's goroutine when nobody else writes.
//
// # What a completion means
//
// A request completes when the peer's process has placed its content, not when a kernel has
// taken it. If the process is stopped, its kernel still takes bytes, but nobody acknowledges
// them, and the queue pair fails when its patience ends (RTSAttr.Timeout, RTSAttr.Retry).
// TCP delivers in order and without loss, so there is one case in which requests are sent
// again: when the peer had no receive posted. A lost connection is a lost path: what is
// outstanding fails when the retries are over, and nothing connects again.
//
// # Which goroutine waits for which
//
//  1. A reader never writes. What it has to send it leaves to the writer. Only a post from a
//     completion's callback (CallbackCQ) writes on the reader's goroutine, if it need not wait.
//  2. A reader waits neither for space in a completion queue nor for a receive. A full queue is
//     unusable; without a receive it drops what comes until the requester sends it again, so
//     RNR stops one connection only.
//  3. No lock is held while a goroutine waits for the peer. Accesses to the user's memory hold
//     a lock of their own (conn.access), during a copy or a system call that does not block.
//     Closing a region, a window or a queue pair, and breaking one, waits for that.
//
// # Security
//
// Peers prove to each other that they know the secrets of both offers. Without TLS everybody on
// the path can read and change everything, as on a fabric. A queue pair uses only keys of its
// protection domain.
package tcp
