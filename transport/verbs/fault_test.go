package verbstransport_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// quick shortens the back-off, so that a channel is made again soon after a break.
func quick(o clusterOptions, also ...func(*verbstransport.Options)) clusterOptions {
	return tuned(o, func(o *verbstransport.Options) {
		o.Backoff = 20 * time.Millisecond
		for _, change := range also {
			change(o)
		}
	})
}

// cut breaks the channel between two processes by dropping all RDMA packets for a while.
// gRPC is not affected.
func (s *stage) cut(a, b *actor) {
	s.Helper()
	before := b.connection(a).Stats.Breaks
	s.wires(a, b).Cut()
	s.until("the receiver has left the channel", func() bool { return b.connection(a).Stats.Breaks > before && !b.connection(a).Verbs })
}

// TestBrokenChannelWhoseAnswerComesOverGRPC: RDMA breaks when a content is half written.
// The value comes over gRPC, complete and once. Writes that the peer still has queued
// land nowhere, although the memory is reused at once.
func TestBrokenChannelWhoseAnswerComesOverGRPC(t *testing.T) {
	s := newStage(t, quick(clusterOptions{}))
	from, to := s.pair()
	// Each receive has its own key: receives of one key that are under way over two
	// connections may take its values in any order.
	k, other, third := from.key(to, "v"), from.key(to, "other"), from.key(to, "third")
	const rounds = 3
	for round := range rounds {
		step := int64(round + 1)
		from.meets(to)
		stuck := s.oneWay(from, to).HoldAfter(300 * kib)
		from.sendsBlob(step, k, 1, mib)
		r := to.recv(step, k)
		s.happens("the transfer is under way", stuck)
		s.cut(from, to)
		r.isBlob(1, mib)
		// The next receives reuse the memory of the first one while its packets are still
		// under way.
		from.sendsBlob(step, other, 2, mib)
		next := to.recv(step, other)
		s.wires(from, to).Release().Restore()
		from.meets(to)
		from.sendsBlob(step, third, 3, mib)
		again := to.recv(step, third)
		next.isBlob(2, mib)
		again.isBlob(3, mib)
	}
	if k := to.connection(from); k.Stats.Lost < rounds || k.Stats.Received < rounds {
		t.Errorf("%+v; want what was lost with each channel, and values over verbs", k.Stats)
	}
}

// TestVerbsCutWhileGRPCLives, and the other way round: each connection takes over when
// the other fails.
func TestVerbsCutWhileGRPCLives(t *testing.T) {
	s := newStage(t, quick(clusterOptions{}))
	from, to := s.pair()
	k := from.key(to, "v")
	s.wires(from, to).Cut()
	for i := range 5 {
		from.sendsBlob(1, k, uint64(i), 100*kib)
		to.recv(1, k).isBlob(uint64(i), 100*kib)
	}
	if l := to.connection(from); l.Stats.Received != 0 || l.Verbs {
		t.Errorf("%+v: want no verbs while its wires are cut", l)
	}
	s.until("there is a reason", func() bool { return to.connection(from).Reason != nil })
	s.wires(from, to).Restore()
	from.meets(to)
	from.sendsBlob(1, k, 9, 100*kib)
	to.recv(1, k).isBlob(9, 100*kib)
	if l := to.connection(from); l.Stats.Received != 1 {
		t.Errorf("%+v: want the last one over verbs", l)
	}
}

