//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// large is the size in bytes of a tensor that takes more than a second on an emulated processor, so
// that a test can act in the middle of its transfer. packetsBefore is the number of packets after
// which a test acts, a quarter of all.
const (
	large         = 24 << 20
	packetsBefore = large / page / 4
)

// The sender is killed in the middle of a write, and restarts. Receives with a peer timeout longer
// than the restart fail with Aborted, since the old process is gone with its values. Those with a
// shorter one fail with Unavailable. Transfers between other processes continue, and receives from
// the new process succeed.
func TestRxeSenderKilledMidWriteAndRestarted(t *testing.T) {
	bed := newTestbed(t, 3)
	const shortTimeout = 3 * time.Second
	a, b := bed.launch(0, settings{}), bed.launch(1, settings{})
	c := bed.launch(2, settings{PeerTimeout: shortTimeout})
	for _, p := range []*process{a, b, c} {
		p.up()
	}
	for i, p := range []*process{b, c} {
		p.untilVerbs(0, 0)
		a.untilVerbs(i+1, 0)
	}
	before := c.untilVerbs(1, 0)
	bed.exchange(b, a, 1000)
	bed.exchange(b, c, 1000)

	bed.step++
	toA, toC := bed.newTensor(b, a, large), bed.newTensor(b, c, large)
	b.send(toA, toC)
	restore := bed.slow(b.device, slowRate)
	since := bed.sentPackets(b.device)
	ofA := []int{a.recv(toA), a.recv(bed.newTensor(b, a, 10)), a.recv(bed.newTensor(b, a, large))}
	ofC := []int{c.recv(toC), c.recv(bed.newTensor(b, c, 10))}
	bed.untilSent(b.device, since, packetsBefore)
	killed := time.Now()
	b.kill()
	restore()
	c.recvFails(status.Unavailable, ": QP 0x", ofC...)            // beside the peer and the completion status
	if d := time.Since(killed); d > shortTimeout+15*time.Second { // QUERY would come after 30 s
		t.Errorf("receives with a peer timeout of %v failed after %v, want at most 15 s more", shortTimeout, d)
	} else {
		t.Logf("receives with a peer timeout of %v failed after %v", shortTimeout, d.Round(time.Millisecond))
	}
	bed.exchange(a, c, 100, 1<<20)
	bed.exchange(c, a, 100, 1<<20)

	b = bed.start(1, settings{})
	a.recvFails(status.Aborted, "restarted", ofA...)
	b.untilVerbs(0, 0)
	a.untilVerbs(1, 0)
	c.untilVerbsAgain(1, before)
	bed.untilRestartKnown(b, c)
	bed.exchange(b, a, 100, 1<<20)
	bed.exchange(a, b, 100, 1<<20)
	bed.exchange(b, c, 100, 1<<20)
	bed.end(a, b, c)
}

// The receiver is killed while the sender writes to its memory, and restarts. The sender frees its
// memory when it is connected to the new process.
func TestRxeReceiverKilledMidWriteAndRestarted(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{})
	bed.exchange(b, a, 10)
	x := bed.newTensor(a, b, large)
	a.send(x, bed.newTensor(a, b, 10))
	restore := bed.slow(a.device, slowRate)
	since := bed.sentPackets(a.device)
	b.recv(x)
	bed.untilSent(a.device, since, packetsBefore)
	if s := a.state(); s.Sending < large {
		t.Errorf("the sender has %d bytes in use, want at least %d", s.Sending, large)
	}
	waiting := a.recv(bed.newTensor(b, a, 10))
	before := a.untilVerbs(1, 0)
	killed := time.Now()
	b.kill()
	restore()
	b = bed.start(1, settings{})
	a.recvFails(status.Aborted, "restarted", waiting)
	a.untilVerbsAgain(1, before)
	bed.eventually("the sender's memory of the unfinished transfer is free", func() (string, bool) {
		n := a.state().Sending
		return fmt.Sprintf("%d bytes are in use", n), n < large
	})
	if d := time.Since(killed); d >= time.Minute { // then also without a new process
		t.Errorf("the memory was free after %v, want less than a minute", d)
	}
	bed.exchange(a, b, 100, 1<<20)
	bed.exchange(b, a, 100, 1<<20)
	// The value that was not requested is still in its step.
	a.do(command{Op: opAbort, Step: x.step, Name: "over"})
	bed.end(a, b)
}

// startDelay is how long after the first request a process starts: longer than several of the
// longest back-offs.
const startDelay = 125 * time.Second

