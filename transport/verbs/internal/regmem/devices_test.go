package regmem

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Memory that is registered with several devices.

// empty returns memory that is attached to no domain.
func empty(t testing.TB, o Options) *Memory {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if s := m.Stats(zero); s.Sending.Registered+s.Receiving.Registered != 0 {
			t.Errorf("registered at the end: %+v", s)
		}
	})
	return m
}

// TestATensorIsSentWithoutACopyOverEachDevice: a buffer has a key of each, also of a device
// that comes later.
func TestATensorIsSentWithoutACopyOverEachDevice(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: 16 * mib, RecvLimit: 16 * mib})
	type device struct {
		*Domain
		pd *fakePD
	}
	var all []device
	var held []*tensor.Buffer
	for _, info := range []verbs.DeviceInfo{leasing, software, leasing} {
		d, pd := attach(t, m, info)
		all = append(all, device{d, pd})
		held = append(held, allocate(t, m, 1000), allocate(t, m, 3*mib))
		for i, buf := range held {
			for k, d := range all {
				src, err := d.ForSending(buf, buf.Bytes(), NoGrow)
				if err != nil {
					t.Fatal(err)
				}
				if mem := d.pd.at(src.Range, 0); mem == nil || &mem[0] != &buf.Bytes()[0] || len(mem) != buf.Len() {
					t.Errorf("tensor %d is not what device %d of %d reads", i, k, len(all))
				}
				src.Release()
			}
		}
	}
	if s := m.Stats(zero); s.Copies != 0 {
		t.Errorf("%d copies", s.Copies)
	}
	for _, buf := range held {
		buf.Release()
	}
}

// TestTensorsOutliveTheirDevice: a device that goes takes the registrations with it, and free
// memory goes back to the system. Tensors stay, and the next device registers them.
func TestTensorsOutliveTheirDevice(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: 8 * mib, RecvLimit: 4 * mib})
	first, pd := attach(t, m, leasing)
	buf, own := allocate(t, m, 1000), allocate(t, m, 2*mib)
	into, err := first.ReceiveAllocator().Allocate(5000)
	if err != nil {
		t.Fatal(err)
	}
	copy(buf.Bytes(), "content")
	free := allocate(t, m, 3*mib/2)
	gone := free.Bytes()
	free.Release()
	if err := first.Detach(); err != nil {
		t.Fatal(err)
	}
	if len(pd.open) > 0 {
		t.Errorf("%d regions are left", len(pd.open))
	}
	if _, ok := first.Find(buf, buf.Bytes()); ok {
		t.Error("memory is registered with a device that is gone")
	}
	if !raceBuild && !faults(gone) {
		t.Error("free memory stays mapped without a device")
	}
	if _, err := m.Allocator().Allocate(1); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("without a device: %v", err)
	}
	if s := m.Stats(zero); s.Sending.Registered != 0 || s.Sending.InUse != 2*mib+1024 || s.Sending.Mapped != 3*mib {
		t.Errorf("%+v", s.Sending)
	}
	last := own.Bytes()
	own.Release()
	if !raceBuild && !faults(last) {
		t.Error("the memory of the last tensor stays mapped without a device")
	}
	next, pd := attach(t, m, leasing)
	a := next.OpenAccount("peer")
	p, ok := next.Find(buf, buf.Bytes())
	if mem := pd.at(p, 0); !ok || string(mem[:7]) != "content" {
		t.Error("the tensor is not registered with the next device")
	}
	d, ok := a.Adopt(into, 5000)
	if !ok {
		t.Fatal("memory of the receiver's is not adopted over the next device")
	}
	d.Release()
	into.Release()
	buf.Release()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	check(t, &m.sending)
	check(t, &m.receiving)
}

// TestADeviceThatWentIsNoFault: a goroutine may copy for a device, or receive over it, when its
// registrations end or have ended.
func TestADeviceThatWentIsNoFault(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: 8 * mib, RecvLimit: 4 * mib})
	attach(t, m, leasing)
	d, _ := attach(t, m, leasing)
	account := d.OpenAccount("peer")
	fails := func(want error) {
		t.Helper()
		if _, err := d.Copy(make([]byte, 1000), NoGrow); !errors.Is(err, want) {
			t.Errorf("Copy: %v", err)
		}
		var s Share
		if _, err := d.Stage(make([]byte, 1000), &s); !errors.Is(err, verbs.ErrClosed) || s.held.Load() != 0 || m.staged != 0 {
			t.Errorf("Stage: %v; it counts %d bytes, and %d", err, s.held.Load(), m.staged)
		}
		if _, err := account.Destination(1000, InAdvance, MayGrow); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("Destination: %v", err)
		}
	}
	var kept []*[]*region
	arenas := append(slices.Clone(m.sending.arenas), m.receiving.arenas...)
	for _, a := range arenas { // as between the allocation of a block and a look at its regions
		kept = append(kept, a.regions.Swap(new([]*region)))
	}
	fails(ErrMustGrow)
	for i, a := range arenas {
		a.regions.Store(kept[i])
	}
	if err := d.Detach(); err != nil {
		t.Fatal(err)
	}
	fails(verbs.ErrClosed)
	if err := account.Close(); err != nil {
		t.Error(err)
	}
	if s := m.Stats(zero); s.Sending.InUse+s.Receiving.InUse != 0 {
		t.Errorf("%+v", s)
	}
	check(t, &m.sending)
	check(t, &m.receiving)
}

