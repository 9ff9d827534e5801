package regmem

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// allocator is what tests allocate sent tensors from.
type allocator interface{ Allocator() tensor.Allocator }

func allocate(t testing.TB, m allocator, n int) *tensor.Buffer {
	t.Helper()
	b, err := m.Allocator().Allocate(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sweep(t testing.TB, m interface{ Sweep(time.Time) (bool, error) }, now time.Time) {
	t.Helper()
	if _, err := m.Sweep(now); err != nil {
		t.Error(err)
	}
}

// blockOf is the block of a buffer; nil when it has none.
func blockOf(buf *tensor.Buffer) *block {
	b, _ := buf.Owner().(*block)
	return b
}

func exhausted(err error) bool {
	return err != nil && status.CodeOf(err) == status.ResourceExhausted
}

var small = Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: 4 * mib}

func TestATensorOfOurOwnMemoryIsFoundAndAnyOtherCopiedOnce(t *testing.T) {
	m, pd := newMemory(t, small)
	buf := allocate(t, m, 1000)
	copy(buf.Bytes(), "content")
	src, err := m.ForSending(buf, buf.Bytes(), NoGrow)
	if err != nil {
		t.Fatal(err)
	}
	if got := pd.at(src.Range, 0); got == nil || &got[0] != &buf.Bytes()[0] || len(got) != 1000 {
		t.Error("the source is not the tensor's memory")
	}
	if s := m.Stats(zero); s.Copies != 0 || s.Sending.InUse != 1024 || s.Sending.Buffers != 1 {
		t.Errorf("%+v", s)
	}
	buf.Release()
	if s := m.Stats(zero); s.Sending.Buffers != 1 {
		t.Error("the source has no reference of its own")
	}
	src.Release()

	foreign := tensor.NewBuffer([]byte("of the heap"), nil)
	src, err = m.ForSending(foreign, foreign.Bytes(), NoGrow)
	if err != nil {
		t.Fatal(err)
	}
	if got := pd.at(src.Range, 0); string(got) != "of the heap" {
		t.Errorf("the copy is %q", got)
	}
	if pd.at(src.Range, verbs.AccessRemoteWrite) != nil || pd.at(src.Range, verbs.AccessLocalWrite) != nil {
		t.Error("the sending pool gives rights")
	}
	foreign.Release()
	src.Release()
	if s := m.Stats(zero); s.Copies != 1 || s.CopiedBytes != 11 || s.Sending.InUse != 0 || s.Sending.Buffers != 0 {
		t.Errorf("%+v", s)
	}
}

// TestATensorIsFoundWhateverItsSize: the capacity of its bytes ends with its length, while
// the block may be larger, unless the length is the size of a class.
func TestATensorIsFoundWhateverItsSize(t *testing.T) {
	m, _ := newMemory(t, small)
	for _, n := range []int{1, 63, 64, 65, 1000, 1024, 5000, mib - 1} {
		x, err := tensor.Allocate(m.Allocator(), tensor.Uint8, tensor.Vector(n))
		if err != nil {
			t.Fatal(err)
		}
		p, ok := m.Find(x.Buffer(), x.Bytes())
		if whole, _ := m.Find(x.Buffer(), x.Buffer().Bytes()); !ok || p != whole || p.Len != uint64(n) {
			t.Errorf("a tensor of %d bytes: %+v, found %v; its buffer is at %+v", n, p, ok, whole)
		}
		x.Release()
	}
}

func TestAReceivedTensorIsSentAgainWithoutACopy(t *testing.T) {
	m, pd := newMemory(t, small)
	a := m.OpenAccount("peer")
	d, err := a.Destination(5000, OnDemand, NoGrow)
	if err != nil {
		t.Fatal(err)
	}
	if got := pd.at(d.Range(), receiveRights); got == nil || &got[0] != &d.Buffer().Bytes()[0] || len(got) != 5000 {
		t.Error("the range for the peer is not the buffer")
	}
	user := d.Buffer().Retain()
	d.Release()
	src, err := m.ForSending(user, user.Bytes(), NoGrow)
	if err != nil {
		t.Fatal(err)
	}
	if src.Range != d.Range() || m.Stats(zero).Copies != 0 {
		t.Error("a tensor of the receiving pool was copied")
	}
	user.Release()
	src.Release()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// Fault 17 of TensorFlow's verbs extension: it checked the beginning of a tensor and not
// its end.
func TestFindLooksAtTheEnd(t *testing.T) {
	m, pd := newMemory(t, small)
	buf, other := allocate(t, m, 4096), allocate(t, m, 4096)
	defer buf.Release()
	defer other.Release()
	for _, c := range []struct {
		from, to int
		want     bool
	}{{0, 4096, true}, {0, 1, true}, {4095, 4096, true}, {100, 200, true}, {0, 0, false}} {
		data := buf.Bytes()[c.from:c.to]
		p, ok := m.Find(buf, data)
		if ok != c.want {
			t.Errorf("bytes %d to %d: %v", c.from, c.to, ok)
		}
		if ok {
			if got := pd.at(p, 0); got == nil || &got[0] != &data[0] || len(got) != len(data) {
				t.Errorf("bytes %d to %d are another place", c.from, c.to)
			}
		}
	}
	// A slice that reaches beyond the block, such as a slice of the arena.
	block := blockOf(buf)
	long := block.arena.mem[block.off : block.off+block.size+1]
	if _, ok := m.Find(buf, long); ok {
		t.Error("memory that ends behind the block was found")
	}
	if _, ok := m.Find(buf, long[:10]); ok {
		t.Error("memory that can grow out of the block was found")
	}
	if _, ok := m.Find(buf, other.Bytes()); ok {
		t.Error("another block's memory was found as this one's")
	}
	if _, ok := m.Find(buf, make([]byte, 4096)); ok {
		t.Error("memory of the heap was found")
	}
	elsewhere, _ := newMemory(t, small)
	if _, ok := elsewhere.Find(buf, buf.Bytes()); ok {
		t.Error("another device's memory was found")
	}
}

func TestALargeTensorHasAnArenaOfItsOwnThatIsReusedAndGivenBack(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: 8 * mib, RecvLimit: mib, Idle: time.Minute})
	made := pd.made
	for range 5 { // a steady flow registers once
		b := allocate(t, m, 3*mib)
		if got := len(b.Bytes()); got != 3*mib || cap(b.Bytes()) != got {
			t.Errorf("%d bytes, room for %d", got, cap(b.Bytes()))
		}
		b.Release()
	}
	if pd.made != made+1 {
		t.Errorf("%d registrations", pd.made-made)
	}
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 4 * mib}, {59 * time.Second, 4 * mib}, {time.Minute, mib}, {time.Hour, mib}} {
		if _, err := m.Sweep(now.Add(c.after)); err != nil {
			t.Fatal(err)
		}
		if got := m.Stats(zero).Sending.Registered; got != c.want {
			t.Errorf("after %v %d bytes are registered, want %d", c.after, got, c.want)
		}
	}
}

