package transporttest

// slowCases: a slow peer is not treated as gone.
func slowCases() []testCase {
	return []testCase{
		{name: "ValueComesLaterThanThePeerTimeout", run: lateValue},
		{name: "TransferTakesLongerThanThePeerTimeout", run: slowTransfer},
		{name: "SmallIsNotDelayedByLarge", run: smallWithLarge, size: 40 * mib},
	}
}

func lateValue(w *world) {
	from, to := w.start(0), w.startShortTimeout(1)
	w.warm(from, to)
	k := w.key(from, to, "v")
	r := to.recv(1, k)
	from.waiting(1)
	w.pass(2 * w.shortTimeout())
	from.sendNumber(1, k, 7)
	r.mustBeNumber(7)
}

func slowTransfer(w *world) {
	from, to := w.start(0), w.startShortTimeout(1)
	faults := w.faults(from)
	w.warm(from, to)
	k := w.key(from, to, "v")
	// The transfer takes three times the peer timeout.
	faults.Throttle(int64(mib / (3 * w.shortTimeout()).Seconds()))
	from.send(1, k, w.blob(1, mib))
	to.recv(1, k).mustBeBlob(1, mib)
}

// smallWithLarge: large content is sent in parts, so that a small receive overtakes it.
func smallWithLarge(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	large, small := w.key(from, to, "large"), w.key(from, to, "small")
	const size = 40 * mib
	faults.Throttle(size / int64(max(8, 2*w.suite.TimeScale))) // it takes so many seconds, longer than a busy machine may rest
	from.send(1, large, w.blob(1, size))
	begun := faults.HoldAfter(mib)
	r := to.recv(1, large)
	w.waitClosed("the large transfer is in progress", begun)
	faults.Release()
	from.sendNumber(1, small, 7)
	to.recv(1, small).mustBeNumber(7)
	if !r.inProgress() {
		w.Error("the large transfer has ended first")
	}
	faults.Throttle(0)
	r.mustBeBlob(1, size)
}
