// Package route chooses the route by which a peer is reached (PROTOCOL.md section 9, routes):
// a pure function of both sides' inventories, Choose, and a pure machine for one peer, Router:
// events in, actions out, time passed in.
//
// Each route has a handshake.Machine of its own. The router says which of them maintains
// a channel. A change of route makes the new channel first:
//
//	  Choose has another result        Up(new)              Down(old)
//	old ──────────────────────► both ──────────► leave old ──────────► new
//	     Rest(old), Maintain(new)│
//	                             └── Down(new, err): it has failed; Rest(new), Maintain(old)
//
// The side with the lower task name proposes, a client to its server; by its call for a channel.
// The other side expects the same route, since Choose is symmetric, and may call as well. When
// the two differ, because one has not heard of a device or a failure yet, the route of the
// proposing side is taken if it is possible.
//
// # Failures
//
// A route fails when its channel breaks, or when none can be made, for a reason of the route: not
// because the peer cannot be called at all, stops or restarts. It is not tried again before its
// back-off while another one is possible. Each side shows its failures in its inventory, and
// Choose respects those of both. A change of a device on either side ends its failures.
package route
