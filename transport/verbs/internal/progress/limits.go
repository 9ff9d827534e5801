package progress

import "time"

const (
	// DefaultBatch is how many completions one poll returns. A burst takes one cgo call,
	// and handling a batch does not delay a waiter for long.
	DefaultBatch = 64

	// spinFor is how long a goroutine spins in ModeAdaptive without a completion: a few
	// times what sleeping and being woken by an event costs (5 to 20 µs). So a wait takes
	// at most a few times the processor time of the better of the two choices.
	spinFor = 50 * time.Microsecond

	// drivenSpin is the same on a queue whose polls do the work of the device: sleeping and
	// being woken includes the goroutine of the device and, in a virtual machine, a
	// processor that had no work, 50 to 100 µs in all. busySpin is its time in ModeBusy.
	drivenSpin = 100 * time.Microsecond
	busySpin   = time.Millisecond

	// checkEvery is how many polls a spinning goroutine makes before it checks the clock
	// and its context, each of which costs as much as a few polls.
	checkEvery = 16

	// yieldEvery is how many polls a spinning goroutine makes, in 10 to 25 µs, before it
	// yields to goroutines that wait for its processor. A multiple of checkEvery.
	yieldEvery = 256

	// maxEmptyPolls ends spinning in ModeAdaptive when the clock stands still
	// (testing/synctest). With a running clock spinFor ends first: a poll takes 40 ns or
	// more, and a check for the token a few ns.
	maxEmptyPolls = 1 << 16
)
