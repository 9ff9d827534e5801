// Package transporttest is the suite that every transport passes: what a step
// of one process receives from another one, whatever becomes of the wire
// between them.
//
//	Run ── a case ── world ── Cluster.Start ── Node  (manager, kept answers)
//	                   │                        │
//	                   └──── Cluster.Link ──────┘    (cut, hold, throttle)
//
// A transport brings a Cluster: how to start a process of it, how to kill one,
// and how to disturb what carries its bytes. Everything else goes through the
// rendezvous, as the suite knows no transport. Proxy is the Link of a transport
// over TCP.
//
// Each case ends with the same questions: has every receive ended exactly once;
// is every answer forgotten that was kept for an asker; are the steps gone; is
// every tensor's memory given back, on both sides, and was none of it written
// to afterwards; does any goroutine still run. The contract is ARCHITECTURE.md
// sections 3, 4 and 6.
package transporttest
