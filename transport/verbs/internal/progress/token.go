package progress

import "slices"

// holder is the kind of goroutine that holds the poll token.
type holder uint8

const (
	noHolder holder = iota
	poller          // the queue's own goroutine, or one that polls in its place
	waiter          // token.waiter
	stopper         // the goroutine that stops the queue; it keeps the token
)

// token is the right to poll a queue. W identifies a waiter. The owner of the token
// holds a lock around every method.
type token[W comparable] struct {
	holder holder
	waiter W // when holder is waiter
	// spinning are the waiters that spin for the token, first come, first served.
	spinning []W
	// waking says that the poller was given the token and is being woken. Until it
	// runs, a waiter may take the token.
	waking bool
	// missed says that an event arrived since the queue was last armed, while the
	// token was held: the queue is not armed any more.
	missed bool
	stop   bool
}

// enter lets w compete for the token. It reports whether w holds the token at once. If
// not, w may be given it while it spins. A stopped queue gives its token to no waiter.
func (k *token[W]) enter(w W) (holds bool) {
	if k.stop {
		return false
	}
	if k.holder == noHolder || k.holder == poller && k.waking {
		k.holder, k.waiter, k.waking = waiter, w, false
		return true
	}
	k.spinning = append(k.spinning, w)
	return false
}

// quit ends the competing of w, which parks or is done. It reports whether w has been
// given the token meanwhile, and so has to release it.
func (k *token[W]) quit(w W) (holds bool) {
	if k.holder == waiter && k.waiter == w {
		return true
	}
	if i := slices.Index(k.spinning, w); i >= 0 {
		k.spinning = slices.Delete(k.spinning, i, i+1)
	}
	return false
}

// event is called when the poller woke, because of an event of the queue or of
// stepWakePoller. It reports whether the poller holds the token. If not, it sleeps again.
func (k *token[W]) event() (holds bool) {
	switch {
	case k.holder == noHolder && !k.stop, k.holder == poller && k.waking:
		k.holder, k.waking = poller, false
		return true
	}
	k.missed = true
	return false
}

// tryTake is for a caller that polls once, at any time. It reports whether the caller
// holds the token, in place of the poller.
func (k *token[W]) tryTake() (holds bool) {
	if k.holder == noHolder && !k.stop {
		k.holder = poller
		return true
	}
	return false
}

// end takes the token for ever, now or when its holder releases it. It reports whether
// now.
func (k *token[W]) end() (holds bool) {
	k.stop = true
	if k.holder == noHolder || k.holder == poller && k.waking {
		k.holder, k.waking = stopper, false
		return true
	}
	return false
}

// step is what the holder of the token does next.
type step uint8

const (
	stepPoll       step = iota // poll and handle what came
	stepArm                    // arm the queue, then poll and handle, then call release again
	stepHandOver               // token.waiter, which spins, holds the token now: notify it
	stepWakePoller             // the poller holds it: wake it
	stepStopped                // the stopper holds it: wake it
	stepFree                   // it is free; the poller sleeps
)

// turn is the time from taking the token until releasing it. Its zero value is a
// waiter's, of a queue that is armed.
type turn struct {
	poller  bool // the holder is the poller
	busy    bool // the queue is never armed: the poller spins, and waiters return the token to it
	leaving bool // the queue was armed, and is polled until it is empty
	rounds  int  // how often that found completions
}

// leaveRounds is how many batches a waiter that is about to leave handles when no other
// goroutine takes over. Then it wakes the poller, so that its own caller can go on.
const leaveRounds = 4

// release is called when the holder wants to release the token, and again after each
// poll that follows, until the token is released. found says that the last poll returned
// completions.
func (k *token[W]) release(t *turn, found bool) step {
	var none W
	switch {
	case k.stop:
		k.holder, k.waiter = stopper, none
		return stepStopped
	case len(k.spinning) > 0:
		k.holder, k.waiter = waiter, k.spinning[0]
		k.spinning = slices.Delete(k.spinning, 0, 1)
		return stepHandOver
	case t.busy && t.poller:
		return stepPoll
	case t.busy:
		return k.wakePoller()
	case !t.leaving:
		t.leaving = true
		k.missed = false
		return stepArm
	case found && t.poller: // more work came; the poller need not leave
		t.leaving = false
		return stepPoll
	case found:
		if t.rounds++; t.rounds >= leaveRounds {
			return k.wakePoller()
		}
		k.missed = false
		return stepArm
	case k.missed:
		k.missed = false
		return stepArm
	}
	k.holder, k.waiter = noHolder, none
	return stepFree
}

func (k *token[W]) wakePoller() step {
	var none W
	k.holder, k.waiter, k.waking = poller, none, true
	return stepWakePoller
}