func TestUseRestartsTheIdleTimeOfAnArena(t *testing.T) {
	m, _ := newMemory(t, Options{Arena: mib, SendLimit: 8 * mib, RecvLimit: mib, Idle: time.Minute})
	now := time.Unix(1000, 0)
	allocate(t, m, 3*mib).Release()
	sweep(t, m, now)
	allocate(t, m, 3*mib).Release()
	sweep(t, m, now.Add(time.Hour))
	if got := m.Stats(zero).Sending.Registered; got != 4*mib {
		t.Errorf("%d bytes are registered", got)
	}
}

// TestRefusedCopiesMayPass: when others release theirs, and not when the pool is too small.
func TestRefusedCopiesMayPass(t *testing.T) {
	m, _ := newMemory(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: mib})
	held := allocate(t, m, 3*mib)
	if _, err := m.Stage(make([]byte, 2*mib), new(Share)); !exhausted(err) || !passes(err) {
		t.Errorf("beside others: %v", err)
	}
	if _, err := m.Stage(make([]byte, 5*mib), new(Share)); !exhausted(err) || passes(err) {
		t.Errorf("larger than the pool: %v", err)
	}
	held.Release()
}

// passes reports whether a refusal is marked as one that may pass.
func passes(err error) bool {
	_, ok := status.From(err).Payload(status.TryAgain)
	return ok
}

