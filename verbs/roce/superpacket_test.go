package roce

import (
	"bytes"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// kernelPair returns two ends; the first one takes the second one for a kernel's
// device.
func kernelPair(t *testing.T, f *fabric, size int) (x, y *testEnd) {
	t.Helper()
	x, y = f.pair(t, size)
	joinEnds(x, y, func(_ *verbs.Path, peer *verbs.Endpoint) {
		if peer.QPN == y.qp.QPN() {
			peer.UDP = verbs.UDPEndpoint{}
		}
	})
	return x, y
}

// longest returns a function that returns the largest number of segments an end has
// sent in a super-packet.
func (f *fabric) longest(from *testEnd) func() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := 0
	f.see = func(sender, _ netip.AddrPort, segment int, _ []byte) {
		if sender.Addr() == from.addr {
			most = max(most, segment+1)
		}
	}
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := most
		most = 0
		return n
	}
}

// probe returns the probe state of an end's flow.
func (x *testEnd) probe() superPacketProbe {
	q, _ := x.inner()
	f := q.flow.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probe
}

// transfer writes the first half of x's memory to the second half of y's.
func transfer(x, y *testEnd) {
	x.t.Helper()
	half := len(x.mem) / 2
	x.post(x.to(y, 1, verbs.OpWrite, 0, half, half))
	x.ends(1, verbs.StatusOK)
}

// TestProbeOfAKernel: a super-packet of two segments is sent first, and longer ones
// only after it was acknowledged.
func TestProbeOfAKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = 10 * time.Millisecond // so that the window is sent before a response arrives
		x, y := kernelPair(t, f, 1<<20)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		synctest.Wait()
		if n := longest(); n != 2 || x.probe().state != probeSent {
			t.Errorf("before anything is acknowledged %d segments are sent, state %d", n, x.probe().state)
		}
		x.ends(1, verbs.StatusOK)
		if s := x.probe().state; s != probeSucceeded {
			t.Errorf("the probe is acknowledged, and the state is %d", s)
		}
		transfer(x, y)
		if n := longest(); n < 10 {
			t.Errorf("the longest super-packet has %d segments", n)
		}
	})
}

// TestProbeOfAKernelThatDropsSegments: after maxLostProbes lost probes packets are sent
// alone, and everything arrives.
func TestProbeOfAKernelThatDropsSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 1<<18)
		for i := range x.mem {
			x.mem[i] = byte(i * 3 >> 1)
		}
		longest := f.longest(x)
		for range maxLostProbes {
			transfer(x, y)
		}
		if n := longest(); n != 2 {
			t.Errorf("a probe has %d segments", n)
		}
		if tr := x.probe(); tr.state != probeFailed || tr.lost != maxLostProbes {
			t.Errorf("the state is %d after %d lost probes", tr.state, tr.lost)
		}
		transfer(x, y)
		if n := longest(); n != 1 {
			t.Errorf("after failed probes a message has %d segments", n)
		}
		half := len(x.mem) / 2
		synctest.Wait()
		if !bytes.Equal(x.mem[:half], y.mem[half:]) {
			t.Error("different bytes")
		}
	})
}

// TestProbeIsRepeatedAfterALoss: a probe may be lost as any packet.
func TestProbeIsRepeatedAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 1<<18)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		time.Sleep(f.latency / 2)
		f.mu.Lock()
		f.firstOnly = false
		f.mu.Unlock()
		x.ends(1, verbs.StatusOK)
		transfer(x, y)
		if tr := x.probe(); tr.state != probeSucceeded || tr.lost == 0 || longest() < 10 {
			t.Errorf("the state is %d after %d lost probes", tr.state, tr.lost)
		}
	})
}

// TestReadResponsesAreNoProbe: READ responses are not acknowledged, so they are sent
// alone until a request has shown that super-packets arrive.
func TestReadResponsesAreNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 1<<18)
		longest := f.longest(x)
		for range 2 {
			y.post(y.to(x, 1, verbs.OpRead, 0, 1<<17, 0))
			y.ends(1, verbs.StatusOK)
		}
		if n := longest(); n != 1 || x.probe().state != probeNone {
			t.Errorf("READ responses have %d segments, and the state is %d", n, x.probe().state)
		}
		for range maxLostProbes {
			transfer(x, y)
		}
		if n := longest(); n != 2 || x.probe().state != probeFailed {
			t.Errorf("probes have %d segments, and the state is %d", n, x.probe().state)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := kernelPair(t, f, 1<<18)
		transfer(x, y)
		longest := f.longest(x)
		y.post(y.to(x, 1, verbs.OpRead, 0, 1<<17, 0))
		y.ends(1, verbs.StatusOK)
		if n := longest(); n < 10 {
			t.Errorf("after the probe the longest READ response has %d segments", n)
		}
	})
}

// TestProbeOfAFailedQueuePair: flushed packets were not acknowledged.
func TestProbeOfAFailedQueuePair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := kernelPair(t, f, 64<<10)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		if s := x.probe().state; s != probeSent {
			t.Fatalf("state %d", s)
		}
		if err := x.qp.ToErr(); err != nil {
			t.Fatal(err)
		}
		if s := x.probe().state; s != probeNone {
			t.Errorf("a probe that was never acknowledged makes it %d, want %d", s, probeNone)
		}
	})
}

// TestRetransmissionsAreNoProbe: if a probe found no receive and was retransmitted
// packet by packet, its ACK shows nothing.
func TestRetransmissionsAreNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.firstOnly = true
		x, y := kernelPair(t, f, 4096)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpSend, 0, 8, 0), x.to(y, 2, verbs.OpSend, 0, 8, 0))
		time.Sleep(3 * f.latency) // y has sent an RNR NAK
		if n := longest(); n != 2 {
			t.Errorf("the probe has %d segments", n)
		}
		y.recv(1, 0, 8)
		y.recv(2, 0, 8)
		x.ends(1, verbs.StatusOK)
		x.ends(2, verbs.StatusOK)
		if tr := x.probe(); tr.state != probeNone || tr.lost != 0 {
			t.Errorf("the state is %d after %d lost probes", tr.state, tr.lost)
		}
	})
}

// TestUserSpacePeersGetSuperPackets: from the first packet on.
func TestUserSpacePeersGetSuperPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = 10 * time.Millisecond
		x, y := f.pair(t, 1<<18)
		joinEnds(x, y, nil)
		longest := f.longest(x)
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64<<10, 0))
		synctest.Wait()
		if n := longest(); n < 10 {
			t.Errorf("the longest super-packet has %d segments", n)
		}
		x.ends(1, verbs.StatusOK)
	})
}
