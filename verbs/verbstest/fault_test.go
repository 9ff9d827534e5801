package verbstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// virtual runs a test on virtual time with a connected pair.
func virtual(t *testing.T, o Options, test func(t *testing.T, f *Fabric, a, b *side)) {
	t.Helper()
	o.Seed = 1
	synctest.Test(t, func(t *testing.T) {
		f := NewFabric(o)
		a, b := pair(t, f)
		test(t, f, a, b)
	})
}

func took(t *testing.T, since time.Time, want, slack time.Duration) {
	t.Helper()
	if d := time.Since(since); d < want || d > want+slack {
		t.Errorf("took %v, want %v", d, want)
	}
}

func TestBytesArriveAfterTheLatency(t *testing.T) {
	virtual(t, Options{Latency: time.Millisecond}, func(t *testing.T, f *Fabric, a, b *side) {
		start := time.Now()
		fill(a.mem[:100], 1)
		a.post(a.write(1, b, 0, 100))
		time.Sleep(time.Millisecond - 1)
		f.mu.Lock() // nothing else orders this after the copy, or before
		if b.mem[1] != 0 {
			t.Error("a write is there at once")
		}
		f.mu.Unlock()
		time.Sleep(2 * time.Nanosecond)
		f.mu.Lock()
		if !bytes.Equal(a.mem[:100], b.mem[:100]) {
			t.Error("a write is not there after the latency")
		}
		f.mu.Unlock()
		a.idle()
		a.expect(1, verbs.StatusOK)
		took(t, start, 2*time.Millisecond, 0)
	})
}

// TestSourceIsReadLate: a source that is written to before the completion shows
// at the peer. (It is a race, which the lock hides from the race detector.)
func TestSourceIsReadLate(t *testing.T) {
	virtual(t, Options{Latency: time.Millisecond}, func(t *testing.T, f *Fabric, a, b *side) {
		a.post(a.write(1, b, 0, 8))
		f.mu.Lock()
		a.mem[0] = 77
		f.mu.Unlock()
		a.expect(1, verbs.StatusOK)
		if b.mem[0] != 77 {
			t.Error("what was written too early to the source does not show")
		}
	})
}

func TestBandwidthIsKept(t *testing.T) {
	virtual(t, Options{Latency: time.Millisecond, Bandwidth: 100 << 20}, func(t *testing.T, f *Fabric, a, b *side) {
		start := time.Now()
		a.post(a.write(1, b, 0, 1<<20), a.write(2, b, 0, 1<<20))
		a.expect(1, verbs.StatusOK)
		took(t, start, 12*time.Millisecond, time.Microsecond)
		a.expect(2, verbs.StatusOK)
		took(t, start, 22*time.Millisecond, time.Microsecond)
		// Far slower than the retry timer: nothing is sent twice.
		f.Wires("a", "b").SetBandwidth(1 << 20)
		carried := f.OneWay("a", "b").Carried()
		start = time.Now()
		a.post(a.write(3, b, 0, 1<<20), a.write(4, b, 0, 1<<20))
		a.expect(3, verbs.StatusOK)
		a.expect(4, verbs.StatusOK)
		took(t, start, 2*time.Second+2*time.Millisecond, time.Microsecond)
		if n := f.OneWay("a", "b").Carried() - carried; n != 2<<20 {
			t.Errorf("%d bytes travelled for 2 MiB", n)
		}
		// Likewise the answer of a read, of which nothing is known when it is
		// asked for.
		f.Wires("a", "b").SetBandwidth(512 << 10)
		carried, start = f.OneWay("b", "a").Carried(), time.Now()
		read := a.write(5, b, 0, 1<<20)
		read.Op = verbs.OpRead
		a.post(read)
		a.expect(5, verbs.StatusOK)
		took(t, start, 2*time.Second+2*time.Millisecond, time.Microsecond)
		time.Sleep(10 * time.Second) // for what was asked for twice
		if n := f.OneWay("b", "a").Carried() - carried; n != 1<<20 {
			t.Errorf("%d bytes travelled for 1 MiB that was read", n)
		}
	})
}