// TestGRPCCutWhileVerbsLives: while the channel is up, receive, cancel and acknowledge
// need no gRPC connection.
func TestGRPCCutWhileVerbsLives(t *testing.T) {
	s := newStage(t, clusterOptions{path: patient})
	from, to := s.pair()
	k := from.key(to, "v")
	stuck := s.oneWay(from, to).HoldAfter(300 * kib)
	from.sendsBlob(1, k, 1, mib)
	r := to.recv(1, k)
	s.happens("the transfer is under way", stuck)
	targets := []string{from.proxy.Target(), to.proxy.Target()}
	for _, a := range []*actor{from, to} {
		a.proxy.SetTarget("")
		a.proxy.CutAfter(0)
	}
	s.wires(from, to).Release()
	r.isBlob(1, mib)
	for i := range 5 {
		from.sendsBlob(1, k, uint64(i), 100*kib)
		to.recv(1, k).isBlob(uint64(i), 100*kib)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := to.recvCtx(ctx, 1, from.key(to, "waits"))
	from.waiting(1)
	cancel()
	waits.fails(status.Cancelled)
	from.waiting(0)
	from.keeps(0)
	if l := to.connection(from); l.Stats.Received != 6 || l.Stats.Breaks != 0 {
		t.Errorf("%+v: want six over verbs, and no break", l)
	}
	from.proxy.SetTarget(targets[0])
	to.proxy.SetTarget(targets[1])
}

// TestV12CancelWhileWritesLand: a large receive is cancelled while its writes land, and
// other receives need memory of the same size at once. The pool has no more, so they take
// the fallback until the sender has confirmed the cancel. No other receive's bytes are
// overwritten.
func TestV12CancelWhileWritesLand(t *testing.T) {
	const size = 4 * mib
	s := newStage(t, tuned(clusterOptions{path: patient}, func(o *verbstransport.Options) { o.Memory.Arena, o.Memory.RecvLimit = size, 4*size }))
	from, to := s.pair()
	third := s.start(2)
	third.meets(to)
	k := from.key(to, "v")
	for i := range 3 { // these stay in the pool
		from.sendsBlob(100, k, 100, size)
		x := to.recv(100, k).value()
		defer x.Release()
		defer func() {
			if !isNoise(x.Bytes(), 100) {
				t.Errorf("tensor %d, which was there before, was written to", i)
			}
		}()
	}
	for round := range 4 {
		seed, step := uint64(10*round), int64(round+1)
		stuck := s.oneWay(from, to).HoldAfter(uint64((round + 1) * 900 * kib))
		from.sendsBlob(step, k, seed+1, size)
		ctx, cancel := context.WithCancel(t.Context())
		r := to.recvCtx(ctx, step, k)
		s.happens("writes are landing", stuck)
		cancel()
		r.fails(status.Cancelled)
		s.until("the memory is in quarantine", func() bool { return to.transport.Memory().Quarantined == size })
		now := third.key(to, "v")
		third.sendsBlob(step, now, seed+2, size)
		x := to.recv(step, now).value()
		if q := to.transport.Memory().Quarantined; q != size {
			t.Errorf("round %d: %d bytes are in quarantine while the sender may write, want %d", round, q, size)
		}
		s.wires(from, to).Release()
		s.until("the memory is given back", func() bool { return to.transport.Memory().Quarantined == 0 })
		// The memory is used again, by the value that was cancelled.
		to.recv(step, k).isBlob(seed+1, size)
		if !isNoise(x.Bytes(), seed+2) {
			t.Errorf("round %d: the tensor that came meanwhile was written to", round)
		}
		x.Release()
	}
	if l := to.connection(third); l.Stats.Fallbacks() == 0 {
		t.Errorf("%+v: the pool was never empty", l)
	}
	if l := to.connection(from); l.Stats.Breaks != 0 || l.Stats.Fallbacks() != 0 {
		t.Errorf("%+v: a cancel has broken the channel, or memory was not given back", l)
	}
}

// TestCancelOfMoreThanMayBeInQuarantine: a cancel above the limit of quarantined memory
// closes the channel. Another receive reuses the memory at once, while writes of the
// first one are still under way.
func TestCancelOfMoreThanMayBeInQuarantine(t *testing.T) {
	const size = 4 * mib
	s := newStage(t, quick(clusterOptions{path: patient}, func(o *verbstransport.Options) { o.Memory.Arena, o.Memory.RecvLimit = size, size }))
	from, to := s.pair()
	third := s.start(2)
	third.meets(to)
	k := from.key(to, "v")
	for round := range 3 {
		seed, step := uint64(10*round), int64(round+1)
		from.meets(to)
		stuck := s.oneWay(from, to).HoldAfter(uint64((round + 1) * 900 * kib))
		from.sendsBlob(step, k, seed+1, size)
		ctx, cancel := context.WithCancel(t.Context())
		r := to.recvCtx(ctx, step, k)
		s.happens("writes are landing", stuck)
		cancel()
		r.fails(status.Cancelled)
		s.until("the channel is closed for it", func() bool { return to.transport.Memory().Receiving.InUse == 0 })
		now := third.key(to, "v")
		third.sendsBlob(step, now, seed+2, size)
		x := to.recv(step, now).value()
		s.wires(from, to).Release()
		to.recv(step, k).isBlob(seed+1, size) // over gRPC or over verbs
		if !isNoise(x.Bytes(), seed+2) {
			t.Errorf("round %d: the tensor that came meanwhile was written to", round)
		}
		x.Release()
	}
	if l := to.connection(third); l.Stats.Received != 3 || l.Stats.Fallbacks() != 0 {
		t.Errorf("%+v: the memory was not given back at once", l)
	}
}

// pinning has devices that pin memory when they register it, as hardware does.
func pinning(o clusterOptions) clusterOptions {
	o.fabric.Devices = []verbstest.DeviceOptions{{NoGoMemory: true}}
	return o
}

// TestPoolIsEmpty: no transfer waits for registered memory. Without memory, at the
// receiver or at a sender whose device pins memory, it takes gRPC, or ends with
// ResourceExhausted if gRPC is not allowed.
func TestPoolIsEmpty(t *testing.T) {
	for _, side := range []string{"receiving", "sending"} {
		for _, require := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/require=%v", side, require), func(t *testing.T) {
				o := clusterOptions{require: require}
				if side == "sending" {
					o = pinning(o)
				}
				s := newStage(t, tuned(o, func(o *verbstransport.Options) {
					o.Memory.Arena = mib
					if side == "receiving" {
						o.Memory.RecvLimit = 2 * mib
					} else {
						o.Memory.SendLimit = 2 * mib
					}
				}))
				from, to := s.pair()
				k := from.key(to, "v")
				send := func(seed uint64, size int) { from.send(1, k, s.blob(s.source, seed, size)) } // has to be copied
				send(1, 2*mib)
				first := to.recv(1, k).value() // occupies the whole receiving pool
				var holds = []interface{ Release() }{first}
				if side == "sending" {
					s.until("the copy is given back", func() bool { return from.transport.Memory().Sending.InUse == 0 })
					holds = append(holds, s.blob(from.transport.Allocator(), 9, 2*mib))
				}
				send(2, mib)
				r := to.recv(1, k)
				if require {
					r.fails(status.ResourceExhausted, "the setting fallback is none")
				} else {
					r.isBlob(2, mib)
				}
				if !isNoise(first.Bytes(), 1) {
					t.Error("the tensor that was there has been written to")
				}
				for _, h := range holds {
					h.Release()
				}
				if l := to.connection(from); l.Stats.Fallbacks() != 1 || l.Stats.Received != 1 || l.Stats.Breaks != 0 {
					t.Errorf("%+v: want one elsewhere and no break", l.Stats)
				}
				if require {
					return // the value was consumed by its receive
				}
				send(3, mib)
				to.recv(1, k).isBlob(3, mib)
				if l := to.connection(from); l.Stats.Received != 2 {
					t.Errorf("%+v: want verbs again when there is memory", l.Stats)
				}
			})
		}
	}
}