// Process b is stopped for a minute, c is killed and not replaced, d has a short peer timeout, and
// e starts minutes after the first request to it. When b continues, all its transfers complete. The
// memory of the unfinished transfer to c is freed. A receive of d from b fails. The receives from e
// succeed when it has started.
func TestRxeStoppedForAMinute(t *testing.T) {
	bed := newTestbed(t, 5)
	const shortTimeout = 5 * time.Second
	a, b, c := bed.launch(0, settings{}), bed.launch(1, settings{}), bed.launch(2, settings{})
	d := bed.launch(3, settings{PeerTimeout: shortTimeout})
	for _, p := range []*process{a, b, c, d} {
		p.up()
	}
	fromE := []testTensor{{1_000_000, 4, 0, "small", 100, 1}, {1_000_000, 4, 0, "large", 1 << 20, 2}}
	ofE := []int{a.recv(fromE[0]), a.recv(fromE[1])}
	requested := time.Now()
	first := a.untilVerbs(1, 0)
	a.untilVerbs(2, 0)
	b.untilVerbs(0, 0)
	c.untilVerbs(0, 0)
	d.untilVerbs(1, 0)
	for _, p := range []*process{a, d} {
		bed.exchange(b, p, 10)
	}
	bed.exchange(a, b, 10)

	bed.step++
	unfinished := bed.newTensor(a, c, large)
	a.send(unfinished)
	restore := bed.slow(a.device, slowRate)
	since := bed.sentPackets(a.device)
	c.recv(unfinished)
	bed.untilSent(a.device, since, packetsBefore)
	killed := time.Now()
	c.kill()
	restore()

	underWay, later, toB := bed.newTensor(b, a, large), bed.newTensor(b, a, 100), bed.newTensor(a, b, 1000)
	b.send(underWay)
	restore = bed.slow(b.device, slowRate)
	since = bed.sentPackets(b.device)
	ofB := b.recv(toB)
	ofA := []int{a.recv(underWay), a.recv(later)}
	ofD := d.recv(bed.newTensor(b, d, 10))
	bed.untilSent(b.device, since, packetsBefore)
	stopped := time.Now()
	b.signal(syscall.SIGSTOP)
	restore()
	a.send(toB)
	// The kernel of the stopped process still acknowledges packets, so the queue pairs do not
	// break. The channel is left because QUERY gets no reply.
	bed.eventually("the channel to the stopped process is left", func() (string, bool) {
		l := a.state().Connections[1]
		return fmt.Sprintf("%+v", l), l.Breaks > 0
	})
	t.Logf("the channel was left after %v", time.Since(stopped).Round(time.Second))
	d.recvFails(status.Unavailable, "was not reached for", ofD)
	t.Logf("the receive with a peer timeout of %v failed after %v", shortTimeout, time.Since(stopped).Round(time.Second))
	bed.eventually("the memory of the transfer to the killed process is free", func() (string, bool) {
		s := a.state()
		return fmt.Sprintf("%d bytes are in use, %d responses kept", s.Sending, s.Kept), s.Sending < large
	})
	t.Logf("the memory of the transfer to the killed process was free after %v", time.Since(killed).Round(time.Second))
	<-time.After(time.Until(stopped.Add(time.Minute)))
	b.signal(syscall.SIGCONT)
	b.send(later)
	a.recvOK(ofA...)
	b.recvOK(ofB)
	a.untilVerbs(1, first.Generation)
	bed.exchange(a, b, 100, 1<<20)
	bed.exchange(b, a, 100, 1<<20)

	<-time.After(time.Until(requested.Add(startDelay)))
	e := bed.start(4, settings{})
	e.send(fromE...)
	a.recvOK(ofE...)
	t.Logf("the values of the process that started late came after %v", time.Since(requested).Round(time.Second))
	a.untilVerbs(4, 0)
	e.untilVerbs(0, 0)
	bed.exchangeOverVerbs(a, e)
	bed.end(a, b, d, e)
}

// Processes start in any order, also long after the first request to them. Only verbs is allowed.
func TestRxeStartInAnyOrder(t *testing.T) {
	bed := newTestbed(t, 3)
	only := settings{Fallback: "none"}
	a := bed.start(0, only)
	early := testTensor{1, 1, 0, "early", large, 1}
	latest := testTensor{1, 2, 0, "latest", 100, 2}
	ids := []int{a.recv(early), a.recv(latest)}
	<-time.After(5 * time.Second) // longer than the first back-offs; TestRxeStoppedForAMinute has a longer delay
	b := bed.start(1, only)
	fromB := testTensor{1, 1, 2, "to a task without a process", 1 << 20, 3}
	b.send(early, fromB)
	a.recvOK(ids[0])
	c := bed.start(2, only)
	c.send(latest)
	a.recvOK(ids[1])
	c.recvOK(c.recv(fromB))
	for _, p := range []*process{a, b, c} {
		if s := p.state(); len(s.Tensors) > 1 || s.Tensors["verbs"] == 0 && p != b {
			t.Errorf("task %d has received %v, want tensors over verbs only", p.task, s.Tensors)
		}
	}
	bed.end(a, b, c)
}
