//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// large takes an emulated processor more than a second to move, in bytes, so that
// something can happen in the middle of it. packetsBefore is how many packets have
// gone when it is in its middle: a quarter.
const (
	large         = 24 << 20
	packetsBefore = large / page / 4
)

// The sender is killed in the middle of a write. Who waits for the process that
// takes its place is told that what the old one had is lost, who does not wait as
// long is told that it cannot be reached; what goes between others goes on; and
// new receives from the new process go through.
func TestRxeSenderKilledMidWriteAndRestarted(t *testing.T) {
	w := newWorld(t, 3)
	const impatient = 3 * time.Second
	a, b := w.launch(0, settings{}), w.launch(1, settings{})
	c := w.launch(2, settings{PeerTimeout: impatient})
	for _, p := range []*process{a, b, c} {
		p.up()
	}
	for i, p := range []*process{b, c} {
		p.untilVerbs(0, 0)
		a.untilVerbs(i+1, 0)
	}
	before := c.untilVerbs(1, 0)
	w.exchange(b, a, 1000)
	w.exchange(b, c, 1000)

	w.step++
	toA, toC := w.parcel(b, a, large), w.parcel(b, c, large)
	b.send(toA, toC)
	since := w.sentPackets(b.device)
	ofA := []int{a.recv(toA), a.recv(w.parcel(b, a, 10)), a.recv(w.parcel(b, a, large))}
	ofC := []int{c.recv(toC), c.recv(w.parcel(b, c, 10))}
	w.untilSent(b.device, since, packetsBefore)
	killed := time.Now()
	b.kill()
	c.bad(status.Unavailable, ": QP 0x", ofC...)               // beside the peer and the completion status
	if d := time.Since(killed); d > impatient+15*time.Second { // a question to the peer itself would come after 30 s
		t.Errorf("who does not wait was told after %v", d)
	} else {
		t.Logf("who does not wait was told after %v", d.Round(time.Millisecond))
	}
	w.exchange(a, c, 100, 1<<20)
	w.exchange(c, a, 100, 1<<20)

	b = w.start(1, settings{})
	a.bad(status.Aborted, "restarted", ofA...)
	b.untilVerbs(0, 0)
	a.untilVerbs(1, 0)
	c.untilVerbsAgain(1, before)
	w.meet(b, c)
	w.exchange(b, a, 100, 1<<20)
	w.exchange(a, b, 100, 1<<20)
	w.exchange(b, c, 100, 1<<20)
	w.end(a, b, c)
}

// The receiver is killed while it is written to, and takes its memory with it;
// the sender has its own back when another process takes the place.
func TestRxeReceiverKilledMidWriteAndRestarted(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{})
	w.exchange(b, a, 10)
	x := w.parcel(a, b, large)
	a.send(x, w.parcel(a, b, 10))
	since := w.sentPackets(a.device)
	b.recv(x)
	w.untilSent(a.device, since, packetsBefore)
	if s := a.state(); s.Sending < large {
		t.Errorf("the sender has %d bytes in use, want all %d", s.Sending, large)
	}
	waits := a.recv(w.parcel(b, a, 10))
	before := a.untilVerbs(1, 0)
	killed := time.Now()
	b.kill()
	b = w.start(1, settings{})
	a.bad(status.Aborted, "restarted", waits)
	a.untilVerbsAgain(1, before)
	w.eventually("what the killed process did not finish is free", func() (string, bool) {
		n := a.state().Sending
		return fmt.Sprintf("%d bytes are in use", n), n < large
	})
	if d := time.Since(killed); d >= time.Minute { // as long as it is kept for one who does not come back
		t.Errorf("it took %v: not the new process freed it, but time", d)
	}
	w.exchange(a, b, 100, 1<<20)
	w.exchange(b, a, 100, 1<<20)
	// What nobody has asked for waits in its step.
	a.do(command{Op: opAbort, Step: x.step, Name: "over"})
	w.end(a, b)
}

// late is how long after it was asked for something a process comes up: minutes, and
// some of the longest back-offs.
const late = 125 * time.Second

