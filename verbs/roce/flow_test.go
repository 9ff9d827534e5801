package roce

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// checkSums compares the sums of a flow with the values of its queue pairs.
func checkSums(t *testing.T, fl *flow, pairs []*qp) {
	t.Helper()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	urgent, flight := 0, uint64(0)
	for _, q := range pairs {
		if q.flow.Load() != fl {
			continue
		}
		flight += q.counted
		if q.urgent {
			urgent++
		}
		if q.urgent && !q.queued || q.queued != slices.Contains(fl.ready, q) {
			t.Errorf("a queue pair is urgent (%v) and queued (%v), and in the list: %v", q.urgent, q.queued, slices.Contains(fl.ready, q))
		}
	}
	if urgent != fl.urgent || flight != fl.flight || fl.batch.packets != 0 {
		t.Errorf("urgent: %d, it counts %d; in flight: %d, it counts %d; %d packets left in the batch", urgent, fl.urgent, flight, fl.flight, fl.batch.packets)
	}
}

// TestRemovedDeviceLeavesTheWindow: what the queue pairs of a removed interface had in
// flight does not delay the next user of the address.
func TestRemovedDeviceLeavesTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := newFabric().pair(t, 1<<20)
		joinEnds(x, y, func(p *verbs.Path, _ *verbs.Endpoint) { p.Timeout = 0 })
		x.post(x.to(y, 1, verbs.OpWrite, 0, 1<<20, 0))
		q, _ := x.inner()
		fl := q.flow.Load()
		q.pd.dev.markGone()
		fl.mu.Lock()
		defer fl.mu.Unlock()
		if fl.flight != 0 || len(fl.ready) > 0 {
			t.Errorf("%d in flight, and %d queue pairs wait", fl.flight, len(fl.ready))
		}
	})
}

// TestFlowInRandomWorlds: with loss, and queue pairs that fail, close and are reset at
// any time, the sums hold and all work completes.
func TestFlowInRandomWorlds(t *testing.T) {
	for seed := range uint64(24) {
		synctest.Test(t, func(t *testing.T) { flowInAWorld(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func flowInAWorld(t *testing.T, seed uint64) {
	const works = 60
	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test's
	f := newFabric()
	f.latency = time.Duration(r.IntN(300)+5) * time.Microsecond
	f.random = rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // likewise
	if seed%3 == 1 {
		f.loss = 0.02
	}
	if seed%2 == 0 {
		f.bandwidth = 1 << 29
	}
	list := pairsBetween(t, 4+r.IntN(20), 256<<10, newProvider(Options{Senders: 1 + int(seed%2)}, f.host(hostA)), newProvider(Options{Senders: 1}, f.host(hostB)), //nolint:gosec // 0 or 1
		"roce-eth0", netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
	var pairs []*qp
	flows := make(map[*flow]bool)
	for _, s := range list {
		for _, e := range []*testEnd{s.x, s.y} {
			q, _ := e.inner()
			pairs = append(pairs, q)
			flows[q.flow.Load()] = true
		}
	}
	var work sync.WaitGroup
	for i, s := range list {
		victim := i < len(list)/3
		for side, e := range []*testEnd{s.x, s.y} {
			peer := []*testEnd{s.y, s.x}[side]
			random := rand.New(rand.NewPCG(seed, uint64(2*i+side))) //nolint:gosec // likewise
			for range 200 {
				e.recv(7, 128<<10, 64<<10)
			}
			work.Go(func() {
				end := -1
				if victim && side == 0 {
					end = 5 + random.IntN(works-10)
				}
				if !flowWork(e, peer, random, works, end, victim) || victim {
					return
				}
				for sent := 0; sent < works; {
					wc := e.wait()
					if wc.Op != verbs.WCRecv && wc.Op != verbs.WCRecvWrite {
						sent++
					}
					if wc.Status != verbs.StatusOK {
						t.Errorf("queue pair %d: %v", i, wc.Status)
						return
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	for range 200_000 { // a minute
		select {
		case <-done:
			return
		case <-time.After(300 * time.Microsecond):
		}
		for fl := range flows {
			checkSums(t, fl, pairs)
		}
	}
	t.Error("it hangs")
}

// flowWork posts work of all kinds, until the queue pair is ended at work request end.
// It reports whether all was posted.
func flowWork(e, peer *testEnd, random *rand.Rand, works, end int, victim bool) bool {
	for k := range works {
		if k == end {
			if err := []func() error{e.qp.ToErr, e.qp.Close, e.qp.ToReset}[random.IntN(3)](); err != nil {
				e.t.Error(err)
			}
			return false
		}
		n := []int{0, 8, 200, 300, 4096, 64 << 10}[random.IntN(6)]
		op := []verbs.Opcode{verbs.OpWrite, verbs.OpSend, verbs.OpRead, verbs.OpWriteImm}[random.IntN(4)]
		wr := e.to(peer, verbs.WRID(k), op, 0, n, 64<<10) //nolint:gosec // a number of work
		if victim && random.IntN(30) == 0 {
			wr.RKey++
		}
		wr.Fence = random.IntN(6) == 0
		e.post(wr)
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond)
		}
	}
	return true
}
