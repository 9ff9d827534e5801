//go:build rxe && linux

package verbs_test

import (
	"fmt"
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
	again := w.counter(b.device, "out_of_seq_request")
	mend := w.lose(1)
	sizes := []int64{0, 10, 8 << 10, 8<<10 + 1, 1 << 20, 4<<20 + 13}
	for range 20 {
		sizes = append(sizes, 1000)
	}
	w.exchange(a, b, sizes...)
	w.exchange(b, a, sizes...)
	mend()
	if n := w.counter(b.device, "out_of_seq_request") - again; n == 0 {
		t.Error("no packet was lost")
	} else {
		t.Logf("%s has seen %d gaps; %d channels were left", b.device, n, a.state().Links[1].Breaks)
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
	// The channel breaks in the middle of a value. While it comes again, over gRPC
	// and slowly, verbs is back, and carries others: what the old channel may still
	// have on its way, and the new one's, does not get into it.
	t.Run("an answer comes over gRPC whose channel broke", func(t *testing.T) {
		w.within(t)
		before := a.state()
		w.step++
		x := w.parcel(b, a, large)
		b.send(x)
		since := w.sentPackets(b.device)
		id := a.recv(x)
		w.untilSent(b.device, since, packetsBefore)
		mend := w.cut()
		w.proxies[b.task].Throttle(large / 8) // it takes eight seconds
		a.untilBroken(1, before.Links[1].Breaks)
		mend()
		a.untilVerbs(1, before.Links[1].Generation)
		b.untilVerbs(0, before.Links[1].Generation)
		w.exchangeOverVerbs(a, b)
		w.proxies[b.task].Throttle(0)
		a.good(id)
		now := a.state()
		if n := now.Bytes["grpc"] - before.Bytes["grpc"]; n != large || now.Links[1].Lost == before.Links[1].Lost {
			t.Errorf("%d bytes came over gRPC, want the %d of the one: %+v", n, large, now)
		}
	})
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
