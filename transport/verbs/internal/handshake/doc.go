// Package handshake is the bootstrap of a channel as a pure state machine
// (PROTOCOL.md section 9): events in, actions out, time and randomness given. One
// Machine stands for one peer.
//
// Each side has at most one offer: queue pairs that nobody else is told of. Sides
// show each other their offers by calls; request and response both carry the
// giver's. Two offers of one generation make a channel, and of two generations
// the higher one counts: who showed the lower one makes a new offer with the
// higher number.
//
//	        Make          Made           request or response       Connected
//	idle ─────────► making ──► offered ─────────────────► connecting ──► paired
//	 ▲                            │     of that generation                  │ response to our call,
//	 │                            │ 30 s                                    │ or the peer's HELLO
//	 └──────────── Destroy ◄──────┴──────────────── 10 s without HELLO ◄────┴──► open
//	                              a break, or a higher generation of the peer
//
// A side sends only in the state open: before it has the response to a call that
// showed its present offer, or a message of the peer, the peer's queue pair may
// not be connected, and what is sent into it is lost.
//
// # Which process is believed
//
// Incarnations have no order, and a request may be late or forged. The process
// that is believed to be the peer is the one that answered at the peer's
// configured address; before that, the first that asked. A request of another
// incarnation changes nothing but this: it is answered with an introduction
// (Offer.Bare), and the peer's address is called. The introduction's receiver, who
// called our configured address, learns from it which process is here; so two
// sides that both believe in the past find out in one call each.
//
// # Generations
//
// They only grow between two processes: a number is not used again after its offer
// was destroyed, so late messages are told from present ones, and two processes
// never have two channels with one number. With another process on either side they
// begin anew; a call says which process it means (Offer.For), so that nobody takes
// an offer that was shown to an earlier one. A step is bounded (MaxStep), or one message in a peer's name would use
// all numbers up.
package handshake
