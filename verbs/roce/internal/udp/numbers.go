package udp

import "time"

// Sizes that the protocols give.
const (
	// maxPayload is the longest payload of one UDP datagram or super-packet that
	// both families have room for, in bytes: 65,535 of a packet less 40 of IPv6's
	// header, of which IPv4's takes half, and 8 of UDP's (RFC 8200, RFC 768).
	maxPayload = 65535 - ip6Header - udpHeader
	// udpHeader, ip4Header and ip6Header are the headers, in bytes, that stand
	// between a segment and the path MTU (RFC 768, RFC 791, RFC 8200).
	udpHeader = 8
	ip4Header = 20
	ip6Header = 40
)

// maxSegments is the most segments of one super-packet: UDP_MAX_SEGMENTS of
// <linux/udp.h>, which was 64 until Linux 6.9 and is 128 since.
const maxSegments = 64

// maxReceive is the longest that the kernel gives in one piece, and one byte more,
// in bytes: UDP_GRO joins datagrams of IPv4 up to a packet of 65,535.
const maxReceive = 1 << 16

// What the receive buffer holds. The kernel counts what its own memory of a
// datagram takes (truesize), against twice the SO_RCVBUF that was asked for, which
// is what getsockopt then returns (socket(7)). Measured on Linux 6.18 over the
// loopback, with nobody reading, for buffers of 208 KiB to 4 MiB, as a part of what
// getsockopt returned:
//
//	datagrams of                 28    256    512   1040   2064   4112
//	each alone                 0.03   0.20   0.40   0.45   0.47   0.48
//	takes                       832   1280   1280   2300   4400   8500 bytes
//	in super-packets                   0.94          0.88          0.87 to 0.99
//
// Beside that the kernel gives back what was read in quarters of the buffer while
// more is there to read (udp_rmem_release of net/ipv4/udp.c), so that of all this
// three quarters are there for sure.
const (
	// bufferShare is by how much what getsockopt returned is divided for datagrams
	// that come alone, as a network card may hand them over: 0.45 * 3/4 is a third.
	bufferShare = 3
	// joinedShare is the same in tenths for super-packets: 10/16 is less than
	// 0.87 * 3/4.
	joinedShare = 16
	// LeastCost is what a datagram costs at least of Receiver.Buffer, in bytes,
	// however short it is: 3 times that is the 1280 above, and a third more.
	LeastCost = 576
)

const (
	// receiveBuffer is what a Receiver asks of the kernel for, in bytes
	// (SO_RCVBUF): the bandwidth-delay product of 100 Gbit/s and 300 µs. Without
	// privilege net.core.rmem_max caps it, by default at 208 KiB.
	receiveBuffer = 4 << 20
	// sendBuffer is the same for a Sender (SO_SNDBUF): eight super-packets wait
	// for the network card. More would only make a queue longer.
	sendBuffer = 512 << 10
	// sendWait is how long Send waits for room in a full send buffer. After that
	// what is left counts as lost on the way. A card that sends 10 Gbit/s empties
	// sendBuffer in 0.5 ms; one that has not in this time is stuck, and the caller
	// has timers to look after.
	sendWait = 5 * time.Millisecond
	// readTries is how many errors in a row a Receiver passes over: an ICMP error
	// of some earlier packet, or a moment without memory, is no end. More than
	// that is. And how many datagrams without bytes are passed over until the caller
	// is told that it waits.
	readTries = 16
)

// What this package takes of memory, in bytes, beside what the kernel takes: for a
// Receiver at most twice receiveBuffer, for a Sender twice sendBuffer. The tests
// hold it to this.
const (
	// batchMemory: one datagram, and what belongs to it.
	batchMemory = maxReceive + 1<<10
	// senderMemory: headers of maxSegments messages, as x/net and as the kernel have
	// them. Beside that there are 16 to 32 bytes for each piece of the longest call, and
	// without UDP_SEGMENT a slice for each of them and for each segment.
	senderMemory = 20 << 10
)
