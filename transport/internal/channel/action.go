package channel

import (
	"fmt"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// Dest is memory on the asker's side into which a content is written.
type Dest struct {
	// First is the rail that carries the first share; see RailOf.
	First uint8
	// Rails has where it begins for each rail that carries a share. Its length is
	// that of the content.
	Rails [wire.MaxRails]wire.Remote
	// Handle is the shell's own name for it.
	Handle uint64
}

// Source is memory on the sender's side out of which a content is written.
type Source struct {
	// Handle is the shell's own name for it, never 0 for a value.
	Handle uint64
}

// ActionKind says what is to be done.
type ActionKind uint8

// What is to be done. For each kind the fields that have a meaning are named;
// Post is for ActPost only.
const (
	// ActEnd ends a receive: ID, Attempt, Outcome and what goes with it.
	// Exactly one comes for each Receive, unless Cancel returned true.
	ActEnd ActionKind = iota
	// ActFree gives back Dest, which has no receive any more: nothing is
	// written into it from now on. Exactly one ActFree or ActEnd comes for
	// each destination given (with OutcomeWritten the value is in it).
	ActFree
	// ActRepost posts Count receives of Rail again: those of the last events
	// Message and Imm, whose bytes are not needed once the actions before
	// this one have been carried out. It stands before every ActPost that
	// tells the peer of it.
	ActRepost
	// ActPost posts Post on Post.Rail.
	ActPost
	// ActPlace wants a destination for Value.Size bytes: ID, Attempt, Value
	// (refers to the message). The answer is Place or NoPlace, now or later.
	ActPlace
	// ActRequest asks the table of answers: Ask. The answer is Answer. If
	// Ask.Left is not 0, that generation is left first (ARCHITECTURE.md 6c).
	ActRequest
	// ActStage wants the content of a request in registered memory, since its
	// destination is known: ID, Attempt, Source, which lies elsewhere. The answer is
	// Staged or NotStaged, now or later.
	ActStage
	// ActDetach says that nobody waits for the answer to ID, Attempt on this
	// channel any more: it was left (transport.Call.Detach). No cancel.
	ActDetach
	// ActDrop lets go the channel's reference to Source: no work request
	// names it any more. Exactly one comes for each source given.
	ActDrop
	// ActAcked passes the peer's ACK on: IDs (refers to the message).
	ActAcked
	// ActCancelled passes the peer's CANCEL on: IDs (refers to the message).
	ActCancelled
	// ActTaken says how far the peer has taken what was said: Taken. It comes
	// when it has passed a mark that Finish or SendCancels gave.
	ActTaken
	// ActUp says that HELLO has come: the channel carries both ways.
	ActUp
	// ActClose says that the channel is to be left, because of Err: the queue
	// pairs go to ERR, what was posted is polled, 1 s at most, and passed
	// on by Message and Imm; they are destroyed; then Destroyed.
	ActClose
)

var actionNames = [...]string{
	"end", "free", "repost", "post", "place", "ask", "stage", "detach", "drop", "finished", "cancelled", "taken", "up", "close",
}

func (k ActionKind) String() string { return actionNames[k] }

// Action is one thing for the shell to do. Slices in it are good until Actions is
// called again, and those that refer to a message as long as its bytes are.
type Action struct {
	Kind ActionKind

	ID      uint64
	Attempt uint32
	Handle  uint64 // with ActEnd and ActPlace: the receive's
	Outcome Outcome
	ByPeer  bool // with OutcomeFallback and OutcomeError: it is the peer that cannot
	Value   wire.Value
	Content []byte // with OutcomeEager: Value.Size bytes in the message
	Dest    uint64 // the Handle of a destination
	Source  Source
	Err     error

	Rail  int
	Count int
	Post  Post

	Request Request
	IDs     wire.IDs
	Taken   Marks
}

// Outcome is how a receive ended on this channel.
type Outcome uint8

// The outcomes. One that did not bring a value or the peer's error is asked again
// by delivery.Requester.
const (
	// OutcomeEager is a value that came in a message: Value, Content (empty
	// when the value is dead or empty).
	OutcomeEager Outcome = iota
	// OutcomeWritten is a value that was written into Dest: Value. The
	// destination is the shell's again, with the value in it.
	OutcomeWritten
	// OutcomeError is the peer's own error, or ours that no other wire would
	// mend (ResourceExhausted): Err, a *status.Error.
	OutcomeError
	// OutcomeFallback is a receive that this wire cannot carry, Err tells
	// why: its key does not fit, there was no memory here (NoPlace) or at
	// the peer. It is to be asked over another wire, with the next attempt.
	OutcomeFallback
	// OutcomeLost is a receive that had no answer when the channel was left:
	// Err. It is to be asked again, with the next attempt, naming the
	// generation that was left.
	OutcomeLost
)

var outcomeNames = [...]string{"eager", "written", "error", "elsewhere", "lost"}

func (o Outcome) String() string { return outcomeNames[o] }

// Post is a work request for the send queue of a rail.
type Post struct {
	Rail int
	// Slot is its place in the send queue, from 0, below Config.SendQueue: a
	// ring in the order of posting. Sent gives it back for a signalled one,
	// which tells that all before it have ended too.
	Slot     uint32
	Op       verbs.Opcode // OpSend, OpWrite, OpWriteImm
	Signaled bool

	// Message is what is sent (OpSend). With a Source, Length bytes of it
	// from 0 on follow; they are copied when it is posted.
	Message []byte

	// Source, Offset and Length are what is written (OpWrite, OpWriteImm). A
	// probe has Length 0, RemoteAddr 0, RKey 0 and no source.
	Source     Source
	Offset     uint64
	Length     uint32
	RemoteAddr uint64
	RKey       verbs.RKey
	Imm        uint32
}

// Ask is a request of the peer.
type Request struct {
	ID      uint64
	Attempt uint32
	// Sender is the incarnation of the process that is asked. When it is not
	// ours, Answer with transport.OtherProcess.
	Responder uint64
	Left      uint64 // generation that the asker left; 0 for none
	Step      int64
	Key       []byte // refers to the message
}

// Receive is one attempt of one receive.
type Receive struct {
	ID        uint64 // not 0
	Attempt   uint32 // not 0
	Handle    uint64 // the shell's own name for it
	Responder uint64 // incarnation of the process that is asked
	Left      uint64 // generation of the channel that was left before; 0 for none
	Step      int64
	Key       string
	// Finished ride on the request, or go before it: when the request has
	// been answered they have been taken. Kept until the request is posted.
	Acks []uint64
	// Early, when not nil, is a destination for a value like the one that
	// Known told, which Value repeats.
	Early *Dest
	Value wire.Value
}

// Answer is what the sender's side has for a request: a value or an error.
type Response struct {
	// Value and Source are the value. The source is named by work requests
	// until ActDrop. A dead or empty value may have none (Handle 0).
	Value  wire.Value
	Source Source
	// Unregistered says that Source is memory that no device reads: what is written
	// from it is staged first (ActStage).
	Unregistered bool
	// Err is why there is no value; its code is not OK.
	Err *status.Error
	// Elsewhere says that the value is there, but this wire cannot carry it
	// (no registered memory left): Err says why to a person.
	Fallback bool
}

// Mark counts the ids that were given to be said since the channel began.
type Mark uint64

// Marks are how far the peer has taken what Finish and SendCancels were given.
type Marks struct{ Acks, Cancels Mark }

func (a *Action) String() string {
	switch a.Kind {
	case ActEnd:
		return fmt.Sprintf("end %x.%d %v", a.ID, a.Attempt, a.Outcome)
	case ActPost:
		return fmt.Sprintf("post %v", &a.Post)
	case ActRepost:
		return fmt.Sprintf("repost %d on rail %d", a.Count, a.Rail)
	case ActPlace, ActStage, ActDetach:
		return fmt.Sprintf("%v %x.%d", a.Kind, a.ID, a.Attempt)
	case ActRequest:
		return fmt.Sprintf("ask %x.%d %s", a.Request.ID, a.Request.Attempt, a.Request.Key)
	case ActFree:
		return fmt.Sprintf("free destination %d", a.Dest)
	case ActDrop:
		return fmt.Sprintf("drop source %d", a.Source.Handle)
	case ActAcked, ActCancelled:
		return fmt.Sprintf("%v %x", a.Kind, a.IDs.AppendTo(nil))
	case ActTaken:
		return fmt.Sprintf("taken finish %d cancel %d", a.Taken.Acks, a.Taken.Cancels)
	case ActClose:
		return fmt.Sprintf("close: %v", a.Err)
	}
	return a.Kind.String()
}

func (p *Post) String() string {
	if p.Op == verbs.OpSend {
		kind, _ := wire.KindOf(p.Message)
		return fmt.Sprintf("%v on rail %d", kind, p.Rail)
	}
	s := fmt.Sprintf("%v on rail %d: source %d from %d, %d bytes", p.Op, p.Rail, p.Source.Handle, p.Offset, p.Length)
	if p.Op == verbs.OpWriteImm {
		s += ", " + wire.Imm(p.Imm).String()
	}
	return s
}
