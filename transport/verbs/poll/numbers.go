package poll

import "time"

const (
	// DefaultBatch is how many completions one poll takes: one crossing into C
	// for a burst, and no longer than a waiter should wait for its own.
	DefaultBatch = 64

	// checkEvery is how many polls a spinning goroutine makes before it looks
	// at the clock and its context and lets others run: these cost as much as
	// some polls each.
	checkEvery = 16

	// maxEmptyPolls ends spinning in ModeAdaptive whatever the clock says: at
	// 40 ns each, the least that a poll through cgo takes, longer than
	// maxSpin. It is for time that stands still (testing/synctest).
	maxEmptyPolls = 1 << 15

	// The longest spin in ModeAdaptive is spinArms times what arming costs here,
	// within these limits. To sleep and be woken costs some ten times as much as
	// to arm; spinning a few times longer than that is well spent when the
	// completion comes, and little when not. On an emulated processor all of it
	// takes ten times as long.
	spinArms = 50
	minSpin  = 50 * time.Microsecond
	maxSpin  = time.Millisecond

	// graceArms times what arming costs, between minSpin and maxGrace, is how long a
	// queue stays as it was when a waiter has left it: the next one, as a rule, comes
	// before, and armed for each the queue would have an event with each, which nobody
	// needs and which wakes a thread. On two emulated processors receives in ModeBusy
	// so were 470 to 870 in a second, and with it 1,120 to 1,690.
	graceArms = 400
	maxGrace  = 4 * time.Millisecond

	// armTries is how often arming is measured; the least counts.
	armTries = 4

	// ewmaParts: a new sample counts one eighth.
	ewmaParts = 8

	// Where spinning has not paid, triesInRow waits spin after minRest that
	// slept, then after twice as many each time, up to maxRest. A spin takes no
	// longer than what it is tried for would have to come in, so the tries cost
	// at most a quarter of a processor at first and 1 in 256 of it at last. Four
	// in a row are enough to meet those of a peer whose waits follow ours one by
	// one.
	triesInRow = 4
	minRest    = 16
	maxRest    = 1024

	// A yield that took longer than slowYield let others compute: the
	// machine is busy.
	slowYield = 20 * time.Microsecond

	// The pressure of a busy machine halves the budget at each step; at
	// maxPressure nothing is left of it. It sinks by one after calmWaits waits
	// without a slow yield.
	maxPressure = 6
	calmWaits   = 16
)
