package tensor

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// mustPanic runs f and fails the test unless it panics with a text that
// contains want.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		got, _ := recover().(string)
		if !strings.Contains(got, want) {
			t.Errorf("panic %q, want one with %q", got, want)
		}
	}()
	f()
}

func TestBufferCounts(t *testing.T) {
	var freed int
	b := NewBuffer([]byte{1, 2, 3}, func() { freed++ })
	if !b.Unique() || b.Len() != 3 || string(b.Bytes()) != "\x01\x02\x03" {
		t.Errorf("unique %v, %d bytes, %v", b.Unique(), b.Len(), b.Bytes())
	}
	if b.Retain() != b || b.Unique() {
		t.Error("Retain added no reference")
	}
	b.Release()
	if !b.Unique() || freed != 0 {
		t.Errorf("unique %v, freed %d times", b.Unique(), freed)
	}
	b.Release()
	if freed != 1 {
		t.Errorf("freed %d times", freed)
	}
}

// owned counts what comes back to it.
type owned struct{ back [][]byte }

func (o *owned) Reclaim(data []byte) { o.back = append(o.back, data) }

func TestBufferKnowsItsOwner(t *testing.T) {
	o, data := new(owned), make([]byte, 3, 8)
	b := NewOwnedBuffer(data, o)
	if b.Owner() != Owner(o) {
		t.Errorf("the owner is %v", b.Owner())
	}
	b.Retain().Release()
	if len(o.back) != 0 {
		t.Error("the memory went back while a reference was left")
	}
	b.Release()
	if len(o.back) != 1 || &o.back[0][0] != &data[0] || len(o.back[0]) != 3 || cap(o.back[0]) != 8 {
		t.Errorf("what went back is %v", o.back)
	}
	mustPanic(t, "Owner of a released Buffer", func() { b.Owner() })
	if got := NewBuffer(nil, nil).Owner(); got != nil {
		t.Errorf("memory of nobody has the owner %v", got)
	}
}

// promptly is an owner that may be called by anybody.
type promptly struct{ owned }

func (*promptly) ReclaimsPromptly() {}

// TestReleaseBy: the owner's part goes to who is named, but that of an owner that is
// prompt; and only with the last reference.
func TestReleaseBy(t *testing.T) {
	var later []func()
	run := func(do func()) { later = append(later, do) }
	slow, prompt := new(owned), new(promptly)
	for _, c := range []struct {
		what        string
		of          *owned
		b           *Buffer
		atOnce, ran int
	}{
		{"an owner", slow, NewOwnedBuffer(make([]byte, 3), slow), 0, 1},
		{"a prompt owner", &prompt.owned, NewOwnedBuffer(make([]byte, 3), prompt), 1, 0},
		{"nobody", new(owned), NewBuffer(make([]byte, 3), nil), 0, 0},
	} {
		later = nil
		c.b.Retain().ReleaseBy(run)
		if len(c.of.back)+len(later) != 0 {
			t.Errorf("memory of %s went back while a reference was left", c.what)
		}
		c.b.ReleaseBy(run)
		if len(c.of.back) != c.atOnce || len(later) != c.ran {
			t.Errorf("memory of %s: %d times back at once and %d left to others, want %d and %d", c.what, len(c.of.back), len(later), c.atOnce, c.ran)
		}
		mustPanic(t, "Release of a released Buffer", func() { c.b.ReleaseBy(run) })
		for _, do := range later {
			do()
		}
		if want := c.atOnce + c.ran; len(c.of.back) != want {
			t.Errorf("memory of %s went back %d times, want %d", c.what, len(c.of.back), want)
		}
	}
	if _, ok := NewPool(PoolOptions{}).owner.(PromptOwner); !ok {
		t.Error("a Pool is no prompt owner: what is released to it costs a goroutine")
	}
}

func TestBufferWithoutRelease(t *testing.T) {
	NewBuffer(nil, nil).Release()
}

// TestBufferMisuse: every method of a released buffer panics, also after a
// panic that somebody recovered, and the memory is given back only once.
func TestBufferMisuse(t *testing.T) {
	var freed int
	b := NewBuffer(make([]byte, 8), func() { freed++ })
	b.Release()
	for range 3 {
		mustPanic(t, "Retain of a released Buffer", func() { b.Retain() })
		mustPanic(t, "Release of a released Buffer", func() { b.Release() })
		mustPanic(t, "Bytes of a released Buffer", func() { b.Bytes() })
		mustPanic(t, "Len of a released Buffer", func() { b.Len() })
		mustPanic(t, "Unique of a released Buffer", func() { b.Unique() })
	}
	if freed != 1 {
		t.Errorf("freed %d times", freed)
	}
	// More references than releases before must not bring it back either.
	mustPanic(t, "Retain", func() { b.Retain() })
	mustPanic(t, "Retain", func() { b.Retain() })
	mustPanic(t, "Bytes", func() { b.Bytes() })
	// Release has two steps; between them the count is 0.
	mustPanic(t, "Retain", func() { new(Buffer).Retain() })
	if b.data != nil {
		t.Error("a released buffer still holds the memory")
	}
}

// TestBufferConcurrent: references taken and given up by many goroutines; the
// memory is freed once, after the last of them, and readers never see it go.
func TestBufferConcurrent(t *testing.T) {
	const goroutines, rounds = 16, 500
	for range 20 {
		var freed atomic.Int64
		data := []byte{42}
		b := NewBuffer(data, func() { freed.Add(1); data[0] = 0 })
		var wg sync.WaitGroup
		for range goroutines {
			b.Retain()
			wg.Go(func() {
				for range rounds {
					b.Retain()
					if b.Bytes()[0] != 42 {
						t.Error("memory was freed while a reference exists")
					}
					b.Release()
				}
				b.Release()
			})
		}
		b.Release()
		wg.Wait()
		if freed.Load() != 1 {
			t.Fatalf("freed %d times", freed.Load())
		}
	}
}

// TestBufferHandover: writes by the former holders are seen by who finds
// itself alone (the race detector checks that the count orders them).
func TestBufferHandover(t *testing.T) {
	b := NewBuffer(make([]byte, 1), nil)
	b.Retain()
	go func() {
		_ = b.Bytes()[0]
		b.Release()
	}()
	for !b.Unique() {
		runtime.Gosched()
	}
	b.Bytes()[0] = 1
	b.Release()
}

func TestAllocatorsRefuse(t *testing.T) {
	for name, a := range map[string]Allocator{"Heap": Heap{}, "Pool": NewPool(PoolOptions{})} {
		if _, err := a.Allocate(-1); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%s: -1 bytes: %v", name, err)
		}
		if _, err := a.Allocate(math.MaxInt); status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%s: %d bytes: %v", name, math.MaxInt, err)
		}
		if _, err := a.Allocate(maxBlock + 1); status.CodeOf(err) != status.ResourceExhausted {
			t.Errorf("%s: %d bytes: %v", name, maxBlock+1, err)
		}
		b, err := a.Allocate(0)
		if err != nil || b.Len() != 0 {
			t.Fatalf("%s: 0 bytes: %v", name, err)
		}
		b.Release()
	}
}

func TestHeapRefusesAboveMaxHeap(t *testing.T) {
	if MaxHeap >= maxBlock {
		t.Skip("an int says no more")
	}
	_, err := Heap{}.Allocate(MaxHeap + 1)
	if status.CodeOf(err) != status.ResourceExhausted ||
		!strings.Contains(err.Error(), fmt.Sprintf("cannot allocate %d bytes: the limit of the Go heap is %d", MaxHeap+1, MaxHeap)) {
		t.Error(err)
	}
}
