// Package channel is one generation of a verbs channel to one peer as a pure
// state machine: both the asker's and the sender's side, since a channel carries
// both directions (ARCHITECTURE.md section 5, PROTOCOL.md section 8). It does no
// I/O, has no lock, no goroutine and no clock. Its methods are the events; Actions
// gives what is to be done about them.
//
// A receive, at the asker (left) and at the sender (right):
//
//  1. Known, Receive(early destination or none)
//  2. ActPost REQUEST ───────────────────────────► Message → ActRequest
//  3. Answer(value and its source, or error)
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
//  6. Finish; ids ride on the next message ──────► Message → ActAcked
//
// The states of a channel:
//
//	        Ready or HELLO              Leave, Bye said or taken, a fault     Destroyed
//	opening ──────────────► up ──────────────────────────────────────► leaving ────────► gone
//
// An opening channel posts nothing. A leaving one posts nothing either, but what
// still comes in counts: answers, and the peer's ACK and CANCEL. ActClose
// tells the shell of every way into leaving but Leave itself. When the queue pairs
// have been destroyed, Destroyed gives back what has not ended.
//
// The shell holds one lock from the event to the last post. It may pass many
// events (a batch of completions) before it calls Actions once: what is posted for
// them then goes in one list and says counts once. Actions are carried out in
// order. Those that call out of the package (ActRequest, ActAcked, ActCancelled,
// ActDetach, ActEnd, ActPlace) may be carried out after the lock was given up, in
// order among themselves; what they refer to in a message has to be copied before.
//
// Nothing that a peer says makes the machine panic. What cannot be is answered by
// the end of the channel with a reason that names it; what comes late for a receive
// that has ended is dropped.
package channel
