//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"strings"
	"testing"
)

// broken waits until a process has left a channel since it had so many left.
func (p *process) untilBroken(peer int, before uint64) {
	p.w.t.Helper()
	p.w.eventually("the channel is left", func() (string, bool) {
		l := p.state().Links[peer]
		return fmt.Sprintf("%+v", l), l.Breaks > before
	})
}

// The interface of one side goes down while tensors go both ways, and comes back.
// All of them arrive, over whatever wire, and then verbs carries them again.
func TestRxeLinkDownAndUpMidTransfer(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{})
	for _, device := range w.devices {
		was := a.state().Links[1]
		w.step++
		there, back := w.parcel(a, b, large), w.parcel(b, a, large)
		a.send(there)
		b.send(back)
		since := w.sentPackets(device)
		ofA, ofB := a.recv(back), b.recv(there)
		w.untilSent(device, since, packetsBefore)
		up := w.down(device)
		a.untilBroken(1, was.Breaks)
		w.exchange(a, b, 100, 100_000) // over gRPC
		up()
		a.good(ofA)
		b.good(ofB)
		b.untilVerbs(0, was.Generation)
		a.untilVerbs(1, was.Generation)
		w.exchangeOverVerbs(a, b)
	}
	w.end(a, b)
}

// exchangeOverVerbs sends both ways, and nothing of it over gRPC.
func (w *world) exchangeOverVerbs(a, b *process) {
	w.t.Helper()
	for _, x := range [][2]*process{{a, b}, {b, a}} {
		before := x[1].state().Tensors
		w.exchange(x[0], x[1], 0, 100, 1<<20)
		if now := x[1].state().Tensors; now["grpc"] != before["grpc"] || now["verbs"] != before["verbs"]+3 {
			w.t.Errorf("task %d has received %v, before %v, want three more over verbs", x[1].task, now, before)
		}
	}
}

// One packet of a hundred is lost, in both directions, and rxe sends it again:
// everything arrives over verbs alone.
func TestRxeOnePercentLoss(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{Fallback: "none"})
	mend := w.lose(1)
	sizes := []int64{0, 10, 8 << 10, 8<<10 + 1, 1 << 20, 4<<20 + 13}
	for range 20 {
		sizes = append(sizes, 1000)
	}
	w.exchange(a, b, sizes...)
	w.exchange(b, a, sizes...)
	lost := w.dropped(a.device) + w.dropped(b.device)
	mend()
	if lost == 0 {
		t.Error("no packet was lost")
	} else {
		t.Logf("%d packets were lost; %d channels were left", lost, a.state().Links[1].Breaks)
	}
	w.end(a, b)
}

// Either wire is cut while the other one lives.
func TestRxeOneWireIsCut(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{})
	w.exchangeOverVerbs(a, b)
	t.Run("gRPC is cut while verbs lives", func(t *testing.T) {
		w.within(t)
		before := a.state().Links[1]
		mend := w.cutGRPC()
		for range 3 {
			w.exchangeOverVerbs(a, b)
		}
		mend()
		if l := a.state().Links[1]; l.Generation != before.Generation || l.Breaks != before.Breaks {
			t.Errorf("the channel was %+v, and is %+v", before, l)
		}
	})
	t.Run("verbs is cut while gRPC lives", func(t *testing.T) {
		w.within(t)
		before := a.state()
		w.step++
		waits := w.parcel(b, a, 1000)
		id := a.recv(waits)
		mend := w.cut()
		a.untilBroken(1, before.Links[1].Breaks)
		b.send(waits)
		a.good(id)
		w.exchange(a, b, 0, 100, 1<<20)
		w.exchange(b, a, 0, 100, 1<<20)
		if now := a.state(); now.Tensors["grpc"] == before.Tensors["grpc"] || now.Links[1].Verbs {
			t.Errorf("%+v has come by these wires, before %+v", now.Tensors, before.Tensors)
		}
		mend()
		a.untilVerbs(1, before.Links[1].Generation)
		b.untilVerbs(0, before.Links[1].Generation)
		w.exchangeOverVerbs(a, b)
	})
	w.end(a, b)
}