// TestV19MemlockTooSmall: the device cannot register more memory, at start and later. The
// error names the limit to raise, and transfers that may take the fallback do.
func TestV19MemlockTooSmall(t *testing.T) {
	tooSmall := verbs.Errorf("register memory", "mem0", verbs.ErrMemlock, "RLIMIT_MEMLOCK is 65536")
	t.Run("at the start", func(t *testing.T) {
		o, spies := watched(clusterOptions{})
		s := newStage(t, o)
		task := s.tasks[0]
		spies[task].refuses(tooSmall)
		d, err := s.c.open(task)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		a, err := address(d)
		if err != nil {
			t.Fatal(err)
		}
		_, err = verbstransport.New(verbstransport.Options{
			Self: transport.Process{Name: task.String(), Incarnation: 1}, Task: task,
			PortOptions: verbstransport.PortOptions{Device: d, Address: a, Path: s.c.path},
		})
		if status.CodeOf(err) != status.ResourceExhausted || !errors.Is(err, verbs.ErrMemlock) || !strings.Contains(err.Error(), "ulimit -l") {
			t.Errorf("got %v, want the number to raise", err)
		}
		if n := d.Counts(); n != (verbs.Counts{}) {
			t.Errorf("left open: %+v", n)
		}
	})
	for _, require := range []bool{false, true} {
		for _, side := range []string{"receiver", "sender"} {
			t.Run(fmt.Sprintf("on the way/%s/require=%v", side, require), func(t *testing.T) {
				o, spies := watched(clusterOptions{require: require})
				s := newStage(t, o)
				from, to := s.pair()
				k := from.key(to, "v")
				spy := spies.of(to)
				if side == "sender" {
					spy = spies.of(from)
				}
				spy.refuses(tooSmall)
				from.send(1, k, s.blob(s.source, 1, 6*mib)) // larger than what is registered
				r := to.recv(1, k)
				if require {
					r.fails(status.ResourceExhausted, "the setting fallback is none")
				} else {
					r.isBlob(1, 6*mib)
				}
				small := from.key(to, "small")
				from.send(1, small, s.blob(s.source, 2, mib))
				to.recv(1, small).isBlob(2, mib)
				if l := to.connection(from); l.Stats.Fallbacks() != 1 || l.Stats.Received != 1 || l.Stats.Breaks != 0 {
					t.Errorf("%+v: want the large one elsewhere, the small one over verbs", l.Stats)
				}
				spy.mu.Lock()
				if spy.refused == 0 {
					t.Error("nothing was to be registered")
				}
				spy.mu.Unlock()
			})
		}
	}
}

