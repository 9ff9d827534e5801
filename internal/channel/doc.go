// Package channel is a channel of transport/verbs to one peer, as a pure state machine
// (PROTOCOL.md section 8). Both sides of a channel are requester and responder. The package has
// no I/O, locks, goroutines or clocks. Methods of Channel are the events; Actions returns what to
// do about them.
//
// A receive, at the requester (left) and at the responder (right):
//
//  1. CachedMeta, Receive(early destination or none)
//  2. ActPost REQUEST ───────────────────────────► Message → ActRequest
//  3. Respond(value and its source, or error)
//     4a. small, dead, empty:       Message ◄──────── ActPost EAGER, ActDrop
//     → ActEnd with the content
//     4b. early destination fits:   (5)
//     4c. else:                     Message ◄──────── ActPost META
//     → ActPlace; Place or NoPlace
//     ActPost REREQUEST ────────────────────────► Message
//     (before 5: a source that is not registered) → ActStage; Staged or NotStaged
//  5. (memory) ◄─────── ActPost WRITE, in chunks
//     Imm ◄──────────── ActPost WRITE_WITH_IMM, last on each rail
//     → ActEnd with the destination                Sent → ActDrop
//  6. Ack; ids travel with the next message ─────► Message → ActAcked
//
// 4a and errors take one round trip, 4b one and the transfer, 4c two and the transfer. A
// request that waits for its value at the responder holds a record there, and no credit.
// Content is cut into writes of bounded size, so that a large tensor does not hold up a small
// one. Over TCP it has rails of its own (Config.Apart).
//
// The states of a channel:
//
//	        Ready or HELLO              Leave, BYE sent or received, a fault     Destroyed
//	opening ──────────────► up ─────────────────────────────────────────► leaving ────────► gone
//
// An opening channel posts nothing. A leaving channel posts nothing either, but still
// processes what arrives: responses, ACK and CANCEL. ActClose reports every transition to
// leaving except that by Leave. Destroyed, the event that the queue pairs are destroyed,
// returns every receive, destination and source that has not ended.
//
// The shell holds one lock from an event to the last post, so nothing for a request is posted
// after its CANCELLED, ERROR or last write. It may pass many events (a
// batch of completions) before one call of Actions: then everything is posted in one list
// and the counts are sent once. The shell carries out the actions in order. It may carry
// out those that call other packages (ActRequest, ActAcked, ActCancelled, ActDetach,
// ActEnd, ActPlace) after it has released the lock, in order among themselves; it must
// copy what they refer to in a message before.
//
// No message of a peer makes the package panic. An invalid message closes the channel with
// an error that says what was wrong. A message for a receive that has ended is dropped
// (PROTOCOL.md section 8.6).
//
// SearchCopy and AppendSearchState (search.go) are for tests alone, and archtest lets nothing else call them.
// They are in no test file because the tests of package delivery search channels and ledger together,
// and Go shows the test files of a package to no other package.
package channel
