package tensor

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestPoolClasses: sizes ascend without a gap, hold what they are chosen for,
// and waste at most what the package says.
func TestPoolClasses(t *testing.T) {
	last := 0
	for i := range 300 {
		size := classSize(i)
		if size <= last || classOf(size) != i || classOf(last+1) != i {
			t.Fatalf("class %d: size %d after %d, classOf(%d) = %d, classOf(%d) = %d",
				i, size, last, size, classOf(size), last+1, classOf(last+1))
		}
		if waste := size - (last + 1); last >= 1024 && waste*16 >= last+1 {
			t.Fatalf("class %d: %d of %d bytes wasted", i, waste, size)
		}
		if size%Alignment != 0 || size >= 1<<20 && size%(64<<10) != 0 {
			t.Fatalf("class %d: size %d", i, size)
		}
		last = size
	}
	if got := classSize(classOf(1 << 40)); got != 1<<40 {
		t.Errorf("1 TiB takes %d bytes", got)
	}
}

func allocate(t testing.TB, a Allocator, n int) *Buffer {
	t.Helper()
	b, err := a.Allocate(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPoolUsesMemoryAgain(t *testing.T) {
	for _, n := range []int{1, 64, 1000, 1025, 100_000, 1 << 20, 3<<20 + 17, 16 << 20} {
		p := NewPool(PoolOptions{})
		defer p.Trim()
		b := allocate(t, p, n)
		first := &b.Bytes()[0]
		if len(b.Bytes()) != n || !aligned(b.Bytes()) {
			t.Errorf("%d bytes: got %d at %p", n, len(b.Bytes()), first)
		}
		b.Bytes()[n-1] = 7
		b.Release()
		again := allocate(t, p, n)
		if &again.Bytes()[0] != first || again.Bytes()[n-1] != 7 {
			t.Errorf("%d bytes: other memory, or memory that was cleared", n)
		}
		if again == b {
			t.Errorf("%d bytes: the header was used again", n)
		}
		mustPanic(t, "released Buffer", func() { b.Bytes() })
		again.Release()
		s := p.Stats()
		if len(s.Classes) != 1 || s.Classes[0].Hits != 1 || s.Classes[0].Misses != 1 || s.Classes[0].Kept != 1 ||
			s.Classes[0].Size != classSize(classOf(n)) || s.Kept != int64(s.Classes[0].Size) || s.InUse != 0 || s.Buffers != 0 {
			t.Errorf("%d bytes: %+v", n, s)
		}
	}
}

func TestPoolLimit(t *testing.T) {
	p := NewPool(PoolOptions{Limit: 1 << 20})
	a := allocate(t, p, 600<<10)
	_, err := p.Allocate(600 << 10)
	if status.CodeOf(err) != status.ResourceExhausted {
		t.Fatalf("beyond the limit: %v", err)
	}
	for _, part := range []string{"614400 bytes", "614400 bytes are in use", "limit is 1048576", "raise the limit"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if _, passes := status.From(err).Payload(status.TryAgain); !passes {
		t.Error("the refusal passes when others release, and does not say so")
	}
	b := allocate(t, p, 300<<10)
	a.Release()
	b.Release()
	// A block of exactly the limit fits, since what is kept makes room.
	allocate(t, p, 1<<20).Release()
	if s := p.Stats(); s.InUse != 0 || s.Limit != 1<<20 {
		t.Errorf("%+v", s)
	}
	_, err = p.Allocate(1<<20 + 1)
	if _, passes := status.From(err).Payload(status.TryAgain); status.CodeOf(err) != status.ResourceExhausted || passes {
		t.Errorf("one byte more than the limit: %v, which passes: %v", err, passes)
	}
}

// TestPoolLimitEvicts: memory that is kept never stands in the way of memory
// that is wanted.
func TestPoolLimitEvicts(t *testing.T) {
	p := NewPool(PoolOptions{Limit: 64 << 10, Keep: 64 << 10})
	small := make([]*Buffer, 64)
	for i := range small {
		small[i] = allocate(t, p, 1<<10)
	}
	if _, err := p.Allocate(64); status.CodeOf(err) != status.ResourceExhausted {
		t.Fatalf("beyond the limit: %v", err)
	}
	for _, b := range small {
		b.Release()
	}
	if s := p.Stats(); s.Kept != 64<<10 {
		t.Fatalf("%+v", s)
	}
	if _, err := p.Allocate(65 << 10); status.CodeOf(err) != status.ResourceExhausted || p.Stats().Kept != 64<<10 {
		t.Errorf("%v; of what was kept %d bytes are left, and no room could be made", err, p.Stats().Kept)
	}
	allocate(t, p, 40<<10).Release()
	if s := p.Stats(); s.Kept != 24<<10 || s.InUse != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPoolWaitsForMemoryThatIsOnItsWay: a block that another goroutine is giving back
// or about to keep is in nobody's use, and no reason to refuse.
func TestPoolWaitsForMemoryThatIsOnItsWay(t *testing.T) {
	for what, arrives := range map[string]func(p *Pool, block []byte){
		"to the system": func(p *Pool, block []byte) { // the second half of evict
			p.kept.Add(-int64(len(block)))
			p.drop(block)
		},
		"to its class": func(p *Pool, block []byte) { // the end of put
			p.classes[classOf(len(block))].push(block)
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := NewPool(PoolOptions{Limit: 4 << 20, Keep: 4 << 20})
			defer p.Trim()
			allocate(t, p, 1<<20).Release()
			defer allocate(t, p, 3<<20).Release()
			moving := p.classes[classOf(1<<20)].popBytes(1)
			if len(moving) != 1 {
				t.Fatalf("%d blocks were kept", len(moving))
			}
			swept := p.sweep.Load()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				for p.sweep.Load() == swept { // the Allocate below has found no room
					runtime.Gosched()
				}
				arrives(p, moving[0])
			})
			allocate(t, p, 1<<20).Release()
			if s := p.Stats(); s.InUse != 3<<20 || s.Kept != 1<<20 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestPoolIsNotExhaustedBelowItsLimit: four goroutines hold a block each, which never
// is more than the limit, so none is refused.
func TestPoolIsNotExhaustedBelowItsLimit(t *testing.T) {
	const limit, most = 18 << 20, 4 << 20
	p := NewPool(PoolOptions{Limit: limit, Keep: limit})
	defer p.Trim()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 1000 {
				b, err := p.Allocate(most/2 + 1 + rng.IntN(most/2))
				if err != nil {
					t.Error(err)
					return
				}
				b.Release()
			}
		})
	}
	wg.Wait()
}

func TestPoolKeepIsBounded(t *testing.T) {
	p := NewPool(PoolOptions{Keep: 1 << 20})
	var all []*Buffer
	for i := range 100 {
		all = append(all, allocate(t, p, 1+i*2000))
	}
	for _, b := range all {
		b.Release()
		if s := p.Stats(); s.Kept > 1<<20 {
			t.Fatalf("%d bytes are kept", s.Kept)
		}
	}
	// What was released last is kept, what was released first had to go.
	s := p.Stats()
	if last := s.Classes[len(s.Classes)-1]; last.Kept == 0 {
		t.Errorf("the block released last was not kept: %+v", last)
	}
	if s.Kept < 1<<19 {
		t.Errorf("only %d bytes are kept", s.Kept)
	}
	// More than a quarter of Keep is given back at once.
	p.Trim()
	allocate(t, p, 1<<18+1).Release()
	if s := p.Stats(); s.Kept != 0 || s.InUse != 0 {
		t.Errorf("a large block was kept: %+v", s)
	}
	allocate(t, p, 1<<18).Release()
	if s := p.Stats(); s.Kept != 1<<18 {
		t.Errorf("a block of a quarter was not kept: %+v", s)
	}
	p.Trim()
	if s := p.Stats(); s.Kept != 0 || s.InUse != 0 {
		t.Errorf("after Trim: %+v", s)
	}
}

func TestPoolKeepsNothing(t *testing.T) {
	for _, keep := range []int64{-1, 63} { // 63: less than any block
		p := NewPool(PoolOptions{Keep: keep})
		for _, n := range []int{1, 1000, 2 << 20} {
			allocate(t, p, n).Release()
		}
		if s := p.Stats(); s.Kept != 0 || s.InUse != 0 || len(s.Classes) != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestPoolKeepIsWithinLimit(t *testing.T) {
	p := NewPool(PoolOptions{Limit: 1 << 10}) // less than DefaultKeep
	allocate(t, p, 64).Release()
	if s := p.Stats(); s.Kept != 64 || s.InUse != 0 {
		t.Errorf("%+v", s)
	}
	NewPool(PoolOptions{Keep: math.MaxInt64}).Trim() // no overflow, no endless table
}

// TestPoolNoMemory: a size that the machine cannot give is an error and no
// crash, and is not counted.
func TestPoolNoMemory(t *testing.T) {
	if !offHeap {
		t.Log("blocks come from the Go heap in this build, where too large a size ends the process; only the count is checked")
		return
	}
	p := NewPool(PoolOptions{})
	b, err := p.Allocate(maxBlock)
	switch {
	case err == nil: // vm.overcommit_memory=1 and a larger address space than amd64's
		t.Logf("this machine promises %d bytes", maxBlock)
		b.Release()
	case status.CodeOf(err) != status.ResourceExhausted || errors.Unwrap(err) == nil:
		t.Errorf("%d bytes: %v", maxBlock, err)
	}
	if s := p.Stats(); s.InUse != 0 || s.Buffers != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPoolConcurrent: no block has two owners, the limits hold all the time,
// and everything is back at the end.
func TestPoolConcurrent(t *testing.T) {
	const goroutines, rounds = 8, 2000
	p := NewPool(PoolOptions{Limit: 4 << 20, Keep: 1 << 20})
	defer p.Trim()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			var mine []*Buffer
			for range rounds {
				if len(mine) < 8 {
					b, err := p.Allocate(1 + rng.IntN(1<<(6+rng.IntN(12))))
					if err != nil {
						if status.CodeOf(err) != status.ResourceExhausted {
							t.Error(err)
						}
						continue
					}
					b.Bytes()[0], b.Bytes()[b.Len()-1] = byte(g), byte(g)
					mine = append(mine, b)
				}
				if len(mine) == 8 || rng.IntN(2) == 0 {
					i := rng.IntN(len(mine))
					b := mine[i]
					if b.Bytes()[0] != byte(g) || b.Bytes()[b.Len()-1] != byte(g) {
						t.Error("a block has two owners")
					}
					b.Release()
					mine[i] = mine[len(mine)-1]
					mine = mine[:len(mine)-1]
				}
				if h, k := p.held.Load(), p.kept.Load(); h > p.limit || k > p.keep {
					t.Errorf("%d bytes held of %d, %d kept of %d", h, p.limit, k, p.keep)
				}
			}
			for _, b := range mine {
				b.Release()
			}
		})
	}
	wg.Wait()
	s := p.Stats()
	if s.InUse != 0 || s.Buffers != 0 {
		t.Errorf("left in use: %+v", s)
	}
	var kept int64
	for _, c := range s.Classes {
		kept += int64(c.Kept) * int64(c.Size)
	}
	if kept != s.Kept {
		t.Errorf("classes keep %d bytes, Stats says %d", kept, s.Kept)
	}
}

// TestPoolHitAllocates: memory that is used again costs one allocation, the
// new header.
func TestPoolHitAllocates(t *testing.T) {
	p := NewPool(PoolOptions{})
	defer p.Trim()
	allocate(t, p, 1<<20).Release()
	if n := testing.AllocsPerRun(100, func() { allocate(t, p, 1<<20).Release() }); n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}

func BenchmarkAllocate(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20, 16 << 20} {
		for _, use := range []string{"bare", "filled"} {
			src := make([]byte, size)
			run := func(name string, a Allocator) {
				b.Run(fmt.Sprintf("%s/%s/%dKiB", name, use, size>>10), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						buf := allocate(b, a, size)
						if use == "filled" {
							copy(buf.Bytes(), src)
						}
						buf.Release()
					}
					if use == "filled" {
						b.SetBytes(int64(size))
					}
				})
			}
			p := NewPool(PoolOptions{})
			run("Pool", p)
			run("PoolKeepsNothing", NewPool(PoolOptions{Keep: -1}))
			run("Heap", Heap{})
			p.Trim()
		}
	}
}

