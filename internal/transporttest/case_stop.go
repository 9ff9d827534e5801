package transporttest

import (
	"slices"

	"github.com/tryst-rdma/tryst/status"
)

// stopCases: after a process stops in order, no receive waits in it or at its peers.
func stopCases() []testCase {
	return []testCase{
		{name: "ReceiverWhileWaiting", run: stopReceiver},
		{name: "ReceiverInMidTransfer", run: stopReceiverTransferring},
		{name: "SenderWhileOthersWait", run: stopSender},
		{name: "ReceiveAfterwards", run: receiveAfterStop},
		{name: "AcksAreSent", run: stopSendsAcks},
	}
}

// ended fails the case unless the receive ends with an error of a stopping process.
func (r *receive) ended(codes ...status.Code) {
	r.w.Helper()
	if err := r.failure(); !slices.Contains(codes, status.CodeOf(err)) {
		r.w.Errorf("receive of %s: %v, want one of %v", r.key.Edge(), err, codes)
	}
}

func stopReceiver(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	var receives []*receive
	for range 20 {
		receives = append(receives, to.recv(1, k))
	}
	from.waiting(20)
	to.stop()
	for _, r := range receives {
		r.ended(status.Cancelled, status.Aborted)
	}
	from.waiting(0)
}

// stopReceiverTransferring: the rest of the value comes after its receive has ended. It must not come before: a busy
// machine takes long to get to the stop.
func stopReceiverTransferring(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	k := w.key(from, to, "v")
	from.send(1, k, w.blob(1, mib))
	stuck := faults.HoldAfter(300 * kib)
	r := to.recv(1, k)
	w.waitClosed("the transfer is in progress", stuck)
	faults.Throttle(8 * mib)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		to.stop()
	}()
	func() {
		defer w.waitClosed("the receiver has stopped", stopped)
		defer faults.Release()
		r.ended(status.Cancelled, status.Aborted)
	}()
	from.keeps(0)
}

// stopSender: a sender that stops ends the receives that wait for its values.
func stopSender(w *world) {
	from, to := w.start(0), w.startShortTimeout(1)
	w.warm(from, to)
	r := to.recv(1, w.key(from, to, "v"))
	from.waiting(1)
	from.stop()
	if err := r.failure(); status.CodeOf(err) != status.Unavailable {
		w.mustBeOfKind(err, status.ErrShutdown)
	}
}

func receiveAfterStop(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	step := to.in(1)
	to.stop()
	v, err := step.Recv(w.ctx, k, noArgs)
	if err == nil {
		outcome{v, err}.release()
	}
	if code := status.CodeOf(err); code != status.Cancelled && code != status.Aborted {
		w.Errorf("a receive after Stop ended with %v", err)
	}
}

// stopSendsAcks: a receiver that stops right after its receive has sent the ack.
func stopSendsAcks(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	from.send(1, k, w.blob(1, 100*kib))
	to.recv(1, k).mustBeBlob(1, 100*kib)
	to.stop()
	from.keeps(0)
	w.released(w.source)
}
