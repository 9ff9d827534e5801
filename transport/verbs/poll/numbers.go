package poll

import "time"

const (
	// DefaultBatch is how many completions one poll takes: one crossing into C
	// for a burst, and no longer than a waiter should wait for its own.
	DefaultBatch = 64

	// checkEvery is how many polls a spinning goroutine makes before it looks
	// at the clock and its context: these cost as much as some polls each.
	checkEvery = 16

	// yieldAfter is how long a spinning goroutine keeps its processor until it lets
	// others of the process run. To let them is dear where it is not needed: while a
	// processor of Go's is idle it wakes a thread to look for work there (goschedImpl of
	// runtime/proc.go), by a futex, and where there are as many processes as processors
	// that thread runs in place of who spins. Where none is idle others wait as long for
	// this one, less than Go lets everybody compute in a row (10 ms); after those, Go's
	// monitor would take it by a signal. On one processor nobody else would run at all, so
	// there others are let at each look.
	//
	// At the first look after a batch they are let, too, where it has made somebody ready
	// (Rouse) or, in ModeAdaptive, others compute (budget.pressed). Not after every batch:
	// where a receive took longer than usual there was a look, the thread that it woke made
	// the next receive take longer, and so on. On two emulated processors each such
	// disturbance so went on for four or five receives, and a third of all were in one.
	yieldAfter = 8 * time.Millisecond

	// Who spins for lateTimes what it took of late, and leastLate at the least, has the
	// kernel run other processes at each look, if any wait for this processor: one of
	// them may be the peer. Without that, two that came to share a processor take turns
	// by the kernel's slices of some milliseconds, until it moves one of them.
	// In ModeBusy, where nobody learns how long it takes, they are let run after busyLate:
	// to ask the kernel within a usual wait made a receive 5 to 25 % longer on an
	// emulated processor.
	lateTimes = 2
	leastLate = 50 * time.Microsecond
	busyLate  = 200 * time.Microsecond

	// maxEmptyPolls ends spinning in ModeAdaptive whatever the clock says: at
	// 40 ns each, the least that a poll through cgo takes, longer than
	// maxSpin. It is for time that stands still (testing/synctest).
	maxEmptyPolls = 1 << 17

	// The longest spin in ModeAdaptive is spinArms times what arming costs here,
	// within these limits. To sleep and be woken costs some ten times as much as
	// to arm on a NIC, and 100 times as much on an emulated processor, where two
	// sides that sleep take 2 ms for a receive, and 0.5 ms where both spin: with
	// less than that none would ever learn that it pays.
	spinArms = 400
	minSpin  = 50 * time.Microsecond
	maxSpin  = 4 * time.Millisecond

	// armTries is how often arming is measured; the least counts.
	armTries = 4

	// stepParts: a sample moves what is expected by an eighth.
	stepParts = 8

	// Where spinning has not paid, triesInRow waits spin after minRest that
	// slept, then after twice as many each time, up to maxRest. A spin takes no
	// longer than what it is tried for would have to come in, so the tries cost
	// at most a quarter of a processor at first and 1 in 256 of it at last. Four
	// in a row are enough to meet those of a peer whose waits follow ours one by
	// one.
	triesInRow = 4
	minRest    = 16
	maxRest    = 1024

	// A yield that took longer than slowYield, or slowArms times what arming costs,
	// let others compute: the machine is busy.
	slowYield = 20 * time.Microsecond
	slowArms  = 20

	// The pressure of a busy machine halves the budget at each step; at
	// maxPressure nothing is left of it. It sinks by one after calmWaits waits
	// without a slow yield, so that it stays low where fewer than one of five has one.
	maxPressure = 6
	calmWaits   = 4
)
