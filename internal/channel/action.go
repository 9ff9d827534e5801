package channel

import (
	"fmt"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Dest is memory at the requester into which a content is written.
type Dest struct {
	// First is the rail that carries the first share; see RailOf.
	First uint8
	// Rails has, for each rail that carries a share, the address and key of the first
	// byte of the content.
	Rails [wire.MaxRails]wire.Remote
	// Handle identifies it in the shell.
	Handle uint64
}

// Source is memory at the responder from which a content is written.
type Source struct {
	// Handle identifies it in the shell. It is not 0 for a value with content.
	Handle uint64
}

// ActionKind is the kind of an Action.
type ActionKind uint8

// The kinds. Each names the fields of Action that it uses.
const (
	// ActEnd ends a receive: ID, Attempt, Handle, Outcome and the fields of that
	// outcome. Each Receive gets exactly one, unless Cancel returned true.
	ActEnd ActionKind = iota
	// ActFree returns the destination Dest: nothing is written into it from now on. Each
	// destination gets exactly one ActFree, or ActEnd with OutcomeWritten, which says that
	// the value is in it. ActFree comes before the ActEnd of its receive, but after a cancel
	// that the peer has to confirm first.
	ActFree
	// ActRepost posts Count receives of Rail again: those of earlier events Message and
	// Imm. The actions before it are the last that need their bytes. It precedes every
	// ActPost whose counts report it.
	ActRepost
	// ActPost posts Post on Post.Rail.
	ActPost
	// ActPlace requests a destination for Value.Size bytes: ID, Attempt, Handle, Value
	// (refers to the message). The shell answers by Place or NoPlace, now or later.
	ActPlace
	// ActRequest passes a request of the peer to the response cache: Request. The shell
	// answers by Respond, now or later. If Request.Left is not 0, the shell leaves that
	// generation first (ARCHITECTURE.md section 6, rule c).
	ActRequest
	// ActStage requests a copy of the content of a request in registered memory, because
	// its destination is now known: ID, Attempt, Source. The shell answers by Staged or
	// NotStaged, now or later.
	ActStage
	// ActDetach ends a request without its response, because the channel was left: ID,
	// Attempt. It does not cancel the receive (delivery.ResponseCache.Detach).
	ActDetach
	// ActDrop releases Source: no work request uses it any more. Each source gets exactly
	// one.
	ActDrop
	// ActAcked passes on acknowledged ids from the peer: IDs (refers to the message).
	ActAcked
	// ActCancelled passes on the peer's CANCEL: IDs (refers to the message).
	ActCancelled
	// ActTaken reports which acks and cancels the peer has taken: Taken. It comes when a
	// mark returned by Ack or SendCancels is reached.
	ActTaken
	// ActUp reports that the peer's HELLO has arrived: the channel carries both
	// directions.
	ActUp
	// ActClose closes the channel because of Err. The shell moves the queue pairs to ERR,
	// polls their completions for at most 1 s, passes them on by Message and Imm,
	// destroys the queue pairs, and calls Destroyed.
	ActClose
)

var actionNames = [...]string{
	"end", "free", "repost", "post", "place", "request", "stage", "detach", "drop", "acked", "cancelled", "taken", "up", "close",
}

func (k ActionKind) String() string { return actionNames[k] }

// Action is one thing for the shell to do. Its slices are valid until the next call of
// Actions; those that refer to a message, as long as the bytes of the message are.
type Action struct {
	Kind ActionKind

	ID      uint64
	Attempt uint32
	Handle  uint64 // with ActEnd and ActPlace: of the receive
	Outcome Outcome
	ByPeer  bool // with OutcomeFallback and OutcomeError: the peer sent it
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

// The outcomes. After OutcomeFallback and OutcomeLost delivery.Requester sends the request
// again, with the next attempt.
const (
	// OutcomeEager is a value that arrived in EAGER: Value, Content (empty when the value
	// is dead or empty).
	OutcomeEager Outcome = iota
	// OutcomeWritten is a value that was written into Dest: Value, Dest. The destination
	// belongs to the shell again.
	OutcomeWritten
	// OutcomeError is an error of the peer, or a local one that gRPC would not avoid
	// (ResourceExhausted): Err, a *status.Error.
	OutcomeError
	// OutcomeFallback is a receive that this channel cannot carry: Err. Its key does not
	// fit, or there was no memory here (NoPlace) or at the peer. It goes over gRPC.
	OutcomeFallback
	// OutcomeLost is a receive that had no response when the channel was left: Err. The
	// next attempt gives the generation that was left.
	OutcomeLost
)

var outcomeNames = [...]string{"eager", "written", "error", "fallback", "lost"}

func (o Outcome) String() string { return outcomeNames[o] }

// Post is a work request for the send queue of a rail.
type Post struct {
	Rail int
	// Slot is its place in the send queue, a ring of Config.SendQueue slots in the order
	// of posting. The shell passes the slot of a signalled work request to Sent when it
	// completes: then all before it have completed too.
	Slot     uint32
	Op       verbs.Opcode // OpSend, OpWrite, OpWriteImm
	Signaled bool

	// Message is the message (OpSend). With a Source, its first Length bytes follow. The
	// shell copies both when it posts them.
	Message []byte

	// Source, Offset and Length are the part of a content to write (OpWrite, OpWriteImm).
	// A probe has Length 0, RemoteAddr 0, RKey 0 and no source.
	Source     Source
	Offset     uint64
	Length     uint32
	RemoteAddr uint64
	RKey       verbs.RKey
	Imm        uint32
}

// Request is a request of the peer.
type Request struct {
	ID      uint64
	Attempt uint32
	// Responder is the incarnation that the request is for. If it is not that of this
	// process, the shell responds with transport.OtherProcess.
	Responder uint64
	Left      uint64 // generation that the requester has left; 0 for none
	Step      int64
	Key       []byte // refers to the message
}

// Receive is one attempt of one receive.
type Receive struct {
	ID        uint64 // not 0
	Attempt   uint32 // not 0
	Handle    uint64 // identifies it in the shell
	Responder uint64 // incarnation of the process that has the value
	Left      uint64 // highest generation of the channel that was left; 0 for none
	Step      int64
	Key       string
	// Acks are acknowledged ids. They travel with the request or before it, so a
	// response to the request confirms that the peer has taken them.
	Acks []uint64
	// Early, when not nil, is a destination for a value like Value, which CachedMeta
	// returned.
	Early *Dest
	Value wire.Value
}

// Response is the responder's reply to a request: a value or an error.
type Response struct {
	// Value describes the value, Source has its content. Work requests use the source
	// until ActDrop. A dead or empty value may have none (Handle 0).
	Value  wire.Value
	Source Source
	// Unregistered is set when Source is not registered memory: then it is staged before
	// it is written (ActStage).
	Unregistered bool
	// Err is why there is no value. Its code is not OK.
	Err *status.Error
	// Fallback is set when there is a value that this channel cannot carry, because no
	// registered memory is left: the requester repeats the request over gRPC. Err has
	// the reason.
	Fallback bool
}

// Mark is a number of acknowledged or of cancelled ids that were queued since the channel began.
type Mark uint64

// Marks are the numbers of acks and of cancels that the peer has taken.
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
		return fmt.Sprintf("request %x.%d %s", a.Request.ID, a.Request.Attempt, a.Request.Key)
	case ActFree:
		return fmt.Sprintf("free destination %d", a.Dest)
	case ActDrop:
		return fmt.Sprintf("drop source %d", a.Source.Handle)
	case ActAcked, ActCancelled:
		return fmt.Sprintf("%v %x", a.Kind, a.IDs.AppendTo(nil))
	case ActTaken:
		return fmt.Sprintf("taken %d acks, %d cancels", a.Taken.Acks, a.Taken.Cancels)
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