// TestFatalDeviceEvent: the device is lost during a transfer. Within ten seconds none of
// its objects is open, since its removal waits for that. The transfer and later ones take
// gRPC. Other processes keep their channels.
func TestFatalDeviceEvent(t *testing.T) {
	for _, side := range []string{"receiver", "sender"} {
		t.Run(side, func(t *testing.T) {
			s := newStage(t, clusterOptions{parallel: true}) // it waits for a second
			from, to := s.pair()
			third := s.start(2)
			third.meets(to)
			third.meets(from)
			k := from.key(to, "v")
			waits := to.recv(1, from.key(to, "waits"))
			from.waiting(1)
			stuck := s.oneWay(from, to).HoldAfter(300 * kib)
			from.sendsBlob(1, k, 1, mib)
			r := to.recv(1, k)
			s.happens("the transfer is under way", stuck)
			lost, stays := to, from
			if side == "sender" {
				lost, stays = from, to
			}
			began := time.Now()
			lost.nic().Remove()
			s.until("nothing of the device is open", func() bool { return lost.device.Counts() == verbs.Counts{} })
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v until the device was let go", took)
			}
			s.wires(from, to).Release()
			r.isBlob(1, mib)
			from.send(1, waits.key, s.blob(s.source, 2, 100*kib))
			waits.isBlob(2, 100*kib)
			for i := range 3 {
				from.send(1, k, s.blob(s.source, uint64(i), mib))
				to.recv(1, k).isBlob(uint64(i), mib)
			}
			if l := lost.connection(stays); l.Verbs || l.Reason == nil || !errors.Is(l.Reason, verbs.ErrDeviceGone) {
				t.Errorf("%+v: want that the device is gone", l)
			}
			s.until("the peer knows what the other one has lost", func() bool {
				l := stays.connection(lost)
				return !l.Verbs && l.Reason != nil && strings.Contains(l.Reason.Error(), "no verbs for now")
			})
			good := third.key(stays, "v")
			third.sendsBlob(1, good, 3, 100*kib)
			stays.recv(1, good).isBlob(3, 100*kib)
			if l := stays.connection(third); !l.Verbs || l.Stats.Breaks != 0 || l.Stats.Received != 1 {
				t.Errorf("the channel of the two others: %+v", l)
			}
		})
	}
}

