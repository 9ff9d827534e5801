package overview

import "time"

const (
	// interval is how often traffic is counted, and historyIntervals how many rates of a route are kept: five minutes.
	interval         = time.Second
	historyIntervals = 300

	// rateIntervals is over how many intervals the rate of a peer is taken. Large tensors count when they have come, so a
	// rate over one interval would jump.
	rateIntervals = 5

	// fresh is how old a snapshot may be that is served again. It bounds what a client costs that asks in a loop: a snapshot and
	// its encoding take a millisecond with 1,000 peers.
	fresh = 200 * time.Millisecond

	// maxWarnings is how many lines of the log are kept, with at most maxAttributes pairs and texts of maxText bytes.
	maxWarnings   = 100
	maxAttributes = 16
	maxText       = 400
)
