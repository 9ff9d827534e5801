package verbstest

import (
	"bytes"

	"github.com/tryst-rdma/tryst/verbs"
)

func closeCases() []testCase {
	return []testCase{
		{name: "WrongOrderIsBusy", run: wrongOrder},
		{name: "Twice", run: closeTwice},
		{name: "UseAfterClose", run: useAfterClose},
		{name: "WithWorkPosted", run: closeWithWork},
		{name: "StopsPeerWrites", run: closeStopsPeerWrites},
		{name: "OtherConnectionsContinue", run: otherConnections},
		{name: "OpenTwice", run: openTwice},
	}
}

// wrongOrder: closing an object in use fails with ErrBusy, as in the kernel (EBUSY), and
// the error names the open objects.
func wrongOrder(w *world) {
	e := w.end(w.nodes[0], w.params())
	w.errorIs(e.cq.Close(), verbs.ErrBusy)
	w.errorIs(e.pd.Close(), verbs.ErrBusy)
	err := e.n.dev.Close()
	w.errorIs(err, verbs.ErrBusy)
	w.errorContains(err, "1 QP", "1 MR", "1 CQ", "1 PD")
	w.noError(e.qp.Close())
	w.errorIs(e.pd.Close(), verbs.ErrBusy)
	w.noError(e.mr.Close())
	w.noError(e.pd.Close())
	w.errorIs(e.n.dev.Close(), verbs.ErrBusy)
	w.noError(e.cq.Close())
}

func closeTwice(w *world) {
	e := w.end(w.nodes[0], w.params())
	for _, c := range []interface{ Close() error }{e.qp, e.mr, e.cq, e.pd} {
		w.noError(c.Close())
		w.noError(c.Close())
	}
	w.noError(e.n.dev.Close())
	w.noError(e.n.dev.Close())
}

func useAfterClose(w *world) {
	a, b := w.pair()
	w.noError(a.qp.Close())
	_, err := a.qp.PostSend([]verbs.SendWR{a.send(1, 0, 8)})
	w.errorIs(err, verbs.ErrClosed)
	_, err = a.qp.PostRecv([]verbs.RecvWR{{ID: 1}})
	w.errorIs(err, verbs.ErrClosed)
	_, err = a.qp.State()
	w.errorIs(err, verbs.ErrClosed)
	w.errorIs(a.qp.ToErr(), verbs.ErrClosed)
	w.noError(a.cq.Close())
	_, err = a.cq.Poll(make([]verbs.WC, 1))
	w.errorIs(err, verbs.ErrClosed)
	w.errorIs(a.cq.Arm(false), verbs.ErrClosed)
	w.noError(a.mr.Close())
	w.noError(a.pd.Close())
	_, err = a.pd.RegisterMemory(a.mem, verbs.AccessLocalWrite)
	w.errorIs(err, verbs.ErrClosed)
	_ = b
}

// closeWithWork closes a queue pair with outstanding work requests and unpolled
// completions.
func closeWithWork(w *world) {
	a, b := w.blockedPair()
	for i := range 20 {
		a.recv(verbs.WRID(i), 0, 8)
		a.post(a.send(verbs.WRID(i), 0, 8))
	}
	b.recv(1, 0, 8)
	b.expect(1, verbs.StatusOK)
	w.noError(a.qp.Close())
	w.noError(a.cq.Close())
}

// closeStopsPeerWrites: after Close has returned, no request of the peer writes to memory.
func closeStopsPeerWrites(w *world) {
	a, b := w.pair()
	pattern(a.mem, 1)
	for i := range 60 {
		a.post(a.to(b, verbs.WRID(i), verbs.OpWrite, 0, memorySize/2, 0))
	}
	a.expect(0, verbs.StatusOK)
	w.noError(b.qp.Close())
	pattern(b.mem, 99)
	want := bytes.Clone(b.mem)
	pause(w.scaled(4 * quiet)) // the requester sends again meanwhile
	if !bytes.Equal(b.mem, want) {
		w.Error("memory was written after Close")
	}
}

// otherConnections: the end of a connection does not affect others.
func otherConnections(w *world) {
	a1, b1 := w.pair()
	a2, b2 := w.pair()
	w.noError(a1.qp.Close())
	w.noError(b1.qp.ToErr())
	a2.sendsTo(b2)
	b2.sendsTo(a2)
}

// openTwice: each opening of a device has objects of its own.
func openTwice(w *world) {
	n := w.nodes[0]
	other := w.open(n.end)
	e := w.end(other, w.params())
	if c := n.dev.Counts(); c != (verbs.Counts{}) {
		w.Errorf("%+v are open on the other opening of the device", c)
	}
	mine := w.end(n, w.params())
	if _, err := e.pd.CreateQP(verbs.QPConfig{SendCQ: mine.cq, RecvCQ: mine.cq, MaxSend: 1, MaxRecv: 1}); err == nil {
		w.Error("CreateQP accepts objects of two openings")
	}
	w.join(mine, e)
	mine.sendsTo(e)
}