// A minute without a word: one process is stopped, and has given and taken
// nothing; another one is killed, nobody takes its place, and it never says
// ACK. The first finds everything when it goes on, of the second nothing is
// left, and a third, who does not wait as long, is told. One more is asked at the
// beginning and comes up when all that is over.
func TestRxeStoppedForAMinute(t *testing.T) {
	w := newWorld(t, 5)
	const impatient = 5 * time.Second
	a, b, c := w.launch(0, settings{}), w.launch(1, settings{}), w.launch(2, settings{})
	d := w.launch(3, settings{PeerTimeout: impatient})
	for _, p := range []*process{a, b, c, d} {
		p.up()
	}
	fromLate := []parcel{{1_000_000, 4, 0, "small", 100, 1}, {1_000_000, 4, 0, "large", 1 << 20, 2}}
	ofLate := []int{a.recv(fromLate[0]), a.recv(fromLate[1])}
	asked := time.Now()
	first := a.untilVerbs(1, 0)
	a.untilVerbs(2, 0)
	b.untilVerbs(0, 0)
	c.untilVerbs(0, 0)
	d.untilVerbs(1, 0)
	for _, p := range []*process{a, d} {
		w.exchange(b, p, 10)
	}
	w.exchange(a, b, 10)

	w.step++
	unfinished := w.parcel(a, c, large)
	a.send(unfinished)
	since := w.sentPackets(a.device)
	c.recv(unfinished)
	w.untilSent(a.device, since, packetsBefore)
	killed := time.Now()
	c.kill()

	underWay, later, answered := w.parcel(b, a, large), w.parcel(b, a, 100), w.parcel(a, b, 1000)
	b.send(underWay)
	since = w.sentPackets(b.device)
	got := b.recv(answered)
	ofA := []int{a.recv(underWay), a.recv(later)}
	waits := d.recv(w.parcel(b, d, 10))
	w.untilSent(b.device, since, packetsBefore)
	stopped := time.Now()
	b.signal(syscall.SIGSTOP)
	a.send(answered)
	// The kernel of the one that is stopped answers for it, so the wire is well:
	// it is our own question that nobody answers.
	w.eventually("the channel to the stopped process is left", func() (string, bool) {
		l := a.state().Links[1]
		return fmt.Sprintf("%+v", l), l.Breaks > 0
	})
	t.Logf("the channel was left after %v", time.Since(stopped).Round(time.Second))
	d.bad(status.Unavailable, "was not reached for", waits)
	t.Logf("who does not wait was told after %v", time.Since(stopped).Round(time.Second))
	w.eventually("what the killed process did not finish is given up", func() (string, bool) {
		s := a.state()
		return fmt.Sprintf("%d bytes are in use, %d answers kept", s.Sending, s.Kept), s.Sending < large
	})
	t.Logf("what the killed process did not finish was given up after %v", time.Since(killed).Round(time.Second))
	<-time.After(time.Until(stopped.Add(time.Minute)))
	b.signal(syscall.SIGCONT)
	b.send(later)
	a.good(ofA...)
	b.good(got)
	a.untilVerbs(1, first.Generation)
	w.exchange(a, b, 100, 1<<20)
	w.exchange(b, a, 100, 1<<20)

	<-time.After(time.Until(asked.Add(late)))
	e := w.start(4, settings{})
	e.send(fromLate...)
	a.good(ofLate...)
	t.Logf("what was asked of one who was not there came after %v", time.Since(asked).Round(time.Second))
	a.untilVerbs(4, 0)
	e.untilVerbs(0, 0)
	w.exchangeOverVerbs(a, e)
	w.end(a, b, d, e)
}

// Processes start in any order, also long after somebody has asked them for
// something; and nothing but verbs is allowed.
func TestRxeStartInAnyOrder(t *testing.T) {
	w := newWorld(t, 3)
	only := settings{Fallback: "none"}
	a := w.start(0, only)
	early := parcel{1, 1, 0, "early", large, 1}
	latest := parcel{1, 2, 0, "latest", 100, 2}
	ids := []int{a.recv(early), a.recv(latest)}
	<-time.After(5 * time.Second) // longer than any attempt waits for the next at first; TestRxeStoppedForAMinute has one who comes later
	b := w.start(1, only)
	fromB := parcel{1, 1, 2, "to one that is not there", 1 << 20, 3}
	b.send(early, fromB)
	a.good(ids[0])
	c := w.start(2, only)
	c.send(latest)
	a.good(ids[1])
	c.good(c.recv(fromB))
	for _, p := range []*process{a, b, c} {
		if s := p.state(); len(s.Tensors) > 1 || s.Tensors["verbs"] == 0 && p != b {
			t.Errorf("task %d has received %v", p.task, s.Tensors)
		}
	}
	w.end(a, b, c)
}
