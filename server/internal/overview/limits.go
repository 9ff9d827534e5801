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

	// lookInterval is how often the signs of peers are looked at while somebody reads the status, and lookFor how long that is
	// after the last request: the readers of this project ask each second or more often.
	lookInterval = 200 * time.Millisecond
	lookFor      = 3 * time.Second
	// probeAfter is how long nothing comes from a peer before it is probed, and doubtAfter how long after a probe it is in doubt: two
	// lookIntervals each, less a quarter, since ticks are not exact. At the next look it is silent. So a peer that stops is silent
	// within 1.2 s, and an answer may take a round trip and the time that a busy process needs for it, 0.4 s at least.
	probeAfter = 2*lookInterval - lookInterval/4
	doubtAfter = probeAfter
	// unsentAfter is how long nobody waits for a probe that its connection does not let be sent: the peer allows no more calls.
	unsentAfter = lookInterval - lookInterval/4
	// maxProbes is how many probes begin at once, in each lookInterval. So 300 peers that are idle are all seen in time, and
	// 1,000 cost 640 small calls a second. The first request after a pause sees all that are silent of three times as many.
	maxProbes = 128
	// firstWait is how long the first requests after a pause wait at most, until the peers have answered or are silent.
	firstWait = 6 * lookInterval

	// maxWarnings is how many lines of the log are kept, with at most maxAttributes pairs and texts of maxText bytes.
	maxWarnings   = 100
	maxAttributes = 16
	maxText       = 400
)
