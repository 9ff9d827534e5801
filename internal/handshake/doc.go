// Package handshake is the bootstrap of a channel as a pure state machine
// (PROTOCOL.md section 9): events in, actions out, time and randomness passed in.
// A Machine serves one peer.
//
// Each side has at most one offer: queue pairs that are shown to this peer only.
// Sides show their offers in calls; the request carries the offer of the caller, the
// response that of the called process. Two offers of the same generation form a
// channel. Otherwise the side with the lower generation makes a new offer of the
// higher one.
//
//	        Make          Made           request or response       Connected
//	idle ─────────► making ──► offered ─────────────────► connecting ──► connected
//	 ▲                            │   of the same generation                │ response to our call,
//	 │                            │ 30 s                                    │ or the peer's HELLO
//	 └──────────── Destroy ◄──────┴──────────────── 10 s without HELLO ◄────┴──► open
//	                              a break, or a higher generation of the peer
//
// A side sends only in the phase open. Before it has the response to a call that
// showed its present offer, or a message of the peer, the peer's queue pair may not
// be connected, and what is sent to it is lost.
//
// # Which process is the peer
//
// Incarnations have no order, and a request may be late or forged. The process
// that is accepted as the peer is the one that responded at the peer's configured
// address; before any has, the first that sent a request. A request of another
// incarnation changes nothing: it gets an introduction (Offer.IsIntroduction), and
// this side calls the peer's address. The introduction tells its receiver, which
// called our configured address, which process runs here. So two sides that hold
// stale incarnations of each other find out in one call each.
//
// # Generations
//
// Between two processes a generation is used once, so late messages cannot be
// mistaken for present ones, and no two channels have the same number. Generations
// start again when either side is a new process. A call names the process that it
// means (Offer.For), so an offer for an earlier process is not used. A generation
// may be only MaxStep above the last one; otherwise one message in a peer's name
// could use up all of them.
//
// A process has a Machine for each route to the peer (package route). They share the generations
// with a process of the peer: each gets what the others have reached (Reached), and makes its
// offers above it. Two sides that make offers for different routes at once choose different
// numbers, since each route has its lane (Config.Lanes); so the higher one is the later one, and
// neither side has to yield for ever.
//
// # Files
//
//	machine.go  state, configuration and clock      process.go   which process is the peer
//	request.go  calls of the peer                   channel.go   offers and the channel
//	call.go     calls to the peer, and backoff      validate.go  what an offer must satisfy
package handshake