// A channel breaks in the middle of a value, which comes again over gRPC, slowly, and
// into memory of its own: that of the old destination is given back when the queue
// pairs are destroyed, and another receive over the new channel has it at once. What
// the old channel had on its way lands in neither.
func TestRxeChannelBrokenWhileItsAnswerComesOverGRPC(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.launch(0, settings{ArenaLimit: large + large/2}), w.launch(1, settings{})
	a.up()
	b.up()
	a.untilVerbs(1, 0)
	b.untilVerbs(0, 0)
	w.exchangeOverVerbs(a, b)
	before := a.state()
	w.step++
	x, y := w.parcel(b, a, large), w.parcel(b, a, large)
	b.send(x, y)
	since := w.sentPackets(b.device)
	ofX := a.recv(x)
	w.untilSent(b.device, since, packetsBefore)
	mend := w.cut()
	w.proxies[b.task].Throttle(large / 16) // it takes sixteen seconds
	a.untilBroken(1, before.Links[1].Breaks)
	mend()
	a.untilVerbs(1, before.Links[1].Generation)
	b.untilVerbs(0, before.Links[1].Generation)
	if n := a.state().Receiving; n != 0 {
		t.Errorf("%d bytes of registered memory are in use, and nothing is received there", n)
	}
	a.good(a.recv(y)) // there is no other memory of that size that is registered
	w.exchange(a, b, 100, 1<<20)
	a.mu.Lock()
	ended := len(a.replies[ofX]) > 0
	a.mu.Unlock()
	if ended {
		t.Error("the answer over gRPC has come too early for the test to be of use")
	}
	w.proxies[b.task].Throttle(0)
	a.good(ofX)
	now := a.state()
	if n, m := now.Bytes["grpc"]-before.Bytes["grpc"], now.Bytes["verbs"]-before.Bytes["verbs"]; n != large || m != large {
		t.Errorf("%d bytes came over gRPC and %d over verbs, want one tensor each: %+v", n, m, now)
	}
	if now.Links[1].Lost == before.Links[1].Lost {
		t.Errorf("nothing was lost with the channel: %+v", now.Links[1])
	}
	w.end(a, b)
}

// The address that verbs uses is gone for good, since its network device has been
// given another one: that is used instead, and when the first one is back, the first.
func TestRxeAnotherAddress(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{})
	w.exchangeOverVerbs(a, b)
	const first, second = "192.0.2.1", "192.0.2.11"
	for _, c := range [][2]string{{first, second}, {second, first}} {
		was := a.state().Links[1]
		w.replaceAddress(a.device, c[0], c[1])
		a.untilVerbs(1, was.Generation)
		b.untilVerbs(0, was.Generation)
		w.exchangeOverVerbs(a, b)
		w.eventually(c[1]+" is used", func() (string, bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return "the log does not say so", strings.Contains(a.log.String(), "GID="+c[1])
		})
	}
	w.end(a, b)
}

// Another process removes the device of one side in the middle of a transfer. The
// kernel lets it wait until we have let go, which is soon; both sides go on over
// gRPC. A new process has a new device.
func TestRxeDeviceIsRemoved(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.startPair(settings{})
	w.exchangeOverVerbs(a, b)
	w.step++
	there, back, later := w.parcel(a, b, large), w.parcel(b, a, large), w.parcel(b, a, 1000)
	a.send(there)
	b.send(back)
	since := w.sentPackets(b.device)
	ofA, ofB := []int{a.recv(back), a.recv(later)}, b.recv(there)
	w.untilSent(b.device, since, packetsBefore)
	add := w.remove(b.device)
	b.send(later)
	a.good(ofA...)
	b.good(ofB)
	w.exchange(a, b, 0, 100, 1<<20)
	w.exchange(b, a, 0, 100, 1<<20)
	for _, l := range []link{a.state().Links[1], b.state().Links[0]} {
		if l.Verbs || l.Reason == "" {
			t.Errorf("without a device the channel is %+v", l)
		}
	}
	b.untilIdle()
	b.close()
	add()
	before := a.state().Links[1].Generation
	b = w.start(1, settings{})
	a.untilVerbs(1, before)
	b.untilVerbs(0, before)
	w.meet(b, a)
	w.exchangeOverVerbs(a, b)
	w.end(a, b)
}
