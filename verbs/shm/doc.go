// Package shm is RDMA between two processes of one host, over memory that they share. It needs
// no device, no privilege and no ptrace: a process reads memory of another one only through
// file descriptors that the other one passed to it. It works across containers.
//
// Every process writes only its own memory. The ring of a queue pair and registered memory that
// peers read are memfds of their owner, sealed so that only the owner can write them. The
// process of the responder carries out the requests: it copies content from the memory of the
// poster into its own.
//
//	poster's process                          responder's process
//	PostSend
//	   │ copies the request
//	   ▼
//	own ring ──── read-only mapping ─────────► step (responder.go)
//	                                            │ checks the request
//	registered memory, a memfd ── mapping ────► copies slices into registered memory
//	                                            │
//	step (requester.go) ◄── mapping ───────── own ring: how many requests are done
//	   │
//	   ▼ completion                            completion of the receive
//
// A unix socket connects the two queue pairs. Over it go the proofs of the handshake, the
// descriptors, and a byte that wakes the other side when it sleeps. PROTOCOL.md, section 12, has every byte.
//
// Each step runs on the goroutine of the queue pair, which sleeps in a read of the socket, or on one that
// polls the completion queue. While the queue is disarmed (verbs.DrivenCQ) peers wake nobody: what they
// do is seen by the next poll.
//
// # Trust
//
// A peer that got a descriptor of an arena can read the whole arena. So a device accepts peers
// of its own user in its own user namespace only, unless Options.Trusted says that the names of
// all peers are proven. docs/security.md says what a hostile peer can do.
package shm