func BenchmarkPoolParallel(b *testing.B) {
	for _, name := range []string{"one size", "own sizes"} {
		b.Run(name, func(b *testing.B) {
			p := NewPool(PoolOptions{})
			defer p.Trim()
			var mu sync.Mutex
			size := 4 << 10
			b.RunParallel(func(pb *testing.PB) {
				mu.Lock()
				mine := size
				if name == "own sizes" {
					size *= 2
				}
				mu.Unlock()
				for pb.Next() {
					allocate(b, p, mine).Release()
				}
			})
		})
	}
}

// TestPoolReserve: what is only counted has the same limit as memory, and kept blocks make
// room for it.
func TestPoolReserve(t *testing.T) {
	pool := NewPool(PoolOptions{Limit: 64 << 10, Keep: 64 << 10})
	b, err := pool.Allocate(16 << 10)
	if err != nil {
		t.Fatal(err)
	}
	b.Release() // kept
	r, err := pool.Reserve(60 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if s := pool.Stats(); s.InUse != 60<<10 || s.Kept != 0 || s.Buffers != 0 || r.Len() != 0 {
		t.Errorf("%+v, and a buffer of %d bytes", s, r.Len())
	}
	if _, err := pool.Reserve(4<<10 + 1); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, err := pool.Allocate(8 << 10); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("memory beyond the limit: %v", err)
	}
	r.Release()
	if s := pool.Stats(); s.InUse != 0 {
		t.Errorf("%+v after the release", s)
	}
	if _, err := pool.Reserve(-1); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("a negative size: %v", err)
	}
}

// TestOffHeap: only memory that is mapped from the operating system may be lent to foreign code, by
// whatever slice it is reached.
func TestOffHeap(t *testing.T) {
	p := NewPool(PoolOptions{})
	for _, n := range []int{0, 64, offHeapSize / 2, offHeapSize, 3 * offHeapSize} {
		b, err := p.Allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := b.OffHeap(), offHeap && n >= offHeapSize; got != want {
			t.Errorf("%d bytes: OffHeap is %v", n, got)
		}
		s, err := b.Slice(n/2, n/4)
		if err != nil {
			t.Fatal(err)
		}
		if s.OffHeap() != b.OffHeap() {
			t.Errorf("%d bytes: OffHeap of a slice is %v", n, s.OffHeap())
		}
		s.Release()
		b.Release()
	}
	if b := NewBuffer(make([]byte, offHeapSize), nil); b.OffHeap() {
		t.Error("memory of the caller is said to be off the heap")
	}
}
