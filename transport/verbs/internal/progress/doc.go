// Package progress handles the completions of one completion queue. A goroutine that
// waits for a completion polls for all waiters. So a completion reaches its waiter
// without a change of goroutines, which costs more than the network does.
//
// The right to poll is a token under a lock. At every instant
//
//   - a goroutine holds it, or
//   - the queue is armed, was found empty after arming, and its poller goroutine
//     sleeps until the queue's next event.
//
// So no completion is lost, and none is handled twice.
//
//	          enters, token free                 own completion handled, context
//	waiter ───────────────────────► polls ──┐    or spin ended
//	   │ token taken                  ▲      ├──────► to a waiter that spins
//	   ▼                              │      ├──────► none spins: arm, poll until
//	spins, for some time ─────────────┘      │        empty, leave
//	   │          handed over                └──────► none spins, too much to do:
//	   ▼ time is over                                  wakes the poller
//	parks until Waiter.Done or its context ends (is never handed the token)
//
//	poller: sleeps ── event ──► token free: polls, as above
//	                       └──► taken: notes that an event came, sleeps again
//
// An event that arrives while the token is held has used up the arming, so the holder
// arms again before it leaves.
//
// The state machine is in token.go, without goroutines, clocks and queues; a test plays
// it in every order of steps. Time decides only how long a goroutine spins (spin.go), and
// so which goroutine polls.
//
// A software device may call a function for its events (verbs.CallbackCQ). Then the
// device's goroutine polls in place of the poller, and no goroutine spins. If polls do the
// work of the device (verbs.DrivenCQ), a waiter spins: it disarms the queue, and with that
// the device's goroutine and the peer's doorbell rest until it arms the queue again. The
// poller never spins there.
//
// A goroutine that would only sleep can have a function called instead (Waiter.Watch).
//
// # Virtual time
//
// While a goroutine spins, the time of testing/synctest stands still. In ModeEvent no
// goroutine spins. In ModeAdaptive spinning also ends after a number of polls. In
// ModeBusy it never ends.
package progress
