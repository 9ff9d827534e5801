package transporttest

import (
	"fmt"

	"github.com/tryst-rdma/tryst/status"
)

func stepCases() []testCase {
	return []testCase{
		{name: "TwoAtOnceUnderOneKey", run: twoSteps},
		{name: "ShapeOfEachStep", run: shapeOfEachStep},
		{name: "CleanedUpAtTheSenderWhileWaiting", run: cleanedUpWaiting},
		{name: "CleanedUpAtTheSenderBefore", run: cleanedUpBefore},
		{name: "CleanedUpAtTheReceiver", run: cleanedUpReceiver},
		{name: "CleanupAllAtTheSender", run: cleanupAll},
		{name: "UnreceivedValuesAreReleased", run: unreceived},
	}
}

// twoSteps: simultaneous receives of the same key in two steps, with values of different
// shapes.
func twoSteps(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	first, second := to.recv(1, k), to.recv(2, k)
	from.waiting(2)
	from.send(2, k, w.blob(2, 300*kib))
	from.send(1, k, w.blob(1, 5))
	first.mustBeBlob(1, 5)
	second.mustBeBlob(2, 300*kib)
}

// shapeOfEachStep: a key has a different shape in every step.
func shapeOfEachStep(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	for step := range int64(20) {
		size := int(step * 7919 % 50_000)
		r := to.recv(step, k)
		from.send(step, k, w.blob(uint64(step), size))
		r.mustBeBlob(uint64(step), size)
	}
}

func cleanedUpWaiting(w *world) {
	from, to := w.pair()
	r := to.recv(5, w.key(from, to, "v"))
	from.waiting(1)
	from.endStep(5)
	r.mustBeAborted(status.ErrStepEnded, "Cleanup 5")
}

// cleanedUpBefore: a receive for a step that has ended ends at once. It does not create the
// step again.
func cleanedUpBefore(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.sendNumber(5, k, 1)
	from.endStep(5)
	to.recv(5, k).mustBeAborted(status.ErrStepEnded, "Cleanup 5")
	if n := from.Manager().Steps(); n != 0 {
		w.Errorf("the sender has %d steps", n)
	}
}

func cleanedUpReceiver(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	r := to.recv(5, k)
	from.waiting(1)
	to.endStep(5)
	r.mustBeAborted(status.ErrStepEnded, "Cleanup 5")
	to.recv(5, k).mustBeAborted(status.ErrStepEnded, "Cleanup 5")
	from.waiting(0)
}

func cleanupAll(w *world) {
	from, to := w.pair()
	var receives []*receive
	for step := range int64(5) {
		receives = append(receives, to.recv(step, w.key(from, to, "v")))
	}
	// A receive that arrives after the clean-up would create a new step.
	w.waitUntil("the receives wait in their steps", func() bool { return from.Manager().Steps() == 5 })
	from.Manager().CleanupAll()
	for _, r := range receives {
		r.mustBeAborted(status.ErrShutdown)
	}
	k := w.key(from, to, "v")
	from.sendNumber(9, k, 7)
	to.recv(9, k).mustBeNumber(7)
}

// unreceived: values without a receive are released with their step.
func unreceived(w *world) {
	from, to := w.pair()
	for i := range 100 {
		from.sendNumber(1, w.key(from, to, fmt.Sprint("v", i)), i)
	}
	to.recv(1, w.key(from, to, "v42")).mustBeNumber(42)
	from.endStep(1)
	w.released(w.source)
}
