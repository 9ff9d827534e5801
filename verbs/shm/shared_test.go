//go:build linux

package shm

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// TestSuiteShared: the memory of both ends is in memfds, which the other end reads itself.
func TestSuiteShared(t *testing.T) {
	m := &memfds{}
	verbstest.Run(t, verbstest.Env{
		Ends: func(t testing.TB) (a, b verbstest.End) {
			a, b = twoEnds(t)
			a.Provider, b.Provider = sharing{a.Provider, m}, sharing{b.Provider, m}
			return a, b
		},
		Memory: m.memory, Unsupported: unsupported,
	})
}

// TestSuiteSharedOneDevice: likewise with one device, whose queue pairs may be connected to
// themselves.
func TestSuiteSharedOneDevice(t *testing.T) {
	m := &memfds{}
	verbstest.Run(t, verbstest.Env{
		Ends: func(t testing.TB) (a, b verbstest.End) {
			a, _ = twoEnds(t)
			a.Provider = sharing{a.Provider, m}
			return a, a
		},
		Memory: m.memory, Groups: []string{"State", "Data", "Failure", "Close"}, Unsupported: unsupported,
	})
}

// memfds is memory of memfds for tests.
type memfds struct {
	mu   sync.Mutex
	list []*file
}

func (m *memfds) memory(t testing.TB, size int) []byte {
	f, err := newMemfd(size)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, f)
	t.Cleanup(f.free)
	return f.mem
}

// find returns the memfd that contains mem, and the offset of mem in it.
func (m *memfds) find(mem []byte) (f *file, at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.list {
		if at := cap(f.mem) - cap(mem); len(mem) > 0 && at >= 0 && at < len(f.mem) && &f.mem[at] == &mem[0] {
			return f, at
		}
	}
	return nil, 0
}

// sharing is a provider that registers memory of memfds as such.
type sharing struct {
	verbs.Provider
	memfds *memfds
}

func (p sharing) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return sharingDevice{d, p.memfds}, err
}

type sharingDevice struct {
	verbs.Device
	memfds *memfds
}

func (d sharingDevice) AllocPD() (verbs.PD, error) {
	p, err := d.Device.AllocPD()
	return sharingPD{p, d.memfds}, err
}

type sharingPD struct {
	verbs.PD
	memfds *memfds
}

func (p sharingPD) RegisterMemory(mem []byte, access verbs.Access) (verbs.MR, error) {
	f, at := p.memfds.find(mem)
	if f == nil {
		return p.PD.RegisterMemory(mem, access)
	}
	return as[*pd](p.PD).RegisterShared(mem, f.fd, int64(at), access)
}

// TestRegisterSharedRefusesWhatPeersRefuse: the owner learns at once that peers would not accept
// its memory.
func TestRegisterSharedRefusesWhatPeersRefuse(t *testing.T) {
	d := must(New(Options{}).Open(DeviceName))(t)
	p := must(d.AllocPD())(t)
	t.Cleanup(func() { p.Close(); d.Close() })
	fd := must(unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if mr, err := as[*pd](p).RegisterShared(make([]byte, 4096), fd, 0, verbs.AccessLocalWrite); err == nil {
		t.Error("a memfd without seals was accepted")
		mr.Close()
	}
	f := must(newMemfd(4096))(t)
	t.Cleanup(f.free)
	for _, c := range [][2]int{{1, 4096}, {-1, 8}, {4097, 1}} {
		if mr, err := as[*pd](p).RegisterShared(make([]byte, c[1]), f.fd, int64(c[0]), verbs.AccessLocalWrite); err == nil {
			t.Errorf("%d bytes at %d of a memfd of 4096 bytes were accepted", c[1], c[0])
			mr.Close()
		}
	}
}

// must fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// as returns v as a T; it is one, or the test panics at its first use.
func as[T any](v any) T {
	x, _ := v.(T)
	return x
}
