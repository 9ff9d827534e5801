package regmem

import (
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePD registers memory and remembers it. Its device addresses differ from the
// addresses of Go, so that a mix-up is found.
type fakePD struct {
	mu     sync.Mutex
	next   uint64
	open   map[*fakeMR]struct{}
	asked  int // number of calls of RegisterMemory
	made   int
	refuse error  // of RegisterMemory
	limit  uint64 // bytes that may be registered; 0 for all
	total  uint64
	keep   error  // of MR.Close
	wait   func() // called by MR.Close of shared memory before it takes effect; nil for none

	waitPlain func() // the same of other memory
	slow      func() // called by RegisterMemory before it takes effect; nil for none
}

// sharingPD is a protection domain whose device shares memory with peers.
type sharingPD struct{ *fakePD }

func (p sharingPD) RegisterShared(mem []byte, fd int, offset int64, access verbs.Access) (verbs.MR, error) {
	mr, err := p.RegisterMemory(mem, access)
	if fake, ok := mr.(*fakeMR); ok {
		fake.fd, fake.offset = fd, offset
	}
	return mr, err
}

type fakeMR struct {
	pd     *fakePD
	mem    []byte
	addr   uint64
	access verbs.Access
	key    uint32
	fd     int // -1: not shared
	offset int64
}

func newFakePD() *fakePD { return &fakePD{next: 1 << 40, open: make(map[*fakeMR]struct{})} }

func (p *fakePD) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	if p.slow != nil {
		p.slow()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.refuse != nil {
		return nil, p.refuse
	}
	if p.limit > 0 && p.total+uint64(len(mem)) > p.limit {
		return nil, verbs.Errorf("register", "fake0", verbs.ErrMemlock, "no more than %d bytes", p.limit)
	}
	p.made++
	m := &fakeMR{pd: p, mem: mem, addr: p.next, access: access, key: uint32(p.made), fd: -1}
	p.next += uint64(len(mem)) + 1<<30
	p.total += uint64(len(mem))
	p.open[m] = struct{}{}
	return m, nil
}

func (p *fakePD) CreateQP(verbs.QPConfig) (verbs.QP, error) { return nil, errors.ErrUnsupported }
func (p *fakePD) Close() error                              { return nil }

func (m *fakeMR) Addr() uint64     { return m.addr }
func (m *fakeMR) Len() uint64      { return uint64(len(m.mem)) }
func (m *fakeMR) LKey() verbs.LKey { return verbs.LKey(m.key) }
func (m *fakeMR) RKey() verbs.RKey { return verbs.RKey(m.key | 1<<31) }

func (m *fakeMR) Close() error {
	if m.pd.wait != nil && m.fd >= 0 {
		m.pd.wait()
	} else if m.pd.waitPlain != nil {
		m.pd.waitPlain()
	}
	m.pd.mu.Lock()
	defer m.pd.mu.Unlock()
	if m.pd.keep != nil {
		return m.pd.keep
	}
	if _, ok := m.pd.open[m]; !ok {
		return nil
	}
	delete(m.pd.open, m)
	m.pd.total -= uint64(len(m.mem))
	return nil
}

// at is the registered memory of a range; nil when not all of it is registered.
func (p *fakePD) at(r Range, need verbs.Access) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.open {
		if m.LKey() == r.LKey && m.RKey() == r.RKey && m.access&need == need &&
			r.Addr >= m.addr && r.Addr+r.Len <= m.addr+m.Len() {
			return m.mem[r.Addr-m.addr:][:r.Len]
		}
	}
	return nil
}

// attached is a Memory with one domain.
type attached struct {
	*Memory
	*Domain
}

// Devices: Go code without and with memory windows, and hardware.
var (
	software = verbs.DeviceInfo{Name: "fake0", GoMemory: true}
	leasing  = verbs.DeviceInfo{Name: "leasing0", GoMemory: true, Windows: true}
	hardware = verbs.DeviceInfo{Name: "pinning0", Windows: true}
)

// newMemory returns a Memory that is attached to a fake protection domain. At the end of
// the test nothing may be registered.
func newMemory(t testing.TB, o Options) (*attached, *fakePD) {
	t.Helper()
	return newMemoryOn(t, software, o)
}

func newMemoryOn(t testing.TB, device verbs.DeviceInfo, o Options) (*attached, *fakePD) {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	d, pd := attach(t, m, device)
	return &attached{m, d}, pd
}

// attach attaches a fake protection domain.
func attach(t testing.TB, m *Memory, device verbs.DeviceInfo) (*Domain, *fakePD) {
	t.Helper()
	pd := newFakePD()
	return attachPD(t, m, pd, pd, device), pd
}

// attachSharing attaches a fake protection domain of a device that shares memory.
func attachSharing(t testing.TB, m *Memory) (*Domain, *fakePD) {
	t.Helper()
	pd := newFakePD()
	return attachPD(t, m, sharingPD{pd}, pd, leasing), pd
}

func attachPD(t testing.TB, m *Memory, as verbs.PD, pd *fakePD, device verbs.DeviceInfo) *Domain {
	t.Helper()
	d, err := m.Attach(as, device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Detach(); err != nil {
			t.Errorf("Detach: %v", err)
		}
		if n := len(pd.open); n > 0 {
			t.Errorf("%d regions are still registered with %s", n, device.Name)
		}
	})
	return d
}

var zero time.Time

const (
	receiveRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	mib           = 1 << 20
)
