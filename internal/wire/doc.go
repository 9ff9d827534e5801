// Package wire encodes and decodes the messages of a verbs channel (PROTOCOL.md
// section 8). Each kind has its own file, with Append, Length and Parse.
//
//	0       1     2      3       4         8          10        12
//	version kind  flags  counts  length    acks       zero      counts × 4   acks × 8   body
//
// Numbers are little-endian. Parse copies nothing: the parsed message refers to the
// bytes that were passed to Parse, and is valid as long as they are. Parse compares every
// length with the number of bytes present before it uses it, and allocates only for the
// text of an error.
package wire
