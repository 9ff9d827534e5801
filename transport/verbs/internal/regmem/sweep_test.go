package regmem

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// sweepFor sweeps every second for d, and returns when it began and the last result.
func sweepFor(t *testing.T, m *attached, from time.Time, d time.Duration) (now time.Time, more bool) {
	t.Helper()
	for now = from; now.Sub(from) < d; now = now.Add(time.Second) {
		var err error
		if more, err = m.Sweep(now); err != nil {
			t.Fatal(err)
		}
	}
	return now, more
}

// TestAfterABurstOnlyTheStartStaysRegistered: and then there is nothing more to sweep.
func TestAfterABurstOnlyTheStartStaysRegistered(t *testing.T) {
	for _, software := range []bool{false, true} {
		active := 0
		m, pd := newMemoryOn(t, verbs.DeviceInfo{Name: "fake0", GoMemory: software}, Options{
			Arena: mib, SendLimit: 64 * mib, RecvLimit: 64 * mib, Active: func() { active++ },
		})
		before := pd.total
		if _, more := sweepFor(t, m, zero, time.Second); more || active > 0 {
			t.Errorf("there is something to sweep at the start; active was called %d times", active)
		}
		var held []*tensor.Buffer
		for _, n := range []int{mib / 2, mib / 3, mib, 5 * mib, 17 * mib, 100} {
			held = append(held, allocate(t, m, n))
		}
		a := m.OpenAccount("peer")
		d, err := a.Destination(3*mib, OnDemand, MayGrow)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range held {
			b.Release()
		}
		d.Release()
		if active == 0 || pd.total < before+20*mib {
			t.Errorf("active was called %d times, %d bytes are registered", active, pd.total)
		}
		now, more := sweepFor(t, m, zero.Add(time.Minute), DefaultIdle)
		if !more {
			t.Error("the arenas that are idle are forgotten")
		}
		if _, more = sweepFor(t, m, now, 2*time.Second); more || pd.total != before {
			t.Errorf("software %v: after %v %d bytes are registered, want %d; more to sweep: %v", software, DefaultIdle, pd.total, before, more)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSteadyUseRegistersOnce: pauses below the idle time deregister nothing.
func TestSteadyUseRegistersOnce(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: 64 * mib, RecvLimit: mib})
	now, made := zero, pd.made
	for range 20 {
		for _, n := range []int{mib / 2, mib, 4 * mib} {
			defer allocate(t, m, 100).Release() // the first arena stays in use
			allocate(t, m, n).Release()
		}
		now, _ = sweepFor(t, m, now, DefaultIdle-time.Second)
	}
	if got := pd.made - made; got > 2 {
		t.Errorf("%d registrations in 20 rounds, want one for each of 2 arenas", got)
	}
}

// TestQuarantinedMemoryStaysRegistered: a peer may still write to it. It goes after the release.
func TestQuarantinedMemoryStaysRegistered(t *testing.T) {
	active := 0
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: mib, RecvLimit: 64 * mib, Active: func() { active++ }})
	before := pd.total
	a := m.OpenAccount("peer")
	d, err := a.Destination(5*mib, OnDemand, MayGrow)
	if err != nil {
		t.Fatal(err)
	}
	d.Quarantine(zero)
	if active == 0 {
		t.Error("nothing looks at the quarantine")
	}
	now, more := sweepFor(t, m, zero, time.Hour)
	if !more || pd.total != before+5*mib {
		t.Errorf("%d bytes are registered, more to sweep: %v", pd.total, more)
	}
	d.Release()
	if _, more = sweepFor(t, m, now, DefaultIdle+2*time.Second); more || pd.total != before {
		t.Errorf("after the release %d bytes are registered, want %d; more to sweep: %v", pd.total, before, more)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
