// Package progress takes the completions of one queue. Whoever waits for one polls
// for all; a completion then reaches its waiter without a change of goroutines,
// which costs more than the network does.
//
// The right to poll is a baton under a lock. At every instant
//
//   - somebody holds it, or
//   - the queue is armed, was found empty after arming, and its resident
//     goroutine sleeps until the queue's next event.
//
// So no completion is lost, and none is handled by two.
//
//	          enters, baton free                 own completion handled, context
//	waiter ───────────────────────► polls ──┐    or spin ended
//	   │ baton taken                  ▲      ├──────► to a waiter that spins
//	   ▼                              │      ├──────► nobody spins: arm, poll until
//	spins, for some time ─────────────┘      │        empty, leave
//	   │          handed over                └──────► nobody spins, too much to do:
//	   ▼ time is over                                  to the resident, which is woken
//	parks until Waiter.Done or its context ends (is never handed the baton)
//
//	resident: sleeps ── event ──► baton free: polls, as above
//	                         └──► taken: notes that an event came, sleeps again
//
// An event that comes while somebody holds the baton has used up the arming, so
// the holder arms again before it leaves.
//
// The machine is in baton.go, without goroutines, clocks and queues; a test plays
// it in every order of steps. Time is only in how long a goroutine spins (spin.go), and
// decides nothing but which goroutine polls.
//
// A device in software may call for its events (verbs.CallbackCQ). Then a call is the
// resident's turn, on the goroutine of the device, and no goroutine spins.
//
// A goroutine that would only sleep can have a function called instead (Waiter.Watch).
//
// # Virtual time
//
// While a goroutine spins, the time of testing/synctest does not pass. In ModeEvent
// none spins. In ModeAdaptive spinning ends after a number of polls too; in ModeBusy it
// never does.
package progress
