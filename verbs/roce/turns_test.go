package roce

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// TestTurnsAreFairForAllLengths: queue pairs that always have something to send get the
// same share of the window, whatever the length of their packets.
func TestTurnsAreFairForAllLengths(t *testing.T) {
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
			var h rocewire.Header
			if payload, err := h.Decode(b); err == nil && sender.Addr() == list[0].x.addr {
				sent[number[h.DestQP]] += windowCost(1, uint64(len(payload)))
			}
		}
		f.mu.Unlock()
		stop := make(chan struct{})
		ended := make(chan struct{})
		for _, s := range list {
			depth := max(streamDepth, min(endDepth-1, 256<<10/s.size)) // more than a window
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

// turnOrder returns the queue pairs that wait in a flow, in their order, with their
// deficits.
func turnOrder(fl *flow) (list []turnState) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, q := range fl.ready {
		list = append(list, turnState{q, q.deficit})
	}
	if !fl.blocked() {
		return nil
	}
	return list
}

type turnState struct {
	q       *qp
	deficit int
}

// TestUrgentPacketsPassAFullWindow: queue pairs that wait for space get no turns, which
// would cost time, while packets that need no space are sent.
func TestUrgentPacketsPassAFullWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		list := pairsBetween(t, 8, 256<<10, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		last := list[7]
		for _, s := range list[:7] { // no ACKs, and their timers do not fire during the test
			if err := s.y.qp.Close(); err != nil {
				t.Fatal(err)
			}
			s.write()
		}
		q, _ := last.x.inner()
		fl := q.flow.Load()
		before := turnOrder(fl)
		if len(before) < 5 {
			t.Fatalf("%d wait for space", len(before))
		}
		start := time.Now()
		last.y.post(last.y.to(last.x, 1, verbs.OpWrite, 0, 8, 0))
		last.y.ends(1, verbs.StatusOK)
		if took := time.Since(start); took > time.Millisecond {
			t.Errorf("an ACK waited %v for space that it does not need", took)
		}
		if after := turnOrder(fl); !slices.Equal(after, before) {
			t.Errorf("an acknowledgement of another gave turns: %v, and before %v", after, before)
		}

		// Responses longer than a turn get turns one after the other.
		start = time.Now()
		last.y.post(last.y.to(last.x, 2, verbs.OpRead, 0, 256<<10, 0))
		last.y.ends(2, verbs.StatusOK)
		if took := time.Since(start); took > time.Millisecond {
			t.Errorf("a response waited %v for space that it does not need", took)
		}

		// An unresponsive queue pair leaves its space to the others, and still sends
		// its probe.
		silent, _ := list[0].x.inner()
		requested := 0
		f.mu.Lock()
		f.see = func(_, _ netip.AddrPort, _ int, b []byte) {
			var h rocewire.Header
			if _, err := h.Decode(b); err == nil && h.DestQP == list[0].y.qp.QPN() {
				requested++
			}
		}
		f.mu.Unlock()
		fl.mu.Lock()
		fl.ready = append(slices.DeleteFunc(fl.ready, func(q *qp) bool { return q == silent }), silent) // the others are before it
		fl.mu.Unlock()
		silent.mu.Lock()
		silent.machine.expire(silent.pd.dev.now() + firstRTO)
		silent.mu.Unlock()
		silent.kickWithFeedback()
		synctest.Wait()
		if after := turnOrder(fl); len(after) < 5 || requested != 1 {
			t.Errorf("beside one that is silent %d wait for space, and it asked %d times", len(after), requested)
		}
	})
}

// TestFailedQueuePairBlocksNoOthers: a queue pair that fails, or waits for a receive,
// while its packets fill the window, frees its space for the next; queue pairs that
// fail while in the list do not delay those after them.
func TestFailedQueuePairBlocksNoOthers(t *testing.T) {
	for name, fill := range map[string]func(list []*stream){
		"refused": func(list []*stream) {
			wr := list[0].x.to(list[0].y, 1, verbs.OpWrite, 0, 1<<20, 0)
			wr.RKey++
			list[0].x.post(wr)
		},
		"waiting": func(list []*stream) { // there is no receive
			list[0].x.post(list[0].x.to(list[0].y, 1, verbs.OpSend, 0, 1<<20, 0))
		},
		"failed": func(list []*stream) { // fails below, when the last one waits, too
			list[0].x.post(list[0].x.to(list[0].y, 1, verbs.OpWrite, 0, 112<<10, 0)) // exactly a window
			for _, s := range list[1:] {
				s.x.post(s.x.to(s.y, 1, verbs.OpWrite, 0, 64<<10, 0))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				p, q := newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{}, f.host(hostB))
				var list []*stream
				for range 66 {
					x, y := newTestEnd(t, p, "roce-eth0", netip.MustParseAddr(hostA), 1<<20), newTestEnd(t, q, "roce-eth0", netip.MustParseAddr(hostB), 1<<20)
					joinEnds(x, y, func(p *verbs.Path, _ *verbs.Endpoint) { p.Timeout = 0 }) // no timer helps
					list = append(list, &stream{x: x, y: y})
				}
				last := list[65]
				start := time.Now()
				fill(list[:65])
				last.x.post(last.x.to(last.y, 2, verbs.OpWrite, 0, 8, 0))
				if name == "failed" {
					for _, s := range list[1:65] {
						if err := s.x.qp.ToErr(); err != nil {
							t.Fatal(err)
						}
					}
				}
				time.Sleep(time.Millisecond / 2)
				if n, err := last.x.cq.Poll(make([]verbs.WC, 1)); n != 1 || err != nil {
					t.Errorf("%v after the others, the last one still waits (%v)", time.Since(start), err)
				}
			})
		})
	}
}

