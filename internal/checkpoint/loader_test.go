package checkpoint

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// gate is an Allocator that a test holds shut: reads wait in it.
type gate struct {
	*tensortest.Allocator
	reads chan struct{} // one token for each read that has begun
	open  chan struct{} // closed when reads may go on
}

func (g *gate) Allocate(n int) (*tensor.Buffer, error) {
	g.reads <- struct{}{}
	<-g.open
	return g.Allocator.Allocate(n)
}

// always is the answer of a loader whose tensors have several pullers.
func always() bool { return true }

// filed returns n entries of 100 bytes each in one file.
func filed(t *testing.T, n int) []*entry {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(path, make([]byte, 100*n), 0o666); err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors := make([]*tensor.Tensor, n)
	for i := range tensors {
		tensors[i] = tensortest.Tensor(t, tensor.Uint8, 100).Named(fmt.Sprint(i))
	}
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &file{path: path, info: FileInfo{Name: "m.safetensors", Format: FormatSafetensors}, stat: stat, r: r, comparisons: newComparisons(nil)}
	t.Cleanup(f.close)
	entries := make([]*entry, n)
	for i := range entries {
		entries[i] = &entry{file: f, info: &TensorInfo{
			Name: fmt.Sprint(i), DType: tensor.Uint8, Shape: tensor.Vector(100), Bytes: 100, Offset: int64(100 * i),
		}}
	}
	return entries
}

type result struct {
	t   *tensor.Tensor
	err error
}

func get(ctx context.Context, l *loader, e *entry) chan result {
	c := make(chan result, 2)
	l.get(ctx, content{entry: e}, func(t *tensor.Tensor, err error) { c <- result{t, err} })
	return c
}

func TestConcurrentRequestsShareOneReadAndOneBuffer(t *testing.T) {
	g := &gate{tensortest.NewAllocator(t), make(chan struct{}, 100), make(chan struct{})}
	l := newLoader(g, 0, -1, always)
	e := filed(t, 1)[0]
	first := get(t.Context(), l, e)
	<-g.reads
	second := get(t.Context(), l, e)
	close(g.open)
	a, b := <-first, <-second
	if a.err != nil || b.err != nil {
		t.Fatal(a.err, b.err)
	}
	if a.t.Buffer() != b.t.Buffer() {
		t.Error("two buffers for one tensor")
	}
	if len(g.reads) != 0 {
		t.Error("it was read twice")
	}
	a.t.Release()
	if n := g.Outstanding(); n != 1 {
		t.Errorf("%d buffers while one request still has it", n)
	}
	b.t.Release()
	if n := g.Outstanding(); n != 0 {
		t.Errorf("%d buffers are kept without a cache", n)
	}
	l.close(errClosed())
}

func TestCacheKeepsWhatWasUsedLastWithinItsBound(t *testing.T) {
	g := &gate{tensortest.NewAllocator(t), make(chan struct{}, 100), make(chan struct{})}
	close(g.open)
	l := newLoader(g, 250, -1, always) // two of 100
	entries := filed(t, 3)
	reads := func(order ...int) {
		t.Helper()
		for _, i := range order {
			r := <-get(t.Context(), l, entries[i])
			if r.err != nil {
				t.Fatal(r.err)
			}
			r.t.Release()
			if n := g.InUse(); n > 250 {
				t.Errorf("%d bytes are kept", n)
			}
		}
	}
	reads(0, 1, 0, 2, 0) // 1 goes for 2: 0 was used after it
	if len(g.reads) != 3 {
		t.Errorf("%d reads, want 3", len(g.reads))
	}
	reads(1)
	if len(g.reads) != 4 {
		t.Errorf("%d reads, want 4", len(g.reads))
	}
	l.forget(entries)
	if n := g.InUse(); n != 0 {
		t.Errorf("%d bytes of what was withdrawn are kept", n)
	}
	reads(0)
	if n := g.InUse(); n != 0 {
		t.Errorf("%d bytes of what was withdrawn are kept", n)
	}
	l.close(errClosed())
}