func TestAPoolStaysWithinItsLimitAndAnswersAtOnce(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: mib})
	var held []*tensor.Buffer
	for {
		b, err := m.Allocator().Allocate(mib / 4)
		if err != nil {
			if !exhausted(err) || !passes(err) || !strings.Contains(err.Error(), "sending pool of fake0") {
				t.Errorf("%v", err)
			}
			break
		}
		held = append(held, b)
	}
	if len(held) != 16 || pd.total != 5*mib {
		t.Errorf("%d blocks, %d bytes are registered", len(held), pd.total)
	}
	for _, b := range held {
		b.Release()
	}
	// Idle arenas make space for a large tensor, and the other way round.
	large := allocate(t, m, 4*mib)
	if _, err := m.Allocator().Allocate(1); !exhausted(err) {
		t.Errorf("%v", err)
	}
	large.Release()
	allocate(t, m, 1).Release()
	if _, err := m.Allocator().Allocate(4*mib + 1); !exhausted(err) || passes(err) {
		t.Errorf("%v", err)
	}
	if _, err := m.Allocator().Allocate(-1); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("%v", err)
	}
	if s := m.Stats(zero).Sending; s.Exhausted != 3 || s.InUse != 0 || s.Registered > s.Limit {
		t.Errorf("%+v", s)
	}
}

func TestThePollingGoroutineNeverRegisters(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: 4 * mib, Start: -1})
	a := m.OpenAccount("peer")
	if pd.made != 0 {
		t.Errorf("%d registrations at the start", pd.made)
	}
	if _, err := a.Destination(100, OnDemand, NoGrow); !errors.Is(err, ErrMustGrow) || pd.made != 0 {
		t.Errorf("%v after %d registrations", err, pd.made)
	}
	d, err := a.Destination(100, OnDemand, MayGrow)
	if err != nil || pd.made != 1 {
		t.Fatalf("%v after %d registrations", err, pd.made)
	}
	e, err := a.Destination(100, OnDemand, NoGrow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Destination(4*mib, OnDemand, NoGrow); !exhausted(err) { // growing would not help
		t.Errorf("%v", err)
	}
	if _, err := m.Copy([]byte{1}, NoGrow); !errors.Is(err, ErrMustGrow) {
		t.Errorf("%v", err)
	}
	d.Release()
	e.Release()
}

