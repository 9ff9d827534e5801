//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"strings"
	"testing"
)

// untilBroken waits until a process has left more channels to the peer than before.
func (p *process) untilBroken(peer int, before uint64) {
	p.bed.t.Helper()
	p.bed.eventually("the channel is left", func() (string, bool) {
		l := p.state().Connections[peer]
		return fmt.Sprintf("%+v", l), l.Breaks > before
	})
}

// The interface of one side goes down while tensors move in both directions, and comes back. All
// tensors arrive, over verbs or gRPC, and verbs carries later ones.
func TestRxeLinkDownAndUpMidTransfer(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{})
	for _, device := range bed.devices {
		was := a.state().Connections[1]
		bed.step++
		toB, toA := bed.newTensor(a, b, large), bed.newTensor(b, a, large)
		a.send(toB)
		b.send(toA)
		restore := bed.slow(device, slowRate)
		since := bed.sentPackets(device)
		ofA, ofB := a.recv(toA), b.recv(toB)
		bed.untilSent(device, since, packetsBefore)
		up := bed.down(device)
		restore()
		a.untilBroken(1, was.Breaks)
		bed.exchange(a, b, 100, 100_000) // over gRPC
		up()
		a.recvOK(ofA)
		b.recvOK(ofB)
		b.untilVerbs(0, was.Generation)
		a.untilVerbs(1, was.Generation)
		bed.exchangeOverVerbs(a, b)
	}
	bed.end(a, b)
}

// exchangeOverVerbs sends three tensors in each direction, which must all take verbs.
func (bed *testbed) exchangeOverVerbs(a, b *process) {
	bed.t.Helper()
	for _, x := range [][2]*process{{a, b}, {b, a}} {
		before := x[1].state().Tensors
		bed.exchange(x[0], x[1], 0, 100, 1<<20)
		if now := x[1].state().Tensors; now["grpc"] != before["grpc"] || now["verbs"] != before["verbs"]+3 {
			bed.t.Errorf("task %d has received %v, before %v, want three more, all over verbs", x[1].task, now, before)
		}
	}
}

// With a loss of 1 % in both directions rxe sends packets again, and all tensors arrive over verbs
// alone.
func TestRxeOnePercentLoss(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{Fallback: "none"})
	restore := bed.lose(1)
	sizes := []int64{0, 10, 8 << 10, 8<<10 + 1, 1 << 20, 4<<20 + 13}
	for range 20 {
		sizes = append(sizes, 1000)
	}
	bed.exchange(a, b, sizes...)
	bed.exchange(b, a, sizes...)
	dropped := bed.dropped(a.device) + bed.dropped(b.device)
	restore()
	if dropped == 0 {
		t.Error("no packet was dropped, want some")
	} else {
		t.Logf("%d packets were dropped; %d channels were left", dropped, a.state().Connections[1].Breaks)
	}
	bed.end(a, b)
}

// gRPC or verbs is cut while the other one works.
func TestRxeOneRouteIsCut(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{})
	bed.exchangeOverVerbs(a, b)
	t.Run("gRPC is cut", func(t *testing.T) {
		bed.within(t)
		before := a.state().Connections[1]
		restore := bed.cutGRPC()
		for range 3 {
			bed.exchangeOverVerbs(a, b)
		}
		restore()
		if l := a.state().Connections[1]; l.Generation != before.Generation || l.Breaks != before.Breaks {
			t.Errorf("the channel is %+v, want %+v as before", l, before)
		}
	})
	t.Run("verbs is cut", func(t *testing.T) {
		bed.within(t)
		before := a.state()
		bed.step++
		waiting := bed.newTensor(b, a, 1000)
		id := a.recv(waiting)
		restore := bed.cut()
		a.untilBroken(1, before.Connections[1].Breaks)
		b.send(waiting)
		a.recvOK(id)
		bed.exchange(a, b, 0, 100, 1<<20)
		bed.exchange(b, a, 0, 100, 1<<20)
		if now := a.state(); now.Tensors["grpc"] == before.Tensors["grpc"] || now.Connections[1].Verbs {
			t.Errorf("received %+v, before %+v, channel %+v; want more over gRPC and no channel", now.Tensors, before.Tensors, now.Connections[1])
		}
		restore()
		a.untilVerbs(1, before.Connections[1].Generation)
		b.untilVerbs(0, before.Connections[1].Generation)
		bed.exchangeOverVerbs(a, b)
	})
	bed.end(a, b)
}