func TestLossCostsTimeAndNoBytes(t *testing.T) {
	run := func() (d time.Duration) {
		virtual(t, Options{Latency: 10 * time.Microsecond, Loss: 0.01}, func(t *testing.T, _ *Fabric, a, b *side) {
			start := time.Now()
			for i := range 100 {
				fill(a.mem[:300<<10], byte(i))
				b.recv(2, 0, 0)
				wr := a.write(1, b, 0, 300<<10)
				wr.Op = verbs.OpWriteImm
				a.post(wr)
				if b.expect(2, verbs.StatusOK); !bytes.Equal(a.mem[:300<<10], b.mem[:300<<10]) {
					t.Fatal("bytes got lost")
				}
				a.expect(1, verbs.StatusOK)
			}
			d = time.Since(start)
		})
		return d
	}
	d := run()
	if d < 100*20*time.Microsecond+time.Millisecond {
		t.Errorf("100 writes over a wire with loss took %v", d)
	}
	if again := run(); again != d {
		t.Errorf("the same seed gives %v and %v", d, again)
	}
}

func TestCutAndRestored(t *testing.T) {
	virtual(t, Options{Latency: time.Microsecond}, func(t *testing.T, f *Fabric, a, b *side) {
		l := f.Wires("a", "b").Cut()
		a.mem[0] = 5
		a.post(a.write(1, b, 0, 8))
		time.Sleep(verbs.TimeoutDuration(sidePath.Timeout) * 2)
		a.idle()
		f.mu.Lock()
		if b.mem[0] != 0 {
			t.Error("a write passed the cut")
		}
		f.mu.Unlock()
		l.Restore()
		a.expect(1, verbs.StatusOK)
		if b.mem[0] != 5 {
			t.Error("the write was not sent again")
		}
		l.Cut()
		start := time.Now()
		a.post(a.write(2, b, 0, 8))
		a.expect(2, verbs.StatusRetryExceeded)
		took(t, start, 4*verbs.TimeoutDuration(sidePath.Timeout), time.Millisecond)
		l.Restore()
		if s, _ := b.qp.State(); s != verbs.StateRTS {
			t.Errorf("the peer heard of it: %v", s)
		}
	})
}

// TestResponsesGetLost: what was carried out is not carried out again when its
// answer is lost, and when no answer comes at all it was carried out all the
// same.
func TestResponsesGetLost(t *testing.T) {
	virtual(t, Options{Latency: time.Microsecond}, func(t *testing.T, f *Fabric, a, b *side) {
		back := f.OneWay("b", "a").Cut()
		add := a.write(1, b, 0, 8)
		add.Op, add.Add = verbs.OpFetchAdd, 3
		b.recv(9, 64, 64)
		send := verbs.SendWR{ID: 2, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{a.sge(64, 8)}}
		a.post(add, send)
		time.Sleep(verbs.TimeoutDuration(sidePath.Timeout) * 2)
		back.Restore()
		a.expect(1, verbs.StatusOK)
		a.expect(2, verbs.StatusOK)
		b.expect(9, verbs.StatusOK)
		b.idle()
		if n := binary.NativeEndian.Uint64(b.mem); n != 3 {
			t.Errorf("3 was added to 0, and it is %d", n)
		}
		back.Cut()
		a.mem[100] = 1
		a.post(a.write(3, b, 100, 1))
		a.expect(3, verbs.StatusRetryExceeded)
		if b.mem[100] != 1 {
			t.Error("the write did not land")
		}
	})
}

func TestRetrySevenIsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFabric(Options{Seed: 1, Latency: time.Microsecond})
		a, b := newSide(t, f, "a"), newSide(t, f, "b")
		defer a.close()
		defer b.close()
		p := sidePath
		p.Retry = 7
		if err := p.Connect(a.qp, a.psn, b.endpoint()); err != nil {
			t.Fatal(err)
		}
		if err := p.Connect(b.qp, b.psn, a.endpoint()); err != nil {
			t.Fatal(err)
		}
		l := f.Wires("a", "b").Cut()
		a.post(a.write(1, b, 0, 8))
		time.Sleep(time.Minute)
		a.idle()
		l.Restore()
		a.expect(1, verbs.StatusOK)
	})
}

