package transporttest

import (
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// peerCases: how a receive ends when its peer is gone. Receives from other peers are not
// affected.
func peerCases() []testCase {
	return []testCase{
		{name: "GoneWhileWaiting", run: goneWaiting},
		{name: "GoneInMidTransfer", run: goneTransferring},
		{name: "NeverThere", run: neverThere},
		{name: "BackAfterUnavailable", run: backAfterUnavailable},
		{name: "StartsAfterItsRequester", run: startsLater},
		{name: "RestartedWhileWaiting", run: restartedWaiting},
		{name: "RestartedInBetween", run: restartedBetween},
		{name: "RequesterRestarted", run: requesterRestarted},
		{name: "OthersGoOn", run: othersGoOn},
		{name: "OtherIncarnation", run: otherIncarnation},
		{name: "UnknownDevice", run: unknownDevice},
		{name: "UnknownTask", run: unknownTask},
		{name: "WrongKeys", run: wrongKeys},
	}
}

// mustBeUnavailable fails the case unless the receive ends with an Unavailable that names the
// peer, and not before the peer timeout.
func (r *receive) mustBeUnavailable(peer *node, since time.Time) {
	r.w.Helper()
	r.mustFail(status.Unavailable, peer.task.String())
	if d, least := time.Since(since), r.w.shortTimeout(); d < least {
		r.w.Errorf("the receive ended after %v; the peer timeout is %v", d, least)
	}
}

func goneWaiting(w *world) {
	from, to := w.start(0), w.startShortTimeout(1)
	w.warm(from, to)
	r := to.recv(1, w.key(from, to, "v"))
	from.waiting(1)
	since := time.Now()
	from.kill()
	r.mustBeUnavailable(from, since)
}

func goneTransferring(w *world) {
	from, to := w.start(0), w.startShortTimeout(1)
	faults := w.faults(from)
	w.warm(from, to)
	k := w.key(from, to, "v")
	from.send(1, k, w.blob(1, mib))
	stuck := faults.HoldAfter(300 * kib)
	r := to.recv(1, k)
	w.waitClosed("the transfer is in progress", stuck)
	since := time.Now()
	from.kill()
	faults.Release()
	r.mustBeUnavailable(from, since)
	w.released(to.memory)
}

func neverThere(w *world) {
	from, to := w.newNode(0), w.startShortTimeout(1)
	since := time.Now()
	to.recv(1, w.key(from, to, "v")).mustBeUnavailable(from, since)
}

func backAfterUnavailable(w *world) {
	from, to := w.newNode(0), w.startShortTimeout(1)
	to.recv(1, w.key(from, to, "v")).mustFail(status.Unavailable)
	from = w.start(0)
	w.warm(from, to)
}

// startsLater: tasks may start in any order. The key has the incarnation of the task that does
// not run yet.
func startsLater(w *world) {
	from, to := w.newNode(0), w.start(1)
	k := w.key(from, to, "v")
	r := to.recv(1, k)
	from.start(NodeOptions{})
	from.sendNumber(1, k, 7)
	r.mustBeNumber(7)
}

// restartedWaiting: receives from the old process fail; receives from the new process have
// new keys.
func restartedWaiting(w *world) {
	from, to := w.pair()
	old := w.key(from, to, "v")
	r := to.recv(1, old)
	from.waiting(1)
	from.kill()
	from = w.start(0)
	r.mustBeAborted(status.ErrPeerRestarted, from.task.String())
	k := w.key(from, to, "v")
	from.sendNumber(1, k, 7)
	to.recv(1, k).mustBeNumber(7)
	to.recv(1, old).mustBeAborted(status.ErrPeerRestarted, "restarted")
}

// restartedBetween: without a receive in progress nothing is lost.
func restartedBetween(w *world) {
	from, to := w.pair()
	for i := range 3 {
		k := w.key(from, to, "v")
		from.sendNumber(1, k, i)
		to.recv(1, k).mustBeNumber(i)
		if i < 2 {
			from.kill()
			from = w.start(0)
		}
	}
}

// requesterRestarted: the cached responses of the old process are released when the new
// process sends a request.
func requesterRestarted(w *world) {
	from, to := w.pair()
	faults := w.faults(from)
	w.warm(from, to)
	k := w.key(from, to, "v")
	from.send(1, k, w.blob(1, mib))
	waits := w.key(from, to, "waits")
	to.recv(1, waits)
	from.waiting(1)
	stuck := faults.HoldAfter(300 * kib)
	to.recv(1, k)
	w.waitClosed("the transfer is in progress", stuck)
	from.keeps(1)
	to.kill()
	faults.Release()
	to = w.start(1)
	other := w.key(from, to, "other")
	from.sendNumber(1, other, 7)
	to.recv(1, other).mustBeNumber(7)
	from.keeps(0)
	from.waiting(0)
	from.sendNumber(1, waits, 8)
	to.recv(1, waits).mustBeNumber(8)
}

// othersGoOn: a failure of one peer does not affect another one.
func othersGoOn(w *world) {
	dies, lives, to := w.start(0), w.start(1), w.startShortTimeout(2)
	w.warm(dies, to)
	w.warm(lives, to)
	lost := to.recv(1, w.key(dies, to, "v"))
	k := w.key(lives, to, "v")
	r := to.recv(1, k)
	dies.waiting(1)
	lives.waiting(1)
	dies.kill()
	lost.mustFail(status.Unavailable, dies.task.String())
	if !r.inProgress() {
		w.Fatalf("the death of one peer has ended a receive from another one: %v", r.wait().err)
	}
	lives.sendNumber(1, k, 7)
	r.mustBeNumber(7)
}

// otherIncarnation: the key has another incarnation of the peer's device.
func otherIncarnation(w *world) {
	from, to := w.pair()
	k := w.keyOf(from.device, from.incarnation+1, to.device, "v")
	to.recv(1, k).mustBeAborted(status.ErrPeerRestarted, "incarnation", "restarted")
}

func unknownDevice(w *world) {
	from, to := w.pair()
	d := from.device
	d.Type, d.Index = "GPU", 7
	to.recv(1, w.keyOf(d, from.incarnation, to.device, "v")).mustFail(status.InvalidArgument, d.String())
}

func unknownTask(w *world) {
	to := w.start(1)
	d := cluster.Device{Task: cluster.Task{Job: "nobody", Index: 3}, Type: "CPU"}
	to.recv(1, w.keyOf(d, 1, to.device, "v")).mustFail(status.NotFound, d.Task.String())
}

// wrongKeys: a task neither sends nor receives values whose key has another task. The name of
// task 1 is a prefix of that of task 10.
func wrongKeys(w *world) {
	one, ten := w.start(1), w.start(2)
	other := w.newNode(0)
	x := w.number(1)
	defer x.Release()
	w.mustBe(one.in(1).Send(w.key(ten, one, "v"), noArgs, x, false), status.InvalidArgument, "(src)")
	w.mustBe(ten.in(1).Send(w.key(one, ten, "v"), noArgs, x, false), status.InvalidArgument, "(src)")
	one.recv(1, w.key(other, ten, "v")).mustFail(status.InvalidArgument, "(dst)")
	ten.recv(1, w.key(other, one, "v")).mustFail(status.InvalidArgument, "(dst)")
}