// A channel breaks in the middle of a content, which then comes slowly over gRPC, into other
// memory. The memory of the old destination is free when the queue pairs are destroyed, and another
// receive over the new channel gets it at once. Late writes of the old channel corrupt neither.
func TestRxeBrokenChannelAndSlowRetryOverGRPC(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.launch(0, settings{ArenaLimit: large + large/2}), bed.launch(1, settings{})
	a.up()
	b.up()
	a.untilVerbs(1, 0)
	b.untilVerbs(0, 0)
	bed.exchangeOverVerbs(a, b)
	before := a.state()
	bed.step++
	x, y := bed.newTensor(b, a, large), bed.newTensor(b, a, large)
	b.send(x, y)
	restore := bed.slow(b.device, slowRate)
	since := bed.sentPackets(b.device)
	ofX := a.recv(x)
	bed.untilSent(b.device, since, packetsBefore)
	restore()
	restore = bed.cut()
	bed.proxies[b.task].Throttle(large / 16) // bytes per second: it takes sixteen seconds
	a.untilBroken(1, before.Connections[1].Breaks)
	restore()
	a.untilVerbs(1, before.Connections[1].Generation)
	b.untilVerbs(0, before.Connections[1].Generation)
	if n := a.state().Receiving; n != 0 {
		t.Errorf("%d bytes of registered memory are in use, want none", n)
	}
	a.recvOK(a.recv(y)) // no other registered memory is large enough
	bed.exchange(a, b, 100, 1<<20)
	a.mu.Lock()
	ended := len(a.replies[ofX]) > 0
	a.mu.Unlock()
	if ended {
		t.Error("the response over gRPC came before the new channel was used: the test proves nothing")
	}
	bed.proxies[b.task].Throttle(0)
	a.recvOK(ofX)
	now := a.state()
	if n, m := now.Bytes["grpc"]-before.Bytes["grpc"], now.Bytes["verbs"]-before.Bytes["verbs"]; n != large || m != large {
		t.Errorf("received %d bytes over gRPC and %d over verbs, want one tensor each: %+v", n, m, now)
	}
	if now.Connections[1].Lost == before.Connections[1].Lost {
		t.Errorf("channel %+v, want a receive that was lost with it", now.Connections[1])
	}
	bed.end(a, b)
}

// When the address of a device is replaced, new channels use the new address, and the first one
// again when that is restored.
func TestRxeAddressIsReplaced(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{})
	bed.exchangeOverVerbs(a, b)
	const first, second = "192.0.2.1", "192.0.2.11"
	for _, c := range [][2]string{{first, second}, {second, first}} {
		was := a.state().Connections[1]
		bed.replaceAddress(a.device, c[0], c[1])
		a.untilVerbs(1, was.Generation)
		b.untilVerbs(0, was.Generation)
		bed.exchangeOverVerbs(a, b)
		bed.eventually(c[1]+" is used", func() (string, bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return "the log does not have it", strings.Contains(a.log.String(), "gid="+c[1])
		})
	}
	bed.end(a, b)
}

// Another process removes the device of one side in the middle of a transfer. The kernel blocks the
// removal until the node has closed the device, which it does soon. Both sides continue over gRPC.
// A new process uses the device when it was added again.
func TestRxeDeviceIsRemoved(t *testing.T) {
	bed := newTestbed(t, 2)
	a, b := bed.startPair(settings{})
	bed.exchangeOverVerbs(a, b)
	bed.step++
	toB, toA, later := bed.newTensor(a, b, large), bed.newTensor(b, a, large), bed.newTensor(b, a, 1000)
	a.send(toB)
	b.send(toA)
	restore := bed.slow(b.device, slowRate)
	since := bed.sentPackets(b.device)
	ofA, ofB := []int{a.recv(toA), a.recv(later)}, b.recv(toB)
	bed.untilSent(b.device, since, packetsBefore)
	add := bed.remove(b.device)
	restore()
	b.send(later)
	a.recvOK(ofA...)
	b.recvOK(ofB)
	bed.exchange(a, b, 0, 100, 1<<20)
	bed.exchange(b, a, 0, 100, 1<<20)
	for _, l := range []connection{a.state().Connections[1], b.state().Connections[0]} {
		if l.Verbs || l.Reason == "" {
			t.Errorf("without a device: got channel %+v, want none and a reason", l)
		}
	}
	b.untilIdle()
	b.close()
	add()
	b = bed.start(1, settings{})
	a.untilVerbs(1, 0)
	b.untilVerbs(0, 0)
	bed.untilRestartKnown(b, a)
	bed.exchangeOverVerbs(a, b)
	bed.end(a, b)
}
