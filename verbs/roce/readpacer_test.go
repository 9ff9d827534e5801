package roce

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestReadResponsesArePaced: the response to the largest READ of a kernel is sent one
// window at a time, also by a queue pair that fails in the meantime.
func TestReadResponsesArePaced(t *testing.T) {
	const size = 16 << 20
	for _, breaks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			x, y := kernelPair(t, f, size)
			q, _ := x.inner()
			from, _ := y.sockets()
			_, at := x.sockets()
			if err := y.qp.ToErr(); err != nil { // it sends nothing
				t.Fatal(err)
			}
			var packets, most, now uint64
			var last time.Time
			f.mu.Lock()
			f.see = func(sender, _ netip.AddrPort, _ int, b []byte) {
				if sender.Addr() != x.addr {
					return
				}
				if !time.Now().Equal(last) {
					last, now = time.Now(), 0
				}
				now += windowCost(1, uint64(len(b)))
				most = max(most, now)
				packets++
			}
			f.mu.Unlock()
			f.inject(from, at, packetOf(from, at, rocewire.Header{
				Op: rocewire.ReadRequest, DestQP: q.number, PSN: y.psn, Addr: x.mr.Addr(), RKey: x.mr.RKey(), Length: size, AckReq: true,
			}))
			time.Sleep(time.Millisecond)
			if breaks {
				if err := x.qp.ToErr(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			f.mu.Lock()
			defer f.mu.Unlock()
			t.Logf("%d packets, of which at most %d KiB at a time", packets, most>>10)
			if most > maxWindow+2*windowCost(1, 4096) {
				t.Errorf("%d bytes are sent at a time, and a window has %d at most", most, maxWindow)
			}
			if packets != size/4096 {
				t.Errorf("%d packets, want %d", packets, size/4096)
			}
		})
	}
}

// TestQueuePairsShareTheReadPacer: a queue pair with a large READ leaves the others
// their share.
func TestQueuePairsShareTheReadPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 8 << 20
		f := newFabric()
		list := pairsBetween(t, 3, size, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		ends := make([]time.Time, len(list))
		sent := make([]int, len(list))
		number := make(map[verbs.QPN]int)
		for i, s := range list {
			number[s.y.qp.QPN()] = i
		}
		f.mu.Lock()
		f.see = func(sender, _ netip.AddrPort, _ int, b []byte) {
			var h rocewire.Header
			if _, err := h.Decode(b); err == nil && h.Op.IsReadResponse() && sender.Addr() == list[0].x.addr {
				i := number[h.DestQP]
				ends[i] = time.Now()
				sent[i]++
			}
		}
		f.mu.Unlock()
		for _, s := range list {
			q, _ := s.x.inner()
			from, _ := s.y.sockets()
			_, at := s.x.sockets()
			f.inject(from, at, packetOf(from, at, rocewire.Header{
				Op: rocewire.ReadRequest, DestQP: q.number, PSN: s.y.psn, Addr: s.x.mr.Addr(), RKey: s.x.mr.RKey(), Length: size, AckReq: true,
			}))
		}
		begin := time.Now()
		time.Sleep(time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		last := ends[0]
		for _, at := range ends {
			if at.After(last) {
				last = at
			}
		}
		for i, at := range ends {
			if sent[i] != size/4096 || at.Sub(begin) < last.Sub(begin)*9/10 {
				t.Errorf("queue pair %d has sent %d packets after %v, the last one ends after %v", i, sent[i], at.Sub(begin), last.Sub(begin))
			}
		}
	})
}

