// Package hostiletest is a peer that sends and writes what the protocol forbids. It has a queue
// pair and the bootstrap, without any part of the transport. Victims are processes in memory
// (transport/verbs) and real ones on real devices (integration/verbs).
//
//	Peer ── offer ──────────► Victim.Answer      the bootstrap, in memory or over gRPC
//	 │ ◄──── HELLO, REQUEST ──  its queue pair
//	 └─ garbage, wrong keys ──►
//	Cases ── what the peer sends, and the reason for which the victim then leaves the channel
//
// PROTOCOL.md section 8.6 lists what a peer must not send. Package channel tests the same list
// against the state machine alone.
package hostiletest
