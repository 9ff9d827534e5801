package udp

import "time"

// Sizes that the protocols define.
const (
	// maxPayload is the maximum payload of a UDP datagram or super-packet in both
	// families, in bytes: 65,535 for a packet less 40 of the IPv6 header (IPv4's has
	// 20) and 8 of the UDP header (RFC 8200, RFC 768).
	maxPayload = 65535 - ip6Header - udpHeader
	// udpHeader, ip4Header and ip6Header are the lengths of the headers between a
	// segment and the path MTU, in bytes (RFC 768, RFC 791, RFC 8200).
	udpHeader = 8
	ip4Header = 20
	ip6Header = 40
)

// maxSegments is the maximum number of segments of a super-packet: UDP_MAX_SEGMENTS of
// <linux/udp.h>, 64 before Linux 6.9 and 128 since.
const maxSegments = 64

// maxReceive is the maximum that one receive call returns, plus one byte: UDP_GRO joins
// IPv4 datagrams up to a packet of 65,535 bytes.
const maxReceive = 1 << 16

// The capacity of the receive buffer. The kernel counts its own memory for a datagram
// (truesize) against the buffer size that getsockopt returns, which is twice the
// SO_RCVBUF that was requested (socket(7)). Of that size, datagrams of 1 KiB to 4 KiB
// can fill 0.45 if they arrive alone, and 0.87 if they arrive as super-packets (Linux
// 6.18). Also, the kernel may hold back a quarter of the buffer: it releases what was
// read in quarters while more is there to read (udp_rmem_release of net/ipv4/udp.c).
const (
	// bufferShare is the divisor of the buffer size for datagrams that arrive alone, as
	// network cards may deliver them: 0.45 * 3/4 is a third.
	bufferShare = 3
	// joinedShare is the same for super-packets, in tenths: 10/16 is less than 0.87 *
	// 3/4.
	joinedShare = 16
	// MinCost is the least that a datagram takes of Receiver.Buffer, in bytes, whatever
	// its length. The kernel takes up to 1280 bytes for a datagram of 512 bytes or
	// less, which is 3 * 427 (bufferShare); a third is added for safety.
	MinCost = 576
)

const (
	// receiveBuffer is the SO_RCVBUF of a Receiver, in bytes: the bandwidth-delay
	// product of 100 Gbit/s and 300 µs. Without privilege net.core.rmem_max limits it,
	// by default to 208 KiB.
	receiveBuffer = 4 << 20
	// sendBuffer is the SO_SNDBUF of a Sender, in bytes: eight super-packets wait for
	// the network card. A larger buffer would only add delay.
	sendBuffer = 512 << 10
	// sendWait is how long Send waits for space in a full send buffer. After that the
	// messages count as lost on the network. A card of 10 Gbit/s empties sendBuffer in
	// 0.5 ms, so one that takes this long is stuck, and the caller must serve its
	// timers.
	sendWait = 5 * time.Millisecond
	// readTries is the number of consecutive errors that a Receiver ignores, such as
	// the ICMP error of an earlier packet, or a temporary lack of memory. It is also
	// the number of dropped datagrams after which Receive calls idle.
	readTries = 16
)

// The memory that this package uses, in bytes. The kernel's buffers come in addition:
// at most twice receiveBuffer for a Receiver and twice sendBuffer for a Sender. Tests
// check these numbers.
const (
	// batchMemory is for one datagram with its metadata.
	batchMemory = maxReceive + 1<<10
	// senderMemory is for the headers of maxSegments messages, in the form of x/net and
	// of the kernel. In addition, there are 16 to 32 bytes for each buffer of the
	// largest call, and without UDP_SEGMENT a slice for each buffer and each segment.
	senderMemory = 20 << 10
)
