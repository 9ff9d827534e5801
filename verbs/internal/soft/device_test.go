package soft

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/verbs"
)

func newDevice(t *testing.T, h Hooks) *Device {
	d := new(Device)
	d.Init("device", verbs.Limits{QPs: 2, CQs: 2, MRs: 2, PDs: 1, SendWR: 4, RecvWR: 4, SGEs: 1, CQEntries: 8}, h)
	t.Cleanup(func() {
		if ended, err := d.End(); !ended || err != nil {
			t.Errorf("the device did not close: %v, %v", ended, err)
		}
		if ended, err := d.End(); ended || err != nil {
			t.Errorf("a second close: %v, %v", ended, err)
		}
	})
	return d
}

func newPD(t *testing.T, d *Device) *PD {
	t.Helper()
	p, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCloseOfARegionWaitsWithoutTheDevicesLock: what a provider waits for may take the lock, and the
// region counts until it has come.
func TestCloseOfARegionWaitsWithoutTheDevicesLock(t *testing.T) {
	var d *Device
	closed := 0
	d = newDevice(t, Hooks{RegionClosed: func(r *Region) func() {
		if d.Mu.TryLock() {
			t.Error("the hook is called without the lock")
		}
		if d.Keys.LocalLocked(r.LKey()) != nil {
			t.Error("the key gives access when the hook is called")
		}
		return func() {
			if n := d.Counts().MRs; n != 1 { // takes the lock
				t.Errorf("%d regions while one is waited for", n)
			}
			closed++
		}
	}})
	p := newPD(t, d)
	r, err := p.Register(make([]byte, 8), verbs.AccessLocalWrite, "backing")
	check(t, err)
	if r.Backing() != "backing" {
		t.Errorf("the backing is %v", r.Backing())
	}
	check(t, r.Close())
	check(t, r.Close())
	if closed != 1 || d.Counts().MRs != 0 {
		t.Errorf("closed %d times; %+v", closed, d.Counts())
	}
}

// TestCloseOfAWindowTellsTheProvider once, when its key gives no access.
func TestCloseOfAWindowTellsTheProvider(t *testing.T) {
	var d *Device
	var p *PD
	through, told := new(int), 0
	d = newDevice(t, Hooks{WindowClosed: func(w *Window) {
		told++
		if _, ok := d.Keys.Granted(&p.Domain, through, w.Region().Addr(), 1, w.RKey(), verbs.AccessRemoteRead); ok || w.Through() != through {
			t.Errorf("the key gives access: %v; through %v", ok, w.Through())
		}
	}})
	p = newPD(t, d)
	mr, err := p.RegisterMemory(make([]byte, 8), verbs.AccessLocalWrite|verbs.AccessBindWindow)
	check(t, err)
	d.Mu.Lock()
	w, bad := p.BindLocked("bind window", through, verbs.StateRTS, mr, 4, 4, verbs.AccessRemoteRead)
	d.Mu.Unlock()
	if bad != nil {
		t.Fatal(bad)
	}
	for name, c := range map[string]struct {
		through any
		at, n   uint64
		want    bool
	}{
		"the queue pair": {through, 4, 4, true}, "another one": {new(int), 4, 4, false}, "before it": {through, 3, 1, false}, "beyond it": {through, 4, 5, false},
	} {
		if b, ok := d.Keys.Granted(&p.Domain, c.through, mr.Addr()+c.at, c.n, w.RKey(), verbs.AccessRemoteRead); ok != c.want || ok && len(b) != int(c.n) {
			t.Errorf("%s: %v, %d bytes", name, ok, len(b))
		}
	}
	if err := mr.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("a region with a window closes: %v", err)
	}
	check(t, w.Close())
	check(t, w.Close())
	check(t, mr.Close())
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// TestGoneDeviceEndsWaits: for events and for completions, and later calls fail.
func TestGoneDeviceEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t, Hooks{})
		c, err := d.NewCQ(verbs.CQConfig{Size: 1})
		check(t, err)
		defer c.Close()
		ended := make(chan error, 2)
		go func() { ended <- c.Wait(context.Background()) }()
		go func() {
			_, err := d.NextEvent(context.Background())
			ended <- err
		}()
		synctest.Wait()
		d.Mu.Lock()
		if !d.MarkGoneLocked("it was unplugged") || d.MarkGoneLocked("twice") {
			t.Error("a device is gone once")
		}
		d.SignalGoneLocked()
		d.Mu.Unlock()
		for range 2 {
			if err := <-ended; !errors.Is(err, verbs.ErrDeviceGone) {
				t.Errorf("a wait ends with %v", err)
			}
		}
		if _, err := c.Poll(make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrDeviceGone) {
			t.Errorf("poll: %v", err)
		}
		if err := c.Arm(false); !errors.Is(err, verbs.ErrDeviceGone) {
			t.Errorf("arm: %v", err)
		}
		if _, err := d.NewPD(); !errors.Is(err, verbs.ErrDeviceGone) {
			t.Errorf("allocate PD: %v", err)
		}
	})
}

// TestFullQueueOfEventsLosesTheOldest.
func TestFullQueueOfEventsLosesTheOldest(t *testing.T) {
	d := newDevice(t, Hooks{})
	for i := range verbs.QPN(maxEvents + 3) {
		d.Event(verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: i})
	}
	for i := range verbs.QPN(maxEvents) {
		if e, err := d.NextEvent(context.Background()); err != nil || e.QPN != i+3 {
			t.Fatalf("event %d is of %v, %v", i, e.QPN, err)
		}
	}
}
