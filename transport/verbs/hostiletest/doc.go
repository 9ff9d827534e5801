// Package hostiletest is a peer that says and writes what no peer may: a queue pair
// and the bootstrap, without any part of the transport. Victims are processes in
// memory (transport/verbs) and real ones on real devices (integration/verbs).
//
//	Stranger ── offer ──────────► Victim.Answer      the bootstrap, in memory or over gRPC
//	   │ ◄──── HELLO, REQUEST ──  its queue pair
//	   └─ garbage, wrong keys ──►
//	Cases ── what is said, and why the channel is left then
//
// PROTOCOL.md section 8.6 is the list of what a peer must not say; package channel
// has the same for the machine alone.
package hostiletest
