package handshake

import "fmt"

// Kind is the kind of an action.
type Kind uint8

// The actions. The caller carries them out one after another, in the order in which
// the machine returned them, also across events.
const (
	// Make asks for an offer of Generation: queue pairs in INIT with all receives
	// posted. Made or MakeFailed follows.
	Make Kind = iota + 1
	// Destroy destroys the offer or channel of ID, with Err as the reason. A channel is
	// torn down in the order of ARCHITECTURE.md section 6, rule b. There is exactly one
	// Destroy for each Made, also after Broken. With Left the peer has already left the
	// channel and would not receive a BYE.
	Destroy
	// Connect brings the queue pairs of ID to RTS, connected to those of Offer. Connected or ConnectFailed follows.
	Connect
	// Open lets the channel of ID send. The first message is HELLO.
	Open
	// Call calls the peer with Offer, which is this side's. CallDone with the number Call
	// follows within CallTimeout. The outcome of an earlier call does not count any more.
	Call
	// Respond sends Offer, which is this side's, as the response to Request.
	Respond
	// Refuse sends Err, a *status.Error, as the response to Request.
	Refuse
)

// Action is one thing for the caller to do. Fields that the comment of its Kind does not
// name are zero.
type Action struct {
	Kind Kind
	// ID is the number of an offer of this side, never used twice by a machine.
	// Generations start again with another process of the peer.
	ID         uint64
	Generation uint64
	Offer      Offer
	Call       uint64
	Request    uint64
	Err        error
	Left       bool
}

func (a Action) String() string {
	switch a.Kind {
	case Make:
		return fmt.Sprintf("make generation %d", a.Generation)
	case Destroy:
		return fmt.Sprintf("destroy generation %d: %v", a.Generation, a.Err)
	case Connect:
		return fmt.Sprintf("connect generation %d to %v", a.Generation, a.Offer)
	case Open:
		return fmt.Sprintf("open generation %d", a.Generation)
	case Call:
		return fmt.Sprintf("call %d with %v", a.Call, a.Offer)
	case Respond:
		return fmt.Sprintf("respond to request %d with %v", a.Request, a.Offer)
	case Refuse:
		return fmt.Sprintf("refuse request %d: %v", a.Request, a.Err)
	}
	return "nothing"
}
