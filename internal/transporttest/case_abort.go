package transporttest

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

var noArgs rendezvous.Args

func abortCases() []testCase {
	return []testCase{
		{name: "AtTheReceiverWhileWaiting", run: abortReceiverWaiting},
		{name: "AtTheReceiverInMidTransfer", run: abortReceiverTransferring},
		{name: "AtTheReceiverConsumesNothing", run: abortReceiverConsumesNothing},
		{name: "AtTheSenderWhileWaiting", run: abortSenderWaiting},
		{name: "AtTheSenderBefore", run: abortSenderBefore},
		{name: "AtTheSenderInMidTransfer", run: abortSenderTransferring},
		{name: "CodesArrive", run: codesArrive},
		{name: "LongTextIsShortened", run: longText},
		{name: "QueuePairNumbersAreNotSent", run: queuePairNumbersNotSent},
		{name: "OtherStepsGoOn", run: otherStepsGoOn},
	}
}

func kernelFailed() *status.Error {
	return status.New(status.Internal, "the kernel of node mul failed")
}

func abortReceiverWaiting(w *world) {
	from, to := w.pair()
	var receives []*receive
	for i := range 10 {
		receives = append(receives, to.recv(1, w.key(from, to, fmt.Sprint("v", i))))
	}
	from.waiting(10)
	to.in(1).Abort(kernelFailed())
	for _, r := range receives {
		r.mustFail(status.Internal, "node mul")
	}
	to.recv(1, w.key(from, to, "late")).mustFail(status.Internal, "node mul")
	from.waiting(0)
}

func abortReceiverTransferring(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	k := w.key(from, to, "v")
	stuck := faults.HoldAfter(300 * kib)
	from.send(2, k, w.blob(1, mib))
	r := to.recv(2, k)
	w.waitClosed("the transfer is in progress", stuck)
	to.in(2).Abort(kernelFailed())
	r.mustFail(status.Internal, "node mul")
	w.released(to.memory)
	faults.Release()
	from.keeps(0)
}

// abortReceiverConsumesNothing: after an abort at the receiver only, the value stays
// available for another task.
func abortReceiverConsumesNothing(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	r := to.recv(1, k)
	from.waiting(1)
	to.in(1).Abort(kernelFailed())
	r.mustFail(status.Internal)
	from.waiting(0)
	from.sendNumber(1, k, 7)
	v, err := from.Manager().RecvLocal(w.ctx, 1, k)
	if err != nil {
		w.Fatal(err)
	}
	v.Tensor.Release()
}

func abortSenderWaiting(w *world) {
	from, to := w.pair()
	r := to.recv(1, w.key(from, to, "v"))
	from.waiting(1)
	from.in(1).Abort(kernelFailed())
	r.mustFail(status.Internal, "node mul")
}

func abortSenderBefore(w *world) {
	from, to := w.pair()
	from.in(1).Abort(kernelFailed())
	to.recv(1, w.key(from, to, "v")).mustFail(status.Internal, "node mul")
}

// abortSenderTransferring: a value in transfer may arrive or not, but the receive ends.
func abortSenderTransferring(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	k := w.key(from, to, "v")
	stuck := faults.HoldAfter(300 * kib)
	from.send(2, k, w.blob(1, mib))
	r := to.recv(2, k)
	w.waitClosed("the transfer is in progress", stuck)
	from.in(2).Abort(kernelFailed())
	faults.Release()
	if o := r.wait(); o.err != nil {
		w.mustBe(o.err, status.Internal, "node mul")
	} else {
		defer o.release()
		if why := checkBlob(o.value.Tensor, 1, mib); why != "" {
			w.Error(why)
		}
	}
}

// codesArrive: every code arrives with its text and with the mark of a derived error. The
// peer's own Cancelled and Unavailable must not be taken for errors of the connection.
func codesArrive(w *world) {
	from, to := w.pair()
	for code := status.Cancelled; code <= status.Unauthenticated; code++ {
		step := int64(code)
		r := to.recv(step, w.key(from, to, "v"))
		from.waiting(1)
		from.in(step).Abort(status.Errorf(code, "error number %d", code))
		err := r.failure()
		w.mustBe(err, code, fmt.Sprintf("error number %d", code))
		if code == status.Aborted {
			w.mustBeOfKind(err, status.ErrStepEnded)
		}
		if want := code == status.Cancelled || code == status.Aborted; status.IsDerived(err) != want {
			w.Errorf("%v: derived is %v, want %v", err, !want, want)
		}
	}
}

// longText: a text that does not fit is shortened at a character boundary. The receive gets
// the error.
func longText(w *world) {
	from, to := w.pair()
	from.in(1).Abort(status.New(status.OutOfRange, "begins here "+strings.Repeat("日本", 200_000)))
	err := to.recv(1, w.key(from, to, "v")).failure()
	w.mustBe(err, status.OutOfRange, "begins here")
	if !utf8.ValidString(err.Error()) {
		w.Errorf("the text was cut within a character: %q", err.Error()[len(err.Error())-20:])
	}
}

// queuePairNumbersNotSent: an application may abort a step with the error of a receive. The
// number of the queue pair in that error is not sent to another peer.
func queuePairNumbersNotSent(w *world) {
	from, to := w.pair()
	from.in(1).Abort(status.New(status.Unavailable, "channel with w/2: QP 0x8c3dd6: flushed"))
	err := to.recv(1, w.key(from, to, "v")).failure()
	w.mustBe(err, status.Unavailable, "channel with w/2")
	if strings.Contains(err.Error(), "8c3dd6") {
		w.Errorf("the peer gets the number of a queue pair: %v", err)
	}
}

func otherStepsGoOn(w *world) {
	from, to := w.pair()
	k := w.key(from, to, "v")
	aborted, other := to.recv(1, k), to.recv(2, k)
	from.waiting(2)
	from.in(1).Abort(kernelFailed())
	aborted.mustFail(status.Internal)
	if !other.inProgress() {
		w.Fatal("the abort of one step has ended a receive of another one")
	}
	from.sendNumber(2, k, 7)
	other.mustBeNumber(7)
}