// TestUnusedContentLeavesTheCache: content that pullers use again stays, the rest goes after
// CacheTime, and no timer runs for an empty cache.
// TestCacheTakesNothingFromOnePullAlone: it would fill new memory with content that nobody asks for
// again. With a second pull under way, that one finds what the first has read.
func TestCacheTakesNothingFromOnePullAlone(t *testing.T) {
	a := tensortest.NewAllocator(t)
	pulls := 1
	l := newLoader(a, 1<<20, -1, func() bool { return pulls > 1 })
	entries := filed(t, 2)
	for _, want := range []int{0, 1} {
		r := <-get(t.Context(), l, entries[want])
		if r.err != nil {
			t.Fatal(r.err)
		}
		r.t.Release()
		if n := a.Outstanding(); n != want {
			t.Errorf("with %d pulls under way %d tensors are cached, want %d", pulls, n, want)
		}
		pulls++
	}
	l.close(errClosed())
}

func TestUnusedContentLeavesTheCache(t *testing.T) {
	entries := filed(t, 2)
	synctest.Test(t, func(t *testing.T) {
		a := &gate{tensortest.NewAllocator(t), make(chan struct{}, 100), make(chan struct{})}
		close(a.open)
		l := newLoader(a, 1<<20, DefaultCacheTime, always)
		use := func(i int) {
			t.Helper()
			r := <-get(context.Background(), l, entries[i])
			if r.err != nil {
				t.Fatal(r.err)
			}
			r.t.Release()
		}
		use(0)
		use(1)
		for range 5 {
			time.Sleep(DefaultCacheTime - time.Second)
			synctest.Wait()
			use(0)
		}
		if n := l.size(); n != 100 || a.InUse() != 100 || len(a.reads) != 2 {
			t.Errorf("%d bytes are cached, %d in use; want the 100 that are used; %d reads, want 2", n, a.InUse(), len(a.reads))
		}
		time.Sleep(DefaultCacheTime + DefaultCacheTime/cacheSweeps)
		synctest.Wait()
		if n := l.size(); n != 0 || a.InUse() != 0 {
			t.Errorf("%d bytes are cached without use, %d in use", n, a.InUse())
		}
		if l.timer.Running() {
			t.Error("the timer of an empty cache runs")
		}
		l.close(errClosed())
	})
}