func TestEarlyDestinationsTakeAQuarter(t *testing.T) {
	m, _ := newMemory(t, Options{Arena: mib, SendLimit: mib, RecvLimit: 4 * mib})
	a, b := m.OpenAccount("one"), m.OpenAccount("other")
	d, err := a.Destination(mib/2, InAdvance, MayGrow)
	if err != nil {
		t.Fatal(err)
	}
	e, err := b.Destination(mib/2, InAdvance, MayGrow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Destination(1, InAdvance, MayGrow); !errors.Is(err, ErrEarlyLimit) {
		t.Errorf("beyond a quarter: %v", err)
	}
	f, err := a.Destination(mib/2, OnDemand, MayGrow)
	if err != nil {
		t.Errorf("on demand: %v", err)
	}
	if s := m.Stats(zero); s.Early != mib {
		t.Errorf("%+v", s)
	}
	d.Release()
	if d, err = b.Destination(1, InAdvance, NoGrow); err != nil {
		t.Errorf("after one came back: %v", err)
	}
	for _, d := range []Destination{d, e, f} {
		d.Release()
	}
	if s := m.Stats(zero); s.Early != 0 || s.Receiving.InUse != 0 {
		t.Errorf("%+v", s)
	}
}

func TestQuarantineNamesTheChannelsToClose(t *testing.T) {
	m, _ := newMemory(t, Options{Arena: mib, SendLimit: mib, RecvLimit: 4 * mib})
	now := time.Unix(1000, 0)
	names := func(now time.Time) (s []string) {
		for _, o := range m.Overdue(now) {
			s = append(s, o.Account.Name())
			if o.Reason == "" {
				t.Error("no reason")
			}
		}
		return s
	}
	old, most, some := m.OpenAccount("old"), m.OpenAccount("most"), m.OpenAccount("some")
	take := func(a *Account, n int) Destination {
		t.Helper()
		d, err := a.Destination(n, OnDemand, MayGrow)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := take(old, 1000)
	d.Quarantine(now)
	d.Quarantine(now.Add(time.Hour))      // only the first counts
	if QuarantineTime != 10*time.Second { // ARCHITECTURE.md section 4
		t.Errorf("memory is in quarantine for %v", QuarantineTime)
	}
	if got := names(now.Add(QuarantineTime - 1)); got != nil {
		t.Errorf("%v", got)
	}
	if got := names(now.Add(QuarantineTime)); fmt.Sprint(got) != "[old]" {
		t.Errorf("%v", got)
	}
	if s := m.Stats(now.Add(time.Second)); s.Quarantine != 1 || s.Quarantined != 1024 || s.Oldest != time.Second {
		t.Errorf("%+v", s)
	}
	later := now.Add(QuarantineTime - 1)
	e, f, g := take(most, mib/2), take(most, mib/2), take(some, mib/4)
	for _, d := range []Destination{e, f, g} {
		d.Quarantine(later)
	}
	if got := names(later); fmt.Sprint(got) != "[most]" { // without it less than a quarter is left
		t.Errorf("%v", got)
	}
	if got := names(now.Add(QuarantineTime)); fmt.Sprint(got) != "[old most]" {
		t.Errorf("%v", got)
	}
	// From the middle, the end and the beginning of the list.
	h := take(most, 100)
	h.Quarantine(later.Add(1))
	f.Release()
	h.Release()
	e.Release()
	d.Release()
	g.Release()
	if got := names(now.Add(time.Hour)); got != nil {
		t.Errorf("%v", got)
	}
	if s := m.Stats(zero); s.Quarantine != 0 || s.Quarantined != 0 || s.Receiving.InUse != 0 {
		t.Errorf("%+v", s)
	}
	for _, a := range []*Account{old, most, some} {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAReleasedDestinationIsNotReleasedTwice(t *testing.T) {
	m, _ := newMemory(t, small)
	a := m.OpenAccount("peer")
	d, err := a.Destination(100, OnDemand, NoGrow)
	if err != nil {
		t.Fatal(err)
	}
	user := d.Buffer().Retain()
	d.Release()
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return
	}
	if !panics(d.Release) {
		t.Error("the user's reference was taken away")
	}
	user.Release()
	if !panics(d.Release) || !panics(func() { d.Quarantine(zero) }) {
		t.Error("memory of somebody else was released")
	}
	if e, err := a.Destination(100, OnDemand, NoGrow); err != nil || a.Close() == nil {
		t.Errorf("%v, and an account with a destination closes without a word", err)
	} else {
		e.Release()
	}
}

func TestALateWriteNamesTheBlock(t *testing.T) {
	var seen []LateWrite
	o := small
	o.LateWrite = func(w LateWrite) { seen = append(seen, w) }
	m, _ := newMemory(t, o)
	for range 3 {
		a, b := allocate(t, m, 1000), allocate(t, m, 5000)
		clear(a.Bytes())
		clear(b.Bytes())
		b.Release()
		a.Release()
	}
	if seen != nil {
		t.Fatalf("%v", seen)
	}
	buf := allocate(t, m, 1000)
	late := buf.Bytes()
	buf.Release()
	late[17] = 5
	allocate(t, m, mib).Release() // another size: merged with its neighbours
	if len(seen) != 1 || seen[0].Number != 7 || seen[0].Offset != 17 || seen[0].Value != 5 || seen[0].Size != 1024 || seen[0].Pool != "sending" {
		t.Errorf("%+v", seen)
	}
	if s := seen[0].String(); !strings.Contains(s, "byte 17 of block 7 of the sending pool (1024 bytes") {
		t.Errorf("%s", s)
	}
}

func TestCloseKeepsTheMemoryOfTensorsInUse(t *testing.T) {
	m, pd := newMemory(t, small)
	a, b, own := allocate(t, m, 1000), allocate(t, m, 2000), allocate(t, m, 2*mib)
	copy(a.Bytes(), "still here")
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(pd.open) != 0 {
		t.Errorf("%d are registered", len(pd.open))
	}
	if _, err := m.Allocator().Allocate(1); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, ok := m.Find(a, a.Bytes()); ok {
		t.Error("memory that is not registered any more was found")
	}
	b.Release()
	own.Release()
	if !bytes.HasPrefix(a.Bytes(), []byte("still here")) {
		t.Error("the memory is gone")
	}
	a.Release()
	if s := m.Stats(zero).Sending; s.InUse != 0 || s.Buffers != 0 || s.Registered != 0 {
		t.Errorf("%+v", s)
	}
}

func TestMemoryThatTheDeviceKeepsStaysMapped(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: mib, RecvLimit: mib})
	pd.keep = verbs.Errorf("deregister", "", verbs.ErrBusy, "windows are bound")
	if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("%v", err)
	}
	pd.keep = nil
	for mr := range pd.open {
		mr.mem[0]++ // would be a fault if it were unmapped
		mr.Close()
	}
	if s := m.Stats(zero); s.Sending.Stuck != mib || s.Receiving.Stuck != mib {
		t.Errorf("%+v", s)
	}
	m, pd = newMemory(t, Options{Arena: mib, SendLimit: mib, RecvLimit: mib})
	pd.keep = verbs.Errorf("deregister", "", verbs.ErrDeviceGone, "gone")
	if err := m.Close(); err != nil {
		t.Errorf("of a device that is gone: %v", err)
	}
	clear(pd.open)
}