// TestRNRTimer: the code that the responder gives is the time that the requester
// waits.
func TestRNRTimer(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, _ *Fabric, a, b *side) {
		start := time.Now()
		send := verbs.SendWR{ID: 1, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{a.sge(0, 8)}}
		a.post(send)
		time.Sleep(1200 * time.Microsecond)
		b.recv(2, 0, 8)
		a.expect(1, verbs.StatusOK)
		took(t, start, 2*640*time.Microsecond, 0)
		b.expect(2, verbs.StatusOK)
		start = time.Now()
		a.post(send)
		a.expect(1, verbs.StatusRNRRetryExceeded)
		took(t, start, 3*640*time.Microsecond, 0)
	})
}

func (s *side) event(kind verbs.EventKind) verbs.AsyncEvent {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	e, err := s.dev.NextEvent(ctx)
	if err != nil || e.Kind != kind {
		s.t.Fatalf("the next event is %+v (%v), %v; want %v", e, e.Kind, err, kind)
	}
	return e
}

func TestPortDown(t *testing.T) {
	virtual(t, Options{Latency: time.Microsecond}, func(t *testing.T, f *Fabric, a, b *side) {
		n := f.Host("b").NIC("mem0")
		n.PortDown(1)
		n.PortDown(1)
		if e := b.event(verbs.EventPortDown); e.Port != 1 {
			t.Errorf("%+v", e)
		}
		if p, err := b.dev.Port(1); err != nil || p.State != verbs.PortDown {
			t.Errorf("%+v, %v", p, err)
		}
		a.post(a.write(1, b, 0, 8))
		time.Sleep(verbs.TimeoutDuration(sidePath.Timeout))
		a.idle()
		n.PortUp(1)
		b.event(verbs.EventPortActive)
		a.expect(1, verbs.StatusOK)
	})
}

func TestGIDChange(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, f *Fabric, a, b *side) {
		n := f.Host("b").NIC("mem0")
		n.SetGID(1, gidIndexIPv4, verbs.GID{})
		b.event(verbs.EventGIDChange)
		if gids, err := b.dev.GIDs(1); err != nil || len(gids) != 1 {
			t.Errorf("%v, %v", gids, err)
		}
		a.post(a.write(1, b, 0, 8))
		a.expect(1, verbs.StatusRetryExceeded)
	})
}

