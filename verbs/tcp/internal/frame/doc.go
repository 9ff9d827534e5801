// Package frame has the bytes of queue pairs over TCP (PROTOCOL.md section 11): what an
// endpoint adds to an offer, the greeting of a connection and its reply, and the header of
// every frame. It is pure: no sockets, no state.
//
//	connecting side                               accepting side
//	   greeting (magic, names, proof) ───────────►
//	              ◄─────────────────────────────── reply (proof, or the reason of a refusal)
//	   frames ◄──────────────────────────────────► frames
//
// All numbers are little-endian.
package frame
