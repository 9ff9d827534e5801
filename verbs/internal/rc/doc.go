// Package rc is one end of a reliable connection (RC): the part of a queue pair that is the same
// whatever carries its requests. A Machine takes work requests and what the peer has sent. It decides
// what may be sent, where content goes, and which work requests have ended. It has no goroutine,
// clock, socket or lock and copies no content. A carrier owns it and has these:
//
//	verbs/tcp        frames on a stream
//	verbs/shm        entries and copies in rings
//	verbs/verbstest  packets on a virtual wire
//
//	     requester (requester.go)                           responder (responder.go)
//	PostSend ─► Sendable, Sent ════════ carrier ════════► Begin ─► Place ─► Placed ─► completion
//	completion ◄── Acknowledge, Respond ◄══ carrier ══════ what was executed
//
// A carrier moves the content of a request in parts of any size, in order. It numbers what it sends,
// finds out what was lost or cannot be received yet, and measures time.
//
// Section numbers are those of the InfiniBand specification, volume 1.
package rc