// TestReadsOfUserSpacePeersDoNotPause: they request only what they have space for.
func TestReadsOfUserSpacePeersDoNotPause(t *testing.T) {
	const size = 1 << 20
	run := func(op verbs.Opcode) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.buffer = 1 << 20
			x, y := f.pair(t, 4*size)
			joinEnds(x, y, func(p *verbs.Path, _ *verbs.Endpoint) { p.ReadAtomic = maxReadAtomic })
			for range 10 {
				x.post(x.to(y, 1, op, 0, size, 0)) // its window grows
				x.ends(1, verbs.StatusOK)
			}
			begin := time.Now()
			for i := range 16 {
				x.post(x.to(y, verbs.WRID(i), op, 0, size, 0))
			}
			for i := range 16 {
				x.ends(verbs.WRID(i), verbs.StatusOK)
			}
			took = time.Since(begin)
		})
		return took
	}
	writes, reads := run(verbs.OpWrite), run(verbs.OpRead)
	t.Logf("16 MiB are written in %v, and read in %v", writes, reads)
	if reads > 2*writes {
		t.Error("that is more than twice as long")
	}
}

// TestReadResponsesFitIntoTheReceiveBuffer: READs count by the buffer of this side,
// which may be smaller than the peer's.
func TestReadResponsesFitIntoTheReceiveBuffer(t *testing.T) {
	const size = 1 << 22
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.buffer, f.bandwidth = 64<<10, 256<<20
		x, y := f.pair(t, size)
		joinEnds(x, y, func(_ *verbs.Path, peer *verbs.Endpoint) { peer.UDP.Buffer = 4 << 20 })
		for range 2 {
			y.post(y.to(x, 1, verbs.OpRead, 0, size, 0))
			y.ends(1, verbs.StatusOK)
		}
		d, _ := y.dev.(verbs.CounterReader)
		c, err := d.Counters(onlyPort)
		if err != nil || c["resent_pkts"] > 0 || c["completer_retry_err"] > 0 {
			t.Errorf("%d requests were sent again, after %d timeouts, %v", c["resent_pkts"], c["completer_retry_err"], err)
		}
	})
}

// TestReadOfClosedRegionIsRejected: with a valid NAK, also if the region is closed
// between the request and the response.
func TestReadOfClosedRegionIsRejected(t *testing.T) {
	const size = 16 << 20
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := f.pair(t, size)
		joinEnds(x, y, nil)
		q, _ := x.inner()
		from, _ := y.sockets()
		_, at := x.sockets()
		whole, damaged := 0, 0
		f.see = func(sender, to netip.AddrPort, _ int, b []byte) {
			var h rocewire.Header
			if _, err := h.Decode(b); err != nil || sender.Addr() != x.addr || h.Op != rocewire.Ack || h.Syndrome != rocewire.NAKRemoteAccess {
				return
			}
			if path := rocewire.NewPath(sender, to); path.Check(b, 64) {
				whole++
			} else {
				damaged++
			}
		}
		f.inject(from, at, packetOf(from, at, rocewire.Header{ // the whole memory, as a kernel does: the response is paced
			Op: rocewire.ReadRequest, DestQP: q.number, PSN: y.psn, Addr: x.mr.Addr(), RKey: x.mr.RKey(), Length: size, AckReq: true,
		}))
		time.Sleep(time.Millisecond)
		if err := x.mr.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		f.mu.Lock()
		defer f.mu.Unlock()
		if whole != 1 || damaged > 0 {
			t.Errorf("%d NAKs are valid, and %d are not", whole, damaged)
		}
	})
}

// TestReadsLeaveNoFlight: the cost of a READ is added part by part and removed packet
// by packet; both sums must be equal.
func TestReadsLeaveNoFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := kernelPair(t, f, 1<<20)
		q, _ := x.inner()
		if q.machine.readCost%4 != 2 {
			t.Fatalf("reads count %d: nothing is rounded", q.machine.readCost)
		}
		for range 20 {
			x.post(x.to(y, 1, verbs.OpRead, 0, 1<<20, 0))
			x.ends(1, verbs.StatusOK)
		}
		synctest.Wait()
		fl := q.flow.Load()
		fl.mu.Lock()
		defer fl.mu.Unlock()
		if fl.flight != 0 {
			t.Errorf("nothing is in flight, and it counts %d", fl.flight)
		}
	})
}
