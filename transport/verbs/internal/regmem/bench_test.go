package regmem

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// One allocation each, of the buffer's header. A header cannot be used again: a late call
// of its last owner would go undetected.
func TestASteadyFlowAllocatesNothingButHeaders(t *testing.T) {
	m, pd := newMemory(t, Options{Arena: mib, SendLimit: 16 * mib, RecvLimit: 16 * mib})
	a := m.OpenAccount("peer")
	data := tensor.NewBuffer(make([]byte, 100<<10), nil)
	for name, f := range map[string]func(){
		"allocator": func() { allocate(t, m, 300<<10).Release() },
		"own arena": func() { allocate(t, m, 3*mib).Release() },
		"copy": func() {
			s, err := m.ForSending(data, data.Bytes(), NoGrow)
			if err != nil {
				t.Fatal(err)
			}
			s.Release()
		},
		"destination": func() {
			d, err := a.Destination(100<<10, InAdvance, NoGrow)
			if err != nil {
				t.Fatal(err)
			}
			d.Quarantine(zero)
			d.Release()
		},
	} {
		f()
		made := pd.made
		if n := testing.AllocsPerRun(100, f); n > 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if pd.made != made {
			t.Errorf("%s: %d registrations", name, pd.made-made)
		}
	}
}

func BenchmarkAllocate(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"1KiB", 1 << 10}, {"1MiB", mib}, {"own 256MiB", 256 * mib}} {
		b.Run(c.name, func(b *testing.B) {
			m, _ := newMemory(b, Options{SendLimit: 512 * mib, RecvLimit: 64 * mib})
			b.ReportAllocs()
			for b.Loop() {
				allocate(b, m, c.n).Release()
			}
		})
	}
}

func BenchmarkAllocateParallel(b *testing.B) {
	m, _ := newMemory(b, Options{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for n := 1; pb.Next(); n = n%1000 + 1 {
			allocate(b, m, n<<10).Release()
		}
	})
}

func BenchmarkFind(b *testing.B) {
	m, _ := newMemory(b, Options{})
	buf := allocate(b, m, mib)
	defer buf.Release()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := m.Find(buf, buf.Bytes()); !ok {
			b.Fatal("not found")
		}
	}
}