// TestQuietPublisherHoldsNothing: a minute after the last pull neither the file cache nor the pool
// below it has a byte.
func TestQuietPublisherHoldsNothing(t *testing.T) {
	entries := filed(t, 3)
	synctest.Test(t, func(t *testing.T) {
		pool := tensor.NewPool(tensor.PoolOptions{})
		l := newLoader(pool, 250, DefaultCacheTime, always) // two of 100: others are released to the pool
		for range 4 {
			for _, e := range entries {
				r := <-get(context.Background(), l, e)
				if r.err != nil {
					t.Fatal(r.err)
				}
				r.t.Release()
			}
		}
		if s := pool.Stats(); s.InUse == 0 || s.Kept == 0 {
			t.Fatalf("%+v: the burst is too small to test anything", s)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := pool.Stats(); s.InUse != 0 || s.Kept != 0 {
			t.Errorf("%d bytes are in use, and %d are kept, a minute after the burst", s.InUse, s.Kept)
		}
		l.close(errClosed())
	})
}

// TestCacheGivesBackWhatNobodyReads: what was used last stays as long as the rest suffices.
func TestCacheGivesBackWhatNobodyReads(t *testing.T) {
	a := tensortest.NewAllocator(t)
	l := newLoader(a, 1<<20, -1, always)
	entries := filed(t, 4)
	var read []*tensor.Tensor
	for _, e := range entries {
		r := <-get(t.Context(), l, e)
		if r.err != nil {
			t.Fatal(r.err)
		}
		read = append(read, r.t)
	}
	if l.giveBack(1) {
		t.Error("tensors that are read were given back")
	}
	for _, x := range read[1:] { // the first one is the oldest, and is read
		x.Release()
	}
	if !l.giveBack(101) || l.size() != 200 || a.InUse() != 200 {
		t.Errorf("of 101 bytes: %d are cached, %d in use; want 200", l.size(), a.InUse())
	}
	if r := <-get(t.Context(), l, entries[3]); r.err != nil || r.t.Buffer() != read[3].Buffer() {
		t.Errorf("the tensor that was used last has gone: %v", r.err)
	} else {
		r.t.Release()
	}
	if !l.giveBack(1<<20) || l.size() != 100 || l.giveBack(1<<20) {
		t.Errorf("%d bytes are cached; want the 100 that are read", l.size())
	}
	read[0].Release()
	l.close(errClosed())
}

// One tensor that is larger than the cache leaves what is in it.
func TestCacheOutlivesALargeTensor(t *testing.T) {
	g := &gate{tensortest.NewAllocator(t), make(chan struct{}, 100), make(chan struct{})}
	close(g.open)
	l := newLoader(g, 150, -1, always)
	entries := filed(t, 3)
	large := &entry{file: entries[0].file, info: &TensorInfo{Name: "large", DType: tensor.Uint8, Shape: tensor.Vector(200), Bytes: 200}}
	for _, e := range []*entry{entries[0], large, entries[0]} {
		r := <-get(t.Context(), l, e)
		if r.err != nil {
			t.Fatal(r.err)
		}
		r.t.Release()
	}
	if len(g.reads) != 2 {
		t.Errorf("%d reads, want 2: the small tensor stays", len(g.reads))
	}
	l.close(errClosed())
}

func TestCancelledRequestsEndAtOnce(t *testing.T) {
	g := &gate{tensortest.NewAllocator(t), make(chan struct{}, 100), make(chan struct{})}
	l := newLoader(g, 0, -1, always)
	entries := filed(t, maxReaders+2)
	var busy []chan result
	for _, e := range entries[:maxReaders] { // all readers read
		busy = append(busy, get(t.Context(), l, e))
		<-g.reads
	}
	ctx, cancel := context.WithCancel(t.Context())
	queued := get(ctx, l, entries[maxReaders])
	reading := get(ctx, l, entries[0])
	stays := get(t.Context(), l, entries[maxReaders+1])
	cancel()
	for _, c := range []chan result{queued, reading} {
		if r := <-c; status.CodeOf(r.err) != status.Cancelled {
			t.Errorf("got %v, %v", r.t, r.err)
		}
	}
	close(g.open)
	for _, c := range append(busy, stays) {
		r := <-c
		if r.err != nil {
			t.Fatal(r.err)
		}
		r.t.Release()
	}
	l.close(errClosed())
	if n := len(g.reads); n != 1 {
		t.Errorf("%d more reads, want only the one that somebody waited for", n)
	}
	for _, c := range append(busy, queued, reading, stays) {
		if len(c) != 0 {
			t.Error("a request was answered twice")
		}
	}
}

func TestCloseEndsWhatIsQueuedAndWaitsForReads(t *testing.T) {
	g := &gate{tensortest.NewAllocator(t), make(chan struct{}, 100), make(chan struct{})}
	l := newLoader(g, 1<<20, -1, always)
	entries := filed(t, maxReaders+1)
	var reading []chan result
	for _, e := range entries[:maxReaders] {
		reading = append(reading, get(t.Context(), l, e))
		<-g.reads
	}
	queued := get(t.Context(), l, entries[maxReaders])
	var wg sync.WaitGroup
	wg.Go(func() { l.close(errClosed()) })
	if r := <-queued; status.CodeOf(r.err) != status.Unavailable {
		t.Errorf("queued: %v, %v", r.t, r.err)
	}
	close(g.open)
	wg.Wait()
	for _, c := range reading {
		if r := <-c; r.err == nil {
			r.t.Release()
		}
	}
	if n := g.Outstanding(); n != 0 {
		t.Errorf("%d buffers are kept after the end", n)
	}
	if r := <-get(t.Context(), l, entries[0]); status.CodeOf(r.err) != status.Unavailable {
		t.Errorf("after the end: %v, %v", r.t, r.err)
	}
}

func TestReadersReportWhatTheAllocatorRefuses(t *testing.T) {
	a := tensortest.NewAllocator(t)
	a.SetLimit(50)
	l := newLoader(a, 0, -1, always)
	if r := <-get(t.Context(), l, filed(t, 1)[0]); status.CodeOf(r.err) != status.ResourceExhausted {
		t.Errorf("got %v, %v", r.t, r.err)
	}
	l.close(errClosed())
}

func TestStreamsAreBounded(t *testing.T) {
	var s streams
	s.init()
	var steps []int64
	for range maxStreams {
		step, err := s.begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if _, err := s.begin(nil); status.CodeOf(err) != status.ResourceExhausted || !mayPass(err) { // others end
		t.Errorf("one more: %v", err)
	}
	s.end(steps[0])
	if _, err := s.begin(nil); err != nil {
		t.Error(err)
	}
}

// A file that changes while it is read is an error, whatever was read of it.
func TestFileChangedWhileItIsRead(t *testing.T) {
	f := filed(t, 1)[0].file
	f.tensors = []*TensorInfo{} // it is published
	later := time.Now().Add(time.Hour)
	for name, failure := range map[string]error{"and all was read": nil, "and less was read": io.ErrUnexpectedEOF} {
		err := f.read(func(r *os.File) error {
			if err := os.Chtimes(f.path, later, later); err != nil {
				t.Fatal(err)
			}
			return failure
		})
		if c := pending(err); c != nil {
			err = c.wait(t.Context())
		}
		if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "changed since it was published") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Chtimes(f.path, f.stat.ModTime(), f.stat.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	f.tensors = nil // its digests are being computed
	err := f.read(func(*os.File) error { return os.Chtimes(f.path, later, later) })
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "m.safetensors is being written; publish it when it is complete") {
		t.Errorf("while it is published: %v", err)
	}
}

// A tensor counts against the memory of a pull by its size, but at least so much that the number
// of those under way is bounded, and at most so much that any may be under way alone. A piece of it
// counts alone when it goes to a file; in memory, where the tensor stays until it is delivered, the
// first one counts for all.
func TestWeightOfATensor(t *testing.T) {
	pl := &pull{size: 1 << 20, chosen: []int{0, 1, 2}, manifest: &Manifest{Entries: []TensorInfo{{Bytes: 0}, {Bytes: 100 << 10}, {Bytes: 1 << 30}}}}
	to, disk := newPlaces(pl), newFiles(pl)
	for i, want := range []int64{leastWeight, 100 << 10, 1 << 20} {
		e := &pl.manifest.Entries[i]
		disk.spots[i] = &spot{TensorInfo: e}
		if a, b := to.weight(part{i: i}), disk.weight(part{i: i}); a != want || b != want {
			t.Errorf("a tensor of %d bytes weighs %d in memory and %d for a file, want %d", e.Bytes, a, b, want)
		}
	}
	p := part{i: 2, piece: piece{1 << 20, 300 << 10}}
	if a, b := to.weight(p), disk.weight(p); a != 1<<20 || b != 300<<10 {
		t.Errorf("a piece of 300 KiB weighs %d in memory and %d for a file", a, b)
	}
	to.begin(p)
	if n := to.weight(p); n != 0 {
		t.Errorf("the next piece weighs %d", n)
	}
}
