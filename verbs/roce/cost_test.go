package roce

import (
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestMemoryOfIdleQueuePairs: a connected pair with the queue depths of transport/verbs
// (its limits.go) and its completion queue takes less than 64 KiB on each side, before
// the first work request and after some.
func TestMemoryOfIdleQueuePairs(t *testing.T) {
	const (
		pairs = 256
		limit = 64 << 10
	)
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.host(hostA), f.host(hostB)
		x := newTestEnd(t, newProvider(Options{}, a), "roce-eth0", netip.MustParseAddr(hostA), 64)
		y := newTestEnd(t, newProvider(Options{}, b), "roce-eth0", netip.MustParseAddr(hostB), 64)
		joinEnds(x, y, nil)
		used := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := used()
		goroutines := runtime.NumGoroutine()
		var all []*testEnd
		for range pairs {
			var two [2]*testEnd
			for i, from := range []*testEnd{x, y} {
				two[i] = from.another(t, 512, verbs.QPConfig{MaxSend: 257, MaxRecv: 128, MaxInline: 256})
			}
			joinEnds(two[0], two[1], nil)
			all = append(all, two[0], two[1])
		}
		fresh := (used() - before) / uint64(len(all))
		for i := 0; i < len(all); i += 2 {
			transfer(all[i], all[i+1])
		}
		after := (used() - before) / uint64(len(all))
		t.Logf("a queue pair and its completion queue take %d bytes, and %d when they have been used", fresh, after)
		if fresh > limit || after > limit {
			t.Errorf("that is more than %d", limit)
		}
		if n := runtime.NumGoroutine(); n > goroutines {
			t.Errorf("%d goroutines more than with one pair", n-goroutines)
		}
	})
}

// TestIdleDevicesDoNothing: soon after the last ACK, no timer runs and no packet is
// sent.
func TestIdleDevicesDoNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := f.pair(t, 1<<20)
		joinEnds(x, y, nil)
		transfer(x, y)
		transfer(y, x)
		x.post(x.to(y, 2, verbs.OpRead, 0, 1<<16, 0))
		x.ends(2, verbs.StatusOK)
		time.Sleep(2 * verbs.TimeoutDuration(testTimeout)) // a timer that was set while packets were in flight
		synctest.Wait()
		packets := 0
		f.see = func(netip.AddrPort, netip.AddrPort, int, []byte) { packets++ }
		for _, e := range []*testEnd{x, y} {
			q, _ := e.inner()
			q.mu.Lock()
			if q.armed {
				t.Errorf("a timer is set for %v", q.timerAt)
			}
			q.mu.Unlock()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if packets > 0 {
			t.Errorf("%d packets were sent in an idle hour", packets)
		}
	})
}

// nativePair returns two connected ends on the loopback interface of the host.
func nativePair(t testing.TB, size int) (x, y *testEnd) {
	t.Helper()
	s := nativeStreams(t, 1, size, New(Options{}), New(Options{}))[0]
	return s.x, s.y
}

// allocations returns the allocations per round, of all goroutines: the minimum of
// several measurements, since the runtime allocates, too.
func allocations(round func()) float64 {
	least := 1e9
	for range 5 {
		least = min(least, testing.AllocsPerRun(20, round))
	}
	return least
}

// take waits for n completions, without allocations.
func (x *testEnd) take(n int) {
	x.t.Helper()
	for armed := false; n > 0; {
		k, err := x.cq.Poll(x.room[:min(n, len(x.room))])
		for _, wc := range x.room[:k] {
			if wc.Status != verbs.StatusOK {
				x.t.Fatalf("%v", wc.Status)
			}
		}
		switch n -= k; {
		case err != nil:
		case k > 0:
			armed = false
		case !armed:
			err, armed = x.cq.Arm(false), true
		default:
			err, armed = x.cq.Wait(x.ctx), false
		}
		if err != nil {
			x.t.Fatal(err)
		}
	}
}

// TestWritesAllocateNothing: neither packets nor work requests allocate, on either
// side.
func TestWritesAllocateNothing(t *testing.T) {
	const size = 1 << 20 // 256 packets
	x, y := nativePair(t, size)
	wrs := []verbs.SendWR{x.to(y, 1, verbs.OpWrite, 0, size, 0)}
	wrs[0].Op = verbs.OpWriteImm
	recv := []verbs.RecvWR{{ID: 1}}
	round := func() {
		if _, err := y.qp.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		if _, err := x.qp.PostSend(wrs); err != nil {
			t.Fatal(err)
		}
		x.take(1)
		y.take(1)
	}
	for range 50 {
		round()
	}
	if n := allocations(round); n > 0 && !raceEnabled {
		t.Errorf("%v allocations for a write of 1 MiB", n)
	} else {
		t.Logf("%v allocations for a write of 1 MiB", n)
	}
}

// TestPingPongAllocatesNothing: short messages back and forth.
func TestPingPongAllocatesNothing(t *testing.T) {
	x, y := nativePair(t, 4096)
	sends, recvs := make(map[*testEnd][]verbs.SendWR), make(map[*testEnd][]verbs.RecvWR)
	for _, e := range []*testEnd{x, y} {
		sends[e] = []verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Inline: e.mem[:8]}}
		recvs[e] = []verbs.RecvWR{{SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: 8, LKey: e.mr.LKey()}}}}
	}
	send := func(e *testEnd) {
		if _, err := e.qp.PostSend(sends[e]); err != nil {
			t.Fatal(err)
		}
	}
	recv := func(e *testEnd) {
		if _, err := e.qp.PostRecv(recvs[e]); err != nil {
			t.Fatal(err)
		}
	}
	round := func() {
		recv(x)
		recv(y)
		send(x)
		y.take(1)
		send(y)
		x.take(2)
		y.take(1)
	}
	for range 100 { // the rings grow
		round()
	}
	if n := allocations(round); n > 0 && !raceEnabled {
		t.Errorf("%v allocations for two messages, with their four work requests", n)
	} else {
		t.Logf("%v allocations for two messages, with their four work requests", n)
	}
}
