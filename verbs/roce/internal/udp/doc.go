// Package udp has the sockets of the user-space RoCE device: one Receiver for a
// local address, and any number of Senders, each with a port of its own. It knows
// nothing of RoCE.
//
//	Sender.Send(messages)                                Receiver.Receive(batch)
//	   │ pieces, cut every Segment bytes                     ▲ datagrams, Segment bytes each
//	   ▼                                                     │
//	one super-packet: UDP_SEGMENT ──► kernel, wire ──► UDP_GRO: one again, or several
//	where refused: one datagram a segment
//
// What a datagram says of itself on the wire: on IPv4 the don't-fragment flag is
// set, and its identification is 0; segment i of a super-packet has
// identification i, unless the destination has Sender.MaxSegments of 1. IPv6 has no
// identification. Everything else that a receiver sees is given in the Message.
//
// The bytes of a Message are copied by the kernel before Send returns, and those
// of a Datagram are lent until the next Receive with the same Batch. Neither
// allocates. Sending never blocks for longer than sendWait; receiving blocks in
// Go's poller, and ends with Close.
//
// On Linux all of it is there. Elsewhere every datagram goes alone and without
// traffic class, and the sockets say so (Missing).
package udp
