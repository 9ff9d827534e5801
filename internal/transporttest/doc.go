// Package transporttest is the conformance suite of all transports. It checks what a step of
// one process receives from another one, also when the connections between them break.
//
//	Run ── a case ── world ── Cluster.Start ── Node  (manager, response cache)
//	                   │                        │
//	                   └──── Cluster.Faults ────┘    (cut, hold, throttle)
//
// A transport implements Cluster: it starts and kills processes, and disturbs their
// connections. The suite uses a transport only through the rendezvous. Proxy has the Faults of
// a transport over TCP.
//
// At the end of each case the suite checks that
//
//   - every receive has ended exactly once,
//   - the response caches are empty,
//   - all steps have ended,
//   - the memory of all tensors is released, on both sides, and was not written to afterwards,
//   - no goroutine is left.
//
// The contract is ARCHITECTURE.md sections 3, 4 and 6.
package transporttest
