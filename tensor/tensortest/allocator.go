package tensortest

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// pattern fills released memory. It is not text, and its integers and floats are
// values that no test uses.
const pattern = 0xDB

// maxIdle is the maximum of the bytes of released blocks that are checked for late
// writes. Beyond it the oldest block is checked a last time and freed.
const maxIdle = 64 << 20

// Allocator is a tensor.Allocator on the Go heap. It fails its test
//
//   - when a buffer is not released by the end of the test, with the stack of
//     its allocation;
//   - when memory is written after its release, with the stacks of its
//     allocation and release. Released blocks are filled with a pattern, which
//     is checked when a block is reused and at the end of the test. With the
//     race detector late reads are found too.
//
// It may be used from any goroutine.
type Allocator struct {
	t testing.TB

	mu     sync.Mutex // protects the fields below
	out    map[*block]struct{}
	empty  chan struct{} // closed when out becomes empty; nil when no call waits
	idle   []*block      // released, oldest first
	idleN  int           // bytes in idle
	inUse  int64         // bytes in out
	limit  int64
	failed bool // a late write was reported; later ones are not
}

// block is memory with the stacks of its last allocation and release.
type block struct {
	data                []byte
	reserved            int64 // bytes of Reserve, without memory
	allocated, released []uintptr
}

// size returns the bytes that count as in use.
func (b *block) size() int64 { return int64(len(b.data)) + b.reserved }

// NewAllocator returns an Allocator that fails t at its end if buffers are not
// released.
func NewAllocator(t testing.TB) *Allocator {
	a := &Allocator{t: t, out: make(map[*block]struct{})}
	t.Cleanup(a.check)
	return a
}

// SetLimit makes Allocate and Reserve return ResourceExhausted instead of more
// than n bytes in use; 0 means no limit.
func (a *Allocator) SetLimit(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = n
}

// Outstanding returns the number of buffers not yet released.
func (a *Allocator) Outstanding() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.out)
}

// InUse returns the bytes of the buffers not yet released.
func (a *Allocator) InUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inUse
}

// WaitAllReleased waits until every buffer is released. After timeout it fails the
// test, with the stacks of the allocations of the unreleased buffers.
func (a *Allocator) WaitAllReleased(timeout time.Duration) {
	a.t.Helper()
	a.mu.Lock()
	if len(a.out) == 0 {
		a.mu.Unlock()
		return
	}
	if a.empty == nil {
		a.empty = make(chan struct{})
	}
	empty := a.empty
	a.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
		a.t.Errorf("tensortest: after %v %s", timeout, a.leaks())
	}
}

// Allocate implements tensor.Allocator. New memory is zero; reused memory has the
// pattern.
func (a *Allocator) Allocate(n int) (*tensor.Buffer, error) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkLimitLocked(int64(n)); err != nil {
		return nil, err
	}
	b := a.takeIdleLocked(n)
	if b == nil {
		// Heap checks the size and aligns the memory.
		fresh, err := tensor.Heap{}.Allocate(n)
		if err != nil {
			return nil, err
		}
		b = &block{data: fresh.Bytes()}
	}
	b.allocated, b.released = callers(), nil
	a.out[b] = struct{}{}
	a.inUse += int64(n)
	return tensor.NewBuffer(b.data, func() { a.release(b) }), nil
}

func (a *Allocator) checkLimitLocked(n int64) error {
	if a.limit > 0 && n > 0 && n > a.limit-a.inUse {
		return status.Errorf(status.ResourceExhausted,
			"cannot allocate %d bytes: %d bytes are in use and the test's limit is %d", n, a.inUse, a.limit)
	}
	return nil
}

// Reserve implements tensor.Reserver. A reservation that is not released is
// reported as a leaked buffer is.
func (a *Allocator) Reserve(n int64) (*tensor.Buffer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkLimitLocked(n); err != nil {
		return nil, err
	}
	b := &block{reserved: n, allocated: callers()}
	a.out[b] = struct{}{}
	a.inUse += n
	return tensor.NewBuffer(nil, func() { a.release(b) }), nil
}

// takeIdleLocked returns a released block of n bytes, after checking it for late
// writes, or nil.
func (a *Allocator) takeIdleLocked(n int) *block {
	for i, b := range a.idle {
		if len(b.data) == n {
			a.idle = slices.Delete(a.idle, i, i+1)
			a.idleN -= n
			a.checkIdleLocked(b)
			return b
		}
	}
	return nil
}

func (a *Allocator) release(b *block) {
	fillPattern(b.data)
	a.mu.Lock()
	defer a.mu.Unlock()
	b.released = callers()
	delete(a.out, b)
	a.inUse -= b.size()
	if b.reserved == 0 {
		a.idle = append(a.idle, b)
		a.idleN += len(b.data)
	}
	for a.idleN > maxIdle {
		a.checkIdleLocked(a.idle[0])
		a.idleN -= len(a.idle[0].data)
		a.idle = a.idle[1:]
	}
	if len(a.out) == 0 && a.empty != nil {
		close(a.empty)
		a.empty = nil
	}
}

// checkIdleLocked fails the test if a block was written after its release.
func (a *Allocator) checkIdleLocked(b *block) {
	a.t.Helper()
	i := changed(b.data)
	if i < 0 || a.failed {
		return
	}
	a.failed = true
	a.t.Errorf("tensortest: byte %d of a block of %d bytes was written after its release (%#x)\nallocated by\n%sreleased by\n%s",
		i, len(b.data), b.data[i], stack(b.allocated), stack(b.released))
}

// fillPattern fills data with the pattern. It and changed call functions for large
// slices, so that a test with a 1 GiB tensor is fast with the race detector.
func fillPattern(data []byte) {
	for n := copy(data, []byte{pattern}); n > 0 && n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
}

// changed returns the index of the first byte that is not the pattern's, or -1.
func changed(data []byte) int {
	if bytes.Count(data, []byte{pattern}) == len(data) {
		return -1
	}
	return slices.IndexFunc(data, func(b byte) bool { return b != pattern })
}

func (a *Allocator) check() {
	a.t.Helper()
	if report := a.leaks(); report != "" {
		a.t.Errorf("tensortest: at the end of the test %s", report)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.idle {
		a.checkIdleLocked(b)
	}
}

// maxStacks is the number of stacks in a report: the leaks of a loop have one
// cause.
const maxStacks = 5

// leaks describes the unreleased buffers; "" when there are none.
func (a *Allocator) leaks() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.out) == 0 {
		return ""
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%d buffers with %d bytes are not released", len(a.out), a.inUse)
	n := 0
	for b := range a.out {
		if n++; n > maxStacks {
			fmt.Fprintf(&s, "\nand %d more", len(a.out)-maxStacks)
			break
		}
		fmt.Fprintf(&s, "\n%d bytes allocated by\n%s", b.size(), stack(b.allocated))
	}
	return s.String()
}

func callers() []uintptr {
	pcs := make([]uintptr, 32)
	return pcs[:runtime.Callers(3, pcs)]
}

func stack(pcs []uintptr) string {
	var s strings.Builder
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.Function != "" {
			fmt.Fprintf(&s, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return s.String()
		}
	}
}
