package regmem

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// What is registered, and what a device does not register.

func TestARefusedRegistrationIsNotTriedWithEachTensor(t *testing.T) {
	m, pd := newMemory(t, small)
	pd.limit = pd.total
	held := allocate(t, m, mib)
	defer held.Release()
	_, first := m.Allocator().Allocate(mib)
	if !exhausted(first) || !errors.Is(first, verbs.ErrMemlock) || !strings.Contains(first.Error(), "ulimit -l ") {
		t.Errorf("%v", first)
	}
	pd.limit = 0
	if _, err := m.Allocator().Allocate(mib); !errors.Is(err, first) {
		t.Errorf("tried again at once: %v", err)
	}
	sweep(t, m, time.Unix(1, 0))
	allocate(t, m, mib).Release()
}

// TestARefusedRegistrationIsNoReasonToRefuseLess: a device that refuses a large region may
// register a small one, and the pool tries it before the next sweep.
func TestARefusedRegistrationIsNoReasonToRefuseLess(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, Start: -1, SendLimit: 64 * mib, RecvLimit: mib})
	pd.limit = 8 * mib
	for _, c := range []struct{ size, asked int }{
		{20 * mib, 1}, {30 * mib, 1}, {20 * mib, 1}, // no less than what was refused
		{10 * mib, 2}, {20 * mib, 2}, {10 * mib, 2},
	} {
		if _, err := m.Allocator().Allocate(c.size); !exhausted(err) {
			t.Errorf("%d bytes: %v", c.size, err)
		}
		if pd.asked != c.asked {
			t.Errorf("%d bytes: the device was asked %d times, want %d", c.size, pd.asked, c.asked)
		}
	}
	defer allocate(t, m, 100).Release()
	defer allocate(t, m, 7*mib).Release()
	if _, err := m.Allocator().Allocate(mib); !exhausted(err) { // a second arena
		t.Error(err)
	}
	allocate(t, m, mib/2).Release() // of the first
}

func TestAttachTellsWhatCannotBeRegisteredAndLeavesNothing(t *testing.T) {
	pd := newFakePD()
	pd.limit = mib
	m, err := New(Options{Arena: mib, SendLimit: mib, RecvLimit: mib})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Attach(pd, verbs.DeviceInfo{Name: "fake0"})
	if !errors.Is(err, verbs.ErrMemlock) || !strings.Contains(err.Error(), "receiving pool") {
		t.Errorf("%v", err)
	}
	if len(pd.open) != 0 {
		t.Errorf("%d are registered", len(pd.open))
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Arena: 1}, {Arena: 2 * DefaultLimit}, {SendLimit: 1}, {RecvLimit: -1}, {Arena: 2 * mib, SendLimit: mib},
	} {
		if _, err := New(o); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%+v: %v", o, err)
		}
	}
	m, pd := newMemoryOn(t, verbs.DeviceInfo{Name: "d", GoMemory: true, Limits: verbs.Limits{MRSize: mib}}, Options{RecvLimit: 128 * mib, SendLimit: 128 * mib})
	for mr := range pd.open {
		if mr.Len() != mib {
			t.Errorf("an arena of %d bytes on a device whose regions have %d", mr.Len(), mib)
		}
	}
	if _, err := m.Allocator().Allocate(mib + 1); !exhausted(err) {
		t.Errorf("%v", err)
	}
}

// TestARegionLimitThatIsNoWholeNumberOfPages: devices have the limit 2³²−1. Regions stay
// below it, tensors up to it are allocated, and a freed one is used again.
func TestARegionLimitThatIsNoWholeNumberOfPages(t *testing.T) {
	for _, region := range []uint64{64<<10 + 1, mib - 1, mib + 63, 3*mib + 5, 3*mib + 64<<10, 33*mib + 64<<10 + 4095, 64*mib - 1} {
		m, pd := newMemoryOn(t, verbs.DeviceInfo{Name: "odd0", GoMemory: true, Limits: verbs.Limits{MRSize: region}}, Options{Arena: 16 * mib})
		largest := int(region) / pageMultiple * pageMultiple
		if s := m.Stats(zero).Sending; s.Arenas != 1 {
			t.Errorf("regions of %d bytes: %d arenas at the start", region, s.Arenas)
		}
		var held []*tensor.Buffer
		for _, n := range []int{64, m.sending.sections[0].arenaSize - 64 - 5, m.sending.sections[0].arenaSize, 4096, largest - 1, largest} {
			held = append(held, allocate(t, m, n))
			check(t, &m.sending)
		}
		if _, err := m.Allocator().Allocate(int(region) + 1); !exhausted(err) {
			t.Errorf("regions of %d bytes, and a tensor of one more: %v", region, err)
		}
		for _, b := range held {
			b.Release()
		}
		made := pd.made
		for range 5 {
			allocate(t, m, largest-10).Release()
			allocate(t, m, m.sending.sections[0].arenaSize-10).Release()
		}
		if pd.made != made {
			t.Errorf("regions of %d bytes: %d registrations for what was there", region, pd.made-made)
		}
		for mr := range pd.open {
			if mr.Len() > region {
				t.Errorf("regions of %d bytes: one of %d", region, mr.Len())
			}
		}
	}
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Attach(newFakePD(), verbs.DeviceInfo{Name: "odd0", Limits: verbs.Limits{MRSize: 4096}})
	if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "odd0") {
		t.Errorf("regions of 4096 bytes: %v", err)
	}
}

