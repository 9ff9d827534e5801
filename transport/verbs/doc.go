// Package verbstransport moves tensors by RDMA: what TensorFlow's verbs extension
// called RdmaRemoteRendezvous (ARCHITECTURE.md sections 4 to 6; PROTOCOL.md
// sections 8 and 9 have it byte for byte).
//
//	Transport ─┬─ port      the device: protection domain, registered memory, events
//	           ├─ peer      one task: the bootstrap with it (package handshake), and its
//	           │   └─ link  one generation of the channel: queue pairs, completion
//	           │            queue (package progress), messages, machine (package channel)
//	           └─ way       the delivery.Conn to the task: the link, or gRPC
//
// Rules are in the pure machines of the parts; here are the goroutines, locks,
// clocks and devices around them. There is a goroutine for each completion queue
// and one for what watches the device; the others live as long as something takes
// time: a bootstrap, a copy, a channel that is torn down.
//
// Locks: a peer's and a link's are never held together, and nothing that may block
// or call out of the package is done under either. A link's lock is held from an
// event to the last post that follows from it, so what is posted for a request is
// posted in the order in which the machine decided.
package verbstransport