// TestNoRKeyOfAnArenaReachesWhatOtherDevicesReceive: peers of a device without windows get
// rkeys of arenas. No other device receives into these, and the arenas that they receive
// into give no remote rights. Both sections stay within one limit.
func TestNoRKeyOfAnArenaReachesWhatOtherDevicesReceive(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: mib, RecvLimit: 6 * mib})
	leased, leasedPD := attach(t, m, leasing)
	nic, nicPD := attach(t, m, hardware)
	other, _ := attach(t, m, leasing)
	var all []Destination
	accounts := []*Account{leased.OpenAccount("roce"), nic.OpenAccount("nic"), other.OpenAccount("tcp")}
	for i := range 60 {
		d, err := accounts[i%3].Destination(64<<10, OnDemand, MayGrow)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	rights := verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	for mr := range leasedPD.open {
		if mr.access&rights != 0 {
			t.Errorf("an arena of %d bytes has rights for peers", len(mr.mem))
		}
	}
	reachable := 0
	for mr := range nicPD.open {
		if mr.access&rights == 0 {
			continue
		}
		reachable++
		for i, d := range all {
			if b := d.b; i%3 != 1 && &b.arena.mem[0] == &mr.mem[0] {
				t.Fatalf("a peer of the NIC can write into destination %d", i)
			}
		}
	}
	for i, d := range all {
		if i%3 == 1 && nicPD.at(d.Range(), receiveRights) == nil {
			t.Fatal("a peer of the NIC cannot write into its destination")
		}
	}
	if reachable == 0 {
		t.Error("the NIC has no receiving memory")
	}
	if s := m.Stats(zero).Receiving; s.Registered > 6*mib || s.InUse != 60*64<<10 {
		t.Errorf("%+v", s)
	}
	if _, err := accounts[1].Destination(3*mib, OnDemand, MayGrow); !exhausted(err) {
		t.Errorf("beyond the limit of both: %v", err)
	}
	for _, d := range all {
		d.Release()
	}
	d, err := accounts[1].Destination(6*mib, OnDemand, MayGrow) // idle memory of the other section makes room
	if err != nil {
		t.Fatal(err)
	}
	d.Release()
	check(t, &m.receiving)
}

// TestAdoptIsOfTheDevicesOfOneKind: with and without windows.
func TestAdoptIsOfTheDevicesOfOneKind(t *testing.T) {
	m := empty(t, small)
	nic, _ := attach(t, m, hardware)
	roce, _ := attach(t, m, leasing)
	tcp, _ := attach(t, m, leasing)
	for _, c := range []struct {
		of, by *Domain
		want   bool
	}{{nic, nic, true}, {nic, roce, false}, {roce, nic, false}, {roce, tcp, true}} {
		buf, err := c.of.ReceiveAllocator().Allocate(1000)
		if err != nil {
			t.Fatal(err)
		}
		a := c.by.OpenAccount("peer")
		d, ok := a.Adopt(buf, 1000)
		if ok != c.want {
			t.Errorf("memory of %s, adopted by %s: %v", c.of.device.Name, c.by.device.Name, ok)
		}
		if ok {
			d.Release()
		}
		for _, d := range []*Domain{nic, roce, tcp} { // sent without a copy over all of its kind
			if _, ok := d.Find(buf, buf.Bytes()); ok != (d.receive == c.of.receive) {
				t.Errorf("memory received over %s, sent over %s: %v", c.of.device.Name, d.device.Name, ok)
			}
		}
		buf.Release()
	}
}

