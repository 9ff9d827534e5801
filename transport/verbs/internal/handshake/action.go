package handshake

import "fmt"

// Kind says what an action asks for.
type Kind uint8

// The actions. The shell carries them out one after another, in the order in
// which the machine gave them, also across events.
const (
	// Make asks for an offer of Generation: queue pairs in INIT with all receives
	// posted. Made or MakeFailed follows.
	Make Kind = iota + 1
	// Destroy ends what belongs to ID, with Err as the reason: an offer, or
	// a channel, which is left in the order of ARCHITECTURE.md section 6, rule b.
	// There is exactly one for each Made, also after Broken. With Left the peer has
	// left the channel: nobody would hear a BYE.
	Destroy
	// Connect takes the queue pairs of ID to RTS, with those of Offer at
	// their other ends. Connected or ConnectFailed follows.
	Connect
	// Open lets the channel of ID send. The first message is HELLO.
	Open
	// Call shows Offer, ours, to the peer. Answered follows, with Call, within
	// CallTimeout. A call that is still under way is of no use any more.
	Call
	// Answer answers the request Request with Offer, ours.
	Answer
	// Refuse answers the request Request with Err, a *status.Error.
	Refuse
)

// Action is something for the shell to do. The fields that its Kind does not name
// are zero.
type Action struct {
	Kind Kind
	// ID names an offer of this side among all that a machine has asked for. It is
	// never used again; a generation is, with another process of the peer.
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
	case Answer:
		return fmt.Sprintf("answer request %d with %v", a.Request, a.Offer)
	case Refuse:
		return fmt.Sprintf("refuse request %d: %v", a.Request, a.Err)
	}
	return "nothing"
}
