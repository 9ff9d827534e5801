// Package verbstest has what every provider of package verbs is tested with: the
// conformance suite, and a provider in memory that can fail in all the ways in
// which networks, devices and peers do.
//
// # The fabric
//
//	Fabric ── Host ── NIC ── port ══ wire ══ port ── NIC ── Host
//	            │      │
//	            │      └── what a test breaks: NIC.Remove, PortDown, SetGID
//	            └── Provider ── Open ──► verbs.Device and all that comes from it
//
// NewFabric makes hosts as they are named; each pair of ports is joined by two
// wires, one a direction, with latency, bandwidth, loss, and faults: cut, hold.
// Bytes are copied when they arrive, in the order of the wire: a write that comes
// late is seen in memory late. What was on the way when its sender broke, closed
// or died still arrives.
//
// A queue pair behaves as the InfiniBand specification says (volume 1, chapters
// 9, 10 and 11), and where that leaves a choice, as the kernel's rxe or a NIC,
// whichever is the less forgiving: completions of a closed queue pair are lost, a
// slot is free when a completion of it or of a later one was polled, keys and
// queue pair numbers are random.
//
// # Time
//
// There is no goroutine. What is due now is done by the goroutine that posts,
// and what is due later by a timer. So on the virtual time of testing/synctest
// (the fabric is then made within the bubble) everything is exact, and on real
// time nothing is left running. Virtual time stands still while somebody spins:
// Options.PollTime lets an empty poll take time.
package verbstest
