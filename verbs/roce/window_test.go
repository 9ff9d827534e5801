package roce

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestInitialWindow: 128 KiB, or the peer's buffer if that is smaller. The window never
// exceeds the buffer, nor maxWindow if the buffer is unknown.
func TestInitialWindow(t *testing.T) {
	const mtu = 4096
	least := minWindowPackets * windowCost(1, mtu)
	for _, c := range []struct{ buffer, size, limit uint64 }{
		{0, 128 << 10, maxWindow}, {64 << 10, 64 << 10, 64 << 10}, {208 << 10, 128 << 10, 208 << 10},
		{1 << 40, 128 << 10, maxWindow}, {1, least, least},
	} {
		w := newWindow(c.buffer, mtu)
		if w.size != c.size || w.limit != c.limit {
			t.Errorf("buffer %d: starts at %d, limit %d; want %d and %d", c.buffer, w.size, w.limit, c.size, c.limit)
		}
		for range 10000 {
			w.onAck(w.size, true)
		}
		if w.size != c.limit {
			t.Errorf("buffer %d: it grows to %d, not to %d", c.buffer, w.size, c.limit)
		}
	}
}

// TestWindowFitsAllMTUs: two packets of the largest MTU fit.
func TestWindowFitsAllMTUs(t *testing.T) {
	w := newWindow(1, 256)
	if w.fitMTU(4096); w.min != 2*windowCost(1, 4096) || w.size != w.min || w.limit != w.min {
		t.Errorf("with packets of 4096 bytes the window is %d of %d, at least %d", w.size, w.limit, w.min)
	}
	before := w
	if w.fitMTU(1024); w != before {
		t.Errorf("with shorter ones it is another: %+v, %+v before", w, before)
	}
}

// TestFlightStaysWithinThePeersBuffer: on the wire, with one flow and with several.
func TestFlightStaysWithinThePeersBuffer(t *testing.T) {
	for _, senders := range []int{1, defaultSenders} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.bandwidth = 1 << 30
			a, b := f.host(hostA), f.host(hostB)
			list := pairsBetween(t, 2*defaultSenders, 256<<10, newProvider(Options{Senders: senders}, a), newProvider(Options{}, b), "roce-eth0",
				netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
			var pairs []*qp
			for _, s := range list {
				q, _ := s.x.inner()
				pairs = append(pairs, q)
			}
			flows := make(map[*flow]bool)
			for _, q := range pairs {
				flows[q.flow.Load()] = true
			}
			var mu sync.Mutex
			most, under := uint64(0), make(map[netip.AddrPort]uint64)
			f.see = func(from, _ netip.AddrPort, _ int, _ []byte) {
				if from.Addr() != list[0].x.addr {
					return
				}
				for fl := range flows {
					if fl.sender.Addr() != from {
						continue // a sending goroutine does not hold its lock
					}
					mu.Lock()
					under[from] = fl.flight
					all := uint64(0)
					for _, n := range under {
						all += n
					}
					most = max(most, all)
					mu.Unlock()
				}
			}
			runStreams(t, 20*time.Millisecond, 50*time.Millisecond, list...)
			said := uint64(f.buffer) //nolint:gosec // a size
			if len(flows) != senders || most > said || most < said/2 {
				t.Errorf("%d flows had %d in flight, and the peer's buffer holds %d", len(flows), most, said)
			}
		})
	}
}

// afterLoss returns the window after a loss: one of its equivalent connections is
// halved.
func afterLoss(size uint64) uint64 { return size - size/(2*equivalentFlows) }

// TestNewReno: RFC 9002, section 7, for equivalentFlows connections.
func TestNewReno(t *testing.T) {
	const mtu, rtt = 1024, time.Millisecond
	w := newWindow(0, mtu)
	packet := windowCost(1, mtu)
	is := func(when string, want uint64) {
		t.Helper()
		if w.size != want {
			t.Errorf("%s the window is %d, want %d", when, w.size, want)
		}
	}
	size := uint64(initialWindow)
	w.onAck(10*packet, false)
	is("where more would not have been sent (7.8)", size)
	w.onAck(10*packet, true)
	size += 10 * packet
	is("in slow start, by what is acknowledged (7.3.1)", size)
	w.onCongestion(0, rtt)
	size = afterLoss(size)
	is("after a loss, half of one connection (7.3.2)", size)
	w.onCongestion(rtt-1, rtt)
	is("after another loss within the round trip", size)
	// Congestion avoidance: one packet per window and connection (7.3.3).
	before := w.size
	for acked := uint64(0); acked < before; acked += packet {
		w.onAck(packet, true)
	}
	if grown := w.size - before; grown < equivalentFlows*packet*8/10 || grown > equivalentFlows*packet*12/10 {
		t.Errorf("in congestion avoidance it grows by %d for a window, a packet counts %d", grown, packet)
	}
	size = w.size
	w.onCongestion(rtt, rtt)
	is("after a loss in the next round trip", afterLoss(size))
	for i := range 50 {
		w.onCongestion(time.Duration(i+2)*rtt, rtt)
	}
	is("after many, the minimum (7.2)", 2*packet)

	w = newWindow(0, mtu)
	w.onPersistentCongestion(0)
	is("in persistent congestion, the minimum (7.6.2)", 2*packet)
	w.onAck(initialWindow, true)
	is("after it, slow start to half of what it was", 2*packet+initialWindow)
}

