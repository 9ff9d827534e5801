package route

import "fmt"

// Act is the kind of an action.
type Act uint8

// The actions. The caller carries them out in the order in which the router returned them.
const (
	// Maintain keeps a channel over Route up: handshake.Machine.Maintain.
	Maintain Act = iota + 1
	// Rest makes no channel over Route any more. An offer that no channel has been made of ends;
	// a channel that is up stays until Leave: handshake.Machine.Rest.
	Rest
	// Leave ends the channel over Route because of Err, once what flows over it has come. A
	// better one is up. Down with a nil error follows.
	Leave
	// Ask calls the peer without queue pairs and with the inventory of this side
	// (handshake.Inquiry, Router.Inventory). Answered follows.
	Ask
)

// Action is one thing for the caller to do. Kind and Err are zero where the comment of its Act
// does not name them.
type Action struct {
	Act   Act
	Route Route
	Err   error
}

func (a Action) String() string {
	switch a.Act {
	case Maintain:
		return fmt.Sprintf("maintain %v", a.Route)
	case Rest:
		return fmt.Sprintf("rest %v", a.Route)
	case Leave:
		return fmt.Sprintf("leave %v: %v", a.Route, a.Err)
	case Ask:
		return "ask"
	}
	return "nothing"
}
