// Package rocewire is the packet codec of RoCEv2: the headers of the reliable connection
// (RC) and the invariant CRC (ICRC). It is pure: it has no sockets, clocks or connection
// state.
//
// A packet is the payload of one UDP datagram to port 4791 (InfiniBand Architecture
// Specification, volume 1, annex A17). All fields are big-endian, except the ICRC, which
// is little-endian:
//
//	BTH 12 | extended headers | payload | pad 0 to 3 | ICRC 4
//
//	byte  BTH (base transport header, 9.2)
//	0     opcode
//	1     SE 0x80, MigReq 0x40, pad count 0x30, transport version 0x0f (0)
//	2     partition key
//	4     FECN 0x80, BECN 0x40, reserved
//	5     destination queue pair
//	8     AckReq 0x80, reserved
//	9     packet sequence number
//
// The opcode decides which extended headers follow, in this order:
//
//	FETH          4  kind of flush                        FLUSH
//	RETH         16  address 8, rkey 4, length 4          WRITE first and only, READ request, FLUSH, ATOMIC WRITE
//	AtomicETH    28  address 8, rkey 4, swap or add 8,    CMP_SWAP, FETCH_ADD
//	                 compare 8
//	AETH          4  syndrome 1, message sequence 3       ACK, ATOMIC ACK, READ response first, last and only
//	AtomicAckETH  8  the original value                   ATOMIC ACK
//	ImmDt         4  immediate data                       SEND and WRITE, last and only, with immediate
//	IETH          4  rkey to invalidate                   SEND, last and only, with invalidate
//
// The length of payload and pad together is a multiple of 4. Only last and only packets
// may have a pad.
//
// To build a packet, append header, payload, pad and ICRC. A [Path] begins the ICRC,
// [UpdateHeader] and [Update] continue it, and [AppendICRC] or [PutICRC] store it:
//
//	b = h.Append(b)
//	crc := rocewire.UpdateHeader(path.Begin(n), b) // n: bytes from BTH to ICRC
//	b = append(append(b, payload...), pad...)
//	crc = rocewire.Update(crc, b[h.Len():])
//	b = rocewire.AppendICRC(b, crc)
//
// To parse a packet, use [Path.Check] and [Header.Decode].
package rocewire
