package waiting

import (
	"slices"
)

// Accumulator is the state of a conditional accumulator without the sum of the gradients, which the
// caller keeps. It is not safe for concurrent use.
type Accumulator struct {
	count int // gradients in the sum
	step  int64
	takes []*Take // that wait, the oldest first
}

// Take is an attempt to take the sum. It is new for each.
type Take struct {
	// Required is how many gradients the sum must have, at least 1.
	Required int
	// Output is called when the sum is taken, which then has count gradients. After an error they stay.
	Output func(count int) error
	// Done is for the caller of the accumulator: what to do when the attempt has ended.
	Done func()

	// Err is why the attempt has failed.
	Err error

	ended bool
}

// Ended reports whether the attempt has ended.
func (t *Take) Ended() bool { return t.ended }

// Count returns the number of gradients in the sum.
func (a *Accumulator) Count() int { return a.count }

// SetStep sets the global step, and returns the one before.
func (a *Accumulator) SetStep(step int64) (before int64) {
	before, a.step = a.step, step
	return before
}

// Apply adds a gradient of a step by add, which gets the number of gradients in the sum. A stale one, of a step
// before the global one, is dropped. It returns the attempts that have ended, whose Done the caller calls
// without its lock.
func (a *Accumulator) Apply(step int64, add func(count int) error) ([]*Take, error) {
	var err error
	if step >= a.step {
		if err = add(a.count); err == nil {
			a.count++
		}
	}
	return a.flush(nil), err
}

// Take begins an attempt to take the sum.
func (a *Accumulator) Take(t *Take) []*Take {
	a.takes = append(a.takes, t)
	return a.flush(nil)
}

// Cancel ends an attempt that waits.
func (a *Accumulator) Cancel(t *Take) []*Take {
	i := slices.Index(a.takes, t)
	if i < 0 {
		return nil
	}
	a.takes = slices.Delete(a.takes, i, i+1)
	return a.flush(endTake(nil, t, ErrTakeCancelled()))
}

// ErrTakeCancelled is the error of an attempt that was cancelled.
func ErrTakeCancelled() error { return errCancelled("TakeGrad") }

// Drop ends all attempts with an error.
func (a *Accumulator) Drop(err error) (ended []*Take) {
	for _, t := range a.takes {
		ended = endTake(ended, t, err)
	}
	a.takes, a.count = nil, 0
	return ended
}

func endTake(ended []*Take, t *Take, err error) []*Take {
	t.ended, t.Err = true, err
	return append(ended, t)
}

// flush gives the sum to the first attempt, if it has enough gradients.
func (a *Accumulator) flush(ended []*Take) []*Take {
	for len(a.takes) > 0 && a.count >= a.takes[0].Required {
		t := a.takes[0]
		a.takes = a.takes[1:]
		a.step++
		err := t.Output(a.count)
		if err == nil {
			a.count = 0
		}
		ended = endTake(ended, t, err)
	}
	if len(a.takes) == 0 {
		a.takes = nil
	}
	return ended
}
