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
	// that is.
	readTries = 16
)
