package route

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
)

const (
	// MinBackoff is how long a route is not tried after its first failure, while another one is
	// possible. Further failures double it, up to MaxBackoff: each trial makes queue pairs on
	// both sides.
	MinBackoff = 10 * time.Second
	// MaxBackoff is the longest such time.
	MaxBackoff = 5 * time.Minute
	// ChangeBack is how long a route is not tried after it has failed, at least, if there is a
	// worse route. A route that flaps must not take its receives back and forth.
	ChangeBack = 30 * time.Second
	// Steady is how long a route must have been up for its next failure to count as the first.
	Steady = 30 * time.Second
	// Grace is how long the side that does not propose waits for the proposal of another route
	// before it calls the peer by that route itself.
	Grace = 5 * time.Second
	// AskEvery is the least time between two calls that ask the peer for its inventory.
	AskEvery = time.Second
	// RefreshEvery is the least time between two such calls of a process that the peer cannot
	// call, while it receives and a better route may come. It learns of it only by asking.
	RefreshEvery = 5 * time.Second
	// MinAskBackoff is the wait after the first call that failed.
	MinAskBackoff = handshake.MinBackoff
	// MaxAskBackoff bounds the wait, which doubles with each further one.
	MaxAskBackoff = handshake.MaxBackoff
)

// MaxBackoff and a rounding have to fit an inventory.
const _ = uint(handshake.MaxFailedFor - 2*MaxBackoff)