func TestDeviceRemoved(t *testing.T) {
	virtual(t, Options{Latency: time.Millisecond}, func(t *testing.T, f *Fabric, a, b *side) {
		b.recv(1, 0, 8)
		b.post(b.write(2, a, 0, 8))
		waited := make(chan error)
		go func() {
			_ = b.cq.Arm(true) // a flush is an event
			waited <- b.cq.Wait(t.Context())
		}()
		synctest.Wait()
		n := f.Host("b").NIC("mem0")
		n.Remove()
		if err := <-waited; err != nil && !errors.Is(err, verbs.ErrDeviceGone) {
			t.Error(err)
		}
		b.event(verbs.EventDeviceFatal)
		if _, err := b.dev.NextEvent(t.Context()); !errors.Is(err, verbs.ErrDeviceGone) {
			t.Error(err)
		}
		wcs := make([]verbs.WC, 4)
		if k, err := b.cq.Poll(wcs); k != 2 || err != nil || wcs[0].Status != verbs.StatusFlushed || wcs[1].Status != verbs.StatusFlushed {
			t.Errorf("%d completions, %v: %+v", k, err, wcs[:k])
		}
		_, e1 := b.cq.Poll(wcs)
		_, e2 := b.dev.Port(1)
		_, e3 := b.qp.PostSend([]verbs.SendWR{b.write(3, a, 0, 8)})
		_, e4 := b.dev.AllocPD()
		_, e5 := b.pd.RegisterMemory(b.mem, 0)
		_, e6 := b.qp.State()
		for i, err := range []error{e1, e2, e3, e4, e5, e6, b.cq.Arm(false)} {
			if !errors.Is(err, verbs.ErrDeviceGone) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if infos, err := f.Provider("b").Devices(); len(infos) != 0 || err != nil {
			t.Error(infos, err)
		}
		if _, err := f.Provider("b").Open("mem0"); !errors.Is(err, verbs.ErrNotFound) {
			t.Error(err)
		}
		a.post(a.write(4, b, 0, 8))
		a.expect(4, verbs.StatusRetryExceeded)
		n.Insert()
		again := newSide(t, f, "b")
		again.close()
	})
}

// TestKilledProcess: nothing touches its memory any more, and nobody is told.
func TestKilledProcess(t *testing.T) {
	virtual(t, Options{Latency: time.Millisecond}, func(t *testing.T, f *Fabric, a, b *side) {
		a.mem[0], b.mem[1000] = 1, 2
		a.post(a.write(1, b, 0, 8))
		b.post(b.write(2, a, 1000, 8)) // is on the way
		time.Sleep(time.Microsecond)
		f.Host("b").Kill()
		b.mem[1000] = 99
		a.expect(1, verbs.StatusRetryExceeded)
		if b.mem[0] != 0 {
			t.Error("the memory of the dead was written to")
		}
		if a.mem[1000] != 2 {
			t.Errorf("what was on the way when its sender died arrives as %d, want 2", a.mem[1000])
		}
		if _, err := b.cq.Poll(make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrDeviceGone) {
			t.Error(err)
		}
		if err := b.cq.Wait(t.Context()); !errors.Is(err, verbs.ErrDeviceGone) {
			t.Error(err)
		}
		if _, err := b.qp.PostRecv([]verbs.RecvWR{{}}); !errors.Is(err, verbs.ErrDeviceGone) {
			t.Error(err)
		}
		if c := f.Counts(); c.QPs != 1 {
			t.Errorf("%+v are open", c)
		}
		next := newSide(t, f, "b") // the next process on the host
		a.qp.Close()
		a.newQP()
		connect(t, a, next)
		a.post(a.write(3, next, 0, 8))
		a.expect(3, verbs.StatusOK)
		next.close()
	})
}

func TestHeldPacketsArriveLate(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, f *Fabric, a, b *side) {
		l := f.OneWay("a", "b").Hold()
		a.mem[0] = 1
		a.post(a.write(1, b, 0, 8))
		time.Sleep(10 * time.Millisecond)
		a.idle()
		f.mu.Lock()
		if b.mem[0] != 0 {
			t.Error("it was not held")
		}
		f.mu.Unlock()
		l.Release()
		a.expect(1, verbs.StatusOK)
		if b.mem[0] != 1 {
			t.Error("it did not arrive")
		}
		a.idle()
	})
}

// TestLateWriteOfASenderThatLetGo: what is on the way when a queue pair breaks or
// is closed still lands, with the bytes of then.
func TestLateWriteOfASenderThatLetGo(t *testing.T) {
	for name, letGo := range map[string]func(a *side) error{
		"retries used up": func(a *side) error { a.expect(1, verbs.StatusRetryExceeded); return nil },
		"ToErr":           func(a *side) error { return a.qp.ToErr() },
		"ToReset":         func(a *side) error { return a.qp.ToReset() },
		"Close":           func(a *side) error { return a.qp.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, Options{}, func(t *testing.T, f *Fabric, a, b *side) {
				l := f.OneWay("a", "b").Hold()
				a.mem[0] = 1
				a.post(a.write(1, b, 0, 200<<10))
				if err := letGo(a); err != nil {
					t.Fatal(err)
				}
				a.mem[0] = 2
				b.mem[0] = 3 // the receiver believes that it is its own
				l.Release()
				if b.mem[0] != 1 {
					t.Errorf("the late write gives %d, want 1", b.mem[0])
				}
			})
		})
	}
}

// TestSecondCopyOutlivesItsSlot: a segment was sent again, the first copy was
// acknowledged, and its slot belongs to another work request when the queue pair
// breaks.
func TestSecondCopyOutlivesItsSlot(t *testing.T) {
	virtual(t, Options{Latency: 100 * time.Millisecond}, func(t *testing.T, f *Fabric, a, b *side) {
		back := f.OneWay("b", "a").Hold()
		a.post(a.write(0, b, 0, segmentSize))
		time.Sleep(300 * time.Millisecond) // answered after 200, sent again after 267
		a.idle()
		back.Release()
		a.expect(0, verbs.StatusOK)
		for i := range 64 {
			a.post(a.write(verbs.WRID(1+i), b, 0, 8))
		}
		if err := a.qp.ToErr(); err != nil {
			t.Fatal(err)
		}
		for i := range 64 {
			a.expect(verbs.WRID(1+i), verbs.StatusFlushed)
		}
		time.Sleep(time.Second)
	})
}

