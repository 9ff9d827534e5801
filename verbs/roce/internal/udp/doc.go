// Package udp implements the UDP sockets of the user-space RoCE device: one Receiver for
// a local address, and several Senders, each with its own port. It knows nothing of RoCE.
//
//	Sender.Send(messages)                                Receiver.Receive(batch)
//	   │ buffers, split every Segment bytes                  ▲ datagrams, Segment bytes each
//	   ▼                                                     │
//	one super-packet: UDP_SEGMENT ──► kernel, wire ──► UDP_GRO: joined again, or several
//	if refused: one datagram for each segment
//
// In the IPv4 header, the don't-fragment flag is set and the identification is 0. Segment
// i of a super-packet has identification i, unless Sender.MaxSegments of the destination
// is 1. IPv6 has no identification. The Message defines everything else that a receiver
// sees.
//
// The kernel copies the content of a Message before Send returns. The content of a
// Datagram is valid until the next Receive with the same Batch. Neither allocates. Sending
// blocks for at most sendWait. Receiving blocks in Go's poller until Close.
//
// All of this works on Linux. On other systems each datagram is sent alone and without
// traffic class, and Missing says so.
package udp