// TestATensorAsLargeAsThePool: also when pool and arena are not the size of a class.
func TestATensorAsLargeAsThePool(t *testing.T) {
	for _, limit := range []int64{mib, 4 * mib, 65 * 64 << 10, 97*64<<10 + 1000} {
		for _, arena := range []int64{mib, limit / pageMultiple * pageMultiple} {
			m, _ := newMemory(t, Options{Arena: arena, SendLimit: limit, RecvLimit: limit})
			for range 2 {
				allocate(t, m, int(m.sending.limit)).Release()
				allocate(t, m, 1).Release()
			}
			if s := m.Stats(zero).Sending; s.Registered > limit || limit-s.Limit >= pageMultiple {
				t.Errorf("%d bytes of %d are registered, the limit is %d", s.Registered, limit, s.Limit)
			}
		}
	}
}

// Lengths and offsets beyond 32 bits. The memory is not touched. With the race detector
// the arena is on the Go heap, which clears it, so it is smaller.
func TestATensorOfMoreThan4GiB(t *testing.T) {
	size := 5 << 30
	if raceBuild {
		size = 80 * mib
	}
	m, pd := newMemory(t, Options{SendLimit: 8 << 30, RecvLimit: 8 << 30, Start: -1})
	d, err := m.OpenAccount("peer").Destination(size, OnDemand, MayGrow)
	if err != nil {
		t.Fatal(err)
	}
	if p := d.Range(); p.Len != uint64(size) || len(pd.at(p, receiveRights)) != size {
		t.Errorf("%+v", p)
	}
	all := d.Buffer().Bytes()
	p, ok := m.Find(d.Buffer(), all[size-10:])
	if !ok || p.Addr-d.Range().Addr != uint64(size-10) || p.Len != 10 {
		t.Errorf("its end is at %+v, found %v", p, ok)
	}
	d.Release()
}

func TestTheStartIsRegisteredOnceAndForAll(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: 4 * mib, Start: 3*mib - 1, Idle: time.Second})
	if pd.made != 6 {
		t.Errorf("%d registrations", pd.made)
	}
	sweep(t, m, time.Unix(1, 0))
	sweep(t, m, time.Unix(100, 0))
	if got := m.Stats(zero).Sending.Registered; got != 3*mib {
		t.Errorf("%d are registered after a while", got)
	}
}

// TestMemoryThatIsBeingRegisteredIsAwaited: while the last arena below the limit is made, nothing that
// fits into it is refused.
func TestMemoryThatIsBeingRegisteredIsAwaited(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: 2 * mib, RecvLimit: mib})
	first := allocate(t, m, mib)
	begun, goes := make(chan struct{}), make(chan struct{})
	pd.slow = func() { close(begun); <-goes }
	grows := make(chan *tensor.Buffer)
	go func() {
		b, err := m.Allocator().Allocate(mib / 4)
		if err != nil {
			t.Error(err)
		}
		grows <- b
	}()
	<-begun
	pd.slow = nil
	if _, err := m.Copy(make([]byte, mib/4), NoGrow); !errors.Is(err, ErrMustGrow) {
		t.Errorf("a goroutine that may not wait: %v", err)
	}
	waits := make(chan *tensor.Buffer)
	go func() {
		b, err := m.Allocator().Allocate(mib / 4)
		if err != nil {
			t.Error(err)
		}
		waits <- b
	}()
	close(goes)
	for _, b := range []*tensor.Buffer{first, <-grows, <-waits} {
		if b != nil {
			b.Release()
		}
	}
	if s := m.Stats(zero).Sending; s.Mapped != 2*mib || s.Exhausted != 0 {
		t.Errorf("%+v", s)
	}
}