// TestWhatReducesTheWindow: a gap or a CNP reduces it; the first timeout does not, the
// second one sets it to the minimum.
func TestWhatReducesTheWindow(t *testing.T) {
	for _, c := range []struct {
		name string
		n    feedback
		want uint64
	}{
		{"nothing", feedback{}, initialWindow},
		{"a loss", feedback{lost: true}, afterLoss(initialWindow)},
		{"a CNP", feedback{congested: true}, afterLoss(initialWindow)},
		{"a timeout", feedback{timeouts: 1}, initialWindow},
		{"all of them", feedback{timeouts: 1, lost: true, congested: true}, afterLoss(initialWindow)},
		{"a second timeout", feedback{timeouts: 2}, 2 * windowCost(1, 1024)},
	} {
		w := newWindow(0, 1024)
		if w.apply(0, c.n, true); w.size != c.want {
			t.Errorf("after %s it is %d, want %d", c.name, w.size, c.want)
		}
	}
}

// TestOneLossReducesTheWindowOnce: however many queue pairs report it, also without a
// measured round trip. A loss in the next round trip reduces it again.
func TestOneLossReducesTheWindowOnce(t *testing.T) {
	w := newWindow(0, 1024)
	is := func(when string, want uint64) {
		t.Helper()
		if w.size != want {
			t.Errorf("%s it is %d, want %d", when, w.size, want)
		}
	}
	for i := range 64 {
		w.apply(time.Duration(i)*10*time.Microsecond, feedback{lost: true}, true)
	}
	is("after a loss that 64 see, none of which knows the round trip,", afterLoss(initialWindow))
	w.apply(firstRTO, feedback{lost: true}, true)
	is("after another one", afterLoss(afterLoss(initialWindow)))
	w.apply(firstRTO, feedback{rtt: ms}, true)
	w.apply(firstRTO+ms/2, feedback{lost: true}, true)
	is("after one within the round trip that another measured", afterLoss(afterLoss(initialWindow)))
	w.apply(firstRTO+ms, feedback{lost: true}, true)
	is("after one behind it", afterLoss(afterLoss(afterLoss(initialWindow))))
}

// TestNewQueuePairsCountOneLoss: a switch drops all packets for a moment, while 16
// queue pairs begin, and each reports the loss.
func TestNewQueuePairsCountOneLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = ms
		list := pairsBetween(t, 16, 4<<10, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		for _, drops := range []float64{1, 0} { // the second message of each reports the loss of the first
			f.mu.Lock()
			f.loss = drops
			f.mu.Unlock()
			for _, s := range list {
				s.write()
			}
		}
		for _, s := range list {
			s.x.wait()
			s.x.wait()
		}
		q, _ := list[0].x.inner()
		fl := q.flow.Load()
		fl.mu.Lock()
		defer fl.mu.Unlock()
		if least := min(initialWindow, fl.window.limit) / 2; fl.window.size < least {
			t.Errorf("the window is %d, which is less than %d, after one loss", fl.window.size, least)
		}
	})
}

// TestWindowGrowsWithManyQueuePairs: as fast as with one, although their ACKs arrive
// together and only the first one finds the window full.
func TestWindowGrowsWithManyQueuePairs(t *testing.T) {
	for _, pairs := range []int{1, 64} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.latency, f.buffer = 100*time.Microsecond, 1<<20
			list := pairsBetween(t, pairs, 64<<10, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
				netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
			if pairs > 1 {
				for _, s := range list {
					s.size = 4 << 10
				}
			}
			q, _ := list[0].x.inner()
			fl := q.flow.Load()
			size := uint64(0)
			time.AfterFunc(1600*time.Microsecond, func() { // eight round trips
				fl.mu.Lock()
				defer fl.mu.Unlock()
				size = fl.window.size
			})
			runStreams(t, 0, 2*ms, list...)
			if size < maxWindow*9/10 {
				t.Errorf("with %d queue pairs the window has grown to %d of %d", pairs, size, maxWindow)
			}
		})
	}
}

// stream keeps WRITEs of a size outstanding from x to y. They fill the part of the
// memories that begins at from, one after the other: span bytes, or one WRITE.
type stream struct {
	x, y       *testEnd
	size       int
	from, span int
	at         int
	reads      bool // instead of WRITEs
}

func (s *stream) write() {
	at := s.from + s.at
	if s.at += s.size; s.at >= s.span {
		s.at = 0
	}
	op := verbs.OpWrite
	if s.reads {
		op = verbs.OpRead
	}
	s.x.post(s.x.to(s.y, 0, op, at, s.size, at))
}

const streamDepth = 4

