// Package verbstest tests providers of package verbs. It has two parts:
//
//   - Run, the conformance suite that every provider passes.
//   - Fabric, a provider in memory, with the faults of networks, devices and peers.
//     Tests of code above package verbs use it in place of hardware.
//
// docs/providers.md explains how to write a provider and how to test it.
//
// # The fabric
//
//	Fabric ── Host ── NIC ── port ══ wire ══ port ── NIC ── Host
//	            │      │
//	            │      └── faults: NIC.Remove, PortDown, SetGID, BreakQP
//	            └── Provider ── Open ──► verbs.Device and its objects
//
// Hosts are created when they are first named. Two wires connect each pair of ports, one
// per direction. A wire has latency, bandwidth, loss and faults (Wires): cut and hold.
// Bytes are copied when they arrive, in the order of the wire, so a late write shows
// late in memory. Packets in flight still arrive when their sender breaks, closes or dies.
//
// A queue pair follows the InfiniBand specification (volume 1, chapters 9 to 11). Where the
// specification leaves a choice and rxe and NICs differ, the fabric behaves like the one that
// is harder for the caller: completions of a closed queue pair are lost, a slot of the send queue becomes
// free only when a completion of it or of a later request is polled, and keys and queue
// pair numbers are random.
//
// # Time
//
// The fabric has no goroutine. The goroutine that posts does what is due now, and a timer
// does the rest. In a bubble of testing/synctest, with a fabric made there, all times are
// virtual and exact. Virtual time stops while a goroutine spins: Options.PollTime makes an
// empty poll take time.
package verbstest
