package roce

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/wire"
)

// TestTurnsAreFairToAllLengths: queue pairs that all have something to send get the
// same part of the window, whatever the length of their packets.
func TestTurnsAreFairToAllLengths(t *testing.T) {
	sizes := []int{8, 300, 64 << 10, 1000, 4096}
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.latency = 100 * time.Microsecond
		list := pairsBetween(t, len(sizes), 64<<10, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		number := make(map[verbs.QPN]int)
		for i, s := range list {
			s.size = sizes[i]
			number[s.y.qp.QPN()] = i
		}
		sent := make([]uint64, len(list))
		f.mu.Lock()
		f.see = func(sender, _ netip.AddrPort, _ int, b []byte) {
			var h wire.Header
			if payload, err := h.Decode(b); err == nil && sender.Addr() == list[0].x.addr {
				sent[number[h.DestQP]] += charge(1, uint64(len(payload)))
			}
		}
		f.mu.Unlock()
		stop := make(chan struct{})
		ended := make(chan struct{})
		for _, s := range list {
			depth := max(streamDepth, min(tipDepth-1, 256<<10/s.size)) // more than a window
			for range depth {
				s.write()
			}
			go func() {
				for n := depth; n > 0; n-- {
					s.x.wait()
					select {
					case <-stop:
					default:
						s.write()
						n++
					}
				}
				ended <- struct{}{}
			}()
		}
		time.Sleep(20 * time.Millisecond)
		f.mu.Lock()
		clear(sent)
		f.mu.Unlock()
		time.Sleep(virtualTime)
		f.mu.Lock()
		got := slices.Clone(sent)
		f.mu.Unlock()
		close(stop)
		for range list {
			<-ended
		}
		least, most := slices.Min(got), slices.Max(got)
		t.Logf("messages of %d bytes: %d; the least has %.2f of the most", sizes, got, float64(least)/float64(most))
		if least < most*9/10 {
			t.Error("that is less than 0.9")
		}
	})
}

// TestFullWindowIsPassedBy: queue pairs that wait for room in it have no turns, which
// would cost something for each of them, and what needs no room goes out all the same.
func TestFullWindowIsPassedBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		list := pairsBetween(t, 8, 256<<10, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		last := list[7]
		for _, s := range list[:7] { // nobody acknowledges, and all time is before their timers
			if err := s.y.qp.Close(); err != nil {
				t.Fatal(err)
			}
			s.write()
		}
		q, _ := last.x.inner()
		fl := q.flow.Load()
		whose := func() (waiting, next int) {
			fl.mu.Lock()
			defer fl.mu.Unlock()
			return len(fl.ready), fl.whose()
		}
		if waiting, next := whose(); waiting < 2 || next != -1 {
			t.Errorf("%d wait for room, and the turn of number %d is next", waiting, next)
		}
		start := time.Now()
		last.y.post(last.y.to(last.x, 1, verbs.OpWrite, 0, 8, 0))
		last.y.ends(1, verbs.StatusOK)
		if took := time.Since(start); took > time.Millisecond {
			t.Errorf("an acknowledgement waited %v for room that it does not need", took)
		}
		if waiting, next := whose(); waiting < 2 || next != -1 {
			t.Errorf("behind it %d wait for room, and the turn of number %d is next", waiting, next)
		}

		// One that is silent makes room for the others, and asks all the same.
		silent, _ := list[0].x.inner()
		asked := 0
		f.mu.Lock()
		f.see = func(_, _ netip.AddrPort, _ int, b []byte) {
			var h wire.Header
			if _, err := h.Decode(b); err == nil && h.DestQP == list[0].y.qp.QPN() {
				asked++
			}
		}
		f.mu.Unlock()
		fl.mu.Lock()
		fl.ready = append(slices.DeleteFunc(fl.ready, func(q *qp) bool { return q == silent }), silent) // the others are before it
		fl.mu.Unlock()
		silent.mu.Lock()
		silent.machine.expire(silent.pd.dev.now() + firstRTO)
		silent.mu.Unlock()
		silent.settle()
		synctest.Wait()
		if waiting, next := whose(); waiting < 2 || next != -1 || asked != 1 {
			t.Errorf("beside one that is silent %d wait for room, the turn of number %d is next, and it asked %d times", waiting, next, asked)
		}
	})
}

// TestMemoryIsHeldUntilItIsSent: what a packet is sent from cannot be deregistered
// before the kernel has copied it, whoever sends beside it.
func TestMemoryIsHeldUntilItIsSent(t *testing.T) {
	const size = 8 << 10
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		list := pairsBetween(t, 4, size, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		sent := 0
		f.class = func(from netip.AddrPort, m *udp.Message) uint8 {
			var h wire.Header
			if payload, err := h.Decode(slices.Concat(m.Pieces...)[:m.Segment]); from.Addr() != list[0].x.addr || err != nil || len(payload) <= copied {
				return m.TOS
			}
			for _, s := range list {
				if q, _ := s.x.inner(); s.y.qp.QPN() == h.DestQP {
					sent++
					if keys := q.machine.keys; keys.mu.TryLock() {
						keys.mu.Unlock()
						t.Error("a packet is sent from memory that could go")
					}
				}
			}
			return m.TOS
		}
		for range streamDepth {
			for _, s := range list { // all of their packets are posted before a turn is given
				q, _ := s.x.inner()
				q.mu.Lock()
				wr := s.x.to(s.y, 1, verbs.OpWrite, 0, size, 0)
				q.machine.post(&wr)
				q.mu.Unlock()
			}
		}
		for _, s := range list {
			q, _ := s.x.inner()
			q.enlist(false).mu.Unlock()
		}
		q, _ := list[0].x.inner()
		q.kick()
		for range streamDepth {
			for _, s := range list {
				s.x.ends(1, verbs.StatusOK)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if sent == 0 {
			t.Error("no packet was seen")
		}
	})
}

// TestAcknowledgementsGoTogether: those of many queue pairs are one super-packet, but for
// the first packets, which somebody may take before the others are there.
func TestAcknowledgementsGoTogether(t *testing.T) {
	const pairs = 16
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		list := pairsBetween(t, pairs, 64, newProvider(Options{}, f.host(hostA)), newProvider(Options{Senders: 1}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		messages, to := 0, make(map[verbs.QPN]bool)
		f.class = func(from netip.AddrPort, m *udp.Message) uint8 {
			if from.Addr() == list[0].y.addr {
				messages++
				all := slices.Concat(m.Pieces...)
				for b := range slices.Chunk(all, m.Segment) {
					var h wire.Header
					if _, err := h.Decode(b); err != nil || h.Op != wire.Ack {
						t.Errorf("%v, %v", h.Op, err)
					}
					to[h.DestQP] = true
				}
			}
			return m.TOS
		}
		for _, s := range list { // they arrive at the same time
			s.x.post(s.x.to(s.y, 1, verbs.OpWrite, 0, 64, 0))
		}
		for _, s := range list {
			s.x.ends(1, verbs.StatusOK)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if messages > pairs/4 || len(to) != pairs {
			t.Errorf("%d queue pairs were answered with %d messages, want %d with %d at most", len(to), messages, pairs, pairs/4)
		}
	})
}