// faults reports whether memory is no longer mapped.
func faults(b []byte) (did bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { did = recover() != nil }()
	sink = b[0]
	return false
}

var sink byte

func TestMemoryGoesBackToTheSystem(t *testing.T) {
	m, _ := newMemoryOn(t, verbs.DeviceInfo{Name: "pinning0"}, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: mib, Idle: time.Second})
	own, kept := allocate(t, m, 2*mib), allocate(t, m, 1)
	large, tiny := own.Bytes(), kept.Bytes()
	own.Release()
	sweep(t, m, time.Unix(1, 0))
	if faults(large) {
		t.Error("an arena is gone before its time")
	}
	sweep(t, m, time.Unix(2, 0))
	if !faults(large) {
		t.Error("an idle arena stays mapped")
	}
	m.Close()
	if faults(tiny) {
		t.Error("the memory of a tensor in use is gone")
	}
	kept.Release()
	if !faults(tiny) {
		t.Error("free memory stays mapped")
	}
}

func TestSlots(t *testing.T) {
	m, pd := newMemory(t, small)
	for _, c := range []struct {
		use    SlotUse
		rights verbs.Access
	}{{SendSlots, 0}, {RecvSlots, verbs.AccessLocalWrite}} {
		s, err := m.NewSlots(100, 1000, c.use)
		if err != nil {
			t.Fatal(err)
		}
		if s.Len() != 100 || s.Size() != 1000 {
			t.Errorf("%d of %d", s.Len(), s.Size())
		}
		for i := range s.Len() {
			slot, e := s.Slot(i), s.SGE(i, 1000)
			mem := pd.at(Range{Addr: e.Addr, Len: uint64(e.Length), LKey: e.LKey, RKey: s.mr.RKey()}, c.rights)
			if len(slot) != 1000 || cap(slot) != 1000 || mem == nil || &mem[0] != &slot[0] || e.Addr%granule != 0 {
				t.Fatalf("slot %d is not what its SGE says", i)
			}
		}
		if pd.at(Range{Addr: s.mr.Addr(), Len: 1, LKey: s.mr.LKey(), RKey: s.mr.RKey()}, verbs.AccessRemoteWrite) != nil {
			t.Error("peers may write messages where they like")
		}
		if got := m.Stats(zero).Slots; got != 128<<10 {
			t.Errorf("%d bytes of slots", got)
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if got := m.Stats(zero).Slots; got != 0 {
		t.Errorf("%d bytes of slots are left", got)
	}
	for _, c := range [][2]int{{0, 1}, {1, 0}, {-1, 1}, {1 << 25, 1}, {1, 1<<30 + 1}} {
		if _, err := m.NewSlots(c[0], c[1], SendSlots); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// Allocating, releasing, quarantine, sweeps and statistics from many goroutines: no block
// has two owners, and at the end all are free.
func TestPoolsFromManyGoroutines(t *testing.T) {
	o := Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: 4 * mib}
	o.LateWrite = func(w LateWrite) { t.Error(w) }
	m, _ := newMemory(t, o)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			a := m.OpenAccount(fmt.Sprint(g))
			for i := range 200 {
				n := 1 + (g*7919+i*104729)%(mib*3/2)>>(i%10)
				if i%2 == 0 {
					b, err := m.Allocator().Allocate(n)
					if err != nil {
						continue
					}
					for i := range b.Bytes() {
						b.Bytes()[i] = byte(g)
						if i == 100 {
							break
						}
					}
					if b.Bytes()[0] != byte(g) {
						t.Error("somebody else writes here")
					}
					b.Release()
					continue
				}
				d, err := a.Destination(n, Early(i%4 == 1), MayGrow)
				if err != nil {
					continue
				}
				d.Buffer().Bytes()[n-1] = 1
				if i%3 == 0 {
					d.Quarantine(time.Unix(int64(i), 0))
				}
				m.Overdue(time.Unix(int64(i), 0))
				d.Release()
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		for i := range 50 {
			sweep(t, m, time.Unix(int64(i)*3600, 0))
			m.Stats(zero)
		}
	})
	wg.Wait()
	s := m.Stats(zero)
	if s.Sending.InUse != 0 || s.Receiving.InUse != 0 || s.Sending.Buffers != 0 || s.Early != 0 || s.Quarantined != 0 {
		t.Errorf("%+v", s)
	}
}

// TestCopiesOfAPeerAreCountedOneByOne: concurrent copies take no more memory than
// successive ones.
func TestCopiesOfAPeerAreCountedOneByOne(t *testing.T) {
	m, _ := newMemory(t, Options{Arena: mib, SendLimit: 8 * mib, RecvLimit: 4 * mib})
	var peer Share
	var all sync.WaitGroup
	sources := make(chan SendMemory, 64)
	for range cap(sources) {
		all.Go(func() {
			if s, err := m.Stage(make([]byte, mib/4), &peer); err == nil {
				sources <- s
			}
		})
	}
	all.Wait()
	if n := m.Stats(zero).Sending.InUse; n > 4*mib {
		t.Errorf("%d bytes in %d copies are in use, want at most half of the pool", n, len(sources))
	}
	// A copy that waits for memory counts twice while it gets it, so one beside it may have been refused.
	for s, err := m.Stage(make([]byte, mib/4), &peer); err == nil; s, err = m.Stage(make([]byte, mib/4), &peer) {
		sources <- s
	}
	close(sources)
	if n := m.Stats(zero).Sending.InUse; n != 4*mib || len(sources) != 16 {
		t.Errorf("%d bytes in %d copies are in use, want half of the pool", n, len(sources))
	}
	for s := range sources {
		s.Release()
	}
}

// TestCopiesOfAPeerLeaveRoomForOthers: a peer takes as much as it leaves free, and content
// that is larger than half of the pool is copied while the pool is empty.
func TestCopiesOfAPeerLeaveRoomForOthers(t *testing.T) {
	m, _ := newMemory(t, Options{Arena: mib, SendLimit: 8 * mib, RecvLimit: 4 * mib})
	stage := func(n int, peer *Share, want status.Code) SendMemory {
		t.Helper()
		s, err := m.Stage(make([]byte, n), peer)
		if status.CodeOf(err) != want {
			t.Fatalf("%d bytes for a peer with %d, while %d are in use: %v", n, peer.held.Load(), m.Stats(zero).Sending.InUse, err)
		}
		return s
	}
	var first Share
	stage(7*mib, &first, status.OK).Release()
	first.Release(7 * mib)
	var all []SendMemory
	for _, full := range []int{4, 2, 1} { // what each has when it is full, in MiB
		var peer Share
		for range full {
			all = append(all, stage(mib, &peer, status.OK))
		}
		stage(mib, &peer, status.ResourceExhausted)
	}
	stage(mib/2, new(Share), status.OK).Release()
	for _, s := range all {
		s.Release()
	}
}

// TestAdopt: a destination in memory of a receiver's own has the rules of any other, for
// memory of the receiving pool only, and once at a time.
func TestAdopt(t *testing.T) {
	m, _ := newMemory(t, small)
	a := m.OpenAccount("a")
	own, err := m.ReceiveAllocator().Allocate(5000)
	if err != nil {
		t.Fatal(err)
	}
	sending, err := m.Allocator().Allocate(5000)
	if err != nil {
		t.Fatal(err)
	}
	defer sending.Release()
	heap, err := tensor.Heap{}.Allocate(5000)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		buf *tensor.Buffer
		n   int
	}{"sending": {sending, 10}, "heap": {heap, 10}, "too long": {own, 5001}, "empty": {own, 0}} {
		if _, ok := a.Adopt(c.buf, c.n); ok {
			t.Errorf("%s: adopted", what)
		}
	}
	d, ok := a.Adopt(own, 4000)
	if !ok {
		t.Fatal("memory of the receiving pool was not adopted")
	}
	if p := d.Range(); p.Len != 4000 {
		t.Errorf("the peer may write %d bytes, want 4000", p.Len)
	}
	if _, ok := a.Adopt(own, 4000); ok {
		t.Error("adopted twice")
	}
	if own.Unique() {
		t.Error("the destination holds no reference")
	}
	now := time.Now()
	d.Quarantine(now)
	if s := m.Stats(now); s.Quarantine != 1 || s.Quarantined < 5000 {
		t.Errorf("%d blocks with %d bytes in quarantine", s.Quarantine, s.Quarantined)
	}
	if over := m.Overdue(now.Add(QuarantineTime)); len(over) != 1 {
		t.Errorf("%d channels are overdue, want 1", len(over))
	}
	d.Release()
	if !own.Unique() || m.Stats(now).Quarantined != 0 {
		t.Error("the memory was not given back")
	}
	if d, ok = a.Adopt(own, 5000); !ok {
		t.Fatal("it cannot be adopted again")
	}
	own.Release() // the receiver may release it at any time
	d.Release()
	if s := m.Stats(now); s.Receiving.InUse != 0 {
		t.Errorf("%d bytes are in use", s.Receiving.InUse)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestAdoptSlices: slices of one buffer are destinations at the same time, each with its own
// range, and are found as sources.
func TestAdoptSlices(t *testing.T) {
	m, _ := newMemory(t, small)
	a := m.OpenAccount("a")
	own, err := m.ReceiveAllocator().Allocate(8192)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := m.Find(own, own.Bytes())
	var all []Destination
	for i := range 4 {
		s, err := own.Slice(i*2048, 2048)
		if err != nil {
			t.Fatal(err)
		}
		d, ok := a.Adopt(s, 2048)
		if !ok {
			t.Fatalf("slice %d was not adopted", i)
		}
		p, found := m.Find(s, s.Bytes())
		if want := base.Addr + uint64(i*2048); !found || p.Addr != want || d.Range().Addr != want || d.Range().Len != 2048 {
			t.Errorf("slice %d: %+v, %+v", i, p, d.Range())
		}
		s.Release()
		d.Quarantine(zero)
		all = append(all, d)
	}
	if s := m.Stats(zero); s.Quarantine != 4 || s.Quarantined != 8192 {
		t.Errorf("in quarantine: %d blocks, %d bytes", s.Quarantine, s.Quarantined)
	}
	own.Release()
	for _, d := range all {
		d.Release()
	}
	if s := m.Stats(zero); s.Quarantined != 0 || s.Receiving.InUse != 0 {
		t.Errorf("%+v", s)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestMemoryIsReservedBeforeItIsMapped: arenas and slots are counted in the memory of the process while they are
// mapped, and refused with its error. They register again when it has space.
func TestMemoryIsReservedBeforeItIsMapped(t *testing.T) {
	process := tensor.NewPool(tensor.PoolOptions{Limit: 4 * mib})
	m, _ := newMemory(t, Options{Arena: mib, SendLimit: 16 * mib, RecvLimit: mib, Start: -1, Reserve: func(n int64) (func(), error) {
		held, err := process.Reserve(n)
		if err != nil {
			return nil, err
		}
		return held.Release, nil
	}})
	d := m.domains[0]
	s, err := d.NewSlots(16, 64<<10, SendSlots)
	if err != nil {
		t.Fatal(err)
	}
	var held []*tensor.Buffer
	for {
		b, err := m.Allocator().Allocate(mib)
		if err != nil {
			if !exhausted(err) || !strings.Contains(err.Error(), "limit is 4194304") {
				t.Errorf("%v", err)
			}
			break
		}
		held = append(held, b)
	}
	if len(held) != 3 || process.Stats().InUse != 4*mib {
		t.Errorf("%d arenas, %d bytes are reserved", len(held), process.Stats().InUse)
	}
	if _, err := d.NewSlots(16, 64<<10, SendSlots); !exhausted(err) || !strings.Contains(err.Error(), "slots") {
		t.Errorf("slots: %v", err)
	}
	for _, b := range held {
		b.Release()
	}
	if err := errors.Join(s.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if n := process.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are reserved for memory that is unmapped", n)
	}
}