// TestLateWriteToAClosedReceiver: Close is the fence.
func TestLateWriteToAClosedReceiver(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, f *Fabric, a, b *side) {
		l := f.OneWay("a", "b").Hold()
		a.mem[0] = 1
		a.post(a.write(1, b, 0, 8))
		b.qp.Close()
		l.Release()
		a.expect(1, verbs.StatusRetryExceeded)
		if b.mem[0] != 0 {
			t.Error("a write landed after Close")
		}
	})
}

// TestRegionClosedUnderWay: a region that is closed while writes read it.
func TestRegionClosedUnderWay(t *testing.T) {
	virtual(t, Options{Latency: time.Millisecond}, func(t *testing.T, _ *Fabric, a, b *side) {
		mem := []byte{1, 2, 3, 4, 5, 6, 7, 8}
		mr, err := a.pd.RegisterMemory(mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		wr := a.write(1, b, 0, 8)
		wr.SGL = []verbs.SGE{{Addr: mr.Addr(), Length: 8, LKey: mr.LKey()}}
		a.post(wr)
		if err := mr.Close(); err != nil {
			t.Fatal(err)
		}
		mem[0] = 99
		a.expect(1, verbs.StatusOK)
		if b.mem[0] != 1 {
			t.Errorf("%v landed", b.mem[:8])
		}
		a.post(wr)
		a.expect(1, verbs.StatusLocalProtection)
	})
}

func TestHoldAndCutAfterBytes(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, f *Fabric, a, b *side) {
		l := f.Wires("a", "b")
		held := l.HoldAfter(3 * segmentSize)
		fill(a.mem, 1)
		a.post(a.write(1, b, 0, sideMemory))
		<-held
		if !bytes.Equal(a.mem[:3*segmentSize], b.mem[:3*segmentSize]) || b.mem[3*segmentSize+1] != 0 {
			t.Error("not held at the byte")
		}
		l.Release()
		a.expect(1, verbs.StatusOK)
		clear(b.mem)
		held = l.HoldAfter(20 * segmentSize) // stays, and does not happen
		cut := f.Wires("a", "b").CutAfter(5 * segmentSize)
		a.post(a.write(2, b, 0, sideMemory))
		<-cut
		a.expect(2, verbs.StatusRetryExceeded)
		if !bytes.Equal(a.mem[:5*segmentSize], b.mem[:5*segmentSize]) || b.mem[5*segmentSize+1] != 0 {
			t.Error("not cut at the byte")
		}
		select {
		case <-held:
			t.Error("held, too")
		default:
		}
		l.Restore()
		a.qp.Close()
		b.qp.Close()
		a.newQP()
		b.newQP()
		connect(t, a, b)
		a.post(a.write(3, b, 0, sideMemory))
		<-held
		l.Release()
		a.expect(3, verbs.StatusOK)
	})
}

func TestOverrun(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, _ *Fabric, a, b *side) {
		small, err := a.dev.CreateCQ(verbs.CQConfig{Size: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer small.Close()
		a.qp.Close()
		big := a.cq
		defer func() { a.cq = big }()
		a.cq = small
		a.newQP()
		defer a.qp.Close()
		b.qp.Close()
		b.newQP()
		connect(t, a, b)
		for i := range 5 {
			a.post(a.write(verbs.WRID(i), b, 0, 8))
		}
		a.event(verbs.EventCQError)
		if s, err := a.qp.State(); s != verbs.StateErr || err != nil {
			t.Error(s, err)
		}
		for i := range 4 {
			a.expect(verbs.WRID(i), verbs.StatusOK)
		}
		if _, err := small.Poll(make([]verbs.WC, 1)); err == nil {
			t.Error("an overrun queue goes on")
		}
	})
}