// TestTurnsAreFairWithReverseTraffic: queue pairs that also receive WRITEs, and send
// ACKs, get no larger share of the window than those that only write.
func TestTurnsAreFairWithReverseTraffic(t *testing.T) {
	for _, c := range []struct{ pairs, both, size, back int }{{8, 4, 64 << 10, 256}, {16, 8, 16 << 10, 8}, {64, 32, 64 << 10, 4 << 10}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric()
			f.bandwidth, f.latency = 1<<30, 50*time.Microsecond
			list := pairsBetween(t, c.pairs, 64<<10, newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{Senders: 1}, f.host(hostB)), "roce-eth0",
				netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
			for i, s := range list {
				if s.size = c.size; i < c.both {
					list = append(list, &stream{x: s.y, y: s.x, size: c.back})
				}
			}
			moved := runStreams(t, 20*ms, 200*ms, list...)
			both, alone := sum(moved[:c.both])/c.both, sum(moved[c.both:c.pairs])/(c.pairs-c.both)
			if t.Logf("%+v: a queue pair that is written to moves %d KiB, another %d KiB", c, both>>10, alone>>10); alone < both*9/10 || both < alone*9/10 {
				t.Error("that is more than a tenth apart")
			}
		})
	}
}

// TestReadsTakeTheirTurn: a READ request counts as its responses, not as one packet.
func TestReadsTakeTheirTurn(t *testing.T) {
	const size = 256 << 10
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.bandwidth, f.latency = 1<<30, 50*time.Microsecond
		p, q := newProvider(Options{Senders: 1}, f.host(hostA)), newProvider(Options{Senders: 1}, f.host(hostB))
		var list []*stream
		for i := range 8 {
			x, y := newTestEnd(t, p, "roce-eth0", netip.MustParseAddr(hostA), size), newTestEnd(t, q, "roce-eth0", netip.MustParseAddr(hostB), size)
			joinEnds(x, y, func(p *verbs.Path, _ *verbs.Endpoint) { p.ReadAtomic = 16 })
			list = append(list, &stream{x: x, y: y, size: size, reads: i < 4})
		}
		moved := runStreams(t, 20*ms, 200*ms, list...)
		reads, writes := sum(moved[:4])/4, sum(moved[4:])/4
		if t.Logf("the reader moves %d KiB, the writer %d KiB", reads>>10, writes>>10); reads < writes*9/10 || writes < reads*9/10 {
			t.Error("that is more than a tenth apart")
		}
	})
}

// TestACKsAreSentTogether: ACKs of many queue pairs form one super-packet, except for
// the first packets, which may be processed before the others arrive.
func TestACKsAreSentTogether(t *testing.T) {
	const pairs = maxBatch + 16
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		list := pairsBetween(t, pairs, 64, newProvider(Options{}, f.host(hostA)), newProvider(Options{Senders: 1}, f.host(hostB)), "roce-eth0",
			netip.MustParseAddr(hostA), netip.MustParseAddr(hostB))
		messages, to := 0, make(map[verbs.QPN]bool)
		f.class = func(from netip.AddrPort, m *udp.Message) uint8 {
			if from.Addr() == list[0].y.addr {
				messages++
				all := slices.Concat(m.Buffers...)
				for b := range slices.Chunk(all, m.Segment) {
					var h rocewire.Header
					if _, err := h.Decode(b); err != nil || h.Op != rocewire.Ack {
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
		if messages > 4 || len(to) != pairs {
			t.Errorf("ACKs of %d queue pairs came in %d messages, want %d with 4 at most", len(to), messages, pairs)
		}
	})
}

// TestTurnOfManyBatches: short packets are copied into the batch's buffer, which must
// not move, since messages point into it, even if a turn has more packets than a batch.
func TestTurnOfManyBatches(t *testing.T) {
	const works, size = 4 * maxBatch, maxCopied - 1
	synctest.Test(t, func(t *testing.T) {
		x, y := newFabric().pair(t, size)
		joinEnds(x, y, nil)
		copy(x.mem, bytes.Repeat([]byte{7}, size))
		var list []verbs.SendWR
		for i := range works {
			wr := x.to(y, verbs.WRID(i), verbs.OpWrite, 0, size, 0) //nolint:gosec // a number of work
			wr.Signaled = i == works-1
			list = append(list, wr)
		}
		x.post(list...)
		x.ends(works-1, verbs.StatusOK)
		q, _ := x.inner()
		fl := q.flow.Load()
		fl.mu.Lock()
		defer fl.mu.Unlock()
		if n := cap(fl.batch.buf); n != maxBatch*(rocewire.MaxHeaderLen+rocewire.MaxOverhead+maxCopied) || !bytes.Equal(x.mem, y.mem) {
			t.Errorf("the batch buffer has grown to %d, or the bytes differ", n)
		}
	})
}
