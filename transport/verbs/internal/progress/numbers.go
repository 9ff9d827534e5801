package progress

import "time"

const (
	// DefaultBatch is how many completions one poll takes: one crossing into C
	// for a burst, and no longer than a waiter should wait for its own.
	DefaultBatch = 64

	// spinFor is how long a goroutine spins in ModeAdaptive without a completion: some
	// times what sleeping and being woken by an event costs (5 to 20 µs). So a wait
	// takes at most a few times the processor time of the best choice, whichever that
	// is.
	spinFor = 50 * time.Microsecond

	// checkEvery is how many polls a spinning goroutine makes before it looks at the
	// clock and its context: these cost as much as some polls each.
	checkEvery = 16

	// yieldEvery is how many polls a spinning goroutine makes before it lets other
	// goroutines run, which may wait for its processor: 10 to 25 µs. A multiple of
	// checkEvery.
	yieldEvery = 256

	// maxEmptyPolls ends spinning in ModeAdaptive whatever the clock shows, for time
	// that stands still (testing/synctest). It takes longer than spinFor: a poll takes
	// 40 ns or more, and a look for the baton some ns.
	maxEmptyPolls = 1 << 16
)