func TestCompletionsOfAClosedQueuePair(t *testing.T) {
	for _, stale := range []bool{false, true} {
		virtual(t, Options{StaleCompletions: stale}, func(t *testing.T, _ *Fabric, a, b *side) {
			a.post(a.write(1, b, 0, 8))
			a.qp.Close()
			if n, err := a.cq.Poll(make([]verbs.WC, 2)); (n == 1) != stale || err != nil {
				t.Errorf("stale %v: %d completions, %v", stale, n, err)
			}
		})
	}
}

func TestQueuePairFailsByItself(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, f *Fabric, a, _ *side) {
		a.recv(1, 0, 8)
		f.Host("a").NIC("mem0").BreakQP(a.qp.QPN())
		if e := a.event(verbs.EventQPFatal); e.QPN != a.qp.QPN() {
			t.Errorf("%+v", e)
		}
		a.expect(1, verbs.StatusFlushed)
	})
}

func TestMessageLimit(t *testing.T) {
	virtual(t, Options{Devices: []DeviceOptions{{MaxMessage: 4096}}}, func(t *testing.T, _ *Fabric, a, b *side) {
		if p, err := a.dev.Port(1); err != nil || p.MaxMessage != 4096 {
			t.Error(p, err)
		}
		a.post(a.write(1, b, 0, 4096), a.write(2, b, 0, 4097))
		a.expect(1, verbs.StatusOK)
		a.expect(2, verbs.StatusLocalLength)
	})
}

func TestSentIsCounted(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, f *Fabric, a, b *side) {
		before := f.Host("a").Sent()
		b.recv(9, 0, 8)
		imm := a.write(2, b, 0, 20)
		imm.Op = verbs.OpWriteImm
		a.post(a.write(1, b, 0, 100), imm)
		got := f.Host("a").Sent()
		if got.Writes-before.Writes != 1 || got.WriteImms-before.WriteImms != 1 || got.Bytes-before.Bytes != 120 || got.Registrations != before.Registrations {
			t.Errorf("%+v, before %+v", got, before)
		}
		if n := f.OneWay("a", "b").Carried(); n != 120 {
			t.Errorf("%d bytes were carried", n)
		}
	})
}

// TestSpinningLetsTimeGoOn: with PollTime a caller that polls until something
// happens sees it happen on virtual time.
func TestSpinningLetsTimeGoOn(t *testing.T) {
	virtual(t, Options{Latency: time.Millisecond, PollTime: time.Microsecond}, func(t *testing.T, _ *Fabric, a, b *side) {
		a.post(a.write(1, b, 0, 8))
		start, wcs := time.Now(), make([]verbs.WC, 1)
		for n := 0; n == 0; {
			var err error
			if n, err = a.cq.Poll(wcs); err != nil {
				t.Fatal(err)
			}
		}
		took(t, start, 2*time.Millisecond, time.Microsecond)
	})
}

// TestRails: the wires between two NICs can fail alone.
func TestRails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFabric(Options{Devices: []DeviceOptions{{}, {Ports: 2}}})
		f.Between(f.Host("a").NIC("mem1"), f.Host("b").NIC("mem1")).Cut()
		a, b := pair(t, f)
		a.post(a.write(1, b, 0, 8))
		a.expect(1, verbs.StatusOK)
		dev, err := f.Provider("a").Open("mem1")
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		gids, err := dev.GIDs(2)
		if err != nil || len(gids) != 2 || gids[1].GID.String() != "198.18.1.18" {
			t.Error(gids, err)
		}
	})
}

func TestSeedMakesTheSameNumbers(t *testing.T) {
	numbers := func(seed uint64) (verbs.QPN, verbs.RKey, uint64) {
		s := newSide(t, NewFabric(Options{Seed: seed}), "a")
		defer s.close()
		return s.qp.QPN(), s.mr.RKey(), s.mr.Addr()
	}
	q1, r1, a1 := numbers(7)
	if q2, r2, a2 := numbers(7); q1 != q2 || r1 != r2 || a1 != a2 {
		t.Error("the same seed gives other numbers")
	}
	q2, r2, _ := numbers(0)
	if q3, r3, _ := numbers(0); q2 == q3 && r2 == r3 {
		t.Error("without a seed the numbers are the same")
	}
}
