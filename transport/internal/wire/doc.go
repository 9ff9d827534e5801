// Package wire has the messages of a verbs channel, byte for byte as PROTOCOL.md
// section 8 writes them: one kind a file, each with Append, Length and Parse.
//
//	0       1     2      3       4         8          10        12
//	version kind  flags  counts  length    finished   zero      counts × 4   finished × 8   body
//
// Numbers are little-endian. What Parse returns refers to the bytes that it was
// given and copies nothing: it is good as long as they are. No length of a peer is
// used before it has been compared with the bytes that are there, and none makes
// Parse allocate, save for an error's text.
package wire
