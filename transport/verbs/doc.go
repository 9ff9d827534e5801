// Package verbstransport moves tensors by RDMA. It corresponds to RdmaRemoteRendezvous of
// TensorFlow's verbs extension (ARCHITECTURE.md sections 4 to 6; PROTOCOL.md sections 8
// and 9 describe the protocol byte for byte).
//
//	Transport ─┬─ port      the device: protection domain, registered memory, events
//	           ├─ peer      one task: the handshake with it (package handshake), and its
//	           │   └─ link  one generation of the channel: queue pairs, completion queue
//	           │            (package progress), messages, state machine (package channel)
//	           └─ conn      the transport.Conn to the task: the link, or gRPC
//
// The rules of the protocol are in pure state machines (packages handshake and channel).
// This package has the goroutines, locks, clocks and devices around them. One goroutine
// polls each completion queue, one waits for the events of the device, and one sweeps idle
// memory. Other goroutines live as long as one slow operation: a bootstrap call, a copy,
// the teardown of a channel.
//
// # Memory of a transfer
//
// The channel decides when a destination is free (ActFree); link.free gives its memory back
// (destination.go). After a success it is the consumer's tensor. A receive without memory for
// its destination is requested again over gRPC; with Options.Require it ends with
// ResourceExhausted and is cancelled, so the responder puts the value back. A source, the responder's memory that a write reads, is released
// when its response is acknowledged, cleaned up or dropped, and its work requests have
// completed or lost their queue pair.
//
// # Locks
//
// peer.mu and link.mu are never held together. Nothing that may block or that calls
// out of the package runs under either; the one exception is ResponseCache.RequestNow,
// which calls only the TakeLocal of its source. link.mu is held from an event to the last post
// that follows from it, so work requests are posted in the order in which the state machine
// decided.
package verbstransport
