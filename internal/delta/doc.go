// Package delta encodes what differs between two versions of a tensor, chooses between a delta and
// the whole, and keeps the deltas of a publication.
//
//	old ┐                                                       ┌ base (version N)
//	    ├─► Encoder.Encode ──► header, block, block, … ──► Applier ─► dst (version N+1), digest checked
//	new ┘      │                                │
//	           └ Whole: nothing is gained       └ Chain: the deltas of the last versions
//
// A delta is a sequence of blocks of 256 KiB of the tensor. Each block has the smallest of four
// encodings: equal, sparse (gaps between changed elements, and their XORed values), XOR (with
// zstd, by byte planes), and the new bytes. So a delta is applied as its bytes come, and neither
// side holds more than a block of it beside the two versions. PROTOCOL.md section 13 has the bytes.
//
// The type of the elements does not matter, only their length in bytes (Unit). The package is pure:
// no clock, no socket, no goroutine.
package delta
