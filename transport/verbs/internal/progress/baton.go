package progress

import "slices"

// who holds the baton.
type who uint8

const (
	nobody   who = iota
	resident     // the queue's own goroutine
	waiter       // baton.waiter
	stopper      // who ends the queue; it does not give the baton back
)

// baton is the right to poll a queue. W names a waiter. It is a value: its owner
// holds a lock around every method.
type baton[W comparable] struct {
	holder who
	waiter W // with holder waiter
	// spinning would take the baton at once, in the order in which they came.
	spinning []W
	// called says that the resident was given the baton and is being woken: until
	// it is, a waiter may take the baton.
	called bool
	// missed says that an event has come since the queue was last armed, while
	// somebody held the baton: the queue is not armed any more.
	missed bool
	stop   bool
}

// enter lets w compete for the baton. It reports whether w holds it at once; if
// not, w is given it while it spins. A stopped queue gives it to nobody.
func (b *baton[W]) enter(w W) (holds bool) {
	if b.stop {
		return false
	}
	if b.holder == nobody || b.holder == resident && b.called {
		b.holder, b.waiter, b.called = waiter, w, false
		return true
	}
	b.spinning = append(b.spinning, w)
	return false
}

// quit ends w's competing: it parks, or is done. It reports whether w has been
// given the baton in the meantime, and so has to give it up.
func (b *baton[W]) quit(w W) (holds bool) {
	if b.holder == waiter && b.waiter == w {
		return true
	}
	if i := slices.Index(b.spinning, w); i >= 0 {
		b.spinning = slices.Delete(b.spinning, i, i+1)
	}
	return false
}

// event says that the resident woke, by an event of the queue or because it was
// called. It reports whether it holds the baton; if not it sleeps again.
func (b *baton[W]) event() (holds bool) {
	switch {
	case b.holder == nobody && !b.stop, b.holder == resident && b.called:
		b.holder, b.called = resident, false
		return true
	}
	b.missed = true
	return false
}

// take is for a caller that polls once, at any time. It reports whether the caller holds
// the baton, in place of the resident.
func (b *baton[W]) take() (holds bool) {
	if b.holder == nobody && !b.stop {
		b.holder = resident
		return true
	}
	return false
}

// end takes the baton for ever, now or when its holder gives it up. It reports
// whether now.
func (b *baton[W]) end() (holds bool) {
	b.stop = true
	if b.holder == nobody || b.holder == resident && b.called {
		b.holder, b.called = stopper, false
		return true
	}
	return false
}

// step is what the holder of the baton does next.
type step uint8

const (
	stepPoll    step = iota // poll, handle what came
	stepArm                 // arm the queue, then poll and handle, then ask again
	stepHanded              // the baton is baton.waiter's, which spins: tell it
	stepCalled              // it is the resident's: wake it
	stepStopped             // it is the stopper's: wake it
	stepLeft                // nobody has it; the resident sleeps
)

// turn is the time from taking the baton until giving it up. Its zero value is a
// waiter's, in a queue that has events.
type turn struct {
	resident bool // the holder is the resident
	busy     bool // the queue is never armed: the resident spins, and waiters give the baton back to it
	leaving  bool // armed, and polling until the queue is empty
	rounds   int  // how often that brought something
}

// leaveRounds is how many batches somebody handles who would like to leave and finds
// nobody to take over. Then it wakes the resident: its caller waits.
const leaveRounds = 4

// give is asked when the holder wants to give the baton up, and again after each
// poll that follows, until it is gone. found says that the last poll brought
// completions.
func (b *baton[W]) give(t *turn, found bool) step {
	var none W
	switch {
	case b.stop:
		b.holder, b.waiter = stopper, none
		return stepStopped
	case len(b.spinning) > 0:
		b.holder, b.waiter = waiter, b.spinning[0]
		b.spinning = slices.Delete(b.spinning, 0, 1)
		return stepHanded
	case t.busy && t.resident:
		return stepPoll
	case t.busy:
		return b.call()
	case !t.leaving:
		t.leaving = true
		b.missed = false
		return stepArm
	case found && t.resident: // there is work again, and that is its own
		t.leaving = false
		return stepPoll
	case found:
		if t.rounds++; t.rounds >= leaveRounds {
			return b.call()
		}
		b.missed = false
		return stepArm
	case b.missed:
		b.missed = false
		return stepArm
	}
	b.holder, b.waiter = nobody, none
	return stepLeft
}

func (b *baton[W]) call() step {
	var none W
	b.holder, b.waiter, b.called = resident, none, true
	return stepCalled
}