// TestFatalDeviceEventWithoutFallback: a receive without fallback ends with the reason.
func TestFatalDeviceEventWithoutFallback(t *testing.T) {
	s := newStage(t, clusterOptions{require: true, parallel: true}) // it waits for the peer timeout
	from := s.start(0)
	to := s.startWith(1, transporttest.NodeOptions{PeerTimeout: 3 * time.Second}) // more than Hello over gRPC takes
	from.meets(to)
	r := to.recv(1, from.key(to, "v"))
	from.waiting(1)
	to.nic().Remove()
	r.fails(status.Unavailable, from.task.String(), "device")
	s.until("nothing of the device is open", func() bool { return to.device.Counts() == verbs.Counts{} })
}

// TestPortDownInMidTransfer: the port goes down during a transfer and up again. The value
// arrives complete, over verbs or gRPC, and verbs is used again.
func TestPortDownInMidTransfer(t *testing.T) {
	for _, require := range []bool{false, true} {
		t.Run(fmt.Sprint("require=", require), func(t *testing.T) {
			s := newStage(t, quick(clusterOptions{require: require}))
			from, to := s.pair()
			k := from.key(to, "v")
			for round, side := range []*actor{to, from} {
				seed, step := uint64(round+1), int64(round+1)
				from.meets(to)
				before := from.connection(to).Stats.Breaks + to.connection(from).Stats.Breaks // what is held ends in a break, too
				stuck := s.oneWay(from, to).HoldAfter(300 * kib)
				from.sendsBlob(step, k, seed, mib)
				r := to.recv(step, k)
				s.happens("the transfer is under way", stuck)
				side.nic().PortDown(1)
				s.wires(from, to).Release()
				s.until("a side has noticed", func() bool { return from.connection(to).Stats.Breaks+to.connection(from).Stats.Breaks > before })
				if !require {
					r.isBlob(seed, mib)
				}
				side.nic().PortUp(1)
				if require {
					r.isBlob(seed, mib)
				}
			}
			from.meets(to)
			from.sendsBlob(9, k, 9, mib)
			before := to.connection(from).Stats.Received
			to.recv(9, k).isBlob(9, mib)
			if l := to.connection(from); l.Stats.Received != before+1 {
				t.Errorf("%+v: want verbs again", l)
			}
		})
	}
}

// TestLossAndDelay: a slow connection that loses one packet in fifty only costs time.
func TestLossAndDelay(t *testing.T) {
	o := clusterOptions{
		require: true, fabric: verbstest.Options{Seed: 1, Loss: 0.02, Latency: 200 * time.Microsecond},
		path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(2 * time.Millisecond), Retry: 6, RNRRetry: 6},
	}
	s := newStage(t, o)
	a, b := s.pair()
	var receives []*receiving
	const n, size = 12, 500 * kib
	for i := range n {
		k := a.key(b, fmt.Sprint("v", i))
		receives = append(receives, b.recv(1, k))
		a.sendsBlob(1, k, uint64(i), size)
		back := b.key(a, fmt.Sprint("v", i))
		b.sendsBlob(1, back, uint64(i), 1000)
		a.recv(1, back).isBlob(uint64(i), 1000)
	}
	for i, r := range receives {
		r.isBlob(uint64(i), size)
	}
}

// TestV17SlowPeer: receives are begun, and cancelled, before the peer has started. They
// end when it has.
func TestV17SlowPeer(t *testing.T) {
	for _, require := range []bool{false, true} {
		t.Run(fmt.Sprint("require=", require), func(t *testing.T) {
			s := newStage(t, quick(clusterOptions{require: require}))
			to := s.start(1)
			late := s.keyOf(s.tasks[0], 42, to.task, "v")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			to.recvCtx(ctx, 1, late).fails(status.DeadlineExceeded)
			s.until("there is a reason why there is no channel", func() bool {
				l := to.connectionTo(s.tasks[0])
				return !l.Verbs && l.Reason != nil
			})
			from := s.start(0)
			k := from.key(to, "v")
			r := to.recv(1, k)
			from.sendsBlob(1, k, 1, 100*kib)
			r.isBlob(1, 100*kib)
			from.meets(to)
		})
	}
}