// virtualTime is the length of a measurement on virtual time.
const virtualTime = 500 * time.Millisecond

// runStreams runs streams concurrently, first for warm and then for d, and returns the
// bytes that each has moved in d.
func runStreams(t testing.TB, warm, d time.Duration, streams ...*stream) (moved []int) {
	t.Helper()
	stop := make(chan struct{})
	results := make([]chan int, len(streams))
	measure := make(chan struct{})
	for i, s := range streams {
		results[i] = make(chan int, 1)
		for range streamDepth {
			s.write()
		}
		go func() {
			base, count, on := 0, 0, measure
			for {
				if wc := s.x.wait(); wc.Status != verbs.StatusOK {
					t.Errorf("stream %d: %v", i, wc.Status)
					results[i] <- 0
					return
				}
				count++
				select {
				case <-on:
					base, on = count, nil
				default:
				}
				select {
				case <-stop:
					moved := (count - base) * s.size
					for range streamDepth - 1 {
						s.x.wait()
					}
					results[i] <- moved
					return
				default:
				}
				s.write()
			}
		}()
	}
	time.Sleep(warm)
	close(measure)
	time.Sleep(d)
	close(stop)
	for _, r := range results {
		moved = append(moved, <-r)
	}
	return moved
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// pairsBetween returns n connected pairs between two providers.
func pairsBetween(t testing.TB, n, size int, p, q *Provider, device string, a, b netip.Addr) (list []*stream) {
	t.Helper()
	for range n {
		x, y := newTestEnd(t, p, device, a, size), newTestEnd(t, q, device, b, size)
		joinEnds(x, y, nil)
		list = append(list, &stream{x: x, y: y, size: size})
	}
	return list
}

// TestQueuePairsShareADevice: 64 queue pairs move at least 0.8 of what one does, and
// none less than half of its share.
func TestQueuePairsShareADevice(t *testing.T) {
	const size = 64 << 10
	run := func(pairs int) (moved []int) {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.bandwidth = 1 << 30
			a, b := f.host(hostA), f.host(hostB)
			list := pairsBetween(t, pairs, size, newProvider(Options{}, a), newProvider(Options{}, b), "roce-eth0",
				netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
			moved = runStreams(t, 20*time.Millisecond, virtualTime, list...)
		})
		return moved
	}
	one, all := sum(run(1)), run(64)
	share := sum(all) / len(all)
	t.Logf("one moves %d MB, 64 together %d MB, the least %.2f and the most %.2f of its share",
		one>>20, sum(all)>>20, float64(slices.Min(all))/float64(share), float64(slices.Max(all))/float64(share))
	if sum(all) < one*8/10 {
		t.Error("together they move less than 0.8 of what one does")
	}
	if slices.Min(all) < share/2 {
		t.Error("one moves less than half of its share")
	}
}

// TestTwoSendersIntoOneReceiver: each gets at least 0.35 of the sum, although their
// windows together exceed the receiver's buffer.
func TestTwoSendersIntoOneReceiver(t *testing.T) {
	const size = 256 << 10
	for _, gap := range []time.Duration{0, 50 * time.Millisecond} { // the second one begins later
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.bandwidth = 256 << 20
			into := newProvider(Options{}, f.host(hostB))
			var list []*stream
			for _, addr := range []string{hostA, "10.0.0.3"} {
				p := newProvider(Options{}, f.host(addr))
				list = append(list, pairsBetween(t, 1, size, p, into, "roce-eth0", netip.MustParseAddr(addr), netip.MustParseAddr(hostB))...)
			}
			if gap > 0 {
				runStreams(t, 0, gap, list[0])
			}
			bytesIn := int(2 * virtualTime.Seconds() * float64(f.bandwidth))
			moved := runStreams(t, virtualTime/4, 2*virtualTime, list...)
			t.Logf("%d and %d MB of %d", moved[0]>>20, moved[1]>>20, bytesIn>>20)
			if slices.Min(moved) < sum(moved)*35/100 {
				t.Errorf("one gets %.2f of the sum", float64(slices.Min(moved))/float64(sum(moved)))
			}
			if sum(moved) < bytesIn/2 {
				t.Errorf("the link is used by %.2f only", float64(sum(moved))/float64(bytesIn))
			}
		})
	}
}

// TestOnePercentLoss: keeps at least 0.25 of the rate without loss.
func TestOnePercentLoss(t *testing.T) {
	const size = 1 << 20
	run := func(loss float64) (moved int) {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.bandwidth, f.loss = 1<<30, loss
			x, y := f.pair(t, size)
			joinEnds(x, y, nil)
			moved = sum(runStreams(t, 20*time.Millisecond, virtualTime, &stream{x: x, y: y, size: size}))
		})
		return moved
	}
	clean, lossy := run(0), run(0.01)
	t.Logf("%d MB without, %d MB with loss: %.2f", clean>>20, lossy>>20, float64(lossy)/float64(clean))
	if lossy < clean/4 {
		t.Error("less than 0.25 is kept")
	}
}
