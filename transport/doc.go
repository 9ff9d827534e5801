// Package transport is what every wire has in common: the interfaces that a
// wire implements, and the two halves of the promise that a broken connection
// loses nothing (ARCHITECTURE.md section 6).
//
//	consumer                                             producer
//	rendezvous.BaseRemote                                rendezvous.Manager
//	      │ RecvFromRemoteAsync                                ▲ RecvLocalAsync
//	   Failover ── asks, asks again, says finished ──►  Kept ──┘
//	      └──────────── one Wire per peer ───────────────┘
//
// A receive has a random id and a number of attempts. Failover, on the
// receiver's side, asks again when a connection was lost and the peer is still
// the same process; Kept, on the sender's side, is the table of answers: it
// gives an id the same answer however often it is asked, and lets it go when
// the receiver said that it has it. The rules of both are pure state machines
// (asking.go and answers.go: events in, actions out, time passed in); goroutines,
// clocks and wires are in the shells around them (failover.go and kept.go).
package transport