// TestADeviceThatRefusesMemoryGetsCopies: the limit of locked memory of one device holds up
// no other. What it has not registered is copied for it.
func TestADeviceThatRefusesMemoryGetsCopies(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: 16 * mib, RecvLimit: mib, Start: -1})
	roce, _ := attach(t, m, leasing)
	before := allocate(t, m, 4*mib)
	pd := newFakePD()
	pd.limit = 2 * mib
	nic := attachPD(t, m, pd, pd, hardware)
	after, shared := allocate(t, m, 3*mib), allocate(t, m, 1000)
	for name, buf := range map[string]*tensor.Buffer{"before": before, "after": after, "small": shared} {
		if _, ok := roce.Find(buf, buf.Bytes()); !ok {
			t.Errorf("%s: not registered with the device that has room", name)
		}
		if _, ok := nic.Find(buf, buf.Bytes()); ok != (name == "small") {
			t.Errorf("%s: registered with the device that has none: %v", name, ok)
		}
	}
	src, err := nic.ForSending(before, before.Bytes()[:1000], MayGrow)
	if err != nil {
		t.Fatal(err)
	}
	if pd.at(src.Range, 0) == nil {
		t.Error("the copy is not registered")
	}
	src.Release()
	if _, err := nic.ForSending(before, before.Bytes(), MayGrow); !exhausted(err) || !errors.Is(err, verbs.ErrMemlock) {
		t.Errorf("a copy that the device has no room for: %v", err)
	}
	again := allocate(t, m, 2*mib) // the device that refuses less is no reason
	for _, buf := range []*tensor.Buffer{before, after, shared, again} {
		buf.Release()
	}
	check(t, &m.sending)
}

// TestPagesThatADevicePinsAreNotDiscarded: memory of a software device loses its free pages,
// unless a device that pins them has registered it. Memory of the Go heap is never
// registered with such a device.
func TestPagesThatADevicePinsAreNotDiscarded(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: mib, RecvLimit: mib, Start: mib})
	attach(t, m, leasing)
	allocate(t, m, mib/2).Release()
	held := allocate(t, m, 1000)
	defer held.Release()
	nic, _ := attach(t, m, hardware)
	if _, ok := nic.Find(held, held.Bytes()); ok == raceBuild {
		t.Errorf("memory from before is registered with hardware: %v", ok)
	}
	now := zero.Add(time.Hour)
	for range 3 * DefaultIdle / time.Second {
		now = now.Add(time.Second)
		sweep(t, m, now)
	}
	if n := m.Stats(now).Sending.Absent; n > 0 {
		t.Errorf("%d bytes of pinned memory were discarded", n)
	}
}

// TestDevicesComeAndGoWhileTensorsAreSent: allocations and look-ups of one device do not
// notice others.
func TestDevicesComeAndGoWhileTensorsAreSent(t *testing.T) {
	o := Options{Arena: mib, SendLimit: 16 * mib, RecvLimit: 16 * mib}
	o.LateWrite = func(w LateWrite) { t.Error(w) }
	m := empty(t, o)
	stays, pd := attach(t, m, leasing)
	var senders, changes sync.WaitGroup
	stop := make(chan struct{})
	for g := range 3 {
		senders.Go(func() {
			a := stays.OpenAccount(fmt.Sprint(g))
			for i := range 300 {
				n := 1 + (g*7919+i*104729)%(mib*3/2)>>(i%8)
				buf := allocate(t, m, n)
				buf.Bytes()[n-1] = byte(g)
				if p, ok := stays.Find(buf, buf.Bytes()); !ok || pd.at(p, 0) == nil {
					t.Error("a tensor is not registered with the device that stays")
				}
				d, err := a.Destination(n, OnDemand, MayGrow)
				if err != nil {
					t.Error(err)
				} else {
					d.Release()
				}
				buf.Release()
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for i, info := range []verbs.DeviceInfo{leasing, hardware} {
		changes.Go(func() {
			for n := time.Duration(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				d, err := m.Attach(newFakePD(), info)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := m.Sweep(zero.Add(n * time.Hour)); err != nil {
					t.Error(i, err)
				}
				if err := d.Detach(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	close(stop)
	changes.Wait()
	if s := m.Stats(zero); s.Sending.InUse != 0 || s.Receiving.InUse != 0 {
		t.Errorf("%+v", s)
	}
	check(t, &m.sending)
	check(t, &m.receiving)
}

// TestMemoryThatADeviceKeepsIsNotUsedAgain: a device that does not end a registration may still
// write there. Tensors in use stay; the other device gets new memory.
func TestMemoryThatADeviceKeepsIsNotUsedAgain(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: 4 * mib})
	stays, _ := attach(t, m, leasing)
	pd := newFakePD()
	goes := attachPD(t, m, pd, pd, leasing)
	held := allocate(t, m, 1000)
	kept := blockOf(held).arena
	pd.keep = verbs.Errorf("deregister", "", verbs.ErrBusy, "windows are bound")
	if err := goes.Detach(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("%v", err)
	}
	now := allocate(t, m, 1000)
	if blockOf(now).arena == kept {
		t.Error("memory that a device may write to was allocated again")
	}
	if _, ok := stays.Find(now, now.Bytes()); !ok {
		t.Error("the new memory is not registered")
	}
	last := held.Bytes()
	held.Release()
	now.Release()
	if !raceBuild && faults(last) {
		t.Error("memory that a device may write to was unmapped")
	}
	if s := m.Stats(zero); s.Sending.Stuck != mib || s.Receiving.Stuck != mib {
		t.Errorf("%+v", s)
	}
	pd.keep = nil
	for mr := range pd.open {
		mr.Close()
	}
	check(t, &m.sending)
}
